//! Results: series, sums over threads and machines, classes, doubts.

mod series {
    use load::series::Series;
    use proptest::prelude::*;

    #[test]
    fn a_stall_takes_one_row() {
        let mut series = Series::new(1_000, 300_000_000);
        series.completed(1_000, 50_000);
        series.connections(1_000, 2);
        series.failed(150_000_000);
        series.completed(250_000_000, 200_000_000);
        series.lag(250_000_000, 7_000);
        let text = series.csv(300_000_000);
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 4, "{text}");
        assert!(rows[1].starts_with("0.100,1,0,0,50."), "{text}");
        assert_eq!(rows[2], "0.200,0,1,0,,,0.0,2");
        assert!(rows[3].ends_with(",7.0,2"), "{text}");
    }

    #[test]
    fn series_of_threads_are_added() {
        let mut one = Series::new(0, 200_000_000);
        let mut two = Series::new(0, 200_000_000);
        one.completed(5, 1_000);
        one.connections(5, 3);
        two.completed(6, 9_000);
        two.connections(150_000_000, 4);
        one.merge(two);
        let text = one.csv(200_000_000);
        assert!(text.lines().nth(1).unwrap().starts_with("0.100,2,"), "{text}");
        assert!(text.lines().nth(2).unwrap().ends_with(",7"), "{text}");
    }

    #[test]
    fn a_growing_series_keeps_all_values_and_merges_with_a_shorter_one() {
        let mut long = Series::growing(1_000);
        for second in 0..3600u64 {
            long.completed(1_000 + second * 1_000_000_000, 50_000);
        }
        let mut short = Series::growing(1_000);
        short.completed(1_000, 50_000);
        short.merge(long);
        let text = short.csv(3_600_000_000_000);
        let completed: u64 =
            text.lines().skip(1).map(|row| row.split(',').nth(1).unwrap().parse::<u64>().unwrap()).sum();
        assert_eq!(completed, 3601);
        assert!(text.lines().count() <= 101, "{}", text.lines().count());
    }

    proptest! {
        #[test]
        fn no_time_panics(times in prop::collection::vec(any::<u64>(), 1..50)) {
            let mut series = Series::new(1 << 40, 3_000_000_000);
            for time in times {
                let time = time >> 1;
                series.completed(time, time);
                series.lag(time, time);
            }
        }
    }
}

mod merge {
    use load::{EngineCost, SERIES_HEADER, SeriesSum};

    #[test]
    fn rows_of_the_same_time_are_added_and_invalid_rows_are_skipped() {
        let left = format!("{SERIES_HEADER}0.1,10,1,1000,5.0,9.0,3.5,4\n0.2,20,0,2000,5.0,9.0,1.0,4\n");
        let right = format!("{SERIES_HEADER}0.1,5,0,500,7.0,8.0,9.5,3\nno,row\n");
        let sum = format!("{SERIES_HEADER}0.1,15,1,1500,,,9.5,7\n0.2,20,0,2000,,,1.0,4\n");
        let of = |texts: &[&str]| {
            let mut series = SeriesSum::default();
            texts.iter().for_each(|text| series.add(text));
            series.csv()
        };
        assert_eq!(of(&[&left, &right]), sum);
        assert_eq!(of(&[&right, &left]), sum);
        assert_eq!(of(&[]), SERIES_HEADER);
    }

    #[test]
    fn memory_per_connection_is_weighted_by_the_number_of_connections() {
        let cost = |bytes| EngineCost { memory_bytes_per_connection: bytes, ..EngineCost::default() };
        let mut all = cost(100.0);
        all.merge(&cost(400.0), (2, 1));
        assert_eq!(all.memory_bytes_per_connection, 200.0);
        all.merge(&cost(0.0), (0, 0));
        assert_eq!(all.memory_bytes_per_connection, 200.0);
    }
}

mod classes {
    use load::classes::{Classes, WindowRelation, results};
    use record::LoadPlan;
    use record::scenario::RequestTarget;
    use record::workload::{DocumentKind, RequestClass};

    #[test]
    fn kinds_are_the_sums_of_their_classes() {
        let mut plan = LoadPlan::simple(([127, 0, 0, 1], 80).into());
        plan.targets = ["/a", "/b", "/c"].map(|path| RequestTarget { path: path.into() }).into();
        let class = |label: &str, kind| RequestClass { label: label.into(), kind, largest_bytes: None };
        plan.workload.classes = vec![
            class("small", DocumentKind::Static),
            class("large", DocumentKind::Static),
            class("dynamic", DocumentKind::Dynamic),
        ];
        plan.workload.weights = vec![3.0, 1.0, 4.0];
        plan.workload.class_of = vec![0, 1, 2];
        let mut classes = Classes::new(&plan, 3).unwrap();
        for slot in 0..3 {
            classes.sent(slot, slot as u8, true);
            classes.received(slot, 10);
            classes.completed(slot, slot != 2, 1000 * (slot as u64 + 1), WindowRelation::Sent);
        }
        classes.sent(0, 0, false);
        classes.unfinished(0, WindowRelation::CarriedIn);
        let results = results(&plan, &classes.into_counts());
        let labels: Vec<&str> = results.iter().map(|class| class.label.as_str()).collect();
        assert_eq!(labels, ["small", "large", "dynamic", "static", "dynamic"]);
        assert_eq!((results[3].requests, results[3].ok, results[3].unfinished, results[3].body_bytes), (3, 2, 1, 20));
        assert_eq!(results[3].asked_ratio, Some(0.5));
        assert_eq!((results[4].requests, results[4].failed), (1, 1));
        assert_eq!(results[0].asked_ratio, Some(0.375));
    }
}

