//! Messages of the worker protocol, and the bounded reader of their lines (docs/worker-protocol.md): one JSON object
//! per line, of limited length. Both ends must be the same version of straingauge; lines before the hello may be
//! anything.

use crate::requests::RequestWatchPlan;
use load::cold::{ColdCounts, ColdRoom};
use load::{LoadProgress, LoadResult};
use record::protocol::Protocol;
use record::{ClientSide, LoadPlan, PlainText};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read};

pub use crate::observation::WireObservation;

/// The version of straingauge, which must be the same at both ends.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Maximum length of a line. Plans with many targets and results with histograms are far shorter.
pub const MAX_LINE_BYTES: usize = 16 << 20;
/// A worker that receives no message for this long stops sending load. A driver that receives none gives the worker
/// up.
pub const LEASE_NS: u64 = 5_000_000_000;

/// Messages from the driver.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ToWorker {
    /// Open the connections of this plan, then send `ready`.
    Plan(Box<PlanMessage>),
    /// Renews the lease. A pong with the same number answers it at once.
    Ping { sent_ns: u64 },
    /// Begin the requests at this instant of the worker's clock.
    Start { at_ns: u64 },
    /// End the load now and send the result.
    Stop {},
    /// Keep a piece of the file that the next plans name, restricted to this worker's share. Answered by
    /// `input-kept`.
    Input(InputPiece),
    /// Report the limits for cold connections of this plan; answered by `cold-room`.
    ColdAsk(Box<PlanMessage>),
    /// Hold `count` cold connections of the plan in the last `cold-ask`, and at most `most` later. From then on the
    /// worker reports their counts every 200 ms.
    Cold { count: u64, most: u64 },
    /// To a watcher: count requests from now on as well.
    Watch(RequestWatchPlan),
    /// To a watcher: get ready to sample the layers at this frequency on each CPU.
    Layers { frequency_hz: u32 },
    /// To a watcher: start this command on the server's machine, or end the running one if it is empty. Answered by
    /// its state.
    Beside { command: Vec<String> },
    /// To a watcher: report the state of that command.
    BesideAsk {},
    /// To a watcher: report the state of the server that it started.
    ServerAsk {},
    /// To a watcher: count the server's TIME_WAIT sockets, ending them first if `ends`.
    TimeWait {
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ends: bool,
    },
    /// To a watcher that counts requests: a load begins and will open connections. Answered by `load-awaited`.
    LoadBegins {},
    /// To a watcher: a window begins, with this planned length if requests are counted.
    Begin {
        #[serde(default)]
        planned_ns: u64,
        /// Whether its layers are sampled.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        has_layers: bool,
    },
    /// To a watcher: the window ends.
    End {},
    /// To a watcher: report the observation of the window, in which the load completed this many requests. `client`
    /// holds the client's counts if requests are counted.
    Observe {
        completed: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        client: Option<ClientSide>,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanMessage {
    /// The engine's plan. With 0 `threads`, the worker chooses their number and `cpus`.
    pub plan: LoadPlan,
    /// The request body, which the serialised plan omits.
    #[serde(default, with = "base64_bytes", skip_serializing_if = "Vec::is_empty")]
    pub body: Vec<u8>,
    /// The password for connections, which the serialised plan omits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub password: String,
    /// The trusted authorities, which the serialised plan omits.
    #[serde(default, with = "base64_bytes", skip_serializing_if = "Vec::is_empty")]
    pub authorities: Vec<u8>,
}

/// A piece of a file, compressed with gzip. The concatenated pieces are the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputPiece {
    /// At most [`MAX_PIECE_BYTES`] before base64.
    #[serde(with = "base64_bytes")]
    pub gzip: Vec<u8>,
    /// The kind of the file, in the last piece only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub whole: Option<InputKind>,
}

/// Maximum bytes of a piece of a file.
pub const MAX_PIECE_BYTES: usize = 1 << 20;

/// The kind of a file that a plan names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum InputKind {
    /// A rate series with one count per line.
    Series {
        /// Length of the interval of each count.
        interval_ns: u64,
    },
    /// The lines of a log whose clients belong to this worker's share.
    Log {
        /// The format, as in `trace-format` of a scenario file.
        format: String,
        /// Whether its sizes exclude response headers.
        has_body_sizes: bool,
        /// The earliest time in the whole log, in nanoseconds since the Unix epoch. The replay starts there.
        origin_ns: i64,
        /// Length of the whole log, after which the replay restarts.
        round_ns: u64,
    },
}

