//! `straingauge runs`: lists the runs in a folder, without measuring.

use crate::cli::RunsArgs;
use crate::failure::{self, print_either, refuse_if};
use crate::output::{self, OutputFiles};
use anyhow::{Context, Result};
use record::text::plain;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use verdict::index::{self, Filter};

pub fn run(args: RunsArgs) -> Result<ExitCode> {
    let folder = args.folder.unwrap_or(crate::defaults::RUNS.into());
    let shown = plain(&folder.display().to_string(), 300);
    refuse_if(
        !folder.exists(),
        format!(
            "folder {shown} does not exist: name the folder of your runs; straingauge find writes them into {}",
            crate::defaults::RUNS
        ),
    )?;
    refuse_if(!folder.is_dir(), format!("{shown} is not a folder: name the folder of your runs"))?;
    let files = OutputFiles::default().and("--page", args.page.as_deref());
    files.check(args.json)?;
    let filter = Filter { since_unix_ms: args.since, only: args.only };
    let index = index::index(&folder, &record::runs::find(&folder)?, &filter);
    if !files.are_printed() {
        print_either(args.json, || report::runs::json(&index), || report::runs::text(&index))?;
    }
    if let Some(page) = &args.page {
        // Links on the page are relative to the page's folder.
        let mut placed = index;
        let whole = absolute(&folder)?;
        let place = |path: &mut PathBuf| *path = whole.join(path.strip_prefix(&folder).unwrap_or(path));
        for row in &mut placed.runs {
            place(&mut row.path);
            row.before.iter_mut().for_each(|before| place(&mut before.path));
        }
        let beside = page.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let html = report::runs::page::html(&placed, &absolute(beside)?);
        output::write(page, html.as_bytes()).context("the page could not be written")?;
        eprintln!("page: {}", page.display());
    }
    Ok(ExitCode::from(failure::DONE))
}

fn absolute(path: &Path) -> Result<PathBuf> {
    path.canonicalize().with_context(|| format!("cannot read {}", path.display()))
}
