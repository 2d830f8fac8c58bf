//! A reading in the text format of Prometheus (version 0.0.4).

use record::Doubt;
use record::watch::{Counter, Log2Histogram, Reading, Watching, bucket_end_ns};
use std::fmt::Write as _;

struct Page {
    text: String,
    labels: String,
}

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.text, "# HELP straingauge_{name} {help}\n# TYPE straingauge_{name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let comma = if labels.is_empty() { "" } else { "," };
        let _ = writeln!(self.text, "straingauge_{name}{{{}{comma}{labels}}} {value}", self.labels);
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.sample(name, "", value);
    }

    fn maybe(&mut self, name: &str, kind: &str, help: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.one(name, kind, help, value as f64);
        }
    }

    fn histogram(&mut self, name: &str, labels: &str, histogram: &Log2Histogram, sum_ns: u64) {
        let mut seen = 0;
        // Below a microsecond and above half a minute no separate bucket is needed.
        for (bucket, count) in histogram.0.iter().enumerate() {
            seen += count;
            if (4..30).contains(&bucket) {
                let end = bucket_end_ns(bucket) as f64 / 1e9;
                self.sample(&format!("{name}_bucket"), &format!("{labels},le=\"{end}\""), seen as f64);
            }
        }
        self.sample(&format!("{name}_bucket"), &format!("{labels},le=\"+Inf\""), seen as f64);
        self.sample(&format!("{name}_sum"), labels, sum_ns as f64 / 1e9);
        self.sample(&format!("{name}_count"), labels, seen as f64);
    }
}

