//! `straingauge --generate schema`: JSON schemas of all files and outputs, made from the types.

use super::{doctor, files, profile, wan};
use crate::failure::wrong_usage;
use anyhow::Result;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};

type Described = (&'static str, &'static str, fn() -> Schema);

const SCHEMAS: &[Described] = &[
    ("run", "run.json of a run directory", schema_of::<record::run::RunRecord>),
    ("point", "points/NNN/point.json of a run directory", schema_of::<record::Point>),
    ("stacks", "points/NNN/stacks.json of a run directory", schema_of::<record::profile::Stacks>),
    ("watch-line", "a line of watch.jsonl and of watch --json", schema_of::<record::watch::Line>),
    ("output", "find, load, report, compare, predict and runs --json", schema_of::<report::json::Output<'_>>),
    ("watch-report", "report --json of a recording of watch", schema_of::<analyze::watch::WatchFindings>),
    ("profile", "profile --json", schema_of::<profile::Sampled<'_>>),
    ("profile-exact", "profile --accounting exact --json", schema_of::<record::profile::ExactProfile>),
    ("profile-changes", "profile --diff --json", schema_of::<Vec<analyze::profile::FunctionChange>>),
    ("wan", "wan --json, on standard error", schema_of::<wan::Crossed<'_>>),
    ("files", "files --json", schema_of::<files::Files<'_>>),
    ("doctor", "doctor --json", schema_of::<doctor::Shown<'_>>),
    ("leftovers", "doctor --leftovers --json, and doctor --clean --json", schema_of::<crate::leftovers::Removal>),
];

/// The schema of the serialised form. It allows unknown members, because later versions add some.
fn schema_of<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>()
}

pub fn text(name: &str) -> Result<String> {
    let names: Vec<&str> = SCHEMAS.iter().map(|(name, ..)| *name).collect();
    let Some((_, title, schema)) = SCHEMAS.iter().find(|(known, ..)| *known == name) else {
        return Err(wrong_usage(format!("no schema '{name}'; there is {}", names.join(", "))));
    };
    let mut schema = schema();
    schema.insert("title".into(), format!("straingauge: {title}").into());
    // Descriptions come from rustdoc, whose links do not work here.
    let text = serde_json::to_string_pretty(&schema)?.replace("[`", "`").replace("`]", "`");
    Ok(text + "\n")
}

/// A line for each schema: its name, and what it describes.
pub fn list() -> String {
    SCHEMAS.iter().map(|(name, title, _)| format!("{name:<16} {title}\n")).collect()
}
