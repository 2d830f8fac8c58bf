//! Connections by TCP state, from counts of transitions: a reading costs no walk over the connections.
//!
//! Two things do not show in transitions and are modelled between scans: TIME_WAIT, whose sockets leave after 60 s without
//! an event (include/net/tcp.h, TCP_TIMEWAIT_LEN), and half-open connections, which are no sockets yet. Connections older
//! than the watch are known from a scan at its start. Each later scan corrects the model and says by how much it was off.

use super::layout::PortCounts;
use crate::sock_diag::STATES;
use serde::Serialize;
use std::collections::VecDeque;

/// How long a connection stays in TIME_WAIT.
pub const TIME_WAIT_NS: u64 = 60_000_000_000;
/// A scan's TIME_WAIT sockets are of unknown age: they leave in this many equal parts over a minute.
const PARTS: u64 = 60;

const SYN_RECV: usize = 3;
const TIME_WAIT: usize = 6;
const CLOSE: usize = 7;
/// States that transitions count.
const COUNTED: [usize; 9] = [1, 2, 3, 4, 5, 8, 9, 10, 11];

/// Numbers of sockets by state; indices as in [`STATES`].
pub type ByState = [u64; STATES.len()];

/// What a scan showed against the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Reconciliation {
    /// Scans so far, the first of them at the start.
    pub scans: u64,
    /// Sum of the absolute differences by state at the last scan, before correction.
    pub last_difference: u64,
    /// The largest of them so far.
    pub largest_difference: u64,
    /// Sockets in the last scan.
    pub last_scan: u64,
    /// What it took, nanoseconds of this process's CPU time.
    pub last_cost_ns: u64,
}

/// The model.
#[derive(Debug, Default)]
pub struct StateModel {
    offsets: [i64; STATES.len()],
    half_open: u64,
    leaving: VecDeque<(u64, i64)>,
    entered: u64,
    reconciliation: Reconciliation,
}

impl StateModel {
    /// Corrects the model by a scan. `before` and `after` are the counts read around it.
    pub fn reconcile(&mut self, now_ns: u64, before: &PortCounts, after: &PortCounts, scanned: &ByState, cost_ns: u64) {
        let expected = self.read(now_ns, after);
        // While the scan ran, sockets moved: what differs by less than that is no error.
        let difference: u64 = COUNTED
            .iter()
            .chain(&[TIME_WAIT])
            .map(|&state| {
                let moved = match state {
                    TIME_WAIT => after.time_wait_entered - before.time_wait_entered,
                    _ => (after.states[state] - before.states[state]).unsigned_abs(),
                };
                let has_half_open = state == SYN_RECV;
                if has_half_open { 0 } else { expected[state].abs_diff(scanned[state]).saturating_sub(moved) }
            })
            .sum();
        let is_first = self.reconciliation.scans == 0;
        self.reconciliation.scans += 1;
        self.reconciliation.last_scan = scanned.iter().sum();
        self.reconciliation.last_cost_ns = cost_ns;
        if !is_first {
            self.reconciliation.last_difference = difference;
            self.reconciliation.largest_difference = self.reconciliation.largest_difference.max(difference);
        }
        for state in COUNTED {
            let middle = (before.states[state] + after.states[state]).div_euclid(2);
            self.offsets[state] = scanned[state] as i64 - middle;
        }
        // Full sockets pass SYN_RECV in no time; what a scan shows there are requests that are no sockets yet.
        self.half_open = scanned[SYN_RECV];
        self.offsets[SYN_RECV] = 0;
        self.leave_evenly(now_ns, scanned[TIME_WAIT] as i64 - expected[TIME_WAIT] as i64);
    }

    fn leave_evenly(&mut self, now_ns: u64, sockets: i64) {
        for part in 0..PARTS as i64 {
            let share = sockets * (part + 1) / PARTS as i64 - sockets * part / PARTS as i64;
            if share != 0 {
                self.leaving.push_back((now_ns + TIME_WAIT_NS / PARTS * (part as u64 + 1), share));
            }
        }
        self.leaving.make_contiguous().sort_by_key(|(at, _)| *at);
    }

