//! Connections by TCP state from counted transitions, so a reading need not walk over the connections.
//!
//! PortCounts are counted when they happen, so the counts are exact except for sockets older than the watch. These
//! add a constant number to each state, which scans determine. A scan takes milliseconds and is not a snapshot: a
//! socket that changes its state meanwhile may be seen before or after the change. So a scan gives bounds, which are
//! equal if nothing changed. The bounds of all scans are intersected, so no scan widens them. Only a scan that
//! contradicts them shows that the counts are wrong; then the model restarts, and the difference is reported.
//!
//! Three things cause no transition. Sockets leave TIME_WAIT without an event; the time is known when they enter
//! ([`TimerWheel`]). Half-open connections are not sockets yet, and appear only in scans. So do sockets in FIN_WAIT_2
//! that are reduced to a timer; the programs count them as TIME_WAIT, which they become.

use super::timer_wheel::{TimerWheel, client_key};
use crate::bpf::types::watch::PortCounts;
use crate::sock_diag::{PortSockets, STATES};
use record::watch::Reconciliation;
use std::collections::BTreeMap;

const SYN_RECV: usize = 3;
const FIN_WAIT_2: usize = 5;
const TIME_WAIT: usize = 6;
/// States with counted transitions in which a socket may be older than the watch. Full sockets leave SYN_RECV at
/// once; a scan's entries there are requests without a socket.
const WITH_OLDER: [usize; 8] = [1, 2, 4, 5, 8, 9, 10, 11];

pub type ByState = [u64; STATES.len()];

/// A client with a socket in TIME_WAIT.
#[derive(Debug, Clone, Copy)]
pub struct WaitingClient {
    /// Its key in the programs' table.
    pub key: u64,
    /// The step of the timer wheel at which it leaves.
    pub step: u64,
}

/// Sockets of one state that are older than the watch: lower bound, upper bound, assumed number.
#[derive(Debug, Clone, Copy)]
struct OlderSockets {
    least: i64,
    most: i64,
    value: i64,
}

#[derive(Debug)]
pub struct Scan<'a> {
    pub began_ns: u64,
    pub ended_ns: u64,
    pub before: &'a PortCounts,
    pub after: &'a PortCounts,
    pub sockets: &'a PortSockets,
}

#[derive(Debug)]
pub struct StateModel {
    pub wheel: TimerWheel,
    older: [Option<OlderSockets>; STATES.len()],
    /// Half-open connections at the last scan: SYNs that wait for the client's acknowledgement.
    pub half_open: u64,
    timers: u64,
    /// Differences between the programs' counts of TIME_WAIT and a scan, by the time at which the sockets leave.
    corrections: BTreeMap<u64, i64>,
    /// Sockets of the namespace since the last scan for which TIME_WAIT had no place
    /// (net.ipv4.tcp_max_tw_buckets); they vanish without a transition.
    pub without_place: u64,
    /// PortCounts counted at the last scan during which nothing changed.
    still_at: Option<u64>,
    pub reconciliation: Reconciliation,
}

fn moves(counts: &PortCounts) -> u64 {
    counts.entered.iter().chain(&counts.left).fold(0, |sum, count| sum.wrapping_add(*count))
}

/// The programs' counts of sockets in TIME_WAIT, by the time at which they leave.
fn by_step(wheel: TimerWheel, counts: &PortCounts) -> impl Iterator<Item = (u64, i64)> + '_ {
    let places = counts.time_waits.iter().filter(|place| **place != 0);
    places.map(move |place| (wheel.ns_of(place >> 32), i64::from(*place as u32 as i32)))
}

impl StateModel {
    pub fn new(wheel: TimerWheel) -> Self {
        StateModel {
            wheel,
            older: [None; STATES.len()],
            half_open: 0,
            timers: 0,
            corrections: BTreeMap::new(),
            without_place: 0,
            still_at: None,
            reconciliation: Reconciliation::default(),
        }
    }

