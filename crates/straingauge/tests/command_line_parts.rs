//! The command line: options, their values and help.

mod fleet {
    use straingauge::cli::fleet::{FleetSize, label, resource};

    #[test]
    fn workers_are_a_number_or_a_range() {
        let of = |text: &str| text.parse::<FleetSize>();
        assert_eq!(of("20"), Ok(FleetSize { least: 20, most: None }));
        assert_eq!(of("3..2k"), Ok(FleetSize { least: 3, most: Some(2000) }));
        for (wrong, words) in
            [("0", "at least 1"), ("0..3", "at least 1"), ("5..3", "maximum 3"), ("..", ""), ("3..", ""), ("a", "")]
        {
            assert!(of(wrong).unwrap_err().contains(words), "{wrong}");
        }
    }

    #[test]
    fn a_resource_is_a_name_and_a_positive_amount() {
        assert_eq!(resource("load=1"), Ok(("load".into(), 1.0)));
        assert_eq!(resource("node:10.0.0.1=0.5"), Ok(("node:10.0.0.1".into(), 0.5)));
        for (wrong, words) in [
            ("load", "a name and an amount"),
            ("=1", "a name and an amount"),
            ("load=", "a number of at least 0.0001"),
            ("load=0", "a number of at least 0.0001"),
            ("load=-1", "a number of at least 0.0001"),
            ("load=NaN", "a number of at least 0.0001"),
            ("load=inf", "a number of at least 0.0001"),
            ("load=1=2", "a number of at least 0.0001"),
            ("CPU=1", "--worker-cpus"),
            ("GPU=1", "a resource of Ray's own"),
            ("memory=1", "a resource of Ray's own"),
        ] {
            assert!(resource(wrong).unwrap_err().contains(words), "{wrong}");
        }
    }

    #[test]
    fn a_label_has_rays_syntax() {
        for (text, key, value) in [("zone=b", "zone", "b"), ("ray.io/market-type=spot", "ray.io/market-type", "spot")] {
            assert_eq!(label(text), Ok((key.into(), value.into())));
        }
        for wrong in ["zone", "=b", "zone=", "zone=!b", "zone=in(a,b)", "zone=b=c", "/zone=b", "-zone=b", "zone=b."] {
            assert!(label(wrong).unwrap_err().contains("a label"), "{wrong}");
        }
    }
}

mod key_options {
    use straingauge::cli::KeyOptions;
    use straingauge::quantity::Count;

    #[test]
    fn keys_are_a_number_and_a_distribution() {
        let keys: KeyOptions = "1M, zipf=0.99,size=1KiB,reads=50%,per-get=8,meta".parse().unwrap();
        let expected = KeyOptions {
            count: Some(1_000_000),
            zipf: Some(0.99),
            value_bytes: Some(1024),
            read_ratio: Some(0.5),
            per_get: Some(Count(8)),
            is_meta: true,
        };
        assert_eq!(keys, expected);
        assert_eq!("reads=1".parse(), Ok(KeyOptions { read_ratio: Some(1.0), ..KeyOptions::default() }));
        for wrong in ["", "many", "zipf=x", "sise=3", "1M,,"] {
            assert!(wrong.parse::<KeyOptions>().is_err(), "{wrong}");
        }
    }
}

mod exports {
    use report::export::ExportFormat;
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use straingauge::cli::Export;
    use straingauge::cli::export::parse;

    #[test]
    fn a_format_and_a_file_are_split_at_the_first_equals_sign() {
        for format in ExportFormat::ALL {
            let typed = OsString::from(format!("{}=a=b", format.word()));
            assert_eq!(parse(&typed), Ok(Export { format, file: "a=b".into() }));
        }
        let odd = OsString::from_vec(b"pprof=\xff".to_vec());
        assert_eq!(parse(&odd).unwrap().file.as_os_str().as_bytes(), b"\xff");
        for (typed, words) in
            [("perfetto=x", "one of pprof, firefox"), ("pprof", "file is missing"), ("pprof=", "missing")]
        {
            let why = parse(OsStr::new(typed)).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }
}

mod scenario {
    use straingauge::check_ranges;

