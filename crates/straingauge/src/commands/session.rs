//! What `load` and `find` share: the target, the server where one is started, the observer, the run's record.

use crate::cli::{
    ClientOptions, FleetOptions, IsolateWord, LoadOptions, PathOptions, ProfileWord, ServerOptions, WatchWord,
    WatchingOptions, WorkloadOptions,
};
use crate::cpus;
use crate::failure::wrong_usage;
use crate::fleet;
use crate::layers::LayerGauge;
use crate::measure::Gauge;
use crate::plan::{self, Drive, Setting};
use crate::progress::Progress;
use crate::requests::{RequestGauge, request_watch_plan};
use crate::server::{Server, ServerPlan};
use crate::signals::Stop;
use crate::url::Target;
use crate::watching::Watch;
use anyhow::{Context, Result, anyhow, bail};
use observe::{Group, Observer};
use record::machine::{self, INHERITED_DESCRIPTORS, MachineFacts};
use record::scenario::ServerCommand;
use record::{Doubt, DoubtKind, LoadPlan, PathPlan, RunRecord, Scenario, Severity, Status};
use remote::{STATES_INTERVAL, Watcher};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Everything that stands while points are measured.
pub struct Session {
    /// `None` when the server was there before us.
    pub server: Option<Server>,
    pub gauge: Gauge,
    pub plan: LoadPlan,
    pub stop: Stop,
    pub progress: Progress,
    pub server_command: Option<ServerCommand>,
    /// Doubts about the run as a whole.
    pub doubts: Vec<Doubt>,
    /// The way from client to server, in words.
    pub path: String,
}

/// What a session is made from.
pub struct Wanted<'a> {
    pub target: &'a Target,
    pub load: &'a LoadOptions,
    pub workload: &'a WorkloadOptions,
    /// The plan is a sweep's: pace and window change from point to point.
    pub is_sweep: bool,
    pub clients: &'a ClientOptions,
    pub fleet: &'a FleetOptions,
    pub server: &'a ServerOptions,
    pub watching: &'a WatchingOptions,
    pub command: &'a [String],
    pub path: &'a PathOptions,
    /// Each segment is a packet of its own: nothing is left to segmentation offload.
    pub single_segments: bool,
    pub default_warmup: Duration,
    pub is_quiet: bool,
}

impl<'a> Wanted<'a> {
    /// A sweep of what was typed.
    pub fn sweep(drive: &'a Drive) -> Self {
        Wanted {
            target: &drive.target,
            load: &drive.load,
            workload: &drive.workload,
            is_sweep: true,
            clients: &drive.clients,
            fleet: &drive.fleet,
            server: &drive.server,
            watching: &drive.watching,
            command: &drive.command,
            path: &drive.path,
            single_segments: false,
            // A fifth of a point; each point has its own.
            default_warmup: crate::defaults::POINT_DURATION / 5,
            is_quiet: drive.output.quiet,
        }
    }
}

