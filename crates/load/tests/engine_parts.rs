//! Parts of the engine without a server: local ports, the connect ramp, the poller, paces, bursts, stalls.

mod ports {
    use load::ports::{PortAllocator, PortChoice, PortLease, PortRules};
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

mod ramp {
    use load::ramp::{ConnectRamp, HANGS_AFTER_NS, TICK_NS};

    #[test]
    fn the_ramp_accelerates_while_attempts_succeed() {
        let mut ramp = ConnectRamp::new(0.0);
        let begun: u64 = (0..1000).map(|tick| ramp.allowance(tick * TICK_NS, 0)).sum();
        assert!(begun > 50_000, "{begun}");
    }

    #[test]
    fn a_hanging_attempt_slows_the_ramp_down() {
        let mut ramp = ConnectRamp::new(0.0);
        for tick in 0..100 {
            ramp.allowance(tick * TICK_NS, 0);
        }
        for fall in 1..10u64 {
            ramp.fall_back(fall * HANGS_AFTER_NS + TICK_NS);
        }
        let now = 20 * HANGS_AFTER_NS;
        assert_eq!(ramp.allowance(now, 0), 1);
        assert_eq!(ramp.allowance(now + TICK_NS, 4), 0, "as many hang as may be in flight");
    }

    #[test]
    fn a_handshake_over_a_long_path_does_not_hang() {
        let mut ramp = ConnectRamp::new(0.0);
        assert!(ramp.hangs(600_000_000) && !ramp.hangs(100_000_000));
        ramp.succeeded(600_000_000);
        ramp.succeeded(610_000_000);
        assert!(!ramp.hangs(1_100_000_000) && ramp.hangs(1_600_000_000));
    }

    #[test]
    fn a_requested_rate_is_kept() {
        let mut ramp = ConnectRamp::new(100.0);
        let begun: u64 = (1..=10_000).map(|step| ramp.allowance(step * 100_000, 0)).sum();
        assert!((99..=101).contains(&begun), "{begun} in a second");
    }
}

mod poller {
    use load::poller::{Poller, READABLE};
    use std::os::fd::AsRawFd;

    /// Makes this thread's calls of `epoll_pwait2` fail, as in a sandbox.
    fn refuse_pwait2() {
        let refused = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;
        let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let mut program = [
            instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::SYS_epoll_pwait2 as u32),
            instruction(libc::BPF_RET | libc::BPF_K, 0, 0, refused),
            instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the program lives through the call, which copies it.
        let result = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter)
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    #[test]
    fn a_sandbox_without_epoll_pwait2_gets_milliseconds() {
        let waiting = std::thread::spawn(|| {
            refuse_pwait2();
            let mut poller = Poller::new().unwrap();
            let (mine, other) = std::os::unix::net::UnixStream::pair().unwrap();
            poller.add(mine.as_raw_fd(), READABLE, 7).unwrap();
            assert_eq!(poller.wait(1_500_000), Ok(0));
            std::io::Write::write_all(&mut &other, b"x").unwrap();
            assert_eq!(poller.wait(1_500_000), Ok(1));
            assert_eq!(poller.event(0).1, 7);
            assert!(!poller.is_exact());
        });
        waiting.join().unwrap();
    }
}

mod pace {
    use load::worker::transport::LimitedPace;
    use record::ClientPlan;

    #[test]
    fn a_connection_pauses_as_long_as_its_pace_requires() {
        let clients = ClientPlan { read_bytes_per_sec: 50_000, ..Default::default() };
        let mut pace = LimitedPace::new(&clients, 2).unwrap();
        let now = 10_000_000_000;
        pace.request_leaves(0, now);
        assert_eq!(pace.room(0, now, 64), Some(64));
        pace.took(0, 5000, now, true);
        assert_eq!(pace.room(0, now, 64), None);
        assert_eq!(pace.next_due_ns(), now + 100_000_000);
        assert_eq!(pace.take_due(now), None);
        assert_eq!(pace.take_due(now + 100_000_000), Some(0));
        assert_eq!(pace.take_due(u64::MAX), None, "one timer a connection");
        assert_eq!(pace.room(0, now + 100_000_000, 10_000), Some(5000));
        pace.took(0, 5000, now + 100_000_000, false);
        assert_eq!(pace.next_due_ns(), now + 200_000_000);
        assert_eq!(pace.bits_per_sec(1_000_000_000), [40_000.0, 0.0]);
    }
}

mod bursts {
    use load::worker::transport::ArrivalTime;
    use load::worker::transport::reap::{BURST_NS, BurstTimes, Bursts, Offset, PERIOD_NS, WallClock};

