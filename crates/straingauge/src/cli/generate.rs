//! `straingauge --generate`: makes the manual page, shell completions and reference pages from the definitions.

use super::reference;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use std::io::Write;

pub const NAMES: [&str; 8] = [
    "man",
    "complete-bash",
    "complete-zsh",
    "complete-fish",
    "reference-options",
    "reference-figures",
    "reference-doubts",
    "reference-rules",
];

/// The text of one of [`NAMES`]; `None` for another name. `cli`: the whole command line.
pub fn text(name: &str, mut cli: Command) -> Option<String> {
    let shell = match name {
        "man" => return Some(manual(cli)),
        "complete-bash" => Shell::Bash,
        "complete-zsh" => Shell::Zsh,
        "complete-fish" => Shell::Fish,
        "reference-options" => return Some(reference::options(cli)),
        "reference-figures" => return Some(reference::figures()),
        "reference-doubts" => return Some(reference::doubts()),
        "reference-rules" => return Some(reference::rules()),
        _ => return None,
    };
    let program = cli.get_name().to_string();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut cli, program, &mut text);
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// One page: a section about all commands, then one section per command.
fn manual(mut cli: Command) -> String {
    // The version without its details, which take several lines.
    cli = cli.version(env!("CARGO_PKG_VERSION"));
    cli.build();
    let page = Man::new(cli.clone());
    let mut text = rendered(|text| {
        page.render_title(text)?;
        page.render_name_section(text)?;
        page.render_synopsis_section(text)?;
        page.render_description_section(text)?;
        page.render_options_section(text)
    });
    for command in cli.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help") {
        let name = command.get_name().to_uppercase();
        let page = Man::new(command.clone().disable_help_flag(true));
        let section = rendered(|text| {
            page.render_description_section(text)?;
            page.render_synopsis_section(text)?;
            if let Some(examples) = command.get_before_long_help() {
                let examples = examples.to_string().replace('\\', "\\\\").replace('-', "\\-").replace('\'', "\\(aq");
                writeln!(text, ".SH EXAMPLES\n.nf{}\n.fi", examples.trim_start_matches("Examples:"))?;
            }
            page.render_options_section(text)?;
            page.render_extra_section(text)
        });
        // Sections of a command become subsections of the page.
        text.push_str(&format!(".SH {name}\n{}", section.replace(".SH ", ".SS ")));
    }
    text
}

fn rendered(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut text = Vec::new();
    // Writing to a vector cannot fail.
    let _ = write(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}
