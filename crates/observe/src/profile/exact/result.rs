//! What an exact profile says: time by layer, the cost of the hooks, and how it was checked.

use super::calibration::HookCosts;
use super::reading::{Cell, Charged, Place, Reading, Whose};
use crate::profile::error::ProfileError;
use crate::profile::interval::{Estimate, ratio};
use crate::profile::samples::{PacketCounts, Side};
use record::layers::Layer;
use record::{Doubt, DoubtKind, Severity};
use serde::Serialize;

/// The difference between the sum over the layers and the scheduler's account that is not remarked upon.
pub const SUM_TOLERANCE: f64 = 0.02;
/// The share of a layer's measured time that hooks may make up before the rest is doubted.
const DOUBTFUL_CORRECTION: f64 = 0.5;

#[cfg(feature = "bpf")]
pub use super::programs::Unhooked;

/// A boundary that could not be hooked.
#[cfg(not(feature = "bpf"))]
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unhooked {
    /// The function.
    pub function: String,
    /// Why.
    pub why: String,
    /// Without it one layer's time is counted as another's.
    pub is_needed: bool,
}

/// What was measured, and with what.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// The server's port.
    pub port: u16,
    /// Its first process.
    pub pid: u32,
    /// Name of its program; untrusted text.
    pub command: String,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Functions hooked at begin and end.
    pub hooked: Vec<String>,
    /// Functions of the table without hooks, with the reason.
    pub unhooked: Vec<Unhooked>,
    /// How long hooking them took.
    pub attach_ns: u64,
    /// How long it took to remove all hooks.
    pub detach_ns: u64,
    /// From before the programs were loaded until they were gone.
    pub duration_ns: u64,
}

/// One burst.
#[derive(Debug, Clone)]
pub struct Burst {
    /// Its length.
    pub length_ns: u64,
    /// The scheduler's account of the server in it.
    pub scheduler_ns: u64,
    /// What was counted.
    pub counted: Reading,
    /// The port's packets.
    pub packets: PacketCounts,
}

/// A line of the table.
#[derive(Debug, Clone, Serialize)]
pub struct ExactRow {
    /// The layer; `None` = unattributed.
    pub layer: Option<Layer>,
    /// The server's CPU time in it, nanoseconds, without the cost of the hooks.
    pub cpu_ns: f64,
    /// As it was measured, with the part of the hooks' cost that lies in this layer.
    pub measured_ns: u64,
    /// How often the layer was entered at a boundary function.
    pub entries: u64,
    /// Share of the server's CPU time, over bursts.
    pub share_ratio: Option<Estimate>,
    /// CPU time per packet (both directions), microseconds.
    pub us_per_packet: Option<Estimate>,
    /// CPU time per request, microseconds.
    pub us_per_request: Option<Estimate>,
}

/// Sums of one time by two sources.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct SumCheck {
    /// All places together, hooks included, nanoseconds.
    pub summed_ns: u64,
    /// The other source, nanoseconds.
    pub expected_ns: u64,
    /// (summed - expected) / expected.
    pub difference_ratio: Option<f64>,
}

impl SumCheck {
    fn of(summed_ns: u64, expected_ns: u64) -> Self {
        let difference_ratio = (expected_ns > 0).then(|| summed_ns as f64 / expected_ns as f64 - 1.0);
        SumCheck { summed_ns, expected_ns, difference_ratio }
    }
}

/// What the measurement did to the server.
#[derive(Debug, Clone, Serialize)]
pub struct Perturbation {
    /// Costs of the hooks, as calibrated in this run.
    pub costs: HookCosts,
    /// Programs run on all CPUs in the bursts.
    pub hooks: u64,
    /// Time inside of the programs in the server's processes, nanoseconds.
    pub programs_ns: u64,
    /// Time before and after them in the server's processes, by events times calibrated cost, nanoseconds.
    pub around_ns: f64,
    /// Share of the server's CPU time in the bursts that was the measurement.
    pub share_ratio: f64,
    /// Nanoseconds per packet of the port.
    pub ns_per_packet: Option<f64>,
}

/// Events that did not pair.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Unpaired {
    /// Ends of functions whose begin was not seen.
    pub not_entered: u64,
    /// Begins whose end was not seen.
    pub not_left: u64,
    /// Functions called from too deep a stack.
    pub too_deep: u64,
    /// Threads whose stack gave way to another's.
    pub lost_threads: u64,
}