impl Session {
    /// Checks the options, starts the server if there is one to start, and prepares to watch.
    pub fn open(wanted: &Wanted<'_>) -> Result<Session> {
        let stop = Stop::on_signals()?;
        let mut progress = Progress::new(wanted.is_quiet);
        machine::raise_descriptor_limit();
        for removed in wan::remove_stale() {
            progress.say(&format!("cleaned up after an earlier run: {removed}"));
        }
        let resolved =
            if wanted.command.is_empty() { wanted.target.resolve()? } else { vec![placeholder(wanted.target)] };
        let (client_cpus, server_cpus) = placement(wanted)?;
        let setting = Setting {
            target: wanted.target,
            addresses: resolved,
            client_cpus: client_cpus.clone(),
            default_warmup_ns: wanted.default_warmup.as_nanos() as u64,
            resolved: crate::workload::resolve(wanted.workload, wanted.load, wanted.target, wanted.is_sweep)?,
            clients: wanted.clients,
        };
        // Everything that can be refused is refused before a server is started.
        let (mut plan, supplied) = plan::load_plan(wanted.load, setting)?;
        let fleet = {
            let starts_server = !wanted.command.is_empty();
            let host = &wanted.target.name;
            fleet::connect(wanted.fleet, wanted.load, starts_server, host, &plan, &stop, &mut progress)?
        };
        if fleet.is_none() {
            load::check(&plan).map_err(anyhow::Error::from)?;
        }
        if wanted.fleet.watch_with.is_some() && !wanted.command.is_empty() {
            return Err(wrong_usage(
                "--watch-with is about a server elsewhere: a server that straingauge starts is watched here, so leave one of both out",
            ));
        }
        let watch_unasked = if wanted.is_sweep || !wanted.command.is_empty() || wanted.fleet.watch_with.is_some() {
            WatchWord::Default
        } else {
            WatchWord::Off
        };
        let request_watch = request_watch_plan(wanted.watching, watch_unasked)?;
        let path_plan = plan::path_plan(wanted.path, plan.seed)?;
        if path_plan.is_some() && wanted.command.is_empty() {
            return Err(wrong_usage(
                "a wide-area path lies before a server that straingauge starts: add -- SERVER ... (for another program see straingauge wan)",
            ));
        }
        let server = match wanted.command {
            [] => None,
            argv => Some(start_server(argv, wanted, path_plan, &mut progress, &client_cpus, &server_cpus, &stop)?),
        };
        let mut doubts = Vec::new();
        let mut path = "to the given address".to_string();
        if let Some(server) = &server {
            plan.addresses = vec![server.address];
            doubts.extend(server.doubts.iter().cloned());
            path = server.path.to_string();
        }
        doubts.extend(shared_cpus(&plan, &server_cpus));
        let mut watch = match &wanted.fleet.watch_with {
            Some(command) => {
                progress.show("starting the watcher");
                Ok(Watch::There(Box::new(Watcher::connect(command, stop.flag())?)))
            }
            None => watch(&plan, wanted.target.port, server.as_ref(), &server_cpus)
                .map(|observer| Watch::Here(Box::new(observer))),
        };
        let requests = request_watch.map(|how| {
            progress.show("attaching the watch of requests");
            RequestGauge::beside(&how, &mut watch, wanted.target.port, server.as_ref(), &server_cpus)
        });
        let mut gauge = Gauge::new(watch, stop.clone(), server_cpus.first().copied());
        gauge.supply(supplied);
        gauge.server_pid = server.as_ref().and_then(Server::netns_pid);
        if let Some(requests) = requests {
            // A server that is not watched at all has its doubt already.
            doubts.extend(requests.why_not().filter(|_| gauge.watches_server()).map(|why| {
                Doubt::new(
                    DoubtKind::NotWatched,
                    Severity::Note,
                    format!("requests were not watched from the server's side: {why}"),
                    "run straingauge doctor to see what is missing; --detail off says that it is not wanted",
                )
            }));
            gauge.watch_requests(requests);
        }
        gauge.meter_path(server.as_ref().and_then(Server::path_meter));
        if let Some(fleet) = fleet {
            gauge.send_from(fleet);
        }
        if let Some(cold) = wanted.load.cold.filter(|cold| cold.0 > 0) {
            gauge.hold_cold(&plan, cold.0, &mut progress)?;
        }
        let server_command = (!wanted.command.is_empty()).then(|| ServerCommand {
            argv: wanted.command.to_vec(),
            cpus: server_cpus,
            isolated: server.as_ref().is_some_and(Server::is_isolated),
        });
        Ok(Session { server, gauge, plan, stop, progress, server_command, doubts, path })
    }

    /// Attaches the sampler of layers for a profile of every point, per request and per packet.
    pub fn profile_packets(&mut self, port: u16, frequency_hz: u32) -> Result<()> {
        let netns_pid = self.server.as_ref().and_then(Server::netns_pid);
        let layers = LayerGauge::attach_for_packets(port, netns_pid, frequency_hz)
            .map_err(|why| anyhow!("the layers cannot be profiled: {why}"))?;
        self.gauge.profile_layers(layers);
        Ok(())
    }

    /// Attaches the sampler of layers, which then sees every point; where that is not possible, says why, once.
    pub fn profile_layers(&mut self, port: u16, when: ProfileWord) -> Result<()> {
        if when == ProfileWord::Never {
            return Ok(());
        }
        let netns_pid = self.server.as_ref().and_then(Server::netns_pid);
        match LayerGauge::attach(port, netns_pid) {
            Ok(layers) => self.gauge.profile_layers(layers),
            Err(why) if when == ProfileWord::Always => bail!("--profile always is not possible: {why}"),
            Err(why) => self.doubts.push(Doubt::new(
                DoubtKind::NotWatched,
                Severity::Note,
                format!("what the layers of the network stack cost was not sampled: {why}"),
                "run straingauge doctor to see what is missing; --profile never says that it is not wanted",
            )),
        }
        Ok(())
    }

