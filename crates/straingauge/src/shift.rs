//! `find --shift`: the load is live traffic. The user's command moves a share of it to the server, the watch measures
//! it, and guards return the server to its usual share at once, also if straingauge is killed.

pub mod share;

pub use share::{COMMAND, restore_on_end};

use crate::measured::{MeasuredPoint, measured};
use crate::signals::Stop;
use analyze::zones;
use anyhow::{Result, anyhow, bail};
use load::{LoadEvents, LoadProgress, LoadResult};
use observe::watch::{LiveMark, LiveTraffic, TrafficSpan};
use record::scenario::ShiftPlan;
use record::units::format_si;
use record::{
    Arrival, Criteria, Doubt, DoubtKind, Figure, Figures, LoadCounts, LoadPlan, Origin, Outcomes, Pace, Point, Sweep,
    names,
};
use share::ShareCommand;
use std::collections::VecDeque;

const TICK_NS: u64 = 250_000_000;
/// The guards judge the last two seconds, once there is one.
const RECENT_NS: u64 = 2_000_000_000;
const LEAST_NS: u64 = 1_000_000_000;
/// Rates at one share that differ by less count as one load.
const SAME_RATE: f64 = 0.05;
/// A larger share must bring at least this part of the expected increase.
const MOVED: f64 = 0.2;
/// Turns between the usual share and another one, to see whether the command moves traffic.
const TURNS: usize = 6;
/// The smallest expected increase that is checked.
const TELLING: f64 = 1.1;
/// Requests in flight must change by more than this part of the answered ones.
const TELLING_PART: u64 = 10;
/// A server whose mean response time grew by more may be full, so that a larger share brings no more answers.
const SLOWER: f64 = 1.5;

pub struct Shift {
    traffic: LiveTraffic,
    share: ShareCommand,
    criteria: Criteria,
    /// Shares that were held, with their rate and mean response time.
    known: Vec<RateAtShare>,
}

#[derive(Debug, Clone, Copy)]
struct RateAtShare {
    share: f64,
    rate_per_sec: f64,
    mean_us: f64,
}

impl Shift {
    /// Attaches the watch, starts the watchdog, and sets the usual share.
    pub fn start(port: u16, plan: &ShiftPlan, criteria: Criteria) -> Result<Shift> {
        let traffic = LiveTraffic::start(port).map_err(|why| {
            anyhow!("live traffic cannot be watched: {why}; run straingauge doctor on the server's machine")
        })?;
        let share = ShareCommand::guarded(plan)?;
        let mut shift = Shift { traffic, share, criteria, known: Vec::new() };
        // Shows at once whether the command works.
        shift.share.set(plan.usual)?;
        Ok(shift)
    }

    pub fn turn_to(&mut self, share: f64) -> Result<()> {
        if self.share.now() == share { Ok(()) } else { self.share.set(share) }
    }

    /// The rate expected at this share; 0 if none is known.
    pub fn expected_per_sec(&self, share: f64) -> f64 {
        let nearest = self.known.iter().min_by(|a, b| (a.share - share).abs().total_cmp(&(b.share - share).abs()));
        nearest.map_or(0.0, |known| known.rate_per_sec * share / known.share)
    }

    /// Measures the traffic at the current share for the length of the plan, or until a guard steps back.
    pub fn measure(
        &mut self,
        plan: &LoadPlan,
        repeat: u32,
        stop: &Stop,
        events: &mut dyn LoadEvents,
    ) -> Result<MeasuredPoint> {
        let share = self.share.now();
        let begin = self.traffic.mark();
        let window_ns = begin.at_ns() + plan.warmup_ns;
        let end_ns = window_ns + plan.duration_ns;
        let (mut recent, mut window) = (VecDeque::from([begin.clone()]), None);
        let started_unix_ms = record::time::unix_ms();
        let mut stepped_back_s = None;
        let last = loop {
            let before_ns = recent.back().map_or(0, LiveMark::at_ns);
            let due_ns = if window.is_none() { window_ns } else { end_ns };
            self.traffic.wait_until((before_ns + TICK_NS).min(due_ns), stop.flag());
            let now = self.traffic.mark();
            if now.is_gone {
                bail!("the server's processes are gone: it ended or restarted");
            }
            if window.is_none() && now.at_ns() >= window_ns {
                events.window_begins();
                window = Some(now.clone());
            }
            while recent.get(1).is_some_and(|second| now.at_ns() - second.at_ns() >= RECENT_NS) {
                recent.pop_front();
            }
            let of_recent = now.since(&recent[0]);
            let elapsed_ns = now.at_ns() - begin.at_ns();
            let completed = window.as_ref().map_or(0, |window| now.since(window).answered);
            events.progress(&LoadProgress {
                elapsed_ns,
                connected: of_recent.connections,
                completed,
                failed: of_recent.dropped,
                throughput_per_sec: per_sec(&of_recent),
                in_warmup: window.is_none(),
                apart: None,
            });
            // At the usual share there is nothing to step back to.
            let is_failing = share > self.share.usual() && self.is_failing(&now, &begin, &of_recent);
            if is_failing {
                stepped_back_s = Some(elapsed_ns as f64 / 1e9);
                self.share.restore()?;
            }
            recent.push_back(now.clone());
            if is_failing || stop.is_set() || (window.is_some() && now.at_ns() >= end_ns) || events.should_abort() {
                break now;
            }
        };
        if window.is_some() {
            events.window_ends();
        }
        let from = match (&window, stepped_back_s) {
            (Some(window), None) => window,
            // The rate and the times are those that made the guard step back.
            _ => &recent[0],
        };
        let seen = last.since(from);
        let mut result = result(&seen);
        result.started_unix_ms = started_unix_ms;
        result.warmup_ns = from.at_ns() - begin.at_ns();
        result.interrupted = stop.is_set() && last.at_ns() < end_ns && stepped_back_s.is_none();
        let mut measured = self.point(share, repeat, &seen, result);
        if let Some(seconds) = stepped_back_s {
            measured.point.figures.measured(names::LIVE_STEPPED_BACK, seconds, 1, Origin::Timed);
        } else if !measured.result.interrupted {
            self.remember(share, &measured.point, stop)?;
        }
        Ok(measured)
    }