/// The exact profile.
#[derive(Debug, Clone, Serialize)]
pub struct ExactProfile {
    /// How it was measured.
    pub method: &'static str,
    /// What, and with what.
    #[serde(flatten)]
    pub machine: Machine,
    /// Bursts.
    pub bursts: usize,
    /// Their length together.
    pub measured_ns: u64,
    /// Layers, then unattributed.
    pub layers: Vec<ExactRow>,
    /// The server's CPU time without the cost of the hooks.
    pub cpu_ns: f64,
    /// The port's packets.
    pub packets: PacketCounts,
    /// Requests: packets with payload received.
    pub requests: u64,
    /// System calls of the server.
    pub system_calls: u64,
    /// Work of the other end in the server's processes, nanoseconds: charged to the server by the scheduler only.
    pub peer_in_server_ns: u64,
    /// The sum over all places of the server's processes against the scheduler's account of them.
    pub scheduler_check: SumCheck,
    /// The sum over all places and CPUs against the clock.
    pub clock_check: SumCheck,
    /// What the measurement cost.
    pub perturbation: Perturbation,
    /// Events that did not pair.
    pub unpaired: Unpaired,
    /// Reasons not to trust it.
    pub doubts: Vec<Doubt>,
}

impl ExactProfile {
    /// The row of a layer (`None`: unattributed).
    pub fn layer(&self, layer: Option<Layer>) -> Option<&ExactRow> {
        self.layers.iter().find(|row| row.layer == layer)
    }
}

/// The server's work: what its processes do for themselves, and its packets' wherever they are handled.
fn is_servers(place: Place) -> bool {
    match (place.packet, place.whose) {
        (Some(Side::Server), _) | (None, Whose::Server) => true,
        (Some(_) | None, _) => false,
    }
}

fn row_of(charged: Charged) -> Option<Option<Layer>> {
    match charged {
        Charged::To(Layer::Idle) | Charged::Measurement | Charged::Calibration => None,
        Charged::To(layer) => Some(Some(layer)),
        Charged::Unknown => Some(None),
    }
}

/// A layer's time without the hooks' part.
fn corrected(layer: Option<Layer>, cell: &Cell, calls: u64, costs: &HookCosts) -> f64 {
    let hooks = cell.pairs_in as f64 * costs.pair_inner_ns
        + cell.pairs_out as f64 * costs.pair_outer_ns
        + cell.marks as f64 * costs.half_mark_ns();
    let calls = calls as f64
        * match layer {
            Some(Layer::User) => costs.call_user_ns,
            Some(Layer::SystemCall) => costs.call_kernel_ns - costs.bare_call_ns,
            _ => 0.0,
        };
    (cell.ns as f64 - hooks - calls).max(0.0)
}

/// Puts the bursts together.
pub fn profile(machine: Machine, costs: HookCosts, bursts: &[Burst]) -> Result<ExactProfile, ProfileError> {
    let sum_of = |of: &dyn Fn(&Burst) -> u64| bursts.iter().map(of).sum::<u64>();
    let measured_ns = sum_of(&|burst| burst.length_ns);
    let layers: Vec<Option<Layer>> =
        Layer::ALL.into_iter().filter(|layer| *layer != Layer::Idle).map(Some).chain([None]).collect();
    let cell = |burst: &Burst, layer: Option<Layer>| {
        burst.counted.sum(|place| is_servers(place) && row_of(place.charged) == Some(layer))
    };
    let time = |burst: &Burst, layer: Option<Layer>| {
        corrected(layer, &cell(burst, layer), burst.counted.calls_of(Whose::Server), &costs)
    };
    let wholes: Vec<f64> = bursts.iter().map(|burst| layers.iter().map(|layer| time(burst, *layer)).sum()).collect();
    let cpu_ns: f64 = wholes.iter().sum();
    if cpu_ns <= 0.0 {
        return Err(ProfileError::NoTime { seconds: measured_ns as f64 / 1e9 });
    }
    let packets: Vec<f64> = bursts.iter().map(|burst| burst.packets.total() as f64).collect();
    let requests: Vec<f64> = bursts.iter().map(|burst| burst.packets.data_packets[0] as f64).collect();
    let rows = layers
        .iter()
        .map(|&layer| {
            let times: Vec<f64> = bursts.iter().map(|burst| time(burst, layer)).collect();
            let us: Vec<f64> = times.iter().map(|ns| ns / 1e3).collect();
            ExactRow {
                layer,
                cpu_ns: times.iter().sum(),
                measured_ns: sum_of(&|burst| cell(burst, layer).ns),
                entries: sum_of(&|burst| cell(burst, layer).pairs_in),
                share_ratio: ratio(&times, &wholes),
                us_per_packet: ratio(&us, &packets),
                us_per_request: ratio(&us, &requests),
            }
        })
        .collect();
    let in_server = |wanted: &dyn Fn(Place) -> bool| {
        sum_of(&|burst| burst.counted.sum(|place| place.whose == Whose::Server && wanted(place)).ns)
    };
    let packets = bursts.iter().fold(PacketCounts::default(), |sum, burst| sum.plus(&burst.packets));
    let scheduler_check = SumCheck::of(in_server(&|_| true), sum_of(&|burst| burst.scheduler_ns));
    let silent = sum_of(&|burst| burst.length_ns * burst.counted.silent_cpus);
    let clock_ns = measured_ns * machine.cpus as u64;
    let clock_check = SumCheck::of(sum_of(&|burst| burst.counted.sum(|_| true).ns) + silent, clock_ns);
    let programs_ns = in_server(&|place| place.charged == Charged::Measurement);
    let calls = sum_of(&|burst| burst.counted.calls_of(Whose::Server));
    let around_ns = around(bursts, calls, &costs);
    let perturbation = Perturbation {
        costs,
        hooks: sum_of(&|burst| burst.counted.hooks),
        programs_ns,
        around_ns,
        share_ratio: (programs_ns as f64 + around_ns) / (scheduler_check.summed_ns.max(1) as f64),
        ns_per_packet: (packets.total() > 0).then(|| (programs_ns as f64 + around_ns) / packets.total() as f64),
    };
    let unpaired = Unpaired {
        not_entered: sum_of(&|burst| burst.counted.not_entered),
        not_left: sum_of(&|burst| burst.counted.not_left),
        too_deep: sum_of(&|burst| burst.counted.too_deep),
        lost_threads: sum_of(&|burst| burst.counted.lost_threads),
    };
    let mut profile = ExactProfile {
        method: "exact",
        machine,
        bursts: bursts.len(),
        measured_ns,
        layers: rows,
        cpu_ns,
        requests: packets.data_packets[0],
        packets,
        system_calls: calls,
        peer_in_server_ns: in_server(&|place| place.packet == Some(Side::Peer)),
        scheduler_check,
        clock_check,
        perturbation,
        unpaired,
        doubts: Vec::new(),
    };
    profile.doubts = doubts(&profile);
    Ok(profile)
}

