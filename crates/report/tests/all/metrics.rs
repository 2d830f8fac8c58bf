//! Metrics of a watch and of a client, in both formats, and the dashboard's queries.

use record::watch::{
    AddedCost, ChargedCpu, ClassTotals, Counter, Counts, CpuTotals, Headroom, Mean, OpenTotals, PhaseTotals, Rates,
    Reading, SizeClass, Watching,
};
use record::{Doubt, DoubtKind, Figure, Latency, LoadPlan, Origin, Pace, Point, Sweep, names};
use report::metrics::client::{Client, LiveCounts};
use report::metrics::text::{MetricsFormat, page};
use report::metrics::{Family, MetricKind, MetricValue, Metrics};
use report::watch::{Screen, exposition};

/// The metrics of a watch with one reading.
pub fn built(reading: &Reading, watch: &Watching, doubts: &[Doubt]) -> Metrics {
    between([reading; 2], watch, doubts)
}

/// The metrics of a watch with a first and a last reading.
fn between([first, now]: [&Reading; 2], watch: &Watching, doubts: &[Doubt]) -> Metrics {
    let (rates, headroom) = (&Rates::default(), &Headroom::default());
    exposition::metrics(&Screen { watch, first, now, rates, headroom, doubts })
}

/// Metrics of a reading in which everything is measured.
fn pages() -> [String; 2] {
    pages_of(None)
}

/// Metrics of a reading; `counted_ns`: requests were counted only for this time.
fn pages_of(counted_ns: Option<u64>) -> [String; 2] {
    let class = |name: &str| SizeClass { name: name.into(), ..SizeClass::default() };
    let watch = Watching { port: 8080, classes: vec![class("<10.0 KiB"), class(">=10.0 KiB")], ..Watching::default() };
    let mut totals = ClassTotals {
        requests: 5,
        bytes_in: 500,
        bytes_out: 5000,
        cpu_ns: 60_000,
        elapsed_ns: 90_000,
        timed: 5,
        ..ClassTotals::default()
    };
    totals.elapsed.0[8] = 4;
    totals.elapsed.0[9] = 1;
    let phase = Some(Mean { mean: 7000.0, ..Mean::default() });
    let phases =
        PhaseTotals { requests: 5, elapsed_ns: [phase; 3], cpu_ns: [phase, phase, None], ..PhaseTotals::default() };
    let charged = ChargedCpu { requests_ns: 120_000, connect_ns: 1000, between_ns: 2000, elsewhere_ns: 3000 };
    let mut reading = Reading {
        unix_ms: 1_700_000_000_000,
        elapsed_ns: 2_000_000_000,
        counted_ns,
        classes: vec![totals.clone(), totals],
        phases: vec![phases.clone(), phases],
        open: Some(OpenTotals { waiting: 2, sending: 1, ..OpenTotals::default() }),
        cpu: Some(CpuTotals {
            group_ns: 126_000,
            charged: Some(charged),
            processes: 2,
            resident_bytes: 1 << 20,
            ..CpuTotals::default()
        }),
        ..Reading::default()
    };
    reading.cost.own_cpu_ns = 1_000_000;
    reading.cost.added = Some(AddedCost { added_ns: 1500.0, ..AddedCost::default() });
    let connections = &mut reading.connections;
    for (state, count) in [("established", 3), ("time-wait", 4), ("syn-recv", 0), ("listen", 1)] {
        connections.states.insert(state.into(), count);
    }
    (connections.accept_queue, connections.accept_queue_limit) = (Some(0), Some(511));
    (connections.port_drops, connections.listen_overflows) = (Some(0), Some(7));
    connections.counted = Counts::from_fn(|counter| (!counter.is_loss()).then(|| 700 + counter as u64));
    reading.losses = Counts::from_fn(|counter: Counter| counter.is_loss().then(|| 700 + counter as u64));
    let doubt = DoubtKind::LostEvents.note("some", "none");
    let metrics = built(&reading, &watch, &[doubt]);
    [MetricsFormat::Prometheus, MetricsFormat::OpenMetrics].map(|format| page(&metrics, format))
}

#[test]
fn the_metrics_of_a_watch_match_the_golden_file() {
    let [text, open] = pages();
    expect_test::expect_file!["../goldens/metrics.txt"].assert_eq(&text);
    expect_test::expect_file!["../goldens/metrics.openmetrics.txt"].assert_eq(&open);
}

#[test]
fn partial_request_counters_have_other_names_and_their_time() {
    let [text, _] = pages_of(Some(500_000_000));
    let has = |line: &str| text.lines().any(|has| has.starts_with(line));
    assert!(has("straingauge_counted_seconds_total{server_port=\"8080\"} 0.5"), "{text}");
    let label = "{server_port=\"8080\",class=\"<10.0 KiB\"}";
    for (name, value) in [
        ("straingauge_requests_counted_total", "5"),
        ("straingauge_request_counted_bytes_total", "500"),
        ("straingauge_response_counted_bytes_total", "5000"),
        ("straingauge_request_cpu_counted_seconds_total", "0.00006"),
    ] {
        assert!(has(&format!("{name}{label} {value}")), "{name}: {text}");
    }
    assert!(has("straingauge_unanswered_requests_counted_total") && has("straingauge_connections_accepted_total"));
    for whole in ["straingauge_requests_total", "http_server_request_duration", "straingauge_unanswered_requests_total"]
    {
        assert!(!has(whole), "{whole} is not complete");
    }
}

