//! An axis in words.

use super::layers::{LayersAt, OVERALL};
use super::slow_down::{CHEAPER_RATIO, Effect};
use super::{AxisFindings, FigureChange};
use record::Estimate;
use record::units::{format_bytes, format_nanos, format_si, grouped, percent};
use record::{Axis, AxisPlace, SlowPlace};

/// A smaller change, or one whose interval contains no change, is reported as no change.
const LEAST_CHANGE: f64 = 0.02;

/// A value with its unit: `2,000 cold connections`, `20.0k/s`.
pub fn value_words(value: f64, axis: Axis) -> String {
    let one = |name: &str| if value == 1.0 { format!("1 {name}") } else { format!("{} {name}s", grouped(value)) };
    match axis {
        Axis::Rate => format!("{}/s", format_si(value)),
        Axis::Delay => format!("{} of delay", format_nanos(value)),
        Axis::InFlight => format!("{} in flight on a connection", one("request")),
        Axis::Cold => one("cold connection"),
        Axis::TimeWait => one("TIME_WAIT socket"),
        Axis::Connections | Axis::Conforming => one("connection"),
        Axis::SlowDown if value == 0.0 => "nothing added".into(),
        Axis::SlowDown => format!("{} added", format_nanos(value)),
        Axis::Cpus => one("CPU"),
        Axis::Other => format_si(value),
    }
}

/// A point's place on its axis: `5 us added to each packet sent`.
pub fn place_words(place: AxisPlace) -> String {
    let value = value_words(place.value, place.axis);
    place.slowed.map_or(value.clone(), |slowed| format!("{value} to {}", slowed_words(slowed)))
}

/// Name of the place that is slowed down.
pub fn slowed_words(place: SlowPlace) -> &'static str {
    match place {
        SlowPlace::Receive => "each packet received",
        SlowPlace::Send => "each packet sent",
        SlowPlace::WakeUp => "each wake-up of the server",
        SlowPlace::Request => "each read of a request",
        SlowPlace::Accept => "each accepted connection",
        SlowPlace::FileRead => "each read of a file",
        SlowPlace::Function => "each call of the function",
        SlowPlace::Lock => "each release of a lock that others wait for",
        SlowPlace::KernelLock => "each lock of the kernel that was waited for",
    }
}

/// Smaller gains and losses count as no effect. If a place took all of a request's time, the gain would be 1.25
/// times.
const SMALL_GAIN: f64 = 0.1;

/// `the throughput would be 1.21 times (1.15 to 1.28)`, or the reason why that is not known.
pub fn effect_words(effect: Option<&Effect>) -> String {
    let Some(effect) = effect else { return "not measured: requests reach it too rarely".into() };
    let Some(gain) = effect.gain_ratio else {
        return if effect.is_client_limited {
            "not measured: the client was saturated, not the server".into()
        } else {
            "not measured: no throughput of a closed loop".into()
        };
    };
    let Some((low, high)) = gain.low.zip(gain.high) else {
        return "not measured: too few repeats for an interval".into();
    };
    if effect.is_shown() {
        format!("{:.2} times the throughput ({low:.2} to {high:.2})", gain.value)
    } else if (1.0 - low).max(high - 1.0) <= SMALL_GAIN {
        format!("no measurable effect ({low:.2} to {high:.2})")
    } else {
        format!("undecided ({low:.2} to {high:.2} times the throughput)")
    }
}

fn effect_sentence(findings: &AxisFindings) -> Option<String> {
    let place = slowed_words(findings.slowed?);
    let cheaper = percent(CHEAPER_RATIO);
    Some(format!("If {place} took {cheaper} of a request's CPU time less: {}.", effect_words(findings.effect.as_ref())))
}

/// A value without its unit, for tables.
pub fn value_cell(value: f64, axis: Axis) -> String {
    match axis {
        Axis::Rate => format_si(value),
        Axis::Delay | Axis::SlowDown => format_nanos(value),
        _ => grouped(value),
    }
}

