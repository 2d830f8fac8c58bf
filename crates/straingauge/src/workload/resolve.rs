//! Checks workload options against each other and against those of the load, and adds them to the plan.

use super::supply::{LogFile, WorkloadFiles};
use super::targets::{self, PlannedRequests};
use crate::cli::{LoadOptions, WorkloadOptions};
use crate::defaults;
use crate::failure::{refuse_if, refuse_typed, wrong_usage};
use crate::quantity::{Speed, Time};
use crate::url::Target;
use anyhow::{Context, Result};
use record::scenario::RequestTarget;
use record::workload::{SeriesSource, TraceSource};
use record::{Arrival, Pace, Workload};
use std::path::Path;
use workload::arrival::RateSeries;
use workload::mix::MixClasses;
use workload::replay::LogShape;
use workload::trace::{SizeMeaning, TraceReader};

/// The rate of a log is estimated from this many requests before a single run; reading more would delay the run.
const ESTIMATED_FROM: u64 = 10_000;
/// A window longer than any log, which then ends first.
const UNTIL_THE_END_NS: u64 = 365 * 86_400 * 1_000_000_000;

/// The effect of the options on a plan.
pub struct Resolved {
    pub targets: Vec<RequestTarget>,
    pub workload: Workload,
    pub pace: Option<Pace>,
    /// The window of a workload with a fixed length, at most that of the options.
    pub duration_ns: Option<u64>,
    /// Connections if the options name none.
    pub default_connections: Option<u64>,
    /// Warm-up if the options name none.
    pub default_warmup_ns: Option<u64>,
    /// The files that the engine reads during the run.
    pub supplied: WorkloadFiles,
}

/// Reads and checks the options. With `is_sweep`, the sweep sets pace and window.
pub fn resolve(options: &WorkloadOptions, load: &LoadOptions, target: &Target, is_sweep: bool) -> Result<Resolved> {
    let is_fitted = options.mix.as_deref() == Some("fitted");
    let is_replay = options.trace.is_some() && !is_fitted;
    refuse_if(
        options.trace_format.is_some() && options.trace.is_none(),
        "trace-format of [workload] needs --trace LOG",
    )?;
    refuse_if(options.session_gap.is_some() && !is_replay, "session-gap of [workload] needs --trace LOG")?;
    refuse_if(options.logged_host && !is_replay, "logged-host of [workload] needs --trace LOG")?;
    refuse_if(
        options.speed.is_some() && !is_replay && options.rate_series.is_none(),
        "--speed needs --trace LOG or --rate-series FILE",
    )?;
    if is_replay {
        return replay(options, load, target, is_sweep);
    }
    let PlannedRequests { targets, workload } = targets::requests(options, load.urls.as_deref(), target)?;
    let mut resolved = Resolved {
        targets,
        workload,
        pace: None,
        duration_ns: None,
        default_connections: None,
        default_warmup_ns: None,
        supplied: WorkloadFiles::default(),
    };
    if let Some(path) = &options.rate_series {
        follow(&mut resolved, path, options, load, is_sweep)?;
    }
    Ok(resolved)
}

fn follow(
    resolved: &mut Resolved,
    path: &Path,
    options: &WorkloadOptions,
    load: &LoadOptions,
    is_sweep: bool,
) -> Result<()> {
    /// A line with only a count covers one second, as is usual in collections of web traces.
    const PLAIN_INTERVAL_NS: u64 = 1_000_000_000;
    refuse_if(load.arrival.is_some(), "--rate-series is itself an arrival process: leave --arrival out")?;
    let series = RateSeries::open(path, PLAIN_INTERVAL_NS)?;
    let speed = match options.speed {
        None => None,
        Some(Speed::Times(_)) if is_sweep => {
            return Err(wrong_usage("find plays the whole series at each point: leave --speed out"));
        }
        Some(Speed::Times(speed)) => Some(speed),
        Some(Speed::Max) => {
            return Err(wrong_usage("--speed max needs a log; for a rate series give a number"));
        }
    };
    let asked_ns = load.duration.map(|time| time.nanos());
    let whole_ns = match speed {
        Some(speed) => ((series.span_ns() as f64 / speed) as u64).max(1),
        None => asked_ns.unwrap_or(defaults::DURATION.as_nanos() as u64),
    };
    // The series' own rate in the time of the window.
    let own_rate = series.total() as f64 * 1e9 / whole_ns as f64;
    let rate_per_sec = load.rate.map_or(own_rate, |rate| rate.0);
    resolved.workload.series = Some(SeriesSource {
        file: path.display().to_string(),
        intervals: series.counts.len() as u64,
        interval_ns: series.interval_ns,
        peak_ratio: series.peak_ratio(),
        speed,
    });
    if !is_sweep {
        resolved.pace = Some(Pace::Open { rate_per_sec, arrival: Arrival::Series });
        resolved.duration_ns = Some(asked_ns.map_or(whole_ns, |asked| asked.min(whole_ns)));
        resolved.default_warmup_ns = Some(0);
    }
    resolved.supplied.series = Some(series);
    Ok(())
}

