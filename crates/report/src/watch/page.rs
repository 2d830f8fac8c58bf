//! The page of a recording.

use super::text;
use crate::chart::{Band, Chart, ChartSeries, Mark, Scale};
use crate::page::CaptionedChart;
use crate::page::frame::render;
use crate::page::plain::{PlainPage, RunWords};
use crate::text::number;
use analyze::watch::lines::{self, Window};
use analyze::watch::{Recording, WatchFindings, stalls};
use record::RunDir;
use record::units::{format_si, grouped};
use statistics::regression::FittedLine;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Maximum points of a line; longer recordings are averaged.
const MOST_POINTS: usize = 480;
/// Maximum stalls that are shaded.
const MOST_BANDS: usize = 200;

/// The page of a recording.
pub fn html(run: &RunDir, recording: &Recording, findings: &WatchFindings) -> String {
    let mut sentences = text::sentences(findings);
    sentences.extend(text::unreadable(findings).map(|said| said + "."));
    let figures = [rates(findings), against_rate(findings), states(recording)].into_iter().flatten().collect();
    let said = (text::headline(run, findings), sentences);
    let tables = findings.tables.tables.iter().map(text::titled).collect();
    let ended = RunWords("ended by a signal", "read");
    let page = PlainPage::new(run, ended, said, ("Over time and over rate", figures), tables);
    render("watch.html", &page, || text::run(run, findings))
}

/// The unit of the time axis in seconds, and the axis's name.
fn since_begin(seconds: f64) -> (f64, &'static str) {
    if seconds >= 7200.0 { (3600.0, "hours since the watch began") } else { (1.0, "seconds since the watch began") }
}

/// Averages neighbours, down to [`MOST_POINTS`].
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let size = points.len().div_ceil(MOST_POINTS).max(1);
    points.chunks(size).map(|part| (part[0].0, part.iter().map(|(_, y)| y).sum::<f64>() / part.len() as f64)).collect()
}

fn rates(findings: &WatchFindings) -> Option<CaptionedChart> {
    let found = findings.stalls.as_ref().ok()?;
    let mut points = thinned(&found.rates);
    // A rate is drawn at the start of its interval; the last one is repeated at its end.
    points.extend(points.last().map(|(_, rate)| (findings.seconds, *rate)));
    let (unit_s, x_name) = since_begin(findings.seconds);
    points.iter_mut().for_each(|(x, _)| *x /= unit_s);
    let mut chart = Chart::empty(
        "requests per second over time",
        x_name,
        "requests per second",
        Scale::linear(points.iter().map(|(x, _)| *x), number),
        Scale::linear(points.iter().map(|(_, y)| *y), format_si),
    );
    chart.description = stalls::sentences(found).join(" ");
    let shaded = |stall: &stalls::Stall| {
        let range = stall.at_s / unit_s..(stall.at_s + stall.length_s) / unit_s;
        Band { name: "", class: "failure", range, least_px: 1.0 }
    };
    chart.bands = found.stalls.iter().take(MOST_BANDS).map(shaded).collect();
    (chart.unit, chart.origin) = ("1/s", "counted");
    chart.series.push(ChartSeries {
        class: "s1",
        line: points.into_iter().map(Mark::from).collect(),
        ..ChartSeries::default()
    });
    let caption = match found.rates.len().div_ceil(MOST_POINTS) {
        0 | 1 => "Counted, each reading".to_string(),
        size => format!("Counted; means of {size} readings"),
    };
    let of = match found.stalls.len() {
        n if n > MOST_BANDS => format!("the first {MOST_BANDS} of {} stalls", grouped(n as f64)),
        _ => "stalls".into(),
    };
    Some(CaptionedChart {
        title: "Requests per second",
        caption: format!("{caption}. Shaded: {of}. After Banga and Mogul (1998), Figure 11."),
        chart,
    })
}