fn ends(findings: &AxisFindings) -> String {
    match (findings.levels.first(), findings.levels.last()) {
        (Some(first), Some(last)) => {
            format!("between {} and {}", value_cell(first.value, findings.axis), value_words(last.value, findings.axis))
        }
        _ => String::new(),
    }
}

/// ` (+55 %, 50 % to 61 % in 5 repeats)`.
fn by(ratio: &Estimate) -> String {
    let signed = |ratio: f64| format!("{:+.0} %", (ratio - 1.0) * 100.0);
    let interval =
        ratio.interval().map_or(String::new(), |(low, high)| format!(", {} to {}", signed(low), signed(high)));
    let repeats = record::units::count(ratio.n, "repeat");
    format!(" ({}{interval}, within {repeats})", signed(ratio.value))
}

fn is_flat(ratio: &Estimate) -> bool {
    let around_none = ratio.interval().is_some() && !ratio.excludes(1.0);
    (ratio.value - 1.0).abs() < LEAST_CHANGE || around_none
}

/// `CPU per request grew from 5.1 to 7.9 us between 0 and 2,000 cold connections (+55 %, ...).`
fn change_sentence(name: &str, change: &FigureChange, ends: &str, words: impl Fn(f64) -> String) -> String {
    let (from, to, by) = (words(change.from), words(change.to), by(&change.ratio));
    match change.ratio.value > 1.0 {
        _ if is_flat(&change.ratio) => format!("{name} did not change measurably {ends}: {from} and {to}{by}."),
        true => format!("{name} grew from {from} to {to} {ends}{by}."),
        false => format!("{name} fell from {from} to {to} {ends}{by}."),
    }
}

/// The most important finding of an axis, in one sentence.
pub fn headline(findings: &AxisFindings) -> Option<String> {
    let ends = ends(findings);
    if let Some(sentence) = whole_stack(findings) {
        return Some(sentence);
    }
    match findings.axis {
        Axis::Conforming => conforming(findings),
        Axis::Rate => overload(findings),
        Axis::SlowDown => effect_sentence(findings),
        Axis::Cpus => throughput(findings),
        _ => findings
            .cpu_change
            .as_ref()
            .map(|change| change_sentence("CPU per request", change, &ends, |us| format!("{us:.1} us")))
            .or_else(|| throughput(findings)),
    }
}

/// CPU time of the whole stack per packet, if points were profiled per packet.
fn whole_stack(findings: &AxisFindings) -> Option<String> {
    let layers = findings.layers.as_ref()?;
    let Some(change) = layers.changes.iter().find(|change| change.layer == OVERALL) else {
        // There may be only one value, so that no repeat has both ends.
        let cost = |level: &LayersAt| Some((level.value, level.cost(OVERALL)?.us_per_packet?.value));
        let (value, us) = layers.levels.iter().find_map(cost)?;
        let at = value_words(value, findings.axis);
        return Some(format!("The network stack took {} of CPU time for a packet sent, at {at}.", packet_us(us)));
    };
    Some(change_sentence("CPU time of the network stack per packet sent", &change.us, &ends(findings), packet_us))
}

fn packet_us(us: f64) -> String {
    format!("{us:.2} us")
}

fn layers(findings: &AxisFindings) -> Vec<String> {
    const MOST_LAYERS: usize = 3;
    let Some(layers) = &findings.layers else { return Vec::new() };
    let mut changed: Vec<_> =
        layers.changes.iter().filter(|change| change.layer != OVERALL && !is_flat(&change.us.ratio)).collect();
    changed.sort_by(|a, b| (b.us.to - b.us.from).abs().total_cmp(&(a.us.to - a.us.from).abs()));
    if changed.is_empty() {
        return vec![format!("No layer's CPU time per packet changed measurably {}.", ends(findings))];
    }
    let words = |change: &&super::layers::LayerChange| {
        format!(
            "{} from {} to {}{}",
            change.layer,
            packet_us(change.us.from),
            packet_us(change.us.to),
            by(&change.us.ratio)
        )
    };
    let sentences: Vec<String> = changed.iter().take(MOST_LAYERS).map(words).collect();
    vec![format!("By layer, the largest changes: {}.", sentences.join("; "))]
}

