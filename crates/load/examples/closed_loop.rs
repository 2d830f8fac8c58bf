//! The smallest use of the engine: `closed_loop ADDRESS CONNECTIONS SECONDS [REQUESTS_PER_CONNECTION] [RATE] [CPU]`.
//! The words `redis=PIPELINE`, `memcached=PIPELINE` and `http2=STREAMS` choose another protocol than HTTP/1.1.

use load::{LoadEvents, check, run};
use record::protocol::{Http2Plan, MemcachedPlan, Protocol, RedisPlan};
use record::{Arrival, LoadPlan, Pace};
use std::sync::atomic::AtomicBool;

struct Silent;
impl LoadEvents for Silent {}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize| arguments.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    let address = arguments.first().and_then(|text| text.parse().ok()).expect("an address such as 127.0.0.1:8080");
    let pace = match number(4) {
        0.0 => Pace::Closed,
        rate_per_sec => Pace::Open { rate_per_sec, arrival: Arrival::Constant },
    };
    let plan = LoadPlan {
        pace,
        connections: number(1) as u64,
        requests_per_connection: number(3) as u64,
        cpus: arguments.get(5).map(|_| number(5) as usize).into_iter().collect(),
        duration_ns: (number(2) * 1e9) as u64,
        timeout_ns: 10_000_000_000,
        precise: arguments.iter().any(|text| text == "precise"),
        ..LoadPlan::simple(address)
    };
    // Pipelined GET commands of Redis.
    let plan = match arguments.iter().find_map(|text| text.strip_prefix("redis=")?.parse().ok()) {
        None => plan,
        Some(pipeline) => {
            let mut redis = RedisPlan { pipeline, ..RedisPlan::default() };
            redis.keyspace.read_ratio = 1.0;
            LoadPlan { protocol: Protocol::Redis(redis), targets: Vec::new(), ..plan }
        }
    };
    // Nine gets of a key for each set of 100 bytes.
    let plan = match arguments.iter().find_map(|text| text.strip_prefix("memcached=")?.parse().ok()) {
        None => plan,
        Some(pipeline) => {
            let memcached = MemcachedPlan { pipeline, keys_per_get: 1, ..MemcachedPlan::default() };
            LoadPlan { protocol: Protocol::Memcached(memcached), targets: Vec::new(), ..plan }
        }
    };
    let plan = match arguments.iter().find_map(|text| text.strip_prefix("http2=")?.parse().ok()) {
        None => plan,
        Some(streams) => LoadPlan { protocol: Protocol::Http2(Http2Plan { streams }), ..plan },
    };
    if let Err(error) = check(&plan) {
        eprintln!("{error}");
        std::process::exit(2);
    }
    let result = run(&plan, &AtomicBool::new(false), &mut Silent).unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(1);
    });
    println!("{:?}", result.counts.outcomes);
    for (name, figure) in &result.figures(&plan).0 {
        println!("{name} = {:?} {}", figure.value, figure.unit);
    }
    println!("{:?}", result.engine);
    println!("{:?} {:?}", result.first_errors, result.counts.status_counts);
    let times = &result.counts.times;
    if let Some(ms) = arguments.iter().find_map(|text| text.strip_prefix("beyond=")?.parse::<u64>().ok()) {
        for (name, times) in [("response", &times.response), ("sampled", &times.sampled), ("reap", &times.reap)] {
            let (all, below) = (times.len(), times.count_at_most(ms * 1_000_000));
            let middle = times.quantile_ns((below + all) as f64 / 2.0 / all.max(1) as f64).unwrap_or(0);
            println!("{name} above {ms} ms: {} of {all}, median {middle} ns", all - below);
        }
    }
    for doubt in &result.doubts {
        println!("{:?}: {}; {}", doubt.kind, doubt.what, doubt.remedy);
    }
    if arguments.iter().any(|text| text == "series") {
        print!("{}", result.series_csv);
    }
}
