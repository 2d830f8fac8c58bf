//! Options become plans.

use anyhow::Result;
use record::LoadPlan;
use straingauge::cli::{LoadOptions, Options, OutputOptions};
use straingauge::plan::{LoadKind, RunOptions, load_plan};
use straingauge::url::Target;

pub fn of_url(url: &str, options: &LoadOptions) -> Result<LoadPlan> {
    let options = Options { load: options.clone(), ..Options::default() };
    let run = RunOptions { target: Target::parse(url)?, options, output: OutputOptions::default() };
    load_plan(&run, LoadKind::Single, run.target.resolve()?, Vec::new()).map(|(plan, _)| plan)
}

mod plan {
    use super::of_url;
    use anyhow::Result;
    use record::LoadPlan;
    use std::time::Duration;
    use straingauge::cli::{FindOptions, LoadOptions, Options};
    use straingauge::plan::{set, sweep_plan};
    use straingauge::quantity::{Count, Share};

    fn plan(options: &LoadOptions) -> Result<LoadPlan> {
        of_url("http://127.0.0.1:8080/x", options)
    }

    #[test]
    fn a_header_cannot_smuggle_another_request() {
        let smuggled = LoadOptions { header: vec!["X: a\r\nHost: b".into()], ..Default::default() };
        assert!(plan(&smuggled).is_err());
        let owned = LoadOptions { header: vec!["Content-Length: 5".into()], ..Default::default() };
        assert!(plan(&owned).is_err());
        let fine = LoadOptions { header: vec!["X-Test: a: b".into()], ..Default::default() };
        assert_eq!(plan(&fine).unwrap().headers, vec![("X-Test".to_string(), "a: b".to_string())]);
    }

