use crate::cli::{WatchWord, WatchingOptions};
use crate::failure::{refuse_if, wrong_usage};
use crate::quantity::Share;
use anyhow::Result;
use observe::watch::SizeClasses;
use observe::watch::pack::{BUILT_IN, Pack};
use record::watch::Mode;
use remote::RequestWatchPlan;

/// Checks the options for watching requests; `None` if they are off. `default`: used if nothing was typed.
pub fn request_watch_plan(options: &WatchingOptions, default: WatchWord) -> Result<Option<RequestWatchPlan>> {
    classes(options.response_classes.as_deref())?;
    let overhead_ratio = overhead_ratio(options.overhead)?;
    let Some(mode) = options.detail.unwrap_or(default).mode() else { return Ok(None) };
    let pack = options.pack.as_deref().map(|word| pack(word, mode)).transpose()?;
    let pack = pack.map(|(pack, text)| (pack.origin, text));
    Ok(Some(RequestWatchPlan { mode, overhead_ratio, classes: options.response_classes.clone(), pack }))
}

/// Parses `--response-classes`.
pub fn classes(typed: Option<&str>) -> Result<SizeClasses> {
    let parsed = typed.map(SizeClasses::parse).transpose();
    Ok(parsed.map_err(|error| wrong_usage(format!("--response-classes: {error}")))?.unwrap_or_default())
}

pub fn overhead_ratio(typed: Option<Share>) -> Result<f64> {
    let ratio = typed.unwrap_or(crate::defaults::OVERHEAD).0;
    refuse_if(ratio <= 0.0, "--overhead must be above 0, e.g. 1%; the cheapest level is --detail zero")?;
    Ok(ratio)
}

/// A pack and its text, checked before the server is started.
pub fn pack(word: &str, mode: Mode) -> Result<(Pack, String)> {
    refuse_if(
        matches!(mode, Mode::Zero | Mode::Exact),
        "--pack measures in separate windows: use it with --detail budgeted or counts",
    )?;
    Pack::open_with_text(word).map_err(|error| {
        let names: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        wrong_usage(format!("--pack: {error} (a file, or one of {})", names.join(", ")))
    })
}