/// The hooks' cost around their programs in the server's processes.
fn around(bursts: &[Burst], calls: u64, costs: &HookCosts) -> f64 {
    let hooks: f64 = bursts
        .iter()
        .map(|burst| {
            let cell = burst.counted.sum(|place| place.whose == Whose::Server);
            cell.pairs_in as f64 * costs.pair_inner_ns
                + cell.pairs_out as f64 * costs.pair_outer_ns
                + cell.marks as f64 * costs.half_mark_ns()
        })
        .sum();
    hooks + calls as f64 * (costs.call_user_ns + costs.call_kernel_ns - costs.bare_call_ns).max(0.0)
}

fn doubts(profile: &ExactProfile) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let mut add = |kind, severity, what: String, remedy: &str| doubts.push(Doubt::new(kind, severity, what, remedy));
    let checks = [
        (&profile.scheduler_check, "the scheduler's account of the server"),
        (&profile.clock_check, "the clock of all CPUs"),
    ];
    for (check, of) in checks {
        if let Some(difference) = check.difference_ratio.filter(|difference| difference.abs() > SUM_TOLERANCE) {
            let what = format!("the sum over the layers differs from {of} by {:+.1} %", difference * 100.0);
            add(
                DoubtKind::SourcesDisagree,
                Severity::Warning,
                what,
                "use longer bursts (--burst), and keep the clients off the server's CPUs: from the moment at which a server wakes what preempts it, the scheduler charges the woken process",
            );
        }
    }
    for lost in profile.machine.unhooked.iter().filter(|lost| lost.is_needed) {
        let what = format!("{} could not be hooked ({}), so its layer's time is its caller's", lost.function, lost.why);
        add(DoubtKind::NotWatched, Severity::Warning, what, "take the layers from --accounting sampled on this kernel");
    }
    if profile.packets.total() == 0 {
        let what = format!("no packet of port {} was seen, so nothing can be given per packet", profile.machine.port);
        add(DoubtKind::NotWatched, Severity::Warning, what, "put load on the server while it is profiled");
    }
    for row in profile.layers.iter().filter(|row| row.layer != Some(Layer::User)) {
        let removed = row.measured_ns as f64 - row.cpu_ns;
        if row.cpu_ns / profile.cpu_ns > 0.01 && removed > DOUBTFUL_CORRECTION * row.measured_ns as f64 {
            let name = row.layer.map_or("unattributed", Layer::word);
            let what = format!(
                "{:.0} % of the time measured in {name} was the hooks' own and was taken out",
                removed / row.measured_ns as f64 * 100.0
            );
            add(DoubtKind::NotWatched, Severity::Note, what, "compare it with --accounting sampled");
        }
    }
    let unpaired = &profile.unpaired;
    let lost = unpaired.not_entered + unpaired.not_left + unpaired.too_deep + unpaired.lost_threads;
    if lost as f64 > 0.001 * profile.perturbation.hooks as f64 {
        let what = format!("{lost} of {} hooks found no partner", profile.perturbation.hooks);
        add(DoubtKind::LostEvents, Severity::Warning, what, "compare it with --accounting sampled");
    }
    doubts
}
