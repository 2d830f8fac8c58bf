//! A guest with a stock Debian kernel: Linux 6.1, which lacks the tracepoints that newer kernels count by, and which permits hooks
//! in its functions, as the exact profile needs them. One boot for both.

use crate::boot::{DONE, Guest, INSIDE, run};
use crate::{exact, older_kernel};
use std::time::Duration;

#[test]
fn a_stock_kernel_is_watched_and_profiled_exactly_in_a_guest() {
    run(&Guest {
        caller: "a_stock_kernel_is_watched_and_profiled_exactly_in_a_guest",
        inside: "guest::inside",
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

/// Not a test, but the guest's side.
#[test]
fn inside() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    println!();
    older_kernel::counts_every_request();
    exact::inside::charges_every_layer();
    println!("{DONE}");
}
