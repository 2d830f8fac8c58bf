//! State that `load` and `find` share: target, server, observers and record of the run.

use crate::cli::{IfPermitted, WatchWord};
use crate::commands::placement;
use crate::companions::layers::LayerSampler;
use crate::companions::server::{ServerWatch, StartedServer, is_here};
use crate::companions::{MeteredPath, SlowedServer, watch_requests};
use crate::cpus;
use crate::failure::{refuse_if, wrong_usage};
use crate::fleet;
use crate::measure::Runner;
use crate::plan::watching::request_watch_plan;
use crate::plan::{self, LoadKind, RunOptions};
use crate::progress::Progress;
use crate::server::distance::Distance;
use crate::server::{ALWAYS, RunningServer, ServerPlan, Unreached};
use crate::signals::Stop;
use crate::url::{Target, without_password};
use anyhow::{Result, anyhow, bail};
use load::ProbeResponse;
use observe::profile::{PointSampler, PointSampling};
use observe::slow_down::SlowDown;
use observe::{Group, Observer};
use record::machine::{self, INHERITED_DESCRIPTORS};
use record::profile::NOT_SAMPLED;
use record::protocol::{Protocol, redis_error};
use record::scenario::ServerCommand;
use record::{AxisPlan, Doubt, DoubtKind, LoadPlan, LoadRun, PathPlan, RunKind, RunRecord, Scenario, shell};
use remote::{Fleet, HostPlace, RemoteWatcher, STATES_INTERVAL};
use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Duration;
use wan::WanError;

/// Everything that exists while points are measured.
pub struct Session {
    /// The server that straingauge started, if any.
    pub server: Option<RunningServer>,
    pub runner: Runner,
    pub plan: LoadPlan,
    pub stop: Stop,
    pub progress: Progress,
    pub server_command: Option<ServerCommand>,
    /// Doubts about the run as a whole.
    pub doubts: Vec<Doubt>,
    /// The path from client to server, in words.
    pub path: String,
}

