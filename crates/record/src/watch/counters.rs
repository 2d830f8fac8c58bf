//! The counters of the watch, each declared in one place. A program counts one with `COUNT(NAME)` (`observe/bpf`).
//! Readings, JSON, Prometheus, the report, the screen and the figures of a point take everything else from here.
//!
//! `observe/build.rs` includes this file and numbers the counters for the programs, so it uses the standard library
//! only.

/// The kernel hook that a counter needs. Where it is missing, the counter is not measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Transitions between the states of connections.
    States,
    /// The tracepoint of retransmissions.
    Retransmissions,
    /// The tracepoints of resets.
    Resets,
    /// Reads of requests. These counters are in `losses` in JSON, all others in `connections`.
    Requests,
}

/// Where the screen shows a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// First line of the connections.
    Connections,
    /// Second line of the connections.
    Segments,
    /// What was lost.
    Lost,
}

/// The declaration of a counter.
#[derive(Debug, Clone, Copy)]
pub struct Declaration {
    /// Name in JSON; in the programs in capitals, with the prefix `COUNT_`.
    pub name: &'static str,
    /// Name in metrics, after `straingauge.`; it ends in `_bytes` where bytes are counted. Prometheus adds `_total`.
    pub metric: &'static str,
    /// A sentence: the help text in Prometheus and the label in the report's tables.
    pub help: &'static str,
    /// See [`Source`].
    pub source: Source,
    /// Row and text of the screen, `{}` for the number; `None`: only the report shows the counter.
    pub on_screen: Option<(Row, &'static str)>,
    /// The figure of a load point that holds its rate.
    pub figure: Option<&'static str>,
}

macro_rules! counters {
    ($(
        #[doc = $help:literal]
        $counter:ident = $name:literal, $metric:literal, $source:ident, $on_screen:expr, $figure:expr;
    )+) => {
        /// A counter.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Counter {
            $(#[doc = $help] $counter),+
        }

        impl Counter {
            /// All counters, in the order in which they are shown.
            pub const ALL: [Counter; COUNTERS] = [$(Counter::$counter),+];

            /// Its declaration.
            pub const fn declaration(self) -> &'static Declaration {
                &DECLARED[self as usize]
            }
        }

        /// The number of counters.
        pub const COUNTERS: usize = DECLARED.len();

        const DECLARED: &[Declaration] = &[$(Declaration {
            name: $name,
            metric: $metric,
            help: $help.trim_ascii_start(),
            source: Source::$source,
            on_screen: $on_screen,
            figure: $figure,
        }),+];
    };
}

use Row::{Connections, Lost, Segments};

// Name in JSON, name in metrics, required hook, row and text of the screen, figure of a point.
counters! {
    /// Connections that were established.
    Accepted = "accepted", "connections_accepted", States,
        Some((Connections, "accepted {}")), Some("watch.accepted_per_sec");
    /// Connections that were closed.
    Closed = "closed", "connections_closed", States, Some((Connections, "closed {}")), None;
    /// Connections that the server closed first.
    ClosedByServer = "closed_by_server", "connections_closed_by_server", States,
        Some((Connections, "by the server first {}")), Some("watch.closed_by_server_per_sec");
    /// Established connections that are paths of an MPTCP connection.
    Multipath = "multipath", "connections_multipath", States, None, None;
    /// Connections ended by a reset or a timeout.
    Aborted = "aborted", "connections_aborted", States,
        Some((Connections, "aborted {}")), Some("watch.aborted_per_sec");
    /// TCP segments retransmitted by the server.
    Retransmits = "retransmits", "retransmits", Retransmissions,
        Some((Segments, "retransmits {}")), Some("watch.retransmits_per_sec");
    /// TCP resets sent by the server.
    ResetsSent = "resets_sent", "resets_sent", Resets,
        Some((Segments, "resets sent {}")), Some("watch.resets_sent_per_sec");
    /// TCP resets received by the server.
    ResetsReceived = "resets_received", "resets_received", Resets,
        Some((Segments, "received {}")), Some("watch.resets_received_per_sec");
    /// Bytes received on closed connections, plus one for the FIN of each.
    ClosedBytesReceived = "closed_bytes_received", "closed_connections_received_bytes", States, None, None;
    /// Bytes that clients acknowledged on closed connections, plus at most one for the FIN of each.
    ClosedBytesAcked = "closed_bytes_acked", "closed_connections_acknowledged_bytes", States, None, None;
    /// Data segments received on closed connections.
    ClosedDataSegmentsIn = "closed_data_segments_in", "closed_connections_received_segments", States, None, None;
    /// Data segments sent on closed connections.
    ClosedDataSegmentsOut = "closed_data_segments_out", "closed_connections_sent_segments", States, None, None;
    /// Requests lost because the table of connections was full.
    DisplacedOpen = "displaced_open", "watch_lost_requests", Requests,
        Some((Lost, "{} requests (table full)")), None;
    /// Answered requests whose record was evicted early because the table of connections was full.
    DisplacedAnswered = "displaced_answered", "watch_displaced_requests", Requests, None, None;
    /// Threads evicted from the full table of threads; part of their CPU time is charged to no request.
    DisplacedThreads = "displaced_threads", "watch_displaced_threads", Requests, None, None;
    /// Bytes that the server moved out of its connections without reading them (splice).
    UnreadBytes = "unread_bytes", "watch_unread_bytes", Requests, None, None;
    /// Requests whose connection ended before a byte of response was written.
    Unanswered = "unanswered", "unanswered_requests", Requests, Some((Lost, "unanswered {}")), None;
}
