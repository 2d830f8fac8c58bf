//! `straingauge watch` and `doctor` with limited means: no rights, two capabilities, no type information, no BPF.
//! Available figures are shown, the others have a reason, and no unmeasured figure is 0.

use crate::rig::{
    Running, Said, free_port, is_root, member, needs_server, open_dir, program, run, skip_unless, straingauge,
};
use crate::server::{Kind, Server};
use serde_json::Value;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user `nobody`, who owns no files here.
const NOBODY: &str = "65534";

/// A copy of the program that every user may run: this repository may be in a folder that other users cannot enter.
pub fn open_copy(folder: &Path) -> PathBuf {
    let (from, to) = (Path::new(env!("CARGO_BIN_EXE_straingauge")), folder.join("straingauge"));
    if std::fs::hard_link(from, &to).is_err() {
        std::fs::copy(from, &to).expect("a copy in a temporary folder");
    }
    to
}

/// The program as user `nobody` with only these capabilities.
pub fn as_nobody(program: &Path, capabilities: &[&str], arguments: &[&str]) -> Command {
    let mut sets = String::from("-all");
    capabilities.iter().for_each(|capability| sets += &format!(",+{capability}"));
    let mut command = Command::new("setpriv");
    command.args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"]);
    command.args([format!("--inh-caps={sets}"), format!("--ambient-caps={sets}")]);
    command.arg(program).args(arguments);
    command
}