mod doubts {
    use load::{LoadResult, doubts};
    use record::{Doubt, DoubtKind, LoadPlan, Pace, Severity};

    fn plan() -> LoadPlan {
        LoadPlan::simple(([127, 0, 0, 1], 80).into())
    }

    fn of_kind(kind: DoubtKind, result: &LoadResult, plan: &LoadPlan) -> Option<Doubt> {
        doubts(result, plan).into_iter().find(|doubt| doubt.kind == kind)
    }

    fn server_errors(result: &LoadResult, plan: &LoadPlan) -> Option<Doubt> {
        of_kind(DoubtKind::ServerErrors, result, plan)
    }

    fn balance(answered: u64, service_ns: u64, more: impl FnOnce(&mut LoadResult, &mut LoadPlan)) -> Option<String> {
        let mut plan = plan();
        plan.connections = 100;
        let mut result = LoadResult { window_ns: 1_000_000_000, ..LoadResult::default() };
        result.counts.completed_in_window = answered;
        (result.counts.outcomes.ok, result.counts.outcomes.connects, result.counts.outcomes.connections_used) =
            (answered, 100, 100);
        (0..answered).for_each(|_| result.counts.times.service.record_ns(service_ns));
        more(&mut result, &mut plan);
        of_kind(DoubtKind::LittlesLaw, &result, &plan).map(|doubt| doubt.what)
    }

    fn reaped(samples: u64, response_ns: u64, own: f64) -> Option<Doubt> {
        let mut result = LoadResult { window_ns: 1_000_000_000, ..LoadResult::default() };
        result.counts.dated_ns = 40_000_000;
        let times = &mut result.counts.times;
        let own_ns = (response_ns as f64 * own) as u64;
        for _ in 0..samples {
            times.reap.record_ns(own_ns);
            times.sampled.record_ns(response_ns);
            times.arrived.record_ns(response_ns - own_ns);
        }
        of_kind(DoubtKind::ReapDelay, &result, &plan())
    }

    #[test]
    fn a_client_share_of_a_tenth_of_the_response_time_raises_a_doubt() {
        assert_eq!(reaped(2_000, 1_200_000, 0.09), None);
        assert_eq!(reaped(19, 1_200_000, 0.72), None, "too few samples to say");
        assert_eq!(reaped(0, 0, 0.0), None);
        let doubt = reaped(2_000, 1_200_000, 0.72).unwrap();
        assert_eq!((doubt.kind, doubt.severity), (DoubtKind::ReapDelay, Severity::Warning));
        assert!(doubt.what.contains("864 us of the 1.20 ms at p50 (72 %) and 864 us"), "{doubt:?}");
        assert!(doubt.what.ends_with("n = 2000, sampled in 4 % of the time"), "{doubt:?}");
        assert!(!reaped(999, 1_200_000, 0.72).unwrap().what.contains("p99"), "a tail of nine samples");
        assert_eq!(reaped(2_000, 50_000, 0.4).unwrap().severity, Severity::Note, "any client has to wake up");
    }

    #[test]
    fn a_client_that_stood_still_raises_a_doubt_and_one_that_kept_its_schedule_does_not() {
        let said = |window_ns: u64, stood_ns: u64, late_ns: Option<u64>| {
            let mut result = LoadResult { window_ns, ..LoadResult::default() };
            result.stood_ns = stood_ns;
            late_ns.into_iter().for_each(|nanos| result.counts.times.own_lag.record_ns(nanos));
            of_kind(DoubtKind::Steal, &result, &plan()).map(|doubt| doubt.what)
        };
        const SECOND: u64 = 1_000_000_000;
        assert!(said(5 * SECOND, 3 * SECOND, None).is_some_and(|what| what.contains("3.00 s of the window (60 %)")));
        assert!(said(5 * SECOND, 3 * SECOND, Some(3 * SECOND)).is_some());
        assert_eq!(said(5 * SECOND, 3 * SECOND, Some(40_000)), None);
        assert_eq!(said(SECOND / 5, SECOND / 20, None), None, "a busy machine");
        assert_eq!(said(60 * SECOND, SECOND / 2, None), None, "too short to change anything");
    }

