//! The TUN delay line, for kernels without netem. One thread between two TUN devices, one in each namespace, forwards
//! every packet when it is due.
//!
//! The thread sleeps until a packet comes or is due. It runs on the client's CPUs and, if permitted, at a real-time
//! priority, because deliveries are late through contention, not through the timer. The thread sleeps whenever it has
//! no work, so it cannot starve its CPU while the load is within its capacity. The lateness of every packet is
//! measured.

pub mod queue;
pub mod shaper;

use crate::affinity;
use crate::error::{DuringStep, WanError};
use crate::tun::{HEADER_BYTES, LONGEST_MERGED, LONGEST_SINGLE, Tun};
use queue::PacketQueue;
use record::lock;
use record::time::monotonic_ns;
use record::{Latency, PathPlan};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use shaper::{PacketFate, Shaper};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Maximum memory for the packets of one direction. 100 ms at 10 Gbit/s need 125 MB.
const LIMIT_BYTES: usize = 256 << 20;
/// Maximum number of packets that are read or written before the other direction's turn.
const BATCH: usize = 64;
/// Divisor of the delay. A thread that is awake delivers a packet early by up to this part of the delay, which saves
/// wake-ups.
const EARLY_PART: u64 = 200;
const EARLIEST_NS: u64 = 50_000;
/// Higher than the kernel's soft interrupt threads, and lower than the threads that keep the machine alive.
const REAL_TIME_PRIORITY: libc::c_int = 40;

#[derive(Debug, Clone, Default)]
pub(crate) struct LineCounts {
    pub packets: u64,
    /// Packets lost as planned.
    pub lost: u64,
    /// Packets dropped because the link's queue or this line's memory was full.
    pub dropped: u64,
    pub refused: u64,
    /// Time from due to delivered, for every packet.
    pub lateness: Latency,
}

#[derive(Debug, Default)]
pub(crate) struct LineState {
    counts: Mutex<LineCounts>,
    should_stop: AtomicBool,
    /// Thread id, and whether its priority is real-time.
    thread: Mutex<Option<(i32, bool)>>,
    failure: Mutex<Option<String>>,
    /// The delay and the bytes of the queue that apply from now on.
    change: Mutex<Option<(u64, u64)>>,
}

/// A running delay line. When it is dropped or the process ends, the line ends and its devices vanish.
#[derive(Debug)]
pub(crate) struct DelayLine {
    pub(crate) shared: Arc<LineState>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl DelayLine {
    /// Pinned to `cpus` unless they are empty.
    pub(crate) fn start(plan: &PathPlan, client: Tun, server: Tun, cpus: &[usize]) -> Result<Self, WanError> {
        let shared = Arc::new(LineState::default());
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).during("make an eventfd")?);
        let mut line = DelayLineThread {
            devices: [client, server],
            directions: [Direction::new(plan, 0), Direction::new(plan, 1)],
            early_ns: earliness_ns(plan.delay_ns),
            shared: shared.clone(),
            wake: wake.clone(),
        };
        let cpus = cpus.to_vec();
        let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name("delay-line".into())
            .spawn(move || {
                let pinned = affinity::pin(&cpus);
                *lock(&line.shared.thread) =
                    Some((rustix::thread::gettid().as_raw_nonzero().get(), become_real_time()));
                let _ = ready.send(pinned);
                if let Err(error) = line.run() {
                    *lock(&line.shared.failure) = Some(error.to_string());
                }
            })
            .during("start the delay line's thread")?;
        let line = DelayLine { shared, wake, thread: Some(thread) };
        is_ready.recv().unwrap_or(Ok(()))?;
        Ok(line)
    }

    pub(crate) fn lacks_real_time(&self) -> bool {
        lock(&self.shared.thread).is_some_and(|(_, is_real_time)| !is_real_time)
    }
}