    #[test]
    fn odd_numbers_are_refused_or_in_range() {
        let keys = "find.error-limit find.saturation workload.dynamic-share load.rate load.connect-rate workload.speed \
                    load.duration load.timeout workload.session-gap";
        for key in keys.split_whitespace() {
            for value in
                ["-1", "nan", "inf", "1e400", "0", "2", "'-1s'", "'9e99s'", "'99999999999d'", "'101%'", "''", "[]"]
            {
                check_ranges(&format!("{key} = {value}"));
            }
        }
    }
}

mod quantity {
    use serde::Deserialize;
    use straingauge::quantity::{Count, Rate, Seconds, Share, Time};

    #[test]
    fn a_plain_number_means_seconds_where_similar_tools_accept_it() {
        for (typed, nanos) in
            [("10", 10_000_000_000), (" 0.5 ", 500_000_000), ("10s", 10_000_000_000), ("40ms", 40_000_000)]
        {
            assert_eq!(typed.parse().map(Seconds::nanos), Ok(nanos), "{typed}");
        }
        for wrong in ["", "ten", "-3", "nan", "inf", "1e400", "10x"] {
            assert!(wrong.parse::<Seconds>().is_err(), "{wrong}");
        }
        assert!("10".parse::<Time>().is_err(), "a delay of 10 may be meant as microseconds");
    }

    #[test]
    fn a_share_above_one_is_refused() {
        for (typed, ratio) in [("100%", 1.0), ("1", 1.0), ("0", 0.0), (" 25 % ", 0.25)] {
            assert_eq!(typed.parse(), Ok(Share(ratio)), "{typed}");
        }
        for (typed, word) in
            [("5", "500%"), ("95", "9500%"), ("101%", "101%"), ("-5%", "not a share"), ("nan", "not a")]
        {
            let why = typed.parse::<Share>().unwrap_err();
            assert!(why.contains(word) && why.contains("5% or 0.05"), "{why}");
        }
        for key in ["saturation", "elastic-gain", "efficiency-loss", "bracket", "goodput-limit", "error-limit"] {
            let read = toml::from_str::<straingauge::cli::FindOptions>(&format!("{key} = 5"));
            assert!(read.is_err_and(|why| why.message().contains("500%")), "{key}");
        }
    }

    #[test]
    fn a_scenario_file_may_contain_numbers_or_text() {
        #[derive(Deserialize)]
        struct File {
            connections: Count,
            rate: Rate,
            duration: Time,
            errors: Share,
        }
        let file: File = toml::from_str("connections = 100\nrate = '10k'\nduration = '2s'\nerrors = '0.1%'").unwrap();
        assert_eq!(file.connections, Count(100));
        assert_eq!(file.rate, Rate(10_000.0));
        assert_eq!(file.duration.nanos(), 2_000_000_000);
        assert!((file.errors.0 - 0.001).abs() < 1e-12);
        assert!(toml::from_str::<File>("connections = -1\nrate = 1\nduration = '2s'\nerrors = 0").is_err());
    }
}

mod defaults {
    use std::time::Duration;
    use straingauge::defaults::{AsTyped, options};
    use straingauge::quantity::{Bytes, Share};

    #[test]
    fn values_are_formatted_as_they_are_typed() {
        assert_eq!(
            (Duration::from_secs(90).as_typed(), Duration::from_millis(200).as_typed()),
            ("90s".into(), "200ms".into())
        );
        assert_eq!((Share(0.001).as_typed(), Share(0.07).as_typed()), ("0.1%".into(), "7%".into()));
        assert_eq!((Bytes(64 << 10).as_typed(), Bytes(100).as_typed()), ("64KiB".into(), "100".into()));
        assert_eq!((&[1u64, 2][..]).as_typed(), "1,2");
        assert!(options().contains(&("p99_limit".into(), "100ms".into())));
    }
}

mod failure {
    use std::process::ExitCode;
    use straingauge::failure::{DONE, FAILED, HABITS, ReaderGone, report, section_of, sentence};

