//! Parts of all pages: head, facts of the run, and the rendering of templates.

use super::tables::{FactGroup, facts};
use crate::text::unbroken;
use minijinja::Environment;
use minijinja::value::{Serde, Value};
use record::text::plain;
use record::{RunDir, Status};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

pub(crate) const STYLE: &str = include_str!("style.css");
pub(crate) const SCRIPT: &str = include_str!("script.js");

/// Templates by name. The file name extension turns on escaping for HTML.
const TEMPLATES: [(&str, &str); 12] = [
    ("compare.html", include_str!("compare.html")),
    ("doubts.html", include_str!("doubts.html")),
    ("figures.html", include_str!("figures.html")),
    ("frame.html", include_str!("frame.html")),
    ("live.html", include_str!("live.html")),
    ("loads.html", include_str!("loads.html")),
    ("plain.html", include_str!("plain.html")),
    ("report.html", include_str!("template.html")),
    ("runs.html", include_str!("runs.html")),
    ("table.html", include_str!("table.html")),
    ("tool.html", include_str!("tool.html")),
    ("watch.html", include_str!("watch.html")),
];

#[derive(Serialize)]
pub(crate) struct PageFrame {
    style: &'static str,
    style_hash: String,
    script: &'static str,
    script_hash: String,
    name: String,
    url: String,
    command: String,
    started: String,
    status: String,
    is_complete: bool,
    headline: String,
    sentences: Vec<String>,
    facts: Vec<FactGroup>,
    repeat_command: String,
    version: &'static str,
}

impl PageFrame {
    pub(crate) fn new(run: &RunDir, status: String, headline: &str, sentences: Vec<String>) -> Self {
        let record = &run.record;
        Self {
            style: STYLE,
            style_hash: source_hash(STYLE),
            script: SCRIPT,
            script_hash: source_hash(SCRIPT),
            name: plain(&record.scenario.name, 120),
            url: plain(&record.scenario.url(), 300),
            command: plain(record.scenario.kind.command(), 40),
            started: record::time::utc_iso(record.started_unix_ms).replace('T', " ").replace('Z', " UTC"),
            status,
            is_complete: record.status == Status::Complete,
            headline: unbroken(headline),
            sentences: sentences.iter().map(|sentence| unbroken(sentence)).collect(),
            facts: facts(run),
            repeat_command: plain(&record.scenario.repeat_command, 4000),
            version: env!("CARGO_PKG_VERSION"),
        }
    }

    /// The frame of a comparison, without facts, because the page lists those that differ.
    pub(crate) fn of_two(a: &RunDir, b: &RunDir, headline: &str, sentences: Vec<String>) -> Self {
        let (of_a, of_b) =
            (PageFrame::new(a, String::new(), headline, sentences), PageFrame::new(b, String::new(), "", Vec::new()));
        let both = |a: &str, b: &str| if a == b { a.to_string() } else { format!("{a} and {b}") };
        let place = |run: &RunDir| plain(&run.path.display().to_string(), 300);
        Self {
            name: format!("{} (A) against {} (B)", of_a.name, of_b.name),
            url: both(&of_a.url, &of_b.url),
            command: "compare".into(),
            started: both(&of_a.started, &of_b.started),
            is_complete: true,
            facts: Vec::new(),
            repeat_command: format!("straingauge compare {} {}", place(a), place(b)),
            ..of_a
        }
    }
}

/// Source expression of this text for a Content-Security-Policy (W3C, CSP Level 3, section 2.3.1).
pub(crate) fn source_hash(text: &str) -> String {
    use base64::Engine as _;
    format!("sha256-{}", base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text)))
}

/// Renders a template. `text` supplies the content as plain text in case the template fails.
pub(crate) fn render(template: &str, page: &impl Serialize, text: impl FnOnce() -> String) -> String {
    let mut environment = Environment::new();
    for (name, source) in TEMPLATES {
        environment.add_template(name, source).expect("the templates are part of the program and are tested");
    }
    let template = environment.get_template(template).expect("it was added above");
    template.render(Value::from(Serde(page))).unwrap_or_else(|error| {
        // Only a bug in a template can cause this.
        let text = text().replace('&', "&amp;").replace('<', "&lt;");
        format!(
            "<!doctype html><meta charset=\"utf-8\"><title>straingauge</title><pre>{text}</pre><!-- {} -->",
            error.kind()
        )
    })
}
