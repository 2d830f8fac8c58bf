//! Runs points and seeds, and collects their counts.

use crate::SimulateError;
use crate::cache::{Counts, Setup};
use crate::exchange::{Account, Objects, Order};
use crate::guest::job::{Bench, Job, Server, Work};
use crate::guest::{Image, Kernel};
use crate::kernel_types::{Btf, is_structure_or_cache, kernel_map};
use crate::machine::{Limits, Qemu, Resumed, Saved};
use crate::objects::Packing;
use crate::objects_found::{compared, named, packed};
use crate::result::{self, cache_counts, counts};
use crate::simulation::{CodeMisses, Cost, Curve, Function, Object, Point, PointPlan, Row, Sample, Simulation};
use record::layers;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number of functions of a sample that are kept: those with most L2 misses and those with most instructions.
const MOST_FUNCTIONS: usize = 40;

/// The experiment to simulate.
#[derive(Debug, Clone)]
pub struct Experiment {
    /// The points, each with every seed.
    pub points: Vec<PointPlan>,
    /// Number of boots. Each is one sample of addresses in memory.
    pub seeds: u64,
    /// The caches. Without them only instructions are counted.
    pub caches: Option<Setup>,
    /// Whether to count accesses and misses by kernel object.
    pub objects: bool,
    /// Structures, or slab caches, whose fields are tried in the order of their accesses. Each point then runs twice.
    pub pack: Vec<String>,
    /// Prices for the estimate of cycles.
    pub cost: Option<Cost>,
    /// The workload.
    pub workload: Workload,
    /// Limits of the guest.
    pub limits: Limits,
    /// The kernel, or the directory of an unpacked package.
    pub kernel: Option<PathBuf>,
    /// The emulator; `None` for the one in PATH.
    pub qemu: Option<PathBuf>,
}

/// The workload in the guest.
#[derive(Debug, Clone)]
pub enum Workload {
    /// A server that sends full segments over the connections in turn.
    Bench {
        /// Segments before the count.
        warmup_packets: u64,
        /// Counted segments.
        packets: u64,
    },
    /// A server program of this machine.
    Server(Box<ServerPlan>),
}

/// A server program and its needs.
#[derive(Debug, Clone)]
pub struct ServerPlan {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Files and directories for the guest, at the same paths.
    pub files: Vec<PathBuf>,
    /// Empty directories for the guest.
    pub folders: Vec<String>,
    /// Port on which it listens.
    pub port: u16,
    /// The load on it.
    pub load: Arc<dyn GuestLoad>,
    /// Time before the count, in guest time.
    pub warmup_ms: u64,
    /// Length of the count, in guest time.
    pub window_ms: u64,
}

/// The load on a server in the guest: a program that is copied there and started. simulate knows no more about it.
pub trait GuestLoad: std::fmt::Debug {
    /// Copies the program and its files into the guest. The files of [`ServerPlan::files`] are there, too.
    fn put(&self, image: &mut Image) -> Result<(), SimulateError>;

    /// The command for a point. It loads the server at [`crate::guest::SERVER_ADDRESS`] once its connections are
    /// open. When the count is over it gets Ctrl-C, prints its counts, and ends.
    fn command(&self, point: &PointPlan) -> LoadCommand;
}

/// A load's command in the guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadCommand {
    /// Program and arguments.
    pub words: Vec<String>,
    /// Number of connections that it opens before its warm-up begins, including those of its checks.
    pub opened: u64,
}

