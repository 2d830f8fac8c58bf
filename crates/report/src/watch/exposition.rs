//! A reading as metrics.

use super::Screen;
use crate::metrics::{Buckets, Family, MetricKind, MetricValue, Metrics};
use record::Doubt;
use record::watch::{ClassTotals, Counter, Log2Histogram, Reading, Watching, bucket_end_ns};

/// The buckets of the BPF programs. Times below a microsecond share a bucket, and so do those above half a minute.
fn buckets(histogram: &Log2Histogram, sum_ns: u64) -> Buckets {
    const ENDS: std::ops::Range<usize> = 4..30;
    let sum = |range: &[u64]| range.iter().sum::<u64>();
    let mut counts = vec![sum(&histogram.0[..=ENDS.start])];
    counts.extend_from_slice(&histogram.0[ENDS.start + 1..ENDS.end]);
    counts.push(sum(&histogram.0[ENDS.end..]));
    Buckets {
        bounds: ENDS.map(|bucket| bucket_end_ns(bucket) as f64 / 1e9).collect(),
        counts,
        sum: sum_ns as f64 / 1e9,
    }
}

/// OpenTelemetry's word for a TCP state (`network.connection.state`).
fn state_word(state: &str) -> String {
    match state {
        "syn-recv" => "syn_received".into(),
        "close" => "closed".into(),
        other => other.replace('-', "_"),
    }
}

/// The metrics of a watch at its last reading.
pub fn metrics(frame: &Screen<'_>) -> Metrics {
    let Screen { first, now: reading, watch, .. } = *frame;
    let unix_ns = |reading: &Reading| reading.unix_ms.saturating_mul(1_000_000);
    let mut metrics = Metrics {
        // From the first reading, because the clock may be set during the watch.
        since_unix_ns: unix_ns(first).saturating_sub(first.elapsed_ns),
        at_unix_ns: unix_ns(reading),
        labels: vec![("server.port", watch.port.to_string())],
        families: Vec::new(),
    };
    of_requests(&mut metrics, reading, watch);
    of_connections(&mut metrics, reading);
    of_processes(&mut metrics, reading, frame.doubts);
    super::headroom::add(&mut metrics, frame.headroom);
    metrics
}

fn of_requests(metrics: &mut Metrics, reading: &Reading, watch: &Watching) {
    let classes = || watch.classes.iter().map(|class| class.name.as_str()).zip(&reading.classes);
    // A counter that lacks requests has another name, so that no rate is wrong; `straingauge.counted` is the time
    // that it covers.
    let is_whole = reading.counted_ns.is_none();
    let mut durations = Family::new(
        MetricKind::Histogram,
        if is_whole { "http.server.request.duration" } else { "straingauge.request.duration_counted" },
        "s",
        "Time from the first read to the sending of the response's last segment.",
    );
    for (class, totals) in classes() {
        durations.add(&[("class", class)], MetricValue::Buckets(buckets(&totals.elapsed, totals.elapsed_ns)));
    }
    metrics.add(durations);
    type Number = fn(&ClassTotals) -> f64;
    let by_class: [(&str, &str, &str, Number); 4] = [
        ("requests", "{request}", "Requests answered, by size class of the response.", |class| class.requests as f64),
        ("request_bytes", "By", "Bytes of requests read by the server.", |class| class.bytes_in as f64),
        ("response_bytes", "By", "Bytes of responses written by the server.", |class| class.bytes_out as f64),
        ("request_cpu", "s", "CPU time charged to requests.", |class| class.cpu_ns as f64 / 1e9),
    ];
    for (name, unit, help, number) in by_class {
        let family =
            Family::new(MetricKind::Counter, &counted_name(&format!("straingauge.{name}"), reading), unit, help);
        metrics.add(classes().fold(family, |family, (class, totals)| family.with(&[("class", class)], number(totals))));
    }
    if !reading.classes.is_empty() {
        let help = "Time in which requests were counted. Divide metrics whose names contain `counted` by it.";
        metrics.number(MetricKind::Counter, "straingauge.counted", "s", help, reading.counted_time_ns() as f64 / 1e9);
    }
    if let Some(open) = &reading.open {
        let help = "Requests in progress: read and not answered (waiting), or not acknowledged in full (sending).";
        let active = Family::new(MetricKind::UpDown, "http.server.active_requests", "{request}", help);
        let active = active.with(&[("state", "waiting")], open.waiting as f64);
        metrics.add(active.with(&[("state", "sending")], open.sending as f64));
    }
    let mut phases = Family::new(
        MetricKind::Gauge,
        "straingauge.phase",
        "s",
        "Mean time of a request's phase, from windows; clock is elapsed or cpu.",
    );
    for (class, totals) in watch.classes.iter().zip(&reading.phases) {
        for (phase, name) in ["parse", "process", "log"].into_iter().enumerate() {
            for (clock, estimate) in [("elapsed", totals.elapsed_ns[phase]), ("cpu", totals.cpu_ns[phase])] {
                if let Some(estimate) = estimate {
                    let labels = [("class", class.name.as_str()), ("phase", name), ("clock", clock)];
                    phases = phases.with(&labels, estimate.mean / 1e9);
                }
            }
        }
    }
    metrics.add(phases);
}

