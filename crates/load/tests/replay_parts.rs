//! Replays without a server: the read-ahead, the comparison of answers, doubts.

mod feed {
    use load::replay::{BATCHES, FeedStep, Next, PendingRequest, STEPS, TEXT_BYTES, compare, feeder};
    use load::{ReplayRequest, ReplaySource, ReplayStep};
    use record::LoadPlan;
    use record::workload::ReplayResult;
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Once<'a>(Option<ReplayRequest<'a>>);

    impl ReplaySource for Once<'_> {
        fn next_step(&mut self) -> Option<Result<ReplayStep<'_>, String>> {
            self.0.take().map(|request| Ok(ReplayStep::Request(request)))
        }

        fn account(&self) -> ReplayResult {
            ReplayResult::default()
        }
    }

    /// The request as it waits to be sent.
    fn pending(plan: &LoadPlan, request: ReplayRequest<'_>) -> Box<PendingRequest> {
        let (feeder, mut feed) = feeder(plan, Box::new(Once(Some(request))));
        feeder.run();
        assert!(matches!(feed.peek(), Next::Step(_)));
        match feed.take() {
            Some(FeedStep::Request(request)) => request,
            step => panic!("{step:?}"),
        }
    }

    fn request<'a>(number: u64, method: &'a [u8], target: &'a [u8]) -> ReplayRequest<'a> {
        let (client, session, intended_ns) = (number, number, number);
        ReplayRequest { client, session, intended_ns, method, target, status: None, body_bytes: None }
    }

    struct Endless<'a> {
        read: &'a AtomicU64,
        target: Vec<u8>,
    }

    impl ReplaySource for Endless<'_> {
        fn next_step(&mut self) -> Option<Result<ReplayStep<'_>, String>> {
            Some(Ok(ReplayStep::Request(request(self.read.fetch_add(1, Ordering::SeqCst), b"GET", &self.target))))
        }

        fn account(&self) -> ReplayResult {
            ReplayResult { requests: self.read.load(Ordering::SeqCst), ..Default::default() }
        }
    }

    fn read_ahead(target_bytes: usize) -> u64 {
        let plan = LoadPlan::simple(([127, 0, 0, 1], 80).into());
        let read = AtomicU64::new(0);
        let source = Box::new(Endless { read: &read, target: vec![b'/'; target_bytes] });
        let (feeder, mut feed) = feeder(&plan, source);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| feeder.run());
            // Wait until the reader stops because the channel is full.
            let mut before = u64::MAX;
            while before != read.load(Ordering::SeqCst) || matches!(feed.peek(), Next::NotYet) {
                before = read.load(Ordering::SeqCst);
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            drop(feed);
            reader.join().expect("the reader ends when the receiver is gone").requests
        })
    }

    #[test]
    fn a_reader_that_is_ahead_waits() {
        // The engine thread has one batch, the reader has one, and the channel has the others.
        let most = ((BATCHES + 2) * STEPS) as u64;
        assert!(read_ahead(1) <= most, "the bound by steps");
        assert!(read_ahead(60_000) <= ((BATCHES + 2) * (TEXT_BYTES / 60_000 + 1)) as u64, "the bound by text");
    }

    #[test]
    fn a_request_has_the_fields_of_the_plan_and_no_body() {
        let mut plan = LoadPlan::simple(([127, 0, 0, 1], 80).into());
        plan.host = "example".into();
        plan.headers = vec![("X-A".into(), "b".into())];
        let text = |method| String::from_utf8(pending(&plan, request(0, method, b"/a?b")).bytes.into()).unwrap();
        assert_eq!(text(b"POST"), "POST /a?b HTTP/1.1\r\nHost: example\r\nX-A: b\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(text(b"GET"), "GET /a?b HTTP/1.1\r\nHost: example\r\nX-A: b\r\n\r\n");
    }

    #[test]
    fn sizes_are_compared_only_where_both_sides_answered_200() {
        let mut comparison = ReplayResult::default();
        let plan = LoadPlan::simple(([127, 0, 0, 1], 80).into());
        let mut answered = |request, status, bytes| compare(&mut comparison, &pending(&plan, request), status, bytes);
        let logged = |status, body_bytes| ReplayRequest { status, body_bytes, ..request(0, b"GET", b"/") };
        answered(logged(Some(200), Some(10)), 200, 10);
        answered(logged(Some(200), Some(10)), 200, 9);
        answered(logged(Some(304), None), 200, 10);
        answered(logged(Some(404), Some(7)), 404, 100);
        answered(logged(None, Some(10)), 200, 10);
        answered(ReplayRequest { method: b"HEAD", ..logged(Some(200), Some(10)) }, 200, 0);
        assert_eq!((comparison.sizes_equal, comparison.sizes_different), (2, 1));
        assert_eq!((comparison.expected_bytes, comparison.got_bytes), (30, 29));
        assert_eq!((comparison.statuses_equal, comparison.statuses_different), (4, 1));
    }
}

