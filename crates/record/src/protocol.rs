//! The protocol of a load and its requests. The part for HTTP consists of fields of [`crate::LoadPlan`].

use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The protocol that clients and server speak.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "name", rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1, the default.
    #[default]
    Http,
    /// HTTP/2, over TLS or with prior knowledge.
    Http2(Http2Plan),
    /// Calls of gRPC with one message, over HTTP/2. Method, target, header fields and body are in the plan.
    Grpc(GrpcPlan),
    /// Redis' protocol (RESP2; replies in RESP3 are read, too).
    Redis(RedisPlan),
    /// memcached's text protocol.
    Memcached(MemcachedPlan),
    /// Bytes over TCP, as described by the plan.
    Tcp(TcpPlan),
    /// No protocol: a request is a connection with its TLS handshake, closed at once.
    Connect,
}

/// Use of HTTP/2.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Http2Plan {
    /// Requests in flight on a connection, each in its own stream; at least 1.
    pub streams: u32,
}

/// Calls of gRPC with one message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct GrpcPlan {
    /// The method, as `package.Service/Method`.
    pub method: String,
    /// Calls in flight on a connection, each in its own stream; at least 1.
    pub streams: u32,
}

/// Keys to request, and the length of values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Keyspace {
    /// Number of keys: each key is a number below this.
    pub keys: u64,
    /// Exponent of Zipf's law for the choice of keys; 0 = all keys equally often.
    pub zipf_exponent: f64,
    /// Length of each value, bytes.
    pub value_bytes: u64,
    /// Share of requests that read; the others write.
    pub read_ratio: f64,
}

impl Default for Keyspace {
    fn default() -> Self {
        Keyspace { keys: 10_000, zipf_exponent: 0.0, value_bytes: 100, read_ratio: 0.9 }
    }
}

/// Commands to a Redis server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct RedisPlan {
    /// Keys and values.
    #[serde(flatten)]
    pub keyspace: Keyspace,
    /// Commands to send in turn, each split into words; `{key}` and `{value}` in a word stand for a key's number and
    /// for a value. Empty: GET and SET of `key:{key}`, by the share of reads.
    pub commands: Vec<Vec<String>>,
    /// User of AUTH; empty = the default user.
    pub user: String,
    /// Password of AUTH; empty = no AUTH. Not stored with the run; the repeat command's URL has a placeholder.
    #[serde(skip)]
    pub password: String,
    /// Database that SELECT chooses; 0 = no SELECT.
    pub database: u32,
    /// Requests in flight on a connection; at least 1.
    pub pipeline: u32,
}

/// Commands to a memcached server.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct MemcachedPlan {
    /// Keys and values.
    #[serde(flatten)]
    pub keyspace: Keyspace,
    /// Keys in each get; at least 1.
    pub keys_per_get: u32,
    /// Whether meta commands (`mg`, `ms`) replace `get` and `set`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_meta: bool,
    /// Requests in flight on a connection; at least 1.
    pub pipeline: u32,
}

/// Bytes to send over TCP, and the end of the response.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct TcpPlan {
    /// Bytes of the request.
    pub send: Vec<u8>,
    /// End of the response.
    pub expect: Expect,
    /// Requests in flight on a connection; at least 1.
    pub pipeline: u32,
}

/// Rule for the end of a response over TCP.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Expect {
    /// The response ends after a line feed.
    #[default]
    Line,
    /// The response ends after this many bytes; at least 1.
    Bytes(u64),
    /// The first two bytes of the response, most significant first, are the number of bytes that follow.
    U16be,
    /// The first four bytes of the response, most significant first, are the number of bytes that follow.
    U32be,
}

/// Error replies of Redis with a number of their own, from [`FIRST_ERROR`] on. The first one stands for all others.
const REDIS_ERRORS: [&str; 26] = [
    "other error",
    "ERR",
    "WRONGTYPE",
    "MOVED",
    "ASK",
    "LOADING",
    "NOAUTH",
    "WRONGPASS",
    "NOPERM",
    "READONLY",
    "MISCONF",
    "OOM",
    "BUSY",
    "NOSCRIPT",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "TRYAGAIN",
    "EXECABORT",
    "MASTERDOWN",
    "NOREPLICAS",
    "NOPROTO",
    "BUSYGROUP",
    "BUSYKEY",
    "INPROG",
    "DENIED",
    "ERR max number of clients reached",
];
/// The statuses of gRPC except OK, by number.
const GRPC_ERRORS: [&str; 17] = [
    "other error",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];
