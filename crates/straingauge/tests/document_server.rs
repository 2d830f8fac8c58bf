//! nginx with the documents of `straingauge files`, and a log that distinguishes connections.

use crate::rig::{free_port, open_dir, program, run, straingauge};
use std::collections::BTreeMap;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A response in nginx's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// nginx's number of the connection.
    pub connection: u64,
    pub status: u16,
    pub body_bytes: u64,
    pub method: String,
    /// The target as it was received.
    pub target: Vec<u8>,
}

/// A running nginx. Dropping it ends it and removes its files.
pub struct DocumentServer {
    child: Child,
    pub port: u16,
    http_2_port: u16,
    state: TempDir,
}

impl DocumentServer {
    /// Why nginx cannot run here, if so.
    pub fn missing() -> Option<String> {
        program("nginx").is_none().then(|| "nginx is not installed (apt-get install nginx)".to_string())
    }

    /// Makes documents by `straingauge files` with these options, and serves them as docs/workloads.md describes.
    #[track_caller]
    pub fn start(files: &[&str]) -> DocumentServer {
        DocumentServer::start_at(files, "127.0.0.1", None)
    }

    /// Like [`DocumentServer::start`], on another address and perhaps in a network namespace.
    #[track_caller]
    pub fn start_at(files: &[&str], address: &str, namespace: Option<&str>) -> DocumentServer {
        let state = open_dir();
        let (port, http_2_port) = (free_port(), free_port());
        let documents = state.path().join("files");
        let made = ["files", "--quiet", "--json", "--into", documents.to_str().expect("temporary paths are text")];
        run(straingauge(made).args(files)).exits_with(0);
        let (root, at) = (documents.display(), state.path().display());
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|name| format!("{name}_temp_path {at}/{name};\n"))
            .collect();
        // The server must not end a session of the log, however long it is.
        let configuration = format!(
            "daemon off;\nmaster_process off;\npid {at}/pid;\nerror_log {at}/error.log crit;\n\
             worker_rlimit_nofile 8192;\nevents {{ worker_connections 4096; }}\nhttp {{\n{temporary}\
             log_format replay escape=none '$connection $status $body_bytes_sent $request_method $request_uri';\n\
             access_log {at}/access.log replay;\nkeepalive_requests 1000000;\nkeepalive_timeout 3600;\nsendfile on;\n\
             default_type text/plain;\ninclude {root}/nginx-map.conf;\nserver {{\nlisten {address}:{port} \
             backlog=4096;\nlisten {address}:{http_2_port} http2;\n\
             merge_slashes off;\nlocation / {{ root {root}/root; try_files $straingauge_file $uri/ =404; }}\n}}\n}}\n"
        );
        let path = state.path().join("nginx.conf");
        std::fs::write(&path, configuration).expect("a file in a temporary folder");
        let nginx = program("nginx").expect("checked by the caller");
        let mut command = Command::new(namespace.map_or(nginx.as_os_str(), |_| "ip".as_ref()));
        if let Some(name) = namespace {
            command.args(["netns", "exec", name]).arg(&nginx);
        }
        command.args(["-e", "stderr", "-c"]).arg(&path).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.process_group(0).spawn().expect("nginx runs");
        let mut server = DocumentServer { child, port, http_2_port, state };
        let started = Instant::now();
        // nginx writes its process id once it listens.
        let is_there = |server: &DocumentServer| match namespace {
            Some(_) => server.state.path().join("pid").is_file(),
            None => TcpStream::connect((address, port)).is_ok(),
        };
        while !is_there(&server) {
            assert!(server.child.try_wait().expect("our own child").is_none(), "nginx refused its configuration");
            assert!(started.elapsed() < Duration::from_secs(60), "nginx does not accept");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }

    /// URL of the server's root.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// URL of the server's root over HTTP/2.
    pub fn http_2_url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.http_2_port)
    }

    /// Size of each document by its target, from the manifest.
    pub fn sizes(&self) -> BTreeMap<Vec<u8>, u64> {
        let manifest = std::fs::read(self.files().join("manifest.tsv")).expect("the manifest is there");
        manifest
            .split(|byte| *byte == b'\n')
            .skip(2)
            .filter_map(|row| {
                let mut fields = row.split(|byte| *byte == b'\t');
                let target = fields.next()?.to_vec();
                let bytes = std::str::from_utf8(fields.nth(1)?).ok()?.parse().ok()?;
                Some((target, bytes))
            })
            .collect()
    }

    /// The document tree.
    pub fn files(&self) -> PathBuf {
        self.state.path().join("files")
    }

    /// Number of responses in the log so far.
    pub fn answered(&self) -> usize {
        answers(&self.state.path().join("access.log")).len()
    }

    /// Ends nginx politely, so that it writes its log, and reads the log.
    pub fn end_and_read_log(mut self) -> Vec<Answer> {
        // SAFETY: kill takes no pointers; the child is ours and not yet waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGQUIT) };
        let started = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) {
            assert!(started.elapsed() < Duration::from_secs(60), "nginx does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        answers(&self.state.path().join("access.log"))
    }
}

impl Drop for DocumentServer {
    fn drop(&mut self) {
        // SAFETY: kill takes no pointers; the group belongs to a child that this process started as its leader.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

fn answers(path: &Path) -> Vec<Answer> {
    let log = std::fs::read(path).expect("the access log is there");
    let answer = |line: &[u8]| {
        let mut words = line.splitn(5, |byte| *byte == b' ');
        let mut text = || std::str::from_utf8(words.next()?).ok();
        Some(Answer {
            connection: text()?.parse().ok()?,
            status: text()?.parse().ok()?,
            body_bytes: text()?.parse().ok()?,
            method: text()?.to_string(),
            target: words.next()?.to_vec(),
        })
    };
    log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).filter_map(answer).collect()
}
