//! Tests of the watch's schedule, windows, clocks and estimates, and of its readings of the system.

mod schedule {
    use observe::watch::schedule::*;
    use std::time::Duration;

    #[test]
    fn windows_keep_their_period_on_average_and_do_not_overlap() {
        let mut schedule = WindowTimes::new(0, 7);
        let mut ends = Vec::new();
        for _ in 0..200 {
            let opens = schedule.next_ns().unwrap();
            assert!(ends.last().is_none_or(|end| opens >= *end), "windows overlap");
            let ends_at = opens + 1_050_000_000;
            ends.push(ends_at);
            schedule.plan_next(ends_at);
        }
        let mean = (ends[199] - ends[0]) as f64 / 199.0 / 1e9;
        assert!((4.5..6.0).contains(&mean), "a window each {mean} s");
    }

    #[test]
    fn expensive_windows_become_rare_and_finally_stop() {
        let mut schedule = WindowTimes::new(0, 7);
        schedule.adapt(0.004, 0.01, 0.01);
        assert_eq!(schedule.period(), Some(SHORTEST_PERIOD));
        schedule.adapt(0.004, 0.04, 0.01);
        assert_eq!(schedule.period(), Some(Duration::from_secs(10)));
        schedule.adapt(0.009, 0.04, 0.01);
        assert_eq!((schedule.period(), schedule.next_ns()), (None, None));
        schedule.adapt(0.001, f64::NAN, 0.01);
        assert_eq!(schedule.period(), None, "nonsense changes nothing");
    }
}

mod intervals {
    use observe::watch::intervals::*;
    use record::watch::system::{KINDS, SystemKind};

    fn seconds(intervals: &Intervals) -> [f64; KINDS] {
        SystemKind::ALL.map(|kind| intervals.get(kind).as_secs_f64())
    }

    #[test]
    fn each_kind_has_its_own_interval() {
        let of = |text: &str| seconds(&Intervals::parse(text).unwrap());
        assert_eq!(of("500ms"), [0.5; KINDS]);
        assert_eq!(of("cpu=100ms, disk=10s,memory=30s"), [0.1, 1.0, 10.0, 1.0, 30.0, 1.0]);
        assert_eq!(of("5s,interrupts=60s"), [5.0, 60.0, 5.0, 5.0, 5.0, 5.0]);
    }

    #[test]
    fn impossible_intervals_are_refused_with_a_reason() {
        for (text, word) in [
            ("", "duration"),
            ("disk", "duration"),
            ("disk=", "duration"),
            ("disc=1s", "'disc' is not a kind"),
            ("disk=1s,disk=2s", "two intervals"),
            ("disk=1s,5s", "must come first"),
        ] {
            let why = Intervals::parse(text).unwrap_err().to_string();
            assert!(why.contains(word), "{text}: {why}");
        }
    }

    #[test]
    fn each_kind_is_due_once_per_interval() {
        let intervals = Intervals::parse("1s,memory=3s").unwrap();
        let mut due = DueKinds::default();
        let mut read = [0; KINDS];
        for second in 1..=9u64 {
            // Readings are never exactly on time.
            for kind in due.at(second * 1_000_000_000 + second % 2 * 30_000_000, &intervals) {
                read[kind as usize] += 1;
            }
        }
        assert_eq!(read, [9, 9, 9, 9, 3, 9]);
    }
}

mod duty {
    use observe::watch::duty::*;

    const S: u64 = 1_000_000_000;

