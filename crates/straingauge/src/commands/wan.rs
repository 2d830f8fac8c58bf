//! `straingauge wan`: runs any program over an emulated wide-area path.

use crate::cli::{PathOptions, WanArgs};
use crate::failure::{interrupted, refuse_if};
use crate::plan;
use crate::process;
use crate::server::guardian::{self, Guardian};
use crate::signals::heeded;
use anyhow::{Context, Result, bail};
use observe::proc_text::parse_tcp_line;
use record::PathPlan;
use record::units::{format_nanos, format_si};
use rustix::process::{Pid, kill_process};
use serde::Serialize;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wan::{NamespacePair, PairPlan, PathTally, SelfTest, WanError};

/// States in /proc/net/{tcp,udp} (include/net/tcp_states.h).
const LISTENS: u8 = 10;
const IS_UNCONNECTED: u8 = 7;

pub fn run(args: WanArgs) -> Result<ExitCode> {
    refuse_if(
        args.command.is_empty(),
        "wan needs a command: straingauge wan --delay 20ms -- COMMAND (for a shell: -- \"$SHELL\")",
    )?;
    let asked = PathOptions { path_by: args.path_by, quickack: args.quickack, ..args.path.clone() };
    let path = plan::path_plan(&asked, args.seed.unwrap_or(crate::defaults::SEED))?.unwrap_or_default();
    crate::leftovers::clean_up().iter().for_each(|line| say(&args, line));
    // Signals wait until they are taken, also in threads made later.
    let signals = Signals::hold();
    let pair = NamespacePair::create(&PairPlan { path, has_known_addresses: true, ..PairPlan::default() })?;
    for note in pair.notes() {
        say(&args, &format!("note: {note}"));
    }
    say(&args, &format!("path: {}", pair.path().description()));
    let is_ended = AtomicBool::new(false);
    let should_stop = || {
        let is_now = signals.next_that_ends(Duration::ZERO).is_some();
        is_ended.fetch_or(is_now, Ordering::Relaxed) || is_now
    };
    let tested = match pair.path().shapes_packets().then(|| pair.self_test(&should_stop)).transpose() {
        Err(WanError::Stopped) => return Err(interrupted("the path was built")),
        tested => tested?,
    };
    if let Some(tested) = &tested {
        say(&args, &format!("self-test: {}", tested.summary()));
        for doubt in tested.doubts() {
            eprintln!("straingauge: doubt: {}; {}", doubt.what, doubt.remedy);
        }
    }
    let mut server = args.server.as_deref().map(|line| start_server(&pair, line, &args, &signals)).transpose()?;
    let mut command = Command::new(&args.command[0]);
    command.args(&args.command[1..]);
    let mark = guardian::next_mark(guardian::COMMAND_ON_PATH);
    prepare(&pair, &mark, &mut command);
    pair.run_client(&mut command)?;
    let meter = pair.path_meter();
    meter.take();
    // COMMAND was not started yet.
    if should_stop() {
        server.into_iter().for_each(OtherEndCommand::end);
        return Err(interrupted("the path was built"));
    }
    let mut child =
        command.spawn().map_err(|error| process::cannot_start(&format!("'{}'", args.command[0]), &error))?;
    // Without a guardian, the next run cleans up after a kill.
    let guardian = Guardian::over(child.id(), &mark).ok();
    let status = wait_for(&mut child, &signals, &mut server)?;
    server.into_iter().for_each(OtherEndCommand::end);
    close(&args, pair.path(), tested.as_ref(), &meter.take())?;
    // The next run tries again; the exit code is COMMAND's.
    if let Err(error) = pair.remove() {
        eprintln!("straingauge: {error}");
    }
    if let Some(guardian) = guardian {
        guardian.dismiss();
    }
    Ok(exit_code(status))
}

fn say(args: &WanArgs, line: &str) {
    if !args.quiet && !args.json {
        eprintln!("straingauge: {line}");
    }
}

fn prepare(pair: &NamespacePair, mark: &str, command: &mut Command) {
    command.env(record::leftovers::MARK, mark);
    command.env("STRAINGAUGE_SERVER", pair.server_addr_v4().to_string());
    command.env("STRAINGAUGE_SERVER_V6", pair.server_addr_v6().to_string());
    // SAFETY: between fork and exec the closure makes one system call, on its own memory.
    unsafe { command.pre_exec(Signals::release) };
}

