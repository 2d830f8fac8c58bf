//! Servers for the tests, and the reasons why a test does not run.

#[path = "../../../../testbed/free_port.rs"]
mod free_port;

use crate::client::Count;
pub use free_port::free_port;
use observe::watch::{WatchOptions, Watcher};
use record::watch::{Mode, Reading};
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// A server of the testbed in a separate session.
pub struct Server {
    pub port: u16,
    child: Child,
    state: tempfile::TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Server {
    /// Starts a server; `None`, with a message, if its program is missing.
    pub fn start(test: &str, name: &str) -> Option<Self> {
        Server::start_on(test, name, free_port())
    }

    pub fn start_on(test: &str, name: &str, port: u16) -> Option<Self> {
        Server::start_with(test, name, port, &[])
    }

    /// Starts a server with more options of testbed/serve.
    pub fn start_with(test: &str, name: &str, port: u16, more: &[&str]) -> Option<Self> {
        let state = folder();
        let mut command = Command::new("setsid");
        command
            .arg(root().join("testbed/serve"))
            .args([name, "--port", &port.to_string(), "--state"])
            .arg(state.path())
            .args(more);
        Server::wait_for(test, name, port, &mut command, state)
    }

    /// Starts a server by its own command line.
    pub fn run(test: &str, name: &str, port: u16, command: &mut Command) -> Option<Self> {
        let mut in_session = Command::new("setsid");
        in_session.arg(command.get_program()).args(command.get_args());
        Server::wait_for(test, name, port, &mut in_session, folder())
    }

    /// Two nginx servers, each with a listening socket on the same port.
    pub fn reuseport_pair(test: &str) -> Option<Self> {
        let (port, state) = (free_port(), folder());
        let script = root().join("testbed/serve");
        let made = Command::new(&script)
            .args(["nginx", "--port", &port.to_string(), "--print", "--state"])
            .arg(state.path())
            .output()
            .expect("the testbed prints");
        if !made.status.success() {
            eprintln!("SKIPPED {test}: {}", String::from_utf8_lossy(&made.stderr).trim());
            return None;
        }
        let path = state.path().join("nginx.conf");
        let text = std::fs::read_to_string(&path).expect("a configuration");
        let listen = text.lines().find(|line| line.trim_start().starts_with("listen ")).expect("a listen line");
        let shared = listen.replace(';', " reuseport;");
        let text = text.replace(listen, &shared).replace("worker_processes 1;", "worker_processes 2;");
        std::fs::write(&path, text).expect("written");
        let mut command = Command::new("setsid");
        command.args(String::from_utf8_lossy(&made.stdout).split_whitespace());
        Server::wait_for(test, "nginx", port, &mut command, state)
    }

    fn wait_for(test: &str, name: &str, port: u16, command: &mut Command, state: tempfile::TempDir) -> Option<Self> {
        let words = std::fs::File::create(state.path().join("words")).expect("a file in our own folder");
        let Ok(child) = command.stdout(Stdio::null()).stderr(words).spawn() else {
            eprintln!("SKIPPED {test}: setsid is missing");
            return None;
        };
        let mut server = Server { port, child, state };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if let Ok(Some(status)) = server.child.try_wait() {
                let words = std::fs::read_to_string(server.state.path().join("words")).unwrap_or_default();
                let last = words.lines().last().unwrap_or("it said nothing");
                eprintln!("SKIPPED {test}: {name} does not start here ({status}): {last}");
                return None;
            }
            assert!(Instant::now() < deadline, "{name} does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        // Wait until the server's first connection, made by this loop, has ended before counting.
        std::thread::sleep(Duration::from_millis(100));
        Some(server)
    }

    /// The folder that it serves.
    pub fn documents(&self) -> PathBuf {
        self.state.path().join("documents")
    }

    pub fn kill(&mut self) {
        let session = self.child.id() as i32;
        for pid in session_of(session) {
            // SAFETY: no memory is passed; the processes belong to the session that this test started.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Every process of a session.
fn session_of(session: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        // SAFETY: no memory is passed.
        .filter(|pid| unsafe { libc::getsid(*pid) } == session)
        .collect()
}

/// A folder that a server running as `nobody` may enter.
fn folder() -> tempfile::TempDir {
    let state = tempfile::Builder::new().prefix("straingauge-watch-").tempdir().expect("a folder");
    std::fs::set_permissions(state.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("its mode");
    state
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A watch with programs; `None`, with a message, if they may not be loaded.
pub fn watch(test: &str, options: WatchOptions) -> Option<Watcher> {
    let watcher = Watcher::start(options).expect("the unprivileged part works");
    if let Some(error) = watcher.why_no_programs() {
        // If tests run as root, a refused program is a failure, not a reason to skip. SAFETY: no memory is passed.
        assert!(unsafe { libc::geteuid() } != 0, "the programs were refused: {error}");
        eprintln!("SKIPPED {test}: {error}");
        return None;
    }
    Some(watcher)
}

pub fn counting(port: u16) -> WatchOptions {
    WatchOptions { mode: Mode::Counts, ..WatchOptions::of_port(port) }
}

/// The counts of a reading, as the client would count them.
pub fn counted(reading: &Reading) -> Count {
    let all = reading.all();
    Count { requests: all.requests, bytes_sent: all.bytes_in, bytes_received: all.bytes_out }
}

/// Asserts that a scan at rest shows the states from transitions. On a busy machine, rest takes a while to come.
pub fn check_states(watcher: &mut Watcher) {
    let mut before = watcher.states();
    for _ in 0..30 {
        settle(watcher);
        let now = watcher.states();
        if now == before {
            break;
        }
        before = now;
    }
    watcher.reconcile();
    let connections = watcher.read().connections;
    assert!(connections.reconciliation.unwrap().scans >= 2, "{connections:?}");
    assert_eq!(connections.reconciliation.unwrap().last_difference, 0, "a scan shows other states: {connections:?}");
}

/// Waits until acknowledgements have arrived and servers have closed.
pub fn settle(watcher: &mut Watcher) {
    let until = record::time::monotonic_ns() + 300_000_000;
    watcher.wait_until(until, &AtomicBool::new(false));
}

/// Connects to a port of this machine from this client port, which an older connection may still use.
pub fn connect_from(port: u16, server: u16) -> TcpStream {
    use rustix::net::{AddressFamily, SocketAddrV4, SocketFlags, SocketType, bind, connect, socket_with, sockopt};
    let began = Instant::now();
    loop {
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).expect("a socket");
        sockopt::set_socket_reuseaddr(&socket, true).expect("an option");
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).expect("the port is free");
        match connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, server)) {
            // The last acknowledgement of the previous connection is still on its way.
            Err(rustix::io::Errno::ADDRNOTAVAIL) if began.elapsed() < Duration::from_secs(20) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            connected => {
                connected.expect("the server accepts");
                return socket.into();
            }
        }
    }
}