    /// Whether the last seconds, or the whole point so far, fail by the run's criteria.
    fn is_failing(&self, now: &LiveMark, begin: &LiveMark, recent: &TrafficSpan) -> bool {
        let fails = |seen: &TrafficSpan| {
            let is_late = late_quantile_ns(seen).is_some_and(|nanos| nanos > self.criteria.p99_limit_ns);
            let is_failed = || {
                let [read, errors] = seen.statuses;
                let is_chance = (errors as f64) <= read as f64 * beyond_chance(self.criteria.error_ratio, read);
                let statuses = if is_chance { [read, 0] } else { seen.statuses };
                let seen = TrafficSpan { statuses, ..seen.clone() };
                zones::fails(&self.point(0.0, 0, &seen, result(&seen)).point, &self.criteria)
            };
            seen.span_ns >= LEAST_NS && (is_late || is_failed())
        };
        fails(recent) || fails(&now.since(begin))
    }

    fn point(&self, share: f64, repeat: u32, seen: &TrafficSpan, result: LoadResult) -> MeasuredPoint {
        let sent_per_sec = result.counts.outcomes.sent as f64 * 1e9 / seen.span_ns as f64;
        // Live rates vary, but repeats of a share are one load.
        let known = self.known.iter().filter(|known| known.share == share).map(|known| known.rate_per_sec);
        let rate_per_sec = known.into_iter().find(|known| (sent_per_sec / known - 1.0).abs() < SAME_RATE);
        let pace =
            Pace::Open { rate_per_sec: rate_per_sec.unwrap_or(sent_per_sec).max(1e-3), arrival: Arrival::Series };
        let figures = figures(share, seen, &result);
        let mut measured = measured(Sweep::Rate, repeat, (seen.connections, pace), result, figures);
        measured.point.doubts.extend(unread_statuses(seen));
        measured
    }

    /// Records a share, and checks that the command moves traffic.
    fn remember(&mut self, share: f64, point: &Point, stop: &Stop) -> Result<()> {
        let value = |name| point.value(name).unwrap_or(0.0);
        let now = RateAtShare { share, rate_per_sec: value(names::OFFERED), mean_us: value(names::RESPONSE_MEAN) };
        if self.known.is_empty() && now.rate_per_sec == 0.0 {
            bail!("no request came at the usual share: check that this is the server's port, and that it has traffic");
        }
        let before = self.known.iter().filter(|known| known.share < share);
        let before = before.max_by(|a, b| a.share.total_cmp(&b.share)).copied();
        if let Some(before) = before {
            let is_slower = now.mean_us > SLOWER * before.mean_us;
            let has_moved = has_moved([before.share, share], [before.rate_per_sec, now.rate_per_sec]);
            // Traffic may just have fallen.
            if !has_moved && !is_slower && !self.moves(share, stop)? {
                bail!(
                    "the command reported share {} as set, but the server got no more requests than at share {}: check \
                     that the command moves traffic to this server",
                    format_si(share),
                    format_si(self.share.usual())
                );
            }
        }
        if !zones::fails(point, &self.criteria) && self.known.iter().all(|known| known.share != share) {
            self.known.push(now);
        }
        Ok(())
    }

    /// Whether the server gets more at this share than at the usual one, in turns.
    fn moves(&mut self, share: f64, stop: &Stop) -> Result<bool> {
        let shares = [self.share.usual(), share];
        let mut rates = [0.0; 2];
        for turn in 0..TURNS {
            self.share.set(shares[turn % 2])?;
            let set_ns = self.traffic.mark().at_ns();
            self.traffic.wait_until(set_ns + LEAST_NS, stop.flag());
            let begin = self.traffic.mark();
            self.traffic.wait_until(begin.at_ns() + LEAST_NS, stop.flag());
            rates[turn % 2] += per_sec(&self.traffic.mark().since(&begin));
        }
        Ok(has_moved(shares, rates) || stop.is_set())
    }
}

