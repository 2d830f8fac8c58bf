//! The herd's thread: opens connections at the herd's pace, hands those that the server has to the holder, and replaces
//! those that it drops.
//!
//! A handshake that is done at the client's end is not always done at the server's: a kernel whose accept queue is full may
//! answer with a SYN cookie, keep no state, and drop the last segment. The client's end then stays established for ever. So
//! each connection is probed once (keep-alive), and counts when the server has answered.

use super::holder::{Gone, HELD_EVENT, Holder, RING_EVENT};
use super::{ColdCounts, Keep, Shared};
use crate::check;
use crate::herd::Herd;
use crate::poller::{Poller, READABLE, WRITABLE_TOO};
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
/// Entries of one ring's table, where the descriptor limit allows as many.
const PER_RING: u64 = 32_768;
/// Connections closed in one round.
const RELEASES: u64 = 4_096;
/// How often attempts are looked at for time-outs and answered probes.
const SWEEP_NS: u64 = 20_000_000;
/// The first probe has left when a connection is as old as this, and what the server acknowledges in the last half of it is no
/// answer to the handshake.
const PROBED_AFTER_NS: u64 = 1_010_000_000;
/// Connections that may wait for the answer to their probe at once, as a part of the descriptors that a process may open.
const PROBED_PART: u64 = 2;

