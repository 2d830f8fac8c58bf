//! The watch on Linux 6.1, which lacks the tracepoints that newer kernels count by. In the guest, this test is
//! server, client and watch.

use crate::client::{Count, keep_alive};
use crate::guest::print_verified;
use crate::rig::{counting, settle};
use observe::watch::{WatchOptions, Watcher};
use record::watch::{Counter, Mode};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;

/// Serves with a thread per connection; the path contains the size of the body.
fn serve(listener: TcpListener) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
            let mut line = String::new();
            let mut size = 0usize;
            while reader.read_line(&mut line).is_ok_and(|count| count > 0) {
                if let Some(path) = line.strip_prefix("GET /") {
                    size = path.split('k').next().and_then(|k| k.parse().ok()).unwrap_or(1) * 1000;
                } else if line == "\r\n" {
                    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n").into_bytes();
                    answer.resize(answer.len() + size, b'x');
                    if stream.write_all(&answer).is_err() {
                        return;
                    }
                }
                line.clear();
            }
        });
    }
}

/// Fails unless every request of a client is counted, and has phases if they were requested.
pub fn counts_every_request(mode: Mode) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || serve(listener));
    let mut watcher = Watcher::start(WatchOptions { mode, ..counting(port) }).expect("the unprivileged part works");
    assert!(watcher.why_no_programs().is_none(), "{:?}", watcher.why_no_programs());
    print_verified();
    let (open, count) = keep_alive(port, 4, 20, &["/1k.bin", "/10k.bin", "/100k.bin"]);
    settle(&mut watcher);
    let reading = watcher.read();
    let all = reading.all();
    let counted = Count { requests: all.requests, bytes_sent: all.bytes_in, bytes_received: all.bytes_out };
    assert_eq!(counted, count, "{mode:?}: with connections open");
    drop(open);
    settle(&mut watcher);
    let reading = watcher.read();
    assert_eq!(
        (reading.count(Counter::Accepted).unwrap(), reading.count(Counter::Closed).unwrap()),
        (4, 4),
        "{mode:?}"
    );
    let phased: u64 = reading.phases.iter().map(|class| class.requests).sum();
    println!(
        "guest: {mode:?}: {} requests, {phased} with phases, doubts {:?}",
        all.requests,
        watcher.doubts().iter().map(|doubt| doubt.what.as_str()).collect::<Vec<_>>()
    );
    if mode == Mode::Exact {
        assert_eq!(phased, count.requests, "phases of every request, by fentry");
    }
}
