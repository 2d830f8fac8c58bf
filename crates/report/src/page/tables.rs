//! The tables of the report: levels, points with every figure, criteria, facts.

use crate::doubt;
use crate::run::{counts, load_cell, response_cells};
use crate::text::{TOO_FEW, at_least, not_measured, number, percentile};
use analyze::zones::{Level, Spread, SweepFindings, percent};
use record::machine::cpu_list;
use record::text::plain;
use record::units::{exact_percent, format_bytes, format_nanos, format_si, grouped};
use record::{Criteria, Figure, LoadPlan, Pace, Point, RunDir, Sweep, names};
use serde_json::{Value, json};

/// Maximum points with a list of figures, to limit the page's size.
const LISTED_POINTS: usize = 400;

pub(super) fn levels(sweep: &SweepFindings) -> Vec<Value> {
    sweep.levels.iter().map(|level| level_row(level, sweep.sweep)).collect()
}

fn level_row(level: &Level, sweep: Sweep) -> Value {
    let cell =
        |spread: Option<Spread>, words: &dyn Fn(f64) -> String| spread.map_or("\u{2013}".into(), |s| words(s.median));
    let us = |us: f64| format!("{us:.1}");
    let [p50, p99] = response_cells(level).map(|cell| cell.unwrap_or("\u{2013}".into()));
    json!({
        "load": load_cell(level.load, sweep),
        "zone": level.zone.word(),
        "rate": cell(level.throughput_per_sec, &format_si),
        "range": level
            .throughput_per_sec
            .filter(|spread| spread.n > 1)
            .map(|spread| format!("{}\u{2013}{}", format_si(spread.min), format_si(spread.max)))
            .unwrap_or_default(),
        "p50": p50,
        "p99": p99,
        "reap": cell(level.reap_p99_us, &|us| format_nanos(us * 1e3)),
        "cpu": cell(level.cpu_us_per_request, &us),
        "user": cell(level.cpu_user_us_per_request, &us),
        "system": cell(level.cpu_system_us_per_request, &us),
        "softirq": cell(level.softirq_us_per_request, &us),
        "busy": cell(level.cpus_busy_ratio, &percent),
        "failing": if level.failing > 0 { format!("{} of {}", level.failing, level.points) } else { String::new() },
        "n": if level.counted == level.points {
            level.points.to_string()
        } else {
            format!("{} of {}", level.counted, level.points)
        },
    })
}

fn quantile(figure: Option<&Figure>, quantile: f64) -> String {
    let words = figure.and_then(|figure| percentile(figure, quantile));
    words.filter(|words| words != TOO_FEW).unwrap_or("\u{2013}".into())
}

pub(super) fn points(run: &RunDir) -> (Vec<Value>, usize) {
    let rows = run.points.iter().take(LISTED_POINTS).map(point_row).collect();
    (rows, run.points.len().saturating_sub(LISTED_POINTS))
}

fn point_row(point: &Point) -> Value {
    let value = |name: &str, words: &dyn Fn(f64) -> String| point.value(name).map_or("\u{2013}".into(), words);
    let outcomes = &point.outcomes;
    let counts = counts(outcomes).into_iter().map(|(kind, count)| (kind, grouped(count as f64)));
    json!({
        "index": format!("{:03}", point.index),
        "sweep": point.sweep.word(),
        "load": match point.pace {
            Pace::Closed => grouped(point.connections as f64),
            Pace::Open { rate_per_sec, .. } => format!("{}/s", format_si(rate_per_sec)),
        },
        "repeat": point.repeat,
        "window": format_nanos(point.duration_ns as f64),
        "sent": grouped(outcomes.requests() as f64),
        "failed": grouped(outcomes.failed() as f64),
        "rate": value(names::THROUGHPUT, &number),
        "p50": quantile(point.figures.get(names::RESPONSE_P50), 0.5),
        "p99": quantile(point.figures.get(names::RESPONSE_P99), 0.99),
        "cpu": analyze::zones::cpu_us(point).map_or("\u{2013}".into(), |us| format!("{us:.1}")),
        "doubts": point.doubts.len(),
        "figures": figures(point),
        "outcomes": counts.collect::<Vec<_>>(),
        "classes": crate::run::class_tables(&point.workload),
        "replay": point.workload.replay.as_ref().map(crate::run::replay_facts).unwrap_or_default(),
        "doubt_rows": doubt::rows(&point.doubts),
    })
}

fn figures(point: &Point) -> Vec<Value> {
    point
        .figures
        .0
        .iter()
        .take(200)
        .map(|(name, figure)| {
            json!({
                "name": plain(name, 60),
                "value": match figure.value {
                    Some(value) => at_least(figure.at_least, number(value)),
                    None => not_measured(figure.not_measured.as_deref(), 160),
                },
                "unit": plain(&figure.unit, 20),
                "n": figure.n.map(|n| grouped(n as f64)).unwrap_or_default(),
                "origin": figure.origin.map(|origin| origin.word()).unwrap_or_default(),
            })
        })
        .collect()
}

