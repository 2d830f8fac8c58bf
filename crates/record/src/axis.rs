//! An axis of `find`: one quantity that is varied while all else of the load stays constant.

use serde::{Deserialize, Serialize};

crate::worded! {
    /// The varied quantity, with its word for `--axis` and JSON.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Axis {
        /// Connections of the closed loop.
        Connections = "connections",
        /// Offered rate of the open loop, requests per second.
        Rate = "rate",
        /// Requests in flight on each connection of the closed loop.
        InFlight = "in-flight",
        /// Cold connections held during the load (Banga and Mogul 1998, figure 9).
        Cold = "cold",
        /// Connections of fixed bandwidth, of which a share must conform.
        Conforming = "conforming",
        /// TIME_WAIT sockets of the server's port that exist during the load (Almeida et al. 1996, section 5.5).
        TimeWait = "time-wait",
        /// One-way delay of the path between client and server, nanoseconds.
        Delay = "delay",
        /// Delay added at one place of the server's code, nanoseconds (`SlowPlace`).
        SlowDown = "slow-down",
        /// CPUs of the server, which is started anew for each number.
        Cpus = "cpus",
        /// An axis that this version does not know.
        #[serde(other)]
        Other = "other",
    }
}

impl Axis {
    /// The unit of the values in field notation.
    pub fn unit(self) -> &'static str {
        match self {
            Axis::Rate => "1/s",
            Axis::InFlight => "requests",
            Axis::TimeWait => "sockets",
            Axis::Delay | Axis::SlowDown => "ns",
            Axis::Cpus => "CPUs",
            Axis::Other => "1",
            _ => "connections",
        }
    }

    /// The name of the values, for the axis of a chart.
    pub fn name(self) -> &'static str {
        match self {
            Axis::Connections => "connections",
            Axis::Rate => "offered load, requests per second",
            Axis::InFlight => "requests in flight on a connection",
            Axis::Cold => "cold connections",
            Axis::Conforming => "connections of fixed bandwidth",
            Axis::TimeWait => "TIME_WAIT sockets of the server",
            Axis::Delay => "one-way delay",
            Axis::SlowDown => "time added at a place",
            Axis::Cpus => "CPUs of the server",
            Axis::Other => "value",
        }
    }
}

/// Longest delay of a slow-down experiment, nanoseconds; its BPF programs have the same limit.
pub const MAX_SLOW_DOWN_NS: u64 = 100_000;

crate::worded! {
    /// A place of the server's code that can be slowed down, in the order of `bpf/slow.bpf.c`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum SlowPlace {
        /// Each packet that the server's machine receives for it, in the network softirq.
        Receive = "receive",
        /// Each packet that the server sends, at the device.
        Send = "send",
        /// Each switch of a CPU to a thread of the server.
        WakeUp = "wake-up",
        /// Each read of data from a connection, in the server's own thread.
        Request = "request",
        /// Each accepted connection, in the server's own thread.
        Accept = "accept",
        /// Each read of a file by pread, preadv or sendfile, in the server's own thread.
        FileRead = "file-read",
        /// Each call of one function of the server's program.
        Function = "function",
        /// Each release of a mutex of the C library for which other threads wait, by the thread that holds it.
        Lock = "lock",
        /// Each lock of the kernel for which a thread of the server waited, by that thread once it holds it.
        KernelLock = "kernel-lock",
    }
}

/// A point's place on the axis of its run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AxisPlace {
    /// The quantity that the run varies.
    pub axis: Axis,
    /// Nominal value on the axis, in [`Axis::unit`].
    pub value: f64,
    /// Place that is slowed down; absent on other axes, and without a delay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowed: Option<SlowPlace>,
}

/// An axis and the values to measure along it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct AxisPlan {
    /// The quantity that the run varies.
    pub axis: Axis,
    /// Values in `Axis::unit`, ascending and without repetition. Empty if they are found during the run (rates from
    /// the capacity, conforming connections by doubling and bisection).
    pub values: Vec<f64>,
    /// Largest multiple of the capacity that is offered, if rates are found during the run.
    #[serde(default = "three")]
    pub overload_ratio: f64,
    /// Share of the connections that must conform.
    #[serde(default = "all")]
    pub conforming_ratio: f64,
    /// Places that are slowed down in turn; only on the axis `slow-down`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub slowed: Vec<SlowPlace>,
    /// Function of the server's program, if that is one of the places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
}

fn three() -> f64 {
    3.0
}

fn all() -> f64 {
    1.0
}
