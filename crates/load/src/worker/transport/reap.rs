//! Reap delay: how long a response waited in the client's kernel before the engine read it. It is the client's part of
//! a response time.
//!
//! If any socket of the machine requests it, the kernel stamps every packet that a device hands over, and a read can
//! return the stamp of its last byte (`SO_TIMESTAMPING`). So the delay includes the client's own protocol work, its
//! wake-up, and the events that were handled before.
//!
//! Both cost CPU time, so they are done in short bursts at random times. The arrival of the last byte decides whether a
//! response belongs to a burst, not the time for which it waited: every response has the same chance, however long it
//! waits.

use crate::connection::{Connection, STAMPED};
use crate::socket::{self, Errno};
use crate::worker::WorkerReport;
use record::LoadPlan;
use record::time::monotonic_ns;
use std::ops::Range;
use std::time::{SystemTime, UNIX_EPOCH};

/// One burst begins at a random time in each period. Switching stamps on and off costs every CPU, so bursts are not
/// shorter.
pub const PERIOD_NS: u64 = 500_000_000;
/// Length of a burst.
pub const BURST_NS: u64 = 20_000_000;
/// A load shorter than this is one burst.
const SHORT_NS: u64 = 1_000_000_000;
/// Maximum time between the readings of two clocks that are compared.
const EXACT_NS: u64 = 5_000;
const TRIES: u32 = 3;
/// Both clocks run at the same speed; a larger difference means that the wall clock was set.
const STEP_NS: u64 = 20_000;

/// When the last byte of a response in a burst arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArrivalTime {
    /// On the monotonic clock.
    At(u64),
    /// The kernel gave no stamp with the last read, or the wall clock that stamps refer to was set meanwhile.
    Unknown,
}

pub(crate) struct SampledPace {
    stamping: Socket,
    bursts: Bursts,
    wall: WallClock,
    stamp_ns: Option<u64>,
}

impl SampledPace {
    /// Without samples, and with the reason, if the kernel cannot stamp packets.
    pub(crate) fn new(plan: &LoadPlan, connections: usize) -> (Self, Option<Errno>) {
        match SampledPace::stamping(plan, connections) {
            Ok(sampled) => (sampled, None),
            Err(error) => (SampledPace::never(plan), Some(error)),
        }
    }

    fn stamping(plan: &LoadPlan, connections: usize) -> Result<Self, Errno> {
        let stamping = Socket(socket::stream_socket(true)?);
        socket::set_stamping(stamping.0, true)?;
        let bursts = Bursts::new(BurstTimes::from_plan(plan), connections);
        // The kernel does not turn stamping on at once, so it stays on if the first burst begins at the start.
        if !bursts.times.is_always {
            socket::set_stamping(stamping.0, false)?;
        }
        Ok(SampledPace { stamping, bursts, wall: WallClock::new(Offset::now()), stamp_ns: None })
    }

    pub(crate) fn never(plan: &LoadPlan) -> Self {
        let bursts = Bursts { next_ns: u64::MAX, ..Bursts::new(BurstTimes::from_plan(plan), 0) };
        SampledPace { stamping: Socket(-1), bursts, wall: WallClock::new(Offset::now()), stamp_ns: None }
    }
}

struct Socket(i32);

impl Drop for Socket {
    fn drop(&mut self) {
        socket::close(self.0);
    }
}

impl SampledPace {
    #[inline]
    pub(crate) fn receive<F>(&mut self, connection: &mut Connection<F>, buffer: &mut [u8]) -> Result<usize, Errno> {
        if self.bursts.is_dating() {
            self.receive_stamped(connection, buffer)
        } else {
            socket::receive(connection.fd, buffer)
        }
    }

    /// When the last byte of a complete response arrived; `None` outside of bursts. `by_bytes`: the last read
    /// completed the response, not the end of the connection, whose time is unknown.
    #[inline]
    pub(crate) fn arrival<F>(&mut self, connection: &mut Connection<F>, by_bytes: bool) -> Option<ArrivalTime> {
        if !self.bursts.is_dating() {
            return None;
        }
        // All responses in one read had arrived by the stamp of its last byte.
        let stamp_ns = self.stamp_ns.filter(|_| by_bytes);
        let arrival =
            stamp_ns.map_or(ArrivalTime::Unknown, |stamp_ns| self.wall.arrival(stamp_ns, connection.since_ns));
        self.bursts.takes(arrival, connection.since_ns).then_some(arrival)
    }

