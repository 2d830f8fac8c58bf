//! Counts the packets that crossed the path. The delay line also measures their lateness.

use crate::delay_line::LineState;
use crate::error::{DuringStep, WanError};
use crate::rtnetlink::{LinkDrops, NetemCounts, Route};
use record::units::format_nanos;
use record::{Doubt, DoubtKind, Figures, Latency, Origin, PathMechanism, PathPlan, lock, names};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Maximum 99th percentile of lateness, as a share of the delay. A higher one raises a doubt.
const LATENESS_LIMIT_RATIO: f64 = 0.05;
/// The maximum if there is no delay.
const LATENESS_LIMIT_NS: f64 = 1_000_000.0;

/// Step between the seeds of two changes: 2^64 divided by the golden ratio. It is odd, so that seeds do not repeat
/// even without the top bit, which differs between directions.
const SEED_STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Reads the counters of a path from any thread. Clones share the last reading.
#[derive(Debug, Clone)]
pub struct PathMeter(Arc<MeterState>);

#[derive(Debug)]
struct MeterState {
    plan: PathPlan,
    /// A socket in the namespace and the link's index, for the client and the server.
    ends: [(Mutex<Route>, u32); 2],
    line: Option<Arc<LineState>>,
    before: Mutex<LastCounters>,
    /// The plan's delay, or the last one set.
    delay_ns: AtomicU64,
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct LastCounters {
    cpu_ns: u64,
    netem: [NetemCounts; 2],
    links: [LinkDrops; 2],
}

/// Counts of the path between two readings.
#[derive(Debug, Clone, Default)]
pub struct PathTally {
    /// The plan in force.
    pub plan: PathPlan,
    /// Packets that crossed it in both directions. If segments are merged (pure delay), the delay line counts each
    /// merged packet once, netem its segments.
    pub packets: u64,
    /// Packets lost as planned; `None` with netem, which does not distinguish them from dropped ones.
    pub lost: Option<u64>,
    /// Packets dropped because the path's queue or the receiver's backlog was full. With netem, lost packets are
    /// included.
    pub dropped: u64,
    /// Time from due to delivered, for every packet; `None` with netem.
    pub lateness: Option<Latency>,
    /// CPU time of the delay line.
    pub cpu_ns: Option<u64>,
    /// Why the path stopped, if it did.
    pub failure: Option<String>,
}

impl PathMeter {
    pub(crate) fn new(plan: PathPlan, ends: [(Route, u32); 2], line: Option<Arc<LineState>>) -> Self {
        let ends = ends.map(|(route, index)| (Mutex::new(route), index));
        let delay_ns = AtomicU64::new(plan.delay_ns);
        PathMeter(Arc::new(MeterState {
            plan,
            ends,
            line,
            before: Mutex::default(),
            delay_ns,
            changes: AtomicU64::new(0),
        }))
    }

    /// The current path.
    pub fn plan(&self) -> PathPlan {
        let delay_ns = self.0.delay_ns.load(Ordering::Relaxed);
        let queue_bytes = if delay_ns == self.0.plan.delay_ns {
            self.0.plan.queue_bytes
        } else {
            PathPlan::default_queue_bytes(delay_ns, self.0.plan.bandwidth_bits_per_sec)
        };
        PathPlan { delay_ns, queue_bytes, ..self.0.plan.clone() }
    }

    /// Delays packets by `delay_ns` in each direction from now on. The size of the link's queue changes with it.
    /// Fails on a path without emulation.
    pub fn set_delay(&self, delay_ns: u64) -> Result<(), WanError> {
        let before = self.0.delay_ns.swap(delay_ns, Ordering::Relaxed);
        let plan = self.plan();
        let changed = plan.check().map_err(WanError::from).and_then(|()| match (&self.0.line, plan.mechanism) {
            (Some(line), _) => {
                line.set_delay(plan.delay_ns, plan.queue_bytes);
                Ok(())
            }
            (None, PathMechanism::Netem) => {
                // A change restarts netem's losses. With the same seed, each delay would lose the same packets.
                let plan = reseeded(plan, 1 + self.0.changes.fetch_add(1, Ordering::Relaxed));
                self.0.ends.iter().zip(0..).try_for_each(|((route, index), number)| {
                    let route = lock(route);
                    route.set_netem(*index, &plan, number).during("change the delay of a netem")
                })
            }
            _ => Err(std::io::Error::from(std::io::ErrorKind::Unsupported)).during("delay a bare link"),
        });
        if changed.is_err() {
            self.0.delay_ns.store(before, Ordering::Relaxed);
        }
        changed
    }

    pub(crate) fn is_seeded(&self) -> bool {
        self.netem().is_some_and(|ends| ends.iter().all(|end| end.is_seeded))
    }

    fn of_both<T>(&self, read: fn(&Route, u32) -> std::io::Result<T>) -> Option<[T; 2]> {
        let [client, server] = &self.0.ends;
        let of = |(route, index): &(Mutex<Route>, u32)| read(&lock(route), *index).ok();
        Some([of(client)?, of(server)?])
    }

    fn netem(&self) -> Option<[NetemCounts; 2]> {
        self.of_both(Route::netem_counts)
    }

