//! The report.

use record::RunDir;

/// The report of a run as one HTML document.
pub fn html(run: &RunDir) -> String {
    let findings = crate::zones::of_run(run);
    let verdict = crate::verdict::sentences(run, &findings);
    crate::text::run(run, &findings, &verdict).replace('&', "&amp;").replace('<', "&lt;")
}
