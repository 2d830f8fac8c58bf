//! A server of the host under a load of straingauge.

use crate::network::{self, CLIENT, SERVER, SERVER_ADDRESS};
use crate::{Outcome, because, host, sys};
use model::job::Server;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Timeout in guest time for a server to listen.
const STARTS_WITHIN_NS: u64 = 20_000_000_000;
const LOOK_AGAIN_NS: u64 = 20_000_000;
/// Timeout in guest time for a load to open its connections.
const OPENS_WITHIN_NS: u64 = 20_000_000_000;
/// Time in the guest from the last packet of a load until the load counts as ended.
const ENDS_WITHIN_NS: u64 = 1_000_000_000;
/// Timeout in guest time for the answer by which a server is judged.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// Number of an answer's bytes that are read to recognise it.
const FIRST_BYTES: usize = 80;
/// Maximum characters of the server's output that are passed on.
const LAST_WORDS: usize = 300;
/// The message of a load without any answer.
const UNANSWERED: &str = "no request was answered";
/// Exit code of an interrupted load.
const INTERRUPTED: i32 = 130;
const SERVER_WORDS: &str = "/run/server.log";
/// The load's output in JSON, and its error output.
const LOAD_ACCOUNT: &str = "/run/load.json";
const LOAD_WORDS: &str = "/run/load.log";

pub fn run(job: &Server) -> Outcome<()> {
    let mut server = start(&job.command, SERVER, SERVER_WORDS, SERVER_WORDS)?;
    wait_until_it_listens(&mut server, job.port)?;
    if !job.load.iter().any(|word| word.starts_with("https://")) {
        network::within(CLIENT, || check_it_answers_http(job.port))?;
    }
    let before = network::within(SERVER, network::accepted)?;
    let mut load = start(&job.load, CLIENT, LOAD_ACCOUNT, LOAD_WORDS)?;
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
        // A load that has ended within the count sends only the ends of its connections, and may still be computing
        // its results.
        let end = sys::now_ns() + ENDS_WITHIN_NS;
        let of_closing = 2 * job.opened;
        while network::packets()?.1 <= after.1 + of_closing && sys::now_ns() < end {
            sys::sleep_until(sys::now_ns() + LOOK_AGAIN_NS);
            check_it_goes_on(&mut load)?;
        }
        host::say(&format!("received {received}\nsent {sent}\nwindow_ns {elapsed}\n"));
        Ok(())
    });
    if let Ok(Some(status)) = server.try_wait() {
        return Err(format!("the server ended during the load ({status}): {}", last_words(SERVER_WORDS)));
    }
    outcome?;
    // It prints its counts so far.
    sys::interrupt(load.id());
    let ended = load.wait().map_err(because("the load"))?;
    let said = std::fs::read_to_string(LOAD_ACCOUNT).unwrap_or_default();
    if !ended.success() && ended.code() != Some(INTERRUPTED) {
        let why = last_sentence(LOAD_WORDS);
        let doubt = if why.starts_with(UNANSWERED) { ": does it speak HTTP?" } else { "" };
        return Err(format!("the load failed in the guest: {why}{doubt}"));
    }
    host::show_text("load", &said);
    let _ = server.kill();
    Ok(())
}

