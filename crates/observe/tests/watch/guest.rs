//! A guest with a stock Debian kernel, Linux 6.1. It lacks the tracepoints that newer kernels count by, and permits
//! hooks in its functions, which the exact profile needs. One boot serves both.

use crate::boot::{DONE, Guest, INSIDE, LONG, run};
use crate::{account, exact, older_kernel, slow_places};
use libbpf_rs::query::ProgInfoIter;
use record::watch::Mode;
use std::collections::BTreeMap;
use std::panic::{UnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

/// Instructions that the verifier processed, by kernel and program. The next kernel may refuse a program close to the
/// verifier's limit of a million. UPDATE_EXPECT=1 writes the file.
const VERIFIED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/watch/verified_instructions.txt");
/// A larger growth fails.
const GROWTH: f64 = 1.25;

#[test]
fn a_stock_kernel_is_watched_and_profiled_exactly_in_a_guest() {
    let said = run(&Guest {
        caller: "a_stock_kernel_is_watched_and_profiled_exactly_in_a_guest",
        inside: "guest::inside",
        // For listing the listening sockets.
        modules: &["net/ipv4/inet_diag.ko", "net/ipv4/tcp_diag.ko"],
        // Eight nanoseconds per instruction: shares of time are shares of instructions, however busy this machine is.
        instruction_shift: 3,
        // One of the CPUs is offline, as in machines that can be extended.
        parameters: "tsc=reliable clocksource=tsc no_timer_check possible_cpus=2",
        prepare: "busybox ip link set lo up",
        memory_mib: 768,
        limit: Duration::from_secs(420),
    });
    let kept = std::fs::read_to_string(VERIFIED).unwrap_or_default();
    let of = |text: &str| -> Option<(String, u64)> {
        let (name, count) = text.rsplit_once(' ')?;
        Some((name.to_string(), count.parse().ok()?))
    };
    let mut counts: BTreeMap<String, u64> = kept.lines().filter_map(of).collect();
    // Programs of several objects have the same name; the longest one counts.
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    for (name, count) in said.iter().filter_map(|line| of(line.strip_prefix("guest: verified: ")?)) {
        let most = found.entry(name).or_default();
        *most = count.max(*most);
    }
    assert!(said.is_empty() || !found.is_empty(), "the verifier's counts");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        counts.extend(found);
        let lines: String = counts.iter().map(|(name, count)| format!("{name} {count}\n")).collect();
        return std::fs::write(Path::new(VERIFIED), lines).expect("a file of the tests");
    }
    for (name, count) in found {
        let before =
            counts.get(&name).unwrap_or_else(|| panic!("no count of '{name}' is kept: UPDATE_EXPECT=1 keeps it"));
        assert!(
            count as f64 <= GROWTH * *before as f64,
            "the verifier processes {count} instructions of '{name}', {before} before"
        );
    }
}

/// Prints the verifier's work for the currently loaded programs.
pub fn print_verified() {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("/proc is mounted");
    let series = release.split(['.', '-']).take(2).collect::<Vec<_>>().join(".");
    let series = if cfg!(target_arch = "x86_64") { series } else { format!("{series}-{}", std::env::consts::ARCH) };
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for program in ProgInfoIter::default() {
        // Hooks of the exact profile are numbered copies.
        let name = program.name.to_string_lossy();
        let name = name.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_');
        let most = counts.entry(name.to_string()).or_default();
        *most = program.verified_insns.max(*most);
    }
    // Kernels before 5.16 do not report the number.
    for (name, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        println!("guest: verified: {series} {name} {count}");
    }
}

/// Checks a claim about the guest's kernel; returns whether it holds.
fn holds(claim: &str, check: impl FnOnce() + UnwindSafe) -> bool {
    let result = catch_unwind(check);
    println!("guest: claim: {claim}: {}", if result.is_ok() { "holds" } else { "does not hold" });
    result.is_ok()
}

/// Not a test by itself: the guest's side.
#[test]
fn inside() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    println!();
    // The second kind of hooks includes the first. Another test adds delays at the places of this machine's kernel.
    let is_long = std::env::var_os(LONG).is_some();
    let claims = [
        !is_long
            || holds("requests, bytes and states are counted", || older_kernel::counts_every_request(Mode::Counts)),
        holds("every request has its phases", || older_kernel::counts_every_request(Mode::Exact)),
        !is_long || holds("every nanosecond of a thread has its place", account::closes),
        holds("layers by samples and by hooks agree", exact::inside::charges_every_layer),
        !is_long
            || holds("time can be added at every place", || assert!(slow_places::adds_time_at_every_place().is_none())),
    ];
    assert!(claims.iter().all(|holds| *holds));
    println!("{DONE}");
}
