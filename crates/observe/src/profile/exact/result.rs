use super::reading::{ChargedTo, ExactPlace, ExactReading, PlaceTime, RunningProcess};
use crate::profile::error::ProfileError;
use crate::profile::interval::ratio;
use crate::profile::samples::PacketReceiver;
use record::layers::Layer;
use record::profile::PacketCounts;
use record::profile::exact::{ExactProfile, ExactRow, HookCosts, Machine, Perturbation, SumCheck, Unpaired};
use record::{Doubt, DoubtKind};

/// Differences between the sum of the layers and the scheduler's account up to this share are not reported.
pub const SUM_TOLERANCE: f64 = 0.02;
/// If hooks make up a larger share of a layer's measured time, the rest is uncertain.
const DOUBTFUL_CORRECTION: f64 = 0.5;

#[derive(Debug, Clone)]
pub struct Burst {
    pub length_ns: u64,
    /// The scheduler's account of the server during the burst.
    pub scheduler_ns: u64,
    pub counted: ExactReading,
    pub packets: PacketCounts,
}

fn is_servers(place: ExactPlace) -> bool {
    match (place.packet, place.whose) {
        (Some(PacketReceiver::Server), _) | (None, RunningProcess::Server) => true,
        (Some(_) | None, _) => false,
    }
}

fn row_of(charged: ChargedTo) -> Option<Option<Layer>> {
    match charged {
        ChargedTo::To(Layer::Idle) | ChargedTo::Measurement | ChargedTo::Calibration => None,
        ChargedTo::To(layer) => Some(Some(layer)),
        ChargedTo::Unknown => Some(None),
    }
}

fn around_hooks(cell: &PlaceTime, costs: &HookCosts) -> f64 {
    cell.pairs_in as f64 * costs.pair_inner_ns
        + cell.pairs_out as f64 * costs.pair_outer_ns
        + cell.marks as f64 * costs.half_mark_ns()
}

fn corrected(layer: Option<Layer>, cell: &PlaceTime, calls: u64, costs: &HookCosts) -> f64 {
    let calls = calls as f64
        * match layer {
            Some(Layer::User) => costs.call_user_ns,
            Some(Layer::SystemCall) => costs.call_kernel_ns - costs.bare_call_ns,
            _ => 0.0,
        };
    (cell.ns as f64 - around_hooks(cell, costs) - calls).max(0.0)
}

pub fn profile(machine: Machine, costs: HookCosts, bursts: &[Burst]) -> Result<ExactProfile, ProfileError> {
    let sum_of = |of: &dyn Fn(&Burst) -> u64| bursts.iter().map(of).sum::<u64>();
    let measured_ns = sum_of(&|burst| burst.length_ns);
    let layers: Vec<Option<Layer>> =
        Layer::ALL.into_iter().filter(|layer| *layer != Layer::Idle).map(Some).chain([None]).collect();
    let cell = |burst: &Burst, layer: Option<Layer>| {
        burst.counted.sum(|place| is_servers(place) && row_of(place.charged) == Some(layer))
    };
    let time = |burst: &Burst, layer: Option<Layer>| {
        corrected(layer, &cell(burst, layer), burst.counted.calls_of(RunningProcess::Server), &costs)
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
    let in_server = |wanted: &dyn Fn(ExactPlace) -> bool| {
        sum_of(&|burst| burst.counted.sum(|place| place.whose == RunningProcess::Server && wanted(place)).ns)
    };
    let mut packets = PacketCounts::default();
    bursts.iter().for_each(|burst| packets.add(&burst.packets));
    let scheduler_check = SumCheck::new(in_server(&|_| true), sum_of(&|burst| burst.scheduler_ns));
    let silent = sum_of(&|burst| burst.length_ns * burst.counted.silent_cpus);
    let clock_ns = measured_ns * machine.cpus as u64;
    let clock_check = SumCheck::new(sum_of(&|burst| burst.counted.sum(|_| true).ns) + silent, clock_ns);
    let programs_ns = in_server(&|place| place.charged == ChargedTo::Measurement);
    let calls = sum_of(&|burst| burst.counted.calls_of(RunningProcess::Server));
    let around_ns = around(bursts, calls, &costs);
    let perturbation = Perturbation {
        costs,
        hooks: sum_of(&|burst| burst.counted.hooks),
        programs_ns,
        around_ns,
        share_ratio: (programs_ns as f64 + around_ns) / (scheduler_check.summed_ns.max(1) as f64),
        ns_per_packet: (packets.total() > 0).then(|| (programs_ns as f64 + around_ns) / packets.total() as f64),
    };
    let mut unpaired = Unpaired::default();
    bursts.iter().for_each(|burst| unpaired.add(&burst.counted.unpaired));
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
        scheduler_check,
        clock_check,
        perturbation,
        unpaired,
        doubts: Vec::new(),
    };
    profile.doubts = doubts(&profile);
    Ok(profile)
}

