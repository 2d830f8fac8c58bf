//! A request belongs to the window if any part of its life does: it was *intended* in the window, or was in flight
//! when the window began. Either way it counts with its full time. Rates count what *happened* inside the window.
//! Requests in flight at either end of the window make the difference.

use crate::framing::{HTTP_2, is_http_2};
use crate::http2::{REFUSED_STREAM, error_name};
use crate::series::Series;
use crate::socket::Errno;
use crate::stall::StallLog;
use record::{Latency, LoadCounts, PlainText};
use std::ops::Range;

/// A longer connect counts as slow: a lost SYN is repeated after 1 s.
const SLOW_CONNECT_NS: u64 = 1_000_000_000;
const MAX_EXAMPLES: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    Refused,
    Reset,
    TimedOut,
    ConnectTimedOut,
    Truncated,
    ClosedEarly,
    Malformed(&'static str),
    /// An error reply of a protocol other than HTTP, as a sentence.
    Foreign(&'static str),
    StreamReset(u32),
    /// The server ends an HTTP/2 connection and does not process the request.
    GoneAway(u32),
    /// The server refused the opening of a connection: a password, a database.
    Unwelcome,
    LocalLimit(&'static str),
    Other(Errno),
    Tls,
}

impl Failure {
    pub(crate) fn from_errno(error: Errno) -> Self {
        match error {
            Errno::CONNREFUSED => Failure::Refused,
            Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED => Failure::Reset,
            // The kernel's timeout came before our own; users need no distinction.
            Errno::TIMEDOUT => Failure::ConnectTimedOut,
            Errno::ADDRNOTAVAIL | Errno::ADDRINUSE => Failure::LocalLimit("no local port was left for a connection"),
            Errno::MFILE | Errno::NFILE => Failure::LocalLimit("no file descriptor was left for a connection"),
            Errno::NOMEM | Errno::NOBUFS => Failure::LocalLimit("the kernel had no memory for a connection"),
            _ => Failure::Other(error),
        }
    }

    pub(crate) fn kind(self) -> &'static str {
        match self {
            Failure::Refused => "refused",
            Failure::Reset => "reset",
            Failure::TimedOut => "timed out",
            Failure::ConnectTimedOut => "connect timed out",
            Failure::Truncated => "truncated",
            Failure::ClosedEarly => "closed early",
            Failure::Malformed(_) | Failure::Foreign(_) => "malformed",
            Failure::StreamReset(_) => "stream reset",
            Failure::GoneAway(_) => "gone away",
            Failure::Unwelcome => "unwelcome",
            Failure::LocalLimit(_) => "local limit",
            Failure::Other(_) => "other error",
            Failure::Tls => "tls",
        }
    }

    fn message(self) -> String {
        match self {
            Failure::Refused => "the server refused the connection".into(),
            Failure::Reset => "the server reset the connection while a request was in flight".into(),
            Failure::TimedOut => "no complete response within the timeout".into(),
            Failure::ConnectTimedOut => "the connection could not be established within the connect timeout".into(),
            Failure::Truncated => "the connection ended in the middle of a response".into(),
            Failure::ClosedEarly => "the server closed the connection before any byte of the response".into(),
            Failure::Malformed(why) if why == HTTP_2.0 => why.into(),
            Failure::Malformed(why) => format!("not a valid HTTP/1.x response: {why}"),
            Failure::Foreign(why) => why.into(),
            Failure::StreamReset(code) => format!("the server reset the request's stream ({})", error_name(code)),
            Failure::GoneAway(code) => format!(
                "the server ended the connection before it processed the request (GOAWAY, {}): does it limit the \
                 requests on a connection?",
                error_name(code)
            ),
            Failure::Unwelcome => "the server refused the opening of the connection (AUTH or SELECT)".into(),
            Failure::LocalLimit(what) => format!("limit of this machine: {what}"),
            Failure::Other(error) => format!("network error: {error}"),
            Failure::Tls => "the TLS handshake or a TLS record failed".into(),
        }
    }
}

/// How a request belongs to the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowRelation {
    /// It ended before the window, or was due after it.
    No,
    /// It was sent in the window.
    Sent,
    /// It was sent before the window and was in flight when it began.
    CarriedIn,
}

