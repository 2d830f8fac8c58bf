//! The outcome of every request of the window: those sent in it, and those in flight when it began.

use crate::adds_up;
use serde::{Deserialize, Serialize};

/// Counts of requests by outcome. Every request of the window ends in exactly one of the counts that [`Outcomes::sum`]
/// adds; `connects*` and `connections_*` count connections, not requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Outcomes {
    /// Requests issued in the measured window (intended send inside it).
    pub sent: u64,
    /// Requests issued before the window (in the warm-up) and still in flight when it began.
    pub carried_in: u64,
    /// Complete response with status 2xx or 3xx, or in a replay with the log's 4xx; in other protocols, a response
    /// that is not an error.
    pub ok: u64,
    /// Complete response with another status (4xx, 5xx, or 1xx as a final response); in other protocols, an error
    /// reply.
    pub non_2xx: u64,
    /// Refusal by the server: of the connection (ECONNREFUSED), of its opening (a password), or of a request (GOAWAY
    /// and REFUSED_STREAM of HTTP/2).
    pub refused: u64,
    /// Reset of the connection, or of the HTTP/2 stream, while the request was in flight.
    pub reset: u64,
    /// No complete response within the timeout.
    pub timed_out: u64,
    /// The connection could not be established within the connect timeout.
    pub connect_timed_out: u64,
    /// Connection ended before the announced end of the body.
    pub truncated: u64,
    /// Connection closed before the first byte of a response.
    pub closed_early: u64,
    /// Bytes received that are not a response of the protocol, or exceed a limit (header of more than 64 KiB).
    pub malformed: u64,
    /// No local port, descriptor or memory left for a connection: a limit of the client.
    pub local_limit: u64,
    /// TLS failure after the connection was established: handshake, certificate, or an unreadable record.
    pub tls_failed: u64,
    /// Any other network error (unreachable, ...).
    pub other_error: u64,
    /// Still in flight when the run ended; neither good nor bad.
    pub unfinished: u64,
    /// Connections opened successfully.
    pub connects: u64,
    /// Connections that took longer than the slow-connect limit (1 s, after which a lost SYN is retried).
    pub connects_slow: u64,
    /// Connection attempts that failed.
    pub connects_failed: u64,
    /// Connections with a request in flight in the window; in a closed loop all connections.
    pub connections_used: u64,
    /// Connections with a request in flight in the window that received no byte of a response from the window's start
    /// to the end of the run.
    pub connections_silent: u64,
    /// Connections that the server closed before any request was sent, within a second of the connection attempt.
    pub closed_unused: u64,
}

adds_up!(Outcomes {
    sent,
    carried_in,
    ok,
    non_2xx,
    refused,
    reset,
    timed_out,
    connect_timed_out,
    truncated,
    closed_early,
    malformed,
    local_limit,
    tls_failed,
    other_error,
    unfinished,
    connects,
    connects_slow,
    connects_failed,
    connections_used,
    connections_silent,
    closed_unused,
});

impl Outcomes {
    /// The requests of the window: sent in it, or in flight when it began.
    pub fn requests(&self) -> u64 {
        self.sent.saturating_add(self.carried_in)
    }

    /// Connections without any response byte, as a share of those with a request; `None` if that was not counted.
    pub fn silent_ratio(&self) -> Option<f64> {
        (self.connections_used > 0).then(|| self.connections_silent as f64 / self.connections_used as f64)
    }

    /// Share of the requests that timed out, or had no response when the run ended: their response times are unknown,
    /// and longer than most.
    pub fn censored_ratio(&self) -> f64 {
        let censored = self.timed_out.saturating_add(self.connect_timed_out).saturating_add(self.unfinished);
        censored as f64 / self.requests().max(1) as f64
    }

    /// Whether a quantile of the measured response times is only a lower bound, because it belongs to requests or
    /// connections without a response. Such a connection waits with one request, while each of the others had as many
    /// as it could.
    pub fn is_lower_bound(&self, quantile: f64) -> bool {
        1.0 - quantile < self.censored_ratio().max(self.silent_ratio().unwrap_or(0.0))
    }

    /// The requests accounted for; equals [`Outcomes::requests`] when nothing was lost.
    pub fn sum(&self) -> u64 {
        self.completed().saturating_add(self.errors()).saturating_add(self.unfinished)
    }

    fn by_error(&self) -> [(&'static str, u64); 10] {
        [
            ("refused", self.refused),
            ("reset", self.reset),
            ("timed out", self.timed_out),
            ("connect timed out", self.connect_timed_out),
            ("truncated body", self.truncated),
            ("closed before a response", self.closed_early),
            ("malformed response", self.malformed),
            ("no local port or descriptor", self.local_limit),
            ("TLS failed", self.tls_failed),
            ("other network error", self.other_error),
        ]
    }

    /// Requests without a complete response, except those in flight at the end.
    pub fn errors(&self) -> u64 {
        // Counts may come from an untrusted file: they saturate instead of overflowing.
        self.by_error().into_iter().fold(0, |sum, (_, count)| sum.saturating_add(count))
    }

    /// Complete responses of any status.
    pub fn completed(&self) -> u64 {
        self.ok.saturating_add(self.non_2xx)
    }

    /// Requests without a complete response, and those with an error status.
    pub fn failed(&self) -> u64 {
        self.errors().saturating_add(self.non_2xx)
    }

    /// Failed requests (errors and non-2xx) as a share of the finished ones; 0 if none finished.
    pub fn failed_ratio(&self) -> f64 {
        let finished = self.completed().saturating_add(self.errors());
        if finished == 0 { 0.0 } else { self.failed() as f64 / finished as f64 }
    }

    /// The failures that occurred, as (words, count), without `sent`, `ok` and the connection counts.
    pub fn failures(&self) -> Vec<(&'static str, u64)> {
        let replies = ("error status or reply", self.non_2xx);
        std::iter::once(replies).chain(self.by_error()).filter(|(_, count)| *count > 0).collect()
    }
}
