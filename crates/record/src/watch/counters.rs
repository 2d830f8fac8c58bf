//! The counters of the watch, each declared once. A BPF program increments one with `COUNT(NAME)` (`observe/bpf`).
//! Readings, JSON, Prometheus, the tables and the figures of a point use these declarations.
//!
//! `observe/build.rs` includes this file and numbers the counters for the programs, so it uses only the standard
//! library.

/// The declaration of a counter.
#[derive(Debug, Clone, Copy)]
pub struct Declaration {
    /// Name in JSON. The BPF programs use it in capitals, with the prefix `COUNT_`.
    pub name: &'static str,
    /// Name in metrics, after `straingauge.`; it ends in `_bytes` if it counts bytes. Prometheus adds `_total`.
    pub metric: &'static str,
    /// A sentence: the help text in Prometheus and the label in the report's tables.
    pub help: &'static str,
    /// Whether the counter is in the object `losses` of JSON, and not in `connections`.
    pub is_loss: bool,
    /// The figure of a load point with the counter's rate.
    pub figure: Option<&'static str>,
}

macro_rules! counters {
    ($(
        #[doc = $help:literal]
        $counter:ident = $name:literal, $metric:literal, $is_loss:literal, $figure:expr;
    )+) => {
        /// A counter.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Counter {
            $(#[doc = $help] $counter),+
        }

        impl Counter {
            /// All counters in display order.
            pub const ALL: [Counter; COUNTERS] = [$(Counter::$counter),+];

            /// The declaration of the counter.
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
            is_loss: $is_loss,
            figure: $figure,
        }),+];
    };
}

// Name in JSON, name in metrics, whether it is a loss, figure of a point.
counters! {
    /// Connections that were established.
    Accepted = "accepted", "connections_accepted", false, Some("watch.accepted_per_sec");
    /// Connections that were closed.
    Closed = "closed", "connections_closed", false, None;
    /// Connections that the server closed first.
    ClosedByServer = "closed_by_server", "connections_closed_by_server", false, Some("watch.closed_by_server_per_sec");
    /// Established connections that are paths of an MPTCP connection.
    Multipath = "multipath", "connections_multipath", false, None;
    /// Connections ended by a reset or a timeout.
    Aborted = "aborted", "connections_aborted", false, Some("watch.aborted_per_sec");
    /// TCP segments retransmitted by the server.
    Retransmits = "retransmits", "retransmits", false, Some("watch.retransmits_per_sec");
    /// TCP resets sent by the server.
    ResetsSent = "resets_sent", "resets_sent", false, Some("watch.resets_sent_per_sec");
    /// TCP resets received by the server.
    ResetsReceived = "resets_received", "resets_received", false, Some("watch.resets_received_per_sec");
    /// Responses whose status was read, in windows.
    StatusLines = "status_lines", "status_lines", false, None;
    /// Responses with status 5xx or 429 among those whose status was read.
    ServerErrors = "server_errors", "server_errors", false, None;
    /// Responses with another status 4xx among those whose status was read.
    ClientErrors = "client_errors", "client_errors", false, None;
    /// Bytes received on closed connections, plus one for the FIN of each.
    ClosedBytesReceived = "closed_bytes_received", "closed_connections_received_bytes", false, None;
    /// Bytes that clients acknowledged on closed connections, plus at most one for the FIN of each.
    ClosedBytesAcked = "closed_bytes_acked", "closed_connections_acknowledged_bytes", false, None;
    /// Data segments received on closed connections.
    ClosedDataSegmentsIn = "closed_data_segments_in", "closed_connections_received_segments", false, None;
    /// Data segments sent on closed connections.
    ClosedDataSegmentsOut = "closed_data_segments_out", "closed_connections_sent_segments", false, None;
    /// Requests lost because the table of connections was full.
    DisplacedOpen = "displaced_open", "watch_lost_requests", true, None;
    /// Answered requests whose record was evicted early because the table of connections was full.
    DisplacedAnswered = "displaced_answered", "watch_displaced_requests", true, None;
    /// Threads evicted from the full table of threads; part of their CPU time is charged to no request.
    DisplacedThreads = "displaced_threads", "watch_displaced_threads", true, None;
    /// Bytes that the server moved out of its connections without reading them (splice).
    UnreadBytes = "unread_bytes", "watch_unread_bytes", true, None;
    /// Requests whose connection ended before a byte of response was written.
    Unanswered = "unanswered", "unanswered_requests", true, None;
}
