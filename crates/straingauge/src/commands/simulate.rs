//! `straingauge simulate`: instructions and cache misses by layer and packet, in a guest with a cache model.

mod served;

use super::session::repeat_command;
use crate::cli::{ReplacementWord, SimulateArgs, SimulateToml};
use crate::defaults;
use crate::failure::{self, print, wrong_usage};
use crate::plan::{self, axis};
use crate::signals::Stop;
use anyhow::Result;
use record::run::{RunRecord, RunWriter, write_whole};
use record::scenario::SimulateRun;
use record::simulation::{Cost, FILE, PointPlan, Simulation};
use record::{Axis, RunKind, Scenario, Status};
use simulate::SimulateError;
use simulate::cache::{Geometry, MOST_L2, Replacement, Setup};
use simulate::experiment::{self, Experiment, Step, Workload};
use simulate::machine::Limits;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;

/// Beyond this the guest has no memory for the sockets.
const MOST_CONNECTIONS: u64 = 8192;
const MOST_RATE: u64 = 1_000_000;
const MOST_DELAY_US: u64 = 2_000_000;
const MOST_SEEDS: u64 = 100;
const MOST_PACKETS: u64 = 10_000_000;
const LEAST_MEMORY_MIB: u64 = 256;
/// With more, memory is not in one piece below the devices, and addresses are not those that the plugin assumes.
const MOST_MEMORY_MIB: u64 = 3072;

/// Runs the command.
pub fn run(args: SimulateArgs) -> Result<ExitCode> {
    let experiment = resolve(&args)?;
    let most_functions = args.functions.map_or(defaults::FUNCTIONS, |count| count.0) as usize;
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
        Ok(Kept(RunWriter::create(Path::new(crate::defaults::RUNS), Some(path), record)?))
    }

    fn save(&mut self, simulation: &Simulation) -> Result<()> {
        Ok(write_whole(&self.0.path().join(FILE), simulation.to_json().as_bytes())?)
    }

    fn finish(mut self, status: Status, why: Option<String>) -> Result<String> {
        self.0.finish(status, why)?;
        Ok(self.0.path().display().to_string())
    }
}

/// The points: the values of the axis, everything else held.
fn points(args: &SimulateArgs, served: Option<&served::Served>) -> Result<Vec<PointPlan>> {
    let is_server = served.is_some();
    let connections = args.connections.or(served.and_then(|served| served.connections));
    let axis = match (args.axis, connections) {
        (Some(word), _) => Some(Axis::from(word)),
        (None, Some(_)) => None,
        (None, None) => Some(Axis::Connections),
    };
    let rate = match served {
        Some(served) => args.rate.or(served.rate).map_or(0.0, |rate| rate.0),
        None => args.rate.map_or(defaults::SIMULATE_RATE as f64, |rate| rate.0),
    };
    let delay = args.delay.or(served.and_then(|served| served.delay)).map_or(0, |time| time.nanos() / 1000);
    let held = PointPlan {
        connections: connections.map_or(defaults::SIMULATE_HELD_CONNECTIONS, |count| count.0),
        rate_per_sec: if rate > 0.0 { (rate.round() as u64).max(1) } else { 0 },
        delay_us: delay,
    };
    let values = match (axis, &args.axis_values) {
        (None, None) => Vec::new(),
        (None, Some(_)) => return Err(wrong_usage("--axis-values needs an axis: give --axis too")),
        (Some(axis), Some(text)) => axis::values(text, axis)?,
        (Some(Axis::Connections), None) => defaults::SIMULATE_CONNECTIONS.iter().map(|count| *count as f64).collect(),
        (Some(axis), None) => {
            return Err(wrong_usage(format!("--axis {} needs its values: give --axis-values", axis.word())));
        }
    };
    let typed = match axis {
        Some(Axis::Connections) => ("--connections", args.connections.is_some()),
        Some(Axis::Rate) => ("--rate", args.rate.is_some()),
        _ => ("--delay", axis == Some(Axis::Delay) && args.delay.is_some()),
    };
    axis::refuse_what_is_varied(axis.unwrap_or(Axis::Connections), &[typed])?;
    let at = |value: f64| {
        let mut point = held;
        match axis {
            Some(Axis::Connections) => point.connections = value as u64,
            Some(Axis::Delay) => point.delay_us = value as u64 / 1000,
            _ => point.rate_per_sec = (value.round() as u64).max(1),
        }
        point
    };
    let points = if axis.is_some() { values.into_iter().map(at).collect() } else { vec![held] };
    if let Some(wrong) = points.iter().find(|point| !(1..=MOST_CONNECTIONS).contains(&point.connections)) {
        let wrong = wrong.connections;
        return Err(wrong_usage(format!(
            "connections must lie between 1 and {MOST_CONNECTIONS}: {wrong} are not possible"
        )));
    }
    if points.iter().any(|point| point.rate_per_sec == 0 && !is_server || point.rate_per_sec > MOST_RATE) {
        return Err(wrong_usage("--rate must lie between 1 and 1M a second"));
    }
    if points.iter().any(|point| point.delay_us > MOST_DELAY_US) {
        return Err(wrong_usage("--delay must be at most 2s"));
    }
    Ok(points)
}