fn against_rate(findings: &WatchFindings) -> Option<CaptionedChart> {
    let lines = findings.lines.as_ref().ok()?;
    let windows = &lines.windows;
    let most = windows.iter().map(|window| window.rate_per_sec).fold(0.0, f64::max);
    let values = windows.iter().flat_map(|w| [w.idle_cpus.unwrap_or(0.0), w.user_cpus, w.kernel_cpus]);
    let mut chart = Chart::empty(
        "CPU time against request rate",
        "requests per second",
        "CPUs",
        Scale::linear(windows.iter().map(|window| window.rate_per_sec), format_si),
        Scale::linear(values, number),
    );
    chart.description = lines::sentences(lines).join(" ");
    (chart.unit, chart.origin) = ("CPUs", "least squares");
    let counted = |place: (f64, f64)| Mark { origin: "counted", ..place.into() };
    let mut add = |name: &str, class: &'static str, line: &FittedLine, value: &dyn Fn(&Window) -> Option<f64>| {
        let y = |x: f64| (line.intercept.value + line.slope.value * x).max(0.0);
        chart.series.push(ChartSeries {
            name: name.into(),
            class,
            line: vec![(0.0, y(0.0)).into(), (most, y(most)).into()],
            dots: windows.iter().filter_map(|window| Some(counted((window.rate_per_sec, value(window)?)))).collect(),
            ..ChartSeries::default()
        });
    };
    if let Some(idle) = &lines.idle {
        add("idle", "s3", idle, &|window| window.idle_cpus);
    }
    add("kernel", "s2", &lines.kernel, &|window| Some(window.kernel_cpus));
    add("user", "s1", &lines.user, &|window| Some(window.user_cpus));
    let of =
        if lines.cpus > 0 { format!("the machine's {} CPUs", lines.cpus) } else { "the server's processes".into() };
    Some(CaptionedChart {
        title: "CPU time against request rate",
        caption: format!(
            "CPU time of {of}, counted; dots: windows of {:.0} s (n = {}); lines: least squares. After Banga and Mogul \
             (1998), Figure 12.",
            lines.window_s,
            windows.len()
        ),
        chart,
    })
}

fn states(recording: &Recording) -> Option<CaptionedChart> {
    let classes = ["s1", "s2", "s3", "s4"];
    let wanted = ["ESTABLISHED", "TIME_WAIT", "SYN_RECV", "CLOSE_WAIT"];
    let samples: Vec<_> =
        recording.samples.iter().filter_map(|sample| Some((sample.seconds, sample.states.as_ref()?))).collect();
    let (unit_s, x_name) = since_begin(samples.last().map_or(0.0, |(seconds, _)| *seconds));
    let has = |name: &str| samples.iter().any(|(_, states)| states.keys().any(|key| is_state(key, name)));
    let series: Vec<ChartSeries> = wanted
        .iter()
        .zip(classes)
        .filter(|(name, _)| has(name))
        .map(|(name, class)| {
            let count = |states: &BTreeMap<Cow<'static, str>, u64>| {
                states.iter().filter(|(key, _)| is_state(key, name)).map(|(_, n)| *n as f64).sum()
            };
            let points: Vec<(f64, f64)> =
                samples.iter().map(|(seconds, states)| (*seconds / unit_s, count(states))).collect();
            let line = thinned(&points).into_iter().map(Mark::from).collect();
            ChartSeries { name: name.to_lowercase().replace('_', " "), class, line, ..ChartSeries::default() }
        })
        .collect();
    if series.is_empty() || samples.len() < 2 {
        return None;
    }
    let all = || series.iter().flat_map(|series| series.line.iter());
    let mut chart = Chart::empty(
        "connections by state over time",
        x_name,
        "sockets",
        Scale::linear(all().map(|mark| mark.x), number),
        Scale::linear(all().map(|mark| mark.y), format_si),
    );
    (chart.series, chart.unit, chart.origin) = (series, "sockets", "counted");
    Some(CaptionedChart {
        title: "Connections by state",
        caption: "Counted at each transition. Sockets leave TIME_WAIT by the kernel's timers, which are computed."
            .into(),
        chart,
    })
}

/// States are spelled as in the kernel or in lower case.
fn is_state(key: &str, name: &str) -> bool {
    key.eq_ignore_ascii_case(name) || key.replace(['-', ' '], "_").eq_ignore_ascii_case(name)
}
