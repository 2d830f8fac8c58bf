use super::*;
use crate::command::of_server;

pub(super) const RULE: Rule = Rule {
    id: "scalable-select",
    cause: "select or poll over many idle connections",
    evidence: "`server.select_or_poll_waits_ratio`, `server.select_set_descriptors`, growth of CPU per request, \
               cold connections",
    threshold: "90 % of at least 5 sleeps, sets of at least 64, and 1.25 times the CPU per request (medians, and \
                within repeats) at a load with such a set, or 64 cold connections",
    refuted_by: "`straingauge find --compare-with scale` shows no difference",
    remedy: "`straingauge scale -- SERVER`",
    source: "Banga and Mogul (1998)",
    is_limit: false,
    is_counted: false,
    hidden_by: &["client"],
    judge,
};

const SELECT_RATIO: f64 = 0.9;
const SELECT_SEEN: f64 = 5.0;
/// Least size of the set. The library passes smaller sets to the kernel.
const SELECT_SET: f64 = 64.0;

/// Number of sampled sleeps in select or poll, and of all sampled sleeps.
fn sleeps(point: &Point) -> Option<(f64, f64)> {
    let figure = point.figures.get(names::SERVER_SELECT_WAITS)?;
    let n = figure.n? as f64;
    Some((figure.value? * n, n))
}

fn judge(evidence: &Evidence<'_>) -> Option<Finding> {
    let run = evidence.run;
    if run.record.server_facts.contains_key("scalable_select") {
        return None;
    }
    let points = || run.points.iter().filter(|point| point.sweep != Sweep::Yardstick);
    let (in_select, seen) = points().filter_map(sleeps).fold((0.0, 0.0), |(a, b), (x, y)| (a + x, b + y));
    let set = points().filter_map(|point| point.value(names::SERVER_SELECT_SET)).fold(0.0, f64::max);
    if !(seen >= SELECT_SEEN && in_select >= SELECT_RATIO * seen && set >= SELECT_SET) {
        return None;
    }
    let cpu = evidence.findings.connections.as_ref().and_then(|closed| closed.cpu.as_ref());
    // The cost of the first connections grows for other reasons.
    let has_large_set = |load: f64| {
        evidence
            .points_at(Sweep::Connections, load)
            .filter_map(|point| point.value(names::SERVER_SELECT_SET))
            .any(|set| set >= SELECT_SET)
    };
    let grown = cpu.filter(|cpu| cpu.is_growth() && cpu.ratio >= GROWTH_RATIO && has_large_set(cpu.highest_load));
    let cold = points().filter_map(|point| point.value(names::COLD)).fold(0.0, f64::max);
    let (because, idle) = match grown {
        Some(cpu) => {
            let at = load_words(cpu.highest_load, Sweep::Connections);
            (format!("a request cost {:.1} times as much CPU at {at}", cpu.ratio), cold.max(cpu.highest_load))
        }
        None if cold >= SELECT_SET => (format!("{} of them belonged to cold connections", grouped(cold)), cold),
        None => return None,
    };
    let server = of_server(run);
    let (scale, both) = (
        format!("straingauge scale -- {server}"),
        format!("straingauge find {} --compare-with scale --cold {idle:.0} -- {server}", requests(run, &["--cold"])),
    );
    finding(
        format!(
            "The server sleeps in select or poll ({} of {} sleeps seen), over up to {} descriptors, and {because}: the \
             cost of a call grows with open descriptors, not ready ones.",
            grouped(in_select),
            grouped(seen),
            grouped(set),
        ),
        format!("To try: `{scale}`; to compare both: `{both}`."),
        &[scale.clone(), both.clone()],
    )
}
