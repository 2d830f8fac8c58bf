//! A worker behind ssh: the test's own sshd on loopback, with keys for this test only.

use crate::rig::{free_port, is_root, program, run, skip_unless};
use crate::server::{Kind, Server};
use crate::workers::{count, from};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// sshd's folder for unprivileged processes, required when root starts sshd and for each session. It is kept, because
/// another test may use it.
const EMPTY: &str = "/run/sshd";

/// A running sshd. Dropping it ends it with its sessions.
pub struct Sshd {
    child: Child,
    address: &'static str,
    port: u16,
    keys: TempDir,
}

impl Sshd {
    fn start() -> Sshd {
        Sshd::start_at("127.0.0.1", None)
    }

    /// Starts sshd at an address of a network namespace.
    pub fn start_at(address: &'static str, namespace: Option<&str>) -> Sshd {
        let keys = tempfile::tempdir().expect("a temporary folder");
        for name in ["host", "user"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(keys.path().join(name))
                .status();
            assert!(made.expect("ssh-keygen runs").success());
        }
        let (port, at) = (free_port(), keys.path().display());
        let config = format!(
            "Port {port}\nListenAddress {address}\nHostKey {at}/host\nAuthorizedKeysFile {at}/user.pub\nPidFile none\n\
             AuthenticationMethods publickey\nPermitRootLogin prohibit-password\nStrictModes no\nUsePAM no\n"
        );
        std::fs::write(keys.path().join("config"), config).expect("a file in a temporary folder");
        if is_root() {
            let _ = std::fs::create_dir(EMPTY);
        }
        // sshd needs an absolute path, because it starts itself again for each session.
        let sshd = program("sshd").expect("was looked for");
        let mut command = Command::new(namespace.map_or(sshd.as_os_str(), |_| "ip".as_ref()));
        if let Some(name) = namespace {
            command.args(["netns", "exec", name]).arg(&sshd);
        }
        let child = command
            .args(["-D", "-e", "-f"])
            .arg(keys.path().join("config"))
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(keys.path().join("log")).expect("a file in a temporary folder"))
            .process_group(0)
            .spawn()
            .expect("sshd runs");
        let mut sshd = Sshd { child, address, port, keys };
        let until = Instant::now() + Duration::from_secs(60);
        while !sshd.log().contains("Server listening") {
            let is_gone = matches!(sshd.child.try_wait(), Ok(Some(_)));
            assert!(!is_gone && Instant::now() < until, "sshd does not accept: {}", sshd.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        sshd
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.keys.path().join("log")).unwrap_or_default()
    }