fn around(bursts: &[Burst], calls: u64, costs: &HookCosts) -> f64 {
    let of_server = |burst: &Burst| burst.counted.sum(|place| place.whose == RunningProcess::Server);
    let hooks: f64 = bursts.iter().map(|burst| around_hooks(&of_server(burst), costs)).sum();
    hooks + calls as f64 * (costs.call_user_ns + costs.call_kernel_ns - costs.bare_call_ns).max(0.0)
}

fn doubts(profile: &ExactProfile) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let checks = [
        (&profile.scheduler_check, "the scheduler's account of the server"),
        (&profile.clock_check, "the clock of all CPUs"),
    ];
    for (check, of) in checks {
        if let Some(difference) = check.difference_ratio.filter(|difference| difference.abs() > SUM_TOLERANCE) {
            let what = format!("the sum over the layers differs from {of} by {:+.1} %", difference * 100.0);
            doubts.push(DoubtKind::SourcesDisagree.warning(
                what,
                "use longer bursts (--burst), and keep the clients off the server's CPUs: if a server wakes a process \
                 that preempts it, the scheduler charges the woken process from the wake-up on",
            ));
        }
    }
    for lost in profile.machine.unhooked.iter().filter(|lost| lost.is_needed) {
        let what = format!("{} could not be hooked ({}), so its layer's time is its caller's", lost.function, lost.why);
        doubts.push(DoubtKind::NotWatched.warning(what, "take the layers from --accounting sampled on this kernel"));
    }
    if profile.packets.total() == 0 {
        let what = format!("no packet of port {} was seen, so there are no costs per packet", profile.machine.port);
        doubts.push(DoubtKind::NotWatched.warning(what, "put load on the server while it is profiled"));
    }
    for row in profile.layers.iter().filter(|row| row.layer != Some(Layer::User)) {
        let removed = row.measured_ns as f64 - row.cpu_ns;
        if row.cpu_ns / profile.cpu_ns > 0.01 && removed > DOUBTFUL_CORRECTION * row.measured_ns as f64 {
            let name = row.layer.map_or("unattributed", Layer::word);
            let what = format!(
                "{:.0} % of the time measured in {name} was spent in the hooks and is subtracted",
                removed / row.measured_ns as f64 * 100.0
            );
            doubts.push(DoubtKind::NotWatched.note(what, "compare it with --accounting sampled"));
        }
    }
    let unpaired = &profile.unpaired;
    let lost = unpaired.not_entered + unpaired.not_left + unpaired.too_deep + unpaired.lost_threads;
    if lost as f64 > 0.001 * profile.perturbation.hooks as f64 {
        let what = format!("{lost} of {} hooks had no counterpart", profile.perturbation.hooks);
        doubts.push(DoubtKind::LostEvents.warning(what, "compare it with --accounting sampled"));
    }
    doubts
}