    /// Simulates a server that uses one CPU, where counting costs `cost` of the time. Returns the counted part and
    /// the added share in the second half of `seconds`.
    fn run(cost: impl Fn(u64) -> f64, seconds: u64) -> (f64, f64) {
        let mut duty = Duty::new(CostAccount::default());
        let mut account = CostAccount::default();
        let (mut is_counting, mut half) = (true, CostAccount::default());
        for tick in 1..=seconds * 100 {
            let now_ns = tick * S / 100;
            let counted_ns = if is_counting { S / 100 } else { 0 };
            let counting_ns = cost(now_ns) * counted_ns as f64;
            account = CostAccount {
                at_ns: now_ns,
                server_ns: now_ns,
                counted_ns: account.counted_ns + counted_ns,
                counting_ns: account.counting_ns + counting_ns,
                added_ns: account.added_ns + counting_ns,
            };
            let mut acts = Vec::new();
            if tick % 100 == 0 {
                acts.extend(duty.account(account, 0.01));
            }
            acts.extend(duty.step(now_ns));
            acts.into_iter()
                .for_each(|act| is_counting = act == DutyAction::Begin || is_counting && act == DutyAction::Shut);
            if tick == seconds * 50 {
                half = account;
            }
        }
        let passed_ns = (account.at_ns - half.at_ns) as f64;
        ((account.counted_ns - half.counted_ns) as f64 / passed_ns, (account.added_ns - half.added_ns) / passed_ns)
    }

    #[test]
    fn all_requests_are_counted_while_the_cost_stays_within_the_limit() {
        assert_eq!(run(|_| 0.007, 100).0, 1.0);
    }

    #[test]
    fn beyond_the_limit_requests_are_counted_in_affordable_windows() {
        for cost in [0.012, 0.05, 0.2] {
            let (counted, added) = run(|_| cost, 1000);
            assert!(added <= 0.01 && added > 0.005, "{cost}: {added}");
            assert!((counted - 0.008 / cost).abs() < 0.3 * 0.008 / cost, "{cost}: {counted}");
        }
    }

    #[test]
    fn all_requests_are_counted_again_when_counting_has_become_cheap() {
        let (counted, added) = run(|now_ns| if now_ns < 300 * S { 0.1 } else { 0.001 }, 1000);
        assert_eq!((counted, added < 0.0011), (1.0, true), "{added}");
    }
}

mod edges {
    use observe::watch::edges::*;

    fn progress(unfinished: u64) -> RequestProgress {
        RequestProgress { unfinished, ..RequestProgress::default() }
    }

    #[test]
    fn a_load_waits_for_requests_but_not_for_those_that_never_end() {
        let mut edges = LoadGaps::default();
        assert!(!edges.waits(progress(0), 0, 0) && edges.waits(progress(3), 0, 0));
        assert!(!edges.waits(progress(3), STILL_NS, STILL_NS), "nothing moves");
        assert!(!edges.waits(progress(3), MOST_NS, 0), "it moves for ever");
        edges.stuck = 3;
        assert!(!edges.waits(progress(3), 0, 0), "these were waited for");
        assert!(edges.waits(progress(4), 0, 0), "this one was not");
    }
}

mod timer_wheel {
    use observe::watch::timer_wheel::*;

    #[test]
    fn steps_equal_those_of_the_kernels_timer_wheel() {
        let step_ms = |hertz: u64| {
            let wheel = TimerWheel::with_ticks_of((1_000_000_000 + hertz / 2) / hertz);
            assert_eq!(wheel.minute, hertz * 60);
            (1u64 << wheel.shift) * 1000 / hertz
        };
        assert_eq!([100, 250, 300, 1000].map(step_ms), [5120, 2048, 1706, 4096]);
    }

    #[test]
    fn a_timer_fires_at_the_first_step_after_it_is_due() {
        let mut wheel = TimerWheel::with_ticks_of(4_000_000);
        wheel.add_moment(5 * 512 + 7, 1_000_000_000);
        let step = wheel.step_after(1_000_000_000);
        assert_eq!(step, 6);
        assert_eq!(wheel.ns_of(step), 1_000_000_000 + (512 - 7) * 4_000_000);
        let mut learned = wheel;
        learned.add_moment(5 * 512 + 9, 1_000_000_000 + 2 * 4_000_000 + 1);
        assert_eq!(learned, wheel, "later in its tick");
        learned.add_moment(5 * 512 + 9, 1_000_000_000 + 2 * 4_000_000 - 1);
        assert_eq!(learned.ns_of(step), wheel.ns_of(step) - 1, "earlier in its tick");
        for due_ns in (0..20_000_000_000u64).step_by(333_333_333) {
            let fires_ns = wheel.ns_of(wheel.step_after(due_ns));
            assert!(fires_ns > due_ns && fires_ns - due_ns <= 512 * 4_000_000, "{due_ns} {fires_ns}");
        }
    }
}