fn resolve(args: &SimulateArgs) -> Result<Experiment> {
    let file = plan::read_scenario(args.scenario.as_deref())?;
    let machine = file.simulate.clone();
    let served = served::resolve(args, file)?;
    let points = points(args, served.as_ref())?;
    let seeds = args.seeds.map_or(defaults::SEEDS, |seeds| seeds.0);
    if !(1..=MOST_SEEDS).contains(&seeds) {
        return Err(wrong_usage(format!("--seeds must lie between 1 and {MOST_SEEDS}")));
    }
    let memory_mib = args.memory.unwrap_or(defaults::MEMORY).0 >> 20;
    if !(LEAST_MEMORY_MIB..=MOST_MEMORY_MIB).contains(&memory_mib) {
        return Err(wrong_usage(format!("--memory must lie between {LEAST_MEMORY_MIB} MiB and {MOST_MEMORY_MIB} MiB")));
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
        caches: if args.no_caches { None } else { Some(caches(args, &machine)?) },
        objects: args.objects || !args.repack.is_empty(),
        pack: args.repack.clone(),
        workload: match served {
            Some(served) => Workload::Server(Box::new(served.plan)),
            None => bench(args, &machine)?,
        },
        limits: Limits { memory_mib, timeout: args.guest_timeout.map_or(defaults::GUEST_TIMEOUT, |time| time.0) },
        kernel: args.kernel.clone(),
        qemu: args.qemu.clone(),
    })
}

fn bench(args: &SimulateArgs, machine: &SimulateToml) -> Result<Workload> {
    let packets = args.packets.map_or(defaults::PACKETS, |count| count.0);
    let warmup_packets = machine.warmup_packets.map_or(defaults::WARMUP_PACKETS, |count| count.0);
    if !(1..=MOST_PACKETS).contains(&packets) || warmup_packets > MOST_PACKETS {
        return Err(wrong_usage(
            "--packets must lie between 1 and 10M, warmup-packets of [simulate] between 0 and 10M",
        ));
    }
    Ok(Workload::Bench { warmup_packets, packets })
}

fn caches(args: &SimulateArgs, machine: &SimulateToml) -> Result<Setup> {
    let line = machine.line.map_or(64, |line| line.0);
    let replacement = match machine.replacement.unwrap_or_default() {
        ReplacementWord::Plru => Replacement::TreePlru,
        ReplacementWord::Lru => Replacement::Lru,
    };
    let level = |option: &str, size: u64, ways: u64| -> Result<Geometry> {
        let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        Geometry::new(size, small(ways), small(line), replacement)
            .map_err(|why| wrong_usage(format!("{option}: {why}")))
    };
    let l1_size = args.l1.map_or(defaults::L1.0, |size| size.0);
    let l1 = level("--l1", l1_size, machine.l1_ways.map_or(2, |ways| ways.0))?;
    let l2_ways = machine.l2_ways.map_or(16, |ways| ways.0);
    let l2_sizes: Vec<u64> = match &args.l2[..] {
        [] => defaults::L2.iter().map(|size| size.0).collect(),
        typed => typed.iter().map(|size| size.0).collect(),
    };
    if l2_sizes.len() > MOST_L2 {
        return Err(wrong_usage(format!("--l2 takes at most {MOST_L2} sizes")));
    }
    let l2 = l2_sizes.iter().map(|size| level("--l2", *size, l2_ways)).collect::<Result<_>>()?;
    let l3 = args.l3.map(|size| level("--l3", size.0, machine.l3_ways.map_or(16, |ways| ways.0))).transpose()?;
    let tlb = match machine.tlb.map_or(64, |entries| entries.0) {
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