    /// Adds a scan. Returns the clients whose sockets in TIME_WAIT are unknown to the programs.
    pub fn reconcile(&mut self, scan: &Scan<'_>) -> Vec<WaitingClient> {
        let (before, after, seen) = (scan.before, scan.after, scan.sockets);
        let is_first = self.reconciliation.scans == 0;
        let is_still = moves(before) == moves(after);
        let mut difference = 0;
        for state in WITH_OLDER {
            let mut scanned = seen.by_state[state] as i64;
            if state == FIN_WAIT_2 {
                scanned -= seen.timers_in_fin_wait_2 as i64;
            }
            difference += self.bound_older(state, scanned, before, after);
        }
        self.half_open = seen.by_state[SYN_RECV];
        let (off, clients) = self.correct_time_wait(scan, is_still);
        self.without_place = 0;
        difference += off;
        if is_still {
            self.still_at = Some(moves(after));
        }
        let outcome = &mut self.reconciliation;
        outcome.scans += 1;
        outcome.last_scan = seen.by_state.iter().sum();
        if !is_first {
            outcome.last_difference = difference;
            outcome.largest_difference = outcome.largest_difference.max(difference);
        }
        clients
    }

    /// Bounds a state. A socket that changed during the scan may or may not have been seen in it; all others were.
    fn bound_older(&mut self, state: usize, scanned: i64, before: &PortCounts, after: &PortCounts) -> u64 {
        let counted = before.entered[state].wrapping_sub(before.left[state]) as i64;
        let came = after.entered[state].wrapping_sub(before.entered[state]) as i64;
        let went = after.left[state].wrapping_sub(before.left[state]) as i64;
        let (least, most) = (scanned - counted - came, scanned - counted + went);
        let Some(older) = &mut self.older[state] else {
            self.older[state] = Some(OlderSockets { least, most, value: scanned - counted - (came - went) / 2 });
            return 0;
        };
        let off = (least - older.value).max(older.value - most).max(0) as u64;
        let (both_least, both_most) = (older.least.max(least), older.most.min(most));
        (older.least, older.most) = if both_least <= both_most { (both_least, both_most) } else { (least, most) };
        older.value = older.value.clamp(older.least, older.most);
        // Values within the bounds of earlier scans contradict nothing.
        if both_least <= both_most { 0 } else { off }
    }

    fn correct_time_wait(&mut self, scan: &Scan<'_>, is_still: bool) -> (u64, Vec<WaitingClient>) {
        let seen = scan.sockets;
        let scanned = (seen.by_state[TIME_WAIT] + seen.timers_in_fin_wait_2) as i64;
        let came = scan.after.time_wait_entered.wrapping_sub(scan.before.time_wait_entered) as i64;
        let reused = scan.after.time_wait_reused.wrapping_sub(scan.before.time_wait_reused) as i64;
        let expected = self.in_time_wait(scan.began_ns, scan.before);
        let expired = expected - self.in_time_wait(scan.ended_ns, scan.before);
        let (least, most) = (expected - reused - expired - self.without_place as i64, expected + came);
        let off = (least - scanned).max(scanned - most).max(0) as u64;
        self.timers = if is_still { seen.timers_in_fin_wait_2 } else { 0 };
        if off == 0 && !is_still && self.without_place == 0 {
            return (0, Vec::new());
        }
        // Sockets in FIN_WAIT_2 reduced to timers get a new minute when their client closes, without an event,
        // usually some milliseconds after they began. So the kernel's leaving time is better even if the number is
        // right.
        let steps: Vec<u64> = seen.timers.iter().map(|timer| self.wheel.step_after(timer.due_ns)).collect();
        self.corrections.clear();
        for step in &steps {
            *self.corrections.entry(self.wheel.ns_of(*step)).or_default() += 1;
        }
        // Unlisted sockets count as old as the youngest listed one, so that none leaves too early.
        let unlisted = scanned - steps.len() as i64;
        let last_ns = steps.iter().max().map_or(scan.ended_ns, |step| self.wheel.ns_of(*step));
        *self.corrections.entry(last_ns).or_default() += unlisted;
        for (leaves_ns, sockets) in by_step(self.wheel, scan.after) {
            *self.corrections.entry(leaves_ns).or_default() -= sockets;
        }
        let client = |(timer, step)| WaitingClient { key: client_key(timer), step };
        let clients = if off > 0 { seen.timers.iter().zip(steps).map(client).collect() } else { Vec::new() };
        (off, clients)
    }