/// The share of `n` requests that only chance would not explain, if this share is permitted.
fn beyond_chance(permitted: f64, n: u64) -> f64 {
    const DEVIATIONS: f64 = 3.0;
    permitted + DEVIATIONS * (permitted * (1.0 - permitted) / n as f64).sqrt()
}

/// The quantile that shows, beyond chance, whether more than 1 % of the requests are late; `None` with few requests.
fn late_quantile_ns(seen: &TrafficSpan) -> Option<u64> {
    const LEAST_REQUESTS: u64 = 50;
    let n = seen.response.len();
    seen.response.quantile_ns(1.0 - beyond_chance(0.01, n)).filter(|_| n >= LEAST_REQUESTS)
}

/// Whether the rate grew with the share, if both were increased from the first to the second.
fn has_moved(shares: [f64; 2], rates: [f64; 2]) -> bool {
    let expected = shares[1] / shares[0];
    expected < TELLING || rates[1] >= rates[0] * (1.0 + MOVED * (expected - 1.0))
}

fn per_sec(seen: &TrafficSpan) -> f64 {
    seen.answered as f64 * 1e9 / seen.span_ns as f64
}

fn result(seen: &TrafficSpan) -> LoadResult {
    // Ignores normal variation of the number in flight; a growing queue exceeds it.
    let is_telling = seen.in_flight_change.unsigned_abs() > seen.answered / TELLING_PART;
    let change = if is_telling { seen.in_flight_change } else { 0 };
    let (grown, shrunk) = (change.max(0) as u64, change.min(0).unsigned_abs());
    let finished = seen.answered + seen.dropped;
    let [read, errors] = seen.statuses;
    let failed = (seen.answered as f64 * errors as f64 / read.max(1) as f64).round() as u64;
    let ok = seen.answered.saturating_sub(failed);
    let outcomes = Outcomes {
        sent: (finished + grown).saturating_sub(shrunk),
        carried_in: shrunk.min(finished + grown),
        ok,
        non_2xx: seen.answered - ok,
        refused: seen.dropped,
        unfinished: grown,
        ..Outcomes::default()
    };
    let mut counts = LoadCounts {
        outcomes,
        completed_in_window: seen.answered,
        ok_in_window: ok,
        sent_bytes: seen.bytes[0],
        received_bytes: seen.bytes[1],
        received_in_window_bytes: seen.bytes[1],
        ..LoadCounts::default()
    };
    counts.times.response = seen.response.clone();
    LoadResult { window_ns: seen.span_ns, counts, ..LoadResult::default() }
}

fn figures(share: f64, seen: &TrafficSpan, result: &LoadResult) -> Figures {
    let mut figures = Figures::default();
    let (n, seconds) = (seen.answered, seen.span_ns as f64 / 1e9);
    let sent = result.counts.outcomes.sent;
    let counted = [(names::THROUGHPUT, n), (names::GOODPUT, result.counts.ok_in_window), (names::OFFERED, sent)];
    for (name, count) in counted.into_iter().chain([(names::RECEIVED, seen.bytes[1])]) {
        figures.measured(name, count as f64 / seconds, count, Origin::Counted);
    }
    load::response_times(&mut figures, &seen.response);
    figures.found(names::LIVE_WAIT, seen.wait_ns.map(|nanos| nanos / 1e3), (n, Origin::Sampled), "no request ended");
    figures.set(names::LIVE_SHARE, Figure::new(share, "1", 1, Origin::Counted));
    figures
}

/// A warning if most answers have no status line that can be read.
fn unread_statuses(seen: &TrafficSpan) -> Option<Doubt> {
    let is_unread = seen.answered >= 10 && seen.statuses[0] < seen.answered / 2;
    is_unread.then(|| {
        DoubtKind::NotWatched.warning(
            "the status of most answers could not be read: they are not HTTP/1, encrypted in the server, or written by \
             io_uring",
            "watch the load balancer's count of errors: a server that answers errors in time is not noticed here",
        )
    })
}

/// The note that every run on live traffic has.
pub fn seen_from_the_server() -> Doubt {
    DoubtKind::NotWatched.note(
        "the load was live traffic: response times are measured at the server's sockets, without the network",
        "compare them with those of the load balancer",
    )
}

/// Describes a step back for the progress lines.
pub fn stepped_back(point: &Point, criteria: &Criteria) -> Option<String> {
    let seconds = point.value(names::LIVE_STEPPED_BACK)?;
    let why = zones::crossed(point, criteria).unwrap_or_default().join(", ");
    let share = format_si(point.value(names::LIVE_SHARE).unwrap_or(0.0));
    Some(format!("share {share}, back to the usual one after {seconds:.1} s: {why}"))
}
