//! Tests of the figures of a watched point: traffic, connection states, shares, and CPU time by process.

mod traffic {
    use observe::watch::traffic::*;
    use proptest::prelude::*;
    use record::watch::Traffic;

    fn http1(head: &str) -> (u32, bool, bool, bool) {
        match content(head.as_bytes()) {
            ReadContent::Http1 { requests, has_body, expects, is_websocket } => {
                (requests, has_body, expects, is_websocket)
            }
            other => panic!("{head:?} is {other:?}"),
        }
    }

    #[test]
    fn http_1_requests_are_recognised() {
        assert_eq!(http1("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), (1, false, false, false));
        assert_eq!(http1("GET / HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\r\n\r\nGET /3"), (3, false, false, false));
        assert_eq!(
            http1("POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\n\r\n"),
            (2, true, false, false)
        );
        assert_eq!(http1("PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nGET \r\n"), (1, true, false, false));
        let expecting = "POST / HTTP/1.1\r\nContent-Length: 9\r\nExpect: 100-Continue\r\n\r\n";
        assert_eq!(http1(expecting), (1, true, true, false));
        assert_eq!(http1("GET /chat HTTP/1.1\r\nUPGRADE: WebSocket\r\n\r\n"), (1, false, false, true));
        // Pieces as a slow client sends them.
        assert_eq!(http1("GET"), (1, false, false, false));
        assert_eq!(http1("GET / HTTP/1.1\r\nHos"), (1, false, false, false));
    }

    #[test]
    fn other_protocols_are_recognised_by_their_first_bytes() {
        let http2 = |streams| ReadContent::Http2 { streams };
        assert_eq!(content(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), http2(0));
        let opening = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0, 0, 1, 1, 5, 0, 0, 0, 1, 0x82]].concat();
        assert_eq!(content(&opening), http2(1));
        assert_eq!(content(&[0, 0, 0, 4, 1, 0, 0, 0, 0]), http2(0), "an acknowledgement of settings");
        let mut request = vec![0, 0, 2, 1, 5, 0, 0, 0, 3, 0x82, 0x86];
        assert_eq!(content(&request), http2(1));
        assert_eq!(content(&request.repeat(5)), http2(5));
        request.extend([0, 0, 1, 77, 0, 0, 0, 0, 0]);
        assert_eq!(content(&request), ReadContent::Other, "no such frame follows");
        assert_eq!(content(&[22, 3, 1, 2, 0, 1]), ReadContent::Tls);
        assert_eq!(content(&[23, 3, 3]), ReadContent::Tls);
        assert_eq!(content(&[0x81, 0x85, 1, 2, 3, 4]), ReadContent::Other, "a frame of a WebSocket");
        let redis = |commands| ReadContent::Redis { commands };
        assert_eq!(content(b"*1\r\n$4\r\nPING\r\n"), redis(1));
        assert_eq!(content(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n".repeat(16).as_slice()), redis(16));
        assert_eq!(content(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*2\r\n$3\r\nGE"), redis(2), "cut");
        assert_eq!(content(b"*1\r\n$4\r\nPINGPONG"), ReadContent::Other);
        assert_eq!(content(b"*1 is no command"), ReadContent::Other);
        assert_eq!(content(b""), ReadContent::Other);
        let memcached = |commands| ReadContent::Memcached { commands };
        assert_eq!(content(b"get a b c\r\n"), memcached(1));
        assert_eq!(content(b"set a 0 0 5\r\nget x\r\nmg b v\r\nms c 1\r\nz\r\nge"), memcached(4), "the last is cut");
        assert_eq!(content(b"set a 0 0 5000\r\nxxxx"), memcached(1));
        assert_eq!(content(b"set a 0 0 -5\r\nxxxx"), ReadContent::Other);
        assert_eq!(content(b"getting somewhere\r\n"), ReadContent::Other);
    }

    #[test]
    fn a_proxy_header_in_front_is_skipped() {
        assert_eq!(http1("PROXY TCP4 1.2.3.4 5.6.7.8 9 80\r\nGET / HTTP/1.1\r\n\r\n"), (1, false, false, false));
        let mut second = PROXY_2.to_vec();
        second.extend([0x21, 0x11, 0, 12]);
        second.extend([0; 12]);
        second.extend(b"GET / HTTP/1.1\r\n\r\n");
        assert!(matches!(content(&second), ReadContent::Http1 { requests: 1, .. }));
    }

    #[test]
    fn unparsed_bytes_are_reported_with_their_size() {
        let mut traffic = Traffic::default();
        add(&mut traffic, Some(b"GET / HTTP/1.1\r\n\r\n"), 18);
        assert!(doubts(&traffic).is_empty());
        add(&mut traffic, Some(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 24);
        add(&mut traffic, None, 100);
        let doubts = doubts(&traffic);
        assert_eq!(doubts.len(), 1);
        assert_eq!(doubts[0].what, "HTTP/2 is spoken here (1 of 3 examined reads)");
        assert_eq!((traffic.http1, traffic.http2, traffic.hidden), (1, 1, 1));
    }

    proptest! {
        #[test]
        fn any_bytes_get_a_protocol(
            head in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..2000),
                "(set a 0 0 |\\*1)[0-9a-z$*\r\n ]{0,60}".prop_map(String::into_bytes),
            ]
        ) {
            let mut traffic = Traffic::default();
            add(&mut traffic, Some(&head), head.len() as u32);
            let one_at_a_time = traffic.http1 + traffic.redis + traffic.memcached;
            let parts = one_at_a_time + traffic.pipelined + traffic.http2 + traffic.tls + traffic.other;
            prop_assert_eq!(parts, 1);
        }

        #[test]
        fn commands_beyond_the_first_kibibyte_are_estimated(commands in 1usize..2000, length in 0usize..90) {
            let one = format!("*2\r\n$3\r\nGET\r\n${length}\r\n{}\r\n", "k".repeat(length));
            let read = one.repeat(commands);
            let mut traffic = Traffic::default();
            add(&mut traffic, Some(&read.as_bytes()[..read.len().min(LOOK_BYTES)]), read.len() as u32);
            let found = traffic.requests_per_read().expect("it was examined") / commands as f64;
            prop_assert!((0.85..1.15).contains(&found), "{} of {}", traffic.requests, commands);
        }

        #[test]
        fn any_text_after_a_method_counts_as_a_request(tail in "[ -~\r\n]{0,300}") {
            let head = format!("GET {tail}");
            let is_http1 = matches!(content(head.as_bytes()), ReadContent::Http1 { .. });
            prop_assert!(is_http1);
        }
    }
}

mod states {
    use observe::bpf::types::watch::PortCounts;
    use observe::sock_diag::{PortSockets, TimerSocket};
    use observe::watch::states::*;
    use observe::watch::timer_wheel::TimerWheel;
    use proptest::prelude::*;

    const S: u64 = 1_000_000_000;

    fn model() -> StateModel {
        StateModel::new(TimerWheel::with_ticks_of(4_000_000))
    }

    fn scanned(states: &[(usize, u64)]) -> PortSockets {
        let mut sockets = PortSockets::default();
        for (state, count) in states {
            sockets.by_state[*state] = *count;
        }
        sockets
    }

    fn scan(model: &mut StateModel, at_ns: u64, before: &PortCounts, after: &PortCounts, sockets: &PortSockets) {
        model.reconcile(&Scan { began_ns: at_ns, ended_ns: at_ns, before, after, sockets });
    }

    fn timers(count: usize, due_ns: u64) -> Vec<TimerSocket> {
        let timer = TimerSocket { is_ipv6: false, client_port: 1, client: [1; 4], server: [1; 4], due_ns };
        vec![timer; count]
    }

    fn enter_time_wait(counts: &mut PortCounts, wheel: &TimerWheel, now_ns: u64, sockets: u64) {
        let step = wheel.step_after(now_ns + 60 * S);
        let place = &mut counts.time_waits[step as usize % 64];
        let held = if *place >> 32 == step { *place & 0xffff_ffff } else { 0 };
        *place = step << 32 | (held + sockets);
        counts.time_wait_entered += sockets;
    }

    #[test]
    fn sockets_leave_time_wait_at_the_wheels_step_after_a_minute() {
        let (model, mut counts) = (model(), PortCounts::default());
        let in_time_wait = |at_ns: u64, counts: &PortCounts| model.read(at_ns, counts)[TIME_WAIT];
        enter_time_wait(&mut counts, &model.wheel, 10 * S, 100);
        enter_time_wait(&mut counts, &model.wheel, 40 * S, 50);
        let step_ns = 2_048_000_000;
        let leaves_ns = (70 * S).next_multiple_of(step_ns);
        assert_eq!(in_time_wait(40 * S, &counts), 150);
        assert_eq!(in_time_wait(leaves_ns - 1, &counts), 150);
        assert_eq!(in_time_wait(leaves_ns, &counts), 50);
        assert_eq!(in_time_wait((100 * S).next_multiple_of(step_ns), &counts), 0);
    }

    #[test]
    fn a_scan_reports_the_error_of_the_counts() {
        let (mut model, mut counts) = (model(), PortCounts::default());
        scan(&mut model, 0, &counts, &counts, &scanned(&[(1, 5)]));
        counts.entered[1] = 1;
        let mut sockets = scanned(&[(1, 8), (6, 60)]);
        sockets.timers = timers(60, 31 * S);
        scan(&mut model, S, &counts, &counts, &sockets);
        assert_eq!(model.reconciliation.last_difference, 2 + 60);
        assert_eq!((model.read(S, &counts)[1], model.read(S, &counts)[TIME_WAIT]), (8, 60));
        assert_eq!(model.read(30 * S, &counts)[TIME_WAIT], 60, "the kernel says when they leave");
        assert_eq!(model.read(34 * S, &counts)[TIME_WAIT], 0);
    }

    #[test]
    fn remnants_in_fin_wait_2_are_shown_and_cause_further_scans() {
        let (mut model, mut counts) = (model(), PortCounts::default());
        scan(&mut model, 0, &counts, &counts, &scanned(&[]));
        enter_time_wait(&mut counts, &model.wheel, S, 1);
        counts.left[5] = 1;
        counts.entered[5] = 1;
        let mut sockets = scanned(&[(5, 1)]);
        (sockets.timers, sockets.timers_in_fin_wait_2) = (timers(1, 61 * S), 1);
        scan(&mut model, 2 * S, &counts, &counts, &sockets);
        let states = model.read(2 * S, &counts);
        assert_eq!((states[FIN_WAIT_2], states[TIME_WAIT]), (1, 0));
        assert!(model.is_unsettled(&counts));
        // The client closes half a minute later, and a new minute begins.
        let mut sockets = scanned(&[(6, 1)]);
        sockets.timers = timers(1, 91 * S);
        scan(&mut model, 31 * S, &counts, &counts, &sockets);
        let states = model.read(80 * S, &counts);
        assert_eq!((states[FIN_WAIT_2], states[TIME_WAIT]), (0, 1));
        assert!(!model.is_unsettled(&counts));
        assert_eq!(model.read(94 * S, &counts)[TIME_WAIT], 0);
    }

    proptest! {
        /// Sockets come and go while scans walk over them, and each socket is seen at another moment. In any order,
        /// the number of older sockets stays within the bounds, and one scan at rest corrects all states.
        #[test]
        fn counts_at_rest_are_right_after_any_order_of_events_and_scans(
            older in 0usize..20,
            steps in prop::collection::vec((any::<u8>(), any::<u16>()), 0..300),
        ) {
            let mut model = model();
            let mut counts = PortCounts::default();
            let mut walk: Option<(PortCounts, Vec<usize>, u64)> = None;
            let mut alive: Vec<bool> = vec![true; older];
            for (what, which) in steps {
                match what % 4 {
                    0 => {
                        counts.entered[1] += 1;
                        alive.push(true);
                        if let Some((_, left, _)) = &mut walk && which % 2 == 0 {
                            left.push(alive.len() - 1);
                        }
                    }
                    1 if !alive.is_empty() => {
                        let id = usize::from(which) % alive.len();
                        if std::mem::replace(&mut alive[id], false) {
                            counts.left[1] += 1;
                        }
                    }
                    2 => match &mut walk {
                        None => walk = Some((counts, (0..alive.len()).collect(), 0)),
                        Some((_, left, saw)) => {
                            for _ in 0..1 + which % 8 {
                                if let Some(id) = left.pop() {
                                    *saw += u64::from(alive[id]);
                                }
                            }
                        }
                    },
                    _ => if let Some((before, left, saw)) = walk.take() {
                        let saw = saw + left.iter().filter(|id| alive[**id]).count() as u64;
                        scan(&mut model, S, &before, &counts, &scanned(&[(1, saw)]));
                        let bounds = model.older_bounds(1).unwrap();
                        prop_assert!(bounds.contains(&(older as i64)), "{bounds:?}");
                        prop_assert_eq!(model.reconciliation.largest_difference, 0);
                    },
                }
            }
            let left = alive.iter().filter(|is_alive| **is_alive).count() as u64;
            scan(&mut model, S, &counts, &counts, &scanned(&[(1, left)]));
            prop_assert_eq!(model.read(S, &counts)[1], left);
            prop_assert_eq!(model.reconciliation.largest_difference, 0);
        }
    }
}

mod point {
    use observe::watch::SizeClasses;
    use observe::watch::point::*;
    use observe::watch::point_watch::PointReadings;
    use observe::watch::shares::Shares;
    use record::watch::{AddedCost, ChargedCpu, ClassTotals, CpuTotals, Mean, Mode, PackTotals, PhaseTotals, Reading};
    use record::{ClientSide, DoubtKind, names};

    fn readings(counted_ns: u64, requests: u64) -> PointReadings {
        let reading = |at_ns: u64, requests: u64| Reading {
            at_ns,
            classes: vec![ClassTotals {
                requests,
                bytes_out: requests * 1000,
                receives: requests,
                cpu_ns: requests as i64 * 10_000,
                ..ClassTotals::default()
            }],
            ..Reading::default()
        };
        let mut readings = PointReadings {
            before: reading(1, 0),
            begin: reading(1_000_000_000, 50),
            counted: reading(1_000_000_000 + counted_ns, 50 + requests),
            end: reading(3_000_000_000, 50 + requests),
            after: reading(3_500_000_000, 60 + requests),
            shares: Some(Shares { counted: 1.0, timed: 0.0 }),
            is_whole: counted_ns == 2_000_000_000,
            mode: Some(Mode::Budgeted),
            ..PointReadings::default()
        };
        let charged = Some(ChargedCpu::default());
        let cpu = |group_ns| Some(CpuTotals { group_ns, charged, ..CpuTotals::default() });
        readings.begin.cpu = cpu(0);
        readings.end.cpu = cpu(1_100_000_000);
        readings.counted.cpu = cpu(1_100_000_000);
        readings.counted.cost.added = Some(AddedCost { added_ns: 5_500_000.0, ..AddedCost::default() });
        readings
    }

    fn client(requests: u64) -> ClientSide {
        ClientSide {
            completed_in_window: requests,
            window_ns: 2_000_000_000,
            answered_in_all: Some(60 + requests),
            given_up: 0,
        }
    }

    #[test]
    fn requests_are_compared_with_the_clients_count() {
        let sizes = SizeClasses::parse("").unwrap();
        let seen = watched_point(&readings(2_000_000_000, 1000), &sizes, &client(1000), None);
        let value = |name| seen.figures.value(name).unwrap();
        assert_eq!((value(names::WATCH_REQUESTS), value(names::WATCH_RATE)), (1000.0, 500.0));
        assert_eq!((value(names::WATCH_CLIENT_DIFFERENCE), value(names::WATCH_WHOLE_DIFFERENCE)), (0.0, 0.0));
        assert_eq!((value(names::WATCH_CPU), value(names::WATCH_BYTES_OUT)), (10.0, 1000.0));
        assert!((value(names::WATCH_COST) - 0.005).abs() < 1e-9);
        assert_eq!(seen.watched.classes[0].figures.value(names::WATCH_REQUESTS), Some(1000.0));
        assert!(seen.doubts.is_empty(), "{:?}", seen.doubts);
        let phases = seen.figures.get(names::WATCH_PARSE).unwrap();
        assert!(phases.not_measured.as_ref().unwrap().contains("budget"), "{phases:?}");
    }

    #[test]
    fn a_cost_that_was_not_calibrated_is_not_zero() {
        let mut readings = readings(2_000_000_000, 1000);
        readings.counted.cost.added = None;
        let seen = watched_point(&readings, &SizeClasses::default(), &client(1000), None);
        let cost = seen.figures.get(names::WATCH_COST).unwrap();
        assert!(cost.value.is_none() && cost.not_measured.as_ref().unwrap().contains("calibration"), "{cost:?}");
    }

    #[test]
    fn a_server_without_cpu_time_has_no_cost_share() {
        let mut readings = readings(2_000_000_000, 1);
        for reading in [&mut readings.counted, &mut readings.end] {
            reading.cpu = readings.begin.cpu;
        }
        let seen = watched_point(&readings, &SizeClasses::default(), &client(1), None);
        for name in [names::WATCH_COST, names::WATCH_EXPLAINED] {
            assert_eq!(seen.figures.get(name).unwrap().not_measured.as_deref(), Some(NO_TICK), "{name}");
        }
    }

    #[test]
    fn partial_counts_are_not_compared_and_give_the_reason() {
        let sizes = SizeClasses::parse("").unwrap();
        let seen = watched_point(&readings(500_000_000, 250), &sizes, &client(1000), None);
        assert_eq!(seen.figures.value(names::WATCH_RATE), Some(500.0));
        assert_eq!(seen.figures.value(names::WATCH_CLIENT_DIFFERENCE), None);
        assert_eq!(seen.figures.value(names::WATCH_WHOLE_DIFFERENCE), None);
        assert!(seen.watched.why_not.unwrap().contains("budget"));
        assert_eq!(seen.figures.value(names::WATCH_COUNTED), Some(0.25));
    }

    #[test]
    fn requests_of_other_clients_raise_a_doubt() {
        let sizes = SizeClasses::parse("").unwrap();
        let seen = watched_point(&readings(2_000_000_000, 2000), &sizes, &client(1000), None);
        assert_eq!(seen.figures.value(names::WATCH_WHOLE_DIFFERENCE), Some(1000.0));
        assert_eq!(seen.doubts[0].kind, DoubtKind::SourcesDisagree);
    }

    #[test]
    fn requested_phases_by_function_have_values_or_a_reason() {
        let sizes = SizeClasses::parse("").unwrap();
        let mut readings = readings(2_000_000_000, 1000);
        let of = |readings: &PointReadings| watched_point(readings, &sizes, &client(1000), None).figures;
        assert!(of(&readings).get(names::WATCH_PACK_PARSE).is_none(), "no pack was requested");
        readings.why_no_pack = Some("they would exceed the budget".into());
        let figure = of(&readings).get(names::WATCH_PACK_LOG_CPU).cloned().unwrap();
        assert_eq!(figure.not_measured.as_deref(), Some("they would exceed the budget"));
        readings.why_no_pack = None;
        let estimate = |mean| Some(Mean { mean, half_width: None, requests: 4, windows: 1 });
        let class = |requests, mean| PhaseTotals {
            requests,
            elapsed_ns: [estimate(mean), estimate(2.0 * mean), estimate(0.0)],
            cpu_ns: [estimate(mean); 3],
            ..PhaseTotals::default()
        };
        let by_functions = vec![class(3, 1000.0), class(1, 5000.0)];
        readings.pack = Some(PackTotals { windows: 1, request_ns: 5500.0, by_functions, ..PackTotals::default() });
        let figures = of(&readings);
        assert_eq!(figures.value(names::WATCH_PACK_PARSE), Some(2.0), "weighed by requests");
        assert_eq!(
            (figures.value(names::WATCH_PACK_PROCESS), figures.value(names::WATCH_PACK_COST)),
            (Some(4.0), Some(5.5))
        );
        assert_eq!(figures.get(names::WATCH_PACK_PARSE).unwrap().n, Some(4));
    }

    #[test]
    fn unwatched_figures_have_a_reason_and_are_never_zero() {
        let sizes = SizeClasses::default();
        let seen = watched_point(&readings(2_000_000_000, 10), &sizes, &client(10), Some("no BPF here"));
        for name in MAIN {
            let figure = seen.figures.get(name).unwrap();
            assert_eq!((figure.value, figure.not_measured.as_deref()), (None, Some("no BPF here")), "{name}");
        }
        assert!(seen.figures.get(names::MACHINE_STARTED).is_some(), "the machine's counters need no programs");
        assert!(seen.watched.classes.is_empty());
    }
}

mod shares {
    use observe::watch::shares::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;
    use record::watch::Mode;

    const PRICES: EventPrices = EventPrices {
        receive_ns: 80.0,
        window_receive_ns: 80.0,
        send_ns: 80.0,
        sends_per_receive: Some(2.0),
        pack_request_ns: None,
    };

    fn cost(shares: Shares, cpu_ns: f64) -> f64 {
        (shares.counted * 80.0 + shares.timed * 240.0) / cpu_ns
    }

    #[test]
    fn an_expensive_request_is_always_counted_and_timed_a_fifth_of_the_time() {
        let shares = Shares::for_mode(Mode::Budgeted, &PRICES, Some(50_000.0), 0.01);
        assert_eq!(shares, Shares { counted: 1.0, timed: 0.2 });
    }

    #[test]
    fn the_budget_holds_even_for_the_cheapest_requests() {
        for cpu_ns in [500.0, 2_000.0, 4_000.0, 9_000.0, 11_000.0, 13_000.0, 17_000.0, 100_000.0] {
            let shares = Shares::for_mode(Mode::Budgeted, &PRICES, Some(cpu_ns), 0.01);
            assert!(cost(shares, cpu_ns) <= 0.008 + 1e-9, "{cpu_ns} ns: {shares:?}");
            assert!(shares.timed <= shares.counted && shares.counted <= 1.0, "{shares:?}");
        }
        assert_eq!(Shares::for_mode(Mode::Budgeted, &PRICES, Some(500.0), 0.01), Shares::NONE);
        let partly = Shares::for_mode(Mode::Budgeted, &PRICES, Some(4_000.0), 0.01);
        assert!(partly.counted < 1.0 && partly.timed > 0.0, "{partly:?}");
    }

    #[test]
    fn a_pack_uses_at_most_its_part_of_the_budget() {
        let prices = EventPrices { pack_request_ns: Some(5_000.0), ..PRICES };
        for cpu_ns in [4_000.0, 20_000.0, 100_000.0, 1_000_000.0, 100_000_000.0] {
            let share = pack_share(Mode::Budgeted, &prices, Some(cpu_ns), 0.005);
            assert!(share * 5_000.0 / cpu_ns <= 0.004 + 1e-12 && share <= MOST_TIMED, "{cpu_ns}: {share}");
        }
        assert_eq!(pack_share(Mode::Budgeted, &prices, None, 0.005), 0.0, "nothing is known of a request yet");
        assert_eq!(pack_share(Mode::Budgeted, &PRICES, Some(1e6), 0.005), 0.0, "no pack");
        assert_eq!(pack_share(Mode::Counts, &prices, None, 0.005), MOST_TIMED);
    }

    #[test]
    fn a_requested_mode_is_used() {
        for (mode, counted, timed) in [(Mode::Zero, 0.0, 0.0), (Mode::Counts, 1.0, 0.0), (Mode::Exact, 1.0, 1.0)] {
            assert_eq!(Shares::for_mode(mode, &PRICES, Some(1.0), 0.01), Shares { counted, timed });
        }
        let unknown = Shares::for_mode(Mode::Budgeted, &PRICES, None, 0.01);
        assert_eq!(unknown, Shares { counted: 1.0, timed: 0.0 }, "nothing is known of the cost yet");
    }

    #[test]
    fn windows_do_not_overlap_and_lie_within_the_counted_time() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        for (shares, window_ns) in [
            (Shares { counted: 1.0, timed: 0.2 }, 2_000_000_000),
            (Shares { counted: 0.3, timed: 0.06 }, 2_000_000_000),
            (Shares { counted: 1.0, timed: 1.0 }, 500_000_000),
            (Shares { counted: 1.0, timed: 0.2 }, 400_000_000),
        ] {
            let windows = windows(shares, window_ns, 8, &mut random);
            assert!(!windows.is_empty());
            assert!(windows.iter().zip(windows.iter().skip(1)).all(|(a, b)| b.start >= a.end), "{windows:?}");
            assert!(windows.iter().all(|one| one.end as f64 <= shares.counted * window_ns as f64 + 1.0), "{windows:?}");
        }
        assert!(windows(Shares { counted: 1.0, timed: 0.01 }, 2_000_000_000, 8, &mut random).is_empty());
        let all = Shares { counted: 1.0, timed: 0.2 };
        assert_eq!(windows(all, 2_000_000_000, 2, &mut random).len(), 2, "attaching has its price");
        assert!(windows(all, 2_000_000_000, 0, &mut random).is_empty());
    }
}

mod by_process {
    use observe::bpf::types::watch::{PortCounts, ThreadRecord};
    use observe::group::ProcessCpu;
    use observe::processes::Process;
    use observe::watch::by_process::*;
    use record::watch::{ClassTotals, PHASES, ProcessCounts, ProcessTotals};

    fn thread(tgid: u32, requests: u64, timed: u32) -> ThreadRecord {
        ThreadRecord {
            pid: tgid + 1,
            tgid,
            process_start_ticks: 7,
            requests,
            bytes_in: requests * 10,
            bytes_out: requests * 100,
            timed,
            elapsed_ns: [u64::from(timed) * 4, u64::from(timed) * 2, 0],
            phase_cpu_ns: [i64::from(timed) * 3, i64::from(timed), -i64::from(timed)],
            ..ThreadRecord::default()
        }
    }

    fn scheduled(pid: u32, cpu_ns: u64) -> ProcessCpu {
        ProcessCpu {
            process: Process { pid, start_ticks: 7 },
            cpu_ns,
            name: format!("worker\u{1b}{pid}").as_str().into(),
        }
    }

    fn sums(rows: &[ProcessTotals]) -> (u64, u64, u64) {
        let counted = |of: fn(&ProcessCounts) -> u64| rows.iter().filter_map(|row| row.counted.as_ref()).map(of).sum();
        (rows.iter().filter_map(|row| row.cpu_ns).sum(), counted(|c| c.requests), counted(|c| c.bytes_out))
    }

    #[test]
    fn rows_of_any_number_of_processes_add_up_to_the_group() {
        let counts = PortCounts { displaced_thread_requests: 7, ..PortCounts::default() };
        let all =
            ClassTotals { requests: 100_000, bytes_in: 1_000_000, bytes_out: 10_000_000, ..ClassTotals::default() };
        for processes in [0, 1, 5, 64, 65, 500] {
            let threads = (1..=processes).map(|number| thread(1000 + number, u64::from(number), 0));
            let (work, _) = work(threads, &counts);
            let scheduler: Vec<ProcessCpu> =
                (1..=processes).map(|number| scheduled(1000 + number, u64::from(number) * 1000)).collect();
            let group_ns = 1_000_000_000;
            let rows = rows(Some(&work), &scheduler, group_ns, &all);
            assert!(rows.len() <= LISTED + 1, "{}", rows.len());
            assert_eq!(sums(&rows), (group_ns, all.requests, all.bytes_out), "{processes} processes");
            let most = rows.first().unwrap();
            assert_eq!(most.pid, if processes == 0 { 0 } else { 1000 + processes }, "the busiest is first");
            assert_eq!(rows.last().unwrap().processes, u64::from(processes).saturating_sub(LISTED as u64));
        }
    }

    #[test]
    fn a_process_with_a_reused_number_has_its_own_row() {
        let (work, _) = work([thread(5, 10, 0)].into_iter(), &PortCounts::default());
        let stranger = ProcessCpu { process: Process { pid: 5, start_ticks: 8 }, ..scheduled(5, 100) };
        let rows = rows(Some(&work), &[stranger], 150, &ClassTotals { requests: 10, ..ClassTotals::default() });
        let shown: Vec<_> = rows.iter().map(|row| (row.cpu_ns, row.counted.unwrap().requests)).collect();
        assert_eq!(shown, [(Some(100), 0), (None, 10), (Some(50), 0)]);
    }

    #[test]
    fn phases_are_means_over_each_processs_timed_requests() {
        let threads = [thread(5, 10, 4), thread(5, 10, 0), thread(9, 1, 0)];
        let (work, _) = work(threads.into_iter(), &PortCounts::default());
        let all = ClassTotals { requests: 21, ..ClassTotals::default() };
        let rows = rows(Some(&work), &[scheduled(5, 100), scheduled(9, 50)], 150, &all);
        let first = rows[0].counted.unwrap();
        assert_eq!((first.requests, first.timed), (20, 4), "threads of one process are one");
        assert_eq!(first.elapsed_ns, [Some(4.0), Some(2.0), Some(0.0)]);
        assert_eq!(first.phase_cpu_ns, [Some(3.0), Some(1.0), Some(-1.0)]);
        assert_eq!(rows[1].counted.unwrap().elapsed_ns, [None; PHASES], "nothing timed is no zero");
        assert_eq!(rows.len(), 2, "nothing is left for others: {rows:?}");
        assert_eq!(rows[0].name, "worker?5", "names are somebody's text");
    }

    #[test]
    fn cpu_time_is_kept_per_process_even_if_requests_are_not_counted() {
        let rows = rows(None, &[scheduled(5, 100)], 130, &ClassTotals::default());
        assert_eq!(rows.iter().map(|row| (row.pid, row.cpu_ns)).collect::<Vec<_>>(), [(5, Some(100)), (0, Some(30))]);
        assert!(rows.iter().all(|row| row.counted.is_none()), "{rows:?}");
    }
}

mod group_io {
    use observe::processes::ProcessOrigin;
    use observe::watch::group_io::*;
    use record::watch::system::GroupIo;

    #[test]
    fn reads_of_a_process_count_from_the_first_reading() {
        let mut reader = GroupIoReader::default();
        let (own, none) = (ProcessOrigin { start_ticks: 1, ..ProcessOrigin::default() }, ProcessOrigin::default());
        assert_eq!(reader.read(&[(std::process::id(), &own)]), Some(GroupIo::default()));
        std::fs::read("/proc/self/stat").unwrap();
        let later = reader.read(&[(std::process::id(), &own)]).unwrap();
        assert!(later.reads > 0);
        assert_eq!(
            reader.read(&[(u32::MAX, &none)]).unwrap().reads,
            later.reads,
            "an ended process takes nothing back"
        );
        assert_eq!(reader.read(&[]), None);
    }

    /// Sums over processes given as (id, start, parent, count).
    fn sum(reader: &mut GroupIoReader, processes: &[(u32, u64, u32, u64)]) -> u64 {
        let io = |&(pid, start_ticks, parent, count)| (pid, ProcessIo { start_ticks, parent, counts: [count; 4] });
        reader.add(processes.iter().map(io).collect()).read_bytes
    }

    #[test]
    fn counts_continue_after_a_restart_and_exclude_a_processs_earlier_work() {
        let mut reader = GroupIoReader::default();
        reader.since_ticks = Some(100);
        assert_eq!(sum(&mut reader, &[(10, 50, 1, 1_000_000)]), 0);
        assert_eq!(sum(&mut reader, &[(10, 50, 1, 1_000_500)]), 500);
        assert_eq!(sum(&mut reader, &[(20, 100, 1, 30)]), 530, "the restarted one began under watch");
        assert_eq!(sum(&mut reader, &[(20, 100, 1, 80), (5, 40, 1, 9_000_000)]), 580, "the other was there before");
        assert_eq!(sum(&mut reader, &[(20, 100, 1, 80), (5, 40, 1, 9_000_001)]), 581);
        assert_eq!(sum(&mut reader, &[(20, 200, 1, 7), (5, 40, 1, 9_000_001)]), 588, "its number was given again");
    }

    #[test]
    fn counts_inherited_from_ended_children_are_added_once() {
        let mut reader = GroupIoReader::default();
        reader.since_ticks = Some(100);
        let (shell, child) = ((11, 110, 10, 300), (12, 120, 11, 40));
        assert_eq!(sum(&mut reader, &[(10, 50, 1, 1_000)]), 0);
        assert_eq!(sum(&mut reader, &[(10, 50, 1, 1_000), shell, child]), 340);
        assert_eq!(sum(&mut reader, &[(10, 50, 1, 1_360)]), 360, "20 more before they ended");
        assert_eq!(sum(&mut reader, &[(10, 50, 1, 1_360), (13, 130, 10, 50)]), 410);
        assert_eq!(sum(&mut reader, &[(10, 50, 1, 1_361)]), 411, "nobody waited for the last one");
    }

    #[test]
    fn existing_files_of_a_control_group_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        put("cpu.stat", "usage_usec 30\nuser_usec 10\nsystem_usec 20\nnr_throttled 4\n");
        put("memory.max", "max\n");
        put("memory.current", "4096\n");
        put("io.stat", "8:0 rbytes=100 wbytes=7 rios=1\n259:0 rbytes=1 wbytes=2\n");
        let totals = read_control_group(folder.path());
        assert_eq!((totals.cpu_us, totals.user_us, totals.system_us), (Some(30), Some(10), Some(20)));
        assert_eq!((totals.memory_bytes, totals.tasks), (Some(4096), None));
        assert_eq!((totals.read_bytes, totals.written_bytes, totals.throttled), (Some(101), Some(9), Some(4)));
    }
}
