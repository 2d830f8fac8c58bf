use record::watch::*;

#[test]
fn a_quantile_is_the_upper_end_of_its_bucket() {
    let mut histogram = Log2Histogram::default();
    assert_eq!(histogram.quantile_at_most_ns(0.5), None);
    histogram.0[0] = 9;
    histogram.0[4] = 1;
    assert_eq!(histogram.quantile_at_most_ns(0.5), Some(64));
    assert_eq!(histogram.quantile_at_most_ns(0.9), Some(64));
    assert_eq!(histogram.quantile_at_most_ns(0.91), Some(1024));
    assert_eq!(histogram.quantile_at_most_ns(1.0), Some(1024));
}

fn read(text: &str) -> Taken {
    match serde_json::from_str(text).unwrap() {
        Line::Reading(taken) => *taken,
        other => panic!("{other:?}"),
    }
}

#[test]
fn uncounted_values_stay_absent() {
    let taken = read(r#"{"kind":"reading","totals":{"elapsed_ns":5,"connections":{},"cpu":{},"cost":{}}}"#);
    assert_eq!(taken.totals, Reading { elapsed_ns: 5, cpu: Some(CpuTotals::default()), ..Reading::default() });
    let taken = read(r#"{"kind":"reading","totals":{"connections":{"accepted":3},"processes":[{"pid":7}]}}"#);
    assert_eq!(
        taken.totals.connections.counted,
        Counts::from_fn(|counter| (counter == Counter::Accepted).then_some(3))
    );
    assert_eq!((taken.totals.processes[0].pid, taken.totals.processes[0].counted), (7, None));
}

#[test]
fn counters_keep_the_names_and_places_that_runs_on_disk_have() {
    let kept = r#"{"kind":"reading","totals":{"elapsed_ns":5,"connections":{
        "states":{"listen":1},"accepted":10,"closed":9,"aborted":8,"retransmits":null,"resets_sent":6,
        "resets_received":5,"closed_bytes_received":4,"closed_bytes_acked":3,
        "closed_data_segments_in":2,"closed_data_segments_out":1,"connects":10,"connect_elapsed_ns":7},
        "losses":{"displaced_open":11,"displaced_answered":12,"unanswered":13}}}"#;
    let written: serde_json::Value = serde_json::from_str(&Line::Reading(Box::new(read(kept))).text()).unwrap();
    let kept: serde_json::Value = serde_json::from_str(kept).unwrap();
    for object in ["connections", "losses"] {
        for (name, number) in kept["totals"][object].as_object().unwrap() {
            assert_eq!(&written["totals"][object][name], number, "{object}.{name}");
        }
    }
    assert_eq!(read(&kept.to_string()).totals.count(Counter::Retransmits), None);
    assert_eq!(read(&kept.to_string()).totals.connections.connects.unwrap().connect_elapsed_ns, 7);
}

#[test]
fn a_reading_is_read_back_as_it_was_written() {
    let mut class = ClassTotals { requests: 3, cpu_ns: -1, timed: 3, ..ClassTotals::default() };
    class.elapsed.0[4] = 3;
    let means = [Some(Mean { mean: 2.5, half_width: Some(0.5), requests: 3, windows: 5 }), None, None];
    let phases = PhaseTotals { requests: 3, elapsed_ns: means, ..PhaseTotals::default() };
    let mut totals = Reading {
        at_ns: 7,
        classes: vec![class],
        phases: vec![phases.clone()],
        pack: Some(PackTotals { by_events: vec![phases], ..PackTotals::default() }),
        open: Some(OpenTotals { waiting: 1, sending: 0, longest: vec![OpenRequest::default()] }),
        traffic: Some(Traffic { tls: 2, ..Traffic::default() }),
        cpu: Some(CpuTotals { group_ns: 9, charged: Some(ChargedCpu::default()), ..CpuTotals::default() }),
        losses: Counts::from_fn(|counter| counter.is_loss().then_some(0)),
        ..Reading::default()
    };
    totals.cost.added = Some(AddedCost { added_ns: 0.5, ..AddedCost::default() });
    totals.connections.states.insert("established".into(), 4);
    let is_there = |counter: &Counter| !counter.is_loss() && *counter != Counter::Retransmits;
    totals.connections.counted = Counts::from_fn(|counter| is_there(&counter).then_some(5));
    totals.connections.connects = Some(ConnectTotals { connects: 5, ..ConnectTotals::default() });
    totals.processes.push(ProcessTotals { pid: 1, counted: Some(ProcessCounts::default()), ..Default::default() });
    totals.system.read_at_ns.insert("cpu".into(), 3);
    let rates = Rates::between(&Reading::default(), &totals);
    let line =
        Line::Reading(Box::new(Taken { totals, rates, headroom: Some(Headroom::default()), doubts: Vec::new() }));
    let Line::Reading(written) = &line else { unreachable!() };
    assert_eq!(read(&line.text()), **written);
}

