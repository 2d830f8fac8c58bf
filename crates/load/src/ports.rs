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

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PortLease {
    pub source: u16,
    pub port: PortChoice,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum PortChoice {
    /// The kernel chooses.
    #[default]
    Kernel,
    /// The kernel chooses, scanning the range one by one.
    Scan,
    Explicit(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortRules {
    pub low: u16,
    pub high: u16,
    /// Whether the kernel has `IP_LOCAL_PORT_RANGE`.
    pub can_scan: bool,
    /// Time for which a port that the client closed first stays unusable.
    pub time_wait_ns: u64,
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

    pub fn capacity(rules: &PortRules, sources: usize) -> u64 {
        rules.range() * sources.max(1) as u64
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: u64 = 1_000_000_000;

    fn rules(can_scan: bool) -> PortRules {
        PortRules { low: 32768, high: 60999, can_scan, time_wait_ns: 60 * SECOND, threads: 1 }
    }

    #[test]
    fn sixty_thousand_connections_never_reach_the_slow_half() {
        let sources = PortAllocator::sources_wanted(&rules(true), 60_000) as usize;
        assert_eq!(sources, 5);
        let mut ports = PortAllocator::new(rules(true), sources);
        let mut per_source = vec![0u64; sources];
        for _ in 0..60_000 {
            let lease = ports.lease(0).unwrap();
            assert_eq!(lease.port, PortChoice::Kernel);
            per_source[usize::from(lease.source)] += 1;
        }
        assert!(per_source.iter().all(|count| *count <= 14_000), "{per_source:?}");
    }

    #[test]
    fn a_single_source_uses_more_than_half_of_the_range_by_scanning() {
        let mut ports = PortAllocator::new(rules(true), 1);
        let leases: Vec<PortLease> = std::iter::from_fn(|| ports.lease(0)).collect();
        assert_eq!(leases.len(), 28_232);
        assert!(leases[..13_000].iter().all(|lease| lease.port == PortChoice::Kernel));
        assert!(leases[14_116..].iter().all(|lease| lease.port == PortChoice::Scan));
    }

    #[test]
    fn threads_never_pick_the_same_explicit_port() {
        let shared = PortRules { threads: 2, ..rules(false) };
        let explicit = |thread| -> std::collections::HashSet<u16> {
            let mut ports = PortAllocator::for_thread(shared, 1, thread);
            std::iter::from_fn(|| ports.lease(0))
                .filter_map(|lease| if let PortChoice::Explicit(port) = lease.port { Some(port) } else { None })
                .collect()
        };
        assert!(explicit(0).len() > 7_000);
        assert!(explicit(0).is_disjoint(&explicit(1)));
    }

    #[test]
    fn a_source_without_ports_is_skipped_for_a_while() {
        let mut ports = PortAllocator::new(rules(true), 2);
        let lease = ports.lease(0).unwrap();
        ports.exhausted(lease, 0);
        for _ in 0..100 {
            assert_eq!(ports.lease(SECOND).unwrap().source, 1 - lease.source);
        }
        let mut alone = PortAllocator::new(rules(true), 1);
        let lease = alone.lease(0).unwrap();
        alone.exhausted(lease, 0);
        assert_eq!(alone.lease(SECOND), None);
        assert!(alone.lease(61 * SECOND).is_some());
    }

    #[test]
    fn a_port_in_time_wait_is_not_reused_before_it_ends() {
        let tiny = PortRules { low: 1, high: 4, ..rules(true) };
        let mut ports = PortAllocator::new(tiny, 1);
        for _ in 0..4 {
            let lease = ports.lease(0).unwrap();
            ports.release(lease, true, 0);
        }
        assert_eq!(ports.lease(59 * SECOND), None);
        assert!(ports.lease(80 * SECOND).is_some());
        let mut ports = PortAllocator::new(tiny, 1);
        for _ in 0..100 {
            let lease = ports.lease(0).unwrap();
            ports.release(lease, false, 0);
        }
    }

    proptest! {
        #[test]
        fn leases_never_exceed_the_range_in_any_order(
            steps in prop::collection::vec((any::<bool>(), any::<bool>(), 0u64..SECOND), 1..400),
            can_scan: bool,
            sources in 1usize..4,
        ) {
            let rules = PortRules { low: 10, high: 19, can_scan, time_wait_ns: 2 * SECOND, threads: 1 };
            let mut ports = PortAllocator::new(rules, sources);
            let (mut held, mut now) = (Vec::new(), 0);
            for (take, first, pause) in steps {
                now += pause;
                if take {
                    if let Some(lease) = ports.lease(now) { held.push(lease); }
                } else if let Some(lease) = held.pop() {
                    if first && pause % 7 == 0 { ports.exhausted(lease, now) } else { ports.release(lease, first, now) }
                }
                for source in 0..sources {
                    prop_assert!(held.iter().filter(|lease| usize::from(lease.source) == source).count() <= 10);
                }
                let is_explicit = |lease: &&PortLease| matches!(lease.port, PortChoice::Explicit(_));
                let explicit: Vec<_> = held.iter().filter(is_explicit).collect();
                for (at, lease) in explicit.iter().enumerate() {
                    prop_assert!(!explicit[..at].contains(lease));
                }
            }
        }
    }
}