    #[test]
    fn only_a_closed_standard_output_counts_as_success() {
        let code = |error: anyhow::Error| format!("{:?}", report(&error));
        let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert_eq!(
            code(anyhow::Error::new(broken).context("the server's input")),
            format!("{:?}", ExitCode::from(FAILED))
        );
        assert_eq!(code(ReaderGone.into()), format!("{:?}", ExitCode::from(DONE)));
    }

    #[test]
    fn hinted_options_of_other_tools_do_not_exist_here() {
        use clap::CommandFactory;
        let cli = straingauge::cli::Cli::command();
        for command in ["load", "find"] {
            let options = cli.find_subcommand(command).expect("a command").get_arguments();
            let words: Vec<String> = options
                .flat_map(|option| {
                    let short = option.get_short().map(|letter| format!("-{letter}"));
                    option.get_long().map(|word| format!("--{word}")).into_iter().chain(short)
                })
                .collect();
            for word in HABITS.iter().flat_map(|(words, _)| *words) {
                assert!(!words.contains(&word.to_string()), "{command} has {word}");
            }
        }
    }

    #[test]
    fn keys_of_a_scenario_file_without_an_option_are_known() {
        for (key, section) in
            [("settle", "find"), ("precise", "load"), ("close-first", "clients"), ("quickack", "path")]
        {
            assert_eq!(section_of(key), Some(section), "{key}");
        }
        for other in ["budget", "connections", "no-such-key", "a\nb", ""] {
            assert_eq!(section_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_quoted_cause_is_not_repeated() {
        let cause = std::io::Error::from_raw_os_error(2);
        let error = anyhow::Error::new(record::RunError::Read { path: "x".into(), source: cause });
        let words = sentence(&error);
        assert_eq!(words.matches("No such file").count(), 1, "{words}");
        assert_eq!(sentence(&anyhow::anyhow!("b").context("a")), "a: b");
    }
}

mod cli {
    use crate::documented::commands as documented;
    use clap::{CommandFactory, Parser};
    use straingauge::cli::{Cli, Command, HELP, command};
    use verdict::command::OPTIONS_OF_SEARCH;

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
        for example in HELP.iter().flat_map(|help| help.examples.lines()) {
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

    /// A remedy repeats one load of a search with the options that `load` has, too.
    #[test]
    fn options_of_find_that_load_lacks_are_known_to_the_verdict() {
        let cli = command(false);
        let of = |name: &str| cli.find_subcommand(name).expect("a command").get_arguments();
        let names = |arg: &clap::Arg| arg.get_long().map(|name| format!("--{name}"));
        let of_load: Vec<String> = of("load").filter_map(names).collect();
        let mut of_search = OPTIONS_OF_SEARCH.iter();
        for arg in of("find") {
            let Some(name) = names(arg).filter(|name| !of_load.contains(name)) else { continue };
            let known = of_search.clone().find(|(option, _)| *option == name);
            assert_eq!(known.map(|known| known.1), Some(arg.get_action().takes_values()), "{name}");
        }
        let is_of_find = |option: &str| {
            of("find").any(|arg| {
                names(arg).as_deref() == Some(option)
                    || arg.get_short().map(|c| format!("-{c}")).as_deref() == Some(option)
            })
        };
        assert!(of_search.all(|(option, _)| is_of_find(option)), "{OPTIONS_OF_SEARCH:?}");
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
        let mut named: Vec<&str> = HELP.iter().map(|help| help.name).collect();
        let cli = command(false);
        let shown = cli.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help");
        let mut commands: Vec<&str> = shown.map(|command| command.get_name()).collect();
        named.sort_unstable();
        commands.sort_unstable();
        assert_eq!(named, commands);
        for help in HELP {
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
}
