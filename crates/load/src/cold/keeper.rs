//! The herd's thread: opens connections at the herd's pace, hands them to the holder, and replaces those that the
//! server drops.

use super::holder::{Gone, HELD_EVENT, Holder, RING_EVENT};
use super::{ColdCounts, Keep, Shared};
use crate::check;
use crate::herd::{HANGS_AFTER_NS, Herd};
use crate::poller::{Poller, WRITABLE_TOO};
use crate::ports::{Lease, PortAllocator};
use crate::socket::{self, Errno, RawAddress};
use record::LoadPlan;
use record::time::monotonic_ns;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

/// How often the thread checks for a new target. Ten short wake-ups a second cost nothing.
const LOOK_NS: u64 = 100_000_000;
/// A failed attempt is repeated after this.
const PAUSE_NS: u64 = 100_000_000;
/// The longest pause after connections that were dropped at once.
const MOST_PAUSE_NS: u64 = 1_000_000_000;
/// A connection dropped within this was dropped at once: no idle timeout is so short.
const AT_ONCE_MS: u32 = 500;
/// Entries of one ring's table, where the descriptor limit allows as many.
const PER_RING: u64 = 32_768;
/// Connections closed or probed in one round.
const RELEASES: u64 = 4_096;
/// Rounds of probing after a handshake hung. A server that closes idle connections would be probed for ever.
const ROUNDS: u32 = 4;
/// A server that lacks a connection reports it within this: a second until the probe, and a round trip.
const ANSWERED_WITHIN_NS: u64 = 2_000_000_000;

/// A connection attempt under way.
#[derive(Clone, Copy)]
struct Attempt {
    fd: i32,
    lease: Lease,
    began_ns: u64,
}

/// Finds connections that the server does not have. A kernel whose accept queue is full may take a handshake for done
/// and forget it (SYN cookies: no state is kept until the last segment, which is then dropped), and the client's end
/// stays established for ever. That happens only if other handshakes hang, so connections are probed only if one did. What is
/// opened in place of such connections may meet the same queue, so a round that finds some is followed by another.
enum Probing {
    /// Slots from here on are not probed yet.
    Begins(u32),
    /// All are probed; those that the server does not have fire until then.
    WaitsUntil(u64),
    /// Slots from here on still have the probe option set.
    Ends(u32),
}

pub(super) struct Keeper {
    poller: Poller,
    holder: Holder,
    address: RawAddress,
    sources: Vec<Option<IpAddr>>,
    range: (u16, u16),
    ports: PortAllocator,
    herd: Herd,
    connect_timeout_ns: u64,
    cpus: Vec<usize>,
    /// Attempts by number; the free ones are listed.
    attempts: Vec<Option<Attempt>>,
    free_attempts: Vec<u32>,
    under_way: u64,
    /// The lease of every held slot; `None` where the slot is empty.
    leases: Vec<Option<Lease>>,
    /// When each slot was filled, in milliseconds of the herd's life.
    filled_ms: Vec<u32>,
    began_ns: u64,
    /// The pause after connections that the server dropped at once; grows while it keeps doing so.
    back_off_ns: u64,
    held: u64,
    /// Held connections that we are closing.
    closing: u64,
    paused_until_ns: u64,
    /// Rounds of probing that are still worth it.
    rounds_left: u32,
    /// A handshake hung since the last round began, or the round found connections that the server did not have.
    is_in_doubt: bool,
    probing: Option<Probing>,
    /// What only grows is counted here as it happens, the rest when it is published.
    counts: ColdCounts,
}