/// JSON lines of a short watch.
fn lines(said: &Said) -> Vec<Value> {
    said.out.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Asserts the output of a watch that may not count requests: the states, and the reason.
#[track_caller]
fn shows_states_and_says(said: &Said, words: &[&str]) {
    let lines = lines(said);
    let last = lines.last().expect("a reading");
    assert_eq!(last["totals"]["connections"]["states"]["listen"], 1, "{last:#}");
    assert_eq!(last["totals"]["classes"], serde_json::json!([]), "not counted, and not 0 either");
    // Figures that need the programs are absent, not 0.
    for (part, names) in [
        ("/totals", &["losses", "open", "phases/0", "traffic"][..]),
        (
            "/totals/connections",
            &[
                "accepted",
                "closed",
                "aborted",
                "retransmits",
                "resets_sent",
                "closed_bytes_received",
                "connects",
                "reconciliation",
            ],
        ),
        ("/totals/cpu", &["requests_ns", "connect_ns", "between_ns", "elsewhere_ns"]),
        ("/totals/cost", &["added_ns", "added_ratio", "receive_event_ns", "windows"]),
        ("/rates", &["all", "accepted_per_sec", "closed_per_sec", "request_cpus"]),
    ] {
        for name in names {
            let value = last.pointer(&format!("{part}/{name}"));
            assert!(value.is_none_or(Value::is_null), "{part}/{name} is {value:?}");
        }
    }
    let doubts: Vec<&str> =
        last["doubts"].as_array().expect("a list").iter().filter_map(|doubt| doubt["what"].as_str()).collect();
    let why = doubts.iter().find(|what| what.contains("requests are not counted")).expect("it is said");
    for word in words {
        assert!(why.contains(word), "'{word}' is not in: {why}");
    }
}

const SHORT: [&str; 5] = ["--duration", "400ms", "--interval", "200ms", "--json"];

fn watch_arguments(port: &str) -> Vec<&str> {
    ["watch", port].into_iter().chain(SHORT).collect()
}

#[test]
fn an_unprivileged_user_sees_states_and_the_missing_privileges() {
    needs_server!(Kind::Nginx);
    skip_unless!(is_root(), "only root can become nobody");
    skip_unless!(program("setpriv").is_some(), "setpriv is not installed (apt-get install util-linux)");
    let (server, dir) = (Server::start(Kind::Nginx), open_dir());
    let copy = open_copy(dir.path());
    let port = format!(":{}", server.port);
    let said = run(&mut as_nobody(&copy, &[], &watch_arguments(&port))).exits_with(0);
    shows_states_and_says(&said, &["not permitted", "cap_bpf"]);
    // It depends on the machine whether `nobody` may read nginx's processes, whose worker is also `nobody`.
    let last = lines(&said).pop().expect("a reading");
    let is_unseen = last["doubts"].to_string().contains("the server's processes are not watched");
    for (part, name) in [("totals", "cpu"), ("rates", "server_cpus")] {
        assert_eq!(last[part][name].is_null(), is_unseen, "{part}.{name}: {last:#}");
    }
    let screen = run(&mut as_nobody(&copy, &[], &["watch", &port, "--duration", "300ms"])).exits_with(0).out;
    for words in ["connections only", "accepted not measured", "closed not measured", "requests are not counted"] {
        assert!(screen.contains(words), "'{words}' is not in:\n{screen}");
    }
    let doctor = run(&mut as_nobody(&copy, &[], &["doctor"])).exits_with(0).out;
    for words in ["no   BPF ", "no   requests of a server", "cap_bpf"] {
        assert!(doctor.contains(words), "'{words}' is not in:\n{doctor}");
    }
}

#[test]
fn an_unprivileged_users_metrics_contain_only_measured_figures() {
    needs_server!(Kind::Nginx);
    skip_unless!(is_root(), "only root can become nobody");
    skip_unless!(program("setpriv").is_some(), "setpriv is not installed (apt-get install util-linux)");
    let (server, dir) = (Server::start(Kind::Nginx), open_dir());
    let copy = open_copy(dir.path());
    let (port, address) = (format!(":{}", server.port), format!("127.0.0.1:{}", free_port()));
    let words = ["watch", &port, "--metrics", &address, "--interval", "100ms"];
    let mut running = Running::start(&mut as_nobody(&copy, &[], &words));
    let get = || {
        let mut page = String::new();
        let Ok(mut stream) = TcpStream::connect(&address) else { return page };
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").and_then(|()| stream.read_to_string(&mut page));
        page
    };
    running.wait_until("a page", || get().contains("straingauge_connections{"));
    let page = get();
    running.signal(libc::SIGINT);
    running.wait().exits_with(0);
    let counters: Vec<&str> = page.lines().filter(|line| !line.starts_with('#') && line.contains("_total{")).collect();
    let are_measured = |line: &&str| {
        ["watch_own_cpu", "server_cpu", "port_drops", "listen_overflows"]
            .iter()
            .any(|name| line.starts_with(&format!("straingauge_{name}")))
    };
    assert!(!counters.is_empty() && counters.iter().all(are_measured), "{counters:#?}");
}

#[test]
fn two_capabilities_are_enough_to_count_every_request() {
    needs_server!(Kind::Nginx);
    skip_unless!(is_root(), "only root can give capabilities away");
    skip_unless!(program("setpriv").is_some(), "setpriv is not installed (apt-get install util-linux)");
    let (server, dir) = (Server::start(Kind::Nginx), open_dir());
    let copy = open_copy(dir.path());
    let capabilities = ["bpf", "perfmon"];
    let doctor = run(&mut as_nobody(&copy, &capabilities, &["doctor"])).exits_with(0).out;
    skip_unless!(
        doctor.contains("yes  requests of a server"),
        "not here: {}",
        line_of(&doctor, "requests of a server")
    );
    let port = format!(":{}", server.port);
    let words = ["watch", &port, "--json", "--interval", "200ms", "--detail", "exact"];
    let mut running = Running::start(&mut as_nobody(&copy, &capabilities, &words));
    let mut load = straingauge(["load", &server.url("1k.bin"), "--warmup", "0s", "--duration", "500ms"]);
    let printed = |running: &Running| running.printed().lines().count();
    // The watch has begun when it has printed a reading, and has seen everything when it has printed two after the
    // load.
    while printed(&running) == 0 && !running.has_ended() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let counted = run(load.args(["--connections", "4", "--json", "--quiet"])).exits_with(0).json();
    let before = printed(&running);
    while printed(&running) < before + 2 && !running.has_ended() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    running.signal(libc::SIGINT);
    let said = running.wait().exits_with(0);
    let lines = lines(&said);
    let last = lines.last().expect("a reading");
    let requests: u64 = last["totals"]["classes"]
        .as_array()
        .expect("classes")
        .iter()
        .filter_map(|class| class["requests"].as_u64())
        .sum();
    let (ok, sent) = (member(&counted, "ok").as_u64().unwrap(), member(&counted, "sent").as_u64().unwrap());
    assert!((ok..=sent).contains(&requests), "{requests} counted, {ok} answered, {sent} sent");
    let phased: u64 = last["totals"]["phases"]
        .as_array()
        .expect("phases")
        .iter()
        .filter_map(|class| class["requests"].as_u64())
        .sum();
    assert!(phased > 0, "phases need no more than that: {last:#}");
    assert_eq!(last["doubts"], serde_json::json!([]));
    // nginx's worker also runs as `nobody`, so its socket and CPU time are visible.
    assert!(last["totals"]["cpu"]["group_ns"].as_u64().unwrap() > 0, "{last:#}");
}

fn line_of<'a>(text: &'a str, words: &str) -> &'a str {
    text.lines().find(|line| line.contains(words)).unwrap_or("nothing is said")
}