    #[test]
    fn a_set_key_overrides_the_file_and_the_last_value_wins() {
        let file: Options =
            toml::from_str("[load]\nprecise = false\nconnect-rate = 7\n[find]\nsettle = '1s'\n").unwrap();
        let keys = ["load.precise=true", "find.settle=3s", "find.settle = 5s", "find.error-limit=0.5%"];
        let options = set(file, &keys.map(String::from)).unwrap();
        assert!(options.load.precise && options.load.connect_rate.is_some());
        assert_eq!(options.find.settle.map(|time| time.0), Some(Duration::from_secs(5)));
        assert_eq!(options.find.error_limit.map(|share| share.0), Some(0.005));
        for (wrong, word) in [
            ("settle=5s", "SECTION.KEY"),
            ("find.settle", "SECTION.KEY"),
            ("find.setle=5s", "setle"),
            ("find.settle=soon", "soon"),
            ("predict.rate=2x", "works only in files"),
        ] {
            let why = set(Options::default(), &[wrong.to_string()]).unwrap_err().to_string();
            assert!(why.contains(word) && !why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn until_sure_without_an_end_is_refused() {
        let plan = |find: FindOptions| sweep_plan(&find, &LoadOptions::default());
        let sure = |share| FindOptions { until_sure: Some(Share(share)), ..Default::default() };
        let made = plan(sure(0.05)).unwrap();
        assert_eq!((made.until_sure_ratio, made.repeats, made.budget_ns), (Some(0.05), 1000, 1_800_000_000_000));
        assert_eq!(
            plan(FindOptions { budget: Some("60s".parse().unwrap()), ..sure(0.1) }).unwrap().budget_ns,
            60_000_000_000
        );
        for (refused, word) in [
            (sure(0.01), "5% to 50%"),
            (sure(0.9), "5% to 50%"),
            (FindOptions { repeats: Some(Count(3)), ..sure(0.1) }, "--repeats"),
            (FindOptions { compare_with: Some("scale".into()), ..sure(0.1) }, "--compare-with"),
        ] {
            let why = plan(refused).unwrap_err().to_string();
            assert!(why.contains(word), "{why}");
        }
    }
}

mod axis {
    use record::SlowPlace;
    use straingauge::cli::{AxisWord, FindOptions, LoadOptions};
    use straingauge::plan::axis::axis_plan;
    use straingauge::quantity::Count;

    fn options(axis: AxisWord, values: &str) -> FindOptions {
        FindOptions { axis: Some(axis), axis_values: Some(values.into()), ..Default::default() }
    }

    #[test]
    fn values_are_sorted_counts_or_rates() {
        let plan = axis_plan(&options(AxisWord::Cold, "2k, 0,750,750"), &LoadOptions::default()).unwrap().unwrap();
        assert_eq!(plan.values, [0.0, 750.0, 2000.0]);
        let plan = axis_plan(&options(AxisWord::Rate, "0.5,10k"), &LoadOptions::default()).unwrap().unwrap();
        assert_eq!(plan.values, [0.5, 10_000.0]);
        let plan = axis_plan(&options(AxisWord::Rate, "2.5x"), &LoadOptions::default()).unwrap().unwrap();
        assert_eq!((plan.values, plan.overload_ratio), (Vec::new(), 2.5));
        let plan = axis_plan(&options(AxisWord::Delay, "20ms,0,1.5ms"), &LoadOptions::default()).unwrap().unwrap();
        assert_eq!(plan.values, [0.0, 1.5e6, 20e6]);
    }

    #[test]
    fn places_are_words_and_a_function() {
        let plan = axis_plan(
            &FindOptions { places: Some("send, function=main,send".into()), ..options(AxisWord::SlowDown, "5us,0") },
            &LoadOptions::default(),
        );
        let plan = plan.unwrap().unwrap();
        assert_eq!((plan.values, plan.slowed), (vec![0.0, 5e3], vec![SlowPlace::Send, SlowPlace::Function]));
        assert_eq!(plan.function.as_deref(), Some("main"));
    }

    #[test]
    fn invalid_values_are_refused_with_the_options_name() {
        let none = LoadOptions::default();
        for (options, load, word) in [
            (options(AxisWord::Cold, "1,,2"), &none, "--axis-values"),
            (options(AxisWord::Cold, "-5"), &none, "--axis-values"),
            (options(AxisWord::Connections, "0"), &none, "nothing"),
            (options(AxisWord::Delay, "20"), &none, "--axis-values"),
            (options(AxisWord::Delay, "8760h"), &none, "10s"),
            (options(AxisWord::Cold, "1e300"), &none, "--axis-values"),
            (FindOptions { axis_values: Some("1".into()), ..Default::default() }, &none, "--axis"),
            (options(AxisWord::Rate, "-1x"), &none, "multiple"),
            (options(AxisWord::Cold, "2x"), &none, "--axis-values"),
            (options(AxisWord::SlowDown, "1ms"), &none, "100us"),
            (options(AxisWord::Cpus, "0,1"), &none, "nothing"),
            (options(AxisWord::SlowDown, "0"), &none, "no delay would be added"),
            (
                FindOptions { places: Some("function".into()), ..options(AxisWord::SlowDown, "1us") },
                &none,
                "function=NAME",
            ),
            (FindOptions { places: Some("send".into()), ..Default::default() }, &none, "--axis"),
            (options(AxisWord::Cold, "1"), &LoadOptions { cold: Some(Count(3)), ..Default::default() }, "--cold"),
        ] {
            let why = axis_plan(&options, load).unwrap_err().to_string();
            assert!(why.contains(word), "{why}");
        }
    }
}

mod grpc {
    use std::path::Path;
    use straingauge::plan::grpc::{encoded, input, method};

    /// What `protoc --descriptor_set_out` makes of `service Cart { rpc Add (Item) returns (Item); rpc Watch (Item)
    /// returns (stream Item); rpc Fill (stream Item) returns (Item); }` in package shop, with `message Item { string
    /// name = 1; uint32 count = 2; }`.
    const SHOP: &[u8] = b"\
        \n\xab\x01\n\nshop.proto\x12\x04shop\"#\n\x04Item\x12\x0c\n\x04name\x18\x01 \x01(\t\x12\r\n\x05count\x18\
        \x02 \x01(\r2j\n\x04Cart\x12\x1d\n\x03Add\x12\n.shop.Item\x1a\n.shop.Item\x12!\n\x05Watch\x12\n.shop.Ite\
        m\x1a\n.shop.Item0\x01\x12 \n\x04Fill\x12\n.shop.Item\x1a\n.shop.Item(\x01b\x06proto3";

    #[test]
    fn a_message_is_made_from_json_and_errors_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("shop.pb"), folder.path().join("other"));
        std::fs::write(&file, SHOP).unwrap();
        std::fs::write(&other, b"\xff\xff").unwrap();
        let item = || input(&file, "shop.Cart/Add").unwrap();
        assert_eq!(encoded(item(), br#"{"name": "pen", "count": 300}"#).unwrap(), b"\x0a\x03pen\x10\xac\x02");
        assert_eq!(encoded(item(), b"").unwrap(), b"");
        assert_eq!(input(&file, "shop.Cart/Watch").unwrap().full_name(), "shop.Item", "it is answered by a stream");
        for json in ["{", "[]", r#"{"names": "pen"}"#, r#"{"count": "x"}"#, "{} {}"] {
            let why = encoded(item(), json.as_bytes()).unwrap_err().to_string();
            assert!(why.contains("not a shop.Item in JSON") && !why.contains('\n'), "{why}");
        }
        for (file, method, words) in [
            (&file, "shop.Card/Add", "it has shop.Cart"),
            (&file, "shop.Cart/Ad", "it has Add, Watch, Fill"),
            (&file, "shop.Cart/Fill", "takes a stream"),
            (&other, "shop.Cart/Add", "descriptor_set_out"),
        ] {
            let why = input(file, method).unwrap_err().to_string();
            assert!(why.contains(words) && !why.contains('\n'), "{why}");
        }
    }

    #[test]
    fn a_method_has_a_service_and_a_name() {
        assert_eq!(method("/a.b.C/D").unwrap(), ("a.b.C/D".to_string(), None));
        assert_eq!(method("a.b.C/D@c.pb").unwrap().1, Some(Path::new("c.pb")));
        for wrong in ["", "a", "a/", "/", "a/b/c", "a b/c"] {
            assert!(method(wrong).unwrap_err().to_string().contains("package.Service/Method"), "{wrong}");
        }
    }
}

mod protocol {
    use anyhow::Result;
    use record::protocol::{Expect, Protocol, TcpPlan};
    use straingauge::cli::{LoadOptions, Options, ProtocolOptions};
    use straingauge::plan::protocol::protocol_plan;
    use straingauge::quantity::Count;
    use straingauge::url::Target;

    fn plan(url: &str, options: ProtocolOptions) -> Result<Protocol> {
        protocol_plan(&Options { protocol: options, ..Options::default() }, &Target::parse(url)?)
    }

    fn plan_with(url: &str, requests_per_connection: u64, protocol: ProtocolOptions) -> Result<Protocol> {
        let load =
            LoadOptions { requests_per_connection: Some(Count(requests_per_connection)), ..LoadOptions::default() };
        protocol_plan(&Options { load, protocol, ..Options::default() }, &Target::parse(url)?)
    }

    #[test]
    fn a_url_and_its_options_make_a_plan() {
        let options = ProtocolOptions {
            command: vec!["SET 'a b:{key}' {value}".into()],
            in_flight: Some(Count(16)),
            ..Default::default()
        };
        let Protocol::Redis(redis) = plan("redis://u:p%40s@127.0.0.1:6380/3", options).unwrap() else {
            panic!("no Redis")
        };
        assert_eq!((redis.user.as_str(), redis.password.as_str(), redis.database, redis.pipeline), ("u", "p@s", 3, 16));
        assert_eq!(redis.commands, [["SET", "a b:{key}", "{value}"]]);
        let options =
            ProtocolOptions { send: Some(r"a\x00\r\n\\".into()), expect: Some("u16be".into()), ..Default::default() };
        let expected = TcpPlan { send: b"a\0\r\n\\".to_vec(), expect: Expect::U16be, pipeline: 1 };
        assert_eq!(plan("tcp://127.0.0.1:7", options).unwrap(), Protocol::Tcp(expected));
        let connecting = plan_with("https://127.0.0.1:7", 0, ProtocolOptions::default());
        assert_eq!(connecting.unwrap(), Protocol::Connect);
    }

    #[test]
    fn conflicting_options_are_refused_by_name() {
        let none = ProtocolOptions::default;
        let sending = |text: &str| ProtocolOptions { send: Some(text.into()), ..none() };
        for (url, options, word) in [
            ("http://a/", ProtocolOptions { keys: "2".parse().ok(), ..none() }, "--keys"),
            ("memcached://a", ProtocolOptions { command: vec!["GET a".into()], ..none() }, "--command"),
            ("redis://a", ProtocolOptions { command: vec!["GET 'a".into()], ..none() }, "quote"),
            ("redis://a/x", none(), "database"),
            ("tcp://a:1", sending(r"\q"), "backslash"),
            ("tcp://a:1", sending(r"\x1"), "backslash"),
            ("tcp://a:1", ProtocolOptions { expect: Some("0".into()), ..sending("x") }, "--expect"),
        ] {
            let why = plan(url, options).unwrap_err().to_string();
            assert!(why.contains(word) && !why.contains('\n'), "{url}: {why}");
        }
        let why = plan_with("tcp://a:1", 0, sending("x")).unwrap_err().to_string();
        assert!(why.contains("--send") && why.contains("--requests-per-connection 0"), "{why}");
    }
}

mod url {
    use straingauge::url::{Scheme, Target};

    #[test]
    fn a_url_is_split_into_its_parts() {
        let target = Target::parse("http://[::1]:8080/a?b=c").unwrap();
        assert_eq!((target.name.as_str(), target.port, target.path.as_str()), ("::1", 8080, "/a?b=c"));
        assert_eq!(target.host_field, "[::1]:8080");
        assert_eq!(Target::parse("localhost").unwrap().host_field, "localhost");
        assert_eq!(Target::parse(":8080/x").unwrap().host_field, "127.0.0.1:8080");
        assert_eq!(Target::parse("http://a:81?q").unwrap().path, "/?q");
        let secure = Target::parse("https://a/x").unwrap();
        assert_eq!((secure.is_tls, secure.port, secure.host_field.as_str()), (true, 443, "a"));
    }

    #[test]
    fn a_url_of_another_protocol_is_split_and_never_shows_its_password() {
        let target = Target::parse("redis://me:s%3Aecret@[::1]:7000/2").unwrap();
        assert_eq!((target.scheme, target.user.as_str(), target.password.as_str()), (Scheme::Redis, "me", "s:ecret"));
        assert_eq!((target.name.as_str(), target.port, target.path.as_str()), ("::1", 7000, "/2"));
        assert_eq!(target.typed, "redis://me:***@[::1]:7000/2");
        let target = Target::parse("redis://secret@a").unwrap();
        assert_eq!((target.password.as_str(), target.port, target.typed.as_str()), ("secret", 6379, "redis://:***@a"));
        let secure = Target::parse("rediss://a").unwrap();
        assert_eq!((secure.scheme, secure.is_tls), (Scheme::Redis, true));
        assert_eq!(Target::parse("memcached://a").unwrap().port, 11211);
        assert_eq!(Target::parse("tcp://a:7").unwrap().port, 7);
        for (url, word) in [("tcp://a", "port"), ("tcp://u@a:7", "no users"), ("redis://u:secret@a:x", "port")] {
            let why = Target::parse(url).expect_err(url).to_string();
            assert!(why.contains(word) && !why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn unsupported_urls_are_refused_with_a_reason() {
        for text in
            ["", "http://", "https://", "ftp://a/", "http://a:0/", "http://a:99999/", "http://u@a/", "http://a b/"]
        {
            let why = Target::parse(text).expect_err(text).to_string();
            assert!(!why.contains('\n'), "{why}");
        }
    }
}

mod cpus {
    use straingauge::cpus::{parse_list, split};

    #[test]
    fn lists_are_written_as_they_are_read() {
        for text in ["0", "0,2", "1-3,6"] {
            assert_eq!(record::machine::cpu_list(&parse_list(text).unwrap()), text);
        }
        for text in ["", "a", "3-1", "-1", "0,,1", "99999"] {
            assert!(parse_list(text).is_err(), "{text}");
        }
    }

    #[test]
    fn client_and_server_get_different_cpus_if_there_are_two() {
        assert_eq!(split(&[0, 1]), (vec![0], vec![1]));
        assert_eq!(split(&[0, 1, 2]), (vec![0], vec![1, 2]));
        assert_eq!(split(&[3]), (vec![3], vec![3]));
    }
}

mod find {
    use anyhow::Result;
    use clap::Parser;
    use record::Arrival;
    use straingauge::cli::{Cli, Command};
    use straingauge::commands::find::{self, SearchPlan, axis};
    use straingauge::plan::{LoadKind, RunOptions, load_plan};
    use verdict::limit::FailLimit;

    fn planned(options: &[&str]) -> Result<(RunOptions, SearchPlan, Vec<FailLimit>)> {
        let words = ["straingauge", "find", "http://127.0.0.1:8080/"].iter().chain(options);
        let Some(Command::Find(args)) = Cli::parse_from(words).command else { panic!("this is find") };
        find::planned(*args)
    }

    #[test]
    fn defaults_allow_for_the_path_and_typed_values_are_kept() {
        let times = |options: &[&str]| {
            let long = [&["--delay", "300ms", "--axis", "rate", "--axis-values", "10"], options].concat();
            let (drive, plan, _) = planned(&long).expect("the options fit");
            let made = load_plan(&drive, LoadKind::Sweep, Vec::new(), Vec::new());
            let mut load = made.expect("the options fit").0;
            let before = load.connect_timeout_ns;
            let axis = plan.sweep.axis.as_ref().expect("it was typed");
            axis::adapt(&mut load, axis, &drive.options.load, 600_000_000).expect("the options fit");
            [load.timeout_ns, before, load.connect_timeout_ns, plan.sweep.criteria.p99_limit_ns]
                .map(|ns| ns / 1_000_000)
        };
        assert_eq!(times(&[]), [11_200, 7_400, 1_700, 700]);
        let typed = ["--timeout", "1s", "--set", "load.connect-timeout=2s", "--p99-limit", "50ms"];
        assert_eq!(times(&typed), [1_000, 2_000, 2_000, 50]);
    }

    #[test]
    fn open_loop_gaps_can_be_chosen_if_there_is_an_open_loop() {
        for options in [&["--arrival", "constant"][..], &["--sweep", "rate", "--arrival", "constant"]] {
            let (drive, plan, _) = planned(options).expect("the open loop is measured");
            assert_eq!(plan.sweep.arrival, Arrival::Constant);
            load_plan(&drive, LoadKind::Sweep, Vec::new(), Vec::new()).expect("each point has its own pace");
        }
        for options in [&["--sweep", "connections"][..], &["--axis", "cold"]] {
            let refused = planned(&[options, &["--arrival", "constant"]].concat());
            assert!(refused.is_err_and(|why| why.to_string().contains("--arrival")), "{options:?}");
        }
    }
}

mod second {
    use straingauge::commands::find::second::command;

    #[test]
    fn the_second_servers_command_is_split_like_a_shell_command() {
        let first = vec!["nginx".to_string()];
        let words = command("nginx -c '/a b/c.conf' -g \"daemon off;\"", &first, false).unwrap();
        assert_eq!(words, ["nginx", "-c", "/a b/c.conf", "-g", "daemon off;"]);
        assert_eq!(command("scale", &first, true).unwrap(), ["straingauge", "scale", "--", "nginx"]);
        for wrong in ["", "  ", "nginx 'open"] {
            assert!(command(wrong, &first, false).is_err(), "{wrong}");
        }
        assert!(command("nginx", &[], false).unwrap_err().to_string().contains("-- SERVER"));
    }
}

mod profile {
    use clap::Parser;
    use straingauge::cli::{Cli, Command};
    use straingauge::commands::profile::refuse_what_does_not_fit;
    use straingauge::failure;

    #[test]
    fn options_that_accounting_does_not_use_are_refused() {
        let said = |options: &str| {
            let words = format!("straingauge profile :1 {options}");
            let Some(Command::Profile(args)) = Cli::parse_from(words.split(' ')).command else { panic!("a profile") };
            refuse_what_does_not_fit(&args).map_err(|error| failure::sentence(&error))
        };
        for fits in ["--accounting exact -d 2s", "-F 199 -d 2s --accounting sampled"] {
            assert_eq!(said(fits), Ok(()), "{fits}");
        }
        for option in ["--frequency 199", "--flame a.svg", "--group a=b", "--export folded=a"] {
            let refused = said(&format!("{option} --accounting exact"));
            assert!(refused.is_err_and(|why| why.contains(option.split(' ').next().unwrap_or_default())), "{option}");
        }
        for option in ["-d 2s", "-F 199", "--group a=b", "--netns-of 1"] {
            let words = format!("straingauge profile --diff a b {option}");
            assert!(Cli::try_parse_from(words.split(' ')).is_err(), "{words}");
        }
    }
}
