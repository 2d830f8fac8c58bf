//! Runs as JSON: `run.json` and the points as stored, with findings and verdict beside them. The schema is described in
//! `docs/run-directory.md`; additions keep its version, changes of meaning raise it.

use analyze::verdict::Verdict;
use analyze::zones::Findings;
use record::{Point, RunDir};
use serde_json::{Value, json};

/// Version of this output.
pub const SCHEMA: u32 = 1;

/// A whole run: `schema`, `kind`, `path`, `record`, `points`, `findings`, `server_side`, `verdict`.
pub fn run(run: &RunDir, findings: &Findings, verdict: &Verdict) -> Value {
    json!({
        "schema": SCHEMA,
        "kind": "run",
        "path": run.path.to_string_lossy(),
        "record": run.record,
        "points": run.points,
        "findings": findings,
        "server_side": analyze::watched::of_run(run),
        "verdict": verdict,
    })
}

/// One point: `schema`, `kind`, `point`.
pub fn point(point: &Point) -> Value {
    json!({ "schema": SCHEMA, "kind": "point", "point": point })
}

/// Two runs that took turns: `schema`, `kind`, `a` and `b` (as [`run`]), `comparison` (`null` where they have no load in common).
pub fn side_by_side(a: Value, b: Value, comparison: Option<&analyze::compare::Comparison>) -> Value {
    json!({ "schema": SCHEMA, "kind": "side-by-side", "a": a, "b": b, "comparison": comparison })
}
