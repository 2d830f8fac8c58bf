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

mod calibration;
mod classes;
mod error;
pub mod intervals;
mod live;
pub mod pack;
pub mod point;
pub mod point_watch;
pub mod system;
mod totals;
mod tracer;
mod watcher;

// Public for tests/all only.
#[doc(hidden)]
pub mod active_pack;
#[doc(hidden)]
pub mod by_process;
#[doc(hidden)]
pub mod duty;
#[doc(hidden)]
pub mod edges;
#[doc(hidden)]
pub mod estimate;
#[doc(hidden)]
pub mod group_io;
#[doc(hidden)]
pub mod kernel;
#[doc(hidden)]
pub mod pack_places;
#[doc(hidden)]
pub mod phases;
#[doc(hidden)]
pub mod probe_cost;
#[doc(hidden)]
pub mod programs;
#[doc(hidden)]
pub mod schedule;
#[doc(hidden)]
pub mod server;
#[doc(hidden)]
pub mod shares;
#[doc(hidden)]
pub mod states;
#[doc(hidden)]
pub mod system_text;
#[doc(hidden)]
pub mod timer_wheel;
#[doc(hidden)]
pub mod traffic;

pub(crate) use calibration::middle;
pub use classes::{ClassError, SizeClasses};
pub use error::WatchError;
pub use intervals::Intervals;
pub use live::{LiveMark, LiveTraffic, TrafficSpan};
pub use point_watch::PointWatch;
pub use programs::try_out;
pub use watcher::{WatchOptions, Watcher};

/// Whether this kernel has an event for each send and receive on a socket (Linux 6.3).
pub fn kernel_has_send_events() -> bool {
    kernel::KernelHooks::detect()
        .is_ok_and(|hooks| hooks.receive == kernel::ReceiveHook::Length && hooks.send == kernel::SendHook::Length)
}