/// The progress of a run.
pub enum Step<'s> {
    /// The next step begins.
    Begins(&'s str),
    /// A point has one more sample. Holds all results so far.
    Has(&'s Simulation),
}

/// Runs the experiment. `progress` receives each step; `stop` is checked often.
pub fn run(
    experiment: &Experiment,
    progress: &mut dyn FnMut(Step<'_>),
    stop: &dyn Fn() -> bool,
) -> Result<Simulation, SimulateError> {
    let qemu = Qemu::find(experiment.qemu.as_deref())?;
    let kernel = Kernel::find(experiment.kernel.as_deref())?;
    let base = Image::base(&kernel)?;
    let files = files_of(&base, &experiment.workload)?;
    let point = |plan: &PointPlan| Point {
        connections: plan.connections,
        rate_per_sec: plan.rate_per_sec,
        delay_us: plan.delay_us,
        ..Point::default()
    };
    let mut simulation = Simulation {
        origin: record::Origin::Simulated,
        unit: result::UNIT.into(),
        qemu: qemu.version.clone(),
        kernel: kernel.version.clone(),
        caches: experiment.caches.as_ref().map(result::caches),
        cost: experiment.cost,
        points: experiment.points.iter().map(point).collect(),
    };
    for seed in 1..=experiment.seeds {
        let words = format!("booting Linux {} with seed {seed} of {}", kernel.version, experiment.seeds);
        let mut begins = || progress(Step::Begins(&words));
        let image = (&base, files.as_ref());
        let mut saved = Saved::boot(&qemu, &kernel, image, seed, experiment.limits, &mut begins, stop)?;
        if let Some(name) = experiment.pack.first() {
            let types = types_of(&saved).map_err(|why| SimulateError::Impossible(format!("--repack {name}: {why}")))?;
            check_pack(&experiment.pack, &types.0)?;
        }
        for (index, plan) in experiment.points.iter().enumerate() {
            let delay_ms = plan.delay_us as f64 / 1000.0;
            let words = format!("{} connections, {delay_ms} ms one way, seed {seed}", plan.connections);
            progress(Step::Begins(&words));
            let sample = sample(&mut saved, experiment, plan, stop)?;
            simulation.points[index].push(sample);
            progress(Step::Has(&simulation));
        }
    }
    Ok(simulation)
}

/// One resumption: a point with a seed.
pub fn sample(
    saved: &mut Saved,
    experiment: &Experiment,
    plan: &PointPlan,
    stop: &dyn Fn() -> bool,
) -> Result<Sample, SimulateError> {
    let mut order = Order {
        caches: experiment.caches.clone(),
        objects: None,
        watched: saved.functions.watched(),
        rows: saved.functions.rows.len() as u8,
        symbols: saved.functions.symbols(),
    };
    let types = if experiment.objects && experiment.caches.is_some() { Some(types_of(saved)) } else { None };
    if let Some(Ok((_, objects))) = &types {
        order.objects = Some(objects.clone());
    }
    let job = Job { delay_us: plan.delay_us, work: work_of(&experiment.workload, plan) };
    let resumed = saved.resume(&job, &order, stop)?;
    let levels = experiment.caches.as_ref().map_or(0, |caches| caches.l2.len());
    let mut sample = sample_of(saved, &resumed, levels)?;
    sample.seed = saved.seed();
    match types {
        None => {}
        Some(Err(why)) => sample.objects_not_known = Some(why),
        Some(Ok((btf, objects))) => {
            let counts = &resumed.answer.objects;
            let rows = named(counts, &btf, &saved.variables, levels);
            let is_meant = |name: &str| {
                let row = rows.iter().find(|row| row.name == name);
                row.is_some_and(|row| experiment.pack.iter().any(|wanted| wanted == name || wanted == row.title()))
            };
            let packings: Vec<_> =
                counts.iter().filter(|one| is_meant(&one.name)).filter_map(|one| packed(one, &btf)).collect();
            check_packed(&experiment.pack, &packings, &rows)?;
            if !packings.is_empty() {
                // It is the same run to the last instruction, because the caches do not affect the guest. So any
                // difference comes from the layout.
                order.objects = Some(Objects { packings: packings.clone(), ..objects });
                let again = saved.resume(&job, &order, stop)?;
                sample.packed = compared(&rows, counts, &again.answer.objects, &packings);
                sample.stack_packed = Some(sample_of(saved, &again, levels)?.stack);
            }
            sample.objects = Some(rows).filter(|rows| !rows.is_empty());
        }
    }
    Ok(sample)
}

/// The guest's types and the data for finding objects, or why they are unknown.
fn types_of(saved: &Saved) -> Result<(Btf, Objects), String> {
    let btf = saved.types()?;
    let map = kernel_map(&btf, &saved.variables, saved.memory_bytes())?;
    Ok((btf, Objects { map, packings: Vec::new() }))
}

/// Refuses names that this kernel does not have before the first point.
fn check_pack(wanted: &[String], btf: &Btf) -> Result<(), SimulateError> {
    match wanted.iter().find(|name| !is_structure_or_cache(btf, name)) {
        None => Ok(()),
        Some(name) => Err(SimulateError::Impossible(format!(
            "--repack {name}: this kernel has neither a structure nor a slab cache of that name; --objects lists those \
             that are touched, such as tcp_sock"
        ))),
    }
}

fn check_packed(wanted: &[String], packings: &[Packing], rows: &[Object]) -> Result<(), SimulateError> {
    let is_there = |name: &String| {
        let mut found = rows.iter().filter(|row| packings.iter().any(|packing| packing.cache == row.name));
        found.any(|row| row.title() == name || &row.name == name)
    };
    match wanted.iter().find(|name| !is_there(name)) {
        None => Ok(()),
        Some(name) => {
            let known: Vec<&str> = rows.iter().filter_map(|row| row.structure.as_deref()).take(20).collect();
            let known = if known.is_empty() {
                "nor of any other known structure".to_string()
            } else {
                format!("the structures with the most misses are {}", known.join(", "))
            };
            Err(SimulateError::Impossible(format!("--repack {name}: no object of this structure was touched; {known}")))
        }
    }
}

/// Files of the server and its load that the guest image lacks.
pub fn files_of(base: &Image, workload: &Workload) -> Result<Option<Image>, SimulateError> {
    let Workload::Server(server) = workload else { return Ok(None) };
    let mut image = Image::new();
    server.load.put(&mut image)?;
    let program = server.command.first().ok_or_else(|| SimulateError::Impossible("no server is named".into()))?;
    image.take_program(Path::new(program), None)?;
    image.put_accounts()?;
    for folder in &server.folders {
        image.folder(folder);
    }
    for file in &server.files {
        image.take(file)?;
    }
    image.leave_out(base);
    Ok(Some(image))
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
            let load = server.load.command(plan);
            Work::Server(Server {
                port: server.port,
                opened: load.opened,
                command: server.command.clone(),
                load: load.words,
                warmup_ms: server.warmup_ms,
                window_ms: server.window_ms,
            })
        }
    }
}

