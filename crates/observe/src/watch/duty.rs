//! Counts requests in windows if counting all of them would exceed the budget.
//!
//! The budget is a share of the server's CPU time. It is saved up, and a window opens when it can be paid for.

use std::time::Duration;

pub const WINDOW: Duration = Duration::from_millis(250);
/// Requests that began in a window are followed for this long after it.
const DRAIN: Duration = Duration::from_millis(50);
const AIM: f64 = 0.8;
/// Counting everything resumes if it costs less than this share of the budget aimed at.
const AMPLE: f64 = 0.7;
/// With less CPU time of the server, shares are not significant.
const TELLING_CPU_NS: u64 = 10_000_000;
/// With less counted time, costs are not significant.
const TELLING_NS: u64 = 50_000_000;

#[derive(Debug, Clone, Copy, Default)]
pub struct CostAccount {
    pub at_ns: u64,
    pub server_ns: u64,
    pub counted_ns: u64,
    /// Cost of events that are observed only while requests are counted.
    pub counting_ns: f64,
    pub added_ns: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DutyAction {
    Begin,
    /// Count no further request, but follow those that began.
    Shut,
    End,
}

#[derive(Debug)]
pub struct Duty {
    is_in_windows: bool,
    next: Option<(DutyAction, u64)>,
    last: CostAccount,
    /// CPU time available for counting, its growth per nanosecond, and a window's cost per nanosecond.
    credit_ns: f64,
    gain: f64,
    cost: f64,
    /// From 0 to 1; keeps windows from coinciding with a fixed period.
    phase: f64,
}

impl Duty {
    /// Counts everything until the cost is known.
    pub fn new(now: CostAccount) -> Self {
        Duty { is_in_windows: false, next: None, last: now, credit_ns: 0.0, gain: 0.0, cost: 0.0, phase: 0.0 }
    }

    pub fn is_in_windows(&self) -> bool {
        self.is_in_windows
    }

    /// Adds the costs so far. `limit`: a share of the server's CPU time. Returns an action to take at once.
    pub fn account(&mut self, now: CostAccount, limit: f64) -> Option<DutyAction> {
        let aim = AIM * limit;
        self.credit_ns = aim * now.server_ns as f64 - now.added_ns;
        let counted_ns = now.counted_ns.saturating_sub(self.last.counted_ns);
        let server_ns = now.server_ns.saturating_sub(self.last.server_ns);
        let passed_ns = now.at_ns.saturating_sub(self.last.at_ns);
        if server_ns < TELLING_CPU_NS || passed_ns == 0 {
            return None;
        }
        self.gain = aim * server_ns as f64 / passed_ns as f64;
        if counted_ns >= TELLING_NS {
            self.cost = (now.counting_ns - self.last.counting_ns).max(0.0) / counted_ns as f64;
        }
        self.last = now;
        match self.is_in_windows {
            false if self.cost > self.gain => {
                self.is_in_windows = true;
                self.next = Some((DutyAction::End, now.at_ns + DRAIN.as_nanos() as u64));
                Some(DutyAction::Shut)
            }
            true if self.cost < AMPLE * self.gain && self.credit_ns > 0.0 => {
                self.is_in_windows = false;
                let is_counting = self.next.is_some_and(|(act, _)| act == DutyAction::Shut);
                self.next = None;
                (!is_counting).then_some(DutyAction::Begin)
            }
            _ => None,
        }
    }

    /// The action that is due at `now_ns`, or the time of the next call; used only in windows.
    pub fn step(&mut self, now_ns: u64) -> Result<DutyAction, Option<u64>> {
        if !self.is_in_windows {
            return Err(None);
        }
        let opens = || self.opens_ns().map(|opens_ns| (DutyAction::Begin, opens_ns));
        let (act, due_ns) = self.next.or_else(opens).ok_or(None)?;
        if now_ns < due_ns {
            return Err(Some(due_ns));
        }
        self.next = match act {
            DutyAction::Begin => Some((DutyAction::Shut, now_ns + WINDOW.as_nanos() as u64)),
            DutyAction::Shut => Some((DutyAction::End, now_ns + DRAIN.as_nanos() as u64)),
            DutyAction::End => None,
        };
        if act == DutyAction::Begin {
            // Multiples of the golden ratio are spread evenly.
            self.phase = (self.phase + 0.618_034).fract();
        }
        Ok(act)
    }

    /// `None` while no time is saved.
    fn opens_ns(&self) -> Option<u64> {
        let price_ns = self.cost * WINDOW.as_nanos() as f64 * (0.5 + self.phase);
        let missing_ns = (price_ns - self.credit_ns).max(0.0);
        let wait_ns = if missing_ns > 0.0 { missing_ns / self.gain } else { 0.0 };
        wait_ns.is_finite().then(|| self.last.at_ns.saturating_add(wait_ns as u64))
    }
}
