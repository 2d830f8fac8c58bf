//! The testbed's servers, started for one test on a separate port, with their access logs.

use crate::rig::{free_port, open_dir, program, repository};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server of the testbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Nginx,
    Lighttpd,
    Apache,
    Haproxy,
    Python,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Nginx => "nginx",
            Kind::Lighttpd => "lighttpd",
            Kind::Apache => "apache",
            Kind::Haproxy => "haproxy",
            Kind::Python => "python",
        }
    }

    /// Why the server cannot run here, if so.
    pub fn missing(self) -> Option<String> {
        let (name, package) = match self {
            Kind::Nginx => ("nginx", "nginx"),
            Kind::Lighttpd => ("lighttpd", "lighttpd"),
            Kind::Apache => ("apache2", "apache2-bin"),
            Kind::Haproxy => ("haproxy", "haproxy"),
            Kind::Python => ("python3", "python3"),
        };
        match program(name) {
            Some(_) => None,
            None => Some(format!("{name} is not installed (apt-get install {package})")),
        }
    }
}

/// The servers with known behaviour, built once; `None` without a C compiler.
pub fn truth() -> Option<PathBuf> {
    program("cc")?;
    let folder = repository().join("testbed/truth");
    // Tests of one run start at once, so the build is locked.
    let mut make = Command::new("flock");
    let built = make.arg(&folder).args(["make", "-s", "CC=cc", "-C"]).arg(&folder).arg("build/truth").output();
    let built = built.expect("flock runs make");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(folder.join("build/truth"))
}

/// One response in a server's access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Logged {
    pub status: u16,
    /// Bytes sent according to the server, including the header.
    pub sent_bytes: u64,
}

/// A running server. Dropping it ends it and removes its files.
pub struct Server {
    child: Child,
    pub port: u16,
    address: IpAddr,
    kind: Kind,
    state: TempDir,
}

impl Server {
    /// Starts the server with an access log, and waits until it accepts connections.
    #[track_caller]
    pub fn start(kind: Kind) -> Server {
        Server::start_on(kind, IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// Starts the server on another address of the loopback interface.
    #[track_caller]
    pub fn start_on(kind: Kind, address: IpAddr) -> Server {
        let state = open_dir();
        let port = free_port();
        let mut command = serve(kind, port, state.path());
        command.args(["--address", &address.to_string()]);
        command.arg("--access-log").arg(state.path().join("access.log"));
        let output = std::fs::File::create(state.path().join("output")).expect("a file in a temporary folder");
        command.stdin(Stdio::null()).stdout(output.try_clone().expect("a second handle")).stderr(output);
        command.process_group(0);
        let child = command.spawn().expect("sh runs testbed/serve");
        let mut server = Server { child, port, address, kind, state };
        let started = Instant::now();
        while TcpStream::connect((address, port)).is_err() {
            let is_gone = matches!(server.child.try_wait(), Ok(Some(_)));
            let said = std::fs::read_to_string(server.state.path().join("output")).unwrap_or_default();
            assert!(!is_gone, "{kind:?} ended while starting: {said}");
            assert!(started.elapsed() < Duration::from_secs(60), "{kind:?} does not accept: {said}");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    /// The address of a document.
    pub fn url(&self, document: &str) -> String {
        format!("http://{}/{document}", SocketAddr::new(self.address, self.port))
    }

    /// HAProxy's own count of sent bytes, read before its answer adds to it.
    pub fn haproxy_bytes_out(&self) -> u64 {
        let mut socket =
            UnixStream::connect(self.state.path().join("haproxy.sock")).expect("HAProxy's statistics socket");
        socket.write_all(b"show info\n").expect("HAProxy reads its statistics socket");
        let mut text = String::new();
        socket.read_to_string(&mut text).expect("HAProxy answers on its statistics socket");
        let line = text.lines().find_map(|line| line.strip_prefix("TotalBytesOut: ")).expect("TotalBytesOut is listed");
        line.trim().parse().expect("TotalBytesOut is a number")
    }

    /// Ends the server politely, so that it writes its log, and reads the log.
    pub fn end_and_read_log(mut self) -> Vec<Logged> {
        // nginx finishes its requests on QUIT and drops them on TERM; HAProxy finishes them on USR1.
        let signal = match self.kind {
            Kind::Nginx => libc::SIGQUIT,
            Kind::Haproxy => libc::SIGUSR1,
            _ => libc::SIGTERM,
        };
        // SAFETY: kill takes no pointers; the child is ours and not yet waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
        let started = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            assert!(started.elapsed() < Duration::from_secs(60), "{:?} does not end", self.kind);
            std::thread::sleep(Duration::from_millis(5));
        }
        let text = std::fs::read_to_string(self.state.path().join("access.log")).expect("the access log is there");
        text.lines().filter_map(parse).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // SAFETY: kill takes no pointers; the group belongs to a child that this process started as its leader.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

/// The command `testbed/serve`, which straingauge may start itself.
pub fn serve(kind: Kind, port: u16, state: &Path) -> Command {
    let mut command = Command::new(repository().join("testbed/serve"));
    command.arg(kind.word()).args(["--port", &port.to_string(), "--state"]).arg(state);
    command
}

/// The command `testbed/serve` as words of a command line.
pub fn serve_words(kind: Kind, port: u16, state: &Path, address: &str) -> Vec<String> {
    let mut command = serve(kind, port, state);
    command.args(["--address", address]);
    let program: PathBuf = command.get_program().into();
    std::iter::once(program.as_os_str())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect()
}

fn parse(line: &str) -> Option<Logged> {
    let mut words = line.split_ascii_whitespace();
    let status = words.next()?.parse().ok()?;
    let sent_bytes = words.next()?.parse().ok()?;
    Some(Logged { status, sent_bytes })
}