    /// The counts of the path since the last call on any clone.
    pub fn take(&self) -> PathTally {
        let mut tally = PathTally { plan: self.plan(), ..PathTally::default() };
        let mut before = lock(&self.0.before);
        let links = self.of_both(Route::link_drops).unwrap_or(before.links);
        let links_before = std::mem::replace(&mut before.links, links);
        let link = |end: usize| LinkDrops {
            received: links[end].received.saturating_sub(links_before[end].received),
            sent: links[end].sent.saturating_sub(links_before[end].sent),
        };
        if let Some(line) = &self.0.line {
            let counts = line.take();
            tally.packets = counts.packets;
            tally.lost = Some(counts.lost);
            let by_devices: u64 = [0, 1].into_iter().map(|end| link(end).sent + link(end).received).sum();
            // A device also counts the packets that it refuses as dropped.
            tally.dropped = counts.dropped + by_devices.max(counts.refused);
            tally.lateness = Some(counts.lateness);
            tally.cpu_ns = line.cpu_ns().map(|now| now.saturating_sub(std::mem::replace(&mut before.cpu_ns, now)));
            tally.failure = line.failure();
        } else if self.0.plan.mechanism == PathMechanism::Netem {
            match self.netem() {
                Some(netem) => {
                    let netem_before = std::mem::replace(&mut before.netem, netem);
                    for end in [0, 1] {
                        tally.packets += grown(netem[end].packets, netem_before[end].packets);
                        tally.dropped += grown(netem[end].dropped, netem_before[end].dropped);
                        tally.dropped += link(end).sent.max(link(1 - end).received);
                    }
                }
                None => tally.failure = Some("netem's counters could not be read".into()),
            }
        }
        tally
    }
}

pub fn reseeded(plan: PathPlan, changes: u64) -> PathPlan {
    PathPlan { seed: plan.seed.wrapping_add(changes.wrapping_mul(SEED_STEP)), ..plan }
}

/// The growth of a kernel counter, which may have wrapped around at 32 bits.
pub fn grown(now: u64, before: u64) -> u64 {
    if now >= before { now - before } else { u64::from((now as u32).wrapping_sub(before as u32)) }
}

impl PathTally {
    /// The figures of a point; empty for a bare link.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        if self.plan.mechanism == PathMechanism::Link {
            return figures;
        }
        let none = "no packet crossed the path in the window";
        for (name, value_ns) in [
            (names::PATH_LATENESS_P50, self.lateness_ns(0.5)),
            (names::PATH_LATENESS_P99, self.lateness_ns(0.99)),
            (names::PATH_LATENESS_MAX, self.lateness.as_ref().and_then(Latency::max_ns)),
        ] {
            let why_not = self.lateness.as_ref().map_or("netem does not report when it delivered a packet", |_| none);
            let us = value_ns.map(|nanos| nanos as f64 / 1e3);
            figures.found(name, us, (self.packets, Origin::Timed), why_not);
        }
        let counted = (self.packets, Origin::Counted);
        figures.measured(names::PATH_PACKETS, self.packets as f64, self.packets, Origin::Counted);
        let why_not = "netem does not distinguish lost packets from dropped ones";
        figures.found(names::PATH_LOST, self.lost.map(|lost| lost as f64), counted, why_not);
        figures.measured(names::PATH_DROPPED, self.dropped as f64, self.packets, Origin::Counted);
        let why_not = self.cpu_ns.map_or("netem works in the soft interrupts of the senders", |_| none);
        let cpu_us = self.cpu_ns.filter(|_| self.packets > 0).map(|nanos| nanos as f64 / 1e3 / self.packets as f64);
        figures.found(names::PATH_CPU, cpu_us, counted, why_not);
        figures
    }

    fn lateness_ns(&self, quantile: f64) -> Option<u64> {
        self.lateness.as_ref()?.quantile_ns(quantile)
    }

    /// Reasons not to trust measurements over this path.
    pub fn doubts(&self) -> Vec<Doubt> {
        let mut doubts = Vec::new();
        if let Some(failure) = &self.failure {
            doubts.push(DoubtKind::PathInexact.invalid(
                format!("the path between client and server stopped: {failure}"),
                "repeat the run; straingauge doctor shows what this machine lacks",
            ));
        }
        let limit_ns = match self.plan.delay_ns {
            0 => LATENESS_LIMIT_NS,
            delay_ns => LATENESS_LIMIT_RATIO * delay_ns as f64,
        };
        if let Some(late_ns) = self.lateness_ns(0.99).filter(|late_ns| *late_ns as f64 > limit_ns) {
            let against = match self.plan.delay_ns {
                0 => "without a planned delay".to_string(),
                delay_ns => format!("{:.0} % of the delay", late_ns as f64 / delay_ns as f64 * 100.0),
            };
            doubts.push(DoubtKind::PathInexact.warning(
                format!("the path delivered packets up to {} late at p99, {against}", format_nanos(late_ns as f64)),
                "lower the rate, give the client another CPU with --cpus, or use a kernel with netem",
            ));
        }
        doubts
    }
}
