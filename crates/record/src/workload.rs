//! Workloads other than requesting targets in turn: mixes with classes, measured rate series, replayed logs; and
//! their results. Kept in the plan ([`Workload`]) and in the point ([`WorkloadResult`]).

use crate::figure::{Figure, Origin};
use crate::histogram::Latency;
use crate::sum::Summand;
use serde::{Deserialize, Serialize};

/// Maximum targets kept with a run: a mix or a list may have millions, and a record must stay small.
pub const KEPT_TARGETS: usize = 1000;

/// Choice of a plan's targets, and times of requests if neither rate nor loop determines them. The default requests
/// the targets in turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Workload {
    /// The workload: `webstone`, `surge`, `fitted` or `urls`; empty for a plain URL or list. Untrusted text.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Number of targets, if there were more than [`KEPT_TARGETS`]; 0 = the plan has all.
    #[serde(skip_serializing_if = "crate::sum::is_zero")]
    pub targets: u64,
    /// Share of the requests for each target, in order; drawn independently. Empty = in turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<f64>,
    /// Class of each target, as an index into `classes`. Empty = results are not divided into classes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub class_of: Vec<u8>,
    /// Classes of results; with a trace, by the size in the log.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<RequestClass>,
    /// A measured rate series as arrival process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub series: Option<SeriesSource>,
    /// A log that is replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceSource>,
}

impl Workload {
    /// The class of a size: the first one whose largest size is not below it.
    pub fn class_of_size(&self, bytes: u64) -> u8 {
        let fits = |class: &RequestClass| class.largest_bytes.is_none_or(|largest| bytes <= largest);
        self.classes.iter().position(fits).unwrap_or(self.classes.len().saturating_sub(1)) as u8
    }

    /// Whether some classes have dynamic documents, so that results by kind are useful.
    pub fn has_dynamic(&self) -> bool {
        self.classes.iter().any(|class| class.kind == DocumentKind::Dynamic)
    }
}

/// Whether a document is a file, or is generated for each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DocumentKind {
    /// File with fixed contents.
    Static,
    /// Generated for each request.
    Dynamic,
}

/// One class of requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct RequestClass {
    /// Name of the class: `to 64.0 KiB`, `dynamic`.
    pub label: String,
    /// Whether the class has static or dynamic documents.
    pub kind: DocumentKind,
    /// Largest document of the class, bytes; absent for the last class, or if sizes are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_bytes: Option<u64>,
}

/// The source of a rate series; its counts are not kept with the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SeriesSource {
    /// Path of the series. Untrusted text.
    pub file: String,
    /// Number of intervals of the series.
    pub intervals: u64,
    /// Length of an interval in the series' own time.
    pub interval_ns: u64,
    /// Largest count over the mean count.
    pub peak_ratio: f64,
    /// Speed of the series relative to its own clock; absent: each window plays the whole series.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
}

/// Source of a replayed log, and the way it is replayed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct TraceSource {
    /// Path of the log. Untrusted text.
    pub file: String,
    /// Format of the log, by name or format string.
    pub format: String,
    /// Speed relative to the log's own times; absent: as fast as the server answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub speed: Option<f64>,
    /// Maximum gap between requests of a client that share a connection, nanoseconds.
    pub session_gap_ns: u64,
    /// Whether scheme and host of a target logged as a whole URL are sent; otherwise only its path.
    #[serde(default)]
    pub has_host: bool,
    /// Whether the log starts again at its end, until the window is over.
    #[serde(default)]
    pub is_repeated: bool,
}

/// The results of a workload; empty if the plan requests targets in turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct WorkloadResult {
    /// Results by class: first by size, then by kind if there are dynamic documents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassResult>,
    /// The results of a replay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayResult>,
}

impl WorkloadResult {
    /// Whether there is nothing to show.
    pub fn is_empty(&self) -> bool {
        *self == WorkloadResult::default()
    }

    /// The results of one grouping.
    pub fn by(&self, grouping: Grouping) -> impl Iterator<Item = &ClassResult> {
        self.classes.iter().filter(move |class| class.grouping == grouping)
    }
}

crate::worded! {
    /// The property by which requests are grouped.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Grouping {
        /// By size of the document.
        Size = "size",
        /// By kind: static or dynamic.
        Kind = "kind",
        /// A grouping that this version does not know.
        #[serde(other)]
        Other = "other",
    }
}

