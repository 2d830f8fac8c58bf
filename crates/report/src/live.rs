//! The page that follows a running `find`: it embeds the report of the run so far and reloads it with each point. The
//! command itself serves page, report and events.

use crate::page::frame::{render, source_hash};
use record::RunDir;
use record::text::plain;
use serde::Serialize;
use serde_json::json;

const STYLE: &str = include_str!("live/style.css");
const SCRIPT: &str = include_str!("live/follow.js");

#[derive(Serialize)]
struct LivePage {
    name: String,
    style: &'static str,
    script: &'static str,
    version: &'static str,
}

/// The page around `report.html` and the event stream `events`, which must be served next to it.
pub fn html(url: &str) -> String {
    let name = plain(url, 200);
    let page = LivePage { name: name.clone(), style: STYLE, script: SCRIPT, version: env!("CARGO_PKG_VERSION") };
    render("live.html", &page, || name)
}

/// The page's Content-Security-Policy: its own style and script, and files next to it.
pub fn policy() -> String {
    format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; connect-src 'self'; frame-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        source_hash(STYLE),
        source_hash(SCRIPT)
    )
}

/// Shown until there is a report.
pub fn waiting() -> &'static str {
    "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"color-scheme\" content=\"light \
     dark\"><title>straingauge</title><p>The report appears here after the next point.</p></html>"
}

/// The state of a run as a server-sent event; `drawn` is the number of the report's version.
pub fn event(run: &RunDir, number: u64, drawn: u64, ended: bool) -> String {
    let points = run.points.len();
    let name = if ended { "end" } else { "points" };
    let data = json!({ "points": points, "report": drawn, "folder": plain(&run.path.to_string_lossy(), 300) });
    format!("event: {name}\nid: {number}\ndata: {data}\n\n")
}