    /// The numbers by state now. Readings in TIME_WAIT are kept by the second, so that the model stays small.
    pub fn read(&mut self, now_ns: u64, counts: &PortCounts) -> ByState {
        const SECOND: u64 = 1_000_000_000;
        let entered = counts.time_wait_entered.saturating_sub(self.entered);
        self.entered = counts.time_wait_entered;
        if entered > 0 {
            let leaves = (now_ns + TIME_WAIT_NS).next_multiple_of(SECOND / 4);
            match self.leaving.back_mut().filter(|(at, _)| *at == leaves) {
                Some((_, sockets)) => *sockets += entered as i64,
                None => self.leaving.push_back((leaves, entered as i64)),
            }
        }
        while self.leaving.front().is_some_and(|(at, _)| *at <= now_ns) {
            self.leaving.pop_front();
        }
        let mut states = ByState::default();
        for state in COUNTED {
            states[state] = (counts.states[state] + self.offsets[state]).max(0) as u64;
        }
        states[SYN_RECV] += self.half_open;
        states[TIME_WAIT] = self.leaving.iter().map(|(_, sockets)| sockets).sum::<i64>().max(0) as u64;
        states[CLOSE] = 0;
        states
    }

    /// Half-open connections at the last scan: SYNs that wait for the client's acknowledgement.
    pub fn half_open(&self) -> u64 {
        self.half_open
    }

    /// What the scans showed.
    pub fn reconciliation(&self) -> Reconciliation {
        self.reconciliation
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::zeroed;
    use super::*;

    const S: u64 = 1_000_000_000;

    fn counts(established: i64, time_wait_entered: u64) -> PortCounts {
        let mut counts: PortCounts = zeroed();
        counts.states[1] = established;
        counts.time_wait_entered = time_wait_entered;
        counts
    }

    #[test]
    fn connections_older_than_the_watch_are_counted() {
        let mut model = StateModel::default();
        let mut scanned = ByState::default();
        scanned[1] = 7;
        scanned[10] = 1;
        model.reconcile(0, &counts(2, 0), &counts(2, 0), &scanned, 1);
        assert_eq!(model.read(1, &counts(2, 0))[1], 7);
        let later = model.read(2, &counts(-1, 0));
        assert_eq!((later[1], later[10]), (4, 1));
    }

    #[test]
    fn time_wait_lasts_a_minute() {
        let mut model = StateModel::default();
        assert_eq!(model.read(10 * S, &counts(0, 100))[6], 100);
        assert_eq!(model.read(40 * S, &counts(0, 150))[6], 150);
        assert_eq!(model.read(69 * S, &counts(0, 150))[6], 150);
        assert_eq!(model.read(71 * S, &counts(0, 150))[6], 50);
        assert_eq!(model.read(101 * S, &counts(0, 150))[6], 0);
    }

    #[test]
    fn a_scan_says_how_far_the_model_was_off() {
        let mut model = StateModel::default();
        let mut scanned = ByState::default();
        scanned[1] = 5;
        model.reconcile(0, &counts(0, 0), &counts(0, 0), &scanned, 1);
        assert_eq!(model.reconciliation().last_difference, 0, "the first scan is the model's start");
        scanned[1] = 8;
        scanned[6] = 60;
        model.reconcile(S, &counts(1, 0), &counts(1, 0), &scanned, 1);
        assert_eq!(model.reconciliation().last_difference, 2 + 60);
        assert_eq!(model.read(S, &counts(1, 0))[6], 60);
        assert_eq!(model.read(31 * S, &counts(1, 0))[6], 30, "sockets of unknown age leave evenly");
        model.reconcile(
            31 * S,
            &counts(1, 0),
            &counts(1, 0),
            &{
                scanned[6] = 30;
                scanned
            },
            1,
        );
        assert_eq!(model.reconciliation().last_difference, 0);
    }

    #[test]
    fn a_count_never_falls_below_zero() {
        let mut model = StateModel::default();
        assert_eq!(model.read(0, &counts(-3, 0))[1], 0);
    }
}