const MEMCACHED_ERRORS: [&str; 5] =
    ["other error", "ERROR", "CLIENT_ERROR", "SERVER_ERROR", "ERROR Too many open connections"];

/// The status of a complete response in a protocol without status codes, unless it is one of the others.
pub const ANSWER: u16 = 200;
/// The status of a response without all of the requested values, which is not a failure.
pub const MISS: u16 = 204;
/// The status of a write that the server declined because of its condition, which is not a failure.
pub const NOT_STORED: u16 = 205;
/// The first status of an error reply.
pub const FIRST_ERROR: u16 = 500;

/// The number of a reply: of its text, if that is listed, or of its first word.
fn error_status(known: &[&str], text: &[u8]) -> u16 {
    let word = text.split(|byte| *byte == b' ').next().unwrap_or(text);
    let place = |wanted: &[u8]| known.iter().skip(1).position(|one| one.as_bytes() == wanted);
    FIRST_ERROR + place(text).or_else(|| place(word)).map_or(0, |at| at as u16 + 1)
}

/// The status of an error reply of Redis, without the `-`.
pub fn redis_error(text: &[u8]) -> u16 {
    error_status(&REDIS_ERRORS, text)
}

/// The status of an error reply of memcached.
pub fn memcached_error(text: &[u8]) -> u16 {
    error_status(&MEMCACHED_ERRORS, text)
}

/// Whether an error reply says that the server has as many connections as it allows.
pub fn is_connection_limit(words: &str) -> bool {
    words.ends_with("clients reached") || words.ends_with("open connections")
}

/// The status of a gRPC call with this `grpc-status`; `None`: the server sent none.
pub fn grpc_status(code: Option<u16>) -> u16 {
    match code {
        Some(0) => ANSWER,
        Some(code) if usize::from(code) < GRPC_ERRORS.len() => FIRST_ERROR + code,
        _ => FIRST_ERROR,
    }
}

impl Protocol {
    /// Whether requests are HTTP of any version, so that the plan has method and targets.
    pub fn is_http(&self) -> bool {
        matches!(self, Protocol::Http | Protocol::Http2(_) | Protocol::Grpc(_))
    }

    /// Whether responses have HTTP status codes.
    pub fn has_status_codes(&self) -> bool {
        matches!(self, Protocol::Http | Protocol::Http2(_))
    }

    /// Whether HTTP/2 carries the requests.
    pub fn is_over_http_2(&self) -> bool {
        matches!(self, Protocol::Http2(_) | Protocol::Grpc(_))
    }

    /// Whether this is HTTP/1.1.
    pub fn is_http_1(&self) -> bool {
        *self == Protocol::Http
    }

