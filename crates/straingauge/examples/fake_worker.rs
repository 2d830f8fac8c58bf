//! A worker that sends no load: it keeps the protocol's times and gives a recorded result. For the driver's own cost with many
//! workers (bench/fleet).
//!
//! usage: fake_worker RESULT-FILE [END-FILE]
//!
//! RESULT-FILE holds the result line of a real worker. Into END-FILE goes the instant at which the result left, in
//! nanoseconds of `CLOCK_MONOTONIC`.

use serde_json::{Value, json};
use std::io::{BufRead, Write};
use std::sync::mpsc::channel;
use std::time::Duration;

fn now_ns() -> u64 {
    // SAFETY: an all-zero timespec is valid, and clock_gettime writes only that.
    unsafe {
        let mut time: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

fn say(message: &Value) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{message}").and_then(|()| out.flush());
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let result = std::fs::read_to_string(arguments.next().expect("RESULT-FILE")).expect("a result that can be read");
    let end_file = arguments.next();
    say(&json!({ "type": "hello", "protocol": 2, "version": "fake", "host": "fake", "pid": std::process::id() }));
    let (tell, orders) = channel::<(u64, u64)>();
    std::thread::spawn(move || {
        // Requests begin, and end so much later.
        while let Ok((start_ns, length_ns)) = orders.recv() {
            let end_ns = start_ns + length_ns;
            let mut completed = 0;
            while now_ns() < end_ns {
                completed += 200;
                let rate = 1000.0;
                say(
                    &json!({ "type": "progress", "connected": 10, "completed": completed, "failed": 0, "throughput_per_sec": rate }),
                );
                std::thread::sleep(Duration::from_nanos((end_ns.saturating_sub(now_ns())).min(200_000_000)));
            }
            let mut out = std::io::stdout().lock();
            let _ = out.write_all(result.as_bytes()).and_then(|()| out.flush());
            if let Some(path) = &end_file {
                let _ = std::fs::write(path, now_ns().to_string());
            }
        }
    });
    let mut length_ns = 0;
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else { return };
        match message["type"].as_str() {
            Some("ping") => say(&json!({ "type": "pong", "sent_ns": message["sent_ns"], "clock_ns": now_ns() })),
            Some("plan") => {
                let span = |name: &str| message["plan"][name].as_u64().unwrap_or(0);
                length_ns = span("warmup_ns") + span("duration_ns");
                say(&json!({ "type": "ready" }));
            }
            Some("start") => {
                let _ = tell.send((message["at_ns"].as_u64().unwrap_or(0), length_ns));
            }
            _ => {}
        }
    }
}
