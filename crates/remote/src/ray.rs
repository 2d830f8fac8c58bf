//! Workers on the nodes of a Ray cluster. A helper (`python3 -m straingauge.fleet`, python/src/straingauge/fleet)
//! starts one on each node and carries its bytes to a Unix socket on this machine.

use crate::error::{RemoteError, Result, system, unusable};
use crate::link::WorkerSource;
use crate::process;
use crate::protocol::{LineReader, line};
use record::PlainText;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Timeout for the helper to end its workers and leave the cluster.
const LEAVE: Duration = Duration::from_secs(20);
/// Timeout for the helper to find later nodes and to start a worker on each.
const JOIN: Duration = Duration::from_secs(40);
/// Timeout for the helper's last message after it closed its sockets.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Settings of a fleet on Ray, sent as the first line of the helper's input. The helper ends with its input.
#[derive(Debug, Clone, Serialize)]
pub struct RayPlan {
    /// The straingauge binary for the nodes.
    pub binary: PathBuf,
    /// The cluster's address. With `None`, Ray finds it.
    pub address: Option<String>,
    /// Number of initial workers, each on a different node. With `None`, every node has one, also nodes that join
    /// later.
    pub workers: Option<u64>,
    /// Maximum number of workers, requested from the cluster's autoscaler.
    pub most_workers: Option<u64>,
    /// CPUs that Ray reserves for each worker.
    pub worker_cpus: f64,
    /// Custom resources that Ray reserves for each worker.
    pub resources: BTreeMap<String, f64>,
    /// Labels that each node must have.
    pub labels: BTreeMap<String, String>,
    /// Words in front of the worker's command.
    pub prefix: Option<String>,
    /// Arguments after the worker's command.
    pub arguments: Vec<String>,
    /// Timeout for nodes and their workers, in seconds.
    pub wait_s: f64,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum HelperMessage {
    Progress {
        what: PlainText,
    },
    /// Every worker has a socket. If `joins`, nodes may join later; `look` searches for them.
    Nodes {
        nodes: Vec<NodeSocket>,
        #[serde(default)]
        joins: bool,
    },
    /// Answers `look` with workers on nodes that joined since the last answer.
    Joined {
        nodes: Vec<NodeSocket>,
    },
    /// The helper failed, or its last search for nodes did. Holds one sentence.
    Failed {
        why: PlainText,
    },
}

#[derive(Debug, Deserialize)]
struct NodeSocket {
    name: PlainText,
    socket: PathBuf,
}

impl From<NodeSocket> for WorkerSource {
    fn from(node: NodeSocket) -> Self {
        WorkerSource::Node { name: node.name.into(), socket: node.socket }
    }
}

/// The helper. Dropping it ends the workers and leaves the cluster.
#[derive(Debug)]
pub struct Nodes {
    child: Child,
    input: Option<ChildStdin>,
    messages: Receiver<HelperMessage>,
    joins: bool,
    /// Its last failure after the start, and whether the user has seen it.
    failure: Option<(PlainText, bool)>,
    /// Deadline for its last message after it closed a socket.
    speaks_until: Option<Instant>,
    /// How to reach each worker.
    pub sources: Vec<WorkerSource>,
}

impl Nodes {
    /// Starts the helper with this Python and waits until each node has a worker. `progress` is called with the
    /// current step.
    pub fn start(plan: &RayPlan, python: &str, stop: &AtomicBool, progress: &mut dyn FnMut(&str)) -> Result<Nodes> {
        let mut child = process::start(Command::new(python).args(["-m", "straingauge.fleet"])).map_err(system(
            format!("cannot start '{python}', which the fleet needs: install Python, or name it with --python"),
        ))?;
        let stdout = child.stdout.take().expect("was asked for");
        let stderr = BufReader::new(child.stderr.take().expect("was asked for"));
        // It is read to its end, so that the helper never blocks on a full pipe.
        let last_line = std::thread::spawn(move || {
            let lines = stderr.split(b'\n').map_while(std::io::Result::ok);
            lines.filter(|line| !line.trim_ascii().is_empty()).last()
        });
        let input = child.stdin.take();
        let (sender, messages) = channel();
        let mut nodes =
            Nodes { child, input, messages, joins: false, failure: None, speaks_until: None, sources: Vec::new() };
        let order = line(plan);
        if let Some(input) = &mut nodes.input {
            // If the helper has ended, its last lines give the reason below.
            let _ = input.write_all(order.as_bytes()).and_then(|()| input.flush());
        }
        std::thread::spawn(move || {
            let mut lines = LineReader::new(stdout);
            while let Ok(Some(message)) = lines.next_message::<HelperMessage>() {
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        loop {
            match nodes.messages.recv_timeout(Duration::from_millis(20)) {
                Ok(HelperMessage::Progress { what }) => progress(&what),
                Ok(HelperMessage::Failed { why }) => return Err(unusable(why)),
                Ok(HelperMessage::Nodes { nodes: found, joins }) => {
                    nodes.sources = found.into_iter().map(WorkerSource::from).collect();
                    nodes.joins = joins;
                    return Ok(nodes);
                }
                Ok(HelperMessage::Joined { .. }) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(unusable(nodes.last_words(python, last_line))),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if stop.load(Ordering::Relaxed) {
                return Err(RemoteError::Interrupted("the workers were starting"));
            }
        }
    }

    /// Workers on nodes that joined the cluster since the last call.
    pub fn joined(&mut self, stop: &AtomicBool) -> Vec<WorkerSource> {
        if !self.joins {
            return Vec::new();
        }
        let until = Instant::now() + JOIN;
        let mut found = Vec::new();
        let is_asked =
            self.input.as_mut().is_some_and(|input| input.write_all(b"look\n").and_then(|()| input.flush()).is_ok());
        while is_asked && Instant::now() < until && !stop.load(Ordering::Relaxed) {
            match self.messages.recv_timeout(Duration::from_millis(20)) {
                // It may be a late answer to an earlier request.
                Ok(HelperMessage::Joined { nodes }) => {
                    found.extend(nodes.into_iter().map(WorkerSource::from));
                    break;
                }
                Ok(message) => self.handle(message),
                Err(RecvTimeoutError::Timeout) => {}
                // The workers report why the helper ended.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        found
    }

    fn handle(&mut self, message: HelperMessage) {
        if let HelperMessage::Failed { why } = message {
            let is_reported = matches!(self.failure, Some((_, true)));
            self.failure = Some((why, is_reported));
        }
    }

    /// Returns its first failure since the start once, because the same failure repeats between loads.
    pub fn unreported_failure(&mut self) -> Option<PlainText> {
        let (why, is_reported) = self.failure.as_mut()?;
        (!std::mem::replace(is_reported, true)).then(|| why.clone())
    }

    /// Why the helper closed a worker's socket without a message.
    pub fn closed(&mut self) -> String {
        let until = *self.speaks_until.get_or_insert_with(|| Instant::now() + LAST_WORDS);
        while let Ok(message) = self.messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.handle(message);
        }
        let why = self.failure.as_ref().map(|(why, _)| format!("; its last failure: {why}")).unwrap_or_default();
        format!("the fleet's helper on this machine closed its socket{why}")
    }

    fn last_words(&mut self, python: &str, last_line: JoinHandle<Option<Vec<u8>>>) -> String {
        self.input = None;
        self.end();
        let last = last_line.join().ok().flatten().unwrap_or_else(|| b"it printed nothing".into());
        let last = PlainText::of_bytes(&last, 200);
        let remedy = if last.contains("No module named") {
            ": install the package for it (pip install 'straingauge[fleet]', from python/), or name another Python \
             with --python"
        } else {
            ""
        };
        format!("the fleet's helper ('{} -m straingauge.fleet') ended: {last}{remedy}", PlainText::new(python, 100))
    }

    fn end(&mut self) {
        if !process::ends_within(&mut self.child, LEAVE) {
            process::kill(&mut self.child);
        }
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.input = None;
        self.end();
    }
}