impl WindowRelation {
    #[inline]
    pub(crate) fn is_counted(self) -> bool {
        self != WindowRelation::No
    }
}

pub(crate) struct Tally {
    /// The measured window, `[begin, end)`; the end moves only if a run is cut short.
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    /// The counts of the result. [`Tally::finish`] adds the service times and times to first byte of responses that
    /// came in one piece.
    pub(crate) counts: LoadCounts,
    /// Service times of responses that came in one piece. Their first byte is their last, so one record suffices.
    whole: Latency,
    /// The latest status and how often it came in a row; one insertion into the map covers them all.
    last_status: (u16, u64),
    pub(crate) series: Series,
    pub(crate) stalls: StallLog,
    pub(crate) examples: Vec<(&'static str, String)>,
    pub(crate) completed_total: u64,
    pub(crate) failed_in_window: u64,
}

impl Tally {
    pub(crate) fn new(begin_ns: u64, end_ns: u64) -> Self {
        Tally {
            begin_ns,
            end_ns,
            counts: LoadCounts::default(),
            whole: Latency::new(),
            last_status: (0, 0),
            series: Series::new(begin_ns, end_ns.saturating_sub(begin_ns)),
            stalls: StallLog::default(),
            examples: Vec::new(),
            completed_total: 0,
            failed_in_window: 0,
        }
    }

    pub(crate) fn take_connections(&mut self, before: Tally) {
        self.counts.add(&before.counts);
        for (kind, words) in before.examples {
            self.example(kind, || words);
        }
    }

    #[inline]
    pub(crate) fn covers(&self, at_ns: u64) -> bool {
        at_ns >= self.begin_ns && at_ns < self.end_ns
    }

    /// How a request that ended, or was still in flight, at `end_ns` relates to the window.
    #[inline]
    pub(crate) fn belongs(&self, intended_ns: u64, end_ns: u64) -> WindowRelation {
        if self.covers(intended_ns) {
            WindowRelation::Sent
        } else if intended_ns < self.begin_ns && end_ns >= self.begin_ns && self.begin_ns < self.end_ns {
            WindowRelation::CarriedIn
        } else {
            WindowRelation::No
        }
    }

    /// Counts an ended request that was sent before the window; later ones were counted when sent.
    #[inline]
    fn is_over(&mut self, intended_ns: u64, end_ns: u64) -> bool {
        let belongs = self.belongs(intended_ns, end_ns);
        self.counts.outcomes.carried_in += u64::from(belongs == WindowRelation::CarriedIn);
        belongs.is_counted()
    }

    #[inline]
    pub(crate) fn issued(&mut self, intended_ns: u64) {
        if self.covers(intended_ns) {
            self.counts.outcomes.sent += 1;
        }
    }

    /// Counts an open-loop request that is sent, after a wait of `wait_ns` for a connection.
    #[inline]
    pub(crate) fn left(&mut self, intended_ns: u64, actual_ns: u64, wait_ns: u64) {
        let lag_ns = actual_ns.saturating_sub(intended_ns);
        if self.belongs(intended_ns, actual_ns).is_counted() {
            self.counts.times.lag.record_ns(lag_ns);
            self.counts.times.connection_wait.record_ns(wait_ns);
            self.counts.times.own_lag.record_ns(lag_ns.saturating_sub(wait_ns));
        }
        self.series.lag(actual_ns, lag_ns);
    }

    #[inline]
    pub(crate) fn sent(&mut self, intended_ns: u64, bytes: usize) {
        if self.covers(intended_ns) {
            self.counts.sent_bytes += bytes as u64;
        }
    }