impl Session {
    /// Checks the options, starts the server if needed, and prepares to watch it.
    pub fn open(run: &RunOptions, kind: LoadKind) -> Result<Session> {
        placement::refuse_out_of_reach(run)?;
        let stop = Stop::on_signals()?;
        let mut progress = Progress::new(run.output.quiet);
        machine::raise_descriptor_limit();
        crate::leftovers::clean_up().iter().for_each(|line| progress.say(line));
        let has_clients = fleet::is_asked_for(&run.options.fleet);
        let resolved = if run.command().is_empty() || has_clients {
            run.target.resolve()?
        } else {
            vec![placement::placeholder(&run.target)]
        };
        let (client_cpus, server_cpus) = placement::cpus(run)?;
        // Refuse everything that can be refused before the server starts.
        let (mut plan, supplied) = plan::load_plan(run, kind, resolved, client_cpus.clone())?;
        let fleet = {
            let starts_server = !run.command().is_empty();
            let host = &run.target.name;
            fleet::connect(&run.options.fleet, &run.options.load, starts_server, host, &plan, &stop, &mut progress)?
        };
        if fleet.is_none() {
            load::check(&plan).map_err(anyhow::Error::from)?;
        }
        let watcher = run.watcher()?;
        refuse_if(
            watcher.is_some() && !run.command().is_empty(),
            "--watch-with is for a server on another machine, but -- SERVER starts one here: leave one of the two out",
        )?;
        let watch_unasked = if kind.is_sweep() || !run.command().is_empty() || watcher.is_some() {
            WatchWord::Budgeted
        } else {
            WatchWord::Off
        };
        let request_watch = request_watch_plan(&run.options.watching, watch_unasked)?;
        let path_plan = plan::path_plan(&run.options.path, plan.seed)?;
        refuse_if(
            path_plan.is_some() && run.command().is_empty(),
            "a wide-area path needs a server that straingauge starts: add -- SERVER ... (for other programs use \
                 straingauge wan)",
        )?;
        let server = if run.command().is_empty() {
            None
        } else {
            let asked = kind.is_sweep().then_some(&plan);
            Some(start_server(run, path_plan, asked, &mut progress, &client_cpus, &server_cpus, &stop)?)
        };
        let mut doubts = Vec::new();
        let mut path = "to the given address".to_string();
        if let Some(server) = &server {
            // Clients on other machines use the address in the URL.
            if !has_clients {
                plan.addresses = vec![server.address];
            }
            doubts.extend(server.doubts.iter().cloned());
            path = server.path.to_string();
        } else if !has_clients {
            // Cold connections and the watch use the address of the load.
            plan.addresses = vec![load::choose_address(&plan, stop.flag())];
        }
        let is_apart = !plan.cpus.is_empty() && cpus::are_apart(&plan.cpus, &server_cpus);
        let starts_elsewhere = run.options.fleet.server_with.is_some();
        // A started server is in this process's network namespace, unless it is isolated.
        let mut distance = match (&server, &fleet) {
            (Some(_), Some(fleet)) => Some(Distance::between(&HostPlace::here(), &fleet.places())),
            _ => None,
        };
        let mut watch = match &watcher {
            Some(command) => {
                progress.show("starting the watcher");
                let starts_server = starts_elsewhere.then(|| run.options.server.timeout());
                let watcher = RemoteWatcher::connect(command, starts_server, stop.flag())?;
                let clients = fleet.as_ref().map_or_else(|| vec![HostPlace::here()], Fleet::places);
                distance = Some(Distance::between(watcher.place(), &clients));
                ServerWatch::elsewhere(watcher)
            }
            None => match observe_here(&plan, run.target.port, server.as_ref(), &server_cpus) {
                Ok(observer) => ServerWatch::here(observer),
                Err(doubt) => ServerWatch::Not(doubt),
            },
        };
        if let Some(distance) = distance {
            path = distance.path().into();
            if starts_elsewhere && run.options.server.isolate == Some(IfPermitted::Always) {
                distance.require_isolated()?;
            }
        }
        if starts_elsewhere {
            progress.say(&format!("{} accepts on its machine, path: {path}", run.options.server.command[0]));
        }
        doubts.extend(placement::shared_cpus(&plan, &server_cpus, distance.is_some_and(Distance::is_one_machine)));
        let netns_pid = server.as_ref().and_then(RunningServer::netns_pid);
        let mut runner = Runner::new(fleet, supplied, stop.clone(), server_cpus.first().copied(), netns_pid);
        runner.is_apart = is_apart;
        if let Some(how) = request_watch {
            progress.show("attaching the watch of requests");
            let (here, why_not) = watch_requests(&how, &mut watch, run.target.port, server.as_ref(), &server_cpus);
            doubts.extend(why_not.map(|why| {
                DoubtKind::NotWatched.note(
                    format!("requests were not watched from the server's side: {why}"),
                    "run straingauge doctor to see what is missing; --detail off turns it off",
                )
            }));
            // Joins first, so that its thread reads when the others read.
            here.into_iter().for_each(|requests| runner.companions.join(requests));
        }
        if let Some(meter) = server.as_ref().and_then(RunningServer::path_meter) {
            runner.companions.join(MeteredPath::new(meter));
        }
        runner.companions.join(watch);
        server.iter().for_each(|server| runner.companions.join(StartedServer::new(server.life())));
        if let Some(cold) = run.options.load.cold.filter(|cold| cold.0 > 0) {
            runner.hold_cold(&plan, cold.0, &mut progress)?;
        }
        let server_command = (!run.options.server.command.is_empty()).then(|| ServerCommand {
            argv: run.options.server.command.clone(),
            cpus: if starts_elsewhere { placement::cpus_elsewhere(run) } else { server_cpus },
            isolated: distance
                .map_or_else(|| server.as_ref().is_some_and(RunningServer::is_isolated), Distance::is_isolated),
        });
        Ok(Session { server, runner, plan, stop, progress, server_command, doubts, path })
    }

    /// A possible cause of this status in a network namespace of the server's own.
    pub fn why_isolated(&self, status: u16) -> Option<String> {
        let server = self.server.as_ref().filter(|server| server.is_isolated())?;
        if matches!(&self.plan.protocol, Protocol::Redis(_)) && status == redis_error(b"DENIED") {
            return Some(
                "in its own network namespace, its clients come from another address: start redis-server with \
                 --protected-mode no"
                    .into(),
            );
        }
        server.unreached().map(|unreached| unreached.to_string())
    }

