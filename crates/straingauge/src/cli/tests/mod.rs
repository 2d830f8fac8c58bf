use super::*;

/// The tools of toolkit/ that the documentation mentions.
const TOOLS: [&str; 4] = ["microbenchmark", "scale", "simulate", "stingy-check"];

#[test]
fn every_command_in_the_documentation_is_accepted() {
    let commands = documented::all();
    assert!(commands.len() > 50, "only {} commands were found", commands.len());
    for command in commands {
        match Cli::try_parse_from(documented::shell_words(&command.text)) {
            Ok(Cli { command: Some(Command::Tool(words)), .. }) if !TOOLS.iter().any(|name| words[0] == *name) => {
                panic!("{}:{}: {}: neither a command nor a tool", command.file, command.line, command.text);
            }
            Ok(_) => {}
            Err(why) => panic!("{}:{}: {}\n{why}", command.file, command.line, command.text),
        }
    }
    for example in help::HELP.iter().flat_map(|help| help.examples.lines()) {
        if let Err(why) = Cli::try_parse_from(documented::shell_words(example)) {
            panic!("{example}\n{why}");
        }
    }
}

#[test]
fn the_command_line_is_well_formed() {
    command(false).debug_assert();
    command(true).debug_assert();
}

#[test]
fn a_worker_gets_only_the_options_that_it_reads() {
    let cli = command(false);
    let refused = |words: &str| cli.clone().try_get_matches_from(words.split(' ')).err().map(|why| why.kind());
    for words in [
        "straingauge load --worker --source-interface eth0 --source-address 127.0.0.1",
        "straingauge load --worker --cpus 0 --threads 2",
        "straingauge watch --worker :80 --pid 1 --netns-of 2",
        "straingauge watch --worker :80 --server-cpus 0 --server-timeout 5s --needs-group -- nginx -c a",
    ] {
        assert_eq!(refused(words), None, "{words}");
    }
    for (command, options) in [
        ("load", "http://a/|--client a|--rate 5|--json|--fail-if a|--metrics 127.0.0.1:1"),
        ("watch :80", "--out a|--json|-d 1s|--metrics 127.0.0.1:1|--no-file-hooks|--keep-privileges"),
    ] {
        for option in options.split('|') {
            let words = format!("straingauge {command} --worker {option}");
            assert_eq!(refused(&words), Some(clap::error::ErrorKind::ArgumentConflict), "{words}");
        }
    }
}

#[test]
fn durations_may_be_plain_seconds_but_delays_need_a_unit() {
    let taken = |words: &str| Cli::try_parse_from(words.split(' ')).is_ok();
    for words in [
        "straingauge find :80 --budget 30 --warmup 1 --timeout 5",
        "straingauge watch :80 --interval 2 -d 10",
        "straingauge profile :80 --axis rate --axis-values 1k --budget 30 -d 1 -- server",
    ] {
        assert!(taken(words), "{words}");
    }
    for words in ["straingauge load :80 --delay 50", "straingauge find :80 --p99-limit 100"] {
        assert!(!taken(words), "{words}: milliseconds may be meant");
    }
}

/// The full command line, with the values of defaults in the help.
fn filled() -> clap::Command {
    let mut all = command(false);
    all.build();
    all
}

fn options(cli: &clap::Command) -> Vec<(String, clap::Arg)> {
    let mut found = Vec::new();
    for command in cli.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = command.get_name();
        found.extend(options(command).into_iter().map(|(of, option)| (format!("{name} {of}"), option)));
        let own = command.get_arguments().filter(|option| option.get_long().is_some());
        found.extend(own.map(|option| (name.to_string(), option.clone())));
    }
    found
}

/// The words of an option that are equal in all commands, up to the first punctuation mark.
fn sentence(option: &clap::Arg) -> String {
    let help = option.get_help().map(ToString::to_string).unwrap_or_default();
    help.split([',', ':', ';', '(', '[']).next().unwrap_or_default().trim().to_string()
}