    /// The record of a run that begins now.
    pub fn record(&self, scenario: Scenario) -> RunRecord {
        let mut server_facts = self.gauge.server_facts();
        server_facts.insert("path".into(), self.path.clone());
        if let Some(server) = &self.server {
            server_facts.insert(INHERITED_DESCRIPTORS.into(), server.inherited_descriptors.to_string());
        }
        if let Some(tested) = self.server.as_ref().and_then(|server| server.path_test.clone()) {
            server_facts.insert("path self-test".into(), tested);
        }
        RunRecord {
            schema: record::run::SCHEMA,
            status: Status::Running,
            started_unix_ms: record::time::unix_ms(),
            writer_pid: std::process::id(),
            scenario,
            machine: MachineFacts::read(),
            server_facts,
            doubts: self.doubts.clone(),
            ended_by: None,
        }
    }

    /// The wide-area path between client and server, where there is one.
    pub fn path_plan(&self) -> Option<PathPlan> {
        self.server.as_ref().and_then(Server::path_plan)
    }

    /// Why the server is gone, if it is.
    pub fn server_gone(&mut self) -> Option<String> {
        self.server.as_mut().and_then(Server::gone)
    }
}

/// Before the server is started its address is not known; the plan is checked with one of the same family.
fn placeholder(target: &Target) -> SocketAddr {
    let ip = match target.literal_ip() {
        Some(ip) if !ip.is_unspecified() => ip,
        _ => IpAddr::from([127, 0, 0, 1]),
    };
    SocketAddr::new(ip, target.port)
}

/// Who runs where: with a server to start, its CPUs and the client's are kept apart.
fn placement(wanted: &Wanted<'_>) -> Result<(Vec<usize>, Vec<usize>)> {
    let server_typed =
        wanted.server.server_cpus.as_deref().map(|list| plan::allowed(list, "--server-cpus")).transpose()?;
    let client_typed = wanted.load.cpus.as_deref().map(|list| plan::allowed(list, "--cpus")).transpose()?;
    if wanted.command.is_empty() {
        if server_typed.is_some() || wanted.server.isolate == Some(IsolateWord::Always) {
            return Err(wrong_usage(
                "--server-cpus and --isolate are about a server that straingauge starts: add -- SERVER ...",
            ));
        }
        return Ok((client_typed.unwrap_or_default(), Vec::new()));
    }
    let allowed = machine::allowed_cpus();
    let others = |taken: &[usize]| -> Vec<usize> {
        let rest: Vec<usize> = allowed.iter().copied().filter(|cpu| !taken.contains(cpu)).collect();
        if rest.is_empty() { allowed.clone() } else { rest }
    };
    Ok(match (client_typed, server_typed) {
        (Some(client), Some(server)) => (client, server),
        (Some(client), None) => (client.clone(), others(&client)),
        (None, Some(server)) => (others(&server), server),
        (None, None) => cpus::split(&allowed),
    })
}

fn start_server(
    argv: &[String],
    wanted: &Wanted<'_>,
    path: Option<PathPlan>,
    progress: &mut Progress,
    client_cpus: &[usize],
    server_cpus: &[usize],
    stop: &Stop,
) -> Result<Server> {
    let is_isolated = match wanted.server.isolate.unwrap_or_default() {
        IsolateWord::Never if path.is_some() => {
            return Err(wrong_usage(
                "--isolate never leaves no place for a wide-area path: it lies between two network namespaces",
            ));
        }
        IsolateWord::Never => false,
        IsolateWord::Auto if path.is_some() => {
            wan::is_permitted().context("a wide-area path is not possible")?;
            true
        }
        IsolateWord::Always => {
            wan::is_permitted().context("--isolate always is not possible")?;
            true
        }
        IsolateWord::Auto => match wan::is_permitted() {
            Ok(()) => true,
            Err(why) => {
                progress
                    .say(&format!("no network namespaces ({why}): client and server share this machine's loopback"));
                false
            }
        },
    };
    let timeout = wanted.server.server_timeout.map_or(crate::defaults::SERVER_TIMEOUT, |time| time.0);
    progress.show(&format!("starting {} on CPU {}", argv[0], cpus::format_list(server_cpus)));
    let server_plan = ServerPlan {
        argv,
        port: wanted.target.port,
        asked: wanted.target.literal_ip().filter(|ip| !ip.is_unspecified()),
        server_cpus: server_cpus.to_vec(),
        client_cpus: client_cpus.to_vec(),
        is_isolated,
        path,
        single_segments: wanted.single_segments,
        timeout,
        timeout_option: Some("--server-timeout"),
    };
    let server = Server::start(&server_plan, stop)?;
    progress.say(&format!(
        "{} accepts on {}, server on CPU {}, client on CPU {}, {}",
        argv[0],
        server.address,
        cpus::format_list(server_cpus),
        cpus::format_list(client_cpus),
        server.path
    ));
    if let Some(tested) = &server.path_test {
        progress.say(&format!("path self-test: {tested}"));
    }
    Ok(server)
}

