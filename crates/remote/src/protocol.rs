//! The worker protocol's messages and the bounded reader of their lines (docs/worker-protocol.md).
//!
//! One JSON object a line. Messages from the other end are untrusted: lines have a limit, numbers a range, and texts
//! are made safe ([`record::Outside`]) first. This file depends on nothing else here, so that it can be fuzzed.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use load::cold::{ColdCounts, ColdRoom};
use load::{LoadResult, Progress};
use record::protocol::Protocol;
use record::{ClientSide, Doubt, LoadPlan, Outside};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Read};

#[path = "consistency.rs"]
mod consistency;
#[path = "observation.rs"]
mod observation;

pub use observation::{WireObservation, WireWatch};

/// Version of the protocol; both ends must use the same.
pub const PROTOCOL: u32 = 2;
/// A longer line is refused: a plan with many targets and a result with whole histograms stay far below.
pub const MAX_LINE_BYTES: usize = 16 << 20;
/// A worker that hears nothing for this long stops sending load; a driver that hears nothing gives the worker up.
pub const LEASE_NS: u64 = 5_000_000_000;
/// The longest time in a plan: that of a log of a year.
pub(crate) const MAX_SPAN_NS: u64 = 400 * 24 * 3_600_000_000_000;
/// Parts of a load at most: with 1,024 threads in each, their numbers have 32 bits.
pub(crate) const MOST_PARTS: u32 = 1 << 20;
/// Rejected lines of a log that are kept.
const MAX_EXAMPLES: usize = 10;
const MAX_SERIES_BYTES: usize = 8 << 20;
const MAX_WORDS: usize = 300;
/// The ability of a watcher that can sample the layers.
pub const CAN_SAMPLE_LAYERS: &str = "layers";
/// The ability of a watcher that can count requests.
pub const CAN_COUNT_REQUESTS: &str = "requests";

/// The ability of a watcher that can count and end TIME_WAIT sockets.
pub const CAN_END_TIME_WAIT: &str = "time-wait";
/// The ability of a watcher that can run a command beside the server.
pub const CAN_RUN_BESIDE: &str = "beside";
/// The ability of a watcher that started the server: it reports how it ended, and its output.
pub const CAN_REPORT_SERVER: &str = "server";

/// Messages of the driver.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ToWorker {
    /// Open the connections of this plan, then say ready.
    Plan(Box<PlanMessage>),
    /// Keeps the lease; answered at once by a pong with the same number.
    Ping { sent_ns: u64 },
    /// Requests begin at this instant of the worker's own clock.
    Start { at_ns: u64 },
    /// End the load now and send the result.
    Stop {},
    /// A piece of the file that the next plans name, as far as this worker needs it. Answered when it is kept.
    Input(InputPiece),
    /// Report what there is for cold connections of this plan; answered by its room.
    ColdAsk(Box<PlanMessage>),
    /// Hold so many cold connections of the plan that was last asked about, of at most `most`. Answered with their counts
    /// every 200 ms from then on.
    Cold { count: u64, most: u64 },
    /// To a watcher with that ability: count requests from now on, too.
    Watch(WireWatch),
    /// To a watcher with that ability: be ready to sample the layers, with so many samples a second and CPU.
    Layers { frequency_hz: u32 },
    /// To a watcher with that ability: start this command beside the server; without words, end the one that runs. Answered by
    /// its state.
    Beside { command: Vec<String> },
    /// To a watcher with that ability: report the state of that command.
    BesideAsk {},
    /// To a watcher with that ability: report the state of the server that it started.
    ServerAsk {},
    /// To a watcher with that ability: count the server's TIME_WAIT sockets, and end them first if so.
    TimeWait {
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ends: bool,
    },
    /// To a watcher that counts requests: a load begins, connections will be opened. Answered when that is noted.
    LoadBegins {},
    /// To a watcher: a window begins; its planned length, if requests are counted.
    Begin {
        #[serde(default)]
        planned_ns: u64,
        /// Whether its layers are sampled.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        has_layers: bool,
    },
    /// To a watcher: the window ends.
    End {},
    /// To a watcher: report the observation of the window, in which the load completed this many requests. `client`:
    /// the client's counts, if requests are counted.
    Observe {
        completed: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client: Option<ClientSide>,
    },
}

