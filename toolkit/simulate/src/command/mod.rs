//! Parses options, resolves them, runs the experiment and prints the results.

mod failure;
mod options;
mod points;
mod scenario;
mod served;

use crate::SimulateError;
use crate::cache::{Geometry, MOST_L2, Replacement, Setup};
use crate::experiment::{self, Experiment, Step, Workload};
use crate::guest::Kernel;
use crate::machine::{Limits, Qemu};
use crate::render;
use crate::simulation::{Cost, FILE, Simulation};
use anyhow::{Context, Result};
use failure::{note, print, say, wrong_usage};
use options::{Command, MachineToml, ReplacementWord, ReportArgs, SimulateArgs};
use record::run::{RunDir, RunRecord, RunWriter, write_whole};
use record::scenario::ToolRun;
use record::{RunKind, Scenario, Status, shell};
use scenario::ScenarioFile;
use schemars::generate::SchemaSettings;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The NAME of `straingauge NAME`.
const TOOL: &str = "simulate";
const MOST_SEEDS: u64 = 100;
const MOST_PACKETS: u64 = 10_000_000;
const LEAST_MEMORY_MIB: u64 = 256;
/// With more memory, it is not contiguous below the devices, and addresses differ from those that the plugin assumes.
const MOST_MEMORY_MIB: u64 = 3072;
const PACKETS: u64 = 4000;
const WARMUP_PACKETS: u64 = 1000;
const LINE_BYTES: u32 = 64;

/// Runs the program and returns its exit code.
pub fn main() -> ExitCode {
    let typed = match options::parse() {
        Ok(typed) => typed,
        Err(error) => return failure::usage(&error),
    };
    let outcome = match typed.command {
        Some(Command::Report(args)) => report(&args),
        Some(Command::Doctor) => doctor(),
        Some(Command::Schema) => schema(),
        None => simulate(&typed.simulate),
    };
    outcome.unwrap_or_else(|error| failure::report(&error))
}

fn simulate(args: &SimulateArgs) -> Result<ExitCode> {
    let experiment = resolve(args)?;
    let mut kept = args.out.as_deref().map(|path| Kept::create(path, &experiment)).transpose()?;
    let stop = stop_on_signals()?;
    let mut unkept = Ok(());
    let mut progress = |step: Step<'_>| match step {
        Step::Begins(words) => note(words),
        Step::Has(simulation) => {
            if let Some(kept) = kept.as_mut().filter(|_| unkept.is_ok()) {
                unkept = kept.save(simulation);
            }
        }
    };
    let outcome = experiment::run(&experiment, &mut progress, &|| stop.load(Ordering::Relaxed));
    unkept?;
    let (status, why) = match &outcome {
        Ok(_) => (Status::Complete, None),
        Err(error) => (Status::Interrupted, Some(error.to_string())),
    };
    let place = kept.map(|kept| kept.finish(status, why)).transpose()?;
    match outcome {
        Ok(simulation) => {
            if args.json {
                print(&format!("{}\n", simulation.to_json()))?
            } else {
                print(&render::text::run(&simulation, args.functions as usize))?
            }
            if let Some(place) = place {
                note(&format!("run: {place}"));
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(SimulateError::Interrupted) => {
            let left = place.map_or("no results are kept".into(), |place| format!("finished points are in {place}"));
            say(&format!("interrupted; the guest was ended and {left}"));
            Ok(ExitCode::from(failure::INTERRUPTED))
        }
        Err(SimulateError::Impossible(why)) => Err(wrong_usage(why)),
        Err(other) => Err(other.into()),
    }
}

/// Set by Ctrl-C and termination. The second signal ends the process at once.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The order matters: the conditional exit checks the flag before this signal sets it.
        signal_hook::flag::register_conditional_shutdown(signal, failure::INTERRUPTED.into(), stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .context("cannot handle Ctrl-C")?;
    }
    Ok(stop)
}

/// The run directory: `run.json`, and `simulation.json`, which grows by one point at a time.
struct Kept(RunWriter);

impl Kept {
    fn create(path: &Path, experiment: &Experiment) -> Result<Kept> {
        let argv = match &experiment.workload {
            Workload::Bench { .. } => Vec::new(),
            Workload::Server(server) => server.command.clone(),
        };
        let words: Vec<String> = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
        let record = RunRecord::begin(Scenario {
            name: TOOL.into(),
            repeat_command: shell::joined(["straingauge", TOOL].into_iter().chain(words.iter().map(String::as_str))),
            kind: RunKind::Tool(ToolRun { tool: TOOL.into(), argv }),
        });
        Ok(Kept(RunWriter::create(Path::new("."), Some(path), record)?))
    }

    fn save(&mut self, simulation: &Simulation) -> Result<()> {
        Ok(write_whole(&self.0.path().join(FILE), simulation.to_json().as_bytes())?)
    }

    fn finish(mut self, status: Status, why: Option<String>) -> Result<String> {
        self.0.finish(status, why)?;
        Ok(self.0.path().display().to_string())
    }
}