impl Keeper {
    /// Also returns why connections are kept as descriptors, if they are.
    pub(super) fn new(plan: &LoadPlan, most: u64, keep: Keep) -> Result<(Self, Option<String>), Errno> {
        let limit = record::machine::raise_descriptor_limit();
        let per_ring = PER_RING.min(limit).min(most.max(64)) as u32;
        let poller = Poller::new()?;
        let (holder, note) = Holder::new(&poller, per_ring, keep)?;
        let rules = check::port_rules(plan);
        let target = plan.addresses[0];
        let mut sources = check::sources(plan, target, &rules);
        // The engine takes sources from the front; the herd from the back, so that they rarely share one.
        sources.reverse();
        let keeper = Keeper {
            poller,
            holder,
            address: RawAddress::new(target),
            range: (rules.low, rules.high),
            ports: PortAllocator::new(rules, sources.len()),
            sources,
            herd: Herd::new(plan.connect_rate_per_sec),
            connect_timeout_ns: plan.connect_timeout_ns,
            cpus: plan.cpus.clone(),
            attempts: Vec::new(),
            free_attempts: Vec::new(),
            under_way: 0,
            leases: Vec::new(),
            filled_ms: Vec::new(),
            began_ns: monotonic_ns(),
            back_off_ns: 0,
            held: 0,
            closing: 0,
            paused_until_ns: 0,
            rounds_left: 0,
            is_in_doubt: false,
            probing: None,
            counts: ColdCounts::default(),
        };
        Ok((keeper, note))
    }

    /// Keeps the herd at its target until the owner ends it.
    pub(super) fn keep(&mut self, shared: &Shared) -> Result<(), Errno> {
        if let Some(cpu) = self.cpus.last() {
            // Not pinned is slower, not wrong.
            let _ = crate::cost::pin_to(*cpu);
        }
        let mut gone = Gone::default();
        while !shared.is_ending.load(Ordering::SeqCst) {
            let now_ns = monotonic_ns();
            let target = shared.target.load(Ordering::SeqCst);
            let kept = self.held - self.closing;
            if kept + self.under_way < target && now_ns >= self.paused_until_ns {
                self.open_some(target - kept - self.under_way, now_ns)?;
            } else if kept > target {
                self.close_some((kept - target).min(RELEASES), &mut gone)?;
            }
            self.give_up_old(now_ns);
            self.probe_connections(target, now_ns)?;
            self.holder.drain(&mut gone)?;
            self.settle(&mut gone, now_ns);
            self.publish(shared);
            let is_busy = self.probing.is_some() || self.under_way > 0 || self.closing > 0 || self.held < target;
            let pause_ns = self.paused_until_ns.saturating_sub(monotonic_ns());
            let wait_ns = if matches!(self.probing, Some(Probing::WaitsUntil(_))) && self.under_way == 0 {
                LOOK_NS / 5
            } else if pause_ns > 0 && self.closing == 0 {
                // Attempts under way are events; there is nothing else to do.
                pause_ns.min(LOOK_NS)
            } else if is_busy {
                self.herd.next_ns().saturating_sub(monotonic_ns()).clamp(50_000, 1_000_000)
            } else {
                LOOK_NS
            };
            let count = self.poller.wait(wait_ns)?;
            for index in 0..count {
                let (conditions, data) = self.poller.event(index);
                if data & RING_EVENT != 0 {
                    continue; // drained at the top of the loop
                }
                if data & HELD_EVENT != 0 {
                    self.holder.fired(data & !HELD_EVENT, &mut gone);
                } else {
                    self.decided(data as u32, conditions)?;
                }
            }
        }
        Ok(())
    }

    fn publish(&mut self, shared: &Shared) {
        let bytes = self.leases.capacity() * (size_of::<Option<Lease>>() + size_of::<u32>())
            + self.attempts.capacity() * size_of::<Option<Attempt>>()
            // The holder's free lists: one number a slot.
            + self.leases.capacity() * size_of::<u32>();
        self.counts = ColdCounts {
            established: self.held - self.closing,
            is_in_doubt: self.is_in_doubt || self.probing.is_some(),
            cpu_ns: thread_cpu_ns(),
            user_bytes: bytes as u64,
            ..self.counts
        };
        shared.report(|told| told.counts = self.counts);
    }