struct OtherEndCommand<'a> {
    line: &'a str,
    child: Child,
    has_ended: bool,
    guardian: Option<Guardian>,
}

impl OtherEndCommand<'_> {
    fn report_end(&mut self) {
        let Some(status) = process::ended(self.child.id()) else { return };
        // A server that exits with code 0 has done its work, or left a daemon.
        if !self.has_ended && !status.success() {
            eprintln!("straingauge: the server '{}' ended ({status}) while COMMAND ran", self.line);
        }
        self.has_ended = true;
    }

    fn end(mut self) {
        process::end(&mut self.child, &[]);
        if let Some(guardian) = self.guardian {
            guardian.dismiss();
        }
    }
}

fn start_server<'a>(
    pair: &NamespacePair,
    line: &'a str,
    args: &WanArgs,
    signals: &Signals,
) -> Result<OtherEndCommand<'a>> {
    let timeout = args.server_timeout.map_or(crate::defaults::SERVER_TIMEOUT, |time| time.0);
    let mut command = Command::new("sh");
    // Standard output belongs to COMMAND.
    let output = io::stderr().as_fd().try_clone_to_owned().context("cannot duplicate standard error")?;
    command.args(["-c", line]).stdin(Stdio::null()).stdout(output);
    let mark = guardian::next_mark(guardian::SERVER);
    prepare(pair, &mark, &mut command);
    pair.run_server(&mut command)?;
    let child = command.spawn().map_err(|error| process::cannot_start("'sh'", &error))?;
    let guardian = Guardian::over(child.id(), &mark).ok();
    let server = OtherEndCommand { line, child, has_ended: false, guardian };
    let deadline = Instant::now() + timeout;
    loop {
        let listening = pair.server_namespace().run_inside(|| Ok(listening_addresses()))?;
        if listening.iter().any(|address| !address.ip().to_canonical().is_loopback()) {
            return Ok(server);
        }
        // A process that exits with code 0 may have started a daemon that will listen soon.
        if let Some(status) = process::ended(server.child.id()).filter(|status| !status.success()) {
            bail!("the server '{line}' ended ({status}) before it listened on any port");
        }
        if Instant::now() >= deadline {
            server.end();
            let seconds = timeout.as_secs_f64();
            if listening.is_empty() {
                bail!("the server '{line}' does not listen on any port after {seconds} s (longer: --server-timeout)");
            }
            let addresses: Vec<String> = listening.iter().map(SocketAddr::to_string).collect();
            bail!(
                "the server '{line}' listens only on loopback ({}) after {seconds} s, where COMMAND cannot reach it: \
                 let it listen on all addresses (0.0.0.0; its namespace is its own)",
                addresses.join(", ")
            );
        }
        if signals.next_that_ends(Duration::from_millis(10)).is_some() {
            server.end();
            return Err(interrupted("the server was starting"));
        }
    }
}

/// Addresses of listening TCP sockets and unconnected UDP sockets in the calling thread's network namespace.
fn listening_addresses() -> Vec<SocketAddr> {
    let of = |name: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
    ["tcp", "tcp6", "udp", "udp6"].into_iter().flat_map(|name| listening_in(&of(name))).collect()
}

pub fn listening_in(table: &str) -> Vec<SocketAddr> {
    let sockets = table.lines().filter_map(|line| parse_tcp_line(line.as_bytes()));
    sockets.filter(|socket| matches!(socket.state, LISTENS | IS_UNCONNECTED)).map(|socket| socket.local).collect()
}

/// Waits for COMMAND. Ctrl-C on a terminal reaches COMMAND directly; other signals are passed on.
fn wait_for(child: &mut Child, signals: &Signals, server: &mut Option<OtherEndCommand<'_>>) -> Result<ExitStatus> {
    loop {
        let ended = child.try_wait()?;
        server.iter_mut().for_each(OtherEndCommand::report_end);
        if let Some(status) = ended {
            return Ok(status);
        }
        let signal = signals.next_that_ends(Duration::from_secs(1));
        if let Some(signal) = signal.filter(|signal| !signal.is_from_terminal) {
            // The child has not been waited for, so its number is still its own.
            if let Some(number) = rustix::process::Signal::from_named_raw(signal.number) {
                let _ = kill_process(Pid::from_child(child), number);
            }
        }
    }
}