mod classes {
    use observe::watch::{ClassError, SizeClasses};

    #[test]
    fn the_default_classes_separate_the_papers_file_types() {
        let classes = SizeClasses::default();
        let names: Vec<&str> = [7_500, 13_280, 179_000, 2_304_000]
            .into_iter()
            .map(|bytes| classes.iter().nth(classes.index_of(bytes)).unwrap().name.as_str())
            .collect();
        assert_eq!(names, ["<10.0 KiB", "<50.0 KiB", "<640 KiB", ">=640 KiB"], "a size says nothing of the content");
    }

    #[test]
    fn boundaries_must_ascend_and_fit() {
        assert_eq!(SizeClasses::parse("1KiB,1KiB"), Err(ClassError::NotAscending(1024)));
        assert_eq!(SizeClasses::parse("0"), Err(ClassError::NotAscending(0)));
        assert_eq!(SizeClasses::parse("1,2,3,4,5,6,7,8"), Err(ClassError::TooMany(8)));
        assert!(SizeClasses::parse("tall").is_err());
        assert_eq!(SizeClasses::parse("").unwrap().count(), 1);
        let classes = SizeClasses::parse("1KiB, 1MiB").unwrap();
        assert_eq!(
            (classes.index_of(0), classes.index_of(1023), classes.index_of(1024), classes.index_of(u64::MAX)),
            (0, 0, 1, 2)
        );
    }
}

mod estimate {
    use observe::watch::estimate::*;
    use proptest::prelude::*;

    #[test]
    fn equal_windows_have_no_variance() {
        let mut estimator = RatioEstimator::default();
        for _ in 0..10 {
            estimator.add(100, 500.0);
        }
        let estimate = estimator.estimate(0.2).unwrap();
        assert_eq!((estimate.mean, estimate.requests, estimate.windows), (5.0, 1000, 10));
        assert!(estimate.half_width.unwrap() < 1e-6);
    }

    #[test]
    fn few_windows_give_no_interval() {
        let mut estimator = RatioEstimator::default();
        assert_eq!(estimator.estimate(0.2), None);
        estimator.add(0, 0.0);
        assert_eq!(estimator.estimate(0.2), None);
        estimator.add(10, 20.0);
        assert_eq!(estimator.estimate(0.2).unwrap().half_width, None);
    }

    proptest! {
        #[test]
        fn the_interval_shrinks_if_windows_cover_the_whole_time(
            windows in proptest::collection::vec((1u64..1000, 0.0f64..1e6), 5..50)
        ) {
            let mut estimator = RatioEstimator::default();
            for (n, y) in &windows {
                estimator.add(*n, *y);
            }
            let sampled = estimator.estimate(0.2).unwrap().half_width.unwrap();
            let whole = estimator.estimate(1.0).unwrap().half_width.unwrap();
            prop_assert!(whole == 0.0 && sampled >= 0.0 && sampled.is_finite());
        }
    }
}

mod probe_cost {
    use observe::watch::pack_places::is_stepped;
    use observe::watch::probe_cost::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn other_work_does_not_make_a_probe_look_free() {
        assert_eq!(added(&[2.0; 5], vec![900.0, 950.0, 1000.0, 1100.0, 9000.0]), 948.0);
        assert_eq!(added(&[2.0, 1500.0, 3000.0, 40.0, 8000.0], vec![900.0, 950.0, 1000.0, 1100.0, 9000.0]), 948.0);
    }

