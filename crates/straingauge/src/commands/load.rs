use super::session::Session;
use crate::cli::LoadArgs;
use crate::failure::{self, print, print_json, wrong_usage};
use crate::measured::MeasuredPoint;
use crate::metrics::Loads;
use crate::plan::{self, LoadKind};
use crate::workload::Received;
use anyhow::{Result, anyhow, bail};
use record::point::Sweep;
use record::protocol::Protocol;
use record::run::RunWriter;
use record::{DoubtKind, Point, RunKind, Status};
use remote::WorkerOptions;
use report::check;
use report::json;
use report::run::Answers;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use verdict::limit::{self, FailLimit, LimitCheck};

pub fn run(args: LoadArgs) -> Result<ExitCode> {
    if args.worker {
        return serve(args);
    }
    let limits = parse_limits(&args.fail_if, is_of_a_load)?;
    let (is_full, source_address) = (args.full, args.source_address);
    let mut options = plan::run_options(args.drive, "straingauge load http://127.0.0.1:8080/")?;
    if !source_address.is_empty() {
        options.options.load.source_address = source_address;
    }
    let output = &options.output;
    if let Some(out) = &output.out {
        RunWriter::check(out, Some(out))?;
    }
    output.summary.files().check(output.json)?;
    let metrics = Loads::open(&output.metrics, &options.target)?;
    let mut session = Session::open(&options, LoadKind::Single)?;
    session.runner.metrics = metrics;
    if !session.runner.has_clients() {
        // Checks once before the load, so that a closed port, a bad certificate or a wrong password is one error.
        load::connect_once(&session.plan, Duration::from_nanos(session.plan.connect_timeout_ns))?;
    }
    let mut writer = match &output.out {
        Some(path) => {
            let scenario = session.scenario(&options, RunKind::Load(session.loaded(&options)));
            Some(RunWriter::create(Path::new(crate::defaults::RUNS), Some(path), session.record(scenario))?)
        }
        None => None,
    };
    let plan = session.plan.clone();
    let measured = session.runner.point(&plan, Sweep::Single, 0, &mut session.progress);
    if let (Err(error), Some(writer)) = (&measured, &mut writer) {
        let _ = writer.finish(Status::Interrupted, Some(failure::sentence(error)));
    }
    let mut measured = measured?;
    if writer.is_none() {
        measured.point.doubts.extend(session.doubts.iter().cloned());
    }
    let cut_short = cut_short(&measured, &mut session);
    let kept = writer.map_or(Ok(()), |writer| keep(writer, &mut measured, cut_short.as_deref(), &mut session));
    let checks: Vec<(&FailLimit, LimitCheck)> =
        limits.iter().map(|limit| (limit, limit.check(&measured.point))).collect();
    let shown = if output.summary.files().are_printed() {
        Ok(())
    } else {
        show(&measured, &checks, &session, is_full, output.json)
    };
    let ended = match cut_short {
        Some(why) => Err(anyhow!(why)),
        None => finish(&measured.point, &measured.result, &checks, output.any_status, &session),
    };
    // The figures are already shown, so report a full disk last.
    let ended = kept.and(ended);
    let why = match &ended {
        Err(error) => Some(failure::sentence(error)),
        Ok(_) => measured.result.interrupted.then(|| "a signal".to_string()),
    };
    let mut cases = vec![check::end(why.as_deref())];
    cases.extend(checks.iter().map(|(limit, check)| check::limit("", limit, check)));
    let markdown = || report::markdown::point(&options.target.typed, &measured.point, &cases);
    let summarised = output.summary.write(markdown, &cases);
    let code = ended?;
    shown.and(summarised)?;
    Ok(code)
}

fn keep(
    mut writer: RunWriter,
    measured: &mut MeasuredPoint,
    cut_short: Option<&str>,
    session: &mut Session,
) -> Result<()> {
    // With a watcher, the watcher reports these facts.
    writer.record_mut().server_facts.extend(session.runner.companions.server_facts());
    let kept = measured.keep(&mut writer);
    let why = match (&kept, cut_short, measured.result.interrupted) {
        (Err(error), ..) => Some(failure::sentence(error)),
        (Ok(()), Some(why), _) => Some(why.to_string()),
        (Ok(()), None, true) => Some("a signal".to_string()),
        (Ok(()), None, false) => None,
    };
    let finished = writer.finish(if why.is_some() { Status::Interrupted } else { Status::Complete }, why);
    kept.and(finished.map_err(anyhow::Error::from))?;
    session.progress.say(&format!("kept in {}", writer.path().display()));
    Ok(())
}

fn serve(args: LoadArgs) -> Result<ExitCode> {
    let load = args.drive.options.load;
    let cpus = load.cpus.map(|list| plan::allowed(&list, "--cpus")).transpose()?;
    let threads = load.threads.map(|_| plan::positive("--threads", load.threads, 1)).transpose()?;
    let options = WorkerOptions {
        cpus: cpus.unwrap_or_default(),
        threads: threads.map(|threads| threads.min(1024) as usize),
        addresses: args.source_address,
        interface: args.source_interface,
    };
    Ok(remote::serve_load(&options, &mut Received::default()))
}

