//! The duration of a point, and whether another one fits into the sweep's share of the budget.

use super::{Load, SweepStep, Trial};
use record::scenario::SweepPlan;

/// Length of points in the first pass and in the first steps of the search, as a share of a full one.
const SHORT_SHARE: f64 = 0.25;
/// Shortest window with reliable results.
pub(super) const SHORTEST_NS: u64 = 200_000_000;

#[derive(Debug, Clone)]
pub(super) struct WindowSchedule {
    pub full_ns: u64,
    /// Warm-up before every window; `None`: a fifth of the window.
    warmup_ns: Option<u64>,
    budget_ns: u64,
    pub share: f64,
    started_ns: Option<u64>,
    elapsed_ns: u64,
    planned_ns: u64,
    issued: u64,
}

impl WindowSchedule {
    /// The schedule of a planner that takes this share of the time left at its first call.
    pub fn new(plan: &SweepPlan, share: f64) -> Self {
        WindowSchedule {
            full_ns: plan.point_duration_ns.clamp(1_000_000, 3_600_000_000_000),
            warmup_ns: plan.warmup_ns,
            budget_ns: plan.budget_ns,
            share,
            started_ns: None,
            elapsed_ns: 0,
            planned_ns: 0,
            issued: 0,
        }
    }

    /// Sets the time since the run began. The first call starts the sweep's clock.
    pub fn at(&mut self, elapsed_ns: u64) {
        self.started_ns.get_or_insert(elapsed_ns);
        self.elapsed_ns = elapsed_ns;
    }

    /// Time left.
    pub fn left_ns(&self) -> u64 {
        let started_ns = self.started_ns.unwrap_or(0);
        let share_ns = (self.budget_ns.saturating_sub(started_ns) as f64 * self.share) as u64;
        started_ns.saturating_add(share_ns).saturating_sub(self.elapsed_ns)
    }

    pub fn short_ns(&self) -> u64 {
        ((self.full_ns as f64 * SHORT_SHARE) as u64).max(SHORTEST_NS).min(self.full_ns)
    }

    /// A length between short and full.
    pub fn middle_ns(&self) -> u64 {
        ((self.short_ns() as f64 * self.full_ns as f64).sqrt()) as u64
    }

    fn warmup_before_ns(&self, duration_ns: u64) -> u64 {
        self.warmup_ns.unwrap_or((duration_ns / 5).clamp(50_000_000, 2_000_000_000).min(duration_ns))
    }

    /// The duration of a window of this length plus its warm-up.
    pub fn with_warmup_ns(&self, duration_ns: u64) -> u64 {
        duration_ns.saturating_add(self.warmup_before_ns(duration_ns))
    }

    /// The step that measures a point of this length.
    pub fn measure(&mut self, load: Load, repeat: u32, duration_ns: u64) -> SweepStep {
        let warmup_ns = self.warmup_before_ns(duration_ns);
        self.planned_ns = self.planned_ns.saturating_add(self.with_warmup_ns(duration_ns));
        self.issued += 1;
        SweepStep::Measure(Trial { load, repeat, duration_ns, warmup_ns })
    }

    /// The longest window, at most `duration_ns`, that ends within the time left, including its warm-up and the
    /// overhead so far.
    pub fn within(&self, duration_ns: u64) -> u64 {
        let left_ns = self.left_ns().saturating_sub(self.overhead_ns());
        let longest_ns = left_ns.saturating_sub(self.warmup_before_ns(duration_ns.min(left_ns)));
        duration_ns.min(longest_ns.max(1_000_000))
    }

    /// The duration of a full-length point, including the overhead so far.
    pub fn point_ns(&self) -> u64 {
        self.with_warmup_ns(self.full_ns).saturating_add(self.overhead_ns())
    }

    /// The duration of this many points.
    pub fn points_ns(&self, points: usize) -> u64 {
        self.point_ns().saturating_mul(points as u64)
    }

    /// Whether there is no time for a short point, including the overhead so far.
    pub fn is_spent(&self) -> bool {
        self.left_ns() < self.with_warmup_ns(self.short_ns()).saturating_add(self.overhead_ns())
    }

    /// Mean time of a point apart from window and warm-up: connecting, yardsticks, writing.
    fn overhead_ns(&self) -> u64 {
        let spent_ns = self.elapsed_ns.saturating_sub(self.started_ns.unwrap_or(0));
        spent_ns.saturating_sub(self.planned_ns) / self.issued.max(1)
    }
}
