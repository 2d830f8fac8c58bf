use super::{Source, Transport, WireProtocol, Worker};
use crate::connection::RequestInFlight;
use crate::socket;
use record::SlowRequest;

/// How a connection was opened; kept apart, so that connections stay small.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Opening {
    pub(super) ready_ns: u64,
    pub(super) took_us: u32,
    /// The client's port, once it was requested; 0 before.
    pub(super) local_port: u16,
}

impl Opening {
    pub(super) fn new(begun_ns: u64, ready_ns: u64) -> Self {
        let took_us = u32::try_from(ready_ns.saturating_sub(begun_ns) / 1000).unwrap_or(u32::MAX);
        Opening { ready_ns, took_us, local_port: 0 }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestEnd {
    /// A complete response with this status.
    Answered(u16),
    /// Failed without a response, after it was sent.
    Failed(&'static str),
    /// It was not sent, because its connection was not opened.
    NotSent(&'static str),
}

impl<S: Source, T: Transport, A: WireProtocol> Worker<'_, S, T, A> {
    /// The connection is at the request's place.
    #[cold]
    pub(super) fn request_ended(&mut self, slot: usize, request: RequestInFlight, now: u64, end: RequestEnd) {
        let RequestInFlight { intended_ns, since_ns, first_byte_ns, received_bytes, .. } = request;
        let response_ns = now.saturating_sub(intended_ns);
        let is_slow = response_ns > self.tally.counts.slowest.least_ns();
        if !is_slow || !self.tally.belongs(intended_ns, now).is_counted() {
            return;
        }
        let opening = &mut self.openings[slot];
        if opening.local_port == 0 {
            opening.local_port = socket::local_port(self.connections[slot].fd).unwrap_or(0);
        }
        let begun_ns = opening.ready_ns.saturating_sub(u64::from(opening.took_us) * 1000);
        let sent_ns = if matches!(end, RequestEnd::NotSent(_)) { now } else { since_ns.clamp(intended_ns, now) };
        let mut connect_ns = sent_ns.min(opening.ready_ns).saturating_sub(intended_ns.max(begun_ns));
        let wait_ns = (sent_ns - intended_ns).saturating_sub(connect_ns);
        let first_ns = if first_byte_ns == 0 { now } else { first_byte_ns.clamp(sent_ns, now) };
        let mut first_byte_ns = first_ns - sent_ns;
        if A::CONNECTS_ONLY && !matches!(end, RequestEnd::NotSent(_)) {
            // The connection is the request.
            (connect_ns, first_byte_ns) = (connect_ns + first_byte_ns, 0);
        }
        let (status, failure) = match end {
            RequestEnd::Answered(status) => (Some(status), None),
            RequestEnd::Failed(why) | RequestEnd::NotSent(why) => (None, Some(why.into())),
        };
        let place = self.place(slot);
        let traces = self.protocol.traces().filter(|_| !matches!(end, RequestEnd::NotSent(_)));
        let request = SlowRequest {
            response_ns,
            at_ns: intended_ns as i64 - self.tally.begin_ns as i64,
            wait_ns,
            connect_ns,
            first_byte_ns,
            last_byte_ns: now - first_ns,
            // Connections are dealt to the threads in turn.
            connection: slot as u32 * self.task.thread.of + self.task.thread.index + 1,
            local_port: (self.openings[slot].local_port != 0).then_some(self.openings[slot].local_port),
            received_bytes,
            status,
            failure,
            trace_id: traces.map(|traces| traces.id(place)),
            client: None,
        };
        self.tally.counts.slowest.offer(request);
    }
}
