//! Pages of the documentation site that list definitions of the code: options, figures, doubts, rules of the verdict.
//! `straingauge --generate reference-...` prints each as Markdown; setup/site adds them to the site.

use clap::{Arg, Command};
use record::{DoubtKind, names};
use std::fmt::Write;
use verdict::rules::RULES;

/// All options of all commands, as `--help` shows them.
pub fn options(mut cli: Command) -> String {
    cli.build();
    let mut page = "# Options\n\nWhat `straingauge COMMAND --help` prints.\n".to_string();
    for command in cli.get_subcommands_mut().filter(|command| !command.is_hide_set() && command.get_name() != "help") {
        let usage = command.render_usage().to_string().replace("Usage: ", "");
        let name = command.get_name();
        let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
        // Writing to a string cannot fail, here and below.
        let _ = write!(page, "\n## {name}\n\n{}\n\n```text\n{usage}\n```\n", escaped(&about));
        if let Some(examples) = command.get_before_long_help() {
            let _ = write!(page, "\n```text\n{examples}\n```\n");
        }
        let mut heading = None;
        let of_heading = |argument: &Arg| argument.get_help_heading().unwrap_or("Options").to_string();
        let mut shown: Vec<&Arg> = command.get_arguments().filter(|argument| !argument.is_hide_set()).collect();
        let mut order: Vec<String> = Vec::new();
        for argument in &shown {
            let heading = of_heading(argument);
            if !order.contains(&heading) {
                order.push(heading);
            }
        }
        shown.sort_by_key(|argument| order.iter().position(|heading| *heading == of_heading(argument)));
        for argument in shown {
            let of = of_heading(argument);
            if heading.as_ref() != Some(&of) {
                let _ = write!(page, "\n### {name}: {}\n\n", escaped(&of));
                heading = Some(of);
            }
            page.push_str(&option(argument));
        }
    }
    page
}

fn option(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    // Indents the paragraphs of an item.
    let help = escaped(help.trim()).replace('\n', "\n  ").replace("\n  \n", "\n\n");
    let mut text = format!("- `{}`: {help}\n", argument.to_string().replace('`', "'"));
    for value in argument.get_possible_values().iter().filter(|value| !value.is_hide_set()) {
        if let Some(help) = value.get_help() {
            let _ = writeln!(text, "  - `{}`: {}", value.get_name(), escaped(&help.to_string()));
        }
    }
    text
}

/// Every figure of a point, a run or a watch.
pub fn figures() -> String {
    let mut page = "# Figures\n\nThe names in `point.json`, in JSON output and in tables, with unit and meaning. \
                    [Where each figure comes from](measuring.md) has source and error.\n"
        .to_string();
    let of = |name: &'static str| name.split('.').next().unwrap_or_default();
    let mut rooms: Vec<&str> = Vec::new();
    for (name, ..) in names::ALL.iter() {
        if !rooms.contains(&of(name)) {
            rooms.push(of(name));
        }
    }
    for room in rooms {
        let _ = write!(page, "\n## {room}\n\n| figure | unit | meaning |\n|---|---|---|\n");
        for (name, unit, meaning) in names::ALL.iter().filter(|(name, ..)| of(name) == room) {
            let _ = writeln!(page, "| `{name}` | {} | {} |", cell(unit), cell(meaning));
        }
    }
    page
}

/// Every kind of doubt.
pub fn doubts() -> String {
    let mut page = "# Doubts\n\nThe reasons not to trust a number, by the word in JSON (`doubts[].kind`). \
                    [Troubleshooting](troubleshooting.md) has a fix for each.\n\n| doubt | meaning |\n|---|---|\n"
        .to_string();
    for (kind, meaning) in DoubtKind::KNOWN {
        let word = serde_json::to_value(kind).unwrap_or_default();
        let _ = writeln!(page, "| `{}` | {} |", word.as_str().unwrap_or_default(), cell(meaning));
    }
    page
}

/// The rules of the verdict, in order.
pub fn rules() -> String {
    let mut page =
        "# Rules of the verdict\n\nIn the order in which to fix the causes. [The verdict](verdict.md) explains how to \
                    read them.\n"
            .to_string();
    for rule in &RULES {
        let _ = write!(
            page,
            "\n## {}: {}\n\n- Evidence: {}.\n- Threshold: {}.\n- Refuted if {}.\n- To try: {}.\n- Source: {}.\n",
            rule.id, rule.cause, rule.evidence, rule.threshold, rule.refuted_by, rule.remedy, rule.source
        );
        if !rule.hidden_by.is_empty() {
            let others: Vec<String> = rule.hidden_by.iter().map(|id| format!("`{id}`")).collect();
            let _ = writeln!(page, "- Left out if one of these holds: {}.", others.join(", "));
        }
    }
    page
}

fn escaped(text: &str) -> String {
    let mut safe = String::new();
    for letter in text.chars() {
        if matches!(letter, '<' | '>' | '*' | '_' | '[' | ']' | '|' | '\\') {
            safe.push('\\');
        }
        safe.push(letter);
    }
    safe
}

/// Escapes documentation text, which is Markdown, for a table cell.
fn cell(text: &str) -> String {
    text.trim().replace('|', "\\|")
}
