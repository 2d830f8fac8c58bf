//! `straingauge watch :PORT`: shows what a running server does, request by request, without disturbing it.

pub mod control_group;
mod keys;
mod privileges;
mod recording;
mod view;

use crate::cli::{WatchArgs, WatchWord};
use crate::failure::{self, print_while_read, refuse_if, wrong_usage};
use crate::metrics::Outlets;
use crate::plan::watching;
use crate::signals::Stop;
use analyze::watch::headroom::Estimator;
use anyhow::{Context, Result};
use observe::Group;
use observe::watch::{Intervals, WatchOptions, Watcher};
use record::time::monotonic_ns;
use record::watch::{Mode, Rates, Watching};
use recording::RecordingWriter;
use report::watch::{Screen, exposition};
use std::process::ExitCode;
use std::time::Duration;
use view::View;

const LEARNED: Duration = Duration::from_millis(250);
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

pub fn run(args: WatchArgs) -> Result<ExitCode> {
    let options = options(&args)?;
    refuse_if(
        interval(&args) < SHORTEST_INTERVAL,
        "--interval must be at least 100ms: shorter ones would mostly measure the watcher",
    )?;
    refuse_if(
        args.duration.is_some_and(|duration| duration.0 < SHORTEST_INTERVAL),
        "--duration must be at least 100ms: shorter watches show nothing",
    )?;
    let stop = Stop::on_signals()?;
    let mut watcher = Watcher::start(options).context("cannot watch")?;
    let watch = watching(&watcher);
    if let Some(request_ns) = watcher.request_ns().filter(|_| matches!(watch.mode, Mode::Counts | Mode::Exact)) {
        eprintln!(
            "--detail {} ignores --overhead: it adds about {:.2} us per request (modelled)",
            watch.mode.word(),
            request_ns / 1e3
        );
    }
    let has_server = !watcher.pids().is_empty();
    if !has_server && args.pid.is_none() && args.cgroup.is_none() {
        eprintln!("no visible process listens on port {}: waiting for one (Ctrl-C ends)", watch.port);
    }
    let mut outlets = Outlets::open(&args.metrics)?;
    let mut recording = args.out.as_deref().map(|path| RecordingWriter::create(path, &watcher, &watch)).transpose()?;
    if !args.keep_privileges {
        privileges::drop_all_but_bpf(args.pack.is_some(), args.out.as_deref())
            .context("cannot give up privileges after attaching (--keep-privileges keeps them)")?;
    }
    // After the privileges are dropped, this shows whether the recording can be completed.
    recording.as_ref().map_or(Ok(()), RecordingWriter::save)?;
    outlets.serve()?;
    let ended = watch_until_end(&args, &stop, &mut watcher, &watch, &mut outlets, recording.as_mut());
    finish(watcher, recording, ended)
}