/// `out` and `err` may be the same file.
fn start(command: &[String], namespace: &str, out: &str, err: &str) -> Outcome<Child> {
    let (program, arguments) = command.split_first().ok_or("the job names no program")?;
    let is_one = out == err;
    let out = File::create(out).map_err(because(out))?;
    let err = if is_one { out.try_clone().map_err(because(err))? } else { File::create(err).map_err(because(err))? };
    let namespace = namespace.to_string();
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").current_dir("/");
    command.stdin(Stdio::null()).stdout(out).stderr(err);
    // SAFETY: the guest has one thread at this time, so the child may do anything before it becomes the program.
    unsafe {
        command.pre_exec(move || {
            // Announces the end that the work belongs to before the next system call.
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
        // A server that went into the background has ended successfully, and may still listen.
        let ended = server.try_wait().map_err(because("the server"))?;
        if let Some(status) = ended.filter(|status| !status.success()) {
            return Err(format!("the server did not start in the guest ({status}): {}", last_words(SERVER_WORDS)));
        }
        if sys::now_ns() > end {
            let places = network::within(SERVER, network::listening).unwrap_or_default();
            let instead = if places.is_empty() {
                "it listens on no port".to_string()
            } else {
                format!("it listens on {} (name another port with --port)", places.join(", "))
            };
            let words = last_words(SERVER_WORDS);
            return Err(format!(
                "the server does not listen on {SERVER_ADDRESS}:{port} in the guest after 20 s; {instead}; its last \
                 output: {words}"
            ));
        }
        sys::sleep_until(sys::now_ns() + LOOK_AGAIN_NS);
    }
}

/// Sends one request, so that a server of another protocol is reported before the load, which it would answer with
/// long nonsense. A server that does not answer at all is left to the load.
fn check_it_answers_http(port: u16) -> Outcome<()> {
    let Ok(mut stream) = TcpStream::connect((SERVER_ADDRESS, port)) else { return Ok(()) };
    let _ = stream.set_read_timeout(Some(ANSWERS_WITHIN));
    let request = format!("GET / HTTP/1.0\r\nHost: {SERVER_ADDRESS}:{port}\r\n\r\n");
    if stream.write_all(request.as_bytes()).is_err() {
        return Ok(());
    }
    let mut answer = Vec::new();
    let mut part = [0; FIRST_BYTES];
    // One line is enough, and the beginning suffices for HTTP.
    let is_enough =
        |answer: &[u8]| answer.starts_with(b"HTTP/") || answer.contains(&b'\n') || answer.len() >= FIRST_BYTES;
    while !is_enough(&answer) {
        match stream.read(&mut part) {
            Ok(count @ 1..) => answer.extend(&part[..count]),
            _ => break,
        }
    }
    let begin = &answer[..answer.len().min(5)];
    if begin == &b"HTTP/"[..begin.len()] {
        return Ok(());
    }
    let line = answer.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(&line[..line.len().min(FIRST_BYTES)]);
    Err(format!(
        "the server on port {port} does not answer HTTP: it answered a request with '{}'",
        line.trim().escape_debug()
    ))
}

/// Opening connections is not part of the warm-up.
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

/// The load must last until the end of the count.
fn check_it_goes_on(load: &mut Child) -> Outcome<()> {
    let Some(status) = load.try_wait().map_err(because("the load"))? else { return Ok(()) };
    let why = if status.success() { "its requests have ended".to_string() } else { last_sentence(LOAD_WORDS) };
    Err(format!(
        "the load ended in the guest before the count did: {why} (a log must last longer than --warmup and --duration \
         together{})",
        if why.starts_with(UNANSWERED) { "; any other load needs a server that speaks HTTP" } else { "" }
    ))
}

/// The last output of the load, without the program's name.
fn last_sentence(log: &str) -> String {
    let words = last_words(log);
    let last = words.rsplit("; ").next().unwrap_or_default();
    last.strip_prefix("straingauge: ").unwrap_or(last).to_string()
}

fn last_words(log: &str) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut kept: Vec<String> = Vec::new();
    let mut room = LAST_WORDS;
    for line in text.lines().rev().map(str::trim).filter(|line| !line.is_empty()) {
        // Always the last line, and earlier lines while there is room.
        if !kept.is_empty() && line.len() > room {
            break;
        }
        kept.push(line.chars().take(LAST_WORDS).collect());
        room = room.saturating_sub(line.len());
    }
    kept.reverse();
    if kept.is_empty() { "it printed nothing".into() } else { kept.join("; ") }
}