/// A connection that the server is not known to have.
#[derive(Clone, Copy)]
struct Attempt {
    fd: i32,
    lease: Lease,
    began_ns: u64,
    /// When the handshake was done, at the client's end.
    opened_ns: Option<u64>,
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
    /// Those whose handshake is not done.
    under_way: u64,
    /// Those whose probe is not answered, and how many there may be at once.
    probed: u64,
    most_probed: u64,
    next_sweep_ns: u64,
    /// The lease of every held slot; `None` where the slot is empty.
    leases: Vec<Option<Lease>>,
    /// The pause after connections that the server dropped at once; grows while it keeps doing so.
    back_off_ns: u64,
    held: u64,
    /// Held connections that we are closing.
    closing: u64,
    paused_until_ns: u64,
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
            probed: 0,
            most_probed: if holder.is_descriptors() { most } else { limit / PROBED_PART }.max(1),
            next_sweep_ns: 0,
            holder,
            leases: Vec::new(),
            back_off_ns: 0,
            held: 0,
            closing: 0,
            paused_until_ns: 0,
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
            let begun = kept + self.probed + self.under_way;
            let may_open = begun < target && self.probed + self.under_way < self.most_probed;
            if may_open && now_ns >= self.paused_until_ns {
                self.open_some((target - begun).min(self.most_probed - self.probed - self.under_way), now_ns)?;
            } else if kept > target {
                self.close_some((kept - target).min(RELEASES), &mut gone)?;
            }
            if now_ns >= self.next_sweep_ns && self.probed + self.under_way > 0 {
                self.next_sweep_ns = now_ns + SWEEP_NS;
                self.sweep(now_ns)?;
            }
            self.holder.drain(&mut gone)?;
            self.settle(&mut gone, now_ns);
            if self.probed + self.under_way == 0 {
                // Some thousand at most while the herd grows; not needed while it stays.
                (self.attempts, self.free_attempts) = (Vec::new(), Vec::new());
            }
            self.publish(shared);
            let pause_ns = self.paused_until_ns.saturating_sub(monotonic_ns());
            let wait_ns = if self.closing > 0 || (may_open && pause_ns == 0) {
                self.herd.next_ns().saturating_sub(monotonic_ns()).clamp(50_000, 1_000_000)
            } else if self.probed + self.under_way > 0 {
                // Handshakes are events.
                SWEEP_NS
            } else if may_open {
                pause_ns.min(LOOK_NS)
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
        let bytes = self.leases.capacity() * size_of::<Option<Lease>>()
            + self.attempts.capacity() * size_of::<Option<Attempt>>()
            // The holder's free lists: one number a slot.
            + self.leases.capacity() * size_of::<u32>();
        self.counts = ColdCounts {
            established: self.held - self.closing,
            cpu_ns: thread_cpu_ns(),
            user_bytes: bytes as u64,
            ..self.counts
        };
        shared.report(|told| told.counts = self.counts);
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
            self.attempts[number as usize] = Some(Attempt { fd, lease, began_ns: now_ns, opened_ns: None });
            self.under_way += 1;
            self.poller.add(fd, WRITABLE_TOO, u64::from(number))?;
        }
        Ok(())
    }

    fn begin(&self, lease: Lease) -> Result<i32, Errno> {
        let family = self.address.family();
        let fd = socket::stream_socket(family)?;
        let begun = socket::set_keepalive(fd, true)
            .and_then(|()| {
                socket::bind_source(fd, self.sources[usize::from(lease.source)], lease.port, self.range, family)
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

    /// Something happened to an attempt: its handshake is done or failed, or the server ended it before it answered the probe.
    fn decided(&mut self, number: u32, conditions: u32) -> Result<(), Errno> {
        let Some(attempt) = self.attempts.get(number as usize).copied().flatten() else { return Ok(()) };
        let now_ns = monotonic_ns();
        if attempt.opened_ns.is_some() {
            self.forget(number);
            self.ports.release(attempt.lease, false, now_ns);
            self.counts.dropped += 1;
            // It was full, or it takes no more: at full speed it would be asked for ever.
            self.herd.fall_back(now_ns);
            if now_ns >= self.paused_until_ns {
                self.back_off_ns = (2 * self.back_off_ns).clamp(PAUSE_NS / 10, MOST_PAUSE_NS);
                self.paused_until_ns = now_ns + self.back_off_ns;
            }
            return Ok(());
        }
        let is_broken = conditions & (libc::EPOLLERR | libc::EPOLLHUP) as u32 != 0;
        if is_broken || socket::take_error(attempt.fd).is_some() {
            self.forget(number);
            self.ports.release(attempt.lease, false, now_ns);
            self.failed(now_ns);
            return Ok(());
        }
        let took_ns = now_ns - attempt.began_ns;
        if self.herd.hangs(took_ns) {
            self.herd.fall_back(now_ns);
        }
        self.herd.succeeded(took_ns);
        self.attempts[number as usize] = Some(Attempt { opened_ns: Some(now_ns), ..attempt });
        self.under_way -= 1;
        self.probed += 1;
        self.counts.opened += 1;
        self.poller.modify(attempt.fd, READABLE, u64::from(number))
    }

    /// Takes an attempt off the list.
    fn take(&mut self, number: u32) -> Option<Attempt> {
        let attempt = self.attempts[number as usize].take()?;
        self.free_attempts.push(number);
        *(if attempt.opened_ns.is_some() { &mut self.probed } else { &mut self.under_way }) -= 1;
        Some(attempt)
    }

    fn forget(&mut self, number: u32) {
        if let Some(attempt) = self.take(number) {
            socket::close(attempt.fd);
        }
    }

    /// The server answered: the connection is held from now on, and no longer probed.
    fn hold(&mut self, number: u32) -> Result<(), Errno> {
        let Some(attempt) = self.take(number) else { return Ok(()) };
        let held = socket::set_keepalive(attempt.fd, false).and_then(|()| self.holder.hold(attempt.fd, &self.poller));
        let slot = held.inspect_err(|_| socket::close(attempt.fd))? as usize;
        if slot >= self.leases.len() {
            self.leases.resize(slot + 1, None);
        }
        self.leases[slot] = Some(attempt.lease);
        self.held += 1;
        self.back_off_ns = 0;
        Ok(())
    }

    fn failed(&mut self, now_ns: u64) {
        self.counts.failed += 1;
        self.herd.fall_back(now_ns);
        self.paused_until_ns = now_ns + PAUSE_NS;
    }

    /// Gives up handshakes that take too long, and holds the connections whose probe was answered. The kernel itself ends those
    /// whose probes are not.
    fn sweep(&mut self, now_ns: u64) -> Result<(), Errno> {
        for number in 0..self.attempts.len() as u32 {
            match self.attempts[number as usize] {
                Some(Attempt { fd, opened_ns: Some(opened_ns), .. }) => {
                    let age_ns = now_ns.saturating_sub(opened_ns);
                    let is_answer = |ago_ns| ago_ns < age_ns - PROBED_AFTER_NS / 2;
                    if age_ns > PROBED_AFTER_NS && socket::acknowledged_ns_ago(fd).is_some_and(is_answer) {
                        self.hold(number)?;
                    }
                }
                Some(attempt) if now_ns.saturating_sub(attempt.began_ns) > self.connect_timeout_ns => {
                    self.forget(number);
                    self.ports.release(attempt.lease, true, now_ns);
                    self.failed(now_ns);
                }
                _ => {}
            }
        }
        Ok(())
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

    /// Accounts for the connections that ended.
    fn settle(&mut self, gone: &mut Gone, now_ns: u64) {
        for slot in gone.fired.drain(..).chain(gone.released.drain(..)) {
            self.held -= 1;
            match self.leases.get_mut(slot as usize).and_then(Option::take) {
                Some(lease) => {
                    self.ports.release(lease, false, now_ns);
                    self.counts.dropped += 1;
                }
                // We closed it.
                None => self.closing = self.closing.saturating_sub(1),
            }
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
