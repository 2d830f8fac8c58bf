//! `straingauge profile`: shows where a server's CPU time goes, by layer, per packet and per request.

mod sweep;

use super::export;
use crate::cli::{Method, ProfileArgs};
use crate::failure::{self, print, print_either, print_json, wrong_usage};
use crate::output;
use crate::quantity::Seconds;
use crate::signals::Stop;
use analyze::profile::FunctionChange;
use anyhow::{Context, Result, anyhow, bail};
use observe::profile::exact::{self, BURSTS, BurstOptions};
use observe::profile::{self, FunctionGroup, ProfileError, ProfileOptions};
use record::profile::{Folded, Profile};
use report::export::StackRecording;
use report::flame;
use serde::Serialize;
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Shortest window in which every tenth has a few samples.
const SHORTEST: Duration = Duration::from_millis(200);
/// Below this range samples show nothing, and above it they slow the server down.
const FREQUENCIES: std::ops::RangeInclusive<u64> = 1..=4000;

/// The output of `--json`.
#[derive(Debug, Serialize, schemars::JsonSchema)]
pub struct Sampled<'a> {
    /// Profile from the samples.
    #[serde(flatten)]
    profile: &'a Profile,
    /// Whether it ended early.
    interrupted: bool,
    /// Changes since the profile of `--against`.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<&'a [FunctionChange]>,
}

pub fn run(args: ProfileArgs) -> Result<ExitCode> {
    if let Some([before, after]) = args.diff.as_deref() {
        return difference(before, after, &args);
    }
    if let Some(axis) = args.sweep.axis {
        return sweep::run(&args, axis);
    }
    let typed = args.port.as_deref().ok_or_else(|| wrong_usage("profile needs a port: straingauge profile :8080"))?;
    let port = crate::url::port_word(typed)?;
    refuse_what_does_not_fit(&args)?;
    let groups: Result<Vec<FunctionGroup>> =
        args.group.iter().map(|text| text.parse().map_err(|why| wrong_usage(format!("--group: {why}")))).collect();
    if let Some(Seconds(short)) = args.duration.filter(|duration| duration.0 < SHORTEST) {
        return Err(wrong_usage(format!("--duration {short:?} is too short: give at least 200ms")));
    }
    let stop = Stop::on_signals()?;
    if args.accounting == Some(Method::Exact) {
        let duration = args.duration.map_or(crate::defaults::EXACT_DURATION, |time| time.0);
        return exactly(&args, BurstOptions { port, netns_pid: args.netns_of, burst: duration / BURSTS }, &stop);
    }
    let mut options = ProfileOptions::new(port);
    options.groups = groups?;
    options.netns_pid = args.netns_of;
    if let Some(duration) = args.duration {
        options.duration = duration.0;
    }
    if let Some(frequency) = frequency_hz(&args)? {
        options.frequency_hz = frequency;
    }
    let files = export::files(&args.export).and("--flame", args.flame.as_deref());
    files.check(args.json)?;
    let before = args.against.as_deref().map(read_folded).transpose()?;
    let measured = profile::run(options, &|| stop.is_set());
    let profile = measured.map_err(|error| match error {
        ProfileError::UnknownPattern { .. } => wrong_usage(format!("--group: {error}")),
        other => anyhow!(other),
    })?;
    let folded = profile.stacks.folded();
    let picture = args.flame.as_ref().map(|path| {
        let title = title(&profile);
        let picture = match &before {
            Some(before) => flame::draw_difference(before, &folded, &title),
            None => flame::draw(&folded, &title),
        };
        (path, picture)
    });
    let changes = before.map(|before| analyze::profile::changes(&before, &folded));
    if files.are_printed() {
        // Standard output is the file's.
    } else if args.json {
        let sampled = Sampled { profile: &profile, interrupted: stop.is_set(), changes: changes.as_deref() };
        print_json(&serde_json::to_value(&sampled)?)?;
    } else {
        print(&report::profile::text(&profile))?;
        if let Some(changes) = &changes {
            print(&format!("\n{}", report::profile::changes(changes)))?;
        }
    }
    // The figures are already shown, so report a full disk last.
    if let Some((path, picture)) = picture {
        output::write(path, picture.as_bytes())?;
    }
    if !args.export.is_empty() {
        export::write(&args.export, &StackRecording::of_profile(&profile)?)?;
    }
    Ok(ExitCode::from(if stop.is_set() { failure::INTERRUPTED } else { failure::DONE }))
}

pub fn refuse_what_does_not_fit(args: &ProfileArgs) -> Result<()> {
    if args.accounting != Some(Method::Exact) {
        return Ok(());
    }
    let typed = [
        (!args.export.is_empty(), "--export"),
        (args.flame.is_some(), "--flame"),
        (args.against.is_some(), "--against"),
        (!args.group.is_empty(), "--group"),
        (args.frequency.is_some(), "--frequency"),
    ];
    failure::refuse_typed(&typed, |option| format!("{option} applies to samples: leave --accounting exact out"))
}

fn frequency_hz(args: &ProfileArgs) -> Result<Option<u32>> {
    match args.frequency {
        Some(frequency) if !FREQUENCIES.contains(&frequency.0) => {
            Err(wrong_usage("--frequency must be 1 to 4000 samples per second, usually 199 to 997"))
        }
        other => Ok(other.map(|frequency| frequency.0 as u32)),
    }
}

fn exactly(args: &ProfileArgs, bursts: BurstOptions, stop: &Stop) -> Result<ExitCode> {
    let profile = exact::run(bursts, &|| stop.is_set())?;
    print_either(args.json, || &profile, || report::profile::exact::text(&profile))?;
    Ok(ExitCode::from(if stop.is_set() { failure::INTERRUPTED } else { failure::DONE }))
}

fn difference(before: &Path, after: &Path, args: &ProfileArgs) -> Result<ExitCode> {
    output::OutputFiles::default().and("--flame", args.flame.as_deref()).check(args.json)?;
    let (old, new) = (read_folded(before)?, read_folded(after)?);
    if let Some(path) = &args.flame {
        let title = format!("{} since {}", after.display(), before.display());
        output::write(path, flame::draw_difference(&old, &new, &title).as_bytes())?;
    }
    let changes = analyze::profile::changes(&old, &new);
    print_either(args.json, || &changes, || report::profile::changes(&changes))?;
    Ok(ExitCode::from(failure::DONE))
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
