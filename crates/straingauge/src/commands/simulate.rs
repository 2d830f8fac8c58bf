//! `straingauge simulate`: instructions and cache misses by layer and packet, in a guest with a cache model.

mod served;

use super::session::repeat_command;
use crate::cli::{ReplacementWord, SimulateArgs};
use crate::failure::{self, print, wrong_usage};
use crate::signals::Stop;
use anyhow::Result;
use record::run::{RunRecord, RunWriter, write_whole};
use record::scenario::SimulateRun;
use record::simulation::{Cost, FILE, PointPlan, Simulation};
use record::{RunKind, Scenario, Status};
use simulate::SimulateError;
use simulate::cache::{Geometry, MOST_L2, Replacement, Setup};
use simulate::experiment::{self, Experiment, Step, Workload};
use simulate::machine::Limits;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Full segments a second that make 100 Mbit/s, as in the paper.
const RATE: u64 = 8333;
const CONNECTIONS: [u64; 4] = [4, 32, 128, 512];
/// Beyond this the guest has no memory for the sockets.
const MOST_CONNECTIONS: u64 = 8192;
const MOST_SEEDS: u64 = 100;
const MOST_PACKETS: u64 = 10_000_000;
const LEAST_MEMORY_MIB: u64 = 256;
/// Above, memory is not in one piece below the devices, and addresses would not be what the plugin takes them for.
const MOST_MEMORY_MIB: u64 = 3072;

/// Runs the command.
pub fn run(args: SimulateArgs) -> Result<ExitCode> {
    let experiment = resolve(&args)?;
    let most_functions = args.functions.map_or(report::simulated::FUNCTIONS, |count| count.0 as usize);
    let mut kept = args.out.as_deref().map(|path| Kept::create(path, &experiment)).transpose()?;
    let stop = Stop::on_signals()?;
    let is_terminal = std::io::stderr().is_terminal();
    let mut unkept = Ok(());
    let mut progress = |step: Step<'_>| match step {
        Step::Begins(words) if is_terminal => eprintln!("{words}"),
        Step::Begins(_) => {}
        Step::Has(report) => {
            if let Some(kept) = kept.as_mut().filter(|_| unkept.is_ok()) {
                unkept = kept.save(report);
            }
        }
    };
    let outcome = experiment::run(&experiment, &mut progress, &|| stop.is_set());
    unkept?;
    let (status, why) = match &outcome {
        Ok(_) => (Status::Complete, None),
        Err(error) => (Status::Interrupted, Some(error.to_string())),
    };
    let place = kept.map(|kept| kept.finish(status, why)).transpose()?;
    match outcome {
        Ok(report) => {
            match args.json {
                true => print(&format!("{}\n", report.to_json()))?,
                false => print(&report::simulated::text::run(&report, most_functions))?,
            }
            if let Some(place) = place {
                eprintln!("run: {place}");
            }
            Ok(ExitCode::from(failure::DONE))
        }
        Err(SimulateError::Interrupted) => {
            let left = place.map_or("nothing is kept".into(), |place| format!("finished points are in {place}"));
            eprintln!("straingauge: interrupted; the guest was ended and {left}");
            Ok(ExitCode::from(failure::INTERRUPTED))
        }
        Err(SimulateError::Impossible(why)) => Err(wrong_usage(why)),
        Err(other) => Err(other.into()),
    }
}

/// The run directory: `run.json`, and `simulation.json` that grows by a point at a time.
struct Kept(RunWriter);

impl Kept {
    fn create(path: &Path, experiment: &Experiment) -> Result<Kept> {
        let argv = match &experiment.workload {
            Workload::Bench { .. } => Vec::new(),
            Workload::Server(server) => server.command.clone(),
        };
        let run = SimulateRun { points: experiment.points.clone(), seeds: experiment.seeds, argv };
        let record = RunRecord::begin(Scenario {
            name: "simulate".into(),
            repeat_command: repeat_command(),
            kind: RunKind::Simulate(run),
        });
        Ok(Kept(RunWriter::create(Path::new("runs"), Some(path), record)?))
    }

    fn save(&mut self, simulation: &Simulation) -> Result<()> {
        Ok(write_whole(&self.0.path().join(FILE), simulation.to_json().as_bytes())?)
    }

    fn finish(mut self, status: Status, why: Option<String>) -> Result<String> {
        self.0.finish(status, why)?;
        Ok(self.0.path().display().to_string())
    }
}