    /// Once the herd is complete, finds out which of its connections the server has, if there is a reason to probe.
    fn probe_connections(&mut self, target: u64, now_ns: u64) -> Result<(), Errno> {
        let slots = self.leases.len() as u32;
        let next = |from: u32| from.saturating_add(RELEASES as u32).min(slots);
        self.probing = match self.probing.take() {
            None if self.is_in_doubt && self.under_way == 0 && self.held - self.closing == target => {
                self.is_in_doubt = false;
                self.rounds_left -= 1;
                Some(Probing::Begins(0))
            }
            None => None,
            Some(Probing::Begins(from)) if from < slots => {
                self.set_keepalive(from..next(from), true)?;
                Some(Probing::Begins(next(from)))
            }
            Some(Probing::Begins(_)) => Some(Probing::WaitsUntil(now_ns + ANSWERED_WITHIN_NS)),
            Some(Probing::WaitsUntil(end_ns)) if now_ns < end_ns => Some(Probing::WaitsUntil(end_ns)),
            Some(Probing::WaitsUntil(_)) => Some(Probing::Ends(0)),
            Some(Probing::Ends(from)) if from < slots => {
                self.set_keepalive(from..next(from), false)?;
                Some(Probing::Ends(next(from)))
            }
            Some(Probing::Ends(_)) => None,
        };
        Ok(())
    }

    fn set_keepalive(&mut self, slots: std::ops::Range<u32>, is_on: bool) -> Result<(), Errno> {
        for slot in slots.filter(|slot| self.leases[*slot as usize].is_some()) {
            self.holder.set_keepalive(slot, is_on)?;
        }
        Ok(())
    }

    fn open_some(&mut self, wanted: u64, now_ns: u64) -> Result<(), Errno> {
        for _ in 0..self.herd.allowance(now_ns, self.under_way).min(wanted) {
            let Some(lease) = self.ports.lease(now_ns) else {
                self.failed(now_ns);
                break;
            };
            let fd = match self.begin(lease) {
                Ok(fd) => fd,
                // Our own limits: trying the next one at once would fail, too.
                Err(_) => {
                    self.ports.release(lease, false, now_ns);
                    self.failed(now_ns);
                    break;
                }
            };
            let number = self.free_attempts.pop().unwrap_or_else(|| {
                self.attempts.push(None);
                self.attempts.len() as u32 - 1
            });
            self.attempts[number as usize] = Some(Attempt { fd, lease, began_ns: now_ns });
            self.under_way += 1;
            self.poller.add(fd, WRITABLE_TOO, u64::from(number))?;
        }
        Ok(())
    }

    fn begin(&self, lease: Lease) -> Result<i32, Errno> {
        let family = self.address.family();
        let fd = socket::stream_socket(family)?;
        let begun = socket::bind_source(fd, self.sources[usize::from(lease.source)], lease.port, self.range, family)
            .and_then(|()| socket::connect(fd, &self.address));
        match begun {
            Ok(_) => Ok(fd),
            Err(error) => {
                socket::close(fd);
                Err(error)
            }
        }
    }

    /// An attempt's outcome is known: it is held, or it failed.
    fn decided(&mut self, number: u32, conditions: u32) -> Result<(), Errno> {
        let Some(attempt) = self.attempts.get_mut(number as usize).and_then(Option::take) else { return Ok(()) };
        self.free_attempts.push(number);
        self.under_way -= 1;
        let now_ns = monotonic_ns();
        if now_ns - attempt.began_ns > HANGS_AFTER_NS {
            self.hung();
            self.herd.fall_back(now_ns);
        }
        let is_broken = conditions & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0;
        if is_broken || socket::take_error(attempt.fd).is_some() {
            socket::close(attempt.fd);
            self.ports.release(attempt.lease, false, now_ns);
            self.failed(now_ns);
            return Ok(());
        }
        let slot = match self.holder.hold(attempt.fd, &self.poller) {
            Ok(slot) => slot as usize,
            Err(error) => {
                socket::close(attempt.fd);
                return Err(error);
            }
        };
        if slot >= self.leases.len() {
            self.leases.resize(slot + 1, None);
            self.filled_ms.resize(slot + 1, 0);
        }
        self.leases[slot] = Some(attempt.lease);
        self.filled_ms[slot] = self.age_ms(now_ns);
        self.held += 1;
        self.counts.opened += 1;
        Ok(())
    }

