//! The published schemas (`docs/schemas`) are made from the types: this test fails where a file is out of date, and
//! `UPDATE_EXPECT=1` rewrites it. The end-to-end tests hold every output against these files (`tests/schemas.rs`).

use super::{doctor, files, profile, wan};
use expect_test::expect_file;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use std::path::PathBuf;

/// The schema of what is written. Unknown members are allowed: a later version adds some.
fn of<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

#[test]
fn the_published_schemas_are_those_of_the_types() {
    let schemas = [
        ("run", "run.json of a run directory", of::<record::run::RunRecord>()),
        ("point", "points/NNN/point.json of a run directory", of::<record::Point>()),
        ("stacks", "points/NNN/stacks.json of a run directory", of::<record::profile::Stacks>()),
        ("watch-line", "a line of watch.jsonl and of watch --json", of::<record::watch::Line>()),
        ("simulation", "simulation.json, and simulate --json", of::<record::simulation::Simulation>()),
        ("output", "find, load, report, compare, predict and runs --json", of::<report::json::Output<'_>>()),
        ("watch-report", "report --json of a recording of watch", of::<analyze::watch::WatchFindings>()),
        ("profile", "profile --json", of::<profile::Sampled<'_>>()),
        ("profile-exact", "profile --accounting exact --json", of::<record::profile::ExactProfile>()),
        ("profile-changes", "profile --diff --json", of::<Vec<analyze::profile::Change>>()),
        ("profile-scaling", "profile --kernel-scaling --json", of::<record::profile::scaling::Scaling>()),
        ("wan", "wan --json, on standard error", of::<wan::Crossed<'_>>()),
        ("files", "files --json", of::<files::Files<'_>>()),
        ("doctor", "doctor --json", of::<doctor::Shown<'_>>()),
        ("leftovers", "doctor --leftovers --json, and doctor --clean --json", of::<doctor::Left>()),
    ];
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    std::fs::create_dir_all(&folder).expect("a folder for the schemas");
    for (name, title, mut schema) in schemas {
        schema.insert("title".into(), format!("straingauge: {title}").into());
        let text = serde_json::to_string_pretty(&schema).expect("a schema is JSON");
        // Links of the program's own documentation lead nowhere here.
        let text = text.replace("[`", "`").replace("`]", "`");
        expect_file![folder.join(format!("{name}.schema.json"))].assert_eq(&format!("{text}\n"));
    }
}