    /// When [`SampledPace::after_wait`] has work to do; `u64::MAX` = never.
    #[inline]
    pub(super) fn next_check_ns(&self) -> u64 {
        self.bursts.next_ns
    }

    /// Called after each wait, before the `events` at `now_ns` are handled. `are_all`: there is nothing else to read.
    /// Returns a finished period in which arrivals were recorded.
    pub(super) fn after_wait(&mut self, now_ns: u64, events: usize, are_all: bool) -> Option<Range<u64>> {
        let was_dating = self.bursts.is_dating();
        let over = self.bursts.after_wait(now_ns, events, are_all);
        if self.bursts.is_dating() != was_dating {
            // This has succeeded before, and allocates nothing.
            let _ = socket::set_stamping(self.stamping.0, !was_dating);
        }
        over
    }

    pub(crate) fn report(&self, report: &mut WorkerReport) {
        report.tally.dated(self.bursts.open());
    }

    /// Every read of a response requests a stamp, because it is not known in advance which is the last one.
    #[cold]
    fn receive_stamped<F>(&mut self, connection: &mut Connection<F>, buffer: &mut [u8]) -> Result<usize, Errno> {
        if !connection.has(STAMPED) {
            // Makes the socket return the stamps that its packets have. Done at the first read, not at the send, so
            // that no response time includes the cost.
            let _ = socket::set_stamps(connection.fd);
            connection.set(STAMPED, true);
        }
        // A stamp of an earlier read does not belong to this response.
        self.stamp_ns = None;
        let (count, stamp_ns) = socket::receive_stamped(connection.fd, buffer)?;
        self.stamp_ns = stamp_ns;
        Ok(count)
    }
}

/// The planned times of bursts. They are random, so that they do not coincide with periodic work, and equal for all
/// threads, because stamping costs every thread of the machine.
pub struct BurstTimes {
    /// Seed of the random times, equal for all threads.
    pub seed: u64,
    /// Whether one burst has the whole load.
    pub is_always: bool,
}

impl BurstTimes {
    fn from_plan(plan: &LoadPlan) -> Self {
        BurstTimes { seed: plan.seed, is_always: plan.duration_ns < SHORT_NS }
    }

    /// The burst at `now_ns`, or the next one.
    pub fn next(&self, now_ns: u64) -> Range<u64> {
        if self.is_always {
            return 0..u64::MAX;
        }
        let period = now_ns / PERIOD_NS;
        let [last, this] = [period.saturating_sub(1), period].map(|period| self.of_period(period));
        [last, this].into_iter().find(|burst| burst.end > now_ns).unwrap_or_else(|| self.of_period(period + 1))
    }

    /// The burst of a period begins at a uniformly random time in it, and may end in the next period.
    fn of_period(&self, period: u64) -> Range<u64> {
        // SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
        let mut bits = self.seed.wrapping_add(period).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let begin_ns = period * PERIOD_NS + (bits ^ (bits >> 31)) % PERIOD_NS;
        begin_ns..begin_ns + BURST_NS
    }
}

/// Decides which responses belong to a burst.
///
/// A burst begins with the thread's first check of its events at or after the planned begin, and ends with its first
/// check after the planned end. So the time between two checks belongs to a burst as a whole or not at all, and the
/// first check decides. The length of that time has no influence, so a stall is as likely to be sampled as any other
/// moment, and as a whole.
pub struct Bursts {
    times: BurstTimes,
    connections: usize,
    phase: BurstPhase,
    burst: Range<u64>,
    next_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BurstPhase {
    Off,
    On,
    /// The burst has ended, but its last responses may still be in the kernel, among at most this many events.
    Rest(usize),
}

impl Bursts {
    /// Bursts of a thread with this many connections.
    pub fn new(times: BurstTimes, connections: usize) -> Self {
        Bursts { times, connections, phase: BurstPhase::Off, burst: 0..0, next_ns: 0 }
    }

    /// Whether packets are stamped and reads request the stamps. Stamping stays on until the last response of the burst
    /// is read, because turning it off would delay that.
    #[inline]
    pub fn is_dating(&self) -> bool {
        self.phase != BurstPhase::Off
    }

