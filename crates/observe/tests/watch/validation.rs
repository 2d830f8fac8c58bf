//! The paper's validations as tests: the watch compared with the client (Table 6 of Almeida, Almeida and Yates,
//! 1996), and its counters of the machine compared with /proc (their Table 9), for a server under load.
//! `bench/watch-validation` prints the same with rates.

use crate::client::{Count, keep_alive};
use crate::rig::{Server, counting, settle, watch};
use observe::watch::{Intervals, WatchOptions, Watcher};
use record::watch::system::SystemTotals;
use std::collections::BTreeMap;
use std::time::Duration;

/// The machine's counters in /proc, read without the watch's code.
fn by_proc() -> BTreeMap<&'static str, u64> {
    let mut now = BTreeMap::new();
    let stat = std::fs::read_to_string("/proc/stat").expect("/proc/stat");
    // SAFETY: no memory is passed.
    let tick_ms = 1000 / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
    for line in stat.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        match words[0] {
            "cpu" => {
                now.insert("cpu_user ms", (number(1) + number(2)) * tick_ms);
                now.insert("cpu_sys ms", number(3) * tick_ms);
                now.insert("cpu_softirq ms", number(7) * tick_ms);
            }
            "intr" => drop(now.insert("interrupts", number(1))),
            "ctxt" => drop(now.insert("context switches", number(1))),
            "processes" => drop(now.insert("processes started", number(1))),
            _ => {}
        }
    }
    for line in std::fs::read_to_string("/proc/vmstat").expect("/proc/vmstat").lines() {
        let Some((name, value)) = line.split_once(' ') else { continue };
        let value: u64 = value.trim().parse().unwrap_or(0);
        match name {
            "pgpgin" => drop(now.insert("paged in, bytes", value * 1024)),
            "pgpgout" => drop(now.insert("paged out, bytes", value * 1024)),
            "pgfault" => drop(now.insert("faults", value)),
            "pgmajfault" => drop(now.insert("major faults", value)),
            _ => {}
        }
    }
    for line in std::fs::read_to_string("/proc/softirqs").expect("/proc/softirqs").lines() {
        if let Some(counts) = line.trim().strip_prefix("NET_RX:") {
            let sum = counts.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).sum();
            now.insert("network soft interrupts", sum);
        }
    }
    now
}

fn by_watch(system: &SystemTotals) -> BTreeMap<&'static str, u64> {
    let (cpu, paging) = (system.cpu.expect("CPU time"), system.paging.expect("paging"));
    BTreeMap::from([
        ("cpu_user ms", cpu.user_ms),
        ("cpu_sys ms", cpu.system_ms),
        ("cpu_softirq ms", cpu.softirq_ms),
        ("interrupts", system.interrupts.expect("interrupts")),
        ("context switches", system.context_switches.expect("switches")),
        ("processes started", system.started.expect("started")),
        ("paged in, bytes", paging.in_bytes),
        ("paged out, bytes", paging.out_bytes),
        ("faults", paging.faults),
        ("major faults", paging.major_faults),
        ("network soft interrupts", system.softirqs_by_kind["NET_RX"]),
    ])
}

/// A reading of the watch between two of /proc; a counter that only grows is between them.
fn bracketed(watcher: &mut Watcher) -> BTreeMap<&'static str, u64> {
    let before = by_proc();
    let ours = by_watch(&watcher.read().system);
    let after = by_proc();
    for (name, value) in &ours {
        // The time of a mode is summed over CPUs before or after rounding to ticks, so it may differ by a tick per
        // CPU.
        let slack = if name.ends_with(" ms") { 10 * record::machine::online_cpus() as u64 } else { 0 };
        let (low, high) = (before[name].saturating_sub(slack), after[name] + slack);
        assert!((low..=high).contains(value), "{name}: {value} is not within {low}..{high}");
    }
    ours
}

#[test]
fn counters_of_the_machine_equal_those_in_proc() {
    let test = "counters_of_the_machine_equal_those_in_proc";
    let Some(server) = Server::start(test, "nginx") else { return };
    let options = WatchOptions { system_intervals: Intervals::all(Duration::ZERO), ..counting(server.port) };
    let Some(mut watcher) = watch(test, options) else { return };
    let proc_first = by_proc();
    let first = bracketed(&mut watcher);
    for _ in 0..5 {
        drop(keep_alive(server.port, 4, 100, &["/1k.bin", "/100k.bin"]));
        bracketed(&mut watcher);
    }
    let last = bracketed(&mut watcher);
    let proc_last = by_proc();
    println!("{:<26} {:>14} {:>14} {:>8}", "counter, growth", "/proc", "watch", "% apart");
    for (name, value) in &last {
        let (theirs, ours) = (proc_last[name] - proc_first[name], value - first[name]);
        let apart = (ours as f64 / theirs.max(1) as f64 - 1.0) * 100.0;
        println!("{name:<26} {theirs:>14} {ours:>14} {apart:>8.2}");
    }
    assert!(last["network soft interrupts"] > first["network soft interrupts"], "the load was seen at all");
}

#[test]
fn requests_and_bytes_equal_those_of_the_client() {
    let test = "requests_and_bytes_equal_those_of_the_client";
    println!("{:<10} {:<16} {:>14} {:>14} {:>8}", "server", "", "client", "watch", "% apart");
    for name in ["nginx", "apache"] {
        let Some(server) = Server::start(test, name) else { continue };
        let Some(mut watcher) = watch(test, counting(server.port)) else { return };
        let (open, theirs) = keep_alive(server.port, 6, 150, &["/1k.bin", "/10k.bin", "/100k.bin"]);
        drop(open);
        settle(&mut watcher);
        let reading = watcher.read();
        let all = reading.all();
        for (what, theirs, ours) in [
            ("requests", theirs.requests, all.requests),
            ("bytes received", theirs.bytes_sent, all.bytes_in),
            ("bytes sent", theirs.bytes_received, all.bytes_out),
        ] {
            let apart = (ours as f64 / theirs as f64 - 1.0) * 100.0;
            println!("{name:<10} {what:<16} {theirs:>14} {ours:>14} {apart:>8.3}");
        }
        let ours = Count { requests: all.requests, bytes_sent: all.bytes_in, bytes_received: all.bytes_out };
        assert_eq!(ours, theirs, "{name}: exactly, which is within the paper's 1 %");
        let of_server = reading.charged().unwrap().requests_ns
            + reading.charged().unwrap().connect_ns
            + reading.charged().unwrap().between_ns;
        assert!(
            of_server as f64 <= reading.cpu.unwrap().group_ns as f64 * 1.01,
            "{name}: more CPU time is charged than the scheduler knows: {:?}",
            reading.cpu
        );
    }
}