    #[test]
    fn missing_responses_are_the_first_doubt() {
        let first = |unfinished: u64| {
            let mut result = LoadResult { window_ns: 1_000_000_000, ..LoadResult::default() };
            result.engine.run_queue_wait_ratio = Some(0.5);
            result.engine.busiest_thread_ratio = 0.95;
            let outcomes = &mut result.counts.outcomes;
            (outcomes.sent, outcomes.ok, outcomes.unfinished) = (1_000, 1_000 - unfinished, unfinished);
            let first = doubts(&result, &LoadPlan::simple(([127, 0, 0, 1], 80).into())).remove(0);
            (first.kind, first.severity, first.what)
        };
        assert_eq!(first(0).0, DoubtKind::ClientSaturated);
        let (kind, severity, what) = first(989);
        assert_eq!((kind, severity), (DoubtKind::Censored, Severity::Invalid));
        assert!(
            what.contains("989 requests (98.90 %)") && what.ends_with("above 1.10 % are only lower bounds"),
            "{what}"
        );
        assert_eq!(first(300).1, Severity::Warning);
    }

    #[test]
    fn error_statuses_are_named_and_unrequested_bytes_are_not_failures() {
        let mut result = LoadResult { window_ns: 1_000_000_000, ..LoadResult::default() };
        result.counts.stray_responses = 7;
        (result.counts.outcomes.sent, result.counts.outcomes.ok) = (1_000, 1_000);
        let said = |result: &LoadResult| server_errors(result, &plan()).expect("a doubt").what;
        assert_eq!(said(&result), "the server sent unrequested bytes 7 times");
        let outcomes = &mut result.counts.outcomes;
        (outcomes.ok, outcomes.non_2xx, outcomes.reset) = (700, 280, 20);
        result.counts.status_counts = [(200, 700), (429, 270), (502, 10)].into();
        let said = said(&result);
        assert!(
            said.contains("30 % of the finished requests failed (270 status 429, 10 status 502, 20 reset); the server"),
            "{said}"
        );
    }

    #[test]
    fn a_server_that_closes_without_announcing_it_is_to_be_measured_with_a_connection_per_request() {
        let mut result = LoadResult { window_ns: 1_000_000_000, ..LoadResult::default() };
        let outcomes = &mut result.counts.outcomes;
        (outcomes.ok, outcomes.closed_early, outcomes.connects) = (730, 270, 990);
        let remedy = |result: &LoadResult, plan: &LoadPlan| server_errors(result, plan).expect("a doubt").remedy;
        assert!(remedy(&result, &plan()).contains("--requests-per-connection 1"));
        assert!(!remedy(&result, &LoadPlan { requests_per_connection: 1, ..plan() }).contains("--requests"));
        result.counts.outcomes.connects = 10;
        assert!(!remedy(&result, &plan()).contains("--requests"), "it keeps connections");
    }

    #[test]
    fn a_client_without_ports_is_not_a_server_error() {
        let mut result = LoadResult { window_ns: 1_000_000_000, ..LoadResult::default() };
        let outcomes = &mut result.counts.outcomes;
        (outcomes.sent, outcomes.ok, outcomes.local_limit) = (1_000, 100, 900);
        assert_eq!(server_errors(&result, &plan()), None);
        assert!(
            of_kind(DoubtKind::ClientSaturated, &result, &plan())
                .is_some_and(|doubt| doubt.what.contains("900 requests"))
        );
        (result.counts.outcomes.ok, result.counts.outcomes.local_limit) = (992, 8);
        assert!(of_kind(DoubtKind::ClientSaturated, &result, &plan()).is_some(), "throughput is halved by so few");
        (result.counts.outcomes.ok, result.counts.outcomes.local_limit) = (100, 900);
        result.counts.outcomes.reset = 20;
        assert!(server_errors(&result, &plan()).is_some_and(|doubt| doubt.what.contains("(20 reset)")));
    }

    #[test]
    fn connections_throughput_and_mean_time_must_agree() {
        assert_eq!(balance(10_000, 10_000_000, |_, _| ()), None);
        assert!(balance(10_000, 2_000_000, |_, _| ()).is_some_and(|what| what.contains("is 20.0 requests")));
        assert!(balance(10_000, 20_000_000, |_, _| ()).is_some_and(|what| what.contains("outside the window")));
        let open = |_: &mut LoadResult, plan: &mut LoadPlan| {
            plan.pace = Pace::Open { rate_per_sec: 10_000.0, arrival: record::Arrival::Poisson };
        };
        assert_eq!(balance(10_000, 2_000_000, open), None, "an open loop leaves connections idle");
        assert!(balance(10_000, 20_000_000, open).is_some(), "more in flight than connections");
    }

    #[test]
    fn an_explained_difference_raises_no_doubt() {
        let silent = |result: &mut LoadResult, _: &mut LoadPlan| result.counts.outcomes.connections_silent = 80;
        assert_eq!(balance(10_000, 2_000_000, silent), None);
        let reopening = |result: &mut LoadResult, _: &mut LoadPlan| {
            result.counts.outcomes.connects = 10_100;
            (0..10_100).for_each(|_| result.counts.times.connect.record_ns(7_000_000));
        };
        assert_eq!(balance(10_000, 2_000_000, reopening), None);
        // Two responses per connection may both lie partly outside the window.
        assert_eq!(balance(200, 700_000_000, |_, _| ()), None);
        assert_eq!(balance(10_000, 2_000_000, |result, _| result.interrupted = true), None);
    }
}
