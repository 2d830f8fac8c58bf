//! Tests netem on a kernel that has it: a stock Debian kernel in a QEMU guest, whose only process is this test
//! program.

#[path = "../../../../testbed/guest/boot.rs"]
mod boot;

use super::path::*;
use super::plan;
use boot::{DONE, Guest, INSIDE};
use record::{PathMechanism, PathPlan};
use std::time::Duration;
use wan::{NamespacePair, PairPlan};

#[test]
fn netem_behaves_like_the_delay_line_in_a_guest() {
    boot::run(&Guest {
        caller: "netem_behaves_like_the_delay_line_in_a_guest",
        inside: "guest::the_path_by_netem_inside_the_guest",
        modules: &["drivers/net/veth.ko", "drivers/net/tun.ko", "net/sched/sch_netem.ko"],
        // The guest skips idle time. Delays are exact on a busy machine, too, and take no time.
        instruction_shift: 1,
        parameters: "no_timer_check noapictimer",
        prepare: "",
        memory_mib: 512,
        limit: Duration::from_secs(240),
    });
}

/// Not a separate test, but the program of the guest in [`netem_behaves_like_the_delay_line_in_a_guest`].
#[test]
fn the_path_by_netem_inside_the_guest() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    println!();
    assert!(wan::has_netem(), "the guest's kernel has netem");
    let netem = |delay_ms: u64| PathPlan {
        delay_ns: delay_ms * 1_000_000,
        mechanism: PathMechanism::Netem,
        ..PathPlan::default()
    };
    let mut failed = 0;
    let mut say = |what: &str, result: Result<String, String>| match result {
        Ok(said) => println!("guest: {what}: {said}"),
        Err(said) => {
            failed += 1;
            println!("guest: {what}: NOT AS ASKED: {said}");
        }
    };
    for delay_ms in [1, 100] {
        say("netem round trip", round_trip_is_exact(&netem(delay_ms)));
    }
    say("netem bandwidth", bandwidth_is_exact(&limited(netem(10), 100_000_000)));
    say("netem changed", a_changed_delay_is_exact(&limited(netem(50), 100_000_000), 5));
    say("netem segments", reads_of_a_burst(&limited(netem(1), 1_000_000)));
    // 50 ms of full packets are 1,250 packets; 20 ms of small ones are more.
    say("netem small packets", small_packets_arrive(&limited(netem(20), 100_000_000), 5_000));
    say("netem full queue", a_full_queue_counts(netem(1)));
    say("netem full backlog", a_full_backlog_counts(netem(5)));
    let seeded = NamespacePair::create(&PairPlan { path: PathPlan { loss_ratio: 0.1, ..netem(1) }, ..plan() }).unwrap();
    let is_seeded = !seeded.notes().iter().any(|note| note.contains("do not follow the seed"));
    seeded.remove().unwrap();
    if is_seeded {
        say("netem losses after a change", losses_differ_after_a_change(&netem(1)));
    }
    say("netem loss", loss_is_binomial(&PathPlan { loss_ratio: 0.02, ..netem(1) }, 5_000));
    let chosen = super::path::pair_with(PathPlan { mechanism: PathMechanism::Other, ..netem(1) });
    let mechanism = chosen.path().mechanism;
    chosen.remove().unwrap();
    assert_eq!(mechanism, PathMechanism::Netem, "left to us, it is netem");
    assert_eq!(failed, 0);
    println!("{DONE}");
}
