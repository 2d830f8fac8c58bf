//! A server of the host's under a load of straingauge's own.

use crate::job::Server;
use crate::network::{self, CLIENT, SERVER, SERVER_ADDRESS};
use crate::{Outcome, because, host, sys};
use std::fs::File;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A server that does not listen after this time of the guest's does not start.
const STARTS_WITHIN_NS: u64 = 20_000_000_000;
const LOOK_AGAIN_NS: u64 = 20_000_000;
/// A load that has not opened its connections after this time of the guest's will not.
const OPENS_WITHIN_NS: u64 = 20_000_000_000;
/// Words of the server that are passed on.
const LAST_WORDS: usize = 400;

pub fn run(job: &Server) -> Outcome<()> {
    let mut server = start(&job.command, SERVER, "/run/server.log")?;
    wait_until_it_listens(&mut server, job.port)?;
    let before = network::within(SERVER, network::accepted)?;
    let mut load = start(&job.load, CLIENT, "/run/load.log")?;
    let outcome = network::within(SERVER, || {
        wait_until_it_opened(&mut load, before, job.opened)?;
        sys::sleep_until(sys::now_ns() + job.warmup_ms * 1_000_000);
        let before = network::packets()?;
        let began = sys::now_ns();
        sys::mark::<2>();
        sys::sleep_until(began + job.window_ms * 1_000_000);
        sys::mark::<3>();
        let elapsed = sys::now_ns() - began;
        let after = network::packets()?;
        check_it_goes_on(&mut load)?;
        let (received, sent) = (after.0 - before.0, after.1 - before.1);
        host::say(&format!("received {received}\nsent {sent}\nwindow_ns {elapsed}\n"));
        Ok(())
    });
    if let Ok(Some(status)) = server.try_wait() {
        return Err(format!("the server ended during the load ({status}): {}", last_words("/run/server.log")));
    }
    outcome?;
    let ended = load.wait().map_err(because("the load"))?;
    let said = std::fs::read_to_string("/run/load.log").unwrap_or_default();
    if !ended.success() {
        return Err(format!("the load failed in the guest ({ended}): {}", last_words("/run/load.log")));
    }
    host::show_text("load", &said);
    let _ = server.kill();
    Ok(())
}

fn start(command: &[String], namespace: &str, log: &str) -> Outcome<Child> {
    let (program, arguments) = command.split_first().ok_or("the job names no program")?;
    let out = File::create(log).map_err(because(log))?;
    let err = out.try_clone().map_err(because(log))?;
    let namespace = namespace.to_string();
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").current_dir("/");
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    // SAFETY: the guest has one thread at this time, so the child may do as it likes before it becomes the program.
    unsafe {
        command.pre_exec(move || {
            // Says whose work it is before the next call.
            if namespace == CLIENT {
                sys::mark::<5>()
            } else {
                sys::mark::<4>()
            }
            let enter = || sys::enter_namespace(&namespace);
            enter().map_err(std::io::Error::other)
        });
    }
    command.spawn().map_err(because(format!("{program} cannot be started in the guest")))
}

fn wait_until_it_listens(server: &mut Child, port: u16) -> Outcome<()> {
    let end = sys::now_ns() + STARTS_WITHIN_NS;
    loop {
        let is_there = network::within(CLIENT, || Ok(TcpStream::connect((SERVER_ADDRESS, port)).is_ok()))?;
        if is_there {
            return Ok(());
        }
        // A server that went into the background has ended well; it may be listening yet.
        let ended = server.try_wait().map_err(because("the server"))?;
        if let Some(status) = ended.filter(|status| !status.success()) {
            return Err(format!("the server did not start in the guest ({status}): {}", last_words("/run/server.log")));
        }
        if sys::now_ns() > end {
            let words = last_words("/run/server.log");
            return Err(format!("the server does not listen on port {port} in the guest after 20 s: {words}"));
        }
        sys::sleep_until(sys::now_ns() + LOOK_AGAIN_NS);
    }
}

/// Opening connections is no part of the warm-up.
fn wait_until_it_opened(load: &mut Child, before: u64, wanted: u64) -> Outcome<()> {
    let end = sys::now_ns() + OPENS_WITHIN_NS;
    loop {
        let opened = network::accepted()?.saturating_sub(before);
        if opened >= wanted {
            return Ok(());
        }
        check_it_goes_on(load)?;
        if sys::now_ns() > end {
            return Err(format!("the load has opened {opened} of {wanted} connections in the guest after 20 s"));
        }
        sys::sleep_until(sys::now_ns() + LOOK_AGAIN_NS);
    }
}

/// What is counted must be under load to its end.
fn check_it_goes_on(load: &mut Child) -> Outcome<()> {
    let Some(status) = load.try_wait().map_err(because("the load"))? else { return Ok(()) };
    let words = last_words("/run/load.log");
    let last = words.rsplit("; ").next().unwrap_or_default();
    let why = if status.success() { "what it was to send has ended" } else { last };
    Err(format!(
        "the load ended in the guest before the count did: {why} (a log must last longer than --warmup and --duration together)"
    ))
}

fn last_words(log: &str) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let from = text.len().saturating_sub(LAST_WORDS);
    let words = String::from_utf8_lossy(&text[from..]).trim().replace('\n', "; ");
    if words.is_empty() { "it said nothing".into() } else { words }
}