#[test]
fn rates_are_differences_divided_by_time() {
    let mut earlier = Reading { at_ns: 0, classes: vec![ClassTotals::default()], ..Reading::default() };
    earlier.connections.counted = Counts::from_fn(|_| Some(0));
    let mut now = Reading { at_ns: 2_000_000_000, ..earlier.clone() };
    now.classes[0].requests = 10;
    now.classes[0].cpu_ns = 50_000;
    now.connections.counted = Counts::from_fn(|_| Some(4));
    let rates = Rates::between(&earlier, &now);
    let all = rates.all.unwrap();
    assert_eq!(all.requests_per_sec, 5.0);
    assert_eq!(all.cpu_us_per_request, Some(5.0));
    assert_eq!(rates.accepted_per_sec, Some(2.0));
    assert_eq!(all.elapsed_us_per_request, None);
    assert_eq!((rates.server_cpus, rates.request_cpus), (None, None), "not measured");
}

#[test]
fn switches_are_known_if_the_seen_threads_did_the_work() {
    let second = 1_000_000_000;
    let since = |group_ns, accounted_ns, switches| {
        let cpu = CpuTotals { group_ns, accounted_ns, switches, ..Default::default() };
        cpu.switches_since(&Default::default())
    };
    assert_eq!(since(second, Some(second * 9 / 10), 70), Some(70));
    assert_eq!(since(second, Some(second * 8 / 10), 70), None, "threads came and went between the readings");
    assert_eq!(since(second / 20, Some(0), 7), Some(7), "too little CPU time to tell");
    assert_eq!(since(second, None, 70), Some(70), "an older recording does not say");
}

#[test]
fn rates_of_requests_use_the_time_in_which_they_were_counted() {
    let second = 1_000_000_000;
    let at = |seconds: u64, counted_ns, requests| Reading {
        at_ns: (5 + seconds) * second,
        elapsed_ns: seconds * second,
        counted_ns,
        classes: vec![ClassTotals { requests, ..ClassTotals::default() }],
        ..Reading::default()
    };
    let rate = |earlier: &Reading, now: &Reading| Rates::between(earlier, now).all.map(|all| all.requests_per_sec);
    let (all, some, none) =
        (at(1, None, 100), at(5, Some(second + second / 4), 125), at(9, Some(second + second / 4), 125));
    assert_eq!(rate(&at(0, None, 0), &all), Some(100.0));
    assert_eq!(rate(&all, &some), Some(100.0), "of four seconds a quarter of one");
    assert_eq!(rate(&some, &none), None, "nothing was counted");
    assert_eq!(rate(&at(0, None, 0), &none), Some(100.0));
}

#[test]
fn two_readings_at_the_same_time_have_no_rate() {
    let reading = Reading { classes: vec![ClassTotals::default()], ..Reading::default() };
    assert_eq!(Rates::between(&reading, &reading).all.unwrap().requests_per_sec, 0.0);
    assert_eq!(Rates::between(&Reading::default(), &Reading::default()).all, None, "not counted");
}
