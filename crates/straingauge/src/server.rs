//! The server under test if straingauge starts it: namespaces, CPUs, waiting until it accepts connections, stopping
//! it.

pub mod agent;
pub mod distance;
pub mod guardian;
mod life;
pub mod output;

use crate::failure::{interrupted, wrong_usage};
use crate::process;
use crate::signals::Stop;
use anyhow::{Context, Result, bail};
use guardian::Guardian;
pub use life::ServerLife;
use observe::{FailedConnections, ObserveError};
use output::ServerOutput;
use record::leftovers::is_descendant;
use record::units::count;
use record::{Doubt, DoubtKind, PathPlan};
use rustix::process::{
    Signal, WaitOptions, getpid, set_child_subreaper, set_parent_process_death_signal, setsid, wait,
};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use wan::{NamespacePair, PairPlan, PathMeter, ServerCgroup, WanError};

const STARTING: &str = "the server was starting";

/// Timeout for connecting to a server that listens, in addition to the path's.
const ACCEPTS_WITHIN: Duration = Duration::from_millis(500);

const SILENCE_HINT: &str =
    "does its configuration name this port, and does it stay in the foreground? (longer: --server-timeout)";

/// Begin of the error if isolation is required and not possible.
pub const ALWAYS: &str = "--isolate always is not possible";

pub struct ServerPlan<'a> {
    pub argv: &'a [String],
    pub port: u16,
    /// The address in the URL, if it has one.
    pub asked: Option<IpAddr>,
    pub server_cpus: Vec<usize>,
    pub client_cpus: Vec<usize>,
    pub is_isolated: bool,
    /// Fail if no control group can be made.
    pub needs_group: bool,
    pub path: Option<PathPlan>,
    pub timeout: Duration,
}

/// A started server that accepts connections. Dropping it stops it and removes its namespaces.
pub struct RunningServer {
    child: Option<Child>,
    life: ServerLife,
    output: ServerOutput,
    pair: Option<NamespacePair>,
    group: Option<ServerCgroup>,
    guardian: Option<Guardian>,
    cpus: Vec<usize>,
    /// The address for the engine's connections.
    pub address: SocketAddr,
    pub inherited_descriptors: u64,
    pub doubts: Vec<Doubt>,
    has_path: bool,
    /// The path's self-test in words, if it ran.
    pub path_test: Option<String>,
    /// The path in words: `veth between two network namespaces`, `loopback in the server's namespace`, `loopback of
    /// this machine`.
    pub path: String,
}

/// Connections that a server could not open from a network namespace of its own.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error(
    "in its own network namespace the server reaches nothing outside it ({}, {} without a route): --isolate never runs \
     it in this machine's",
    count(.0.refused, "refused connection"), count(.0.unrouted, "packet")
)]
pub struct Unreached(pub FailedConnections);

