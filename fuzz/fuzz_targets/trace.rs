//! Log readers and the code that uses them. No bytes may make them panic or hang, or return a request that cannot be
//! sent.
//!
//! The first byte chooses the format; with `t` the first line is the format string itself.

#![no_main]

use std::io::Cursor;
use straingauge_fuzz::fuzz_target;
use workload::files::{Tree, TreeLimits};
use workload::replay::{Plan, PlanStep, ReplayOptions};
use workload::trace::{LogFormat, TraceReader};

const FORMATS: &[&str] = &[
    "auto",
    "combined",
    "vhost",
    "w3c",
    "$remote_addr [$time_local] \"$request\" $status $body_bytes_sent",
    "{\"t\":\"$time_iso8601\",\"c\":\"$remote_addr\",\"u\":\"$request_uri\"}",
    "$msec $remote_addr $uri $args $bytes_sent",
    "%{%Y-%m-%d %T}t.%{usec_frac}t %h %m %U%q %b \"%{x}i\"",
];

fuzz_target!(|data: &[u8]| {
    let Some((choice, mut log)) = data.split_first() else { return };
    let format: Result<LogFormat, _> = if *choice == b't' {
        let end = log.iter().position(|byte| *byte == b'\n').unwrap_or(log.len());
        let (text, rest) = log.split_at(end);
        log = rest.get(1..).unwrap_or_default();
        String::from_utf8_lossy(text).parse()
    } else {
        FORMATS[usize::from(*choice) % FORMATS.len()].parse()
    };
    let Ok(format) = format else { return };
    let open = || TraceReader::from_reader("fuzz".into(), Box::new(Cursor::new(log.to_vec())), &format);
    let Ok(mut reader) = open() else { return };
    let mut entries = 0;
    while let Ok(Some(entry)) = reader.next_entry() {
        entries += 1;
        assert!(!entry.client.is_empty());
        assert!(!entry.target.is_empty() && entry.target.iter().all(|byte| *byte > b' ' && *byte != 0x7f));
        assert!((1..=32).contains(&entry.method.len()));
        assert!(entry.resolution_ns >= 1);
    }
    assert!(reader.counts().rejected.total() + entries <= reader.counts().lines.max(log.len() as u64 + 1));
    let options = ReplayOptions { held_limit: 16, clients_limit: 4, ..Default::default() };
    let (mut planned, mut last_ns) = (0, 0);
    for step in Plan::new(open().expect("opened before"), options) {
        match step {
            Ok(PlanStep::Request(request)) => {
                assert!(request.intended_ns >= last_ns);
                last_ns = request.intended_ns;
                planned += 1;
            }
            Ok(PlanStep::Close { .. }) => {}
            Err(_) => break,
        }
    }
    assert_eq!(planned, entries);
    let _ = Tree::of_trace(&mut open().expect("opened before"), &TreeLimits::default()).map(|tree| {
        for entry in &tree.entries {
            assert!(entry.file.split('/').all(|part| !matches!(part, "" | "." | "..")));
        }
    });
});