    #[test]
    fn the_probed_functions_begin_with_the_documented_instructions() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        for (function, wanted) in [(emulated as ProbedFunction, false), (stepped, cfg!(target_arch = "x86_64"))] {
            assert_eq!(function(7), 21);
            let mut first = [0; 4];
            file.read_exact_at(&mut first, offset_in_own_file(function as usize as u64).unwrap()).unwrap();
            assert_eq!(is_stepped(&first), wanted, "{first:x?}");
        }
    }

    #[test]
    fn a_function_is_charged_by_its_kind_and_its_probes() {
        let costs = |scale: f64| FunctionCosts { call_ns: scale, return_ns: 1.5 * scale, both_ns: 1.75 * scale };
        let both = ProbeCosts { emulated: Some(costs(1000.0)), stepped: Some(costs(4000.0)) };
        assert_eq!((both.per_call_ns(false, true, false), both.per_call_ns(true, true, false)), (1000.0, 4000.0));
        assert_eq!((both.per_call_ns(true, false, true), both.per_call_ns(false, true, true)), (6000.0, 1750.0));
    }
}

mod live {
    use observe::watch::{LiveMark, TrafficSpan};
    use record::watch::{ClassTotals, Log2Histogram, Reading};

    fn mark(at_s: u64, requests: u64, unread: u64) -> LiveMark {
        let mut elapsed = Log2Histogram::default();
        // From 1 to 2 ms.
        elapsed.0[15] = requests;
        let class = ClassTotals { requests, timed: requests, elapsed, ..ClassTotals::default() };
        let reading = Reading { at_ns: at_s * 1_000_000_000, classes: vec![class], ..Reading::default() };
        LiveMark { reading, unread, unread_sum: unread * at_s, looks: at_s, ..LiveMark::default() }
    }

    #[test]
    fn requests_that_wait_in_the_sockets_are_part_of_the_response_time() {
        let seen = mark(11, 10_000, 0).since(&mark(1, 0, 0));
        assert_eq!((seen.answered, seen.span_ns, seen.wait_ns), (10_000, 10_000_000_000, Some(0.0)));
        let us = |seen: &TrafficSpan, quantile| seen.response.quantile_ns(quantile).unwrap() / 1000;
        assert!((1_000..2_200).contains(&us(&seen, 0.5)), "{}", us(&seen, 0.5));
        assert_eq!(seen.response.len(), 10_000);
        // 50 waiting requests at 1,000 a second: 50 ms.
        let mut before = mark(1, 0, 50);
        before.unread_sum = 50;
        let seen = mark(11, 10_000, 50).since(&before);
        let wait_ms = seen.wait_ns.unwrap() / 1e6;
        assert!((wait_ms - 50.0).abs() < 1.0, "{wait_ms}");
        let p99_ms = us(&seen, 0.99) / 1000;
        assert!((140..260).contains(&p99_ms), "{p99_ms}: ln(100) times the mean");
    }

    #[test]
    fn a_queue_that_grows_is_a_change_in_flight() {
        assert_eq!(mark(3, 10, 70).since(&mark(2, 0, 20)).in_flight_change, 50);
        assert_eq!(mark(3, 0, 0).since(&mark(2, 0, 0)).wait_ns, None);
    }
}

mod system {
    use observe::watch::system::*;
    use record::watch::system::SystemKind;

    #[test]
    fn the_machines_counters_only_grow() {
        let mut reader = SystemReader::open();
        let first = reader.read();
        // Causes events to count: a page fault, a context switch, a process.
        assert!(std::process::Command::new("true").status().unwrap().success());
        let second = reader.read();
        assert!(second.at_ns > first.at_ns && second.cpus >= 1);
        assert!(second.started.unwrap() > first.started.unwrap());
        assert!(second.context_switches.unwrap() > first.context_switches.unwrap());
        assert!(second.paging.unwrap().faults > first.paging.unwrap().faults);
        assert!(second.running.unwrap() >= 1, "this test runs");
        let memory = second.memory.unwrap();
        assert!(memory.available_bytes < memory.total_bytes && memory.total_bytes > 0);
        let (before, after) = (first.cpu.unwrap(), second.cpu.unwrap());
        assert!(after.user_ms >= before.user_ms && after.system_ms >= before.system_ms);
        assert!(!second.softirqs_by_kind.is_empty());
    }