    const SENT_NS: u64 = 5_000_000_000;
    fn wall(offset_ns: i64) -> (WallClock, Offset) {
        let offset = Offset { ns: offset_ns, slack_ns: 1_000 };
        (WallClock::new(offset), offset)
    }

    #[test]
    fn a_time_stamp_is_converted_to_the_monotonic_clock() {
        let (mut clock, same) = wall(1_700_000_000_000_000_000);
        let stamp_ns = 1_700_000_000_000_000_000 + SENT_NS + 70_000;
        assert_eq!(clock.convert(stamp_ns, SENT_NS, same, SENT_NS + 90_000), ArrivalTime::At(SENT_NS + 70_000));
        // Stamps before the request, and after its response was read: the wall clock was set and set back.
        for wrong_ns in [stamp_ns - 100_000, stamp_ns + 1_000_000] {
            assert_eq!(clock.convert(wrong_ns, SENT_NS, same, SENT_NS + 90_000), ArrivalTime::Unknown);
        }
    }

    #[test]
    fn a_time_stamp_that_may_precede_a_clock_step_is_ignored() {
        for step_ns in [-3_600_000_000_000, -1_000_000, 1_000_000, 3_600_000_000_000] {
            let (mut clock, before) = wall(1_700_000_000_000_000_000);
            let stamp = |offset: Offset, at_ns: u64| (offset.ns + at_ns as i64) as u64;
            let after = Offset { ns: before.ns + step_ns, ..before };
            // The step is noticed at the first read after it, for a request that arrived before it.
            let seen_ns = SENT_NS + 9_000_000;
            let old = stamp(before, SENT_NS + 2_000_000);
            assert_eq!(clock.convert(old, SENT_NS, after, seen_ns), ArrivalTime::Unknown, "{step_ns}");
            // Another request was in flight during the step, whichever clock its stamp has.
            for offset in [before, after] {
                let stamp = stamp(offset, SENT_NS + 8_000_000);
                assert_eq!(
                    clock.convert(stamp, SENT_NS + 1, after, seen_ns + 1_000_000),
                    ArrivalTime::Unknown,
                    "{step_ns}"
                );
            }
            // A request that was sent after the step was noticed.
            let (sent_ns, arrived_ns) = (seen_ns + 10, seen_ns + 50_000);
            let arrival = clock.convert(stamp(after, arrived_ns), sent_ns, after, seen_ns + 60_000);
            assert_eq!(arrival, ArrivalTime::At(arrived_ns), "{step_ns}");
        }
    }

    #[test]
    fn an_interrupted_reading_is_not_a_clock_step() {
        let (mut clock, good) = wall(1_000_000_000_000);
        let poor = Offset { ns: good.ns + 4_000_000, slack_ns: 8_000_000 };
        let stamp_ns = (good.ns as u64) + SENT_NS + 70_000;
        assert_eq!(clock.convert(stamp_ns, SENT_NS, poor, SENT_NS + 90_000), ArrivalTime::At(SENT_NS + 70_000));
        assert_eq!(clock.convert(stamp_ns, SENT_NS, good, SENT_NS + 95_000), ArrivalTime::At(SENT_NS + 70_000));
    }

    /// Checks events from `now_ns` on, for a load of one connection that always has a response.
    struct BurstCheck(Bursts);

    impl BurstCheck {
        fn new(seed: u64) -> Self {
            BurstCheck(Bursts::new(BurstTimes { seed, is_always: false }, 1))
        }