/// Cold connections that a worker holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ColdHeld {
    /// Counts of these connections.
    #[serde(flatten)]
    pub counts: ColdCounts,
    /// Kernel memory per connection, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_bytes: Option<f64>,
}

mod base64_bytes {
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        BASE64_STANDARD.decode(String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Messages from a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum FromWorker {
    /// The worker's identity, in the first line.
    Hello {
        version: PlainText,
        host: PlainText,
        pid: u32,
        #[serde(default, flatten)]
        place: HostPlace,
        #[serde(skip_serializing_if = "Option::is_none")]
        capacity: Option<Capacity>,
    },
    /// Answers a ping with its number and the worker's monotonic clock.
    Pong { sent_ns: u64, clock_ns: u64 },
    /// All connections are open, or have failed once.
    Ready {},
    /// The worker keeps a piece of a file.
    InputKept {},
    /// The room for cold connections.
    ColdRoom(ColdRoom),
    /// The cold connections that the worker holds.
    Cold(ColdHeld),
    /// Progress of the load, about every 200 ms.
    Progress(LoadProgress),
    /// The load is over.
    Result(Box<WireResult>),
    /// The worker cannot follow the plan or a line. Holds one sentence.
    Refused { why: PlainText },
    /// A watcher counts requests from now on, or the reason why not, in one sentence.
    Watching {
        #[serde(skip_serializing_if = "Option::is_none")]
        why_not: Option<PlainText>,
    },
    /// A watcher can sample the layers, or the reason why not, in one sentence.
    Layers {
        #[serde(skip_serializing_if = "Option::is_none")]
        why_not: Option<PlainText>,
    },
    /// State of the command next to the server.
    Beside(StartedState),
    /// State of the server that the watcher started; also sent unasked, once, when it has ended.
    Server(StartedState),
    /// The server's TIME_WAIT sockets.
    TimeWait(TimeWaitCount),
    /// The watcher has read the state before the load.
    LoadAwaited {},
    /// A watcher's observation of the window.
    Observation(Box<WireObservation>),
    /// The transport knows why the worker's bytes end. Holds one sentence.
    Gone { why: PlainText },
}

/// The server's TIME_WAIT sockets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeWaitCount {
    /// Number of sockets.
    pub count: u64,
    /// Kernel memory of one socket, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_each: Option<f64>,
    /// Why they could not be counted or ended, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<PlainText>,
}

/// State of a process that a watcher started: the server, or a command on its machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StartedState {
    /// How it ended unexpectedly, or why it did not start, in one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone: Option<PlainText>,
    /// The end of its output. For a command, only after it ended.
    #[serde(with = "base64_bytes", skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<u8>,
}

/// Machine and network stack of a worker, for comparison. Empty if unknown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostPlace {
    /// Equal for workers that share memory, because they are on one machine since the same boot.
    pub machine: PlainText,
    /// Equal for workers that share ports and loopback, because they are in one network namespace.
    pub network: PlainText,
}