    /// What the server could not connect to from its own network namespace, to end a sentence with.
    pub fn unreached_words(&self) -> String {
        let unreached = self.server.as_ref().and_then(RunningServer::unreached);
        unreached.map_or(String::new(), |unreached| format!("; {unreached}"))
    }

    /// Sends one request, so that a wrong URL is not reported as a slow server.
    pub fn probe(&mut self) -> Result<ProbeResponse> {
        load::probe(&self.plan, Duration::from_nanos(self.plan.timeout_ns)).map_err(|error| {
            let error = match self.server_end_reason() {
                Some(how) => anyhow!("the server {how}, when it got its first request"),
                None => error.into(),
            };
            match &self.server {
                Some(server) => server.explain(error),
                None => error,
            }
        })
    }

    /// A process in the server's separate network namespace, if it has one, or why layers cannot be sampled.
    fn sampled_namespace(&self) -> Result<Option<u32>, String> {
        match &self.server {
            Some(server) => Ok(server.netns_pid()),
            None => is_here(&self.plan).map(|()| None),
        }
    }

    /// Attaches the sampler that profiles layers per request and per packet in every point.
    pub fn profile_packets(&mut self, port: u16, frequency_hz: u32) -> Result<()> {
        let how = PointSampling { frequency_hz, is_per_packet: true };
        let layers = self
            .sampled_namespace()
            .and_then(|netns_pid| PointSampler::attach(port, netns_pid, how))
            .map_err(|why| anyhow!("the layers cannot be profiled: {why}"))?;
        self.runner.companions.join(LayerSampler::with(layers));
        Ok(())
    }

    /// Attaches the sampler that profiles layers in every point, or reports once why that is not possible.
    pub fn profile_layers(&mut self, port: u16, when: IfPermitted) -> Result<()> {
        if when == IfPermitted::Never {
            return Ok(());
        }
        let sampled = match self.runner.companions.sample_layers() {
            Some(elsewhere) => elsewhere,
            None => self
                .sampled_namespace()
                .and_then(|netns_pid| PointSampler::attach(port, netns_pid, PointSampling::OF_SEARCH))
                .map(|layers| self.runner.companions.join(LayerSampler::with(layers))),
        };
        match sampled {
            Ok(()) => {}
            Err(why) if when == IfPermitted::Always => bail!("--profile always is not possible: {why}"),
            Err(why) => self.doubts.push(DoubtKind::NotWatched.note(
                format!("{NOT_SAMPLED}: {why}"),
                "run straingauge doctor to see what is missing; --profile never turns it off",
            )),
        }
        Ok(())
    }

    pub fn slow_down(&mut self, port: u16, axis: &AxisPlan) -> Result<()> {
        let attached = self.sampled_namespace().and_then(|netns_pid| {
            SlowDown::attach(port, netns_pid, &axis.slowed, axis.function.as_deref()).map_err(|why| why.to_string())
        });
        let slow = attached.map_err(|why| anyhow!("the server cannot be slowed down: {why}"))?;
        let of_server = self.server_command.as_ref().map(|server| server.cpus.as_slice()).unwrap_or_default();
        let own: &[usize] = if cpus::are_apart(&self.plan.cpus, of_server) { &self.plan.cpus } else { &[] };
        // Joins first, because its counts are divided by the requests of the window.
        self.runner.companions.join_first(SlowedServer::with(slow, own));
        Ok(())
    }

    pub fn record(&self, scenario: Scenario) -> RunRecord {
        let mut server_facts = self.runner.companions.server_facts();
        server_facts.insert("path".into(), self.path.clone());
        if let Some(server) = &self.server {
            server_facts.insert(INHERITED_DESCRIPTORS.into(), server.inherited_descriptors.to_string());
        }
        if let Some(tested) = self.server.as_ref().and_then(|server| server.path_test.clone()) {
            server_facts.insert("path self-test".into(), tested);
        }
        RunRecord { server_facts, doubts: self.doubts.clone(), ..RunRecord::begin(scenario) }
    }

    pub fn loaded(&self, run: &RunOptions) -> LoadRun {
        LoadRun {
            url: run.target.typed.clone(),
            load: self.plan.abridged(),
            server: self.server_command.clone(),
            path: self.path_plan(),
        }
    }

