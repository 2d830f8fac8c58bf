//! Workers on the nodes of a Ray cluster. A helper (`python3 -m straingauge.fleet`, python/src/straingauge/fleet) starts one on
//! each node and carries its bytes to a Unix socket here; what is said over them is the worker protocol as everywhere.

use super::link::Source;
use super::protocol::{Lines, clean, line};
use crate::cli::RayOptions;
use crate::progress::Progress;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the helper may take to end its workers and leave the cluster.
const LEAVE: Duration = Duration::from_secs(20);
/// What is kept of the helper's errors.
const MAX_COMPLAINT_BYTES: usize = 16 << 10;

/// What the helper is told, as the first line of its input; the end of its input ends it.
#[derive(Debug, Serialize)]
struct Order<'a> {
    /// straingauge for the nodes.
    binary: PathBuf,
    address: Option<&'a str>,
    workers: Option<u64>,
    worker_cpus: f64,
    /// Words before the worker's command.
    prefix: Option<&'a str>,
    /// Words behind it.
    arguments: Vec<String>,
    wait_s: f64,
}

/// What the helper says.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum Said {
    /// What is being done.
    Progress { what: String },
    /// Every worker has a socket.
    Nodes { nodes: Vec<NodeSocket> },
    /// It cannot be done; one sentence.
    Failed { why: String },
}

#[derive(Debug, Deserialize)]
struct NodeSocket {
    name: String,
    socket: PathBuf,
}

/// The helper; dropping it ends the workers and leaves the cluster.
#[derive(Debug)]
pub struct Nodes {
    child: Child,
    input: Option<ChildStdin>,
    /// Where the workers' bytes come and go.
    pub sources: Vec<Source>,
}

impl Nodes {
    /// Starts the helper and waits until there is a worker on each node.
    pub fn start(options: &RayOptions, stop: &AtomicBool, progress: &mut Progress) -> Result<Nodes> {
        let python = options.python.as_deref().unwrap_or(crate::defaults::PYTHON);
        // A group of its own: Ctrl-C is for the driver, which then asks the workers for their results.
        let mut child = Command::new(python)
            .args(["-m", "straingauge.fleet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .with_context(|| {
                format!("cannot start '{python}', which runs the fleet: install Python, or name one with --python")
            })?;
        let stdout = child.stdout.take().expect("was asked for");
        let complaints = keep_tail(child.stderr.take().expect("was asked for"));
        let input = child.stdin.take();
        let mut nodes = Nodes { child, input, sources: Vec::new() };
        let order = line(&order(options)?);
        if let Some(input) = &mut nodes.input {
            // Where it is gone already, its last words below say why.
            let _ = input.write_all(order.as_bytes()).and_then(|()| input.flush());
        }
        let (tell, said) = channel();
        std::thread::spawn(move || {
            let mut lines = Lines::new(stdout);
            while let Ok(Some(message)) = lines.next::<Said>() {
                if tell.send(message).is_err() {
                    return;
                }
            }
        });
        loop {
            match said.recv_timeout(Duration::from_millis(20)) {
                Ok(Said::Progress { what }) => progress.show(&clean(&what, 200)),
                Ok(Said::Failed { why }) => bail!("{}", clean(&why, 500)),
                Ok(Said::Nodes { nodes: found }) => {
                    let source = |node: NodeSocket| Source::Node { name: clean(&node.name, 80), socket: node.socket };
                    nodes.sources = found.into_iter().map(source).collect();
                    return Ok(nodes);
                }
                Err(RecvTimeoutError::Disconnected) => bail!(nodes.last_words(python, complaints)),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if stop.load(Ordering::Relaxed) {
                return Err(crate::failure::interrupted("the workers were starting"));
            }
        }
    }

    /// Why the helper ended without a word.
    fn last_words(&mut self, python: &str, complaints: JoinHandle<String>) -> String {
        self.input = None;
        self.end();
        let complaint = complaints.join().unwrap_or_default();
        let last = complaint.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it said nothing");
        let remedy = if last.contains("No module named") {
            ": install the package there (pip install 'straingauge[fleet]', from python/), or name another Python with --python"
        } else {
            ""
        };
        format!(
            "the fleet's helper ('{} -m straingauge.fleet') ended: {}{remedy}",
            clean(python, 100),
            clean(last, 200)
        )
    }

    /// Lets it end by itself, and ends it if it does not.
    fn end(&mut self) {
        let until = Instant::now() + LEAVE;
        while Instant::now() < until {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if let Ok(group) = i32::try_from(self.child.id()) {
            // SAFETY: kill takes numbers; the group is the child's own, and it is not reaped yet.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        let _ = self.child.wait();
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.input = None;
        self.end();
    }
}

fn order(options: &RayOptions) -> Result<Order<'_>> {
    let binary = match &options.worker_binary {
        Some(path) => std::path::absolute(path).context("cannot name --worker-binary from the root")?,
        None => std::env::current_exe().context("cannot find this program's file to send it to the nodes")?,
    };
    let mut arguments = vec!["load".to_string(), "--worker".to_string()];
    if let Some(interface) = &options.source_interface {
        arguments.extend(["--source-interface".to_string(), interface.clone()]);
    }
    Ok(Order {
        binary,
        address: options.address.as_deref(),
        workers: options.workers.map(|count| count.0),
        worker_cpus: options.worker_cpus.unwrap_or(crate::defaults::WORKER_CPUS as f64),
        prefix: options.worker_prefix.as_deref(),
        arguments,
        wait_s: options.node_timeout.map_or(crate::defaults::NODE_TIMEOUT, |time| time.0).as_secs_f64(),
    })
}

/// Reads errors to their end, so that nobody waits on a full pipe, and keeps the last ones.
fn keep_tail(mut from: ChildStderr) -> JoinHandle<String> {
    std::thread::spawn(move || {
        let (mut kept, mut chunk) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = from.read(&mut chunk) {
            kept.extend_from_slice(&chunk[..count]);
            if kept.len() > 2 * MAX_COMPLAINT_BYTES {
                kept.drain(..kept.len() - MAX_COMPLAINT_BYTES);
            }
        }
        String::from_utf8_lossy(&kept).into_owned()
    })
}