        /// Makes two checks; returns whether a response that arrives after the second one, and is read at the third,
        /// is sampled.
        fn takes(&mut self, now_ns: u64, gap_ns: u64) -> (bool, u64) {
            self.0.after_wait(now_ns, 1, true);
            let (dated, arrived_ns, read_ns) = (self.0.is_dating(), now_ns + gap_ns / 3, now_ns + gap_ns);
            // The response is read before the next check or after it. Or the thread is preempted between a wait that
            // found nothing and its check; the next wait then finds the response.
            let read = |bursts: &Bursts| bursts.is_dating() && bursts.takes(ArrivalTime::At(arrived_ns), 0);
            let early = dated && read(&self.0);
            self.0.after_wait(read_ns, 0, true);
            let late = dated && read(&self.0);
            self.0.after_wait(read_ns + 1, 1, true);
            let latest = dated && read(&self.0);
            assert_eq!((late, latest), (early, early), "at {now_ns}, read {gap_ns} ns after it");
            (early, read_ns + 1)
        }
    }

    #[test]
    fn stalls_of_any_length_are_sampled_without_bias() {
        const STALLS: u64 = 20_000;
        let wanted = STALLS * BURST_NS / PERIOD_NS;
        for stall_ns in [100_000, 7_000_000, 100_000_000, 1_000_000_000, 3_000_000_000] {
            let (mut looks, mut now_ns, mut taken) = (BurstCheck::new(stall_ns), 0, 0);
            for _ in 0..STALLS {
                // In step with the periods: a stall, then checks every 5 ms until the next stall.
                let again_ns = (now_ns + stall_ns).next_multiple_of(PERIOD_NS) + 60_000_000;
                let (is_taken, next_ns) = looks.takes(now_ns, stall_ns);
                taken += u64::from(is_taken);
                now_ns = next_ns;
                while now_ns < again_ns {
                    now_ns = looks.takes(now_ns, 5_000_000.min(again_ns - now_ns)).1;
                }
            }
            assert!(taken.abs_diff(wanted) < wanted / 4, "{taken} of {STALLS} stalls of {stall_ns} ns, not {wanted}");
        }
    }

    #[test]
    fn bursts_take_their_share_of_the_time_at_random_times() {
        const PERIODS: u64 = 20_000;
        const PLACES: u64 = PERIOD_NS / BURST_NS;
        let times = BurstTimes { seed: 7, is_always: false };
        let mut of_place = [0; PLACES as usize];
        for period in 1..=PERIODS {
            for (place, count) in (0..).zip(&mut of_place) {
                let at_ns = period * PERIOD_NS + place * BURST_NS;
                *count += u64::from(times.next(at_ns).contains(&at_ns));
            }
        }
        let wanted = PERIODS / PLACES;
        assert!(of_place.iter().all(|count: &u64| count.abs_diff(wanted) < wanted / 4), "{of_place:?}");
    }

    #[test]
    fn arrivals_before_or_after_a_burst_do_not_belong_to_it() {
        let times = BurstTimes { seed: 3, is_always: false };
        let meant = times.next(SENT_NS);
        let mut bursts = Bursts::new(times, 1_000);
        let (on_ns, over_ns) = (meant.start + 1_000, meant.end + 9_000_000);
        bursts.after_wait(meant.start - 1, 0, true);
        assert!(!bursts.is_dating());
        assert_eq!((bursts.after_wait(on_ns, 512, false), bursts.open()), (None, on_ns..u64::MAX));
        // The burst is longer than planned because the thread was held up.
        assert_eq!(bursts.after_wait(meant.end - 1, 512, false), None);
        assert_eq!((bursts.after_wait(over_ns, 512, false), bursts.open()), (Some(on_ns..over_ns), 0..0));
        let is_of = |bursts: &Bursts, at_ns| bursts.takes(ArrivalTime::At(at_ns), SENT_NS);
        for (at_ns, is_in) in [(on_ns - 1, false), (on_ns, true), (over_ns - 1, true), (over_ns, false)] {
            assert_eq!(is_of(&bursts, at_ns), is_in, "{at_ns}");
        }
        // A response without a stamp arrived before the burst, unless its request was sent in the burst.
        assert!(!bursts.takes(ArrivalTime::Unknown, on_ns - 1) && bursts.takes(ArrivalTime::Unknown, on_ns));
        // The burst's last responses come after the events of other connections.
        bursts.after_wait(over_ns + 1, 488, false);
        assert!(bursts.is_dating(), "1,000 connections may have had none yet");
        bursts.after_wait(over_ns + 2, 512, false);
        assert!(bursts.is_dating(), "the last of them are only about to be read");
        bursts.after_wait(over_ns + 3, 512, false);
        assert!(!bursts.is_dating());
    }
}

mod stalls {
    use load::stall::{KEPT, StallLog};

