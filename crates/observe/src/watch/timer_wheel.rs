//! When sockets leave TIME_WAIT: not exactly after 60 s, but at the next step of the kernel's timer wheel. For such a
//! long time, the wheel turns in steps of seconds (2.048 s at 250 ticks per second), so sockets leave in groups.
//! Source: kernel/time/timer.c (`calc_wheel_index`), include/net/tcp.h (`TCP_TIMEWAIT_LEN`).

use crate::sock_diag::TimerSocket;

/// The timeout of a socket in TIME_WAIT, seconds.
pub const TIME_WAIT_S: u64 = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimerWheel {
    /// Length of a tick (jiffy), nanoseconds of CLOCK_MONOTONIC.
    pub tick_ns: u64,
    /// Ticks per minute.
    pub minute: u64,
    /// Ticks per step, log2.
    pub shift: u32,
    at: Moment,
}

/// A moment that is known in both clocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Moment {
    ticks: u64,
    ns: u64,
}

impl TimerWheel {
    /// The wheel of a kernel with ticks of this length.
    pub fn with_ticks_of(tick_ns: u64) -> Self {
        let tick_ns = tick_ns.max(1);
        let hertz = (1_000_000_000 + tick_ns / 2) / tick_ns;
        let minute = hertz * TIME_WAIT_S;
        // Each level has 64 places; its steps are eight times as long as those of the level below.
        let level = (0..8).find(|level| minute < 63 << (3 * level)).unwrap_or(8);
        TimerWheel { tick_ns, minute, shift: 3 * level, at: Moment::default() }
    }

    /// The wheel of the running kernel, whose coarse clock advances by ticks.
    pub fn of_this_kernel() -> Self {
        let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
        TimerWheel::with_ticks_of(tick.tv_nsec as u64)
    }

    /// Adds a moment that is known in both clocks. A tick begins some time before it is read, so the earliest reading
    /// is the most accurate.
    pub fn add_moment(&mut self, ticks: u64, ns: u64) {
        if self.at == Moment::default() || self.ticks(ns) < ticks || i128::from(ns) < self.begin_of(ticks) {
            self.at = Moment { ticks, ns };
        }
    }

    fn begin_of(&self, ticks: u64) -> i128 {
        i128::from(self.at.ns) + (i128::from(ticks) - i128::from(self.at.ticks)) * i128::from(self.tick_ns)
    }

    /// The step at which a timer with this due time fires.
    pub fn step_after(&self, due_ns: u64) -> u64 {
        (self.ticks(due_ns) >> self.shift) + 1
    }

    pub fn ns_of(&self, step: u64) -> u64 {
        self.begin_of(step << self.shift).max(0) as u64
    }

    fn ticks(&self, ns: u64) -> u64 {
        let passed = (i128::from(ns) - i128::from(self.at.ns)).div_euclid(i128::from(self.tick_ns));
        (i128::from(self.at.ticks) + passed).max(0) as u64
    }
}

/// The key of a socket's client in the programs' table: `client_key()` of bpf/states.h.
pub fn client_key(timer: &TimerSocket) -> u64 {
    let mixed = |hash: u64, word: u32| {
        let hash = (hash ^ u64::from(word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^ (hash >> 29)
    };
    let words = if timer.is_ipv6 { 4 } else { 1 };
    let addresses = timer.client[..words].iter().chain(&timer.server[..words]);
    addresses.fold(mixed(0, u32::from(timer.client_port)), |hash, word| mixed(hash, *word))
}
