use crate::watch::point_watch::PointReadings;
use record::figure::{Figures, Origin};
use record::names;
use record::watch::{ClassTotals, Mean, Mode, PackTotals, PhaseTotals};

pub(super) const PHASES: [(&str, &str); 3] = [
    (names::WATCH_PARSE, names::WATCH_PARSE_CPU),
    (names::WATCH_PROCESS, names::WATCH_PROCESS_CPU),
    (names::WATCH_LOG, names::WATCH_LOG_CPU),
];

/// Means over the classes, each weighted by its exact number of requests.
pub(super) fn of_all(figures: &mut Figures, readings: &PointReadings, classes: &[ClassTotals]) {
    let timed: u64 = readings.phases.iter().map(|phases| phases.requests).sum();
    if timed == 0 {
        let why = match readings.mode {
            Some(Mode::Counts) => "phases were not requested (mode counts)",
            _ => "the budget of the watch left no time for windows, or the point was too short for one",
        };
        PHASES.iter().flat_map(|(elapsed, cpu)| [elapsed, cpu]).for_each(|name| figures.not_measured(name, why));
        return;
    }
    let origin = if readings.mode == Some(Mode::Exact) { Origin::Timed } else { Origin::Sampled };
    let mut mean = |name: &str, scale: f64, pick: &dyn Fn(&PhaseTotals) -> Option<Mean>| {
        let (mut sum, mut weight) = (0.0, 0.0);
        for (phases, class) in readings.phases.iter().zip(classes) {
            if let Some(estimate) = pick(phases) {
                sum += estimate.mean * class.requests as f64;
                weight += class.requests as f64;
            }
        }
        figures.measured(name, sum / weight * scale, timed, origin);
    };
    for (phase, (elapsed, cpu)) in PHASES.into_iter().enumerate() {
        mean(elapsed, 1e-3, &|phases| phases.elapsed_ns[phase]);
        mean(cpu, 1e-3, &|phases| phases.cpu_ns[phase]);
    }
    mean(names::WATCH_DISK, 1.0, &|phases| phases.disk_bytes);
}

/// Figures in the order of [`PHASES`].
const PACK_PHASES: [(&str, &str); 3] = [
    (names::WATCH_PACK_PARSE, names::WATCH_PACK_PARSE_CPU),
    (names::WATCH_PACK_PROCESS, names::WATCH_PACK_PROCESS_CPU),
    (names::WATCH_PACK_LOG, names::WATCH_PACK_LOG_CPU),
];

/// Means over the requests whose phases the server's functions showed; empty without a pack.
pub(super) fn by_pack(figures: &mut Figures, readings: &PointReadings) {
    let timed = |pack: &PackTotals| pack.by_functions.iter().map(|class| class.requests).sum::<u64>();
    let pack = readings.pack.as_ref().filter(|pack| timed(pack) > 0);
    let Some(pack) = pack else {
        let why = match (&readings.pack, &readings.why_no_pack) {
            (_, Some(why)) => why.as_str(),
            (Some(_), None) => "no request passed all boundaries of the pack in its windows",
            (None, None) => return,
        };
        PACK_PHASES.iter().flat_map(|(elapsed, cpu)| [elapsed, cpu]).for_each(|name| figures.not_measured(name, why));
        return;
    };
    let n = timed(pack);
    let mean = |pick: &dyn Fn(&PhaseTotals) -> Option<Mean>| {
        let of_class = |class: &PhaseTotals| pick(class).map_or(0.0, |estimate| estimate.mean * class.requests as f64);
        pack.by_functions.iter().map(of_class).sum::<f64>() / n as f64 / 1e3
    };
    for (phase, (elapsed, cpu)) in PACK_PHASES.into_iter().enumerate() {
        figures.measured(elapsed, mean(&|class| class.elapsed_ns[phase]), n, Origin::Sampled);
        figures.measured(cpu, mean(&|class| class.cpu_ns[phase]), n, Origin::Sampled);
    }
    figures.measured(names::WATCH_PACK_COST, pack.request_ns / 1e3, n, Origin::Modelled);
}
