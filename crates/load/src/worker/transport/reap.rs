//! Reap delay: how long a response waited in the client's kernel before the engine read it. It is the client's part of
//! a response time.
//!
//! For a sample of requests, the last read also gets the time at which its last byte came in (`SO_TIMESTAMPNS`). The
//! kernel stamps a packet when it gets it from the device, so the delay includes the client's protocol work, its
//! wake-up and the events handled before it. Other requests are read without stamps.

use super::Pace;
use crate::connection::{Connection, SAMPLED, STAMPED};
use crate::socket::{self, Errno};
use record::time::monotonic_ns;
use std::time::{SystemTime, UNIX_EPOCH};

/// On average one request in this many is sampled. Sampling one costs about 0.4 us.
pub(crate) const MEAN_GAP: u32 = 32;
/// Two clocks read within this time of each other can be compared.
const EXACT_NS: u64 = 5_000;
const TRIES: u32 = 3;
/// Both clocks run at the same speed: their difference changes only when the wall clock is set.
const STEP_NS: u64 = 20_000;

/// When the last byte of a sampled response came in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// On the monotonic clock.
    At(u64),
    /// The kernel gave no stamp with the last read, or the wall clock, to which stamps refer, was set meanwhile.
    Unknown,
}

/// Reads as fast as the socket has bytes, and times the arrival of a sample of responses.
pub(crate) struct Sampled {
    /// Keeps the kernel stamping while sockets come and go: turning that on and off costs every CPU.
    _stamping: Socket,
    draw: Draw,
    wall: WallClock,
    /// The stamp of the last read of a sampled request, wall clock.
    stamp_ns: Option<u64>,
}

impl Sampled {
    /// `seed` differs between threads. An error means that the kernel has no stamps.
    pub(crate) fn new(seed: u64) -> Result<Self, Errno> {
        let stamping = Socket(socket::stream_socket(libc::AF_INET)?);
        socket::set_stamps(stamping.0)?;
        Ok(Sampled { _stamping: stamping, draw: Draw::new(seed), wall: WallClock::new(), stamp_ns: None })
    }
}

struct Socket(i32);

impl Drop for Socket {
    fn drop(&mut self) {
        socket::close(self.0);
    }
}

impl Pace for Sampled {
    const IS_LIMITED: bool = false;

    #[inline]
    fn request_leaves(&mut self, _slot: usize, connection: &mut Connection, _now_ns: u64) {
        if self.draw.is_next() {
            connection.set(SAMPLED, true);
        }
    }

    #[inline]
    fn receive(&mut self, connection: &mut Connection, buffer: &mut [u8]) -> Result<usize, Errno> {
        match connection.has(SAMPLED) {
            false => socket::receive(connection.fd, buffer),
            true => self.receive_stamped(connection, buffer),
        }
    }

    #[inline]
    fn arrival(&mut self, connection: &mut Connection, by_bytes: bool) -> Option<Arrival> {
        connection.has(SAMPLED).then(|| {
            connection.set(SAMPLED, false);
            let stamp_ns = self.stamp_ns.take().filter(|_| by_bytes);
            stamp_ns.map_or(Arrival::Unknown, |stamp_ns| self.wall.arrival(stamp_ns, connection.since_ns))
        })
    }
}

impl Sampled {
    /// Every read of the response requests a stamp, because the last one is known only afterwards.
    #[cold]
    fn receive_stamped(&mut self, connection: &mut Connection, buffer: &mut [u8]) -> Result<usize, Errno> {
        if !connection.has(STAMPED) {
            // The packets are stamped already; this makes the socket return the stamps. It is done here and not when
            // the request leaves, so that its cost is in no response time.
            let _ = socket::set_stamps(connection.fd);
            connection.set(STAMPED, true);
        }
        // A stamp left by an earlier read does not belong to this response.
        self.stamp_ns = None;
        let (count, stamp_ns) = socket::receive_stamped(connection.fd, buffer)?;
        self.stamp_ns = stamp_ns;
        Ok(count)
    }
}

/// Chooses the requests of the sample. The gaps are random: connections are often served in turn, and a fixed gap would
/// choose the same ones each time, at the same place in a batch of events.
struct Draw {
    left: u32,
    state: u64,
}

impl Draw {
    fn new(seed: u64) -> Self {
        // xorshift never leaves 0.
        let mut draw = Draw { left: 0, state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 };
        draw.left = draw.gap();
        draw
    }

    #[inline]
    fn is_next(&mut self) -> bool {
        self.left -= 1;
        if self.left > 0 {
            return false;
        }
        self.left = self.gap();
        true
    }

    /// From 1 to `2 * MEAN_GAP - 1`.
    fn gap(&mut self) -> u32 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        1 + (self.state >> 32) as u32 % (2 * MEAN_GAP - 1)
    }
}

/// The wall clock, to which stamps refer, relative to the monotonic clock, to which all other times refer.
struct WallClock {
    offset: Offset,
    /// The wall clock was set some time before this.
    stepped_ns: u64,
}

impl WallClock {
    fn new() -> Self {
        WallClock { offset: Offset::now(), stepped_ns: 0 }
    }