    fn hung(&mut self) {
        (self.is_in_doubt, self.rounds_left) = (true, ROUNDS);
    }

    fn failed(&mut self, now_ns: u64) {
        self.counts.failed += 1;
        self.herd.fall_back(now_ns);
        self.paused_until_ns = now_ns + PAUSE_NS;
    }

    fn give_up_old(&mut self, now_ns: u64) {
        if self.under_way == 0 {
            return;
        }
        for number in 0..self.attempts.len() {
            let Some(attempt) = self.attempts[number] else { continue };
            if now_ns.saturating_sub(attempt.began_ns) > self.connect_timeout_ns {
                self.hung();
                self.attempts[number] = None;
                self.free_attempts.push(number as u32);
                self.under_way -= 1;
                socket::close(attempt.fd);
                self.ports.release(attempt.lease, true, now_ns);
                self.failed(now_ns);
            }
        }
    }

    fn close_some(&mut self, count: u64, gone: &mut Gone) -> Result<(), Errno> {
        // From the end, so that the table shrinks; slots that are closing already have no lease any more.
        let slots: Vec<u32> = self
            .leases
            .iter()
            .enumerate()
            .rev()
            .filter(|(_, lease)| lease.is_some())
            .take(count as usize)
            .map(|(slot, _)| slot as u32)
            .collect();
        for slot in slots {
            if let Some(lease) = self.leases[slot as usize].take() {
                self.ports.release(lease, true, monotonic_ns());
                self.closing += 1;
                self.holder.release(slot, gone)?;
            }
        }
        Ok(())
    }

    fn age_ms(&self, now_ns: u64) -> u32 {
        (now_ns.saturating_sub(self.began_ns) / 1_000_000).min(u64::from(u32::MAX)) as u32
    }

    /// Accounts for the connections that ended.
    fn settle(&mut self, gone: &mut Gone, now_ns: u64) {
        let now_ms = self.age_ms(now_ns);
        let mut dropped_at_once = false;
        for slot in gone.fired.drain(..).chain(gone.released.drain(..)) {
            self.held -= 1;
            let filled_ms = self.filled_ms.get(slot as usize).copied().unwrap_or(0);
            match self.leases.get_mut(slot as usize).and_then(Option::take) {
                Some(lease) => {
                    self.ports.release(lease, false, now_ns);
                    self.counts.dropped += 1;
                    self.is_in_doubt |= self.probing.is_some() && self.rounds_left > 0;
                    dropped_at_once |= now_ms.saturating_sub(filled_ms) < AT_ONCE_MS;
                }
                // We closed it.
                None => self.closing = self.closing.saturating_sub(1),
            }
        }
        // A server that resets every connection would be retried at full speed, for ever.
        if dropped_at_once {
            self.back_off_ns = (2 * self.back_off_ns).clamp(PAUSE_NS / 10, MOST_PAUSE_NS);
            self.paused_until_ns = self.paused_until_ns.max(now_ns + self.back_off_ns);
        } else if now_ns > self.paused_until_ns + 2 * MOST_PAUSE_NS {
            self.back_off_ns = 0;
        }
    }
}

/// CPU time of the calling thread.
fn thread_cpu_ns() -> u64 {
    let mut spent = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `spent` is a live, writable timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut spent) };
    spent.tv_sec as u64 * 1_000_000_000 + spent.tv_nsec as u64
}

impl Drop for Keeper {
    fn drop(&mut self) {
        for attempt in self.attempts.iter().flatten() {
            socket::close(attempt.fd);
        }
    }
}
