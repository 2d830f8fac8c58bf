//! A pack in use: when its windows are held, what its functions showed, and what reads and sends showed of the same requests.

use super::classes::SizeClasses;
use super::layout::PhaseRow;
use super::pack::Pack;
use super::pack_places::Place;
use super::phases::PhaseSums;
use super::probe_cost::ProbeCosts;
use super::reading::{ClassTotals, PackTotals};
use std::time::Duration;

/// A window in which functions are probed is short: probes cost more than all else together.
pub const PACK_WINDOW: Duration = Duration::from_millis(100);
/// Time between such windows at best.
const SHORTEST_PERIOD: Duration = Duration::from_secs(2);
/// More seldom than this a window says nothing about the present.
const LONGEST_PERIOD: Duration = Duration::from_secs(120);
/// Of the budget of the whole watch.
pub const PACK_SHARE: f64 = 0.5;

/// Probes and sums.
#[derive(Debug)]
pub struct ActivePack {
    name: String,
    /// Functions to probe.
    pub places: Vec<Place>,
    costs: ProbeCosts,
    by_functions: PhaseSums,
    by_events: PhaseSums,
    next_ns: Option<u64>,
    period: Duration,
    windows: u64,
    window_ns: u64,
}

impl ActivePack {
    /// Nothing is held yet: what a request costs the server has to be known first.
    pub fn new(pack: &Pack, places: Vec<Place>, costs: ProbeCosts, classes: usize) -> Self {
        ActivePack {
            name: pack.server.clone(),
            places,
            costs,
            by_functions: PhaseSums::new(classes),
            by_events: PhaseSums::new(classes),
            next_ns: None,
            period: LONGEST_PERIOD,
            windows: 0,
            window_ns: 0,
        }
    }

    /// When the next window opens; `None` while that is not known.
    pub fn next_ns(&self) -> Option<u64> {
        self.next_ns
    }

    /// Chooses the period: the probes of a request, as a share of what the request costs the server, within this part of the
    /// budget.
    pub fn adapt(&mut self, now_ns: u64, cpu_per_request_ns: f64, budget: f64) {
        let window_share = self.request_ns() / cpu_per_request_ns;
        let wanted = PACK_WINDOW.as_secs_f64() * window_share / (budget * PACK_SHARE).max(1e-9);
        if wanted.is_finite() {
            let bounded = wanted.clamp(SHORTEST_PERIOD.as_secs_f64(), LONGEST_PERIOD.as_secs_f64());
            self.period = Duration::from_secs_f64(bounded);
        }
        if self.next_ns.is_none() {
            self.next_ns = Some(now_ns);
        }
    }

    /// What the probes add to a request: one hit for each boundary, the dearest where there are several.
    fn request_ns(&self) -> f64 {
        let of_boundary = |boundary: u64| {
            let places = self.places.iter().filter(move |place| place.boundary == boundary);
            places.map(|place| self.costs.of(place.at_return)).fold(0.0, f64::max)
        };
        (1..=3).map(of_boundary).sum()
    }

    /// A window was held: what the functions showed (all so far), and what reads and sends showed of the same requests (new).
    pub fn held(
        &mut self,
        now_ns: u64,
        opened_ns: u64,
        functions: impl Iterator<Item = PhaseRow>,
        events: &[PhaseRow],
        sizes: &SizeClasses,
    ) {
        self.windows += 1;
        self.window_ns += now_ns.saturating_sub(opened_ns);
        self.by_functions.add_window(functions, std::iter::empty(), 0, sizes);
        self.by_events.add_rows(events);
        self.next_ns = Some(now_ns + self.period.as_nanos() as u64);
    }

    /// Nothing more is held.
    pub fn suspend(&mut self) {
        self.next_ns = None;
    }

    /// As a reading shows it; `hits` of functions so far.
    pub fn totals(&self, classes: usize, hits: u64) -> PackTotals {
        // Not divided anew by the exact CPU time: what the probes cost is in these phases, and is to be seen.
        let raw = vec![ClassTotals::default(); classes];
        PackTotals {
            server: self.name.clone(),
            windows: self.windows,
            window_ns: self.window_ns,
            call_ns: self.costs.call_ns,
            return_ns: self.costs.return_ns,
            request_ns: self.request_ns(),
            period_ns: self.period.as_nanos() as u64,
            hits,
            by_functions: self.by_functions.totals(0.0, &raw),
            by_events: self.by_events.totals(0.0, &raw),
        }
    }

    /// What all hits so far cost.
    pub fn cost_ns(&self, hits: u64) -> f64 {
        hits as f64 * self.request_ns() / 3.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack() -> ActivePack {
        let place = |boundary, at_return| Place { path: "/bin/true".into(), offset: 1, boundary, at_return };
        let costs = ProbeCosts { call_ns: 2_000.0, return_ns: 4_000.0 };
        let places = vec![place(1, false), place(2, false), place(3, true)];
        ActivePack::new(&Pack::open("nginx").unwrap(), places, costs, 4)
    }

    #[test]
    fn windows_are_as_rare_as_the_budget_wants() {
        let mut pack = pack();
        assert_eq!(pack.next_ns(), None, "nothing is known of a request yet");
        // 8 us of probes on a request of 10 us, a tenth of a second of it: 0.5 % of the time is 16 s.
        pack.adapt(7, 10_000.0, 0.01);
        assert_eq!(pack.next_ns(), Some(7));
        pack.held(100, 50, std::iter::empty(), &[], &SizeClasses::default());
        assert_eq!(pack.next_ns(), Some(100 + 16_000_000_000));
        pack.adapt(7, 10_000_000.0, 0.01);
        pack.held(100, 50, std::iter::empty(), &[], &SizeClasses::default());
        assert_eq!(pack.next_ns(), Some(100 + SHORTEST_PERIOD.as_nanos() as u64));
        assert_eq!(pack.totals(4, 6).request_ns, 8_000.0);
        assert!((pack.cost_ns(6) - 16_000.0).abs() < 1e-6);
    }
}