    fn in_time_wait(&self, now_ns: u64, counts: &PortCounts) -> i64 {
        let corrections = self.corrections.range(now_ns + 1..).map(|(_, sockets)| sockets).sum::<i64>();
        corrections
            + by_step(self.wheel, counts)
                .filter(|(leaves_ns, _)| *leaves_ns > now_ns)
                .map(|(_, sockets)| sockets)
                .sum::<i64>()
    }

    /// The current number of connections by state.
    pub fn read(&self, now_ns: u64, counts: &PortCounts) -> ByState {
        let mut states = ByState::default();
        for (state, count) in states.iter_mut().enumerate() {
            let counted = counts.entered[state].wrapping_sub(counts.left[state]) as i64;
            *count = (counted + self.older[state].map_or(0, |older| older.value)).max(0) as u64;
        }
        states[SYN_RECV] += self.half_open;
        let without = (self.timers + self.without_place) as i64;
        states[TIME_WAIT] = (self.in_time_wait(now_ns, counts) - without).max(0) as u64;
        states[FIN_WAIT_2] += self.timers;
        states
    }

    /// Whether a scan without concurrent changes would improve the model.
    pub fn is_unsettled(&self, counts: &PortCounts) -> bool {
        self.still_at != Some(moves(counts)) || self.half_open > 0 || self.timers > 0
    }
}

/// Tracks whether connections changed lately, because a scan during changes shows little.
#[derive(Debug, Default)]
pub struct Stillness {
    moves: u64,
    since_ns: u64,
}

