//! What is told of each worker: its loss, its clock, its part of the load.

use crate::link::{Link, Stand};
use record::figure::{Figure, Figures, Origin};
use record::units::{format_nanos, format_si};
use record::{Doubt, DoubtKind, Point, Severity, names};

/// What a lost worker means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnLoss {
    /// The others stop; what was measured is kept.
    End,
    /// The others go on.
    GoOn,
}

/// A start that is less certain than this is doubted.
const CLOCK_LIMIT_NS: u64 = 1_000_000;

/// A worker is gone, and with it what it had reported.
pub fn loss_doubt(link: &Link, why: &str, on_loss: OnLoss) -> Doubt {
    let (severity, rest) = match on_loss {
        OnLoss::End => (Severity::Invalid, "the others were stopped"),
        OnLoss::GoOn => (Severity::Warning, "the others went on with their shares"),
    };
    Doubt::new(
        DoubtKind::WorkerLost,
        severity,
        format!(
            "{} was lost: {why}; the {} responses of the window that it had reported are not in the figures; {rest}",
            link.name(),
            link.progress.completed
        ),
        "see what became of that machine, and measure again",
    )
}

/// Why the requests of a load are not all counted: these workers were lost while they sent it.
pub fn uncounted_words(lost: &[&Link]) -> Option<String> {
    let first = lost.first()?.short_name();
    let others = if lost.len() > 1 { format!(" and {} more were", lost.len() - 1) } else { " was".into() };
    Some(format!("{first}{others} lost, so the requests of the window are not all counted"))
}

/// Whether a figure is a rate of the whole load, or divided by or compared with the requests that the clients count.
fn needs_every_request(name: &str) -> bool {
    let of_the_load = [names::THROUGHPUT, names::GOODPUT, names::OFFERED, names::RECEIVED];
    let compared = [names::WATCH_CLIENT_DIFFERENCE, names::WATCH_WHOLE_DIFFERENCE];
    let is_of_the_server = name.starts_with("server.") || name.starts_with("layer.");
    of_the_load.contains(&name) || compared.contains(&name) || (is_of_the_server && name.ends_with("_per_request"))
}

/// Takes the figures out of a point that rest on requests which nobody counted. What the server's side counted by itself
/// (`watch.*`), and what each of the other clients did, stays.
pub fn leave_out_uncounted(point: &mut Point, why: &str) {
    for (name, figure) in &mut point.figures.0 {
        if needs_every_request(name) && figure.value.is_some() {
            *figure = Figure::not_measured(&figure.unit, why);
        }
    }
    point.functions.clear();
}

/// The start of a worker was not that of the others, or nobody knows.
pub fn clock_doubt(link: &Link, late_ns: u64) -> Option<Doubt> {
    let uncertain_ns = link.clock.map_or(u64::MAX, |clock| clock.uncertainty_ns);
    if uncertain_ns <= CLOCK_LIMIT_NS && late_ns <= CLOCK_LIMIT_NS {
        return None;
    }
    let what = if late_ns > CLOCK_LIMIT_NS {
        format!("{} began {} after the agreed start", link.name(), format_nanos(late_ns as f64))
    } else {
        format!("the start of {} is known to {} only", link.name(), format_nanos(uncertain_ns as f64))
    };
    Some(Doubt::new(DoubtKind::ClockOffset, Severity::Note, what, "use a quicker connection to that machine"))
}

/// What a worker did in a load.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The worker's.
    pub number: usize,
    /// Responses inside the window.
    pub completed: u64,
    /// Length of its window, seconds.
    pub window_s: f64,
}

/// What each worker did, and its clock: `worker.1.throughput_per_sec`.
pub fn worker_figures(links: &[Link], parts: &[Part]) -> Figures {
    let mut figures = Figures::default();
    for link in links {
        let name = |what: &str| format!("worker.{}.{what}", link.number);
        // As many parts as links at most, in their order.
        let part = parts.binary_search_by_key(&link.number, |part| part.number).ok().map(|place| parts[place]);
        let throughput = match (&link.stand, part) {
            (_, Some(part)) => {
                Figure::new(part.completed as f64 / part.window_s, "1/s", part.completed, Origin::Counted)
            }
            (Stand::Lost(why), None) => Figure::not_measured("1/s", format!("lost: {why}")),
            _ => Figure::not_measured("1/s", "it had no share of this load"),
        };
        figures.set(&name("throughput_per_sec"), throughput);
        if let (Some(clock), Some(_)) = (link.clock, part) {
            let us = |nanos: f64| Figure::new(nanos / 1e3, "us", clock.exchanges, Origin::Timed);
            figures.set(&name("clock_offset_us"), us(clock.offset_ns as f64));
            figures.set(&name("clock_uncertainty_us"), us(clock.uncertainty_ns as f64));
        }
    }
    figures
}

/// `client 1 (ssh c1 ...) on c1: 12.3k requests/s, clock known to 40 us`.
pub fn worker_line(link: &Link, figures: &Figures) -> String {
    let at = if link.host.is_empty() { String::new() } else { format!(" on {}", link.host) };
    let value = |what: &str| figures.value(&format!("worker.{}.{what}", link.number));
    let did = match (&link.stand, value("throughput_per_sec")) {
        (Stand::Lost(why), _) => format!("lost: {why}"),
        (_, Some(rate)) => format!("{} requests/s", format_si(rate)),
        _ => "no share of this load".into(),
    };
    let clock = value("clock_uncertainty_us").map(|us| format!(", clock known to {}", format_nanos(us * 1e3)));
    format!("{}{at}: {did}{}", link.name(), clock.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cost_of_a_request_that_the_client_counts_is_known() {
        // Counted by the server's side, or by the same client that is charged.
        let has_requests_of_its_own = |name: &str| name.starts_with("watch.") || name == names::CLIENT_CPU;
        for (name, ..) in names::ALL.iter() {
            let is_per_request = name.contains("per_request");
            assert!(!is_per_request || has_requests_of_its_own(name) || needs_every_request(name), "{name}");
        }
        assert!(!needs_every_request(names::SERVER_CPUS_USED) && !needs_every_request(names::RESPONSE_P99));
    }
}
