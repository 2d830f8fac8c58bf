//! A handshake that is done at the client's end is not always done at the server's: a kernel whose accept queue is full
//! may answer with a SYN cookie, keep no state, and drop the last segment. The client's end then stays established for
//! ever. So each connection is probed once (keep-alive), and counts when the server has answered.

use super::{ColdCounts, PoolState};
use crate::check;
use crate::cost::{pin_to, thread_cpu_ns};
use crate::poller::{Poller, READABLE, WRITABLE_TOO};
use crate::ports::{PortAllocator, PortLease};
use crate::ramp::ConnectRamp;
use crate::socket::{self, Errno};
use record::time::monotonic_ns;
use record::{LoadPlan, lock};
use slab::Slab;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

/// Poll interval for a new target.
const CHECK_NS: u64 = 100_000_000;
const PAUSE_NS: u64 = 100_000_000;
const MOST_PAUSE_NS: u64 = 1_000_000_000;
const RELEASES: u64 = 4_096;
const SWEEP_NS: u64 = 20_000_000;
/// At this age of a connection, its first probe has been sent. An acknowledgement in the last half of this time
/// answers the probe, not the handshake.
const PROBED_AFTER_NS: u64 = 1_010_000_000;
/// Marks event data of held connections; the rest is their key.
const HELD_EVENT: u64 = 1 << 62;

#[derive(Clone, Copy)]
struct Attempt {
    fd: i32,
    lease: PortLease,
    began_ns: u64,
    /// When the handshake was complete at the client's end.
    opened_ns: Option<u64>,
}

#[derive(Clone, Copy)]
struct HeldSocket {
    fd: i32,
    lease: PortLease,
}

pub(super) struct Keeper {
    poller: Poller,
    address: SocketAddr,
    sources: Vec<Option<IpAddr>>,
    range: (u16, u16),
    ports: PortAllocator,
    ramp: ConnectRamp,
    connect_timeout_ns: u64,
    cpus: Vec<usize>,
    attempts: Slab<Attempt>,
    /// Attempts in the handshake; other attempts wait for the answer to their probe.
    under_way: u64,
    next_sweep_ns: u64,
    held: Slab<HeldSocket>,
    /// Pause after connections that the server dropped at once; doubles while it does so.
    back_off_ns: u64,
    paused_until_ns: u64,
    counts: ColdCounts,
}

impl Keeper {
    pub(super) fn new(plan: &LoadPlan) -> Result<Self, Errno> {
        let rules = check::port_rules(plan);
        let target = plan.addresses[0];
        let mut sources = check::sources(plan, target, &rules);
        // The engine takes sources from the front and the pool from the back, so they rarely share one.
        sources.reverse();
        Ok(Keeper {
            poller: Poller::new()?,
            address: target,
            range: (rules.low, rules.high),
            ports: PortAllocator::new(rules, sources.len()),
            sources,
            ramp: ConnectRamp::new(plan.connect_rate_per_sec),
            connect_timeout_ns: plan.connect_timeout_ns,
            cpus: plan.cpus.clone(),
            attempts: Slab::new(),
            under_way: 0,
            next_sweep_ns: 0,
            held: Slab::new(),
            back_off_ns: 0,
            paused_until_ns: 0,
            counts: ColdCounts::default(),
        })
    }

    pub(super) fn keep(&mut self, shared: &PoolState) -> Result<(), Errno> {
        if let Some(cpu) = self.cpus.last() {
            // Pinning only affects speed.
            let _ = pin_to(*cpu);
        }
        while !shared.is_ending.load(Ordering::SeqCst) {
            let now_ns = monotonic_ns();
            let target = shared.target.load(Ordering::SeqCst);
            let held = self.held.len() as u64;
            let begun = held + self.attempts.len() as u64;
            let may_open = begun < target;
            if may_open && now_ns >= self.paused_until_ns {
                self.open_some(target - begun, now_ns)?;
            } else if held > target {
                self.close_some((held - target).min(RELEASES));
            }
            if now_ns >= self.next_sweep_ns && !self.attempts.is_empty() {
                self.next_sweep_ns = now_ns + SWEEP_NS;
                self.sweep(now_ns)?;
            }
            if self.attempts.is_empty() {
                self.attempts = Slab::new();
            }
            self.publish(shared);
            let pause_ns = self.paused_until_ns.saturating_sub(monotonic_ns());
            let wait_ns = if self.held.len() as u64 > target || (may_open && pause_ns == 0) {
                self.ramp.next_ns().saturating_sub(monotonic_ns()).clamp(50_000, 1_000_000)
            } else if !self.attempts.is_empty() {
                SWEEP_NS
            } else if may_open {
                pause_ns.min(CHECK_NS)
            } else {
                CHECK_NS
            };
            let count = self.poller.wait(wait_ns)?;
            for index in 0..count {
                let (conditions, data) = self.poller.event(index);
                if data & HELD_EVENT != 0 {
                    // The server closed the connection or sent data, so it is no longer cold.
                    if self.close((data ^ HELD_EVENT) as usize, false) {
                        self.counts.dropped += 1;
                    }
                } else {
                    self.decided(data as usize, conditions)?;
                }
            }
        }
        Ok(())
    }

    fn publish(&mut self, shared: &PoolState) {
        // An entry is hardly larger than its value.
        let bytes = self.held.capacity() * size_of::<HeldSocket>() + self.attempts.capacity() * size_of::<Attempt>();
        let established = self.held.len() as u64;
        self.counts = ColdCounts { established, cpu_ns: thread_cpu_ns(), user_bytes: bytes as u64, ..self.counts };
        *lock(&shared.counts) = self.counts;
    }