/// A query for a metric that is not served would draw nothing.
#[test]
fn each_dashboard_query_uses_existing_metrics_and_labels() {
    let dashboard: serde_json::Value =
        serde_json::from_str(include_str!("../../../../docs/dashboards/watch.json")).expect("the dashboard is JSON");
    let [whole, part] = [None, Some(500_000_000)].map(|counted_ns| pages_of(counted_ns)[0].clone());
    let text = whole + &part;
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
    let mut selectors = 0;
    for query in targets.map(|target| target["expr"].as_str().expect("a query")) {
        for (before, after) in query.match_indices('{').map(|(at, _)| query.split_at(at)) {
            let name = before.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default();
            let labels = after.trim_start_matches('{').split('}').next().unwrap_or_default();
            let served: Vec<&str> = text.lines().filter(|line| line.starts_with(&format!("{name}{{"))).collect();
            assert!(!served.is_empty(), "{name} of {query} is not served");
            for (label, value) in labels.split(',').filter_map(|label| label.split_once('=')) {
                let wanted = if value.contains('$') { format!("{label}=\"") } else { format!("{label}={value}") };
                assert!(served.iter().any(|line| line.contains(&wanted)), "{label} of {query} is not served");
            }
            selectors += 1;
        }
    }
    assert!(selectors >= 19, "{selectors} selectors in the queries");
    for label in ["class", "part", "le", "network_connection_state"] {
        assert!(text.contains(&format!("{label}=\"")), "the dashboard groups by {label}");
    }
}

/// A collector takes a different start for a restart of the series.
#[test]
fn the_counters_of_a_watch_have_one_start() {
    let at = |unix_ms, elapsed_ns| Reading { unix_ms, elapsed_ns, ..Reading::default() };
    let (first, now, stepped) = (at(5000, 1_000), at(6000, 1_000_300_000), at(3000, 3_000_000_000));
    for now in [&first, &now, &stepped] {
        let metrics = between([&first, now], &Watching::default(), &[]);
        assert_eq!((metrics.since_unix_ns, metrics.at_unix_ns), (4_999_999_000, now.unix_ms * 1_000_000));
    }
}

/// Prometheus takes a falling counter for a restarted one, and adds its whole value again.
#[test]
fn no_counter_falls_or_is_negative() {
    let at = |seconds: u64, [requests_ns, between_ns, elsewhere_ns]: [i64; 3]| {
        let charged = ChargedCpu { requests_ns, connect_ns: 5, between_ns, elsewhere_ns };
        let cpu = CpuTotals { group_ns: 1000 * seconds, charged: Some(charged), ..CpuTotals::default() };
        Reading { cpu: Some(cpu), ..Reading::default() }
    };
    let counters = |reading: &Reading| -> Vec<f64> {
        let metrics = built(reading, &Watching::default(), &[]);
        let counters = metrics.families.into_iter().filter(|family| family.kind == MetricKind::Counter);
        let samples = counters.flat_map(|family| family.samples);
        samples.map(|sample| if let MetricValue::Number(number) = sample.value { number } else { 0.0 }).collect()
    };
    let (earlier, now) = (counters(&at(1, [200, 100, 695])), counters(&at(2, [190, 80, -10])));
    assert!(!earlier.is_empty() && earlier.len() == now.len());
    assert!(earlier.iter().zip(&now).all(|(earlier, now)| 0.0 <= *earlier && earlier <= now), "{earlier:?} {now:?}");
}

#[test]
fn an_unmeasured_figure_has_no_sample() {
    let watch = Watching { port: 80, ..Watching::default() };
    let text = page(&built(&Reading::default(), &watch, &[]), MetricsFormat::Prometheus);
    let measured: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(measured.len(), 2, "{text}");
    assert!(measured[0].starts_with("straingauge_watch_own_cpu_seconds_total"), "{text}");
    assert!(measured[1].starts_with("straingauge_watch_doubts"), "{text}");
}

#[test]
fn a_client_gets_openmetrics_on_request() {
    let prometheus = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
        application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
        text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
    for (accept, format) in [
        (prometheus, MetricsFormat::OpenMetrics),
        ("application/openmetrics-text", MetricsFormat::OpenMetrics),
        ("Application/OpenMetrics-Text; Version=\"1.0.0\"; charset=utf-8", MetricsFormat::OpenMetrics),
        ("application/openmetrics-text;version=0.0.1", MetricsFormat::Prometheus),
        ("text/plain", MetricsFormat::Prometheus),
        ("*/*", MetricsFormat::Prometheus),
        ("", MetricsFormat::Prometheus),
        (";;=,q=1", MetricsFormat::Prometheus),
    ] {
        assert_eq!(MetricsFormat::accepted(accept), format, "{accept}");
    }
}