/// The name of a counter of requests, which differs if not every request is counted.
fn counted_name(name: &str, reading: &Reading) -> String {
    match (reading.counted_ns, name.strip_suffix("_bytes")) {
        (None, _) => name.into(),
        (Some(_), Some(what)) => format!("{what}_counted_bytes"),
        (Some(_), None) => format!("{name}_counted"),
    }
}

fn of_connections(metrics: &mut Metrics, reading: &Reading) {
    let connections = &reading.connections;
    let states =
        Family::new(MetricKind::UpDown, "straingauge.connections", "{connection}", "Sockets of the port by TCP state.");
    metrics.add(connections.states.iter().fold(states, |family, (state, count)| {
        family.with(&[("network.connection.state", &state_word(state))], *count as f64)
    }));
    for counter in Counter::ALL {
        let declaration = counter.declaration();
        let unit = if declaration.metric.ends_with("_bytes") { "By" } else { "1" };
        let name = format!("straingauge.{}", declaration.metric);
        let name = if declaration.is_loss { counted_name(&name, reading) } else { name };
        let count = reading.count(counter).map(|count| count as f64);
        metrics.number(MetricKind::Counter, &name, unit, declaration.help, count);
    }
    let mut connection = |kind, name: &str, help: &str, count: Option<u64>| {
        metrics.number(kind, &format!("straingauge.{name}"), "{connection}", help, count.map(|count| count as f64));
    };
    let help = "Connections waiting to be accepted, at the listener with the fullest queue.";
    connection(MetricKind::UpDown, "accept_queue", help, connections.accept_queue);
    let help = "Maximum length of that accept queue.";
    connection(MetricKind::UpDown, "accept_queue_limit", help, connections.accept_queue_limit);
    let help = "Connections and SYNs dropped by the port's listeners because a queue was full.";
    connection(MetricKind::Counter, "port_drops", help, connections.port_drops);
    let help = "Connections dropped because of a full accept queue, in the whole namespace.";
    connection(MetricKind::Counter, "listen_overflows", help, connections.listen_overflows);
}

fn of_processes(metrics: &mut Metrics, reading: &Reading, doubts: &[Doubt]) {
    if let Some(charged) = reading.charged() {
        let help = "CPU time of the server's processes by activity.";
        let parts = [
            ("requests", charged.requests_ns),
            ("connect", charged.connect_ns),
            ("between", charged.between_ns),
            ("elsewhere", charged.elsewhere_ns),
        ];
        // Not a counter, because CPU time moves between parts when its use becomes known, and `elsewhere` may be
        // negative.
        let family = Family::new(MetricKind::UpDown, "straingauge.cpu", "s", help);
        metrics.add(parts.iter().fold(family, |family, (part, ns)| family.with(&[("part", part)], *ns as f64 / 1e9)));
    }
    let cpu = reading.cpu.as_ref();
    let help = "CPU time of the server's processes by the scheduler.";
    let seconds = cpu.map(|cpu| cpu.group_ns as f64 / 1e9);
    metrics.number(MetricKind::Counter, "straingauge.server_cpu", "s", help, seconds);
    let help = "Resident memory of the server's processes.";
    metrics.number(
        MetricKind::UpDown,
        "straingauge.server_resident",
        "By",
        help,
        cpu.map(|cpu| cpu.resident_bytes as f64),
    );
    let (help, count) = ("Processes of the server.", cpu.map(|cpu| cpu.processes as f64));
    metrics.number(MetricKind::UpDown, "straingauge.server_processes", "{process}", help, count);
    let help = "CPU time added by watching, from event counts and calibration.";
    let added = reading.cost.added.as_ref().map(|added| added.added_ns / 1e9);
    metrics.number(MetricKind::Counter, "straingauge.watch_added_cpu", "s", help, added);
    let (help, own) = ("CPU time of straingauge itself.", reading.cost.own_cpu_ns as f64 / 1e9);
    metrics.number(MetricKind::Counter, "straingauge.watch_own_cpu", "s", help, own);
    let (help, doubted) = ("Reasons not to trust these figures.", doubts.len() as f64);
    metrics.number(MetricKind::Gauge, "straingauge.watch_doubts", "{doubt}", help, doubted);
}