fn shared_cpus(plan: &LoadPlan, server_cpus: &[usize]) -> Option<Doubt> {
    let is_local = plan.addresses.iter().all(|address| address.ip().is_loopback());
    let (what, remedy) = if server_cpus.is_empty() {
        if !is_local || (!plan.cpus.is_empty()) {
            return None;
        }
        (
            "client and server run on one machine and are not pinned apart".to_string(),
            "let straingauge start the server (-- SERVER ...), or pin both: taskset for the server, --cpus for the client",
        )
    } else {
        let shared: Vec<usize> = plan.cpus.iter().copied().filter(|cpu| server_cpus.contains(cpu)).collect();
        if shared.is_empty() {
            return None;
        }
        (
            format!("client and server share CPU {}", cpus::format_list(&shared)),
            "give them different CPUs with --cpus and --server-cpus, or use another machine for the client",
        )
    };
    Some(Doubt::new(DoubtKind::SharedCpus, Severity::Warning, what, remedy))
}

fn watch(plan: &LoadPlan, port: u16, server: Option<&Server>, server_cpus: &[usize]) -> Result<Observer, Doubt> {
    let unwatched = |what: String, remedy: &str| Doubt::new(DoubtKind::NotWatched, Severity::Warning, what, remedy);
    let group = match server.and_then(Server::pid) {
        Some(pid) => Group::Tree(pid),
        None => match observe::server_on_port(port, None) {
            Ok(Some(_)) => Group::ListeningOn(port),
            Ok(None) if plan.addresses.iter().all(|address| address.ip().is_loopback()) => Group::ListeningOn(port),
            _ => {
                return Err(unwatched(
                    format!("the server was not watched: no process of this machine listens on port {port}"),
                    "name a watcher on its machine with --watch-with 'ssh SERVER straingauge watch --worker :PORT' to see its CPU, memory and connections",
                ));
            }
        },
    };
    let target = observe::Target {
        port,
        group,
        netns_pid: server.and_then(Server::netns_pid),
        server_cpus: server_cpus.to_vec(),
        client_pid: std::process::id(),
    };
    Observer::start(target, STATES_INTERVAL).map_err(|error| {
        unwatched(format!("the server was not watched: {error}"), "run straingauge doctor to see what is missing")
    })
}

/// The plan of a command that sends nothing.
pub fn no_load() -> LoadPlan {
    LoadPlan {
        addresses: Vec::new(),
        host: String::new(),
        method: String::new(),
        targets: Vec::new(),
        headers: Vec::new(),
        body: Vec::new(),
        pace: record::Pace::Closed,
        connections: 0,
        requests_per_connection: 0,
        threads: 0,
        cpus: Vec::new(),
        warmup_ns: 0,
        duration_ns: 0,
        timeout_ns: 0,
        connect_timeout_ns: 0,
        connect_rate_per_sec: 0.0,
        source_addresses: Vec::new(),
        seed: 0,
        precise: false,
        workload: Default::default(),
        clients: Default::default(),
    }
}

/// The exact command line, quoted for a shell, that repeats this invocation.
pub fn repeat_command() -> String {
    let words: Vec<String> = std::env::args()
        .enumerate()
        .map(|(index, word)| {
            let word = if index == 0 { "straingauge".to_string() } else { word };
            let is_plain = !word.is_empty()
                && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./:=,+@%".contains(&byte));
            if is_plain { word } else { format!("'{}'", word.replace('\'', "'\\''")) }
        })
        .collect();
    words.join(" ")
}

/// A run's default name: `127.0.0.1-8080-1k.bin`.
pub fn default_name(target: &Target) -> String {
    format!("{}-{}{}", target.name, target.port, target.path.split('?').next().unwrap_or("").replace('/', "-"))
}