/// The golden files have all other parts of both formats.
#[test]
fn text_is_escaped_as_each_format_demands() {
    let mut metrics = Metrics::default();
    metrics.add(
        Family::new(MetricKind::Counter, "straingauge.cpu", "s", "CPU \\ \"time\".").with(&[("part", "a\"b\n")], 0.5),
    );
    metrics.add(Family::new(MetricKind::Gauge, "straingauge.unmeasured", "", "Not there."));
    let sample = r#"straingauge_cpu_seconds_total{part="a\"b\n"} 0.5"#;
    assert_eq!(
        page(&metrics, MetricsFormat::Prometheus),
        format!(
            "# HELP straingauge_cpu_seconds_total CPU \\\\ \"time\".\n# TYPE straingauge_cpu_seconds_total \
             counter\n{sample}\n"
        )
    );
    assert_eq!(
        page(&metrics, MetricsFormat::OpenMetrics),
        format!(
            "# HELP straingauge_cpu_seconds CPU \\\\ \\\"time\\\".\n# TYPE straingauge_cpu_seconds counter\n\
             # UNIT straingauge_cpu_seconds seconds\n{sample}\n# EOF\n"
        )
    );
}

fn number(metrics: &Metrics, name: &str) -> Option<f64> {
    let family = metrics.families.iter().find(|family| family.name == name)?;
    match family.samples.first()?.value {
        MetricValue::Number(number) => Some(number),
        MetricValue::Buckets(_) => None,
    }
}

#[test]
fn counters_continue_from_point_to_point_and_never_decrease() {
    let plan = LoadPlan { connections: 7, ..LoadPlan::simple(([127, 0, 0, 1], 8080).into()) };
    let mut client = Client::new("127.0.0.1", 8080, 5);
    let responses = |client: &Client| number(&client.metrics(9), "straingauge.load.responses");
    for before in [0.0, 10.0] {
        client.begins(&plan);
        assert_eq!(number(&client.metrics(9), "straingauge.load.connections"), Some(7.0));
        for (completed, seen) in [(4, 4.0), (10, 10.0), (9, 10.0)] {
            client.update(LiveCounts { completed, ..LiveCounts::default() });
            assert_eq!(responses(&client), Some(before + seen));
        }
        client.ends(None);
        assert_eq!(responses(&client), Some(before + 10.0));
    }
    assert_eq!(number(&client.metrics(9), "straingauge.load.points"), Some(0.0));
    assert_eq!(number(&client.metrics(9), "straingauge.load.connections"), None);
}

/// A load is sampled five times per second, and it ends between two samples.
#[test]
fn requests_after_the_last_progress_report_are_counted_at_the_end() {
    let mut point = Point::new(Sweep::Single, 0, 1, Pace::Closed);
    point.figures.set(names::THROUGHPUT, Figure::new(10.0, "1/s", 10, Origin::Counted));
    point.outcomes.refused = 3;
    let mut client = Client::new("h", 1, 5);
    let counts = |client: &Client| {
        ["responses", "failures"].map(|name| number(&client.metrics(9), &format!("straingauge.load.{name}")))
    };
    for points in [1.0, 2.0] {
        client.update(LiveCounts { completed: 8, failed: 1, ..LiveCounts::default() });
        client.ends(Some((&point, &Latency::new())));
        assert_eq!(counts(&client), [Some(points * 10.0), Some(points * 3.0)]);
    }
    client.update(LiveCounts { completed: 11, failed: 4, ..LiveCounts::default() });
    client.ends(Some((&point, &Latency::new())));
    assert_eq!(counts(&client), [Some(31.0), Some(10.0)], "never back");
}

#[test]
fn response_times_of_all_points_are_in_the_buckets() {
    let mut client = Client::new("h", 1, 5);
    let mut point = Point::new(Sweep::Single, 0, 1, Pace::Closed);
    point.figures.set("a_us", Figure::new(2.5, "us", 3, Origin::Timed));
    point.figures.set("b_us", Figure::not_measured("us", "why"));
    let mut response = Latency::new();
    [9_000, 11_000, 30_000_000_000].into_iter().for_each(|ns| response.record_ns(ns));
    client.ends(Some((&point, &response)));
    client.ends(Some((&point, &response)));
    let metrics = client.metrics(9);
    let times = metrics.families.iter().find(|family| family.name == "http.client.request.duration").unwrap();
    let MetricValue::Buckets(times) = &times.samples[0].value else { panic!("{times:?}") };
    assert_eq!((times.counts[0], times.counts[1], times.counts[19]), (2, 2, 2));
    assert!((times.sum - 60.0).abs() < 0.2, "{}", times.sum);
    assert_eq!(number(&metrics, "straingauge.load.points"), Some(2.0));
    let figures = metrics.families.iter().find(|family| family.name == "straingauge.figure").unwrap();
    assert_eq!(figures.samples.len(), 1, "what is not measured is not there");
}
