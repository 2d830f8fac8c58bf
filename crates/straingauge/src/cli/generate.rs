//! `straingauge --generate`: the manual page, shells' completions and the pages of the reference, from the definitions.

use super::reference;
use clap::{Command, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;

/// What `--generate` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Generated {
    /// The manual page, for `man -l -`
    Man,
    /// Completions for bash
    CompleteBash,
    /// Completions for zsh
    CompleteZsh,
    /// Completions for fish
    CompleteFish,
    /// A page of the documentation site (setup/site): every option
    #[value(hide = true)]
    ReferenceOptions,
    /// The same: every figure
    #[value(hide = true)]
    ReferenceFigures,
    /// The same: every kind of doubt
    #[value(hide = true)]
    ReferenceDoubts,
    /// The same: the rules of the verdict
    #[value(hide = true)]
    ReferenceRules,
}

/// The text. `cli`: the whole command line.
pub fn text(what: Generated, mut cli: Command) -> String {
    let shell = match what {
        Generated::Man => return manual(cli),
        Generated::CompleteBash => Shell::Bash,
        Generated::CompleteZsh => Shell::Zsh,
        Generated::CompleteFish => Shell::Fish,
        Generated::ReferenceOptions => return reference::options(cli),
        Generated::ReferenceFigures => return reference::figures(),
        Generated::ReferenceDoubts => return reference::doubts(),
        Generated::ReferenceRules => return reference::rules(),
    };
    let name = cli.get_name().to_string();
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut cli, name, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// One page: what all commands have in common, then a section a command.
fn manual(mut cli: Command) -> String {
    // Without its detail: that is a line a word, where a page has one.
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
            page.render_options_section(text)?;
            page.render_extra_section(text)
        });
        // What is a page's section elsewhere is a part of the command's.
        text.push_str(&format!(".SH {name}\n{}", section.replace(".SH ", ".SS ")));
    }
    text
}

fn rendered(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut text = Vec::new();
    // A vector takes every byte.
    let _ = write(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}