/// The page for one reading. Label values are this program's own text.
pub fn page(reading: &Reading, watch: &Watching, doubts: &[Doubt]) -> String {
    let mut page = Page { text: String::new(), labels: format!("port=\"{}\"", watch.port) };
    let classes: Vec<String> = watch.classes.iter().map(|class| format!("class=\"{}\"", class.name)).collect();
    let totals = || classes.iter().zip(&reading.classes);
    if !reading.classes.is_empty() {
        page.family("requests_total", "counter", "Requests answered, by size class of the response.");
        totals().for_each(|(label, class)| page.sample("requests_total", label, class.requests as f64));
        page.family("request_bytes_total", "counter", "Bytes of request read by the server.");
        totals().for_each(|(label, class)| page.sample("request_bytes_total", label, class.bytes_in as f64));
        page.family("response_bytes_total", "counter", "Bytes of response written by the server.");
        totals().for_each(|(label, class)| page.sample("response_bytes_total", label, class.bytes_out as f64));
        page.family("request_cpu_seconds_total", "counter", "CPU time charged to requests.");
        totals().for_each(|(label, class)| page.sample("request_cpu_seconds_total", label, class.cpu_ns as f64 / 1e9));
        page.family(
            "request_elapsed_seconds",
            "histogram",
            "First read to the departure of the response's last segment.",
        );
        totals().for_each(|(label, class)| {
            page.histogram("request_elapsed_seconds", label, &class.elapsed, class.elapsed_ns)
        });
    }
    if let Some(open) = &reading.open {
        page.one("requests_waiting", "gauge", "Requests read and not answered yet.", open.waiting as f64);
        page.one("requests_sending", "gauge", "Responses not acknowledged in full yet.", open.sending as f64);
    }
    if reading.phases.iter().any(|phases| phases.requests > 0) {
        page.family("phase_seconds", "gauge", "Mean time of a request's phase, from windows; clock is elapsed or cpu.");
        for (label, phases) in classes.iter().zip(&reading.phases) {
            for (phase, name) in ["parse", "process", "log"].into_iter().enumerate() {
                for (clock, estimate) in [("elapsed", phases.elapsed_ns[phase]), ("cpu", phases.cpu_ns[phase])] {
                    if let Some(estimate) = estimate {
                        page.sample(
                            "phase_seconds",
                            &format!("{label},phase=\"{name}\",clock=\"{clock}\""),
                            estimate.mean / 1e9,
                        );
                    }
                }
            }
        }
    }
    let connections = &reading.connections;
    page.family("connections", "gauge", "Sockets of the port by TCP state.");
    for (state, count) in &connections.states {
        page.sample("connections", &format!("state=\"{state}\""), *count as f64);
    }
    for counter in Counter::ALL {
        let declaration = counter.declaration();
        page.maybe(declaration.metric, "counter", declaration.help, reading.count(counter));
    }
    page.maybe("accept_queue", "gauge", "Connections waiting to be accepted.", connections.accept_queue);
    page.maybe("accept_queue_limit", "gauge", "How many may wait.", connections.accept_queue_limit);
    page.maybe(
        "port_drops_total",
        "counter",
        "Connections and SYNs dropped by the port's listeners for a full queue.",
        connections.port_drops,
    );
    page.maybe(
        "listen_overflows_total",
        "counter",
        "Connections dropped for a full accept queue, whole namespace.",
        connections.listen_overflows,
    );
    if let Some(charged) = reading.charged() {
        page.family("cpu_seconds_total", "counter", "CPU time of the server's processes by what it was spent on.");
        for (part, ns) in [
            ("requests", charged.requests_ns),
            ("connect", charged.connect_ns),
            ("between", charged.between_ns),
            ("elsewhere", charged.elsewhere_ns),
        ] {
            page.sample("cpu_seconds_total", &format!("part=\"{part}\""), ns as f64 / 1e9);
        }
    }
    if let Some(cpu) = &reading.cpu {
        page.one(
            "server_cpu_seconds_total",
            "counter",
            "CPU time of the server's processes by the scheduler.",
            cpu.group_ns as f64 / 1e9,
        );
        page.one(
            "server_resident_bytes",
            "gauge",
            "Resident memory of the server's processes.",
            cpu.resident_bytes as f64,
        );
        page.one("server_processes", "gauge", "Processes of the server.", cpu.processes as f64);
    }
    if let Some(added) = &reading.cost.added {
        page.one(
            "watch_added_cpu_seconds_total",
            "counter",
            "CPU time that watching added, by event counts and calibration.",
            added.added_ns / 1e9,
        );
    }
    page.one(
        "watch_own_cpu_seconds_total",
        "counter",
        "CPU time of this process.",
        reading.cost.own_cpu_ns as f64 / 1e9,
    );
    page.one("watch_doubts", "gauge", "Reasons not to trust these figures.", doubts.len() as f64);
    page.text
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::watch::{ClassTotals, SizeClass};

    #[test]
    fn a_page_has_one_type_line_per_family_and_numbers_only() {
        let classes = ["<10.0 KiB", ">=10.0 KiB"].map(|name| SizeClass { name: name.into(), ..SizeClass::default() });
        let watch = Watching { port: 80, classes: classes.to_vec(), ..Watching::default() };
        let mut class = ClassTotals { requests: 3, timed: 3, elapsed_ns: 3000, ..ClassTotals::default() };
        class.elapsed.0[5] = 3;
        let reading = Reading { classes: vec![class; 2], ..Reading::default() };
        let text = page(&reading, &watch, &[]);
        let mut types = std::collections::HashSet::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                assert!(types.insert(rest.split(' ').next().unwrap().to_string()), "{line}");
            } else if !line.starts_with('#') {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
                assert!(name.starts_with("straingauge_") && name.ends_with('}'), "{line}");
            }
        }
        assert!(
            text.contains("straingauge_request_elapsed_seconds_bucket{port=\"80\",class=\"<10.0 KiB\",le=\"+Inf\"} 3")
        );
    }

    #[test]
    fn what_is_not_measured_has_no_sample() {
        let text = page(&Reading::default(), &Watching { port: 80, ..Watching::default() }, &[]);
        let measured: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(measured.len(), 2, "{text}");
        assert!(measured[0].starts_with("straingauge_watch_own_cpu_seconds_total"), "{text}");
        assert!(measured[1].starts_with("straingauge_watch_doubts"), "{text}");
    }
}
