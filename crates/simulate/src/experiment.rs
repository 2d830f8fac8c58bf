//! Points and seeds: what is run, and what comes of it.

use crate::SimulateError;
use crate::cache::{Counts, Setup};
use crate::exchange::Order;
use crate::guest::job::{Bench, Job, Server, Work};
use crate::guest::{Image, Kernel};
use crate::machine::{Limits, Qemu, Resumed, Saved};
use crate::result::{FunctionCounts, PointReport, Report, RowCounts, Sample};
use record::layers::Layer;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Functions of a sample that are kept, those with most L2 misses and those with most instructions.
const MOST_FUNCTIONS: usize = 40;

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The points, each with every seed.
    pub points: Vec<PointPlan>,
    /// Boots: each is one sample of where things lie in memory.
    pub seeds: u64,
    /// The caches; without them only instructions are counted.
    pub caches: Option<Setup>,
    /// What runs.
    pub workload: Workload,
    /// Limits of the guest.
    pub limits: Limits,
    /// The kernel, or the folder of an unpacked package.
    pub kernel: Option<PathBuf>,
    /// The emulator, or the one in PATH.
    pub qemu: Option<PathBuf>,
}

/// A load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointPlan {
    /// Open connections.
    pub connections: u64,
    /// Packets (of the microbenchmark) or requests a second, over all connections; for a server 0 is a closed loop.
    pub rate_per_sec: u64,
    /// One-way delay of the path.
    pub delay_us: u64,
}

/// What runs.
#[derive(Debug, Clone)]
pub enum Workload {
    /// A server that sends segments of the largest size over the connections in turn.
    Bench {
        /// Segments before the count.
        warmup_packets: u64,
        /// Segments counted.
        packets: u64,
    },
    /// A server program of this machine.
    Server(Box<ServerPlan>),
}

/// A server program and what it needs.
#[derive(Debug, Clone)]
pub struct ServerPlan {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Files and folders for the guest, at the same paths.
    pub files: Vec<PathBuf>,
    /// Folders that the guest has, empty.
    pub folders: Vec<String>,
    /// Where it listens.
    pub port: u16,
    /// What is asked for.
    pub path: String,
    /// The load engine: this very program.
    pub load_program: PathBuf,
    /// Before the count, in the guest's time.
    pub warmup_ms: u64,
    /// The count, in the guest's time.
    pub window_ms: u64,
}

/// Where the load engine lies in the guest.
const LOAD_PROGRAM: &str = "/straingauge/straingauge";

/// Runs it all. `progress` is told of each step; `stop` is asked often.
pub fn run(
    experiment: &Experiment,
    progress: &mut dyn FnMut(&str),
    stop: &dyn Fn() -> bool,
) -> Result<Report, SimulateError> {
    let qemu = Qemu::find(experiment.qemu.as_deref())?;
    let kernel = Kernel::find(experiment.kernel.as_deref())?;
    let image = image_of(&kernel, &experiment.workload)?;
    let mut points: Vec<PointReport> =
        experiment.points.iter().map(|plan| PointReport { plan: *plan, samples: Vec::new() }).collect();
    for seed in 1..=experiment.seeds {
        progress(&format!("booting Linux {} with seed {seed} of {}", kernel.version, experiment.seeds));
        let mut saved = Saved::boot(&qemu, &kernel, &image, seed, experiment.limits, stop)?;
        for point in &mut points {
            let plan = point.plan;
            let delay_ms = plan.delay_us as f64 / 1000.0;
            progress(&format!("{} connections, {delay_ms} ms one way, seed {seed}", plan.connections));
            point.samples.push(sample(&mut saved, experiment, &plan, stop)?);
        }
    }
    Ok(Report {
        origin: record::Origin::Simulated,
        qemu: qemu.version.clone(),
        kernel: kernel.version.clone(),
        caches: experiment.caches.clone(),
        points,
    })
}

/// One resumption: a point with a seed.
pub fn sample(
    saved: &mut Saved,
    experiment: &Experiment,
    plan: &PointPlan,
    stop: &dyn Fn() -> bool,
) -> Result<Sample, SimulateError> {
    let order = Order {
        caches: experiment.caches.clone(),
        watched: saved.functions.watched(),
        rows: saved.functions.rows.len() as u8,
        symbols: saved.functions.symbols(),
    };
    let job = Job { delay_us: plan.delay_us, work: work_of(&experiment.workload, plan) };
    let resumed = saved.resume(&job, &order, stop)?;
    let mut sample = sample_of(saved, &resumed)?;
    sample.seed = saved.seed();
    Ok(sample)
}