fn throughput(findings: &AxisFindings) -> Option<String> {
    let change = findings.throughput_change.as_ref()?;
    Some(change_sentence("Throughput", change, &ends(findings), |rate| format!("{}/s", format_si(rate))))
}

fn conforming(findings: &AxisFindings) -> Option<String> {
    let found = findings.conforming.as_ref()?;
    let share =
        if found.demanded_ratio >= 1.0 { "All".into() } else { format!("At least {}", percent(found.demanded_ratio)) };
    Some(match (found.held, found.failed) {
        (Some(held), Some(failed)) => {
            format!("{share} of up to {} conform, but not of {}.", value_words(held, Axis::Conforming), grouped(failed))
        }
        (Some(held), None) => {
            format!("{share} of up to {} conform, the most tried.", value_words(held, Axis::Conforming))
        }
        (None, Some(failed)) => format!("Even {} do not conform.", value_words(failed, Axis::Conforming)),
        (None, None) => "Whether connections conform was not measured.".into(),
    })
}

fn overload(findings: &AxisFindings) -> Option<String> {
    let goodput = |level: &super::AxisLevel| Some((level.value, level.goodput_per_sec?.value));
    let (peak_at, peak) = findings.levels.iter().filter_map(goodput).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let (last_at, last) = findings.levels.iter().rev().find_map(goodput)?;
    if last_at <= peak_at {
        return Some(format!(
            "Goodput followed the offered load up to {}/s, the highest rate offered.",
            format_si(last_at)
        ));
    }
    let kept = last / peak.max(f64::MIN_POSITIVE);
    Some(format!(
        "Goodput peaked at {}/s with {}/s offered; at {}/s offered ({:.1} times as much) it was {}/s, {} of the peak.",
        format_si(peak),
        format_si(peak_at),
        format_si(last_at),
        last_at / peak_at,
        format_si(last),
        percent(kept)
    ))
}

/// The remaining sentences.
pub fn sentences(findings: &AxisFindings) -> Vec<String> {
    if findings.axis == Axis::SlowDown {
        return Vec::new();
    }
    let ends = ends(findings);
    let mut said = layers(findings);
    said.extend(findings.scaling.iter().flat_map(super::cpus::sentences));
    let is_cost = !matches!(findings.axis, Axis::Rate | Axis::Conforming | Axis::Cpus);
    if is_cost {
        if findings.cpu_change.is_some() {
            said.extend(throughput(findings));
        } else {
            said.push("The server's CPU was not measured, so the cost of a request is not known.".into());
        }
    } else if let Some(change) = &findings.cpu_change {
        said.push(change_sentence("CPU per request", change, &ends, |us| format!("{us:.1} us")));
    }
    if let Some(change) = &findings.p50_change {
        said.push(change_sentence("The median response time", change, &ends, |us| format_nanos(us * 1e3)));
    }
    if let Some(change) = &findings.p99_change {
        said.push(change_sentence("The response time's p99", change, &ends, |us| format_nanos(us * 1e3)));
    }
    if let Some((present, bytes)) = findings.levels.last().and_then(|level| Some((level.present?, level.kernel_bytes?)))
        && present.value > 0.0
    {
        let whose = if findings.axis == Axis::Cold { " (both ends if the server is on this machine)" } else { "" };
        said.push(format!(
            "{} took {} of kernel memory, {} each{whose}.",
            value_words(present.value.round(), findings.axis),
            format_bytes(bytes.value),
            format_bytes(bytes.value / present.value)
        ));
    }
    said
}