/// A worker's share of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlanMessage {
    /// [`PROTOCOL`] of the driver.
    pub protocol: u32,
    /// The engine's plan; `threads` 0 leaves their number to the worker, `cpus` are the worker's own.
    pub plan: LoadPlan,
    /// The request body in base64, which the plan itself does not carry.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// The password that opens a connection, which the plan itself does not carry.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub password: String,
    /// The authorities to trust in base64, which the plan itself does not carry.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub authorities: String,
    /// The worker refuses a plan that offers more than this, requests per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_cap_per_sec: Option<f64>,
}

/// A piece of a file, compressed with gzip; the pieces of a file, one after another, are it whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputPiece {
    /// Bytes, at most [`MAX_PIECE_BYTES`] before they were encoded.
    #[serde(with = "base64_bytes")]
    pub gzip: Vec<u8>,
    /// With the last piece: what the file is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole: Option<InputKind>,
}

/// Bytes in a piece of a file at most.
pub const MAX_PIECE_BYTES: usize = 1 << 20;

/// The kind of a file that a plan names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum InputKind {
    /// A rate series: a count a line.
    Series {
        /// Length of the interval that each counts.
        interval_ns: u64,
    },
    /// The lines of a log whose clients fall to this worker's part.
    Log {
        /// The format, as `--trace-format` takes it.
        format: String,
        /// Whether its sizes are those of bodies.
        has_body_sizes: bool,
        /// The earliest time of the whole log, nanoseconds since the Unix epoch: the start of the replay.
        origin_ns: i64,
        /// Log time of the whole log, after which it begins again.
        round_ns: u64,
    },
}

/// Cold connections that a worker holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct ColdHeld {
    /// Their counts.
    #[serde(flatten)]
    pub counts: ColdCounts,
    /// Kernel memory for each, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_bytes: Option<f64>,
}

mod base64_bytes {
    use super::MAX_PIECE_BYTES;
    use base64::prelude::{BASE64_STANDARD, Engine as _};
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let bytes = BASE64_STANDARD.decode(String::deserialize(deserializer)?).map_err(D::Error::custom)?;
        if bytes.len() > MAX_PIECE_BYTES {
            return Err(D::Error::custom("a piece of a file is larger than any that straingauge sends"));
        }
        Ok(bytes)
    }
}

/// Messages of a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum FromWorker {
    /// First line: the worker's identity, and its abilities beyond the first messages of version 1.
    Hello {
        protocol: u32,
        version: Outside,
        host: Outside,
        pid: u32,
        #[serde(default, flatten)]
        place: Place,
        /// What a load worker's machine can do.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        capacity: Option<Capacity>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        can: Vec<String>,
    },
    /// Answer to a ping: its number, and the worker's monotonic clock.
    Pong { sent_ns: u64, clock_ns: u64 },
    /// The connections are open, or have failed once.
    Ready {},
    /// A piece of a file is kept.
    InputKept {},
    /// What there is for cold connections.
    ColdRoom(ColdRoom),
    /// The cold connections that are held.
    Cold(ColdHeld),
    /// About every 200 ms.
    Progress(Progress),
    /// The load is over.
    Result(Box<WireResult>),
    /// The plan or a line cannot be followed; one sentence.
    Refused { why: Outside },
    /// A watcher counts requests from now on; or why it cannot, in one sentence.
    Watching {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why_not: Option<Outside>,
    },
    /// A watcher can sample the layers; or why it cannot, in one sentence.
    Layers {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why_not: Option<Outside>,
    },
    /// A command beside the server.
    Beside(StartedState),
    /// The server that the watcher started.
    Server(StartedState),
    /// The server's TIME_WAIT sockets.
    TimeWait(TimeWaitCount),
    /// The state before the load that begins is known.
    LoadAwaited {},
    /// A watcher's observation of the window.
    Observation(Box<WireObservation>),
    /// Sent by the transport, when it knows why the worker's bytes end; one sentence.
    Gone { why: Outside },
}

/// The server's TIME_WAIT sockets.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeWaitCount {
    /// How many.
    pub count: u64,
    /// Kernel memory of one; absent where it cannot be known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_each: Option<f64>,
    /// Why they could not be counted, or ended; one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_not: Option<Outside>,
}

/// The state of what a watcher started: the server, or a command beside it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StartedState {
    /// How it ended without being told to, or why it did not start; one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone: Option<Outside>,
    /// The end of its output; of a command once it has ended.
    #[serde(with = "base64_bytes", skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<u8>,
}

/// Where a worker runs: words to be compared, empty where it does not say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Place {
    /// The same for workers that share memory: one machine since it was started.
    pub machine: Outside,
    /// The same for workers that share ports and loopback: one network namespace of it.
    pub network: Outside,
}