    #[test]
    fn an_unread_kind_keeps_its_counts_and_their_time() {
        let mut reader = SystemReader::open();
        let first = reader.read();
        let mut second = first.clone();
        assert!(std::process::Command::new("true").status().unwrap().success());
        reader.read_into(&mut second, &[SystemKind::Cpu]);
        assert!(second.started > first.started, "{second:?}");
        assert!(second.seconds_since(&first, SystemKind::Cpu) > Some(0.0));
        assert_eq!((&second.paging, second.seconds_since(&first, SystemKind::Paging)), (&first.paging, None));
        reader.read_into(&mut second, &[SystemKind::Paging]);
        assert!(second.paging.unwrap().faults > first.paging.unwrap().faults);
        assert!(second.seconds_since(&first, SystemKind::Paging) > Some(0.0));
    }
}

mod system_text {
    use observe::proc_text::parse_named_numbers;
    use observe::watch::system_text::*;

    #[test]
    fn partitions_and_layered_devices_are_not_counted_twice() {
        let text = b"   8 0 sda 10 0 100 5 20 0 200 9 0 33 14 0 0\n   8 1 sda1 10 0 100 5 20 0 200 9 0 33 14\n\
            259 0 nvme0n1 1 0 8 0 2 0 16 0 0 7 0 0\n 259 1 nvme0n1p1 1 0 8 0 2 0 16 0 0 7 0\n\
            259 2 nvme0n10 1 0 8 0 1 0 8 0 0 1 0\n 253 0 dm-0 10 0 100 5 20 0 200 9 0 33 14\n 7 0 loop0 5 0 5 0 5 0 5 \
                     0 0 5 0\n";
        let sum = parse_disks(text).unwrap();
        assert_eq!((sum.devices, sum.reads, sum.writes, sum.busy_ms), (3, 12, 23, 41));
        assert_eq!((sum.read_bytes, sum.written_bytes), ((100 + 8 + 8) * 512, (200 + 16 + 8) * 512));
        assert_eq!(parse_disks(b""), None);
        assert_eq!(parse_disks(b" 8 0 sda 10 0 x 5\n"), None);
    }

    #[test]
    fn interrupts_are_summed_over_cpus_by_device() {
        let text = b"           CPU0       CPU1\n 24:          1          2  IO-APIC   5-edge      ACPI:Ged\n\
            28:          3          0 PCI-MSIX-0000:00:01.0   0-edge      virtio0-input.0\n\
            29:          4          0 PCI-MSIX-0000:00:01.0   1-edge      virtio0-input.0\nLOC:  100  200  Local timer \
                     interrupts\nERR:          0\n";
        let kinds = parse_counts_by_kind(text, 24);
        let wanted = [("ACPI:Ged", 3), ("LOC", 300), ("virtio0-input.0", 7)];
        assert_eq!(kinds, wanted.iter().map(|(kind, count)| (kind.to_string(), *count)).collect());
        let few = parse_counts_by_kind(text, 2);
        assert_eq!(few, [("LOC".to_string(), 300), ("other".to_string(), 10)].into());
    }

    #[test]
    fn softirqs_are_parsed_without_text_after_the_numbers() {
        let kinds = parse_counts_by_kind(b"   CPU0 CPU1\n  TIMER: 5 6\n NET_RX: 7 8\n", 24);
        assert_eq!(kinds, [("NET_RX".to_string(), 15), ("TIMER".to_string(), 11)].into());
    }

    #[test]
    fn named_numbers_are_found_and_invalid_text_is_refused() {
        let found =
            parse_named_numbers(b"pgfault 12\nMemTotal: 7 kB\npgpgin x\n", ["MemTotal:", "pgfault", "pgpgin", "no"]);
        assert_eq!(found, [Some(7), Some(12), None, None]);
    }
}
