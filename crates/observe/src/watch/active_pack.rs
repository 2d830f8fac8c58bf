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
pub const SHORTEST_PERIOD: Duration = Duration::from_secs(2);
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