impl Place {
    /// Where this process runs.
    pub fn here() -> Place {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
        Place { machine: boot.trim().into(), network: format!("{} {}", boot.trim(), network.display()).as_str().into() }
    }
}

/// What a worker's machine can do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Capacity {
    /// CPUs that it may use.
    pub cpus: u32,
    /// The yardstick's speed on one of them, iterations per second of CPU time.
    pub speed_per_sec: f64,
}

impl Capacity {
    /// The whole machine's speed; `None` for what no machine can be.
    pub fn total(self) -> Option<f64> {
        let total = f64::from(self.cpus) * self.speed_per_sec;
        (total.is_finite() && total > 0.0).then_some(total)
    }
}

/// A worker's result. It stays text, with encoded histograms, until it is added to the others: waiting results need only the
/// memory of their lines, whatever is in them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "serde_json::Value", into = "serde_json::Value")]
pub struct WireResult {
    json: Box<str>,
    is_of_a_part: bool,
}

impl From<serde_json::Value> for WireResult {
    fn from(value: serde_json::Value) -> WireResult {
        let is_of_a_part = value.get("interrupted").and_then(serde_json::Value::as_bool) == Some(true);
        WireResult { json: value.to_string().into(), is_of_a_part }
    }
}

impl From<WireResult> for serde_json::Value {
    fn from(result: WireResult) -> serde_json::Value {
        serde_json::from_str(&result.json).expect("it was written here")
    }
}

#[derive(Serialize, Deserialize)]
struct ResultMessage {
    #[serde(flatten)]
    result: LoadResult,
    /// How long after the agreed instant requests began; 0 = in time.
    started_late_ns: u64,
}

/// Text of the other end, made safe to print.
fn words(text: &str) -> String {
    Outside::new(text, MAX_WORDS).into()
}

fn bounded_doubts(doubts: &[Doubt]) -> Vec<Doubt> {
    let bounded = |doubt: &Doubt| Doubt::new(doubt.kind, doubt.severity, words(&doubt.what), words(&doubt.remedy));
    doubts.iter().take(50).map(bounded).collect()
}

fn bytes(base64: &str, what: &str) -> Result<Vec<u8>, ProtocolError> {
    let decoded = BASE64_STANDARD.decode(base64);
    decoded.map_err(|error| ProtocolError::Unusable(format!("{what} is not base64: {error}")))
}

/// Why a line was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The limit keeps either end from filling the other's memory.
    #[error("a line has more than {MAX_LINE_BYTES} bytes, so it is no message of the worker protocol")]
    TooLong,
    /// Not JSON, or not one of the messages.
    #[error("'{0}' is no message of the worker protocol ({1})")]
    NotAMessage(Outside, Outside),
    /// The stream ended within a line.
    #[error("the stream ended in the middle of a message")]
    Torn,
    /// A message with an impossible value.
    #[error("a message is not usable: {0}")]
    Unusable(String),
    /// The pipe broke.
    #[error("reading failed: {0}")]
    Read(#[from] std::io::Error),
}

/// Lines of the other end, one message each.
pub struct Lines<R> {
    source: BufReader<R>,
}

impl<R: Read> Lines<R> {
    /// Reads from a pipe.
    pub fn new(source: R) -> Self {
        Lines { source: BufReader::new(source) }
    }

    /// The next message; `None` at the end of the stream. Keeps at most [`MAX_LINE_BYTES`] in memory.
    pub fn next<T: serde::de::DeserializeOwned>(&mut self) -> Result<Option<T>, ProtocolError> {
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
        message(&line).map(Some)
    }
}

/// The message of a line without its end.
pub fn message<T: serde::de::DeserializeOwned>(line: &[u8]) -> Result<T, ProtocolError> {
    serde_json::from_slice(line)
        .map_err(|error| ProtocolError::NotAMessage(Outside::of_bytes(line, 60), Outside::new(&error.to_string(), 120)))
}

/// A message as a line, with its end.
pub fn line(message: &impl Serialize) -> String {
    let mut text = serde_json::to_string(message).expect("messages have only string keys");
    text.push('\n');
    text
}