    /// The scheme of a URL, or a word.
    pub fn scheme(&self) -> &'static str {
        match self {
            Protocol::Http | Protocol::Http2(_) => "http",
            Protocol::Grpc(_) => "grpc",
            Protocol::Redis(_) => "redis",
            Protocol::Memcached(_) => "memcached",
            Protocol::Tcp(_) => "tcp",
            Protocol::Connect => "connections alone",
        }
    }

    /// Maximum requests in flight on a connection; at least 1.
    pub fn pipeline(&self) -> u32 {
        match self {
            Protocol::Http | Protocol::Connect => 1,
            Protocol::Http2(plan) => plan.streams.max(1),
            Protocol::Grpc(plan) => plan.streams.max(1),
            Protocol::Redis(plan) => plan.pipeline.max(1),
            Protocol::Memcached(plan) => plan.pipeline.max(1),
            Protocol::Tcp(plan) => plan.pipeline.max(1),
        }
    }

    /// Whether the requests of a connection are answered in order, so that the server works on one at a time.
    pub fn answers_in_order(&self) -> bool {
        !matches!(self, Protocol::Http2(_) | Protocol::Grpc(_))
    }

    /// Sets the maximum requests in flight on a connection; it stays 1 for HTTP/1.1 and for connections without
    /// requests.
    pub fn set_pipeline(&mut self, depth: u32) {
        match self {
            Protocol::Http | Protocol::Connect => {}
            Protocol::Http2(plan) => plan.streams = depth,
            Protocol::Grpc(plan) => plan.streams = depth,
            Protocol::Redis(plan) => plan.pipeline = depth,
            Protocol::Memcached(plan) => plan.pipeline = depth,
            Protocol::Tcp(plan) => plan.pipeline = depth,
        }
    }

    /// Meaning of a status: the code itself in HTTP, else a word.
    pub fn status_words(&self, status: u16) -> Cow<'static, str> {
        let error = |words: &[&'static str], dash: &str| {
            let word = words.get(usize::from(status.wrapping_sub(FIRST_ERROR)));
            match word {
                Some(word) if status > FIRST_ERROR => Some(Cow::Owned(format!("{dash}{word}"))),
                Some(word) => Some(Cow::Borrowed(*word)),
                None => None,
            }
        };
        let word = match (self, status) {
            (Protocol::Http | Protocol::Http2(_), _) => None,
            (Protocol::Memcached(_), ANSWER) => Some("hit or stored".into()),
            (Protocol::Connect, ANSWER) => Some("connected".into()),
            (Protocol::Grpc(_), ANSWER) => Some("OK".into()),
            (Protocol::Grpc(_), _) => error(&GRPC_ERRORS, ""),
            (_, ANSWER) => Some("answer".into()),
            (Protocol::Redis(_), MISS) => Some("null".into()),
            (Protocol::Memcached(_), MISS) => Some("miss".into()),
            (Protocol::Memcached(_), NOT_STORED) => Some("not stored".into()),
            (Protocol::Redis(_), _) => error(&REDIS_ERRORS, "-"),
            (Protocol::Memcached(_), _) => error(&MEMCACHED_ERRORS, ""),
            (Protocol::Tcp(_) | Protocol::Connect, _) => None,
        };
        word.unwrap_or_else(|| status.to_string().into())
    }

    /// Describes the requests; `None` for HTTP, whose plan has method and targets. Untrusted text.
    pub fn request_words(&self) -> Option<String> {
        let mix = |read: &str, write: &str, keyspace: &Keyspace| {
            let percent = (keyspace.read_ratio * 1000.0).round() / 10.0;
            format!(
                "{percent} % {read}, the rest {write} of {} bytes, {} keys{}",
                keyspace.value_bytes,
                keyspace.keys,
                keyspace.skew_words()
            )
        };
        let what = match self {
            Protocol::Http | Protocol::Http2(_) => return None,
            Protocol::Grpc(plan) => format!("gRPC {}", plan.method),
            Protocol::Redis(plan) if plan.commands.is_empty() => mix("GET", "SET", &plan.keyspace),
            Protocol::Redis(plan) => {
                let commands: Vec<String> = plan.commands.iter().map(|words| words.join(" ")).collect();
                format!("{}, {} keys{}", commands.join("; "), plan.keyspace.keys, plan.keyspace.skew_words())
            }
            Protocol::Memcached(plan) if plan.keys_per_get > 1 => {
                mix(&format!("get of {} keys", plan.keys_per_get), "set", &plan.keyspace)
            }
            Protocol::Memcached(plan) => mix("get", "set", &plan.keyspace),
            Protocol::Tcp(plan) => format!("{} bytes", plan.send.len()),
            Protocol::Connect => "none, one connection per request".into(),
        };
        Some(format!("{what}{}", self.depth_words()))
    }

    /// Describes the version of HTTP and its use, if it is not 1.1.
    pub fn version_words(&self) -> Option<String> {
        matches!(self, Protocol::Http2(_)).then(|| format!("HTTP/2{}", self.depth_words()))
    }

    fn depth_words(&self) -> String {
        match self.pipeline() {
            1 => String::new(),
            depth => format!(", {depth} in flight on a connection"),
        }
    }
}

impl Keyspace {
    fn skew_words(&self) -> String {
        if self.zipf_exponent > 0.0 { format!(" by Zipf's law ({})", self.zipf_exponent) } else { String::new() }
    }
}