    fn open_some(&mut self, wanted: u64, now_ns: u64) -> Result<(), Errno> {
        for _ in 0..self.ramp.allowance(now_ns, self.under_way).min(wanted) {
            let Some(lease) = self.ports.lease(now_ns) else {
                self.failed(now_ns);
                break;
            };
            let fd = match self.begin(lease) {
                Ok(fd) => fd,
                // The client's machine is at a limit, so the next attempt would fail, too.
                Err(_) => {
                    self.ports.release(lease, false, now_ns);
                    self.failed(now_ns);
                    break;
                }
            };
            let key = self.attempts.insert(Attempt { fd, lease, began_ns: now_ns, opened_ns: None });
            self.under_way += 1;
            self.poller.add(fd, WRITABLE_TOO, key as u64)?;
        }
        Ok(())
    }

    fn begin(&self, lease: PortLease) -> Result<i32, Errno> {
        let is_ipv4 = self.address.is_ipv4();
        let fd = socket::stream_socket(is_ipv4)?;
        let begun = socket::set_keepalive(fd, true)
            .and_then(|()| {
                socket::bind_source(fd, self.sources[usize::from(lease.source)], lease.port, self.range, is_ipv4)
            })
            .and_then(|()| socket::connect(fd, &self.address));
        match begun {
            Ok(_) => Ok(fd),
            Err(error) => {
                socket::close(fd);
                Err(error)
            }
        }
    }

    fn decided(&mut self, key: usize, conditions: u32) -> Result<(), Errno> {
        let Some(attempt) = self.attempts.get(key).copied() else { return Ok(()) };
        let now_ns = monotonic_ns();
        if attempt.opened_ns.is_some() {
            self.forget(key, false, now_ns);
            self.counts.dropped += 1;
            // The server is full: back off, or this loop would retry at full speed for ever.
            self.ramp.fall_back(now_ns);
            if now_ns >= self.paused_until_ns {
                self.back_off_ns = (2 * self.back_off_ns).clamp(PAUSE_NS / 10, MOST_PAUSE_NS);
                self.paused_until_ns = now_ns + self.back_off_ns;
            }
            return Ok(());
        }
        let is_broken = conditions & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0;
        if is_broken || socket::take_error(attempt.fd).is_some() {
            self.forget(key, false, now_ns);
            self.failed(now_ns);
            return Ok(());
        }
        let took_ns = now_ns - attempt.began_ns;
        if self.ramp.hangs(took_ns) {
            self.ramp.fall_back(now_ns);
        }
        self.ramp.succeeded(took_ns);
        self.attempts[key].opened_ns = Some(now_ns);
        self.under_way -= 1;
        self.counts.opened += 1;
        self.poller.modify(attempt.fd, READABLE, key as u64)
    }

    /// `is_ours`: the client closes first.
    fn forget(&mut self, key: usize, is_ours: bool, now_ns: u64) {
        let Attempt { fd, lease, opened_ns, .. } = self.attempts.remove(key);
        self.under_way -= u64::from(opened_ns.is_none());
        socket::close(fd);
        self.ports.release(lease, is_ours, now_ns);
    }

    fn hold(&mut self, key: usize) -> Result<(), Errno> {
        let Attempt { fd, lease, .. } = self.attempts.remove(key);
        let slot = self.held.insert(HeldSocket { fd, lease });
        socket::set_keepalive(fd, false)?;
        self.poller.modify(fd, READABLE, HELD_EVENT | slot as u64)?;
        self.back_off_ns = 0;
        Ok(())
    }

    fn failed(&mut self, now_ns: u64) {
        self.counts.failed += 1;
        self.ramp.fall_back(now_ns);
        self.paused_until_ns = now_ns + PAUSE_NS;
    }

    /// The kernel closes attempts whose probes are not answered.
    fn sweep(&mut self, now_ns: u64) -> Result<(), Errno> {
        for key in 0..self.attempts.capacity() {
            let Some(Attempt { fd, began_ns, opened_ns, .. }) = self.attempts.get(key).copied() else { continue };
            if let Some(opened_ns) = opened_ns {
                let age_ns = now_ns.saturating_sub(opened_ns);
                let is_answer = |ago_ns| ago_ns < age_ns - PROBED_AFTER_NS / 2;
                if age_ns > PROBED_AFTER_NS && socket::acknowledged_ns_ago(fd).is_some_and(is_answer) {
                    self.hold(key)?;
                }
            } else if now_ns.saturating_sub(began_ns) > self.connect_timeout_ns {
                self.forget(key, true, now_ns);
                self.failed(now_ns);
            }
        }
        Ok(())
    }

    fn close_some(&mut self, mut count: u64) {
        for slot in (0..self.held.capacity()).rev() {
            if count == 0 {
                break;
            }
            count -= u64::from(self.close(slot, true));
        }
    }

    /// Returns whether there was one. `is_ours`: the client closes first.
    fn close(&mut self, slot: usize, is_ours: bool) -> bool {
        let Some(HeldSocket { fd, lease }) = self.held.try_remove(slot) else { return false };
        socket::close(fd);
        self.ports.release(lease, is_ours, monotonic_ns());
        true
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let attempts = self.attempts.iter().map(|(_, attempt)| attempt.fd);
        let held = self.held.iter().map(|(_, held)| held.fd);
        attempts.chain(held).for_each(socket::close);
    }
}
