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
use std::ops::RangeInclusive;

const SYN_RECV: usize = 3;
pub const FIN_WAIT_2: usize = 5;
pub const TIME_WAIT: usize = 6;
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

    /// Bounds of the number of sockets in a state that are older than the watch.
    pub fn older_bounds(&self, state: usize) -> Option<RangeInclusive<i64>> {
        self.older[state].map(|older| older.least..=older.most)
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