impl Drop for DelayLine {
    fn drop(&mut self) {
        self.shared.should_stop.store(true, Ordering::Release);
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl LineState {
    pub(crate) fn take(&self) -> LineCounts {
        // The histogram is allocated before the lock is taken, because the line waits for the lock.
        let fresh = LineCounts::default();
        std::mem::replace(&mut *lock(&self.counts), fresh)
    }

    pub(crate) fn cpu_ns(&self) -> Option<u64> {
        let (thread, _) = (*lock(&self.thread))?;
        let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    }

    pub(crate) fn set_delay(&self, delay_ns: u64, queue_bytes: u64) {
        *lock(&self.change) = Some((delay_ns, queue_bytes));
    }

    pub(crate) fn failure(&self) -> Option<String> {
        lock(&self.failure).clone()
    }
}

/// Sets SCHED_FIFO for the calling thread. Without permission it sets at least exact timers.
fn become_real_time() -> bool {
    // SAFETY: prctl with these arguments takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
    let priority = libc::sched_param { sched_priority: REAL_TIME_PRIORITY };
    // SAFETY: `priority` is a live sched_param, and 0 means the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &priority) == 0 }
}

#[derive(Debug)]
struct Direction {
    queue: PacketQueue,
    shaper: Shaper,
    /// Receives a packet if the queue is full.
    spill: Vec<u8>,
    is_readable: bool,
}

impl Direction {
    fn new(plan: &PathPlan, number: u64) -> Self {
        let longest = if plan.is_pure_delay() { LONGEST_MERGED } else { LONGEST_SINGLE };
        Direction {
            queue: PacketQueue::new(longest, LIMIT_BYTES),
            shaper: Shaper::new(plan, number),
            spill: vec![0; longest],
            is_readable: true,
        }
    }

    /// Returns whether there were any packets.
    fn fetch(&mut self, from: &Tun, counts: &Mutex<LineCounts>) -> io::Result<bool> {
        if !self.is_readable {
            return Ok(false);
        }
        let (mut lost, mut dropped, mut fetched) = (0, 0, 0);
        while fetched < BATCH {
            let room = self.queue.room();
            let is_full = room.is_none();
            let Some(length) = from.read(room.unwrap_or(&mut self.spill))? else {
                self.is_readable = false;
                break;
            };
            fetched += 1;
            if is_full {
                dropped += 1;
                continue;
            }
            match self.shaper.fate(monotonic_ns(), length.saturating_sub(HEADER_BYTES)) {
                PacketFate::Due(due_ns) => self.queue.push(length, due_ns),
                PacketFate::Lost => lost += 1,
                PacketFate::Dropped => dropped += 1,
            }
        }
        if lost + dropped > 0 {
            let mut counts = lock(counts);
            counts.lost += lost;
            counts.dropped += dropped;
        }
        Ok(fetched > 0)
    }

    /// Returns whether there were any packets.
    fn deliver(&mut self, to: &Tun, early_ns: u64, counts: &Mutex<LineCounts>) -> bool {
        let mut late_ns = [0; BATCH];
        let (mut count, mut refused) = (0, 0);
        while count + refused < BATCH {
            let Some((due_ns, packet)) = self.queue.front() else { break };
            let now = monotonic_ns();
            if due_ns > now + early_ns {
                break;
            }
            match to.write(packet) {
                Ok(()) => {
                    late_ns[count] = now.saturating_sub(due_ns);
                    count += 1;
                }
                // The link is down or out of memory. The packet is lost, as on a real path, and counted.
                Err(_) => refused += 1,
            }
            self.queue.pop();
        }
        if count + refused == 0 {
            return false;
        }
        let mut counts = lock(counts);
        counts.packets += count as u64;
        counts.refused += refused as u64;
        late_ns[..count].iter().for_each(|late_ns| counts.lateness.record_ns(*late_ns));
        true
    }
}

#[derive(Debug)]
struct DelayLineThread {
    /// The client's and the server's device. Direction 0 leads from the first to the second.
    devices: [Tun; 2],
    directions: [Direction; 2],
    early_ns: u64,
    shared: Arc<LineState>,
    wake: Arc<OwnedFd>,
}

impl DelayLineThread {
    fn run(&mut self) -> io::Result<()> {
        while !self.shared.should_stop.load(Ordering::Acquire) {
            self.take_change();
            let mut was_busy = false;
            for (number, direction) in self.directions.iter_mut().enumerate() {
                was_busy |= direction.deliver(&self.devices[1 - number], self.early_ns, &self.shared.counts);
                was_busy |= direction.fetch(&self.devices[number], &self.shared.counts)?;
            }
            if !was_busy {
                self.sleep()?;
            }
        }
        Ok(())
    }

    fn take_change(&mut self) {
        if let Some((delay_ns, queue_bytes)) = lock(&self.shared.change).take() {
            self.early_ns = earliness_ns(delay_ns);
            for direction in &mut self.directions {
                direction.shaper.set_delay(delay_ns, queue_bytes);
            }
        }
    }

    fn sleep(&mut self) -> io::Result<()> {
        let next_ns = self.directions.iter().filter_map(|direction| Some(direction.queue.front()?.0)).min();
        let timeout = next_ns.map(|due_ns| {
            let nanos = due_ns.saturating_sub(monotonic_ns());
            Timespec { tv_sec: (nanos / 1_000_000_000) as i64, tv_nsec: (nanos % 1_000_000_000) as i64 }
        });
        let [client, server] = &self.devices;
        let mut watched = [
            PollFd::from_borrowed_fd(client.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(server.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.wake.as_fd(), PollFlags::IN),
        ];
        match poll(&mut watched, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let is_readable = [0, 1].map(|number: usize| !watched[number].revents().is_empty());
        for (direction, is_readable) in self.directions.iter_mut().zip(is_readable) {
            direction.is_readable |= is_readable;
        }
        Ok(())
    }
}

fn earliness_ns(delay_ns: u64) -> u64 {
    (delay_ns / EARLY_PART).min(EARLIEST_NS)
}
