use crate::adds_up;
use crate::histogram::Encoded;
use crate::{Latency, Outcomes, Slowest};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// Counts of one load, used in a tally, a result and a worker's message.
///
/// There are two ways of counting. [`outcomes`](Self::outcomes), `body_bytes`, `received_bytes` and the times cover
/// the *requests of the window*: those with their intended send in it, whenever they ended, and those in flight when
/// it began. `sent_bytes` covers only the former. The `*_in_window` counts cover all *events in the window*, for any
/// request; rates are computed from them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadCounts {
    /// Outcome of every request of the window; `sum()` equals `requests()`.
    pub outcomes: Outcomes,
    /// Histograms of times. As JSON: pairs of a tag and `{"v2": ..., "clamped": ...}`: the histogram as in a
    /// `latency.hlog`, in base64, and the number of its values beyond one hour.
    #[serde(rename = "latencies")]
    pub times: LoadTimes,
    /// Unfinished requests that were not sent, because no connection was free for them.
    pub never_sent: u64,
    /// Response body bytes since the window began, without framing. Truncated responses count with the bytes
    /// received.
    pub body_bytes: u64,
    /// Response bytes since the window began, with headers and framing.
    pub received_bytes: u64,
    /// Request bytes sent.
    pub sent_bytes: u64,
    /// Complete responses whose last byte arrived in the window.
    pub completed_in_window: u64,
    /// Complete responses with status 2xx or 3xx whose last byte arrived in the window.
    pub ok_in_window: u64,
    /// Response bytes that arrived in the window.
    pub received_in_window_bytes: u64,
    /// Arrivals of bytes on connections without a request in flight: the server violates HTTP.
    pub stray_responses: u64,
    /// Connections that the server announced to close but left open, so that the client closed them after a wait.
    pub closes_awaited: u64,
    /// Connections without a request that the server ended with status 408, because its time limit had expired.
    #[serde(default)]
    pub idle_timeouts: u64,
    /// Sampled responses whose arrival time is unknown: the kernel did not give it, or its wall clock was set.
    pub arrivals_unknown: u64,
    /// Time in the window in which arrivals were recorded, per thread.
    pub dated_ns: u64,
    /// Number of bursts in which arrivals were recorded, per thread.
    pub dated_times: u64,
    /// Complete responses by status code.
    #[serde(with = "pairs")]
    pub status_counts: BTreeMap<u16, u64>,
    /// Slowest requests of the window that were sent, or whose connection could not be opened.
    #[serde(default)]
    pub slowest: Slowest,
}

adds_up!(LoadCounts {
    outcomes,
    times,
    never_sent,
    body_bytes,
    received_bytes,
    sent_bytes,
    completed_in_window,
    ok_in_window,
    received_in_window_bytes,
    stray_responses,
    closes_awaited,
    idle_timeouts,
    arrivals_unknown,
    dated_ns,
    dated_times,
    status_counts,
    slowest,
});

/// Times of requests and connections; see the four instants at the top of this crate.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadTimes {
    /// Last byte minus intended send of complete responses.
    pub response: Latency,
    /// Last byte minus actual send of complete responses.
    pub service: Latency,
    /// First byte minus actual send of complete responses.
    pub first_byte: Latency,
    /// Actual minus intended send of requests sent since the window began; empty in a closed loop, which has no
    /// schedule.
    pub lag: Latency,
    /// Part of the lag spent waiting for a free connection, or for the opening of one; 1 ns means none.
    pub connection_wait: Latency,
    /// Time to establish a connection, of all connections opened by the run.
    pub connect: Latency,
    /// Age, since the intended send, of requests counted as unfinished or timed out (also while connecting): a lower
    /// bound of their response time.
    pub unfinished_age: Latency,
    /// Reap delay of sampled complete responses: from the arrival of the last byte in the client's kernel until the
    /// generator read it.
    pub reap: Latency,
    /// Response times of the sampled responses.
    pub sampled: Latency,
    /// Response times of the sampled responses without the reap delay: arrival of the last byte minus intended send.
    pub arrived: Latency,
    /// Gaps between the parts of a response, if requested: from a read with body bytes to the next one.
    pub part_gap: Latency,
    /// The rest of the lag, which is the generator's own lateness.
    pub own_lag: Latency,
}

/// `tagged!(field: tag, ...)` adds the times and gives each its tag. A field that is not listed does not compile.
macro_rules! tagged {
    ($($field:ident: $tag:literal),+ $(,)?) => {
        adds_up!(LoadTimes { $($field),+ });

        /// Number of histograms in a [`LoadTimes`].
        const LOAD_TIMES: usize = [$($tag),+].len();

        impl LoadTimes {
            /// The histograms by their tags in `latency.hlog`, in its order, then `own-lag`, which it does not
            /// contain.
            pub fn tagged(&self) -> [(&'static str, &Latency); LOAD_TIMES] {
                [$(($tag, &self.$field)),+]
            }

            /// [`tagged`](Self::tagged), to be changed.
            pub fn tagged_mut(&mut self) -> [(&'static str, &mut Latency); LOAD_TIMES] {
                [$(($tag, &mut self.$field)),+]
            }
        }
    };
}

tagged! {
    response: "response",
    service: "service",
    first_byte: "first-byte",
    lag: "lag",
    connection_wait: "connection-wait",
    connect: "connect",
    unfinished_age: "unfinished-age",
    reap: "reap",
    sampled: "response-sampled",
    arrived: "response-arrived",
    part_gap: "part-gap",
    own_lag: "own-lag",
}

impl Serialize for LoadTimes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.tagged())
    }
}

impl<'de> Deserialize<'de> for LoadTimes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let pairs = Vec::<(String, Encoded)>::deserialize(deserializer)?;
        let mut times = LoadTimes::default();
        for (tag, latency) in times.tagged_mut() {
            let found = pairs.iter().find(|(known, _)| known == tag);
            let (_, encoded) = found.ok_or_else(|| D::Error::custom(format!("there is no histogram of {tag}")))?;
            *latency = encoded.decoded().map_err(D::Error::custom)?;
        }
        Ok(times)
    }
}

/// Serialises a map with numbers as keys, which JSON does not have.
mod pairs {
    use super::{BTreeMap, Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(counts: &BTreeMap<u16, u64>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(counts)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u16, u64>, D::Error> {
        Ok(Vec::<(u16, u64)>::deserialize(deserializer)?.into_iter().collect())
    }
}