/// The output of `--json`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Crossed<'a> {
    /// The path as it was made.
    path: &'a PathPlan,
    /// Whether the path delays and limits as requested; `null` without the test.
    self_test: Option<Tested>,
    /// Figures of the packets that crossed the path.
    figures: record::Figures,
    /// Reasons to doubt the figures.
    doubts: Vec<record::Doubt>,
}

/// The self-test of a path.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Tested {
    round_trip_us: Option<f64>,
    asked_round_trip_us: f64,
    bits_per_sec: Option<f64>,
    asked_bits_per_sec: u64,
}

fn close(args: &WanArgs, path: &PathPlan, tested: Option<&SelfTest>, tally: &PathTally) -> Result<()> {
    let doubts: Vec<_> = tested.map(SelfTest::doubts).into_iter().flatten().chain(tally.doubts()).collect();
    if args.json {
        let self_test = tested.map(|tested| Tested {
            round_trip_us: tested.round_trip_ns().map(|nanos| nanos as f64 / 1e3),
            asked_round_trip_us: path.round_trip_ns(84) / 1e3,
            bits_per_sec: tested.bits_per_sec,
            asked_bits_per_sec: path.bandwidth_bits_per_sec,
        });
        let crossed = Crossed { path, self_test, figures: tally.figures(), doubts };
        eprintln!("{}", serde_json::to_value(&crossed)?);
        return Ok(());
    }
    if path.shapes_packets() {
        say(args, &summary(tally));
    }
    for doubt in tally.doubts() {
        eprintln!("straingauge: doubt: {}; {}", doubt.what, doubt.remedy);
    }
    Ok(())
}

fn summary(tally: &PathTally) -> String {
    let mut words = format!("crossed: {} packets", format_si(tally.packets as f64));
    match tally.lost {
        Some(lost) => words.push_str(&format!(", {lost} lost, {} dropped at a full queue", tally.dropped)),
        None => words.push_str(&format!(", {} lost or dropped", tally.dropped)),
    }
    let late = |quantile| tally.lateness.as_ref().and_then(|late| late.quantile_ns(quantile));
    if let (Some(p50), Some(p99), Some(max)) = (late(0.5), late(0.99), late(1.0)) {
        let [p50, p99, max] = [p50, p99, max].map(|nanos| format_nanos(nanos as f64));
        words.push_str(&format!("; delivered late by p50 {p50}, p99 {p99}, at most {max}"));
    }
    words
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1))
}

struct Signals {
    set: libc::sigset_t,
}

struct Signal {
    number: libc::c_int,
    is_from_terminal: bool,
}

impl Signals {
    /// Blocks the signals that end a program, and SIGCHLD, in this thread and its later children.
    fn hold() -> Self {
        // SAFETY: an all-zero set is overwritten by sigemptyset; the calls take live sets, or null for "not wanted".
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in heeded(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT]).chain([libc::SIGCHLD]) {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Signals { set }
        }
    }

    fn release() -> io::Result<()> {
        // SAFETY: as in `hold`.
        unsafe {
            let mut none: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            match libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()) {
                0 => Ok(()),
                code => Err(io::Error::from_raw_os_error(code)),
            }
        }
    }

    /// The next signal that ends a program, if one comes within the time. SIGCHLD ends the wait.
    fn next_that_ends(&self, within: Duration) -> Option<Signal> {
        let timeout =
            libc::timespec { tv_sec: within.as_secs() as libc::time_t, tv_nsec: within.subsec_nanos() as libc::c_long };
        // SAFETY: `siginfo_t` is plain data; set, info and timeout live through the call.
        let (number, code) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (libc::sigtimedwait(&self.set, &mut info, &timeout), info.si_code)
        };
        (number > 0 && number != libc::SIGCHLD).then_some(Signal { number, is_from_terminal: code == libc::SI_KERNEL })
    }
}