impl PlanMessage {
    /// A driver's message for a plan.
    pub fn new(plan: LoadPlan, rate_cap_per_sec: Option<f64>) -> Self {
        let body = BASE64_STANDARD.encode(&plan.body);
        let password = match &plan.protocol {
            Protocol::Redis(redis) => redis.password.clone(),
            _ => String::new(),
        };
        let authorities = plan.clients.tls.as_ref().map(|tls| BASE64_STANDARD.encode(&tls.ca_pem));
        PlanMessage {
            protocol: PROTOCOL,
            plan,
            body,
            password,
            authorities: authorities.unwrap_or_default(),
            rate_cap_per_sec,
        }
    }

    /// The plan that the worker drives, with its body; refused if no engine could run it.
    pub fn into_plan(self) -> Result<LoadPlan, ProtocolError> {
        let unusable = |why: String| Err(ProtocolError::Unusable(why));
        if self.protocol != PROTOCOL {
            return unusable(format!(
                "the driver speaks version {} of the worker protocol, this worker {PROTOCOL}; use the same straingauge on all machines",
                self.protocol
            ));
        }
        let mut plan = self.plan;
        plan.body = bytes(&self.body, "the body")?;
        if let Some(tls) = &mut plan.clients.tls {
            tls.ca_pem = bytes(&self.authorities, "the list of authorities")?;
        }
        if let Protocol::Redis(redis) = &mut plan.protocol {
            redis.password = self.password;
        }
        let spans = [plan.warmup_ns, plan.duration_ns, plan.timeout_ns, plan.connect_timeout_ns];
        if spans.iter().any(|span| *span > MAX_SPAN_NS) {
            return unusable("a time in the plan is longer than 400 days".into());
        }
        if plan.addresses.is_empty()
            || (plan.targets.is_empty() && plan.protocol.is_http())
            || plan.connections == 0
            || plan.threads > 1024
        {
            return unusable("the plan needs an address, a target, a connection and at most 1024 threads".into());
        }
        let share = plan.share;
        if !share.exists() || share.of > MOST_PARTS {
            return unusable(format!("part {} of {} of a load does not exist", share.index, share.of));
        }
        if let Some(offered) = plan.offered_per_sec() {
            if !(offered > 0.0 && offered.is_finite()) {
                return unusable("the plan's rate is not a positive number".into());
            }
            if let Some(cap) = self.rate_cap_per_sec
                && offered > cap * (1.0 + 1e-9)
            {
                return unusable(format!("the plan offers {offered} requests/s, more than its cap of {cap}"));
            }
        }
        Ok(plan)
    }
}

impl WireResult {
    /// A worker's result, ready to be sent.
    pub fn new(result: LoadResult, started_late_ns: u64) -> serde_json::Result<Self> {
        serde_json::to_value(ResultMessage { result, started_late_ns }).map(WireResult::from)
    }

    /// Whether the load ended before its time.
    pub fn is_of_a_part(&self) -> bool {
        self.is_of_a_part
    }

    /// The engine's result, and how late its requests began in nanoseconds; refused if a histogram is missing or
    /// unreadable, or if counts contradict each other.
    pub fn into_result(self) -> Result<(LoadResult, u64), ProtocolError> {
        let unusable = |why: String| ProtocolError::Unusable(words(&why));
        let ResultMessage { mut result, started_late_ns } =
            serde_json::from_str(&self.json).map_err(|error| unusable(error.to_string()))?;
        if result.series_csv.len() > MAX_SERIES_BYTES {
            return Err(unusable("the result is larger than any that straingauge sends".into()));
        }
        let clean_up = |text: &mut String| *text = words(text);
        result.window_ns = result.window_ns.min(MAX_SPAN_NS);
        result.warmup_ns = result.warmup_ns.min(MAX_SPAN_NS);
        result.engine.threads = result.engine.threads.min(1024);
        clean_up(&mut result.engine.wait_method);
        clean_up(&mut result.engine.scheduling);
        result.first_errors.truncate(8);
        result.first_errors.iter_mut().for_each(clean_up);
        result.tls.iter_mut().filter_map(|tls| tls.example.as_mut()).for_each(clean_up);
        if let Some(replay) = &mut result.replay {
            replay.rejected_examples.truncate(MAX_EXAMPLES);
            replay.rejected_examples.iter_mut().for_each(clean_up);
            [&mut replay.file, &mut replay.format].into_iter().chain(&mut replay.failure).for_each(clean_up);
        }
        result.doubts = bounded_doubts(&result.doubts);
        match consistency::contradiction(&result) {
            Some(why) => Err(ProtocolError::Unusable(why)),
            None => Ok((result, started_late_ns)),
        }
    }
}