fn show(
    measured: &MeasuredPoint,
    checks: &[(&FailLimit, LimitCheck)],
    session: &Session,
    is_full: bool,
    is_json: bool,
) -> Result<()> {
    let answers = Answers::new(&measured.result.counts.status_counts, &session.plan.protocol);
    if is_json {
        let checked = checks.iter().map(|(limit, check)| json::CheckedLimit {
            limit: limit.to_string(),
            crossed: check.is_crossed,
            detail: check.words.clone(),
        });
        let loaded = json::Loaded {
            point: &measured.point,
            path: session.path_plan(),
            status_counts: &answers.statuses,
            reply_counts: &answers.replies,
            first_errors: &measured.result.first_errors,
            limits: checked.collect(),
        };
        return print_json(&json::Output::from(json::Content::Point(loaded)).value());
    }
    let latencies: Vec<(String, record::Latency)> =
        measured.result.latencies().into_iter().map(|(tag, latency)| (tag.to_string(), latency.clone())).collect();
    if let Some(path) = session.path_plan() {
        print(&format!("path: {}\n", path.description()))?;
    }
    if !is_full {
        return print(&report::run::summary(&measured.point, &latencies, &answers));
    }
    print(&report::run::point(&measured.point, &latencies))?;
    session.runner.client_lines().iter().try_for_each(|line| print(&format!("{line}\n")))
}

/// A sentence.
fn cut_short(measured: &MeasuredPoint, session: &mut Session) -> Option<String> {
    let MeasuredPoint { point, result, .. } = measured;
    // A client that was lost after its result does not matter.
    let is_missed = point.doubts.iter().any(|doubt| doubt.kind == DoubtKind::WorkerLost);
    if let Some(lost) = session.runner.lost_client().filter(|_| is_missed) {
        return Some(format!("{lost}; the figures are those of the other clients up to then"));
    }
    if result.interrupted {
        return None;
    }
    if let Some(why) = result.replay.as_ref().and_then(|replay| replay.failure.as_ref()) {
        return Some(format!("the replay ended early: {why}"));
    }
    let how = session.server_end_reason()?;
    Some(format!("the server {how}; the figures end there{}", session.unreached_words()))
}

/// The exit code: interrupted, failed, limit crossed or done, whichever applies first.
fn finish(
    point: &Point,
    result: &load::LoadResult,
    checks: &[(&FailLimit, LimitCheck)],
    any_status: bool,
    session: &Session,
) -> Result<ExitCode> {
    if result.interrupted {
        return Ok(ExitCode::from(failure::INTERRUPTED));
    }
    if point.outcomes.completed() == 0 {
        let example = result.first_errors.first().map(|error| format!(": {error}")).unwrap_or_default();
        bail!("no request was answered{example}{}", session.unreached_words());
    }
    let statuses = &result.counts.status_counts;
    let is_as_logged = result.replay.as_ref().is_some_and(|replay| replay.statuses_equal > replay.statuses_different);
    let is_any_meant = any_status || is_as_logged;
    if let Some(why) = useless_answers(statuses, &session.plan.protocol).filter(|_| !is_any_meant) {
        let unreached = statuses.keys().find_map(|status| session.why_isolated(*status));
        bail!("{why}{}, or pass --any-status", unreached.map(|unreached| format!("; {unreached}")).unwrap_or_default());
    }
    let mut is_crossed = false;
    for (_, check) in checks {
        if check.is_crossed {
            is_crossed = true;
            eprintln!("straingauge: limit crossed: {}", check.words);
        }
    }
    Ok(ExitCode::from(if is_crossed { failure::LIMIT_CROSSED } else { failure::DONE }))
}

/// Warns about statuses that were probably not meant to be measured, if no response is useful: errors, redirects,
/// another protocol. 304 is useful, because it answers a conditional request.
pub fn useless_answers(counts: &BTreeMap<u16, u64>, protocol: &Protocol) -> Option<String> {
    let is_useful = |status: u16| (200..400).contains(&status) && !load::is_redirect(status);
    let (&status, _) = counts.iter().max_by_key(|(_, count)| **count)?;
    if counts.keys().any(|status| is_useful(*status)) {
        return None;
    }
    if !protocol.has_status_codes() {
        return Some(format!(
            "the server answered every request with an error (mostly {}): check the request and the server",
            protocol.status_words(status)
        ));
    }
    Some(match status {
        100..=199 => format!(
            "the server left HTTP/1.1 for another protocol (mostly status {status}): leave out the header that \
             requests it"
        ),
        300..=399 => format!(
            "the server answered every request with a redirect (mostly status {status}), which load does not follow: \
             name the final URL"
        ),
        500..=599 => {
            format!("the server answered every request with a server error (mostly status {status}): see its error log")
        }
        _ => format!(
            "the server answered every request with an error (mostly status {status}): check path, host and headers"
        ),
    })
}

/// Parses the `--fail-if` limits. Refuses a limit on a figure that will not be measured (`can_be`), because it would
/// count as crossed.
pub fn parse_limits(
    texts: &[String],
    can_be: impl Fn(&FailLimit) -> Result<(), &'static str>,
) -> Result<Vec<FailLimit>> {
    let parsed = |text: &String| {
        let limit = limit::parse(text).map_err(|error| wrong_usage(format!("--fail-if: {error}")))?;
        can_be(&limit).map_err(|why| wrong_usage(format!("--fail-if '{limit}': {why}")))?;
        Ok(limit)
    };
    texts.iter().map(parsed).collect()
}

fn is_of_a_load(limit: &FailLimit) -> Result<(), &'static str> {
    if limit.figure().starts_with("find.") { Err("one load does not find it: use straingauge find") } else { Ok(()) }
}