/// The window's requests of one class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ClassResult {
    /// The property by which requests are grouped.
    pub grouping: Grouping,
    /// Class in words. Untrusted text if it is read from a file.
    pub label: String,
    /// Share of the requests that the mix demands; absent with a trace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_ratio: Option<f64>,
    /// Requests sent in the window, or in flight when it began.
    pub requests: u64,
    /// Complete responses with status 2xx or 3xx.
    pub ok: u64,
    /// Requests that failed or were answered with another status.
    pub failed: u64,
    /// Requests in flight at the end of the run.
    pub unfinished: u64,
    /// Bytes of response bodies received.
    pub body_bytes: u64,
    /// Mean response time, microseconds.
    pub response_mean_us: Figure,
    /// Median response time, microseconds.
    pub response_p50_us: Figure,
    /// 90th percentile of response times, microseconds.
    pub response_p90_us: Figure,
    /// 99th percentile of response times, microseconds.
    pub response_p99_us: Figure,
    /// Longest response time, microseconds.
    pub response_max_us: Figure,
}

impl ClassResult {
    /// A class with these response times and no counts yet.
    pub fn new(grouping: Grouping, label: impl Into<String>, response: &Latency) -> Self {
        let figure = |nanos: Option<f64>| match nanos {
            Some(nanos) => Figure::new(nanos / 1e3, "us", response.len(), Origin::Timed),
            None => Figure::not_measured("us", "nothing completed"),
        };
        let quantile = |quantile| figure(response.quantile_ns(quantile).map(|nanos| nanos as f64));
        ClassResult {
            grouping,
            label: label.into(),
            asked_ratio: None,
            requests: 0,
            ok: 0,
            failed: 0,
            unfinished: 0,
            body_bytes: 0,
            response_mean_us: figure(response.mean_ns()),
            response_p50_us: quantile(0.5),
            response_p90_us: quantile(0.9),
            response_p99_us: quantile(0.99),
            response_max_us: figure(response.max_ns().map(|nanos| nanos as f64)),
        }
    }
}

/// Result of a replay: the log as read, and the comparison of the server's responses with it. Untrusted text.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct ReplayResult {
    /// Path of the log.
    pub file: String,
    /// Format of the log, by name or format string.
    pub format: String,
    /// Whether the log was read to its end and all its requests were sent.
    pub is_whole: bool,
    /// Number of times that the whole log was replayed before the window ended.
    pub rounds: u64,
    /// Lines read in the first round, of every kind.
    pub lines: u64,
    /// Number of lines that could not be read.
    pub rejected: u64,
    /// The first lines that could not be read, with file, line and reason.
    pub rejected_examples: Vec<String>,
    /// Lines whose time is before that of an earlier line.
    pub went_back: u64,
    /// Longest time by which a line precedes an earlier line, nanoseconds.
    pub back_max_ns: u64,
    /// Lines that came too late to be sorted; their time was moved forward.
    pub clamped: u64,
    /// Longest time between a line and the latest of the lines before it, nanoseconds.
    pub gap_max_ns: u64,
    /// Number of the line after the longest gap.
    pub gap_line: u64,
    /// Requests in the log that no client can send again (CONNECT).
    pub unsendable: u64,
    /// Number of requests handed to the engine.
    pub requests: u64,
    /// Number of clients (addresses) of the requests, at most 65,536 for each thread.
    pub clients: u64,
    /// Requests of the client with the most requests.
    pub largest_client_requests: u64,
    /// Sessions: sequences of requests of one client that share a connection.
    pub sessions: u64,
    /// Sessions that lost their connection early, because more were open than connections allowed.
    pub evicted: u64,
    /// Log time from the first to the last request handed out, nanoseconds.
    pub span_ns: u64,
    /// Body bytes in the log for requests with log status 200 and a logged size that the server answered with 200.
    pub expected_bytes: u64,
    /// Body bytes that the server sent for the requests of `expected_bytes`.
    pub got_bytes: u64,
    /// Responses whose size equals the one in the log.
    pub sizes_equal: u64,
    /// Responses whose size differs from the one in the log.
    pub sizes_different: u64,
    /// Responses with the log's status.
    pub statuses_equal: u64,
    /// Responses with another status. A 304 in the log is compared with 200, because a replay has no cache.
    pub statuses_different: u64,
    /// Reason why reading ended before the end of the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

impl ReplayResult {
    /// Adds another machine's results for its part of the same log.
    pub fn add(&mut self, other: &ReplayResult) {
        macro_rules! add {
            ($($field:ident)+) => { $(self.$field.add(&other.$field);)+ };
        }
        add!(lines rejected went_back clamped unsendable requests clients sessions evicted);
        add!(expected_bytes got_bytes sizes_equal sizes_different statuses_equal statuses_different);
        self.is_whole &= other.is_whole;
        self.rounds = self.rounds.max(other.rounds);
        self.back_max_ns = self.back_max_ns.max(other.back_max_ns);
        (self.gap_max_ns, self.gap_line) = (self.gap_max_ns, self.gap_line).max((other.gap_max_ns, other.gap_line));
        self.largest_client_requests = self.largest_client_requests.max(other.largest_client_requests);
        self.span_ns = self.span_ns.max(other.span_ns);
        self.failure = self.failure.take().or_else(|| other.failure.clone());
    }
}
