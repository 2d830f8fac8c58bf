//! The result of `straingauge profile`: CPU time by layer, per packet and per request, functions, groups, checks.

pub mod exact;
pub mod folded;
mod point;
pub mod stacks;

pub use exact::ExactProfile;
pub use folded::Folded;
pub use point::{COMPILED, SYSTEM_CALLS};
pub use stacks::{Frame, Ran, SampledProcess, Stack, Stacks};

use crate::Doubt;
use crate::PlainText;
use crate::account::Account;
use crate::layers::Layer;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The beginning of the doubt about a run whose points were not profiled; the reason follows a colon.
pub const NOT_SAMPLED: &str = "the cost of the network stack's layers was not sampled";
/// The part of Other in `data/layers.txt` that is straingauge's own work.
pub const MEASUREMENT: &str = "measurement";

/// The profile of a window.
#[derive(Debug, Clone, Default, Serialize, schemars::JsonSchema)]
pub struct Profile {
    /// The method of measurement.
    pub method: &'static str,
    /// The event that triggers a sample.
    pub clock: &'static str,
    /// Nanoseconds between samples on each CPU.
    pub period_ns: u64,
    /// CPU time per sample, nanoseconds: the scheduler's account of the server's processes divided by the samples in
    /// them; the period if there are too few.
    pub sample_ns: f64,
    /// Length of the window.
    pub duration_ns: u64,
    /// The server's port.
    pub port: u16,
    /// Id of the server's first process.
    pub pid: u32,
    /// Name of its program; untrusted text.
    pub command: PlainText,
    /// CPUs of the machine.
    pub cpus: usize,
    /// The distribution of all samples.
    pub samples: SampleSums,
    /// Layers, parts, unattributed; parts follow their layer and are contained in it.
    pub layers: Vec<LayerRow>,
    /// Functions with the most samples in the server's work.
    pub functions: Vec<FunctionRow>,
    /// The user's groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupRow>,
    /// Innermost functions of unattributed samples.
    pub unattributed_top: Vec<(String, u64)>,
    /// The port's packets, in and out.
    pub packets: PacketCounts,
    /// Number of requests: packets with payload received (one per request if requests fit into a packet and do not
    /// overtake their responses), or the caller's count.
    pub requests: u64,
    /// Whether the caller counted the requests.
    pub requests_are_counted: bool,
    /// Comparison of sampled and scheduled CPU time.
    pub cpu_check: CpuCheck,
    /// Share of the kernel's samples that the layer rule covers.
    pub coverage: Coverage,
    /// Events other than the CPU clock.
    pub events: Vec<EventRow>,
    /// Samples that were lost, by reason.
    pub losses: Losses,
    /// Account of the server's threads; absent if they were not traced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub account: Option<Account>,
    /// Reasons to doubt the profile.
    pub doubts: Vec<Doubt>,
    /// Stacks of the server's work, without their CPU time ([`weighed_stacks`](Self::weighed_stacks)).
    #[serde(skip)]
    pub stacks: Stacks,
}

impl Profile {
    /// The row of a whole layer (`None`: unattributed).
    pub fn layer(&self, layer: Option<Layer>) -> Option<&LayerRow> {
        self.layers.iter().find(|row| row.layer == layer && row.part.is_empty())
    }

    /// The share of the network stack proper: the server's work except User, Other and unattributed.
    pub fn stack_share(&self) -> f64 {
        let of = |row: &LayerRow| row.share_ratio.map_or(0.0, |share| share.value);
        let is_stack = |row: &&LayerRow| row.part.is_empty() && row.layer.is_some_and(Layer::is_stack);
        self.layers.iter().filter(is_stack).map(of).sum()
    }
}

/// Row of the table of layers. Times are the server's CPU time, in whichever process it ran.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct LayerRow {
    /// The layer; `None` = unattributed.
    pub layer: Option<Layer>,
    /// Part of the layer; empty for the whole layer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// Samples in the layer.
    pub samples: u64,
    /// CPU time, nanoseconds.
    pub cpu_ns: f64,
    /// Share of the server's CPU time.
    pub share_ratio: Option<SampledEstimate>,
    /// CPU time per packet (both directions), microseconds.
    pub us_per_packet: Option<SampledEstimate>,
    /// CPU time per request, microseconds.
    pub us_per_request: Option<SampledEstimate>,
    /// Events of the hardware per packet, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub events_per_packet: BTreeMap<String, SampledEstimate>,
}

/// A function and its cost, without its callees.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct FunctionRow {
    /// Name; untrusted text.
    pub function: String,
    /// The kernel's module or the server's file.
    pub module: Option<String>,
    /// Layer to which most of its samples were charged; `None` = unattributed.
    pub layer: Option<Layer>,
    /// CPU mode of most of its samples.
    pub mode: CpuMode,
    /// Samples in the server's work.
    pub samples: u64,
    /// Share of all CPU time of the machine.
    pub cpu_ratio: f64,
    /// Share of the machine's CPU time that was not idle.
    pub non_idle_ratio: f64,
    /// Share of the server's CPU time.
    pub server_ratio: f64,
}

/// Group of functions. A sample belongs to the group of its innermost function that is in a group.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct GroupRow {
    /// Name of the group; `None` = no group.
    pub group: Option<String>,
    /// Samples in functions of the group.
    pub samples: u64,
    /// Share of the server's CPU time.
    pub share_ratio: Option<SampledEstimate>,
    /// CPU time per packet, microseconds.
    pub us_per_packet: Option<SampledEstimate>,
}

