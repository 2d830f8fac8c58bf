//! A server in the guest and the load on it. The load engine there gets what `load` would get here: a scenario file of
//! the typed options over the scenario's, with the files that it names.

use crate::cli::{ClientOptions, LoadOptions, Options, Over, PathOptions, SimulateArgs, WorkloadOptions};
use crate::defaults;
use crate::failure::wrong_usage;
use crate::plan::{self, LoadKind, RunOptions};
use crate::quantity::{Count, Rate, Time};
use crate::url::{Scheme, Target};
use anyhow::{Context, Result};
use record::simulation::PointPlan;
use serde::Serialize;
use simulate::SimulateError;
use simulate::experiment::{GuestLoad, LoadCommand, ServerPlan};
use simulate::guest::{Image, SERVER_ADDRESS};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the load engine and its files are in the guest.
const PROGRAM: &str = "/straingauge/straingauge";
const SCENARIO: &str = "/straingauge/load.toml";
/// How much longer the load runs than the count.
const LONGER_MS: u64 = 200;

/// A server, its load, and the scenario's settings for the points.
pub struct Served {
    pub plan: ServerPlan,
    /// From the scenario; a typed value wins.
    pub connections: Option<Count>,
    pub rate: Option<Rate>,
    pub delay: Option<Time>,
    /// The options of the load engine in the guest.
    run: RunOptions,
}

/// The load engine in the guest: this program itself.
#[derive(Debug, Clone)]
struct Engine {
    program: PathBuf,
    /// Its scenario, without connections, rate and times.
    scenario: String,
    /// The URL, with the server's address in the guest.
    url: String,
    opening: Opening,
    warmup_ms: u64,
    window_ms: u64,
}

/// When a load opens its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// All of them before its first request.
    First,
    /// The same in a closed loop; at a rate, when a request is due.
    FirstInClosedLoop,
    /// When a request is due.
    WhenDue,
}

impl GuestLoad for Engine {
    fn put(&self, image: &mut Image) -> Result<(), SimulateError> {
        image.take_program(&self.program, Some(PROGRAM))?;
        image.put(SCENARIO, self.scenario.clone().into_bytes(), false)
    }

    fn command(&self, point: &PointPlan) -> LoadCommand {
        let connections = point.connections.to_string();
        let [warmup, duration] = [self.warmup_ms, self.window_ms + LONGER_MS].map(|ms| format!("{ms}ms"));
        let mut words = vec![PROGRAM, "load", &self.url, "--scenario", SCENARIO, "--json", "--threads", "1"];
        words.extend(["--connections", &connections, "--warmup", &warmup, "--duration", &duration]);
        let rate = point.rate_per_sec.to_string();
        if point.rate_per_sec > 0 {
            words.extend(["--rate", &rate]);
        }
        let opens_first = match self.opening {
            Opening::First => true,
            Opening::FirstInClosedLoop => point.rate_per_sec == 0,
            Opening::WhenDue => false,
        };
        // Before any load it checks that the server answers, with a handshake where the server speaks TLS.
        let checks = if self.url.starts_with("https") { 2 } else { 1 };
        let opened = checks + if opens_first { point.connections } else { 1 };
        LoadCommand { words: words.into_iter().map(String::from).collect(), opened }
    }
}

/// The scenario file of the load engine in the guest.
#[derive(Serialize)]
struct InGuest<'a> {
    load: &'a LoadOptions,
    workload: &'a WorkloadOptions,
    clients: &'a ClientOptions,
}