    #[inline]
    pub(crate) fn received(&mut self, intended_ns: u64, now_ns: u64, bytes: usize, body: usize) {
        if self.belongs(intended_ns, now_ns).is_counted() {
            self.counts.received_bytes += bytes as u64;
            self.counts.body_bytes += body as u64;
        }
        if self.covers(now_ns) {
            self.counts.received_in_window_bytes += bytes as u64;
            self.series.received(now_ns, bytes as u64);
        }
    }

    #[inline]
    pub(crate) fn parts_came(&mut self, intended_ns: u64, now_ns: u64, gap_ns: u64, parts: u32) {
        if parts > 0 && self.belongs(intended_ns, now_ns).is_counted() {
            self.counts.times.part_gap.record_many_ns(gap_ns, u64::from(parts));
        }
    }

    /// `first_byte_ns` = 0: the response came in one piece.
    #[inline]
    pub(crate) fn completed(
        &mut self,
        intended_ns: u64,
        actual_ns: u64,
        first_byte_ns: u64,
        now_ns: u64,
        (status, is_ok): (u16, bool),
        is_open: bool,
    ) {
        let response_ns = now_ns.saturating_sub(intended_ns);
        if self.is_over(intended_ns, now_ns) {
            let service_ns = now_ns.saturating_sub(actual_ns);
            if first_byte_ns == 0 {
                self.whole.record_ns(service_ns);
            } else {
                self.counts.times.service.record_ns(service_ns);
                self.counts.times.first_byte.record_ns(first_byte_ns.saturating_sub(actual_ns));
            }
            if is_open {
                self.counts.times.response.record_ns(response_ns);
            }
            if is_ok {
                self.counts.outcomes.ok += 1;
            } else {
                self.counts.outcomes.non_2xx += 1;
            }
            if self.last_status.0 == status {
                self.last_status.1 += 1;
            } else {
                self.settle_status();
                self.last_status = (status, 1);
            }
            if !is_ok {
                self.example("non-2xx", || format!("the server answered with status {status}"));
            }
        }
        if self.covers(now_ns) {
            self.counts.completed_in_window += 1;
            self.counts.ok_in_window += u64::from(is_ok);
            self.failed_in_window += u64::from(!is_ok);
            self.series.completed(now_ns, response_ns);
        }
        self.stalls.answered(actual_ns, now_ns, self.begin_ns..self.end_ns);
        self.completed_total += 1;
    }

    pub(crate) fn dated(&mut self, time: Range<u64>) {
        let (from_ns, to_ns) = (time.start.max(self.begin_ns), time.end.min(self.end_ns));
        if from_ns < to_ns {
            self.counts.dated_ns += to_ns - from_ns;
            self.counts.dated_times += 1;
        }
    }

    pub(crate) fn arrived(&mut self, intended_ns: u64, arrived_ns: u64, now_ns: u64) {
        if self.belongs(intended_ns, now_ns).is_counted() {
            let times = &mut self.counts.times;
            times.reap.record_ns(now_ns.saturating_sub(arrived_ns));
            times.sampled.record_ns(now_ns.saturating_sub(intended_ns));
            // A byte that arrived after the event's time stamp, but before the read, did not wait.
            times.arrived.record_ns(arrived_ns.min(now_ns).saturating_sub(intended_ns));
        }
    }

    pub(crate) fn arrival_unknown(&mut self, intended_ns: u64, now_ns: u64) {
        self.counts.arrivals_unknown += u64::from(self.belongs(intended_ns, now_ns).is_counted());
    }

    fn settle_status(&mut self) {
        let (status, count) = std::mem::take(&mut self.last_status);
        if count > 0 {
            *self.counts.status_counts.entry(status).or_default() += count;
        }
    }

