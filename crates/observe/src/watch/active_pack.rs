//! A pack in use: when its windows open, the measurements of its functions, and those of reads and sends for the same
//! requests.

use super::classes::SizeClasses;
use super::pack::Pack;
use super::pack_places::PackPlace;
use super::phases::PhaseSums;
use super::probe_cost::ProbeCosts;
use crate::bpf::types::watch::PhaseRow;
use record::watch::{ClassTotals, PackTotals};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Windows with probes are short, because probes cost more than all other parts.
pub const PACK_WINDOW: Duration = Duration::from_millis(100);
const SHORTEST_PERIOD: Duration = Duration::from_secs(2);
/// With a longer period, windows do not represent the present.
const LONGEST_PERIOD: Duration = Duration::from_secs(120);
/// Share of the watch's budget.
pub const PACK_SHARE: f64 = 0.5;

#[derive(Debug)]
pub struct ActivePack {
    name: String,
    pub places: Vec<PackPlace>,
    costs: ProbeCosts,
    by_functions: PhaseSums,
    by_events: PhaseSums,
    /// When the next window opens; `None` until that is known.
    pub next_ns: Option<u64>,
    period: Duration,
    windows: u64,
    window_ns: u64,
}

impl ActivePack {
    /// Plans no window before the server's cost of a request is known.
    pub fn new(pack: &Pack, places: Vec<PackPlace>, costs: ProbeCosts, classes: usize) -> Self {
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

    /// Restarts the sums: the current contents of the rows are ignored.
    pub fn restart(&mut self, functions: impl Iterator<Item = PhaseRow>, classes: usize) {
        self.by_functions.restart(functions);
        self.by_events = PhaseSums::new(classes);
        (self.windows, self.window_ns) = (0, 0);
    }

    /// Chooses the period so that the probes' share of a request's cost stays within this part of the budget.
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

    /// The cost of probes per request. Call and return of a function share a trap; of several functions for one
    /// boundary, the most expensive one counts.
    pub fn request_ns(&self) -> f64 {
        let mut functions: BTreeMap<(&Path, u64), Vec<&PackPlace>> = BTreeMap::new();
        for place in &self.places {
            functions.entry((place.path.as_path(), place.offset)).or_default().push(place);
        }
        let mut by_boundaries: BTreeMap<Vec<u64>, f64> = BTreeMap::new();
        for places in functions.values() {
            let mut boundaries: Vec<u64> = places.iter().map(|place| place.boundary).collect();
            boundaries.sort_unstable();
            let dearest = by_boundaries.entry(boundaries).or_default();
            *dearest = dearest.max(self.function_ns(places));
        }
        by_boundaries.values().sum()
    }

    fn function_ns(&self, places: &[&PackPlace]) -> f64 {
        let at = |at_return: bool| places.iter().any(|place| place.at_return == at_return);
        self.costs.per_call_ns(places.iter().any(|place| place.is_stepped), at(false), at(true))
    }

    /// Adds a window: the (cumulative) measurements of the functions, and the (new) ones of reads and sends for the
    /// same requests.
    pub fn add_window(
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

    /// The totals for a reading. `hits`: function calls so far.
    pub fn totals(&self, classes: usize, hits: u64) -> PackTotals {
        // Not corrected by the exact CPU time: these phases include the cost of the probes, and show it.
        let raw = vec![ClassTotals::default(); classes];
        PackTotals {
            server: self.name.clone(),
            windows: self.windows,
            window_ns: self.window_ns,
            request_ns: self.request_ns(),
            period_ns: self.period.as_nanos() as u64,
            hits,
            by_functions: self.by_functions.totals(0.0, &raw),
            by_events: self.by_events.totals(0.0, &raw),
        }
    }

    pub fn cost_ns(&self, hits: u64) -> f64 {
        hits as f64 * self.request_ns() / 3.0
    }
}

#[cfg(test)]
mod tests {
    use super::super::probe_cost::FunctionCosts;
    use super::*;

    fn place(offset: u64, boundary: u64, at_return: bool, is_stepped: bool) -> PackPlace {
        PackPlace { path: "/bin/true".into(), offset, boundary, at_return, is_stepped }
    }

    fn pack_of(places: Vec<PackPlace>) -> ActivePack {
        let emulated = FunctionCosts { call_ns: 2_000.0, return_ns: 4_000.0, both_ns: 5_000.0 };
        let stepped = FunctionCosts { call_ns: 3_000.0, return_ns: 6_000.0, both_ns: 7_000.0 };
        let costs = ProbeCosts { emulated: Some(emulated), stepped: Some(stepped) };
        ActivePack::new(&Pack::open("nginx").unwrap(), places, costs, 4)
    }

    fn pack() -> ActivePack {
        // As in nginx: the first function is single-stepped, the second one is probed at both ends.
        pack_of(vec![place(1, 1, false, true), place(2, 2, false, false), place(2, 3, true, false)])
    }

    #[test]
    fn a_request_is_charged_once_per_function_and_for_the_most_expensive_alternative() {
        assert_eq!(pack().request_ns(), 3_000.0 + 5_000.0);
        let mut places = pack().places;
        places.push(place(9, 1, false, false));
        assert_eq!(pack_of(places.clone()).request_ns(), 8_000.0, "the cheaper of two for one boundary adds nothing");
        places[2].offset = 3;
        assert_eq!(pack_of(places).request_ns(), 3_000.0 + 2_000.0 + 4_000.0, "three functions, three calls");
    }

    #[test]
    fn windows_are_as_rare_as_the_budget_requires() {
        let mut pack = pack();
        assert_eq!(pack.next_ns, None, "nothing is known of a request yet");
        // 8 us of probes on a request of 10 us for a tenth of a second: 0.5 % of the time corresponds to 16 s.
        pack.adapt(7, 10_000.0, 0.01);
        assert_eq!(pack.next_ns, Some(7));
        pack.add_window(100, 50, std::iter::empty(), &[], &SizeClasses::default());
        assert_eq!(pack.next_ns, Some(100 + 16_000_000_000));
        pack.adapt(7, 10_000_000.0, 0.01);
        pack.add_window(100, 50, std::iter::empty(), &[], &SizeClasses::default());
        assert_eq!(pack.next_ns, Some(100 + SHORTEST_PERIOD.as_nanos() as u64));
        assert_eq!(pack.totals(4, 6).request_ns, 8_000.0);
        assert!((pack.cost_ns(6) - 16_000.0).abs() < 1e-6);
    }
}