pub(super) fn criteria(criteria: &Criteria) -> Vec<(&'static str, String, &'static str)> {
    vec![
        (
            "elastic gain",
            exact_percent(criteria.elastic_gain_ratio),
            "closed loop: the yield point is where doubling the connections raises throughput by less than this",
        ),
        (
            "saturation",
            exact_percent(criteria.saturation_ratio),
            "a thread or the CPUs of the server are saturated at this share; open loop: the elastic zone ends there",
        ),
        ("efficiency loss", exact_percent(criteria.efficiency_loss_ratio), "CPU time of a request above its lowest"),
        ("failed requests", exact_percent(criteria.error_ratio), "failure: a larger share of errors and non-2xx"),
        (
            "goodput",
            exact_percent(criteria.goodput_ratio),
            "failure: a smaller share of the offered load was answered in the window",
        ),
        (
            "p99 limit",
            format_nanos(criteria.p99_limit_ns as f64),
            "failure: a longer response time at the 99th percentile",
        ),
        (
            "bracket",
            exact_percent(criteria.bracket_ratio),
            "the search over rate narrows the failure point to this \
            width",
        ),
        (
            "yield interval",
            exact_percent(criteria.yield_interval_ratio),
            "repeats end when the yield point's interval has this width",
        ),
        (
            "confidence",
            exact_percent(criteria.confidence_ratio),
            "confidence of every interval (bootstrap over \
            repeats)",
        ),
    ]
}

/// A heading and its (name, value) pairs.
pub(crate) type FactGroup = (&'static str, Vec<(String, String)>);

pub(crate) fn facts(run: &RunDir) -> Vec<FactGroup> {
    let machine = &run.record.machine;
    let text = |value: &str| plain(value, 300);
    let mut of_machine = vec![
        ("kernel".to_string(), text(&machine.kernel)),
        ("distribution".into(), text(&machine.distribution)),
        ("CPU".into(), text(&machine.cpu_model)),
        ("CPUs online".into(), machine.cpus.to_string()),
        ("memory".into(), format_bytes(machine.memory_bytes as f64)),
        ("virtual machine".into(), if machine.virtual_machine { "yes".into() } else { "no sign of one".into() }),
        ("descriptor limit".into(), grouped(machine.descriptor_limit as f64)),
        ("straingauge".into(), text(&machine.straingauge)),
    ];
    of_machine.extend(machine.governor.as_deref().map(|governor| ("frequency governor".into(), text(governor))));
    of_machine.retain(|(_, value)| !value.is_empty());
    let settings: Vec<_> = machine.sysctls.iter().take(50).map(|(name, value)| (text(name), text(value))).collect();
    let mut server: Vec<_> =
        run.record.server_facts.iter().take(100).map(|(name, value)| (text(name), text(value))).collect();
    if let Some(command) = run.record.scenario.server() {
        server.push(("command".into(), plain(&command.argv.join(" "), 600)));
        server.push(("separate network stack".into(), if command.isolated { "yes".into() } else { "no".into() }));
        if !command.cpus.is_empty() {
            server.push(("pinned to CPUs".into(), cpu_list(&command.cpus)));
        }
    }
    let client = run.record.scenario.load().map(client).unwrap_or_default();
    [("Machine", of_machine), ("Server", server), ("Client", client), ("Kernel settings", settings)]
        .into_iter()
        .filter(|(_, facts)| !facts.is_empty())
        .collect()
}

fn client(load: &LoadPlan) -> Vec<(String, String)> {
    let text = |text: &str| plain(text, 300);
    let mut client = vec![
        (
            "request".to_string(),
            format!("{} {}", text(&load.method), load.targets.first().map(|t| text(&t.path)).unwrap_or_default()),
        ),
        ("targets".into(), grouped(load.workload.targets.max(load.targets.len() as u64) as f64)),
        (
            "requests per connection".into(),
            if load.requests_per_connection == 0 {
                "as many as the server allows".into()
            } else {
                grouped(load.requests_per_connection as f64)
            },
        ),
        ("engine threads".into(), load.threads.to_string()),
        ("timeout".into(), format_nanos(load.timeout_ns as f64)),
        ("seed".into(), load.seed.to_string()),
    ];
    if let Some(words) = load.protocol.request_words() {
        client[0].1 = text(&words);
        client.remove(1);
        client.insert(0, ("protocol".into(), load.protocol.scheme().into()));
    } else if let Some(words) = load.protocol.version_words() {
        client.insert(0, ("protocol".into(), words));
    }
    let workload = &load.workload;
    if !workload.name.is_empty() {
        client.push(("workload".into(), text(&workload.name)));
    }
    if let Some(trace) = &workload.trace {
        let speed = trace.speed.map_or("as fast as the server answers".into(), |speed| format!("speed {speed}"));
        client.push(("log".into(), format!("{}, {speed}", text(&trace.file))));
        client.push(("session gap".into(), format_nanos(trace.session_gap_ns as f64)));
    }
    if let Some(series) = &workload.series {
        let peak = series.peak_ratio;
        client.push(("rate series".into(), format!("{}, peak {peak:.1} times the mean", text(&series.file))));
    }
    if !load.cpus.is_empty() {
        client.push(("pinned to CPUs".into(), cpu_list(&load.cpus)));
    }
    client.extend(load.headers.iter().take(30).map(|(name, value)| (format!("header {}", text(name)), text(value))));
    client
}