/// The program with the kernel's type information hidden.
pub fn without_type_information(arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    let line = "mount -t tmpfs none /sys/kernel/btf && exec \"$@\"";
    command.args(["--mount", "sh", "-c", line, "sh", env!("CARGO_BIN_EXE_straingauge")]).args(arguments);
    command
}

#[test]
fn without_type_information_states_and_the_reason_are_shown() {
    needs_server!(Kind::Nginx);
    skip_unless!(is_root(), "only root can hide /sys/kernel/btf");
    skip_unless!(program("unshare").is_some(), "unshare is not installed (apt-get install util-linux)");
    skip_unless!(Path::new("/sys/kernel/btf").is_dir(), "this kernel has no type information anyway");
    let server = Server::start(Kind::Nginx);
    let port = format!(":{}", server.port);
    let said = run(&mut without_type_information(&watch_arguments(&port))).exits_with(0);
    shows_states_and_says(&said, &["type information", "/sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF"]);
    let last = lines(&said).pop().expect("a reading");
    assert!(last["totals"]["cpu"]["processes"].as_u64().unwrap() >= 2, "the processes are seen all the same: {last:#}");
    let doctor = run(&mut without_type_information(&["doctor"])).exits_with(0).out;
    for words in ["no   BTF", "no   requests of a server"] {
        assert!(doctor.contains(words), "'{words}' is not in:\n{doctor}");
    }
}

/// Makes every bpf() call of the command fail with this error, like a container's filter.
pub fn forbid_bpf(command: &mut Command, error: i32) {
    forbid(command, &[(NUMBER, libc::SYS_bpf as u32)], error);
}

/// Offsets of the system call number and its arguments for a filter (`struct seccomp_data`).
const NUMBER: u32 = 0;
const FIRST: u32 = 16;
const THIRD: u32 = 32;

/// Makes those system calls of the command fail that have all these words.
fn forbid(command: &mut Command, words: &[(u32, u32)], error: i32) {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut filter = Vec::new();
    for (place, (offset, word)) in words.iter().enumerate() {
        // Jumps to the last step if the word differs.
        let rest = 2 * (words.len() - place) as u8 - 1;
        filter.extend([step(LOAD_WORD, 0, 0, *offset), step(JUMP_IF_EQUAL, 0, rest, *word)]);
    }
    filter.push(step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | error as u32));
    filter.push(step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    let install = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        // SAFETY: system calls that are allowed between fork and exec; the kernel copies the filter, which is live.
        let refused = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) != 0
        };
        if refused { Err(std::io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(install) };
}

#[test]
fn without_bpf_states_and_the_reason_are_shown() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let port = format!(":{}", server.port);
    for (error, words) in [(libc::EPERM, "not permitted"), (libc::ENOSYS, "Function not implemented")] {
        let arguments: Vec<OsString> = watch_arguments(&port).into_iter().map(Into::into).collect();
        let mut watch = straingauge(arguments);
        forbid_bpf(&mut watch, error);
        shows_states_and_says(&run(&mut watch).exits_with(0), &[words]);
        let mut doctor = straingauge(["doctor"]);
        forbid_bpf(&mut doctor, error);
        let said = run(&mut doctor).exits_with(0).out;
        assert!(said.contains("no   BPF ") && said.contains("no   requests of a server"), "{said}");
    }
}

/// Emulators and some containers have no netlink socket lists.
#[test]
fn requests_are_counted_without_netlinks_socket_lists() {
    needs_server!(Kind::Nginx);
    let server = Server::start(Kind::Nginx);
    let lists =
        [(NUMBER, libc::SYS_socket as u32), (FIRST, libc::AF_NETLINK as u32), (THIRD, libc::NETLINK_SOCK_DIAG as u32)];
    let port = format!(":{}", server.port);
    let arguments: Vec<OsString> = watch_arguments(&port).into_iter().map(Into::into).collect();
    let mut watch = straingauge(arguments);
    forbid(&mut watch, &lists, libc::EPROTONOSUPPORT);
    let last = lines(&run(&mut watch).exits_with(0)).pop().expect("a reading");
    assert!(last["totals"]["cpu"]["processes"].as_u64().unwrap() >= 2, "{last:#}");
    let connections = &last["totals"]["connections"];
    assert!(connections["accept_queue"].is_u64() && connections["accept_queue_limit"].is_null(), "{connections:#}");
    let mut load = straingauge(["load", &server.url("1k.bin"), "-d", "300ms", "--json", "--quiet"]);
    forbid(&mut load, &lists, libc::EPROTONOSUPPORT);
    let said = run(&mut load).exits_with(0).json();
    let figure = |name: &str| said["point"]["figures"][name].clone();
    assert!(figure("server.cpus_used")["value"].is_number(), "{said:#}");
}