#[test]
fn an_option_has_one_meaning_in_all_commands() {
    let mut kinds = std::collections::BTreeMap::<String, Vec<(String, String)>>::new();
    let mut letters = std::collections::BTreeMap::<char, Vec<(String, String)>>::new();
    for (command, option) in options(&filled()) {
        let long = option.get_long().unwrap_or_default().to_string();
        let kind = format!(
            "{:?} {:?} {:?}: {}",
            option.get_value_names().unwrap_or_default(),
            option.get_num_args(),
            option.get_value_delimiter(),
            sentence(&option)
        );
        kinds.entry(long.clone()).or_default().push((kind, command.clone()));
        if let Some(short) = option.get_short() {
            letters.entry(short).or_default().push((long, command));
        }
    }
    assert!(kinds.len() > 100, "only {} options were found", kinds.len());
    let is_mixed = |uses: &Vec<(String, String)>| uses.iter().any(|(what, _)| *what != uses[0].0);
    let mixed: Vec<_> = kinds.iter().filter(|(_, uses)| is_mixed(uses)).collect();
    assert!(mixed.is_empty(), "several meanings: {mixed:#?}");
    let mixed: Vec<_> = letters.iter().filter(|(_, uses)| is_mixed(uses)).collect();
    assert!(mixed.is_empty(), "letters of several options: {mixed:#?}");
}

#[test]
fn every_option_belongs_to_a_group() {
    let lost: Vec<String> = options(&Cli::command())
        .into_iter()
        .filter(|(_, option)| option.get_help_heading().is_none())
        .map(|(command, option)| format!("{command} --{}", option.get_long().unwrap_or_default()))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
}

/// Defaults in help texts are placeholders that the code fills.
#[test]
fn defaults_in_help_are_those_of_the_code() {
    let texts = |option: &clap::Arg| {
        let texts = [option.get_help(), option.get_long_help()].into_iter().flatten();
        texts.map(ToString::to_string).collect::<Vec<_>>()
    };
    for (command, option) in options(&Cli::command()) {
        let name = format!("{command} --{}", option.get_long().unwrap_or_default());
        assert!(option.get_default_values().is_empty(), "{name}: say it as [default: {{name}}]");
        let words = option.get_possible_values();
        for text in texts(&option) {
            for said in text.split("[default").skip(1).map(|rest| rest.split(']').next().unwrap_or_default()) {
                let own = said.split('{').map(|part| part.split_once('}').map_or(part, |(_, after)| after));
                let own = own.collect::<String>();
                let mut said_words = own.split([' ', ',', ':', ';']);
                let has_number = said_words.any(|word| word.starts_with(|letter: char| letter.is_ascii_digit()));
                let is_word = words.iter().any(|word| own.trim_matches([':', ' ']) == word.get_name());
                assert!(!has_number && !is_word, "{name}: '[default{said}]' is not the code's: name it");
            }
        }
    }
    for (command, option) in options(&filled()) {
        for text in texts(&option) {
            // These placeholders are part of what the user types.
            let typed = ["{number}", "{key}", "{value}", "{cpus}", "{share}"];
            let text = typed.iter().fold(text, |text, place| text.replace(place, ""));
            let is_open = text.contains('{');
            assert!(!is_open, "{command} --{}: {text}", option.get_long().unwrap_or_default());
        }
    }
}

#[test]
fn the_short_help_of_every_command_is_one_screen() {
    let mut named: Vec<&str> = help::HELP.iter().map(|help| help.name).collect();
    let cli = command(false);
    let shown = cli.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help");
    let mut commands: Vec<&str> = shown.map(|command| command.get_name()).collect();
    named.sort_unstable();
    commands.sort_unstable();
    assert_eq!(named, commands);
    for help in help::HELP {
        let mut all = command(true);
        let one = all.find_subcommand_mut(help.name).expect("a command");
        for id in help.short.split_whitespace() {
            assert!(one.get_arguments().any(|argument| argument.get_id() == id), "{} has no {id}", help.name);
        }
        let text = one.clone().term_width(80).render_help().to_string();
        let lines = text.lines().count();
        assert!(lines <= if ["predict", "fleet"].contains(&help.name) { 28 } else { 24 }, "{lines} lines\n{text}");
    }
}
