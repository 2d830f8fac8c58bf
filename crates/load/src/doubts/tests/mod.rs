use super::*;

fn plan() -> LoadPlan {
    LoadPlan::simple(([127, 0, 0, 1], 80).into())
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
    out_of_balance(&result, &plan).map(|doubt| doubt.what)
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
    reaped_late(&result)
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
        stood(&result).map(|doubt| doubt.what)
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
    assert!(what.contains("989 requests (98.90 %)") && what.ends_with("above 1.10 % are only lower bounds"), "{what}");
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
    assert!(out_of_room(&result).is_some_and(|doubt| doubt.what.contains("900 requests")));
    (result.counts.outcomes.ok, result.counts.outcomes.local_limit) = (992, 8);
    assert!(out_of_room(&result).is_some(), "throughput is halved by so few");
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