fn image_of(kernel: &Kernel, workload: &Workload) -> Result<Image, SimulateError> {
    let mut image = Image::base(kernel)?;
    if let Workload::Server(server) = workload {
        image.take_program(&server.load_program, Some(LOAD_PROGRAM))?;
        let program = server.command.first().ok_or_else(|| SimulateError::Impossible("no server is named".into()))?;
        image.take_program(Path::new(program), None)?;
        for folder in &server.folders {
            image.folder(folder);
        }
        for file in &server.files {
            image.take(file)?;
        }
    }
    Ok(image)
}

fn work_of(workload: &Workload, plan: &PointPlan) -> Work {
    match workload {
        Workload::Bench { warmup_packets, packets } => Work::Bench(Bench {
            connections: plan.connections,
            rate_per_sec: plan.rate_per_sec,
            // Every connection has sent before the count begins.
            warmup_packets: (*warmup_packets).max(2 * plan.connections),
            packets: *packets,
        }),
        Workload::Server(server) => {
            let seconds = |ms: u64| format!("{ms}ms");
            let url = format!("http://{}:{}{}", crate::guest::SERVER_ADDRESS, server.port, server.path);
            let connections = plan.connections.to_string();
            // The load goes on a little longer than the count.
            let duration = seconds(server.window_ms + 200);
            let warmup = seconds(server.warmup_ms);
            let mut load: Vec<String> =
                [LOAD_PROGRAM, "load", &url, "--json", "--threads", "1"].map(String::from).into();
            load.extend(
                ["--connections", &connections, "--warmup", &warmup, "--duration", &duration].map(String::from),
            );
            if plan.rate_per_sec > 0 {
                load.extend(["--rate".to_string(), plan.rate_per_sec.to_string()]);
            }
            Work::Server(Server {
                port: server.port,
                command: server.command.clone(),
                load,
                warmup_ms: server.warmup_ms,
                window_ms: server.window_ms,
            })
        }
    }
}

fn sample_of(saved: &Saved, resumed: &Resumed) -> Result<Sample, SimulateError> {
    let number = |word: &str| -> Result<u64, SimulateError> {
        let said = resumed.words.iter().find(|(said, _)| said == word);
        said.and_then(|(_, value)| value.parse().ok())
            .ok_or_else(|| SimulateError::Guest(format!("the guest does not say its {word}")))
    };
    let functions = &saved.functions;
    let mut rows: BTreeMap<(Layer, String), RowCounts> = BTreeMap::new();
    let mut unattributed = RowCounts::default();
    let mut by_function: BTreeMap<(u32, u8), FunctionCounts> = BTreeMap::new();
    let mut unclassified = 0;
    for account in &resumed.answer.accounts {
        let row = functions.row(account.row);
        let counts = match &row {
            Some(row) => rows.entry((row.layer, row.part.clone())).or_default(),
            None => &mut unattributed,
        };
        counts.instructions += account.instructions;
        counts.repeats += account.repeats;
        counts.reads += account.reads;
        counts.writes += account.writes;
        counts.caches += &account.caches;
        let function = functions.name(account.function);
        if function.is_some_and(|function| !functions.is_classified(function)) {
            unclassified += account.instructions;
        }
        by_function.entry((account.function, account.row)).or_insert_with(|| FunctionCounts {
            function: function.map_or("(user code)", |function| &function.name).to_string(),
            layer: row.as_ref().map(|row| row.layer),
            instructions: account.instructions,
            caches: account.caches,
        });
    }
    let (sent, received) = (number("sent")?, number("received")?);
    if sent == 0 {
        return Err(SimulateError::Guest("the server sent no packet in the counted time".into()));
    }
    let curve = resumed.answer.curve.clone();
    Ok(Sample {
        seed: 0,
        sent,
        received,
        window_ns: number("window_ns")?,
        rows: rows.into_iter().map(|((layer, part), counts)| (record::layers::Row { layer, part }, counts)).collect(),
        unattributed,
        unclassified_instructions: unclassified,
        functions: foremost(by_function.into_values().collect()),
        curve,
        load: resumed.words.iter().find(|(word, _)| word == "load").map(|(_, text)| text.clone()),
    })
}

/// The functions with most misses of the first L2, and those with most instructions.
fn foremost(mut all: Vec<FunctionCounts>) -> Vec<FunctionCounts> {
    let misses = |counts: &Counts| counts.l2[0].misses();
    all.sort_by_key(|one| std::cmp::Reverse((one.instructions, misses(&one.caches))));
    let mut kept: Vec<FunctionCounts> = all.iter().take(MOST_FUNCTIONS).cloned().collect();
    all.drain(..kept.len());
    all.sort_by_key(|one| std::cmp::Reverse(misses(&one.caches)));
    kept.extend(all.into_iter().take(MOST_FUNCTIONS).filter(|one| misses(&one.caches) > 0));
    kept.sort_by_key(|one| std::cmp::Reverse((misses(&one.caches), one.instructions)));
    kept
}