impl RunningServer {
    /// Starts the server, waits until it accepts connections, and moves the calling thread to the client's namespace.
    pub fn start(plan: &ServerPlan<'_>, stop: &Stop) -> Result<RunningServer> {
        become_subreaper();
        let pair = if plan.is_isolated {
            let pair_plan = PairPlan {
                server_cpus: plan.server_cpus.clone(),
                client_cpus: plan.client_cpus.clone(),
                path: plan.path.clone().unwrap_or_default(),
                has_known_addresses: false,
            };
            Some(NamespacePair::create(&pair_plan)?)
        } else {
            if let Some(ip) = plan.asked.filter(|ip| !record::machine::has_address(*ip)) {
                return Err(wrong_usage(format!(
                    "-- SERVER starts a server on this machine, but {ip} is not an address of this machine: use one \
                     that it has, e.g. 127.0.0.1"
                )));
            }
            refuse_taken_port(plan.port)?;
            end_time_wait(plan.port);
            None
        };
        let mut command = Command::new(&plan.argv[0]);
        command.args(&plan.argv[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mark = guardian::next_mark(guardian::SERVER);
        command.env(record::leftovers::MARK, &mark);
        let mut group = None;
        match &pair {
            Some(pair) => pair.run_server(&mut command)?,
            None => {
                group = match ServerCgroup::create() {
                    Err(error) if plan.needs_group => return Err(error).context(ALWAYS),
                    made => made.ok(),
                };
                if let Some(group) = &group {
                    group.run_in(&mut command)?;
                }
                run_pinned(&mut command, &plan.server_cpus);
            }
        }
        let inherited_descriptors = record::machine::descriptor_limit();
        let spawned = command.spawn();
        if let (Err(_), Some(group)) = (&spawned, &group) {
            let _ = group.remove();
        }
        let mut child =
            spawned.map_err(|error| process::cannot_start(&format!("the server '{}'", plan.argv[0]), &error))?;
        let output = ServerOutput::capture(&mut child);
        let guardian = Guardian::over(child.id(), &mark);
        let loopback = match plan.asked {
            Some(IpAddr::V6(_)) => IpAddr::V6(Ipv6Addr::LOCALHOST),
            _ => IpAddr::V4(Ipv4Addr::LOCALHOST),
        };
        let life = ServerLife {
            pid: child.id(),
            port: plan.port,
            is_isolated: pair.is_some(),
            group: pair.as_ref().and_then(NamespacePair::server_cgroup).cloned(),
        };
        let mut server = RunningServer {
            child: Some(child),
            life,
            output,
            pair,
            group,
            guardian: None,
            cpus: plan.server_cpus.clone(),
            address: SocketAddr::new(plan.asked.unwrap_or(loopback), plan.port),
            inherited_descriptors,
            doubts: Vec::new(),
            path: "loopback of this machine".into(),
            has_path: plan.path.is_some(),
            path_test: None,
        };
        match guardian {
            Ok(guardian) => server.guardian = Some(guardian),
            Err(error) => server.note_no_guardian(&error),
        }
        server.note_what_the_path_lacks();
        match server.come_up(plan, stop) {
            Ok(()) => Ok(server),
            Err(error) => Err(server.explain(error)),
        }
    }

    fn come_up(&mut self, plan: &ServerPlan<'_>, stop: &Stop) -> Result<()> {
        self.test_path(stop)?;
        self.wait_until_it_listens(plan, stop)?;
        self.choose_path(plan)?;
        self.wait_until_it_accepts(plan, stop)
    }

    /// The error, with what the server could not connect to, if there was something.
    pub fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        match self.unreached() {
            Some(unreached) => error.context(unreached),
            None => error,
        }
    }

    /// What the server could not connect to from a network namespace of its own, if there was something. That is not
    /// why it broke down if a fault of its code ended it; its clients' connections are refused then.
    pub fn unreached(&self) -> Option<Unreached> {
        const FAULTS: [i32; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];
        let signal = self.life.ended().and_then(|status| status.signal());
        let pair = self.pair.as_ref().filter(|_| !signal.is_some_and(|signal| FAULTS.contains(&signal)))?;
        let failed = pair.server_namespace().run_inside(|| Ok(FailedConnections::here())).ok()?;
        (failed != FailedConnections::default()).then_some(Unreached(failed))
    }

    /// Tests the path with pings and a train of packets before it is used; deviations become doubts.
    fn test_path(&mut self, stop: &Stop) -> Result<()> {
        let Some(pair) = self.pair.as_ref().filter(|pair| pair.path().shapes_packets()) else { return Ok(()) };
        let tested = match pair.self_test(&|| stop.is_set()) {
            Err(WanError::Stopped) => return Err(interrupted(STARTING)),
            tested => tested.context("the path could not be tested")?,
        };
        self.doubts.extend(tested.doubts());
        self.path_test = Some(tested.summary());
        Ok(())
    }

    fn note_what_the_path_lacks(&mut self) {
        let notes = self.pair.as_ref().map(NamespacePair::notes).unwrap_or_default();
        let doubt = |note: &String| {
            DoubtKind::NotWatched.note(
                format!("the path between client and server is not set up as planned: {note}"),
                "the figures hold for this path; straingauge doctor shows what this kernel lacks",
            )
        };
        self.doubts.extend(notes.iter().map(doubt));
    }

    fn note_no_guardian(&mut self, error: &io::Error) {
        self.doubts.push(DoubtKind::NotWatched.note(
            format!("if straingauge is killed, the server's own children will not be ended at once: {error}"),
            "the figures hold; after a kill -9, run straingauge doctor --clean",
        ));
    }

    /// The started process, or the daemon that it left.
    pub fn pid(&self) -> Option<u32> {
        match self.life.ended() {
            None => Some(self.life.pid),
            Some(_) => listener_pid(self.life.port, self.netns_pid()),
        }
    }

    /// A process in the server's network namespace, if that is a separate one.
    pub fn netns_pid(&self) -> Option<u32> {
        self.life.netns_pid()
    }

    pub fn life(&self) -> ServerLife {
        self.life.clone()
    }

    pub fn path_plan(&self) -> Option<PathPlan> {
        self.path_meter().map(|meter| meter.plan())
    }

    pub fn path_meter(&self) -> Option<PathMeter> {
        self.pair.as_ref().filter(|_| self.has_path).map(NamespacePair::path_meter)
    }

    pub fn is_isolated(&self) -> bool {
        self.pair.is_some()
    }

    /// How the server ended, in words; `None` while it or its daemon runs.
    pub fn end_reason(&self) -> Option<String> {
        let status = self.life.ended()?;
        let words = self.output.exit_words(status);
        if !status.success() {
            return Some(words);
        }
        (!self.life.is_listening()).then(|| format!("{words}, and nothing listens on port {}", self.life.port))
    }

    pub fn output(&self) -> Vec<u8> {
        self.output.bytes()
    }

    /// Prepares `command` to run in the server's namespace and on its CPUs, but not as a part of the server.
    fn put_beside(&self, command: &mut Command) -> Result<()> {
        match &self.pair {
            Some(pair) => pair.run_beside_server(command)?,
            None => run_pinned(command, &self.cpus),
        }
        Ok(())
    }

    fn wait_until_it_listens(&mut self, plan: &ServerPlan<'_>, stop: &Stop) -> Result<()> {
        let deadline = Instant::now() + plan.timeout;
        loop {
            if stop.is_set() {
                return Err(interrupted(STARTING));
            }
            if self.life.is_listening() {
                return Ok(());
            }
            let ended = self.life.ended();
            if let Some(status) = ended.filter(|status| !status.success()) {
                bail!("the server '{}' {}", plan.argv[0], self.output.exit_words(status));
            }
            if Instant::now() >= deadline {
                match ended {
                    Some(status) => bail!(
                        "the server '{}' {} and nothing listens on port {}; {SILENCE_HINT}",
                        plan.argv[0],
                        self.output.exit_words(status),
                        plan.port
                    ),
                    None => bail!(
                        "the server '{}' does not listen on port {}{} after {} s; {SILENCE_HINT}{}",
                        plan.argv[0],
                        plan.port,
                        self.other_ports(plan.port),
                        plan.timeout.as_secs_f64(),
                        self.output.last_words().map(|words| format!(" It said: {words}")).unwrap_or_default()
                    ),
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The ports on which it listens instead, in words. In a shared namespace they may be another server's.
    fn other_ports(&self, port: u16) -> String {
        let ports = self.pair.as_ref().and_then(|_| observe::other_ports(port, self.netns_pid()).ok());
        let ports: Vec<String> = ports.iter().flatten().take(5).map(u16::to_string).collect();
        if ports.is_empty() { String::new() } else { format!(" but on {}", ports.join(", ")) }
    }

    /// Chooses the client's namespace: across the veth, or the server's own if it listens only on loopback.
    fn choose_path(&mut self, plan: &ServerPlan<'_>) -> Result<()> {
        let Some(pair) = &self.pair else {
            // A server that listens on one address is reached at that address.
            let listening = observe::listening_addresses(plan.port, None).unwrap_or_default();
            let is_reached = |at: &SocketAddr| at.ip().is_unspecified() || at.ip() == self.address.ip();
            if plan.asked.is_none() && !listening.iter().any(is_reached) {
                self.address = listening.first().copied().unwrap_or(self.address);
            }
            return Ok(());
        };
        let listening = || observe::listening_addresses(plan.port, self.netns_pid());
        // Retry: the first process of a daemon may be ending.
        let listening =
            listening().or_else(|_| listening()).context("cannot read the addresses that the server listens on")?;
        let wants_v6 = matches!(plan.asked, Some(IpAddr::V6(_)));
        let is_open = |v6: bool| {
            listening.iter().any(|address| match address.ip() {
                IpAddr::V4(ip) => !v6 && ip.is_unspecified(),
                // A dual-stack listener on [::] accepts IPv4, too.
                IpAddr::V6(ip) => ip.is_unspecified(),
            })
        };
        if is_open(wants_v6) {
            pair.enter_client()?;
            let ip = if wants_v6 { pair.server_addr_v6() } else { pair.server_addr_v4() };
            self.address = SocketAddr::new(ip, plan.port);
            self.path = match pair.path() {
                path if plan.path.is_some() => path.description(),
                _ => "veth between two network namespaces".into(),
            };
        } else if plan.path.is_some() {
            bail!(
                "the server '{}' listens only on loopback, which a wide-area path does not reach: let it listen on all \
                 addresses (0.0.0.0; its namespace is its own)",
                plan.argv[0]
            );
        } else {
            pair.enter_server()?;
            self.path = "loopback in the server's namespace".into();
            self.doubts.push(DoubtKind::SharedCpus.note(
                "the server listens only on loopback, so client and server share one network stack: the client pays \
                 for part of the server's receive work",
                "let it listen on all addresses (its namespace is its own), so that a veth pair connects them",
            ));
        }
        Ok(())
    }

    fn wait_until_it_accepts(&mut self, plan: &ServerPlan<'_>, stop: &Stop) -> Result<()> {
        let round_trip = self.path_plan().map_or(0, |path| path.full_round_trip_ns());
        let attempt = ACCEPTS_WITHIN + 2 * Duration::from_nanos(round_trip);
        let deadline = Instant::now() + plan.timeout + attempt;
        loop {
            let attempted = connecting(self.address, attempt);
            // Checks for signals and the end of the server meanwhile.
            let result = loop {
                match attempted.recv_timeout(Duration::from_millis(20)) {
                    Ok(result) => break result,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break Err(io::ErrorKind::Other.into()),
                }
                self.check_start(plan, stop)?;
            };
            match result {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= deadline => {
                    bail!(
                        "the server '{}' listens on port {} but does not accept connections: {error}",
                        plan.argv[0],
                        plan.port
                    )
                }
                Err(_) => {}
            }
            self.check_start(plan, stop)?;
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn check_start(&mut self, plan: &ServerPlan<'_>, stop: &Stop) -> Result<()> {
        if let Some(how) = self.end_reason() {
            bail!("the server '{}' {how}", plan.argv[0]);
        }
        if stop.is_set() {
            return Err(interrupted(STARTING));
        }
        Ok(())
    }

    /// Stops the server's process group, politely first, and removes the namespaces.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // With namespaces, the pair ends all remaining processes. Otherwise, end a daemon that listens on the port
            // if it is ours.
            let daemon = match (self.life.ended(), &self.pair) {
                (Some(_), None) => listener_pid(self.life.port, None).filter(|pid| is_descendant(*pid)),
                _ => None,
            };
            process::end(&mut child, daemon.as_slice());
        }
        if let Some(group) = self.group.take() {
            // The next run removes it if this fails.
            let _ = group.remove();
        }
        if let Some(pair) = self.pair.take() {
            // The next run removes it if this fails.
            let _ = pair.leave();
            let _ = pair.remove();
        }
        if let Some(guardian) = self.guardian.take() {
            guardian.dismiss();
        }
        reap_orphans();
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Connects once, in a separate thread within the same namespace.
fn connecting(address: SocketAddr, timeout: Duration) -> Receiver<io::Result<()>> {
    let (report, reported) = std::sync::mpsc::channel();
    std::thread::spawn(move || report.send(TcpStream::connect_timeout(&address, timeout).map(drop)));
    reported
}

/// Adopts daemons that the server leaves, so that they can be ended and reaped.
fn become_subreaper() {
    let _ = set_child_subreaper(Some(getpid()));
}

fn reap_orphans() {
    while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {}
}

/// Runs the command without namespaces: pinned, ended when straingauge dies, and in a new session, so that Ctrl-C
/// reaches only straingauge.
fn run_pinned(command: &mut Command, cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    let is_pinned = !cpus.is_empty();
    let prepare = move || -> io::Result<()> {
        let _ = setsid();
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if is_pinned {
            sched_setaffinity(None, &set)?;
        }
        Ok(())
    };
    // SAFETY: the closure runs between fork and exec; it makes only async-signal-safe calls and does not allocate.
    unsafe { command.pre_exec(prepare) };
}

fn refuse_taken_port(port: u16) -> Result<()> {
    let (command, pid) = match observe::server_on_port(port, None) {
        Ok(Some(taken)) => (taken.command, taken.pid),
        Err(ObserveError::NotStarted { manager, .. }) => ("a socket unit of systemd".into(), manager),
        _ => return Ok(()),
    };
    bail!("port {port} is already in use by {command} (process {pid}): stop it, or let the server use another port")
}

/// Ends TIME_WAIT sockets of an earlier server on this port. They keep a server without SO_REUSEADDR from starting, and
/// slow the next one down. Without the privilege, they remain.
fn end_time_wait(port: u16) {
    if let Ok(mut sockets) = observe::TimeWaitSockets::open(None, port) {
        let _ = sockets.end_all();
    }
}

fn listener_pid(port: u16, netns_pid: Option<u32>) -> Option<u32> {
    observe::server_on_port(port, netns_pid).ok().flatten().map(|server| server.pid)
}