fn report(args: &ReportArgs) -> Result<ExitCode> {
    let run = RunDir::open(&args.run)?;
    let simulation = Simulation::open(&run.path)?;
    if args.json {
        print(&format!("{:#}\n", render::json(&run, &simulation)))?
    } else {
        print(&render::text::run(&simulation, render::FUNCTIONS))?
    }
    let page = args.page.clone().unwrap_or_else(|| run.path.join("report.html"));
    write_whole(&page, render::page(&run, &simulation).as_bytes()).with_context(|| {
        format!("the report could not be written to {}; name another file with --page", page.display())
    })?;
    note(&format!("report: {}", page.display()));
    Ok(ExitCode::SUCCESS)
}

fn doctor() -> Result<ExitCode> {
    let (qemu, kernel) = (Qemu::find(None)?, Kernel::find(None)?);
    print(&format!("{}; the guest's kernel is Linux {}\n", qemu.version, kernel.version))?;
    Ok(ExitCode::SUCCESS)
}

fn schema() -> Result<ExitCode> {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<Simulation>();
    schema.insert("title".into(), "straingauge-simulate: simulation.json, and --json".into());
    // Descriptions are rustdoc, whose links have no target here.
    let text = serde_json::to_string_pretty(&schema)?.replace("[`", "`").replace("`]", "`");
    print(&format!("{text}\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn resolve(args: &SimulateArgs) -> Result<Experiment> {
    let file = ScenarioFile::read(args.scenario.as_deref())?;
    let machine = file.machine.clone();
    let served = served::resolve(args, file)?;
    let points = points::plan(args, served.as_ref())?;
    if !(1..=MOST_SEEDS).contains(&args.seeds) {
        return Err(wrong_usage(format!("--seeds must be between 1 and {MOST_SEEDS}")));
    }
    let memory_mib = args.memory >> 20;
    if !(LEAST_MEMORY_MIB..=MOST_MEMORY_MIB).contains(&memory_mib) {
        return Err(wrong_usage(format!("--memory must be between {LEAST_MEMORY_MIB} MiB and {MOST_MEMORY_MIB} MiB")));
    }
    let cost = match args.cost[..] {
        [] => None,
        [instruction, l1_miss, l2_miss] if args.cost.iter().all(|cost| (0.0..=1e6).contains(cost)) => {
            Some(Cost { instruction, l1_miss, l2_miss })
        }
        _ => return Err(wrong_usage("--cost needs three numbers of cycles between 0 and 1M: --cost 1,12,350")),
    };
    Ok(Experiment {
        points,
        cost,
        seeds: args.seeds,
        caches: if args.no_caches { None } else { Some(caches(args, &machine)?) },
        objects: args.objects || !args.repack.is_empty(),
        pack: args.repack.clone(),
        workload: match served {
            Some(served) => Workload::Server(Box::new(served.plan)),
            None => bench(args, &machine)?,
        },
        limits: Limits { memory_mib, timeout: args.guest_timeout },
        kernel: args.kernel.clone(),
        qemu: args.qemu.clone(),
    })
}

fn bench(args: &SimulateArgs, machine: &MachineToml) -> Result<Workload> {
    let packets = args.packets.unwrap_or(PACKETS);
    let warmup_packets = machine.warmup_packets.unwrap_or(WARMUP_PACKETS);
    if !(1..=MOST_PACKETS).contains(&packets) || warmup_packets > MOST_PACKETS {
        return Err(wrong_usage("--packets must be between 1 and 10M, warmup-packets of [simulate] between 0 and 10M"));
    }
    Ok(Workload::Bench { warmup_packets, packets })
}

fn caches(args: &SimulateArgs, machine: &MachineToml) -> Result<Setup> {
    let line = machine.line.unwrap_or(LINE_BYTES);
    let replacement = match machine.replacement {
        ReplacementWord::Plru => Replacement::TreePlru,
        ReplacementWord::Lru => Replacement::Lru,
    };
    let level = |option: &str, size: u64, ways: u32| -> Result<Geometry> {
        Geometry::new(size, ways, line, replacement).map_err(|why| wrong_usage(format!("{option}: {why}")))
    };
    let l1 = level("--l1", args.l1, machine.l1_ways.unwrap_or(2))?;
    let l2_ways = machine.l2_ways.unwrap_or(16);
    if args.l2.len() > MOST_L2 {
        return Err(wrong_usage(format!("--l2 takes at most {MOST_L2} sizes")));
    }
    let l2 = args.l2.iter().map(|size| level("--l2", *size, l2_ways)).collect::<Result<_>>()?;
    let l3 = args.l3.map(|size| level("--l3", size, machine.l3_ways.unwrap_or(16))).transpose()?;
    let tlb = match machine.tlb.unwrap_or(64) {
        0 => None,
        entries => {
            let bytes = entries.checked_mul(4096).ok_or_else(|| wrong_usage("tlb of [simulate] is too large"))?;
            let tlb = Geometry::new(bytes, 8, 4096, Replacement::Lru);
            Some(tlb.map_err(|_| wrong_usage("tlb of [simulate] must be a multiple of 8 entries, or 0"))?)
        }
    };
    Ok(Setup {
        l1i: l1,
        l1d: l1,
        l2,
        l3,
        itlb: tlb,
        dtlb: tlb,
        next_line_prefetch: args.next_line_prefetch,
        curve_sample_shift: args.curve.then_some(0),
    })
}