fn resolve(args: &SimulateArgs) -> Result<Experiment> {
    let served = served::resolve(args)?;
    let is_server = served.is_some();
    let connections: Vec<u64> = match (&args.connections[..], served.as_ref().and_then(|served| served.connections)) {
        ([], None) => CONNECTIONS.into(),
        ([], Some(count)) => vec![count.0],
        (typed, _) => typed.iter().map(|count| count.0).collect(),
    };
    if let Some(wrong) = connections.iter().find(|count| !(1..=MOST_CONNECTIONS).contains(*count)) {
        return Err(wrong_usage(format!("--connections {wrong} is not between 1 and {MOST_CONNECTIONS}")));
    }
    let rates: Vec<u64> = match (&args.rate[..], &served) {
        ([], None) => vec![RATE],
        ([], Some(served)) => vec![served.rate.map_or(0, |rate| rate.0.round().max(1.0) as u64)],
        (typed, _) => typed.iter().map(|rate| rate.0).collect(),
    };
    if rates.iter().any(|rate| *rate == 0 && !is_server || *rate > 1_000_000) {
        return Err(wrong_usage("--rate must lie between 1 and 1M packets a second"));
    }
    let delays: Vec<u64> = match (&args.delay[..], served.as_ref().and_then(|served| served.delay)) {
        ([], None) => vec![0],
        ([], Some(time)) => vec![time.nanos() / 1000],
        (typed, _) => typed.iter().map(|time| time.nanos() / 1000).collect(),
    };
    if delays.iter().any(|delay| *delay > 2_000_000) {
        return Err(wrong_usage("--delay must be at most 2s"));
    }
    let seeds = args.seeds.map_or(1, |seeds| seeds.0);
    if !(1..=MOST_SEEDS).contains(&seeds) {
        return Err(wrong_usage(format!("--seeds must lie between 1 and {MOST_SEEDS}")));
    }
    let memory_mib = args.memory.map_or(512, |memory| memory.0 >> 20);
    if !(LEAST_MEMORY_MIB..=MOST_MEMORY_MIB).contains(&memory_mib) {
        return Err(wrong_usage(format!("--memory must lie between {LEAST_MEMORY_MIB} MiB and {MOST_MEMORY_MIB} MiB")));
    }
    let mut points = Vec::new();
    for connections in connections {
        for rate_per_sec in &rates {
            let at = |delay_us: &u64| PointPlan { connections, rate_per_sec: *rate_per_sec, delay_us: *delay_us };
            points.extend(delays.iter().map(at));
        }
    }
    if let (Some(served), Some(first)) = (&served, points.first()) {
        served.check(first.connections, first.rate_per_sec)?;
    }
    let cost = match args.cost[..] {
        [] => None,
        [instruction, l1_miss, l2_miss] if args.cost.iter().all(|cost| (0.0..=1e6).contains(cost)) => {
            Some(Cost { instruction, l1_miss, l2_miss })
        }
        _ => return Err(wrong_usage("--cost wants three numbers of cycles between 0 and 1M: --cost 1,12,350")),
    };
    Ok(Experiment {
        points,
        cost,
        seeds,
        caches: if args.no_caches { None } else { Some(caches(args)?) },
        objects: args.objects || !args.repack.is_empty(),
        pack: args.repack.clone(),
        workload: match served {
            Some(served) => Workload::Server(Box::new(served.plan)),
            None => bench(args)?,
        },
        limits: Limits { memory_mib, timeout: args.timeout.map_or(Duration::from_secs(600), |time| time.0) },
        kernel: args.kernel.clone(),
        qemu: args.qemu.clone(),
    })
}

fn bench(args: &SimulateArgs) -> Result<Workload> {
    let packets = args.packets.map_or(4000, |count| count.0);
    let warmup_packets = args.warmup_packets.map_or(1000, |count| count.0);
    if !(1..=MOST_PACKETS).contains(&packets) || warmup_packets > MOST_PACKETS {
        return Err(wrong_usage("--packets must lie between 1 and 10M, --warmup-packets between 0 and 10M"));
    }
    Ok(Workload::Bench { warmup_packets, packets })
}

fn caches(args: &SimulateArgs) -> Result<Setup> {
    let line = args.line.map_or(64, |line| line.0);
    let replacement = match args.replacement {
        Some(ReplacementWord::Plru) => Replacement::TreePlru,
        Some(ReplacementWord::Lru) | None => Replacement::Lru,
    };
    let level = |option: &str, size: u64, ways: u64| -> Result<Geometry> {
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Geometry::new(size, small(ways), small(line), replacement)
            .map_err(|why| wrong_usage(format!("{option}: {why}")))
    };
    let l1_size = args.l1.map_or(64 << 10, |size| size.0);
    let l1 = level("--l1", l1_size, args.l1_ways.map_or(2, |ways| ways.0))?;
    let l2_ways = args.l2_ways.map_or(16, |ways| ways.0);
    let l2_sizes: Vec<u64> = match &args.l2[..] {
        [] => vec![256 << 10, 512 << 10, 1 << 20],
        typed => typed.iter().map(|size| size.0).collect(),
    };
    if l2_sizes.len() > MOST_L2 {
        return Err(wrong_usage(format!("--l2 takes at most {MOST_L2} sizes")));
    }
    let l2 = l2_sizes.iter().map(|size| level("--l2", *size, l2_ways)).collect::<Result<_>>()?;
    let l3 = args.l3.map(|size| level("--l3", size.0, args.l3_ways.map_or(16, |ways| ways.0))).transpose()?;
    let tlb = match args.tlb.map_or(64, |entries| entries.0) {
        0 => None,
        entries => {
            let bytes = entries.checked_mul(4096).ok_or_else(|| wrong_usage("--tlb is too large"))?;
            let tlb = Geometry::new(bytes, 8, 4096, Replacement::Lru);
            Some(tlb.map_err(|_| wrong_usage("--tlb must be a multiple of 8 entries, or 0"))?)
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
