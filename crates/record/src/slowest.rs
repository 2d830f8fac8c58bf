use crate::sum::Summand;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Maximum requests kept for a load.
pub const SLOWEST: usize = 20;

/// One of the slowest requests of a point. Its four phases add up to its response time.
// The derived order is that of the response times.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SlowRequest {
    /// Response time, nanoseconds: from the time at which the request was due (in a closed loop: sent) to the last byte
    /// of its response. Without a complete response: to its failure or the end of the run.
    pub response_ns: u64,
    /// When the request was due (in a closed loop: sent), nanoseconds since the window began. Negative if the request
    /// was in flight then.
    pub at_ns: i64,
    /// First phase: the request was due and not sent, because the client was late or no connection was free.
    pub wait_ns: u64,
    /// Second phase: the request waited until its connection was open (TCP, TLS, and the protocol's opening).
    pub connect_ns: u64,
    /// Third phase: from sending the request to the first byte of the response, or to the end without one.
    pub first_byte_ns: u64,
    /// Fourth phase: from the first byte of the response to the last one.
    pub last_byte_ns: u64,
    /// Number of the connection among those of its client, from 1.
    pub connection: u32,
    /// TCP port of the client's end of the connection; absent if the connection was never opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_port: Option<u16>,
    /// Bytes of the response that arrived, headers and framing included; larger responses count as 4 GiB.
    pub received_bytes: u32,
    /// Status of the complete response; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why there is no complete response, such as `timed out` or `unfinished`; absent with one. Untrusted text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Cow<'static, str>>,
    /// Trace id that the request carried with `--traceparent`: 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub trace_id: Option<TraceId>,
    /// Worker that sent the request; absent if this process sent it. Untrusted text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// The slowest requests of a load, slowest first. Requests of threads, clients or points are merged with
/// [`Summand::add`], in any order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<SlowRequest>", into = "Vec<SlowRequest>")]
pub struct Slowest(Vec<SlowRequest>);

impl Default for Slowest {
    fn default() -> Self {
        Slowest(Vec::with_capacity(SLOWEST))
    }
}

impl Slowest {
    /// A request enters only if its response time exceeds this.
    #[inline]
    pub fn least_ns(&self) -> u64 {
        self.0.get(SLOWEST - 1).map_or(0, |least| least.response_ns)
    }

    /// Keeps a request if it is among the slowest. Allocates nothing.
    pub fn offer(&mut self, request: SlowRequest) {
        let place = self.0.partition_point(|kept| *kept >= request);
        if place < SLOWEST {
            self.0.truncate(SLOWEST - 1);
            self.0.insert(place, request);
        }
    }

    /// Names the client that sent the requests.
    pub fn sent_by(&mut self, client: &str) {
        self.0.iter_mut().for_each(|request| request.client = Some(client.into()));
    }
}

impl Summand for Slowest {
    fn add(&mut self, other: &Slowest) {
        other.0.iter().cloned().for_each(|request| self.offer(request));
    }
}

impl From<Vec<SlowRequest>> for Slowest {
    fn from(requests: Vec<SlowRequest>) -> Self {
        let mut slowest = Slowest::default();
        requests.into_iter().for_each(|request| slowest.offer(request));
        slowest
    }
}

impl From<Slowest> for Vec<SlowRequest> {
    fn from(slowest: Slowest) -> Self {
        slowest.0
    }
}

/// The trace id of a request, as in the header field `traceparent` of the W3C's Trace Context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TraceId(u128);

impl TraceId {
    /// Name of the header field.
    pub const FIELD: &str = "traceparent";
    /// Bytes of the field's value.
    pub const PARENT_BYTES: usize = 55;

    /// An id of these random bits. Neither half is zero, because ids of zeros are not valid.
    pub fn from_bits(bits: u128) -> TraceId {
        let has_zeros = bits >> 64 == 0 || bits as u64 == 0;
        TraceId(if has_zeros { bits | 1 << 64 | 1 } else { bits })
    }

    /// Writes the value of the header field. The id of the parent span is the second half of the trace id.
    pub fn write_parent(self, out: &mut [u8; Self::PARENT_BYTES]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digit = |place: u32| DIGITS[(self.0 >> (124 - 4 * place) & 15) as usize];
        *out = *b"00-00000000000000000000000000000000-0000000000000000-01";
        for place in 0..32 {
            out[3 + place] = digit(place as u32);
        }
        out.copy_within(19..35, 36);
    }
}

impl std::fmt::Display for TraceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl From<TraceId> for String {
    fn from(id: TraceId) -> String {
        id.to_string()
    }
}

impl TryFrom<String> for TraceId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_id = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bits = u128::from_str_radix(&text, 16).ok().filter(|_| is_id);
        bits.map(TraceId).ok_or("a trace id has 32 hexadecimal digits")
    }
}