impl Stillness {
    /// Compares the counts; returns how long nothing has changed.
    pub fn still_ns(&mut self, now_ns: u64, counts: &PortCounts) -> u64 {
        let moves = moves(counts);
        if self.since_ns == 0 || moves != self.moves {
            *self = Stillness { moves, since_ns: now_ns };
        }
        now_ns - self.since_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sock_diag::TimerSocket;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;

    fn model() -> StateModel {
        StateModel::new(TimerWheel::with_ticks_of(4_000_000).at(0, 0))
    }

    fn scanned(states: &[(usize, u64)]) -> PortSockets {
        let mut sockets = PortSockets::default();
        for (state, count) in states {
            sockets.by_state[*state] = *count;
        }
        sockets
    }

    fn scan(model: &mut StateModel, at_ns: u64, before: &PortCounts, after: &PortCounts, sockets: &PortSockets) {
        model.reconcile(&Scan { began_ns: at_ns, ended_ns: at_ns, before, after, sockets });
    }

    fn timers(count: usize, due_ns: u64) -> Vec<TimerSocket> {
        let timer = TimerSocket { is_ipv6: false, client_port: 1, client: [1; 4], server: [1; 4], due_ns };
        vec![timer; count]
    }

    fn enter_time_wait(counts: &mut PortCounts, wheel: &TimerWheel, now_ns: u64, sockets: u64) {
        let step = wheel.step_after(now_ns + 60 * S);
        let place = &mut counts.time_waits[step as usize % 64];
        let held = if *place >> 32 == step { *place & 0xffff_ffff } else { 0 };
        *place = step << 32 | (held + sockets);
        counts.time_wait_entered += sockets;
    }

    #[test]
    fn sockets_leave_time_wait_at_the_wheels_step_after_a_minute() {
        let (model, mut counts) = (model(), PortCounts::default());
        let in_time_wait = |at_ns: u64, counts: &PortCounts| model.read(at_ns, counts)[TIME_WAIT];
        enter_time_wait(&mut counts, &model.wheel, 10 * S, 100);
        enter_time_wait(&mut counts, &model.wheel, 40 * S, 50);
        let step_ns = 2_048_000_000;
        let leaves_ns = (70 * S).next_multiple_of(step_ns);
        assert_eq!(in_time_wait(40 * S, &counts), 150);
        assert_eq!(in_time_wait(leaves_ns - 1, &counts), 150);
        assert_eq!(in_time_wait(leaves_ns, &counts), 50);
        assert_eq!(in_time_wait((100 * S).next_multiple_of(step_ns), &counts), 0);
    }

    #[test]
    fn a_scan_reports_the_error_of_the_counts() {
        let (mut model, mut counts) = (model(), PortCounts::default());
        scan(&mut model, 0, &counts, &counts, &scanned(&[(1, 5)]));
        counts.entered[1] = 1;
        let mut sockets = scanned(&[(1, 8), (6, 60)]);
        sockets.timers = timers(60, 31 * S);
        scan(&mut model, S, &counts, &counts, &sockets);
        assert_eq!(model.reconciliation.last_difference, 2 + 60);
        assert_eq!((model.read(S, &counts)[1], model.read(S, &counts)[TIME_WAIT]), (8, 60));
        assert_eq!(model.read(30 * S, &counts)[TIME_WAIT], 60, "the kernel says when they leave");
        assert_eq!(model.read(34 * S, &counts)[TIME_WAIT], 0);
    }

    #[test]
    fn remnants_in_fin_wait_2_are_shown_and_cause_further_scans() {
        let (mut model, mut counts) = (model(), PortCounts::default());
        scan(&mut model, 0, &counts, &counts, &scanned(&[]));
        enter_time_wait(&mut counts, &model.wheel, S, 1);
        counts.left[5] = 1;
        counts.entered[5] = 1;
        let mut sockets = scanned(&[(5, 1)]);
        (sockets.timers, sockets.timers_in_fin_wait_2) = (timers(1, 61 * S), 1);
        scan(&mut model, 2 * S, &counts, &counts, &sockets);
        let states = model.read(2 * S, &counts);
        assert_eq!((states[FIN_WAIT_2], states[TIME_WAIT]), (1, 0));
        assert!(model.is_unsettled(&counts));
        // The client closes half a minute later, and a new minute begins.
        let mut sockets = scanned(&[(6, 1)]);
        sockets.timers = timers(1, 91 * S);
        scan(&mut model, 31 * S, &counts, &counts, &sockets);
        let states = model.read(80 * S, &counts);
        assert_eq!((states[FIN_WAIT_2], states[TIME_WAIT]), (0, 1));
        assert!(!model.is_unsettled(&counts));
        assert_eq!(model.read(94 * S, &counts)[TIME_WAIT], 0);
    }

    proptest! {
        /// Sockets come and go while scans walk over them, and each socket is seen at another moment. In any order,
        /// the number of older sockets stays within the bounds, and one scan at rest corrects all states.
        #[test]
        fn counts_at_rest_are_right_after_any_order_of_events_and_scans(
            older in 0usize..20,
            steps in prop::collection::vec((any::<u8>(), any::<u16>()), 0..300),
        ) {
            let mut model = model();
            let mut counts = PortCounts::default();
            let mut walk: Option<(PortCounts, Vec<usize>, u64)> = None;
            let mut alive: Vec<bool> = vec![true; older];
            for (what, which) in steps {
                match what % 4 {
                    0 => {
                        counts.entered[1] += 1;
                        alive.push(true);
                        if let Some((_, left, _)) = &mut walk && which % 2 == 0 {
                            left.push(alive.len() - 1);
                        }
                    }
                    1 if !alive.is_empty() => {
                        let id = usize::from(which) % alive.len();
                        if std::mem::replace(&mut alive[id], false) {
                            counts.left[1] += 1;
                        }
                    }
                    2 => match &mut walk {
                        None => walk = Some((counts, (0..alive.len()).collect(), 0)),
                        Some((_, left, saw)) => {
                            for _ in 0..1 + which % 8 {
                                if let Some(id) = left.pop() {
                                    *saw += u64::from(alive[id]);
                                }
                            }
                        }
                    },
                    _ => if let Some((before, left, saw)) = walk.take() {
                        let saw = saw + left.iter().filter(|id| alive[**id]).count() as u64;
                        scan(&mut model, S, &before, &counts, &scanned(&[(1, saw)]));
                        let bounds = model.older[1].unwrap();
                        prop_assert!((bounds.least..=bounds.most).contains(&(older as i64)), "{bounds:?}");
                        prop_assert_eq!(model.reconciliation.largest_difference, 0);
                    },
                }
            }
            let left = alive.iter().filter(|is_alive| **is_alive).count() as u64;
            scan(&mut model, S, &counts, &counts, &scanned(&[(1, left)]));
            prop_assert_eq!(model.read(S, &counts)[1], left);
            prop_assert_eq!(model.reconciliation.largest_difference, 0);
        }
    }
}