mod doubts {
    use load::{LoadResult, replay_doubts};
    use record::workload::{ReplayResult, TraceSource};
    use record::{Arrival, Doubt, LoadPlan, Pace, Severity};

    /// The replay doubts about a point of a sweep with 64 connections, closed loop or 1,000/s for 1 s.
    fn doubted(is_closed: bool, sent: u64, replay: ReplayResult) -> Vec<Doubt> {
        let mut plan = LoadPlan::simple(([127, 0, 0, 1], 80).into());
        plan.connections = 64;
        let open = Pace::Open { rate_per_sec: 1000.0, arrival: Arrival::Trace };
        plan.pace = if is_closed { Pace::Closed } else { open };
        plan.workload.trace = Some(TraceSource {
            file: "a.log".into(),
            format: "common".into(),
            speed: Some(1.0),
            session_gap_ns: 0,
            has_host: false,
            is_repeated: true,
        });
        let mut result = LoadResult { window_ns: 1_000_000_000, ..LoadResult::default() };
        result.counts.outcomes.sent = sent;
        result.replay = Some(replay);
        replay_doubts(&result, &plan)
    }

    fn log(clients: u64, largest_client_requests: u64) -> ReplayResult {
        ReplayResult { lines: 1000, requests: 1000, clients, largest_client_requests, ..ReplayResult::default() }
    }

    #[test]
    fn a_closed_loop_needs_at_least_as_many_clients_as_connections() {
        let found = doubted(true, 1000, log(1, 1000));
        assert_eq!((found.len(), found[0].severity), (1, Severity::Invalid));
        assert!(found[0].what.contains("from 1 client,") && found[0].what.contains("all 64 connections"), "{found:?}");
        assert!(found[0].remedy.contains("$http_x_forwarded_for"), "{found:?}");
        assert_eq!(doubted(true, 1000, log(63, 20)).len(), 1);
        assert_eq!(doubted(true, 1000, log(64, 20)), []);
        assert_eq!(doubted(false, 1000, log(3, 400)), [], "a schedule needs no more connections than its clients have");
    }

    #[test]
    fn one_address_with_most_of_the_requests_is_named_in_both_loops() {
        for is_closed in [true, false] {
            let found = doubted(is_closed, 1000, log(200, 700));
            assert!(found.len() == 1 && found[0].what.contains("200 clients, 70 % of them of one client"), "{found:?}");
        }
    }

    #[test]
    fn moved_times_and_gaps_of_days_raise_doubts_if_times_matter() {
        let moved = |clamped| ReplayResult { clamped, back_max_ns: 7_200_000_000_000, ..log(200, 20) };
        assert_eq!(doubted(false, 1000, moved(10)), []);
        assert_eq!(doubted(false, 1000, moved(20))[0].severity, Severity::Warning);
        let most = doubted(false, 1000, moved(600));
        assert_eq!(most[0].severity, Severity::Invalid);
        assert!(most[0].what.contains("60 % of the log's lines") && most[0].what.contains("2 hours"), "{most:?}");
        assert_eq!(doubted(true, 1000, moved(600)), []);
        const DAY_NS: u64 = 86_400_000_000_000;
        let gap = ReplayResult { gap_max_ns: 56 * 365 * DAY_NS, gap_line: 4, ..log(200, 20) };
        let found = doubted(false, 1000, gap);
        assert!(found[0].what.starts_with("line 4 of the log is 20440 days later than"), "{found:?}");
    }

    #[test]
    fn a_point_that_offered_another_rate_raises_a_doubt() {
        assert_eq!(doubted(false, 950, log(200, 20)), []);
        assert!(doubted(false, 600, log(200, 20))[0].what.contains("60 % of the requested rate"));
        assert_eq!(doubted(false, 0, log(200, 20)).len(), 1);
        assert_eq!(doubted(false, 1300, log(200, 20)).len(), 1);
    }
}
