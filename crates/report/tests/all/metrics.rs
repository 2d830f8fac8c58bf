//! Metrics of a watch in both formats, and the dashboard's queries.

use record::watch::{
    AddedCost, ChargedCpu, ClassTotals, Counter, Counts, CpuTotals, Headroom, Mean, OpenTotals, PhaseTotals, Rates,
    Reading, SizeClass, Watching,
};
use record::{Doubt, DoubtKind};
use report::metrics::Metrics;
use report::metrics::text::{MetricsFormat, page};
use report::watch::{Screen, exposition};

/// The metrics of a watch with one reading.
pub fn built(reading: &Reading, watch: &Watching, doubts: &[Doubt]) -> Metrics {
    let (rates, headroom) = (&Rates::default(), &Headroom::default());
    let (first, now) = (reading, reading);
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
