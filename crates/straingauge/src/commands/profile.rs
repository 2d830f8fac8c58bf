//! `straingauge profile`: where a server's CPU time goes, by layer, per packet and per request.

mod sweep;

use super::export;
use crate::cli::{Method, ProfileArgs};
use crate::failure::{self, print, print_either, print_json, wrong_usage};
use crate::output;
use crate::signals::Stop;
use analyze::profile::Change;
use anyhow::{Context, Result, anyhow, bail};
use observe::profile::exact::{self, BurstOptions};
use observe::profile::{self, FunctionGroup, ProfileError, ProfileOptions};
use record::profile::{Folded, Profile};
use report::export::Recording;
use report::flame;
use serde::Serialize;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Shortest window whose tenths have a few samples each.
const SHORTEST: Duration = Duration::from_millis(200);
/// Outside this range a timer either shows nothing or slows the server down.
const FREQUENCIES: std::ops::RangeInclusive<u64> = 1..=4000;

/// The output of `--json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Sampled<'a> {
    /// What was sampled.
    #[serde(flatten)]
    profile: &'a Profile,
    /// Whether it ended early.
    interrupted: bool,
    /// What grew since the profile of `--against`.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<&'a [Change]>,
}

/// Runs the command.
pub fn run(args: ProfileArgs) -> Result<ExitCode> {
    if let Some([before, after]) = args.diff.as_deref() {
        return difference(before, after, &args);
    }
    if args.kernel_scaling {
        return kernel_scaling(&args);
    }
    if let Some(axis) = args.sweep.axis {
        return sweep::run(&args, axis);
    }
    let typed = args.port.as_deref().ok_or_else(|| wrong_usage("profile needs a port: straingauge profile :8080"))?;
    let port = crate::url::port_word(typed)?;
    let groups: Result<Vec<FunctionGroup>> =
        args.group.iter().map(|text| text.parse().map_err(|why| wrong_usage(format!("--group: {why}")))).collect();
    let mut options = ProfileOptions::new(port);
    options.groups = groups?;
    options.netns_pid = args.netns_of;
    if let Some(duration) = args.duration {
        if duration.0 < SHORTEST {
            return Err(wrong_usage("--duration must be at least 200ms"));
        }
        options.duration = duration.0;
    }
    if let Some(frequency) = frequency_hz(&args)? {
        options.frequency_hz = frequency;
    }
    let bursts = burst_options(&args, &options)?;
    let files = export::files(&args.export).and("--flame", args.flame.as_deref());
    files.check(args.json)?;
    let before = args.against.as_deref().map(read_folded).transpose()?;
    let stop = Stop::on_signals()?;
    let method = match args.accounting.unwrap_or_default() {
        Method::Auto => match exact::why_not_possible() {
            None => Method::Calibrated,
            Some(why) => {
                eprintln!("straingauge: exact: not possible here: {why}; sampled instead");
                Method::Sampled
            }
        },
        chosen => chosen,
    };
    if method == Method::Exact {
        return only_exact(&args, bursts, &stop);
    }
    // Taken before the samples, not after them.
    if let Some(why) = exact::why_not_possible().filter(|_| method == Method::Calibrated) {
        return Err(ProfileError::ExactNotPossible(why).into());
    }
    let measured = match method {
        Method::Calibrated => exact::calibrated::run(options, bursts, &|| stop.is_set()),
        _ => profile::run(options, &|| stop.is_set()),
    };
    let profile = measured.map_err(|error| match error {
        ProfileError::UnknownPattern { .. } => wrong_usage(format!("--group: {error}")),
        other => anyhow!(other),
    })?;
    let folded = profile.stacks.folded();
    if let Some(path) = &args.flame {
        let title = title(&profile);
        let picture = match &before {
            Some(before) => flame::draw_difference(before, &folded, &title),
            None => flame::draw(&folded, &title),
        };
        output::write(path, picture.as_bytes())?;
    }
    let changes = before.map(|before| analyze::profile::changes(&before, &folded));
    if files.are_printed() {
        // Nothing but the file.
    } else if args.json {
        let sampled = Sampled { profile: &profile, interrupted: stop.is_set(), changes: changes.as_deref() };
        print_json(&serde_json::to_value(&sampled)?)?;
    } else {
        print(&report::profile::text(&profile))?;
        if let Some(changes) = &changes {
            print(&format!("\n{}", report::profile::changes(changes)))?;
        }
    }
    if !args.export.is_empty() {
        export::write(&args.export, &Recording::of_profile(&profile)?)?;
    }
    Ok(ExitCode::from(if stop.is_set() { failure::INTERRUPTED } else { failure::DONE }))
}

