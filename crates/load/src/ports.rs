//! Chooses the local address and port of a connection. [`crate::socket`] calls the kernel.
//!
//! Linux chooses ephemeral ports of one parity first. Up to half of the range, a connect costs about 10 us; beyond
//! that each one scans the whole used half first (measured: 540 us). So the allocator
//!
//! 1. leaves the choice to the kernel while a (source, destination, port) tuple is below half of the range,
//! 2. then moves on to the next source address (on loopback, 127.0.0.2 and so on are free of charge),
//! 3. and uses the rest of the range only when every source is half full, with a cheaper search:
//!    `IP_LOCAL_PORT_RANGE` (Linux 6.3) or, before that, an explicit port from a list of this program.
//!
//! A port whose connection *we* closed first stays in TIME_WAIT and counts as used until that is over.

use std::collections::VecDeque;

/// The local end of a connection.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PortLease {
    /// Index of the source address.
    pub source: u16,
    /// How the port is chosen.
    pub port: PortChoice,
}

/// Who chooses a port.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum PortChoice {
    /// The kernel chooses.
    #[default]
    Kernel,
    /// The kernel chooses, scanning the range one by one.
    Scan,
    /// This program chooses.
    Explicit(u16),
}

/// Ports of a source address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRules {
    /// First port of the range.
    pub low: u16,
    /// Last port of the range.
    pub high: u16,
    /// Whether the kernel has `IP_LOCAL_PORT_RANGE`.
    pub can_scan: bool,
    /// Time for which a port that the client closed first stays unusable.
    pub time_wait_ns: u64,
    /// Threads that share the ports.
    pub threads: u64,
}

impl PortRules {
    /// Ports per source address, of all threads together.
    pub fn range(&self) -> u64 {
        u64::from(self.high.saturating_sub(self.low)) + 1
    }

    /// Ports per source address, of all threads together, before the kernel's search becomes slow. A sixteenth is
    /// left to other programs and to closing connections.
    pub fn easy(&self) -> u64 {
        (self.range() / 2 * 15 / 16).max(1)
    }
}

/// One thread's allocator for one destination.
#[derive(Debug)]
pub struct PortAllocator {
    rules: PortRules,
    sources: Vec<SourcePorts>,
    /// Connections per source and thread before the kernel's search becomes slow, and the possible ones.
    easy: u64,
    full: u64,
    /// Source of the last lease. It is used until it is full, so leasing is O(1).
    current: usize,
    /// Threads share the explicit ports by this number.
    thread: u64,
}

/// Ports in TIME_WAIT that become free at one time.
#[derive(Debug)]
struct ClosingPorts {
    free_ns: u64,
    count: u64,
}

#[derive(Debug, Default)]
struct SourcePorts {
    in_use: u64,
    in_time_wait: u64,
    closing: VecDeque<ClosingPorts>,
    explicit: Option<VecDeque<u16>>,
}

impl SourcePorts {
    fn free_closed(&mut self, now_ns: u64) {
        while let Some(closed) = self.closing.front().filter(|closed| closed.free_ns <= now_ns) {
            self.in_time_wait -= closed.count;
            self.closing.pop_front();
        }
    }

    fn taken(&self) -> u64 {
        self.in_use + self.in_time_wait
    }
}

impl PortAllocator {
    /// The allocator of a single thread. `sources`: number of source addresses, at least one.
    pub fn new(rules: PortRules, sources: usize) -> Self {
        PortAllocator::for_thread(rules, sources, 0)
    }

    /// The allocator of one of `rules.threads`, counted from 0. Threads never choose the same explicit port.
    pub fn for_thread(rules: PortRules, sources: usize, thread: u64) -> Self {
        let threads = rules.threads.max(1);
        PortAllocator {
            rules,
            sources: (0..sources.max(1)).map(|_| SourcePorts::default()).collect(),
            easy: (rules.easy() / threads).max(1),
            full: (rules.range() / threads).max(1),
            current: 0,
            thread,
        }
    }

    pub(crate) fn capacity(rules: &PortRules, sources: usize) -> u64 {
        rules.range() * sources.max(1) as u64
    }

    /// Source addresses with which so many connections stay below the slow half of the range.
    pub fn sources_wanted(rules: &PortRules, connections: u64) -> u64 {
        connections.div_ceil(rules.easy()).max(1)
    }

    /// Leases a local end for one more connection; `None` when every port is taken.
    pub fn lease(&mut self, now_ns: u64) -> Option<PortLease> {
        let count = self.sources.len();
        for limit in [self.easy, self.full] {
            for step in 0..count {
                let index = (self.current + step) % count;
                let source = &mut self.sources[index];
                if source.taken() >= limit {
                    source.free_closed(now_ns);
                }
                if source.taken() < limit {
                    let port = if source.taken() < self.easy {
                        PortChoice::Kernel
                    } else if self.rules.can_scan {
                        PortChoice::Scan
                    } else {
                        let (rules, thread) = (self.rules, self.thread);
                        let is_mine = |port: &u16| u64::from(*port) % rules.threads.max(1) == thread;
                        let list = source
                            .explicit
                            .get_or_insert_with(|| (rules.low..=rules.high).rev().filter(is_mine).collect());
                        // Round-robin: a port that failed or was freed is tried last.
                        let port = list.pop_front()?;
                        PortChoice::Explicit(port)
                    };
                    source.in_use += 1;
                    self.current = index;
                    return Some(PortLease { source: index as u16, port });
                }
            }
        }
        None
    }

    /// Returns a lease for which the kernel had no port: other programs use them, or an earlier run left them in
    /// TIME_WAIT. Its source counts as full while that may last.
    pub fn exhausted(&mut self, lease: PortLease, now_ns: u64) {
        self.release(lease, false, now_ns);
        let source = &mut self.sources[usize::from(lease.source)];
        let missing = self.full.saturating_sub(source.taken());
        source.in_time_wait += missing;
        // At least a second, because asking for a port of a full source is slow.
        let free_ns = now_ns + self.rules.time_wait_ns.max(1_000_000_000);
        source.closing.push_back(ClosingPorts { free_ns, count: missing });
    }

    /// Returns a lease. `closed_first`: our end closed first, so the TIME_WAIT is ours.
    pub fn release(&mut self, lease: PortLease, closed_first: bool, now_ns: u64) {
        let step_ns = (self.rules.time_wait_ns / 8).max(1);
        let source = &mut self.sources[usize::from(lease.source)];
        source.in_use -= 1;
        if let PortChoice::Explicit(port) = lease.port
            && let Some(list) = &mut source.explicit
        {
            list.push_back(port);
        }
        if closed_first && self.rules.time_wait_ns > 0 {
            source.in_time_wait += 1;
            let free_ns = now_ns + self.rules.time_wait_ns;
            match source.closing.back_mut() {
                // Steps are in order of time: a step that would end before the last one ends with the last one.
                Some(last) if free_ns <= last.free_ns => last.count += 1,
                _ => source.closing.push_back(ClosingPorts { free_ns: free_ns + step_ns, count: 1 }),
            }
        }
    }
}