fn sample_of(saved: &Saved, resumed: &Resumed, levels: usize) -> Result<Sample, SimulateError> {
    let number = |word: &str| -> Result<u64, SimulateError> {
        let said = resumed.words.iter().find(|(said, _)| said == word);
        said.and_then(|(_, value)| value.parse().ok())
            .ok_or_else(|| SimulateError::Guest(format!("the guest does not report its {word}")))
    };
    let functions = &saved.functions;
    let mut rows: BTreeMap<layers::Row, crate::simulation::Counts> = BTreeMap::new();
    let mut sample = Sample {
        sent: number("sent")?,
        received: number("received")?,
        window_ns: number("window_ns")?,
        client_instructions: resumed.answer.client_instructions,
        functions: foremost(saved, &resumed.answer.accounts, levels),
        curve: resumed.answer.curve.clone().map(|(accesses, points)| Curve { accesses, miss_ratio_by_bytes: points }),
        code_l2_misses: code_misses(&resumed.answer.accounts, levels),
        load: resumed
            .words
            .iter()
            .find(|(word, _)| word == "load")
            .and_then(|(_, text)| serde_json::from_str(text).ok()),
        ..Sample::default()
    };
    sample.unattributed.caches = cache_counts(&Counts::default(), levels);
    if sample.sent == 0 {
        return Err(SimulateError::Guest("the server sent no packet in the counted time".into()));
    }
    for account in &resumed.answer.accounts {
        let row = match functions.row(account.row) {
            Some(row) => rows.entry(row).or_default(),
            None => &mut sample.unattributed,
        };
        row.add(&counts(account, levels));
        if functions.name(account.function).is_some_and(|function| !functions.is_classified(function)) {
            sample.unclassified_instructions += account.instructions;
        }
    }
    sample.rows = rows.into_iter().map(|(row, counts)| Row { row, counts }).collect();
    sample.add_up();
    Ok(sample)
}

/// L2 misses of instruction fetches in kernel and user code.
fn code_misses(accounts: &[Account], levels: usize) -> CodeMisses {
    let mut misses = CodeMisses { kernel: vec![0; levels], user: vec![0; levels] };
    for account in accounts {
        let whose = if account.function == 0 { &mut misses.user } else { &mut misses.kernel };
        for (sum, level) in whose.iter_mut().zip(&account.caches.l2) {
            *sum += level.fetch_misses;
        }
    }
    misses
}

/// The functions with most misses of the first L2, and those with most instructions.
fn foremost(saved: &Saved, accounts: &[Account], levels: usize) -> Vec<Function> {
    let misses = |counts: &Counts| counts.l2[0].misses();
    let mut by_function: BTreeMap<(u32, u8), &Account> = BTreeMap::new();
    for account in accounts {
        by_function.entry((account.function, account.row)).or_insert(account);
    }
    let mut all: Vec<&Account> = by_function.into_values().collect();
    all.sort_by_key(|one| std::cmp::Reverse((one.instructions, misses(&one.caches))));
    let mut kept: Vec<&Account> = all.iter().take(MOST_FUNCTIONS).copied().collect();
    all.drain(..kept.len());
    all.sort_by_key(|one| std::cmp::Reverse(misses(&one.caches)));
    kept.extend(all.into_iter().take(MOST_FUNCTIONS).filter(|one| misses(&one.caches) > 0));
    kept.sort_by_key(|one| std::cmp::Reverse((misses(&one.caches), one.instructions)));
    let functions = &saved.functions;
    let named = |account: &Account| Function {
        function: functions.name(account.function).map_or("(user code)", |function| &function.name).to_string(),
        layer: functions.row(account.row).map(|row| row.layer),
        instructions: account.instructions,
        caches: cache_counts(&account.caches, levels),
    };
    kept.into_iter().map(named).collect()
}