/// The server on the command line or in the scenario, if there is one.
pub fn resolve(args: &SimulateArgs, file: Options) -> Result<Option<Served>> {
    let mut command = if args.server.is_empty() { file.server.command } else { args.server.clone() };
    let mut workload = args.workload.clone().over(file.workload);
    let mut clients = file.clients;
    if command.is_empty() {
        let has_load = workload != WorkloadOptions::default() || clients != ClientOptions::default();
        if file.url.is_some() || has_load {
            return Err(wrong_usage("a load needs a server: add -- SERVER ..., or [server] command to the scenario"));
        }
        return Ok(None);
    }
    if args.packets.is_some() || file.simulate.warmup_packets.is_some() {
        return Err(wrong_usage("--packets belongs to the microbenchmark; with a server say --duration"));
    }
    if (PathOptions { delay: None, quickack: false, ..file.path.clone() }).is_set() {
        return Err(wrong_usage(
            "the guest's path has a delay and nothing else: leave loss, bandwidth and path-by out",
        ));
    }
    let program = record::shell::find_program(&command[0]).and_then(|file| std::path::absolute(file).ok());
    let program = program.as_deref().and_then(Path::to_str);
    command[0] = program
        .with_context(|| format!("the server {} is not on this machine", command[0].escape_debug()))?
        .to_string();

    let typed = LoadOptions {
        requests_per_connection: args.requests_per_connection,
        urls: args.urls.clone(),
        ..<_>::default()
    };
    let mut load = typed.over(file.load);
    // Each point has its own.
    let (connections, rate) = (load.connections.take(), load.rate.take());
    let (duration, warmup) = (args.duration.or(load.duration.take()), args.warmup.or(load.warmup.take()));
    // The client's machine is another one.
    (load.threads, load.cpus, load.precise) = (None, None, false);
    load.source_address.clear();

    let asked = Target::parse(file.url.as_deref().unwrap_or(&format!("http://127.0.0.1:{}/", defaults::PORT)))?;
    if asked.scheme != Scheme::Http {
        return Err(wrong_usage(format!(
            "a simulated server is loaded over HTTP, not {}: write the scenario's URL with http",
            asked.scheme.word()
        )));
    }
    if file.url.is_some() && !load.header.iter().any(|field| field.to_ascii_lowercase().starts_with("host:")) {
        load.header.push(format!("Host: {}", asked.host_field));
    }
    let path = args.path.as_ref().unwrap_or(&asked.path);
    if !path.starts_with('/') || path.chars().any(|letter| letter.is_control() || letter == ' ') {
        return Err(wrong_usage("--path must begin with / and hold no space"));
    }
    let port = args.port.unwrap_or(asked.port);
    let scheme = if asked.is_tls { "https" } else { "http" };
    let url = format!("{scheme}://{SERVER_ADDRESS}:{port}{path}");

    let window_ms = Time::nanos_or(duration, defaults::SIMULATE_DURATION) / 1_000_000;
    if window_ms == 0 {
        return Err(wrong_usage("--duration must be at least 1ms"));
    }
    let mut files = args.file.clone();
    // The server most likely needs the files that its arguments name.
    files.extend(command[1..].iter().filter(|word| word.starts_with('/') && Path::new(word).exists()).map(Into::into));
    files.extend(files_of(&mut load, &mut workload, &mut clients)?);
    let in_guest = InGuest { load: &load, workload: &workload, clients: &clients };
    let warmup_ms = Time::nanos_or(warmup, defaults::SIMULATE_WARMUP) / 1_000_000;
    let engine = Engine {
        program: std::env::current_exe().context("cannot find this program's own file")?,
        scenario: toml::to_string(&in_guest).context("the load cannot be written for the guest")?,
        url: url.clone(),
        opening: opening(&load, &workload),
        warmup_ms,
        window_ms,
    };
    let plan =
        ServerPlan { command, files, folders: args.folder.clone(), port, load: Arc::new(engine), warmup_ms, window_ms };
    let mut run = RunOptions::of(&url)?;
    run.options = Options { load, workload, clients, ..run.options };
    Ok(Some(Served { plan, connections, rate, delay: file.path.delay, run }))
}

impl Served {
    /// Refuses here, before a guest boots, what the load engine would refuse there.
    pub fn check(&self, connections: u64, rate_per_sec: u64) -> Result<()> {
        let mut run = self.run.clone();
        run.options.load = LoadOptions {
            connections: Some(Count(connections)),
            rate: (rate_per_sec > 0).then_some(Rate(rate_per_sec as f64)),
            duration: Some(Time(std::time::Duration::from_millis(self.plan.window_ms + LONGER_MS))),
            threads: Some(Count(1)),
            ..run.options.load
        };
        plan::load_plan(&run, LoadKind::Single, run.target.resolve()?, Vec::new()).map(drop)
    }
}

/// The files that the load reads, which travel to the same, absolute, paths.
fn files_of(
    load: &mut LoadOptions,
    workload: &mut WorkloadOptions,
    clients: &mut ClientOptions,
) -> Result<Vec<PathBuf>> {
    let places = [
        &mut load.urls,
        &mut load.body_file,
        &mut workload.dynamic_urls,
        &mut workload.trace,
        &mut workload.rate_series,
        &mut clients.tls_ca,
    ];
    let mut files = Vec::new();
    for place in places.into_iter().flatten() {
        *place = std::path::absolute(&place).with_context(|| format!("cannot find {}", place.display()))?;
        files.push(place.clone());
    }
    Ok(files)
}

fn opening(load: &LoadOptions, workload: &WorkloadOptions) -> Opening {
    let is_replay = workload.trace.is_some() && workload.mix.is_none();
    match (is_replay || workload.rate_series.is_some(), load.requests_per_connection) {
        (true, _) => Opening::WhenDue,
        (false, Some(_)) => Opening::FirstInClosedLoop,
        (false, None) => Opening::First,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{ArrivalWord, CloseWord};
    use crate::quantity::{Bits, Bytes, Share, Speed};

    #[test]
    fn a_load_survives_the_way_into_the_guest() {
        let load = LoadOptions {
            arrival: Some(ArrivalWord::Constant),
            cold: Some(Count(12)),
            connect_rate: Some(Rate(0.5)),
            timeout: Some(Time(std::time::Duration::from_micros(1500))),
            header: vec!["X: \"a\" = 'b'".into()],
            body: Some("two\nlines\\".into()),
            seed: Some(7),
            ..Default::default()
        };
        let workload = WorkloadOptions {
            dynamic_share: Some(Share(0.3)),
            speed: Some(Speed::Max),
            trace: Some("/a log".into()),
            ..Default::default()
        };
        let clients = ClientOptions {
            read_rate: Some(Bytes(1460)),
            asked_bandwidth: Some(Bits(400_000.0)),
            close_first: Some(CloseWord::Server),
            ..Default::default()
        };
        let text =
            toml::to_string(&InGuest { load: &load, workload: &workload, clients: &clients }).expect("it is written");
        let read: Options = toml::from_str(&text).expect(&text);
        assert_eq!((&read.workload, &read.clients), (&workload, &clients), "{text}");
        assert_eq!(format!("{:?}", read.load), format!("{load:?}"), "{text}");
        let empty: Options = toml::from_str(
            &toml::to_string(&InGuest { load: &<_>::default(), workload: &<_>::default(), clients: &<_>::default() })
                .expect("it is written"),
        )
        .expect("nothing was asked for");
        assert_eq!(empty.workload, WorkloadOptions::default());
    }
}