    /// The value that a user types for `--client`.
    pub fn client(&self, remote: &str) -> String {
        let (at, address, port) = (self.keys.path().display(), self.address, self.port);
        format!(
            "ssh -F none -i {at}/user -p {port} -o IdentitiesOnly=yes -o UserKnownHostsFile={at}/known \
             -o StrictHostKeyChecking=accept-new -o BatchMode=yes {address} {remote}"
        )
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // SAFETY: kill takes no pointers; the group belongs to a child that this process started as its leader.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

pub fn missing() -> Option<&'static str> {
    match (program("sshd"), program("ssh").and(program("ssh-keygen"))) {
        (None, _) => Some("sshd is not installed (apt-get install openssh-server)"),
        (_, None) => Some("ssh is not installed (apt-get install openssh-client)"),
        _ => None,
    }
}

fn workers_of(keys: &Path) -> Vec<i32> {
    // The remote command line contains the folder of the keys as a word that the shell ignores.
    crate::rig::processes_of(keys)
}

#[test]
fn two_workers_over_ssh_match_the_servers_log_and_leave_no_remains() {
    skip_unless!(missing().is_none(), "{}", missing().unwrap_or_default());
    if let Some(why) = Kind::Nginx.missing() {
        return crate::rig::skipped(&why);
    }
    let (sshd, server) = (Sshd::start(), Server::start(Kind::Nginx));
    let client = sshd.client(&format!("{} load --worker", env!("CARGO_BIN_EXE_straingauge")));
    let url = server.url("1k.bin");
    let said = run(&mut from(&[&client, &client], &[&url, "--connections", "4", "--duration", "500ms"]));
    assert_eq!(said.code, Some(0), "{}\n{}\n{}", said.out, said.err, sshd.log());
    let json = said.json();
    let (ok, unfinished) = (count(&json, "ok"), count(&json, "unfinished"));
    let logged = server.end_and_read_log().iter().filter(|line| line.status == 200).count() as u64;
    assert!(
        ok > 0 && (ok..=ok + unfinished).contains(&logged),
        "{logged} logged, {ok} counted, {unfinished} unfinished"
    );
    for number in 1..=2 {
        let bound = &json["point"]["figures"][format!("worker.{number}.clock_uncertainty_us")]["value"];
        assert!(bound.as_f64().unwrap() > 0.0, "{json:#}");
    }
    let keys = sshd.keys.path().to_path_buf();
    drop(sshd);
    assert!(workers_of(&keys).is_empty());
}

#[test]
fn an_unknown_ssh_key_is_reported_in_one_sentence() {
    skip_unless!(missing().is_none(), "{}", missing().unwrap_or_default());
    let sshd = Sshd::start();
    std::fs::write(sshd.keys.path().join("user.pub"), "").expect("a file in a temporary folder");
    let client = sshd.client("straingauge load --worker");
    let said = run(&mut from(&[&client], &["http://127.0.0.1:9/", "--connections", "4"]));
    said.exits_with(1).complains_of(&["client 1 (ssh ", "cannot be used", "exit status: 255"]);
}

#[test]
fn a_machine_of_another_architecture_is_reported_in_one_sentence() {
    let folder = crate::rig::open_dir();
    let path = |name: &str| folder.path().join(name);
    // An ELF executable for aarch64 (machine 183), which cannot run here.
    let header = [&b"\x7fELF\x02\x01\x01"[..], &[0; 9], &[2, 0, 183, 0, 1, 0, 0, 0], &[0; 40]].concat();
    std::fs::write(path("straingauge"), header).expect("a file in a temporary folder");
    std::fs::write(path("ssh"), "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").expect("a file");
    for name in ["straingauge", "ssh"] {
        std::fs::set_permissions(path(name), std::fs::Permissions::from_mode(0o755)).expect("it is this test's own");
    }
    let [ssh, there] = ["ssh", "straingauge"].map(|name| path(name).display().to_string());
    let cannot_run = "straingauge on that machine cannot be executed";
    let words = ["cannot be used", "exit status: 126", cannot_run, "built for that machine"];
    let client = format!("{ssh} c1 {there} load --worker");
    run(&mut from(&[&client], &["http://127.0.0.1:9/"])).exits_with(1).complains_of(&words);
    let mut watched = crate::rig::straingauge(["load", "http://127.0.0.1:9/", "--quiet", "--watch-with"]);
    run(watched.arg(format!("{ssh} c1 {there} watch --worker :9"))).exits_with(1).complains_of(&words);
}

#[test]
fn a_server_is_started_watched_and_stopped_over_ssh() {
    skip_unless!(missing().is_none(), "{}", missing().unwrap_or_default());
    if let Some(why) = Kind::Nginx.missing() {
        return crate::rig::skipped(&why);
    }
    let (sshd, state, port) = (Sshd::start(), crate::rig::open_dir(), free_port());
    let folder = Path::new(env!("CARGO_BIN_EXE_straingauge")).parent().expect("it lies in a folder").display();
    let elsewhere = sshd.client(&format!("PATH={folder}:/usr/sbin:/usr/bin:/bin"));
    let url = format!("http://127.0.0.1:{port}/1k.bin");
    let mut command = crate::rig::straingauge(["find", &url, "--server-with", &elsewhere, "--budget", "5s", "--json"]);
    command.args(["--quiet", "--sweep", "connections", "--max-connections", "4", "--server-timeout", "30s", "--out"]);
    command.arg(state.path().join("run")).arg("--");
    // A word that a shell would split must arrive unchanged.
    let server = crate::server::serve_words(Kind::Nginx, port, &state.path().join("state"), "127.0.0.1");
    let said = run(command.args(["env", "A=it's \"one\" word; exit 7"]).args(server));
    assert_eq!(said.code, Some(0), "{}\n{}\n{}", said.out, said.err, sshd.log());
    let points = crate::rig::points(&state.path().join("run"));
    assert!(!points.is_empty());
    for point in points {
        let cpu = &point["figures"]["server.cpu_us_per_request"]["value"];
        assert!(cpu.as_f64().is_some_and(|us| us > 0.0), "{point:#}");
    }
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "it lives on");
}