    /// Called after each wait. Returns a burst that has ended.
    pub fn after_wait(&mut self, now_ns: u64, events: usize, are_all: bool) -> Option<Range<u64>> {
        if now_ns < self.next_ns {
            return None;
        }
        let was_on = self.phase == BurstPhase::On;
        match &mut self.phase {
            // Responses may have arrived after these events were returned, e.g. if this thread was preempted since
            // epoll_wait.
            BurstPhase::On => {
                self.burst.end = now_ns;
                self.phase = BurstPhase::Rest(self.connections);
                self.next_ns = 0;
            }
            BurstPhase::Rest(0) => self.phase = BurstPhase::Off,
            // The kernel returns events in turn, and a connection has one response at a time. So the last responses
            // are read when every connection had its turn, or when nothing was left.
            BurstPhase::Rest(left) => *left = if are_all { 0 } else { left.saturating_sub(events) },
            BurstPhase::Off => {}
        }
        if self.phase == BurstPhase::Off {
            // Skips the planned burst if the wait has passed it.
            let meant = self.times.next(now_ns);
            self.next_ns = meant.start;
            if meant.contains(&now_ns) {
                self.phase = BurstPhase::On;
                self.burst = now_ns..u64::MAX;
                self.next_ns = meant.end;
            }
        }
        was_on.then(|| self.burst.clone())
    }

    /// Whether the response to a request sent at `sent_ns` belongs to the burst. A response without a stamp arrived
    /// before the burst or before stamping began, unless its request was sent later.
    pub fn takes(&self, arrival: ArrivalTime, sent_ns: u64) -> bool {
        match arrival {
            ArrivalTime::At(at_ns) => self.burst.contains(&at_ns),
            ArrivalTime::Unknown => self.burst.contains(&sent_ns),
        }
    }

    /// The burst in progress.
    pub fn open(&self) -> Range<u64> {
        if self.phase == BurstPhase::On { self.burst.clone() } else { 0..0 }
    }
}

/// Converts stamps from the wall clock to the monotonic clock, which all other times use.
pub struct WallClock {
    offset: Offset,
    stepped_ns: u64,
}

impl WallClock {
    /// Starts with a known offset.
    pub fn new(offset: Offset) -> Self {
        WallClock { offset, stepped_ns: 0 }
    }

    /// Converts a stamp to the monotonic clock. The request was sent at `sent_ns`. A stamp that may be older than the
    /// last step of the wall clock, or is not between `sent_ns` and now, is not used.
    fn arrival(&mut self, stamp_ns: u64, sent_ns: u64) -> ArrivalTime {
        self.convert(stamp_ns, sent_ns, Offset::now(), monotonic_ns())
    }

    /// Converts a stamp with an offset that was found at `now_ns`.
    pub fn convert(&mut self, stamp_ns: u64, sent_ns: u64, found: Offset, now_ns: u64) -> ArrivalTime {
        self.compare(found, now_ns);
        let under_way = sent_ns..=now_ns + STEP_NS;
        match u64::try_from((stamp_ns as i64).saturating_sub(self.offset.ns)) {
            Ok(at_ns) if sent_ns >= self.stepped_ns && under_way.contains(&at_ns) => ArrivalTime::At(at_ns),
            _ => ArrivalTime::Unknown,
        }
    }

    fn compare(&mut self, found: Offset, now_ns: u64) {
        let is_step = found.ns.abs_diff(self.offset.ns) > STEP_NS + found.slack_ns + self.offset.slack_ns;
        if is_step {
            self.stepped_ns = now_ns;
        }
        if is_step || found.slack_ns < self.offset.slack_ns {
            self.offset = found;
        }
    }
}

/// Wall clock minus monotonic clock, with the possible error: the thread may be interrupted between two readings.
#[derive(Debug, Clone, Copy)]
pub struct Offset {
    /// Difference in nanoseconds.
    pub ns: i64,
    /// Possible error in nanoseconds.
    pub slack_ns: u64,
}

impl Offset {
    fn now() -> Self {
        let mut best = Offset { ns: 0, slack_ns: u64::MAX / 4 };
        for _ in 0..TRIES {
            let before_ns = monotonic_ns();
            let wall_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64);
            let slack_ns = monotonic_ns() - before_ns;
            if slack_ns < best.slack_ns {
                best = Offset { ns: wall_ns - (before_ns + slack_ns / 2) as i64, slack_ns };
            }
            if slack_ns < EXACT_NS {
                break;
            }
        }
        best
    }
}
