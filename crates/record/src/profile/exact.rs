//! The exact profile: time by layer between hooked functions, the cost of the hooks, and the checks of both.

use super::{PacketCounts, SampledEstimate};
use crate::Doubt;
use crate::PlainText;
use crate::layers::Layer;
use serde::Serialize;

/// The exact profile.
#[derive(Debug, Clone, Default, Serialize, schemars::JsonSchema)]
pub struct ExactProfile {
    /// The method of measurement.
    pub method: &'static str,
    /// The server and the machine.
    #[serde(flatten)]
    pub machine: Machine,
    /// Number of bursts.
    pub bursts: usize,
    /// Length of all bursts together, nanoseconds.
    pub measured_ns: u64,
    /// Layers, then unattributed.
    pub layers: Vec<ExactRow>,
    /// CPU time of the server without the cost of the hooks, nanoseconds.
    pub cpu_ns: f64,
    /// The port's packets.
    pub packets: PacketCounts,
    /// Requests: packets with payload received.
    pub requests: u64,
    /// System calls of the server.
    pub system_calls: u64,
    /// Comparison of the sum over all places of the server's processes with the scheduler's account of them.
    pub scheduler_check: SumCheck,
    /// Comparison of the sum over all places and CPUs with the clock.
    pub clock_check: SumCheck,
    /// The cost of the measurement.
    pub perturbation: Perturbation,
    /// Events without a counterpart.
    pub unpaired: Unpaired,
    /// Reasons to doubt the profile.
    pub doubts: Vec<Doubt>,
}

impl ExactProfile {
    /// The row of a layer (`None`: unattributed).
    pub fn layer(&self, layer: Option<Layer>) -> Option<&ExactRow> {
        self.layers.iter().find(|row| row.layer == layer)
    }
}

/// A line of the table.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
pub struct ExactRow {
    /// The layer; `None` = unattributed.
    pub layer: Option<Layer>,
    /// CPU time of the server in the layer, nanoseconds, without the cost of the hooks.
    pub cpu_ns: f64,
    /// Time in the layer, nanoseconds, including its part of the hooks' cost.
    pub measured_ns: u64,
    /// Number of times the layer was entered at a boundary function.
    pub entries: u64,
    /// Share of the server's CPU time, over bursts.
    pub share_ratio: Option<SampledEstimate>,
    /// CPU time per packet (both directions), microseconds.
    pub us_per_packet: Option<SampledEstimate>,
    /// CPU time per request, microseconds.
    pub us_per_request: Option<SampledEstimate>,
}

/// The measured server, the machine and the hooks.
#[derive(Debug, Clone, Default, Serialize, schemars::JsonSchema)]
pub struct Machine {
    /// The server's port.
    pub port: u16,
    /// Id of the server's first process.
    pub pid: u32,
    /// Name of its program; untrusted text.
    pub command: PlainText,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Functions hooked at their start and end.
    pub hooked: Vec<String>,
    /// Functions of the table without hooks, with the reason.
    pub unhooked: Vec<Unhooked>,
    /// Time that attaching all hooks took, nanoseconds.
    pub attach_ns: u64,
    /// Time that removing all hooks took, nanoseconds.
    pub detach_ns: u64,
    /// Time from loading the programs until they were removed, nanoseconds.
    pub duration_ns: u64,
}

/// A boundary that could not be hooked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Unhooked {
    /// Name of the function.
    pub function: String,
    /// Reason why the function could not be hooked.
    pub why: String,
    /// Whether time of a layer is charged to another one without this hook.
    pub is_needed: bool,
}

/// Time of the server's processes from two sources.
#[derive(Debug, Clone, Copy, Default, Serialize, schemars::JsonSchema)]
pub struct SumCheck {
    /// Sum of all places, including hooks, nanoseconds.
    pub summed_ns: u64,
    /// Time by the other source, nanoseconds.
    pub expected_ns: u64,
    /// Relative difference, (summed - expected) / expected.
    pub difference_ratio: Option<f64>,
}

impl SumCheck {
    /// Compares both sums.
    pub fn new(summed_ns: u64, expected_ns: u64) -> Self {
        let difference_ratio = (expected_ns > 0).then(|| summed_ns as f64 / expected_ns as f64 - 1.0);
        SumCheck { summed_ns, expected_ns, difference_ratio }
    }
}

/// Effect of the measurement on the server.
#[derive(Debug, Clone, Default, Serialize, schemars::JsonSchema)]
pub struct Perturbation {
    /// Costs of the hooks, as calibrated in this run.
    pub costs: HookCosts,
    /// Runs of programs on all CPUs in the bursts.
    pub hooks: u64,
    /// Time inside the programs in the server's processes, nanoseconds.
    pub programs_ns: u64,
    /// Time before and after the programs in the server's processes, by events times calibrated cost, nanoseconds.
    pub around_ns: f64,
    /// Share of the measurement in the server's CPU time in the bursts.
    pub share_ratio: f64,
    /// Cost per packet of the port, nanoseconds.
    pub ns_per_packet: Option<f64>,
}

/// Events without a counterpart.
#[derive(Debug, Clone, Copy, Default, Serialize, schemars::JsonSchema)]
pub struct Unpaired {
    /// Function ends without an observed start.
    pub not_entered: u64,
    /// Begins whose end was not seen.
    pub not_left: u64,
    /// Functions called from too deep a stack.
    pub too_deep: u64,
    /// Threads whose stack was overwritten by that of another thread.
    pub lost_threads: u64,
}

crate::grows!(Unpaired { not_entered, not_left, too_deep, lost_threads });

/// Costs outside the time stamps of the programs: before the first or after the last. The time between the two stamps
/// counts as measurement, not here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct HookCosts {
    /// Cost of an empty pair of hooks that is charged to the enclosed function, nanoseconds.
    pub pair_inner_ns: f64,
    /// Cost of an empty pair of hooks that is charged to the caller, nanoseconds.
    pub pair_outer_ns: f64,
    /// Cost of the hooks on an empty system call that is charged to the caller's own code, nanoseconds.
    pub call_user_ns: f64,
    /// Cost of the hooks on an empty system call that is charged to the call, nanoseconds.
    pub call_kernel_ns: f64,
    /// An empty system call without any hook.
    pub bare_call_ns: f64,
    /// Empty pairs measured.
    pub pairs: u64,
    /// Empty calls measured.
    pub calls: u64,
}

impl HookCosts {
    /// Half of a single hook's cost, assumed equal to that of half a pair.
    pub fn half_mark_ns(&self) -> f64 {
        (self.pair_inner_ns + self.pair_outer_ns) / 4.0
    }
}
