//! Measures the cost of watching for a server: CPU time per request with the watch in each mode, in turns, and the
//! cost of reading the connections compared with a scan. bench/observer-overhead runs it.
//!
//! usage: observer_overhead requests PORT PATH CONNECTIONS ROUNDS [close]
//!        observer_overhead readings CONNECTIONS

use observe::sock_diag::{DiagSocket, Scope};
use observe::watch::{WatchOptions, Watcher};
use record::time::monotonic_ns;
use record::watch::Mode;
use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A port below those that the bench's servers use.
const NOBODYS_PORT: u16 = 9;
const PIECES: usize = 5;
const PIECE_REQUESTS: usize = 320;

fn main() -> Outcome<()> {
    record::machine::raise_descriptor_limit();
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["requests", port, path, connections, rounds, rest @ ..] => {
            requests(port.parse()?, path, connections.parse()?, rounds.parse()?, rest == ["close"])
        }
        ["readings", connections] => readings(connections.parse()?),
        _ => {
            Err("usage: observer_overhead requests PORT PATH CONNECTIONS ROUNDS [close] | readings CONNECTIONS".into())
        }
    }
}

/// Prints one CSV line per round and variant: the lower quintile of the server's CPU nanoseconds per request.
fn requests(port: u16, path: &str, connections: usize, rounds: usize, closes: bool) -> Outcome<()> {
    let mut watcher = Watcher::start(WatchOptions { mode: Mode::Zero, splits: false, ..WatchOptions::of_port(port) })?;
    if let Some(error) = watcher.why_no_programs() {
        return Err(error.to_string().into());
    }
    // The kernel's call of a program that only checks the port, which is the minimum cost of a watch by reads.
    let elsewhere = WatchOptions { mode: Mode::Zero, splits: false, ..WatchOptions::of_port(NOBODYS_PORT) };
    let mut elsewhere = Watcher::start(elsewhere)?;
    let pids = watcher.pids();
    let close = if closes { "Connection: close\r\n" } else { "" };
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{close}\r\n");
    let mut open: Vec<TcpStream> = Vec::new();
    if !closes {
        for _ in 0..connections {
            open.push(connect(port)?);
        }
    }
    let length = response_bytes(port, &request)?;
    println!("round,arm,cpu_ns_per_request");
    let mut arms = [
        ("off", Mode::Zero),
        ("counts", Mode::Counts),
        ("away", Mode::Zero),
        ("exact", Mode::Exact),
        ("off2", Mode::Zero),
    ];
    for round in 0..rounds {
        arms.rotate_left(1);
        if round % 4 == 0 {
            arms.swap(0, 2);
        }
        for (name, mode) in arms {
            // Only one program per hook, because the kernel calls two differently.
            elsewhere.set_mode(Mode::Zero)?;
            watcher.set_mode(mode)?;
            if name == "away" {
                elsewhere.set_mode(Mode::Counts)?;
            }
            let mut pieces = Vec::new();
            for piece in 0..=PIECES {
                let before = cpu_ns(&pids)?;
                let mut buffer = vec![0; length];
                for _ in 0..PIECE_REQUESTS / connections.max(1) {
                    if closes {
                        for _ in 0..connections {
                            let mut stream = connect(port)?;
                            stream.write_all(request.as_bytes())?;
                            while stream.read(&mut buffer)? > 0 {}
                        }
                        continue;
                    }
                    for stream in &mut open {
                        stream.write_all(request.as_bytes())?;
                    }
                    for stream in &mut open {
                        stream.read_exact(&mut buffer)?;
                    }
                }
                // The first piece only warms up the caches after attaching.
                if piece > 0 {
                    let sent = PIECE_REQUESTS / connections.max(1) * connections;
                    pieces.push((cpu_ns(&pids)? - before) as f64 / sent as f64);
                }
            }
            pieces.sort_by(f64::total_cmp);
            println!("{round},{name},{:.1}", pieces[PIECES / 5]);
        }
    }
    Ok(())
}

fn connect(port: u16) -> Outcome<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Length of the whole response, on a connection that stays open or closes after the request.
fn response_bytes(port: u16, request: &str) -> Outcome<usize> {
    let mut stream = connect(port)?;
    stream.write_all(request.as_bytes())?;
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut piece)?;
        all.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&all);
        let Some(head) = text.find("\r\n\r\n").map(|end| end + 4) else {
            if count == 0 {
                return Err("the response has no end of its header".into());
            }
            continue;
        };
        let length = text[..head].lines().find_map(|line| line.strip_prefix("Content-Length: "));
        return Ok(head + length.ok_or("the response has no Content-Length")?.trim().parse::<usize>()?);
    }
}

fn cpu_ns(pids: &[u32]) -> Outcome<u64> {
    let mut sum = 0;
    for pid in pids {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a live timespec; the number is the clock of that process (clock_getcpuclockid(3)).
        if unsafe { libc::clock_gettime((!(*pid as i32) << 3) | 2, &mut time) } != 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        sum += time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64;
    }
    Ok(sum)
}

/// Prints the median cost of reading the connections' states, in nanoseconds, by method.
fn readings(connections: usize) -> Outcome<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let mut watcher = Watcher::start(WatchOptions::of_port(port))?;
    let mut held = Vec::new();
    for _ in 0..connections {
        let client = connect(port)?;
        held.push((client, listener.accept()?.0));
    }
    let mut diag = DiagSocket::connect()?;
    let established = watcher.states()[1];
    println!("connections,method,median_ns,established");
    let show = |method: &str, mut read: Box<dyn FnMut() -> Outcome<u64> + '_>| -> Outcome<()> {
        let mut costs = Vec::new();
        let mut seen = 0;
        for _ in 0..11 {
            let before = monotonic_ns();
            seen = read()?;
            costs.push(monotonic_ns() - before);
        }
        costs.sort_unstable();
        println!("{connections},{method},{},{seen}", costs[5]);
        Ok(())
    };
    // Measures a hundred, because one is too short for the clock.
    let mut hundred = || {
        let before = monotonic_ns();
        for _ in 0..100 {
            std::hint::black_box(watcher.states());
        }
        (monotonic_ns() - before) / 100
    };
    let mut costs: Vec<u64> = (0..11).map(|_| hundred()).collect();
    costs.sort_unstable();
    println!("{connections},transitions,{},{established}", costs[5]);
    show("sock_diag by port", Box::new(|| Ok(diag.read_port(port, Scope::AllStates)?.by_state[1])))?;
    show(
        "/proc/net/tcp",
        Box::new(|| {
            let text = std::fs::read_to_string("/proc/net/tcp")?;
            let wanted = format!(":{port:04X} ");
            Ok(text
                .lines()
                .filter(|line| line.get(..30).is_some_and(|start| start.contains(&wanted)) && line.contains(" 01 "))
                .count() as u64)
        }),
    )?;
    Ok(())
}