    /// A stamp on the monotonic clock. The request left at `sent_ns`. A stamp that may be older than the last step of
    /// the wall clock, or is not between `sent_ns` and now, is not used.
    fn arrival(&mut self, stamp_ns: u64, sent_ns: u64) -> Arrival {
        self.convert(stamp_ns, sent_ns, Offset::now(), monotonic_ns())
    }

    fn convert(&mut self, stamp_ns: u64, sent_ns: u64, found: Offset, now_ns: u64) -> Arrival {
        self.compare(found, now_ns);
        let under_way = sent_ns..=now_ns + STEP_NS;
        match u64::try_from((stamp_ns as i64).saturating_sub(self.offset.ns)) {
            Ok(at_ns) if sent_ns >= self.stepped_ns && under_way.contains(&at_ns) => Arrival::At(at_ns),
            _ => Arrival::Unknown,
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

/// Wall clock minus monotonic clock, and the possible error: other work may run between two readings.
#[derive(Debug, Clone, Copy)]
struct Offset {
    ns: i64,
    slack_ns: u64,
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

#[cfg(test)]
mod tests {
    use super::*;

    const SENT_NS: u64 = 5_000_000_000;
    /// A time of the wall clock, which is ahead by `offset_ns`.
    fn wall(offset_ns: i64) -> (WallClock, Offset) {
        let offset = Offset { ns: offset_ns, slack_ns: 1_000 };
        (WallClock { offset, stepped_ns: 0 }, offset)
    }

    #[test]
    fn a_stamp_is_brought_to_the_monotonic_clock() {
        let (mut clock, same) = wall(1_700_000_000_000_000_000);
        let stamp_ns = 1_700_000_000_000_000_000 + SENT_NS + 70_000;
        assert_eq!(clock.convert(stamp_ns, SENT_NS, same, SENT_NS + 90_000), Arrival::At(SENT_NS + 70_000));
        // Stamps before the request and after its answer was read: the wall clock was set and set back.
        for wrong_ns in [stamp_ns - 100_000, stamp_ns + 1_000_000] {
            assert_eq!(clock.convert(wrong_ns, SENT_NS, same, SENT_NS + 90_000), Arrival::Unknown);
        }
    }

    #[test]
    fn a_stamp_that_may_be_older_than_a_step_of_the_wall_clock_says_nothing() {
        for step_ns in [-3_600_000_000_000, -1_000_000, 1_000_000, 3_600_000_000_000] {
            let (mut clock, before) = wall(1_700_000_000_000_000_000);
            let stamp = |offset: Offset, at_ns: u64| (offset.ns + at_ns as i64) as u64;
            let after = Offset { ns: before.ns + step_ns, ..before };
            // Seen at the first read after it, of a request that came in before it.
            let seen_ns = SENT_NS + 9_000_000;
            let old = stamp(before, SENT_NS + 2_000_000);
            assert_eq!(clock.convert(old, SENT_NS, after, seen_ns), Arrival::Unknown, "{step_ns}");
            // Another one that was under way then, whichever clock its stamp is of.
            for offset in [before, after] {
                let stamp = stamp(offset, SENT_NS + 8_000_000);
                assert_eq!(
                    clock.convert(stamp, SENT_NS + 1, after, seen_ns + 1_000_000),
                    Arrival::Unknown,
                    "{step_ns}"
                );
            }
            // One that left when the step was known.
            let (sent_ns, arrived_ns) = (seen_ns + 10, seen_ns + 50_000);
            let arrival = clock.convert(stamp(after, arrived_ns), sent_ns, after, seen_ns + 60_000);
            assert_eq!(arrival, Arrival::At(arrived_ns), "{step_ns}");
        }
    }

    #[test]
    fn a_reading_that_was_interrupted_is_no_step() {
        let (mut clock, good) = wall(1_000_000_000_000);
        let poor = Offset { ns: good.ns + 4_000_000, slack_ns: 8_000_000 };
        let stamp_ns = (good.ns as u64) + SENT_NS + 70_000;
        assert_eq!(clock.convert(stamp_ns, SENT_NS, poor, SENT_NS + 90_000), Arrival::At(SENT_NS + 70_000));
        assert_eq!(clock.convert(stamp_ns, SENT_NS, good, SENT_NS + 95_000), Arrival::At(SENT_NS + 70_000));
    }

    #[test]
    fn the_sample_has_its_share_and_no_rhythm() {
        const ROUNDS: usize = 20_000;
        const SLOTS: usize = MEAN_GAP as usize;
        let mut draw = Draw::new(7);
        let mut of_slot = [0; SLOTS];
        for _ in 0..ROUNDS {
            of_slot.iter_mut().for_each(|count| *count += u64::from(draw.is_next()));
        }
        // With the mean gap as period each slot is drawn in about ROUNDS / SLOTS rounds; a fixed gap takes one in all.
        let wanted = (ROUNDS / SLOTS) as u64;
        assert!(of_slot.iter().all(|count| count.abs_diff(wanted) < wanted / 4), "{of_slot:?}");
        assert!(of_slot.iter().sum::<u64>().abs_diff(ROUNDS as u64) < ROUNDS as u64 / 50, "{of_slot:?}");
    }
}
