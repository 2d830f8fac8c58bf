//! Watches every request of a port from inside the kernel: counts, bytes and CPU time exactly, phases in windows,
//! connection states on each transition. It works with any unmodified server; docs/watching.md lists what it cannot
//! see.
//!
//! The design follows Webmonitor (Almeida, Almeida and Yates, "Measuring the Behavior of a World-Wide Web Server",
//! 1996): sampling of the kernel's counters together with tracing of every request by size class. Webmonitor patched
//! kernel and server; BPF programs (`bpf/watch.bpf.c`) replace the patches.
//!
//! [`Watcher`] is the entry point; it opens windows while it waits ([`Watcher::wait_until`]) and returns
//! [`Reading`](record::watch::Reading)s.

mod active_pack;
mod by_process;
mod calibration;
mod classes;
mod duty;
mod edges;
mod error;
mod estimate;
mod group_io;
pub mod intervals;
mod kernel;
mod live;
pub mod pack;
mod pack_places;
mod phases;
pub mod point;
pub mod point_watch;
mod probe_cost;
mod programs;
mod schedule;
mod server;
mod shares;
mod states;
pub mod system;
mod system_text;
mod timer_wheel;
mod totals;
mod tracer;
mod traffic;
mod watcher;

pub(crate) use calibration::middle;
pub use classes::{ClassError, SizeClasses};
pub use error::WatchError;
pub use intervals::Intervals;
pub use live::{LiveMark, LiveTraffic, TrafficSpan};
pub use point_watch::PointWatch;
pub use programs::try_out;
pub use watcher::{WatchOptions, Watcher};

/// Whether this kernel has an event for each send and receive on a socket (Linux 6.3).
pub(crate) fn kernel_has_send_events() -> bool {
    kernel::KernelHooks::detect()
        .is_ok_and(|hooks| hooks.receive == kernel::ReceiveHook::Length && hooks.send == kernel::SendHook::Length)
}