    pub fn scenario(&self, run: &RunOptions, kind: RunKind) -> Scenario {
        let name = run.options.name.clone().unwrap_or_else(|| default_name(&run.target));
        Scenario { name, repeat_command: repeat_command(), kind }
    }

    /// The wide-area path between client and server, where there is one.
    pub fn path_plan(&self) -> Option<PathPlan> {
        self.server.as_ref().and_then(RunningServer::path_plan)
    }

    /// The round trip of a full packet over the path as it is now; 0 without a path.
    pub fn round_trip_ns(&self) -> u64 {
        self.path_plan().map_or(0, |path| path.full_round_trip_ns())
    }

    /// Why the server is gone, if it is.
    pub fn server_end_reason(&mut self) -> Option<String> {
        match &mut self.server {
            Some(server) => server.end_reason(),
            None => self.server_elsewhere().and_then(|(gone, _)| gone),
        }
    }

    /// Why the server accepts no connection; `None` if it does. A server may be gone unnoticed if straingauge did not
    /// start it, or a shell did. A restarting server has one second.
    pub fn takes_no_connection(&self) -> Option<String> {
        const TRIES: u32 = 5;
        const BETWEEN: Duration = Duration::from_millis(250);
        const LIMIT: Duration = Duration::from_secs(1);
        let mut why = None;
        for _ in 0..TRIES {
            for address in &self.plan.addresses {
                match TcpStream::connect_timeout(address, LIMIT) {
                    Ok(_) => return None,
                    Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                        why.get_or_insert(format!("nothing listens any more on {address} (connection refused)"));
                    }
                    Err(error) => {
                        why.get_or_insert(format!("{address} accepts no more connections: {error}"));
                    }
                }
            }
            std::thread::sleep(BETWEEN);
        }
        why
    }

    pub fn server_output(&self) -> Vec<u8> {
        match &self.server {
            Some(server) => server.output(),
            None => self.server_elsewhere().map(|(_, output)| output).unwrap_or_default(),
        }
    }

    fn server_elsewhere(&self) -> Option<(Option<String>, Vec<u8>)> {
        let watcher = self.server_command.as_ref().and_then(|_| self.runner.companions.watcher())?;
        let said = watcher.borrow_mut().server();
        Some(said)
    }
}