    /// [`Tally::issued`] was called for it.
    pub(crate) fn failed(&mut self, intended_ns: u64, now_ns: u64, failure: Failure) {
        if self.is_over(intended_ns, now_ns) {
            let outcomes = &mut self.counts.outcomes;
            *match failure {
                Failure::Refused | Failure::Unwelcome | Failure::GoneAway(_) => &mut outcomes.refused,
                Failure::StreamReset(REFUSED_STREAM) => &mut outcomes.refused,
                Failure::Reset | Failure::StreamReset(_) => &mut outcomes.reset,
                Failure::TimedOut => &mut outcomes.timed_out,
                Failure::ConnectTimedOut => &mut outcomes.connect_timed_out,
                Failure::Truncated => &mut outcomes.truncated,
                Failure::ClosedEarly => &mut outcomes.closed_early,
                Failure::Malformed(_) | Failure::Foreign(_) => &mut outcomes.malformed,
                Failure::LocalLimit(_) => &mut outcomes.local_limit,
                Failure::Tls => &mut outcomes.tls_failed,
                Failure::Other(_) => &mut outcomes.other_error,
            } += 1;
            if matches!(failure, Failure::TimedOut | Failure::ConnectTimedOut) {
                self.counts.times.unfinished_age.record_ns(now_ns.saturating_sub(intended_ns));
            }
            self.example(failure.kind(), || failure.message());
        }
        if self.covers(now_ns) {
            self.failed_in_window += 1;
            self.series.failed(now_ns);
        }
    }

    /// A request that was in flight, or unsent, when the run ended. [`Tally::issued`] was called for it.
    pub(crate) fn unfinished(&mut self, intended_ns: u64, now_ns: u64, has_left: bool) {
        if self.is_over(intended_ns, now_ns) {
            self.counts.outcomes.unfinished += 1;
            self.counts.times.unfinished_age.record_ns(now_ns.saturating_sub(intended_ns));
            self.counts.never_sent += u64::from(!has_left);
        }
    }

    pub(crate) fn used(&mut self, is_answered: bool) {
        self.counts.outcomes.connections_used += 1;
        self.counts.outcomes.connections_silent += u64::from(!is_answered);
    }

    pub(crate) fn connected(&mut self, took_ns: u64) {
        self.counts.outcomes.connects += 1;
        self.counts.outcomes.connects_slow += u64::from(took_ns > SLOW_CONNECT_NS);
        self.counts.times.connect.record_ns(took_ns);
    }

    pub(crate) fn connect_failed(&mut self, failure: Failure) {
        self.counts.outcomes.connects_failed += 1;
        self.example(failure.kind(), || failure.message());
    }

    pub(crate) fn stray(&mut self, bytes: &[u8]) {
        self.counts.stray_responses += 1;
        self.example("stray", || {
            if is_http_2(bytes) {
                HTTP_2.0.into()
            } else {
                "the server sent bytes on a connection without a request in flight".into()
            }
        });
    }

    pub(crate) fn error_message(&mut self, words: &[u8]) {
        self.example("non-2xx", || format!("the server answered '{}'", PlainText::of_bytes(words, 80)));
    }

    fn example(&mut self, kind: &'static str, words: impl FnOnce() -> String) {
        if self.examples.len() < MAX_EXAMPLES && self.examples.iter().all(|(known, _)| *known != kind) {
            self.examples.push((kind, words()));
        }
    }

    /// In a closed loop the response time is the service time.
    pub(crate) fn finish(&mut self, is_open: bool) {
        self.settle_status();
        self.stalls.end(self.begin_ns..self.end_ns);
        let times = &mut self.counts.times;
        times.service.merge(&self.whole);
        times.first_byte.merge(&self.whole);
        self.whole = Latency::new();
        if !is_open {
            times.response = times.service.clone();
        }
    }

    pub(crate) fn merge(&mut self, other: Tally) {
        self.end_ns = self.end_ns.max(other.end_ns);
        self.counts.add(&other.counts);
        self.completed_total += other.completed_total;
        for (kind, words) in other.examples {
            self.example(kind, || words);
        }
        self.series.merge(other.series);
        self.stalls.merge(other.stalls);
    }
}