/// Shows and keeps a reading after each interval; returns whether a signal ended the watch early.
fn watch_until_end(
    args: &WatchArgs,
    stop: &Stop,
    watcher: &mut Watcher,
    watch: &Watching,
    outlets: &mut Outlets,
    mut recording: Option<&mut RecordingWriter>,
) -> Result<bool> {
    let interval = interval(args).as_nanos() as u64;
    let mut view = View::new(args.json, stop);
    let mut estimator = Estimator::sliding();
    let started_ns = monotonic_ns();
    let ends_ns = args.duration.map(|duration| started_ns + duration.nanos());
    let first = watcher.read();
    estimator.add(&first);
    if let Some(recording) = &mut recording {
        recording.add(&first, &Rates::default(), &estimator.headroom(), watcher)?;
    }
    // After a quarter of a second, the cost of counting is known, and a watch that costs too much has been reduced.
    watcher.wait_until((first.at_ns + LEARNED.as_nanos() as u64).min(ends_ns.unwrap_or(u64::MAX)), stop.flag());
    watcher.read();
    let mut earlier = first.clone();
    let mut of_requests = (None, Vec::new());
    loop {
        let deadline_ns = (earlier.at_ns + interval).min(ends_ns.unwrap_or(u64::MAX));
        watcher.wait_until(deadline_ns, stop.flag());
        let is_last = stop.is_set() || ends_ns.is_some_and(|ends| monotonic_ns() >= ends);
        let now = watcher.read();
        estimator.add(&now);
        let headroom = estimator.headroom();
        let mut rates = Rates::between(&earlier, &now);
        if rates.all.is_some() {
            of_requests = (rates.all.clone(), rates.classes.clone());
        } else if now.counted_ns.is_some() {
            // Requests are counted in windows, so these are the rates of the last window.
            (rates.all, rates.classes) = of_requests.clone();
        }
        let doubts = watcher.doubts();
        if let Some(recording) = &mut recording {
            recording.add(&now, &rates, &headroom, watcher)?;
        }
        let screen = Screen { watch, first: &first, now: &now, rates: &rates, headroom: &headroom, doubts: &doubts };
        outlets.publish(|| exposition::metrics(&screen));
        view.show(&screen, is_last)?;
        if is_last {
            return Ok(stop.is_set() && ends_ns.is_some());
        }
        earlier = now;
    }
}

fn watching(watcher: &Watcher) -> Watching {
    let options = watcher.options();
    Watching {
        port: options.port,
        mode: options.mode,
        classes: options.classes.iter().cloned().collect(),
        overhead_limit_ratio: options.overhead_ratio,
    }
}

fn interval(args: &WatchArgs) -> Duration {
    args.interval.map_or(crate::defaults::INTERVAL, |interval| interval.0)
}

fn finish(watcher: Watcher, recording: Option<RecordingWriter>, ended: Result<bool>) -> Result<ExitCode> {
    let doubts = watcher.doubts();
    // Detach before writing, which may be slow.
    drop(watcher);
    let why = match &ended {
        Ok(is_cut_short) => is_cut_short.then(|| "a signal".to_string()),
        Err(error) => Some(failure::sentence(error)),
    };
    let kept = recording.map(|recording| recording.finish(&doubts, why)).transpose();
    let is_cut_short = ended?;
    if let Some(path) = kept? {
        eprintln!("kept in {path}");
    }
    // Without --duration, Ctrl-C is the normal end of a watch.
    Ok(ExitCode::from(if is_cut_short { failure::INTERRUPTED } else { failure::DONE }))
}

fn options(args: &WatchArgs) -> Result<WatchOptions> {
    let port = crate::url::port_word(&args.port)?;
    let mode = args.detail.and_then(WatchWord::mode).unwrap_or_default();
    let classes = watching::classes(args.response_classes.as_deref())?;
    let overhead_ratio = watching::overhead_ratio(args.overhead)?;
    let pack = args.pack.as_deref().map(|word| watching::pack(word, mode)).transpose()?;
    Ok(WatchOptions {
        port,
        group: args.pid.map_or(Group::ListeningOn(port), Group::Tree),
        netns_pid: args.netns_of,
        mode,
        overhead_ratio,
        classes,
        // This hook slows every system call of the machine, so it is used only in windows.
        splits: !args.no_file_hooks && mode != Mode::Exact,
        control_group: args.cgroup.as_deref().map(control_group::found).transpose()?,
        system_intervals: match &args.system_interval {
            Some(text) => Intervals::parse(text).map_err(|error| wrong_usage(format!("--system-interval: {error}")))?,
            None => Intervals::default(),
        },
        room: args.table_size.map(|room| room.0.min(u64::from(u32::MAX)) as u32),
        detects_protocol: !args.no_protocol_detection,
        pack: pack.map(|(pack, _)| pack),
        limits: true,
        accounts: args.account,
        reads_by_position: false,
    })
}

fn emit(text: &str) -> Result<()> {
    print_while_read(text.as_bytes())
}
