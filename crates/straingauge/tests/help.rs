//! The help texts as a user sees them. After an intended change: `UPDATE_EXPECT=1 cargo test -p straingauge help`.

use crate::rig::{run, straingauge};
use expect_test::expect_file;
use std::collections::BTreeSet;

fn help(arguments: &[&str]) -> String {
    // The comparison must not depend on the terminal's width.
    run(straingauge(arguments).env("COLUMNS", "100").env_remove("CLICOLOR_FORCE")).exits_with(0).out
}

/// The commands that the help lists. A command's line is indented by two columns, and its continuation by more.
fn commands(help: &str) -> Vec<&str> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    listed
        .filter_map(|line| line.strip_prefix("  ").filter(|line| !line.starts_with(' ')))
        .filter_map(|line| line.split(' ').next())
        .filter(|command| *command != "help")
        .collect()
}

#[test]
fn help_texts_are_as_reviewed() {
    let all = help(&["--help"]);
    // The installed tools differ; tests/tools.rs checks that part.
    let all = all.split("\nTools (").next().expect("the first part");
    let commands = commands(all);
    assert!(commands.contains(&"find") && commands.contains(&"load"), "{commands:?}");
    // The long texts are written once, in the sources.
    let each = commands.iter().map(|command| format!("\n$ straingauge {command} -h\n{}", help(&[command, "-h"])));
    let texts: String = [format!("$ straingauge --help\n{all}")].into_iter().chain(each).collect();
    expect_file!["golden/help.txt"].assert_eq(&texts);
}

#[test]
fn help_and_version_succeed_and_an_empty_command_line_is_wrong_usage() {
    for version in [help(&["--version"]), help(&["-V"])] {
        assert!(version.starts_with("straingauge ") && version.contains("BPF programs"), "{version}");
    }
    let said = run(&mut straingauge::<&str>([])).exits_with(2);
    assert!(said.err.contains("Usage"), "{}", said.err);
}

/// The options that a text names: words that begin with two dashes.
fn options(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-'));
    words.filter(|word| word.starts_with("--") && word.len() > 2).collect()
}

#[test]
fn the_manual_and_the_completions_name_all_commands_and_options() {
    let listed = help(&["--help"]);
    let commands = commands(&listed);
    assert!(commands.len() > 10, "{commands:?}");
    for what in ["man", "complete-bash", "complete-zsh", "complete-fish"] {
        let text = help(&["--generate", what]);
        // Without roff's escapes. fish writes long options as -l.
        let plain = ["\\fB", "\\fI", "\\fR", "\\"].iter().fold(text, |text, escape| text.replace(escape, ""));
        let plain = plain.replace(" -l ", " --");
        let named = options(&plain);
        for command in &commands {
            let has_command = plain.contains(&if what == "man" { command.to_uppercase() } else { command.to_string() });
            assert!(has_command, "{what}: no {command}");
            let help = help(&[command, "--help"]);
            // Only lines that define options: texts may mention options of other commands.
            let defined: Vec<&str> = help.lines().filter(|line| line.trim_start().starts_with('-')).collect();
            let defined = defined.join("\n");
            let lost: Vec<&str> = options(&defined).difference(&named).copied().collect();
            assert!(lost.is_empty(), "{what}, {command}: {lost:?}");
        }
    }
}

#[test]
fn the_reference_pages_name_all_that_the_code_defines() {
    let options_page = help(&["--generate", "reference-options"]);
    let find = help(&["find", "--help"]);
    let defined: Vec<&str> = find.lines().filter(|line| line.trim_start().starts_with('-')).collect();
    let defined = defined.join("\n");
    let lost: Vec<&str> = options(&defined).difference(&options(&options_page)).copied().collect();
    assert!(lost.is_empty(), "{lost:?}");
    let figures = help(&["--generate", "reference-figures"]);
    for (name, unit, meaning) in record::names::ALL.iter() {
        let row = format!("| `{name}` | {unit} |");
        assert!(figures.contains(&row) && !meaning.is_empty(), "{row}");
    }
    let doubts = help(&["--generate", "reference-doubts"]);
    assert!(doubts.contains("| `schedule-lag` | Requests left later than scheduled"), "{doubts}");
    assert!(!doubts.contains("``") && !doubts.contains("`other`"), "{doubts}");
    let rules = help(&["--generate", "reference-rules"]);
    for rule in &verdict::rules::RULES {
        assert!(rules.contains(&format!("\n## {}: {}\n", rule.id, rule.cause)), "{}", rule.id);
    }
}