    fn seen(responses: &[(u64, u64)]) -> StallLog {
        let mut stalls = StallLog::default();
        responses.iter().for_each(|(sent, came)| stalls.answered(*sent, *came, 100..10_000));
        stalls
    }

    #[test]
    fn time_without_requests_and_before_the_window_is_not_a_stall() {
        assert_eq!(StallLog::default().longest_ns(), None);
        assert_eq!(seen(&[(10, 130)]).longest_ns(), Some(30), "from the window's begin");
        assert_eq!(
            seen(&[(100, 110), (1000, 1020), (1020, 1025)]).longest_ns(),
            Some(20),
            "nothing was asked before 1000"
        );
        assert_eq!(seen(&[(100, 110), (105, 150), (106, 152)]).longest_ns(), Some(40), "two were in flight");
    }

    #[test]
    fn abandoned_requests_and_the_end_of_the_window_do_not_end_a_stall() {
        let mut stalls = seen(&[(100, 200)]);
        [210, 410, 610].into_iter().for_each(|sent| stalls.gave_up(sent));
        stalls.answered(810, 900, 100..2_000);
        assert_eq!(stalls.longest_ns(), Some(690));
        stalls.answered(900, 901, 100..2_000);
        let mut late = stalls.clone();
        late.answered(901, 5_000, 100..2_000);
        assert_eq!(late.longest_ns(), Some(1_099), "answered after the window");
        late.answered(5_000, 9_000, 100..2_000);
        late.end(100..2_000);
        assert_eq!(late.longest_ns(), Some(1_099), "after it nothing counts");
        stalls.gave_up(950);
        stalls.end(100..2_000);
        assert_eq!(stalls.longest_ns(), Some(1_050), "still in flight at the end");
    }

    #[test]
    fn only_the_longest_stalls_are_kept() {
        let mut stalls = StallLog::default();
        (1..1000).for_each(|at| stalls.answered(at * 1000, at * 1000 + at * 7 % 1000, 0..u64::MAX));
        let mut kept: Vec<u64> = stalls.lengths().collect();
        kept.sort_unstable();
        assert_eq!(kept, (1000 - KEPT as u64..1000).collect::<Vec<_>>());
    }

    #[test]
    fn a_stall_must_affect_all_threads() {
        let merged = |a: &[(u64, u64)], b: &[(u64, u64)]| {
            let mut both = seen(a);
            both.merge(seen(b));
            both.longest_ns()
        };
        assert_eq!(merged(&[(100, 300)], &[(150, 310)]), Some(150));
        assert_eq!(merged(&[(100, 200)], &[(250, 400)]), Some(0), "one of them was always answered");
        assert_eq!(merged(&[(100, 200)], &[]), Some(100));
        assert_eq!(merged(&[], &[]), None);
        // Both threads stalled from 300 to 800; then the first one had a longer wait of its own.
        let pause_and_own = [(100, 300), (300, 800), (800, 810), (810, 1500)];
        let pause = [(100, 290), (290, 800), (800, 900), (900, 1000), (1000, 1100), (1100, 1500)];
        assert_eq!(merged(&pause_and_own, &pause), Some(500), "the longest of all, not of what was longest for each");
    }
}
