use crate::link::{WorkerLink, WorkerState};
use record::figure::{Figure, Figures, Origin};
use record::units::{format_nanos, format_si};
use record::{Doubt, DoubtKind, Point, Severity, names};

/// Reaction to the loss of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnLoss {
    /// The others stop, and the measured results are kept.
    End,
    /// The others continue.
    GoOn,
}

/// Maximum uncertainty of a start. A larger one raises a doubt.
const CLOCK_LIMIT_NS: u64 = 1_000_000;

/// The doubt about a lost worker, with its last reported responses. `on_loss` is `None` if the worker had no share of
/// the load.
pub fn loss_doubt(link: &WorkerLink, why: &str, on_loss: Option<OnLoss>) -> Doubt {
    let missed = |rest: &str| {
        let completed = link.progress.completed;
        format!("its {completed} responses in the window are not in the figures; {rest}")
    };
    let (severity, rest) = match on_loss {
        Some(OnLoss::End) => (Severity::Invalid, missed("the others were stopped")),
        Some(OnLoss::GoOn) => (Severity::Warning, missed("the others continued with their shares")),
        None => (Severity::Warning, "it had no share of this load".into()),
    };
    Doubt::new(
        DoubtKind::WorkerLost,
        severity,
        format!("{} was lost: {why}; {rest}", link.name()),
        "check that machine, and measure again",
    )
}

/// Why not all requests of a load are counted, because the workers `lost` were lost while sending.
pub fn uncounted_words(lost: &[&WorkerLink]) -> Option<String> {
    let first = lost.first()?.short_name();
    let others = if lost.len() > 1 { format!(" and {} more were", lost.len() - 1) } else { " was".into() };
    Some(format!("{first}{others} lost, so not all requests of the window are counted"))
}

fn needs_every_request(name: &str) -> bool {
    let of_the_load = [names::THROUGHPUT, names::GOODPUT, names::OFFERED, names::RECEIVED];
    let compared = [names::WATCH_CLIENT_DIFFERENCE, names::WATCH_WHOLE_DIFFERENCE];
    let is_of_the_server = ["server.", "layer.", "slow."].iter().any(|of| name.starts_with(of));
    of_the_load.contains(&name) || compared.contains(&name) || (is_of_the_server && name.ends_with("_per_request"))
}

/// Removes the figures that need all requests from a point. The server's counts (`watch.*`) and the figures of each
/// client stay.
pub fn leave_out_uncounted(point: &mut Point, why: &str) {
    for (name, figure) in &mut point.figures.0 {
        if needs_every_request(name) && figure.value.is_some() {
            *figure = Figure::not_measured(&figure.unit, why);
        }
    }
    point.functions.clear();
    point.with_callees.clear();
}

pub fn clock_doubt(link: &WorkerLink, late_ns: u64) -> Option<Doubt> {
    let uncertain_ns = link.clock.map_or(u64::MAX, |clock| clock.uncertainty_ns);
    if uncertain_ns <= CLOCK_LIMIT_NS && late_ns <= CLOCK_LIMIT_NS {
        return None;
    }
    let what = if late_ns > CLOCK_LIMIT_NS {
        format!("it began {} after the agreed start", format_nanos(late_ns as f64))
    } else {
        format!("its start is known only to {}", format_nanos(uncertain_ns as f64))
    };
    Some(DoubtKind::ClockOffset.note(what, "use a quicker connection to that machine"))
}

#[derive(Debug, Clone, Copy)]
pub struct WorkerPart {
    pub number: usize,
    pub completed: u64,
    pub window_s: f64,
}

/// Figures of each worker's share and clock, such as `worker.1.throughput_per_sec`.
pub fn worker_figures(links: &[WorkerLink], parts: &[WorkerPart]) -> Figures {
    let mut figures = Figures::default();
    for link in links {
        let name = |what: &str| format!("worker.{}.{what}", link.number);
        // There are at most as many shares as links, in the same order.
        let part = parts.binary_search_by_key(&link.number, |part| part.number).ok().map(|place| parts[place]);
        let throughput = match (&link.state, part) {
            (_, Some(part)) => {
                Figure::new(part.completed as f64 / part.window_s, "1/s", part.completed, Origin::Counted)
            }
            (WorkerState::Lost(why), None) => Figure::not_measured("1/s", format!("lost: {why}")),
            _ => Figure::not_measured("1/s", "it had no share of this load"),
        };
        figures.set(&name("throughput_per_sec"), throughput);
        if part.is_some() {
            figures.set(&name("share"), Figure::new(link.share.fraction(), "ratio", 1, Origin::Counted));
        }
        if let (Some(clock), Some(_)) = (link.clock, part) {
            let us = |nanos: f64| Figure::new(nanos / 1e3, "us", clock.exchanges, Origin::Timed);
            figures.set(&name("clock_offset_us"), us(clock.offset_ns as f64));
            figures.set(&name("clock_uncertainty_us"), us(clock.uncertainty_ns as f64));
        }
    }
    figures
}

/// A line such as `client 1 (ssh c1 ...) on c1: 12.3k requests/s, clock known to 40 us`.
pub fn worker_line(link: &WorkerLink, figures: &Figures) -> String {
    let at = if link.host.is_empty() { String::new() } else { format!(" on {}", link.host) };
    let value = |what: &str| figures.value(&format!("worker.{}.{what}", link.number));
    let did = match (&link.state, value("throughput_per_sec")) {
        (WorkerState::Lost(why), _) => format!("lost: {why}"),
        (_, Some(rate)) => format!("{} requests/s", format_si(rate)),
        _ => "no share of this load".into(),
    };
    let clock = value("clock_uncertainty_us").map(|us| format!(", clock known to {}", format_nanos(us * 1e3)));
    format!("{}{at}: {did}{}", link.name(), clock.unwrap_or_default())
}
