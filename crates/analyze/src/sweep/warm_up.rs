//! Load before the first point, until the CPU time of a request stops falling. For a server that compiles its code at
//! run time (V8, a JVM), it is several times as high at first.

const SHARE: f64 = 0.1;
/// The warm-up ends after this many consecutive windows that are not cheaper than all before them by the ratio below.
const SETTLED_WINDOWS: usize = 2;
const FALL_RATIO: f64 = 0.05;
/// With fewer answers, the cost of a window is random.
const LEAST_ANSWERS: u64 = 30;

/// Decides how long a server is warmed up.
#[derive(Debug)]
pub struct WarmUp {
    limit_ns: u64,
    costs_us: Vec<f64>,
}

impl WarmUp {
    /// Length of a window.
    pub const WINDOW_NS: u64 = 300_000_000;

    /// A warm-up that takes at most its share of the budget.
    pub fn new(budget_ns: u64) -> Self {
        WarmUp { limit_ns: (budget_ns as f64 * SHARE) as u64, costs_us: Vec::new() }
    }

    /// Whether another window follows. `cost_us`: CPU time of a request, or its response time; `spent_ns`: duration
    /// of all windows so far.
    pub fn continues(&mut self, answers: u64, cost_us: Option<f64>, spent_ns: u64) -> bool {
        let Some(cost_us) = cost_us.filter(|_| answers >= LEAST_ANSWERS) else { return false };
        self.costs_us.push(cost_us);
        !self.is_settled() && spent_ns.saturating_add(Self::WINDOW_NS) <= self.limit_ns
    }

    /// Whether the cost has stopped falling.
    pub fn is_settled(&self) -> bool {
        let Some(earlier) = self.costs_us.len().checked_sub(SETTLED_WINDOWS).filter(|earlier| *earlier > 0) else {
            return false;
        };
        let (before, last) = self.costs_us.split_at(earlier);
        let lowest = before.iter().copied().fold(f64::INFINITY, f64::min);
        last.iter().all(|cost| *cost >= lowest * (1.0 - FALL_RATIO))
    }

    /// The first and the last cost, if it was measured and fell.
    pub fn fell(&self) -> Option<(f64, f64)> {
        let (first, last) = (*self.costs_us.first()?, *self.costs_us.last()?);
        (last < first * (1.0 - FALL_RATIO)).then_some((first, last))
    }
}
