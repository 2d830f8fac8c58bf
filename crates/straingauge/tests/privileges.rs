//! Each command with the rights in docs/install.md: what `doctor` reports as available works; what it reports as
//! missing is refused in one sentence, or left out with a reason.

use crate::rig::{
    Said, free_port, is_root, long_run, member, needs_server, open_dir, program, run, skip_unless, straingauge,
};
use crate::server::{Kind, Server, serve_words};
use crate::watch_degraded::{as_nobody, forbid_bpf, open_copy, without_type_information};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The rights of a process.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Rights {
    Root,
    TwoCapabilities,
    NetworkAdministrator,
    AllButNetworkAdministrator,
    Nobody,
    NoTypeInformation,
    NoBpf,
}

impl Rights {
    const SOME: [Rights; 3] = [Rights::TwoCapabilities, Rights::Nobody, Rights::NoBpf];
    const OTHERS: [Rights; 4] =
        [Rights::Root, Rights::NetworkAdministrator, Rights::AllButNetworkAdministrator, Rights::NoTypeInformation];

    fn command(self, copy: &Path, arguments: &[&str]) -> Command {
        match self {
            Rights::Root => straingauge(arguments),
            Rights::TwoCapabilities => as_nobody(copy, &["bpf", "perfmon"], arguments),
            Rights::NetworkAdministrator => as_nobody(copy, &["net_admin"], arguments),
            Rights::AllButNetworkAdministrator => {
                let mut command = Command::new("setpriv");
                command.args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]).arg(copy).args(arguments);
                command
            }
            Rights::Nobody => as_nobody(copy, &[], arguments),
            Rights::NoTypeInformation => without_type_information(arguments),
            Rights::NoBpf => {
                let mut command = straingauge(arguments);
                forbid_bpf(&mut command, libc::EPERM);
                command
            }
        }
    }
}

/// Asserts that a command worked, or was refused in one sentence.
#[track_caller]
fn works_or_is_refused(said: &Said, works: bool, what: &str) {
    if works {
        assert_eq!(said.code, Some(0), "{what}: doctor says that it works\n{}", said.err);
        return;
    }
    let sentences = said.err.lines().filter(|line| line.starts_with("straingauge: ")).count();
    assert!(said.code == Some(1) && sentences == 1, "{what}: {:?}, {sentences} sentences\n{}", said.code, said.err);
}

#[test]
fn doctor_reports_what_each_command_can_do_at_each_privilege_level() {
    needs_server!(Kind::Nginx);
    skip_unless!(is_root(), "only root can give rights away");
    for tool in ["setpriv", "unshare"] {
        skip_unless!(program(tool).is_some(), "{tool} is not installed (apt-get install util-linux)");
    }
    skip_unless!(Path::new("/sys/kernel/btf").is_dir(), "this kernel has no type information to take away");
    let (server, dir) = (Server::start(Kind::Nginx), open_dir());
    let (copy, port, url) = (open_copy(dir.path()), format!(":{}", server.port), server.url("1k.bin"));
    for rights in Rights::SOME.into_iter().chain(Rights::OTHERS.into_iter().filter(|_| long_run())) {
        let run = |arguments: &[&str]| run(rights.command(&copy, arguments).current_dir("/"));
        let doctor = run(&["doctor", "--json"]).exits_with(0).json();
        let listed = doctor["capabilities"].as_array().expect("a list").iter();
        let there: BTreeMap<&str, bool> =
            listed.filter_map(|one| Some((one["name"].as_str()?, one["is_available"].as_bool()?))).collect();
        let has = |name: &str| *there.get(name).unwrap_or_else(|| panic!("doctor does not list '{name}'"));
        let what = |command: &str| format!("{rights:?}, {command}");

        let watched = run(&["watch", &port, "--duration", "300ms", "--interval", "100ms", "--json"]).exits_with(0);
        let last = watched.out.lines().last().unwrap_or_else(|| panic!("{}", what("watch")));
        let reading: serde_json::Value = serde_json::from_str(last).expect("a line of JSON");
        let counts = reading["totals"]["classes"].as_array().is_some_and(|classes| !classes.is_empty());
        assert_eq!(counts, has("requests of a server"), "{}: {reading:#}", what("watch"));
        let listens = reading["totals"]["connections"]["states"]["listen"] == 1;
        assert_eq!(listens, has("connection states"), "{}: {reading:#}", what("watch"));

        let loaded = run(&["load", &url, "--warmup", "0s", "--duration", "100ms", "--detail", "counts", "--json"]);
        let json = loaded.exits_with(0).json();
        let figures = member(&json, "figures").as_object().expect("figures by name");
        for (name, figure) in figures {
            let is_one =
                figure["value"].is_number() != figure["not_measured"].as_str().is_some_and(|why| !why.is_empty());
            assert!(is_one, "{} {name}: {figure}", what("load"));
        }
        let counted = figures["watch.requests"]["value"].is_number();
        assert_eq!(counted, has("requests of a server"), "{}: {}", what("load"), figures["watch.requests"]);

        works_or_is_refused(&run(&["wan", "--quiet", "--", "true"]), has("network namespaces"), &what("wan"));
        let has_path = has("network namespaces") && (has("netem") || has("TUN devices"));
        works_or_is_refused(&run(&["wan", "--quiet", "--delay", "1ms", "--", "true"]), has_path, &what("wan --delay"));

        // The server has no load, so a sampler finds no sample. Its workers belong to the user without rights.
        let profiled = run(&["profile", &port, "--duration", "200ms"]).exits_with(1);
        let is_sampled = profiled.err.contains("no sample fell");
        assert_eq!(is_sampled, has("sampling of the kernel"), "{}: {}", what("profile"), profiled.err);
        works_or_is_refused(&profiled, false, &what("profile"));
    }
}

#[test]
fn client_and_server_share_loopback_if_namespaces_cannot_be_linked() {
    needs_server!(Kind::Nginx);
    skip_unless!(is_root(), "only root can give rights away");
    skip_unless!(program("setpriv").is_some(), "setpriv is not installed (apt-get install util-linux)");
    let dir = open_dir();
    let copy = open_copy(dir.path());
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/1k.bin");
    let server = serve_words(Kind::Nginx, port, &dir.path().join("state"), "0.0.0.0");
    let load = |more: &[&str]| {
        let words = [&["load", &url, "--warmup", "0s", "--duration", "200ms"], more, &["--"]].concat();
        run(Rights::AllButNetworkAdministrator.command(&copy, &words).args(&server))
    };
    let said = load(&[]).exits_with(0);
    assert!(said.err.contains("share this machine's loopback: separate network namespaces"), "{}", said.err);
    load(&["--isolate", "always"]).exits_with(1).complains_of(&["--isolate always is not possible", "CAP_NET_ADMIN"]);
    load(&["--delay", "1ms"]).exits_with(1).complains_of(&["a wide-area path is not possible", "CAP_NET_ADMIN"]);
}