fn replay(options: &WorkloadOptions, load: &LoadOptions, target: &Target, is_sweep: bool) -> Result<Resolved> {
    let path = options.trace.as_deref().unwrap_or(Path::new(""));
    refuse_if(options.mix.is_some(), "--mix and --trace both choose the requests: give one of them, or --mix fitted")?;
    let typed = [
        (load.urls.is_some(), "--urls"),
        (options.dynamic_urls.is_some(), "dynamic-urls of [workload]"),
        (options.rate_series.is_some(), "--rate-series"),
        (load.arrival.is_some(), "--arrival"),
        (load.requests_per_connection.is_some(), "--requests-per-connection"),
        (load.method.is_some(), "--method"),
        (load.body.is_some(), "--body"),
    ];
    refuse_typed(&typed, |option| {
        format!("{option} does not work with --trace: the log determines the requests and their times")
    })?;
    refuse_if(
        load.rate.is_some(),
        "--rate does not work with --trace: the log has its own rate, which --speed multiplies",
    )?;
    refuse_if(
        target.path != "/",
        format!("with --trace the log has the paths: write http://{}/ without one", target.host_field),
    )?;
    refuse_if(is_sweep && options.speed.is_some(), "find chooses the speed of a replay itself: leave --speed out")?;
    if !std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?.is_file() {
        return Err(wrong_usage(format!(
            "{} is not a regular file: a log is read more than once, so it cannot come from a pipe or directory",
            path.display()
        )));
    }
    let format = targets::format(options.trace_format.as_deref(), "trace-format of [workload]")?;
    let reader = TraceReader::open(path, &format)?;
    let format = reader.format().clone();
    let has_body_sizes = reader.size_meaning() == SizeMeaning::Body;
    // A sweep needs the rate of every part; a single run only shows an estimate until the real rate is known.
    let shape = LogShape::read(reader, if is_sweep { u64::MAX } else { ESTIMATED_FROM })?;
    let speed = match options.speed {
        None => Some(1.0),
        Some(Speed::Times(speed)) => Some(speed),
        Some(Speed::Max) => None,
    };
    let classes = targets::size_classes(options)?.unwrap_or_else(MixClasses::default);
    let first = shape.answered_target.clone().filter(|target| target.bytes().all(|byte| byte.is_ascii_graphic()));
    let session_gap_ns = Time::nanos_or(options.session_gap, defaults::SESSION_GAP);
    Ok(Resolved {
        // Used only before a sweep, to check the server's response.
        targets: vec![RequestTarget { path: first.unwrap_or_else(|| "/".into()) }],
        workload: Workload {
            name: "trace".into(),
            classes: if has_body_sizes { classes.named() } else { Vec::new() },
            trace: Some(TraceSource {
                file: path.display().to_string(),
                format: format.to_string(),
                speed,
                session_gap_ns,
                has_host: options.logged_host,
                is_repeated: is_sweep,
            }),
            ..Workload::default()
        },
        pace: match speed {
            Some(speed) => {
                let rate_per_sec = (shape.mean_rate_per_sec() * speed).clamp(1e-6, 1e9);
                Some(Pace::Open { rate_per_sec, arrival: Arrival::Trace })
            }
            None => Some(Pace::Closed),
        },
        duration_ns: Some(load.duration.map_or(UNTIL_THE_END_NS, |time| time.nanos())),
        default_connections: Some(if speed.is_some() { replay_connections() } else { 256 }),
        default_warmup_ns: (!is_sweep).then_some(0),
        supplied: WorkloadFiles {
            log: Some(LogFile {
                path: path.to_path_buf(),
                format,
                has_body_sizes,
                is_empty: false,
                origin_ns: None,
                round_ns: shape.round_ns(),
                shape: Some(shape),
            }),
            ..WorkloadFiles::default()
        },
    })
}

/// Default connections of a replay: most of a log's sessions are idle most of the time.
fn replay_connections() -> u64 {
    const PLENTY: u64 = 10_000;
    const OTHERS: u64 = 400;
    PLENTY.min(record::machine::raise_descriptor_limit().saturating_sub(OTHERS)).max(1)
}