enum Isolation {
    None,
    IfPossible,
    /// The user requires the feature; the error begins with these words.
    Demanded(&'static str),
}

/// `asked`: a load whose first request shows whether the server works in its own network namespace.
fn start_server(
    run: &RunOptions,
    path: Option<PathPlan>,
    asked: Option<&LoadPlan>,
    progress: &mut Progress,
    client_cpus: &[usize],
    server_cpus: &[usize],
    stop: &Stop,
) -> Result<RunningServer> {
    let isolation = match run.options.server.isolate.unwrap_or_default() {
        IfPermitted::Never if path.is_some() => {
            return Err(wrong_usage(
                "--isolate never excludes a wide-area path, which connects two network namespaces",
            ));
        }
        IfPermitted::Never => Isolation::None,
        // Clients on other machines cannot reach an isolated server.
        IfPermitted::Auto if fleet::is_asked_for(&run.options.fleet) => Isolation::None,
        IfPermitted::Auto if path.is_some() => Isolation::Demanded("a wide-area path is not possible"),
        IfPermitted::Always => Isolation::Demanded(ALWAYS),
        IfPermitted::Auto => Isolation::IfPossible,
    };
    progress.show(&format!("starting {} on CPU {}", run.command()[0], record::machine::cpu_list(server_cpus)));
    let mut server_plan = ServerPlan {
        argv: run.command(),
        port: run.target.port,
        asked: run.target.literal_ip().filter(|ip| !ip.is_unspecified()),
        server_cpus: server_cpus.to_vec(),
        client_cpus: client_cpus.to_vec(),
        is_isolated: !matches!(isolation, Isolation::None),
        needs_group: false,
        path,
        timeout: run.options.server.timeout(),
    };
    let server = match (RunningServer::start(&server_plan, stop), isolation) {
        (Err(error), isolation) if error.downcast_ref().is_some_and(WanError::is_of_machine) => match isolation {
            Isolation::Demanded(what) => return Err(error.context(what)),
            _ => {
                progress.say(&format!("client and server share this machine's loopback: {error}"));
                server_plan.is_isolated = false;
                RunningServer::start(&server_plan, stop)?
            }
        },
        (started, Isolation::IfPossible) => match apart(started, asked)? {
            Ok(server) => server,
            Err(unreached) => {
                progress.say(&format!("{unreached}; {} starts again there", run.command()[0]));
                server_plan.is_isolated = false;
                RunningServer::start(&server_plan, stop)?
            }
        },
        (started, _) => started?,
    };
    progress.say(&format!(
        "{} accepts on {}, server on CPU {}, client on CPU {}, {}",
        run.command()[0],
        server.address,
        record::machine::cpu_list(server_cpus),
        record::machine::cpu_list(client_cpus),
        server.path
    ));
    if let Some(tested) = &server.path_test {
        progress.say(&format!("path self-test: {tested}"));
    }
    Ok(server)
}

/// The started server, or why it does not work in its own network namespace: it ended, or answers its first request
/// with an error, and connections of its own failed there. If it answers well, such connections raise a doubt.
fn apart(started: Result<RunningServer>, asked: Option<&LoadPlan>) -> Result<Result<RunningServer, Unreached>> {
    let mut server = match started {
        Ok(server) => server,
        Err(error) => return error.downcast_ref::<Unreached>().copied().map(Err).ok_or(error),
    };
    let Some(plan) = asked else { return Ok(Ok(server)) };
    let plan = LoadPlan { addresses: vec![server.address], ..plan.clone() };
    let answer = load::probe(&plan, Duration::from_nanos(plan.timeout_ns));
    let is_good = answer.is_ok_and(|answer| answer.error.is_none() && answer.status < 400);
    match server.unreached() {
        Some(unreached) if !is_good => Ok(Err(unreached)),
        Some(unreached) if unreached.0.refused > 0 => {
            let how = "pass it if the server needs a program of this machine that it did not find";
            server.doubts.push(DoubtKind::NotWatched.note(unreached.to_string(), how));
            Ok(Ok(server))
        }
        _ => Ok(Ok(server)),
    }
}

fn observe_here(
    plan: &LoadPlan,
    port: u16,
    server: Option<&RunningServer>,
    server_cpus: &[usize],
) -> Result<Observer, Doubt> {
    let unwatched = |what: String, remedy: &str| DoubtKind::NotWatched.warning(what, remedy);
    let elsewhere = |why: &str| {
        unwatched(
            format!("the server was not watched: {why}"),
            "name a watcher on its machine with --watch-with 'ssh SERVER straingauge watch --worker :PORT' to see its \
             CPU, memory and connections",
        )
    };
    let group = match server.and_then(RunningServer::pid) {
        Some(pid) => Group::Tree(pid),
        None => {
            is_here(plan).map_err(|why| elsewhere(&why))?;
            let is_loopback = plan.addresses.iter().all(|address| address.ip().is_loopback());
            if !is_loopback && matches!(observe::server_on_port(port, None), Ok(None)) {
                return Err(elsewhere(&format!("no process on this machine listens on port {port}")));
            }
            Group::ListeningOn(port)
        }
    };
    let target = observe::WatchTarget {
        port,
        group,
        netns_pid: server.and_then(RunningServer::netns_pid),
        server_cpus: server_cpus.to_vec(),
        client_pid: std::process::id(),
    };
    Observer::start(target, STATES_INTERVAL).map_err(|error| {
        unwatched(format!("the server was not watched: {error}"), "run straingauge doctor to see what is missing")
    })
}

/// The command line, quoted for a shell, that repeats this invocation. It lacks `--out`, because that directory now
/// contains a run.
pub fn repeat_command() -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    let words: Vec<String> = words.map(|word| without_password(&word).unwrap_or(word)).collect();
    let words = without_out(words);
    shell::joined(std::iter::once("straingauge").chain(words.iter().map(String::as_str)))
}

/// Removes `--out DIR`, except from the server's command after `--`.
pub fn without_out(words: Vec<String>) -> Vec<String> {
    shell::without(&words, |name| (name == "--out").then_some(true))
}

/// The default name of a run: `127.0.0.1-8080-1k.bin`.
fn default_name(target: &Target) -> String {
    format!("{}-{}{}", target.name, target.port, target.path.split('?').next().unwrap_or("").replace('/', "-"))
}
