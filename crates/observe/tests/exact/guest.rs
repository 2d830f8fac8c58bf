//! The exact profile in a guest with a stock Debian kernel, which permits hooks in its functions.

use super::boot::{Guest, run};
use std::time::Duration;

#[test]
fn exact_and_sampled_layers_agree_in_a_guest() {
    run(&Guest {
        caller: "exact_and_sampled_layers_agree_in_a_guest",
        inside: "inside::the_guest",
        // For listing the listening sockets.
        modules: &["net/ipv4/inet_diag.ko", "net/ipv4/tcp_diag.ko"],
        // Eight nanoseconds an instruction: shares of time are shares of instructions, however busy this machine is.
        instruction_shift: 3,
        parameters: "tsc=reliable clocksource=tsc no_timer_check",
        prepare: "busybox ip link set lo up\necho 0 > /proc/sys/kernel/kptr_restrict",
        memory_mib: 768,
        limit: Duration::from_secs(420),
    });
}