/// The frequency on the command line, if any.
fn frequency_hz(args: &ProfileArgs) -> Result<Option<u32>> {
    match args.frequency {
        Some(frequency) if !FREQUENCIES.contains(&frequency.0) => {
            Err(wrong_usage("--frequency must lie between 1 and 4000 samples a second; 199 to 997 is usual"))
        }
        other => Ok(other.map(|frequency| frequency.0 as u32)),
    }
}

/// Shortest burst whose edges do not matter.
const SHORTEST_BURST: Duration = Duration::from_millis(20);
const LONGEST_BURST: Duration = Duration::from_secs(10);

fn burst_options(args: &ProfileArgs, options: &ProfileOptions) -> Result<BurstOptions> {
    let burst = args.burst.as_ref().map_or(crate::defaults::BURST, |burst| burst.0);
    if !(SHORTEST_BURST..=LONGEST_BURST).contains(&burst) {
        return Err(wrong_usage("--burst must lie between 20ms and 10s"));
    }
    Ok(BurstOptions { port: options.port, netns_pid: options.netns_pid, burst })
}

/// The exact profile, without samples.
fn only_exact(args: &ProfileArgs, bursts: BurstOptions, stop: &Stop) -> Result<ExitCode> {
    if !args.export.is_empty() || args.flame.is_some() || args.against.is_some() || !args.group.is_empty() {
        return Err(wrong_usage("--export, --flame, --against and --group need samples: leave --accounting exact out"));
    }
    let profile = exact::run(bursts, &|| stop.is_set())?;
    print_either(args.json, || &profile, || report::profile::exact::text(&profile))?;
    Ok(ExitCode::from(if stop.is_set() { failure::INTERRUPTED } else { failure::DONE }))
}

/// Compares two files of folded stacks: what grew.
fn difference(before: &Path, after: &Path, args: &ProfileArgs) -> Result<ExitCode> {
    let (old, new) = (read_folded(before)?, read_folded(after)?);
    if let Some(path) = &args.flame {
        let title = format!("{} since {}", after.display(), before.display());
        output::write(path, flame::draw_difference(&old, &new, &title).as_bytes())?;
    }
    let changes = analyze::profile::changes(&old, &new);
    print_either(args.json, || &changes, || report::profile::changes(&changes))?;
    Ok(ExitCode::from(failure::DONE))
}

/// What select, poll, epoll_wait, accept and descriptors cost here.
fn kernel_scaling(args: &ProfileArgs) -> Result<ExitCode> {
    let stop = Stop::on_signals()?;
    let scaling = profile::scaling::probe(*profile::scaling::STEPS.last().unwrap_or(&0), &|| stop.is_set())
        .context("cannot measure how calls scale")?;
    print_either(args.json, || &scaling, || report::profile::scaling(&scaling))?;
    Ok(ExitCode::from(if scaling.is_interrupted { failure::INTERRUPTED } else { failure::DONE }))
}

fn title(profile: &Profile) -> String {
    let seconds = profile.duration_ns as f64 / 1e9;
    format!("{} on port {}: {} samples in {seconds:.1} s", profile.command, profile.port, profile.samples.server())
}

fn read_folded(path: &Path) -> Result<Folded> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    match Folded::parse(BufReader::new(file)) {
        Ok(folded) => Ok(folded),
        Err(why) => bail!("{} holds no folded stacks: {why}", path.display()),
    }
}