/// Whether a description refers to its neighbours. Descriptions are shown alone.
fn leans_on_another(text: &str) -> bool {
    let text = text.split(" [").next().unwrap_or_default();
    let first = text.split([' ', ',', '.', ':', ';']).next().unwrap_or_default();
    text.starts_with("The same")
        || ["Its", "It", "See", "Of", "And", "Their", "They", "Those", "That"].contains(&first)
        || text.split_whitespace().count() < 3
}

/// Every description in a schema, with its path.
fn described(value: &serde_json::Value, path: &str, found: &mut Vec<(String, String)>) {
    let Some(members) = value.as_object() else {
        let items = value.as_array().into_iter().flatten().enumerate();
        return items.for_each(|(place, item)| described(item, &format!("{path}/{place}"), found));
    };
    found.extend(members.get("description").and_then(|text| Some((path.to_string(), text.as_str()?.to_string()))));
    members.iter().for_each(|(name, member)| described(member, &format!("{path}/{name}"), found));
}

#[test]
fn every_description_can_be_read_alone() {
    let mut found = Vec::new();
    for (name, _, meaning) in record::names::ALL.iter() {
        found.push((name.to_string(), meaning.trim().to_string()));
    }
    for (kind, meaning) in record::DoubtKind::KNOWN {
        found.push((format!("{kind:?}"), meaning.trim().to_string()));
    }
    for rule in &verdict::rules::RULES {
        found.push((rule.id.to_string(), rule.cause.to_string()));
    }
    // Only the first paragraph of an option must be readable alone.
    for line in help(&["--generate", "reference-options"]).lines() {
        let item = line.trim_start().strip_prefix("- `").and_then(|item| item.split_once("`: "));
        found.extend(item.map(|(name, text)| (name.to_string(), text.to_string())));
    }
    let schemas = help(&["--generate", "schema"]);
    for name in schemas.lines().filter_map(|line| line.split(' ').next()) {
        let schema = run(&mut straingauge(["--generate", "schema", name])).exits_with(0).json();
        described(&schema, name, &mut found);
    }
    assert!(found.len() > 1500, "only {} were found", found.len());
    let wrong: Vec<_> = found.iter().filter(|(_, text)| leans_on_another(text)).collect();
    assert!(wrong.is_empty(), "{} of {}: {wrong:#?}", wrong.len(), found.len());
}

#[test]
fn every_listed_schema_is_printed_and_a_wrong_name_gets_the_list() {
    let list = help(&["--generate", "schema"]);
    let names: Vec<&str> = list.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains(&"point"), "{list}");
    for name in &names {
        let schema = run(&mut straingauge(["--generate", "schema", name])).exits_with(0).json();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema", "{name}");
        assert!(!schema.to_string().contains("[`"), "{name}: a link of rustdoc leads nowhere");
    }
    let said = run(&mut straingauge(["--generate", "schema", "pionts"])).exits_with(2);
    assert!(names.iter().all(|name| said.err.contains(name)), "{}", said.err);
    let said = run(&mut straingauge(["--generate", "pages"])).exits_with(2);
    assert!(said.err.contains("complete-bash") && said.err.contains("reference-rules"), "{}", said.err);
    run(&mut straingauge(["--generate", "man", "point"])).exits_with(2);
}

#[test]
fn doctor_lists_what_this_machine_can_measure() {
    let said = run(&mut straingauge(["doctor"])).exits_with(0);
    assert!(said.out.contains("available"), "{}", said.out);
    let json = run(&mut straingauge(["doctor", "--json"])).exits_with(0).json();
    assert!(json.is_object(), "{json:#}");
}

#[test]
fn a_closed_standard_output_is_not_an_error() {
    let mut command = std::process::Command::new("sh");
    let program = env!("CARGO_BIN_EXE_straingauge");
    command.args(["-c", &format!("'{program}' find --help | head -1; '{program}' doctor | true")]);
    let said = run(&mut command).exits_with(0);
    assert_eq!(said.err, "", "nothing is said about a closed pipe");
}