/// The distribution of the machine's samples; they add up to all samples.
#[derive(Debug, Clone, Default, Serialize, schemars::JsonSchema)]
pub struct SampleSums {
    /// Samples of the server's work in its own processes.
    pub server_in_own_process: u64,
    /// Samples of the server's packets in the time of other processes.
    pub server_in_others: u64,
    /// Samples of the server's packets on idle CPUs.
    pub server_on_idle: u64,
    /// Samples of the other end's packets in the server's time.
    pub peer_in_server: u64,
    /// Samples of other packets in the server's time.
    pub others_in_server: u64,
    /// Samples of other work, not idle.
    pub others: u64,
    /// Samples on idle CPUs without work of the server.
    pub idle: u64,
}

impl SampleSums {
    /// Samples of the server's work, wherever it ran.
    pub fn server(&self) -> u64 {
        self.server_in_own_process + self.server_in_others + self.server_on_idle
    }

    /// Samples in the processes for which the scheduler charges the server.
    pub fn in_server(&self) -> u64 {
        self.server_in_own_process + self.peer_in_server + self.others_in_server
    }

    /// All samples.
    pub fn all(&self) -> u64 {
        self.in_server() + self.server_in_others + self.server_on_idle + self.others + self.idle
    }
}

/// CPU time from two independent sources.
#[derive(Debug, Clone, Copy, Default, Serialize, schemars::JsonSchema)]
pub struct CpuCheck {
    /// Samples in the server's processes times their period, nanoseconds.
    pub sampled_ns: f64,
    /// The scheduler's account of the same processes, nanoseconds.
    pub scheduler_ns: f64,
    /// Relative difference, (sampled - scheduler) / scheduler.
    pub difference_ratio: Option<f64>,
    /// Share of the machine's time taken by the hypervisor: samples count it, the scheduler does not.
    pub steal_ratio: Option<f64>,
    /// Arrivals of the clock's interrupts.
    pub arrivals: Arrivals,
}

/// Interrupts of the sampling clock on all CPUs compared with the expected number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Arrivals {
    /// Interrupts that arrived while samples were taken.
    pub arrived: u64,
    /// Periods without an interrupt, because one came late and the timer makes one sample of them.
    pub late: u64,
    /// Interrupts expected in the window: its length times the CPUs over the period.
    pub expected: f64,
    /// The kernel's limit of samples per second on a CPU (`kernel.perf_event_max_sample_rate`); absent if it cannot
    /// be read.
    pub limit_hz: Option<u64>,
}

impl Arrivals {
    /// Share of the expected interrupts that were skipped because one before them came late.
    pub fn late_ratio(&self) -> f64 {
        self.late as f64 / self.expected.max(1.0)
    }

    /// Share of the expected interrupts that neither arrived nor were skipped.
    pub fn missing_ratio(&self) -> f64 {
        (1.0 - (self.arrived + self.late) as f64 / self.expected.max(1.0)).max(0.0)
    }

    /// Share of the expected interrupts without a sample.
    pub fn lost_ratio(&self) -> f64 {
        self.late_ratio() + self.missing_ratio()
    }
}

/// An event other than the CPU clock.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct EventRow {
    /// Name of the event.
    pub event: String,
    /// Number of events between two samples.
    pub period: u64,
    /// Samples in the server's work.
    pub samples: u64,
    /// Share of the time in which the counter ran; below 1 if several events shared the counters.
    pub counter_ran_ratio: f64,
    /// Reason why the event was not counted; absent if it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<String>,
}

/// Share of the kernel's samples that the rule covers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Coverage {
    /// Samples in the kernel.
    pub kernel_samples: u64,
    /// Kernel samples whose stack names a layer.
    pub attributed: u64,
    /// Kernel samples whose innermost function is in the table, either naming a layer or as a helper.
    pub classified: u64,
    /// Innermost functions that the table does not list, with their samples, most frequent first.
    pub not_classified: Vec<(String, u64)>,
}

crate::worded! {
    /// Mode of the CPU.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum CpuMode {
        /// CPU in user mode.
        User = "user",
        /// CPU in the kernel for a process.
        Kernel = "kernel",
        /// CPU in a software interrupt.
        Softirq = "softirq",
        /// CPU in an interrupt of a device or timer.
        Interrupt = "interrupt",
    }
}

/// Packets of the port on all CPUs; in, out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct PacketCounts {
    /// Packets as an interface counts them.
    pub packets: [u64; 2],
    /// TCP segments in the packets; more than packets with segmentation offload (TSO, GRO).
    pub segments: [u64; 2],
    /// Packets with payload.
    pub data_packets: [u64; 2],
    /// Payload bytes in the packets.
    pub payload_bytes: [u64; 2],
    /// Packets whose headers could not be read.
    pub unread: u64,
    /// Packets received by the other end of the connections, on this machine.
    pub peer_packets: u64,
}

crate::grows!(PacketCounts { packets, segments, data_packets, payload_bytes, unread, peer_packets });

impl PacketCounts {
    /// Both directions.
    pub fn total(&self) -> u64 {
        self.packets[0] + self.packets[1]
    }
}

/// Losses because of full tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Losses {
    /// Samples whose stack had no place and that are unattributed.
    pub stacks: u64,
    /// Samples that were not counted at all.
    pub samples: u64,
    /// Processes of the server that were not followed.
    #[serde(default)]
    pub processes: u64,
}

crate::grows!(Losses { stacks, samples, processes });

/// A value and the half width of its 95 % interval, which covers the sampling and the changes of the load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SampledEstimate {
    /// Value of the estimate.
    pub value: f64,
    /// Half width; `None` if fewer than three tenths of the window have samples.
    pub plus_minus: Option<f64>,
}