impl HostPlace {
    /// Machine and network stack of this process.
    pub fn here() -> HostPlace {
        let boot = record::owner::boot_id();
        let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
        HostPlace { machine: boot.as_str().into(), network: format!("{boot} {}", network.display()).as_str().into() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// Number of CPUs that it may use.
    pub cpus: u32,
    /// Yardstick's speed on one of them, in iterations per second of CPU time.
    pub speed_per_sec: f64,
}

impl Capacity {
    /// Speed of the whole machine; `None` if the values are impossible.
    pub fn total(self) -> Option<f64> {
        let total = f64::from(self.cpus) * self.speed_per_sec;
        (total.is_finite() && total > 0.0).then_some(total)
    }
}

/// A worker's result. It stays JSON with encoded histograms until it is merged, because many results may wait.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WireResult(serde_json::Value);

#[derive(Serialize, Deserialize)]
struct ResultMessage {
    #[serde(flatten)]
    result: LoadResult,
    /// Nanoseconds from the agreed instant to the first request; 0 when it was in time.
    started_late_ns: u64,
}

/// Why a line was refused.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The line is longer than the limit, which protects the memory of both ends.
    #[error("a line has more than {MAX_LINE_BYTES} bytes, so it is not a message of the worker protocol")]
    TooLong,
    /// The line is not JSON, or not one of the messages.
    #[error("'{0}' is not a message of the worker protocol ({1})")]
    NotAMessage(PlainText, PlainText),
    #[error("the stream ended in the middle of a message")]
    Torn,
    /// A message has an impossible value.
    #[error("a message is not usable: {0}")]
    Unusable(String),
    #[error("reading failed: {0}")]
    Read(#[from] std::io::Error),
}

pub struct LineReader<R> {
    source: BufReader<R>,
}

impl<R: Read> LineReader<R> {
    pub fn new(source: R) -> Self {
        LineReader { source: BufReader::new(source) }
    }

    /// Returns the next message; `None` at the end of the stream.
    pub fn next_message<T: serde::de::DeserializeOwned>(&mut self) -> Result<Option<T>, ProtocolError> {
        self.line()?.map(|line| message(&line)).transpose()
    }

    /// Returns the next line without its line end; `None` at the end of the stream. Keeps at most [`MAX_LINE_BYTES`]
    /// in memory.
    pub fn line(&mut self) -> Result<Option<Vec<u8>>, ProtocolError> {
        let mut line = Vec::new();
        (&mut self.source).take(MAX_LINE_BYTES as u64 + 1).read_until(b'\n', &mut line)?;
        if line.is_empty() {
            return Ok(None);
        }
        if line.len() > MAX_LINE_BYTES {
            return Err(ProtocolError::TooLong);
        }
        if line.pop() != Some(b'\n') {
            return Err(ProtocolError::Torn);
        }
        Ok(Some(line))
    }
}

pub fn message<T: serde::de::DeserializeOwned>(line: &[u8]) -> Result<T, ProtocolError> {
    serde_json::from_slice(line).map_err(|error| {
        ProtocolError::NotAMessage(PlainText::of_bytes(line, 60), PlainText::new(&error.to_string(), 120))
    })
}

pub fn line(message: &impl Serialize) -> String {
    let mut text = serde_json::to_string(message).expect("messages have only string keys");
    text.push('\n');
    text
}

/// Reads bytes from the other end as messages, and panics if an accepted one is refused when it is sent again. For
/// the fuzz target.
pub fn check_lines(bytes: &[u8]) {
    fn come_again<T: Serialize + serde::de::DeserializeOwned>(bytes: &[u8]) {
        let mut lines = LineReader::new(bytes);
        while let Ok(Some(message)) = lines.next_message::<T>() {
            let again = line(&message);
            assert!(matches!(LineReader::new(again.as_bytes()).next_message::<T>(), Ok(Some(_))), "{again}");
        }
    }
    come_again::<ToWorker>(bytes);
    come_again::<FromWorker>(bytes);
}

impl PlanMessage {
    pub fn new(plan: LoadPlan) -> Self {
        let password = match &plan.protocol {
            Protocol::Redis(redis) => redis.password.clone(),
            _ => String::new(),
        };
        let authorities = plan.clients.tls.as_ref().map(|tls| tls.ca_pem.clone()).unwrap_or_default();
        PlanMessage { body: plan.body.clone(), password, authorities, plan }
    }

    pub fn into_plan(self) -> LoadPlan {
        let mut plan = self.plan;
        plan.body = self.body;
        if let Some(tls) = &mut plan.clients.tls {
            tls.ca_pem = self.authorities;
        }
        if let Protocol::Redis(redis) = &mut plan.protocol {
            redis.password = self.password;
        }
        plan
    }
}

impl WireResult {
    pub fn new(result: LoadResult, started_late_ns: u64) -> serde_json::Result<Self> {
        serde_json::to_value(ResultMessage { result, started_late_ns }).map(WireResult)
    }

    pub fn is_of_a_part(&self) -> bool {
        self.0.get("interrupted").and_then(serde_json::Value::as_bool) == Some(true)
    }

    /// The engine's result, and by how many nanoseconds its requests began late. Refuses a result that is unreadable,
    /// or whose outcomes do not add up to the requests.
    pub fn into_result(self) -> Result<(LoadResult, u64), ProtocolError> {
        let ResultMessage { result, started_late_ns } = serde_json::from_value(self.0)
            .map_err(|error| ProtocolError::Unusable(PlainText::new(&error.to_string(), 300).into()))?;
        let outcomes = &result.counts.outcomes;
        if outcomes.sum() != outcomes.requests() {
            return Err(ProtocolError::Unusable(format!(
                "it had {} requests, but the outcomes add up to {}",
                outcomes.requests(),
                outcomes.sum()
            )));
        }
        Ok((result, started_late_ns))
    }
}
