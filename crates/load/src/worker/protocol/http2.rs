//! HTTP/2. [`crate::http2`] knows its bytes; here a connection's streams become requests of the load.

use super::{Stream, Traces, WireProtocol};
use crate::connection::{Connection, RequestInFlight};
use crate::framing::{AtEnd, Consumed, Malformed};
use crate::http2::{Http2Session, RequestBlocks, StreamEnd, places};
use crate::request::http_2;
use crate::socket::Errno;
use crate::tally::Failure;
use crate::worker::Source;
use record::LoadPlan;
use record::protocol::Protocol;
use std::sync::Arc;

pub(crate) struct Http2 {
    requests: RequestBlocks,
    depth: usize,
    places: usize,
    is_grpc: bool,
    counts_parts: bool,
    traces: Option<Traces>,
}

pub(crate) fn grpc_status<R: Default + Clone>(session: &Http2Session<R>, place: usize) -> u16 {
    match session.status(place) {
        200 => record::protocol::grpc_status(session.grpc_status(place)),
        _ => record::protocol::FIRST_ERROR,
    }
}

impl Http2 {
    pub(crate) fn new(plan: &LoadPlan, body: Arc<[u8]>, connections: usize) -> Result<Self, Errno> {
        let is_grpc = matches!(plan.protocol, Protocol::Grpc(_));
        let depth = plan.protocol.pipeline();
        let traces = Traces::new(plan, connections * places(depth))?;
        Ok(Http2 {
            requests: http_2(plan, body),
            depth: depth as usize,
            places: places(depth),
            is_grpc,
            counts_parts: plan.clients.times_parts,
            traces,
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Http2Streams {
    session: Http2Session<RequestInFlight>,
    described: Option<usize>,
    oldest_ns: u64,
    received_ns: u64,
    is_grpc: bool,
}

impl Http2Streams {
    #[inline]
    fn describe(&mut self, place: usize, described: &mut RequestInFlight) {
        if self.described != Some(place) {
            if let Some(before) = self.described.replace(place) {
                *self.session.request(before) = *described;
            }
            *described = *self.session.request(place);
        }
    }
}

impl Stream for Http2Streams {
    #[inline]
    fn reset(&mut self) {}

    fn close(&mut self) {
        *self = Http2Streams::default();
    }

    /// The status of the current request; without one, that of the opening.
    #[inline]
    fn status(&self) -> u16 {
        match self.described {
            None => record::protocol::ANSWER,
            Some(place) if self.is_grpc => grpc_status(&self.session, place),
            Some(place) => self.session.status(place),
        }
    }

    #[inline]
    fn is_keep_alive(&self) -> bool {
        self.session.is_lasting()
    }

    fn at_end(&self) -> AtEnd {
        match self.described {
            Some(place) if self.session.status(place) != 0 => AtEnd::Truncated,
            _ => AtEnd::Nothing,
        }
    }

    fn carry_bytes(&self) -> usize {
        self.session.memory_bytes()
    }

    #[inline]
    fn has_room(&self, _depth: usize) -> bool {
        self.session.has_room()
    }

    #[inline]
    fn push(&mut self, request: RequestInFlight) {
        if self.session.open_streams() == 1 {
            self.oldest_ns = request.since_ns;
        }
        *self.session.request(self.session.newest()) = request;
    }

    fn next(&mut self) -> Option<RequestInFlight> {
        let from = self.described.unwrap_or(0);
        self.release();
        let place = self.session.find(from, |_| true)?;
        self.described = Some(place);
        Some(*self.session.request(place))
    }

    #[inline]
    fn place(&self) -> usize {
        self.described.unwrap_or(0)
    }

    #[inline]
    fn newest(&self) -> usize {
        self.session.newest()
    }

    #[inline]
    fn describe_current(&mut self, described: &mut RequestInFlight) -> bool {
        let place = self.session.current();
        if let Some(place) = place {
            self.describe(place, described);
        }
        place.is_some()
    }

    fn describe_any(&mut self, described: &mut RequestInFlight) {
        if self.described.is_none()
            && let Some(place) = self.session.find(0, |_| true)
        {
            self.describe(place, described);
        }
    }

    #[inline]
    fn release(&mut self) -> bool {
        if let Some(place) = self.described.take() {
            self.session.end(place);
        }
        self.session.open_streams() > 0
    }

    #[inline]
    fn bytes_came(&mut self, now_ns: u64) {
        self.received_ns = now_ns;
    }

    fn late(&mut self, before_ns: u64, described: &mut RequestInFlight) -> Option<u64> {
        if self.oldest_ns > before_ns {
            return None;
        }
        let mut oldest_ns = u64::MAX;
        let late = self.session.find(0, |request| {
            oldest_ns = oldest_ns.min(request.since_ns);
            request.since_ns <= before_ns
        });
        match late {
            None => self.oldest_ns = oldest_ns,
            Some(place) => self.describe(place, described),
        }
        late.map(|_| self.received_ns)
    }

    #[inline]
    fn has_more(&self) -> bool {
        self.session.has_more()
    }

    #[inline]
    fn failure(&self) -> Option<Failure> {
        match self.session.ended()? {
            StreamEnd::Response => None,
            StreamEnd::Malformed(rule) => Some(Http2::failure(rule)),
            StreamEnd::Reset(code) => Some(Failure::StreamReset(code)),
            StreamEnd::GoneAway(code) => Some(Failure::GoneAway(code)),
        }
    }

    #[inline]
    fn has_unsent(&self) -> bool {
        !self.session.out().is_empty()
    }

    fn error_message(&self) -> Option<&[u8]> {
        self.session.grpc_message().filter(|_| self.is_grpc)
    }

    #[inline]
    fn all_sent(&mut self) {
        self.session.all_sent();
    }
}

impl WireProtocol for Http2 {
    type Stream = Http2Streams;

    const IS_PIPELINED: bool = true;
    const IS_MULTIPLEXED: bool = true;

    #[inline]
    fn depth(&self) -> usize {
        self.depth
    }

    #[inline]
    fn places(&self) -> usize {
        self.places
    }

    fn open(&mut self, stream: &mut Http2Streams) -> u32 {
        stream.is_grpc = self.is_grpc;
        if self.counts_parts || self.is_grpc {
            stream.session.count_parts(self.is_grpc);
        }
        stream.session.open(&self.requests, self.depth as u32);
        // The opening has one reply: the server's SETTINGS.
        1
    }

    #[inline]
    fn put<S: Source>(
        &mut self,
        source: &mut S,
        requests: &crate::request::Requests,
        slot: usize,
        stream: &mut Http2Streams,
    ) -> u32 {
        let target = source.target(requests, slot);
        let id = self.traces.as_mut().map(Traces::draw);
        if let Some(id) = id {
            self.requests.trace(id);
        }
        let request = RequestInFlight::default();
        match source.logged(slot) {
            None => stream.session.put(&self.requests, target, request),
            Some(logged) => stream.session.put_block(&self.requests, &logged.bytes, logged.is_head, request),
        }
        if let (Some(traces), Some(id)) = (&mut self.traces, id) {
            traces.keep(slot * self.places + stream.session.newest(), id);
        }
        target as u32
    }

    #[inline]
    fn bytes<'b, S: Source>(
        &'b mut self,
        _source: &'b S,
        _requests: &'b crate::request::Requests,
        _slot: usize,
        connection: &'b Connection<Http2Streams>,
    ) -> &'b [u8] {
        connection.stream.session.out()
    }

    #[inline]
    fn feed(&mut self, stream: &mut Http2Streams, _target: u32, bytes: &[u8]) -> Result<Consumed, Malformed> {
        stream.session.feed(bytes)
    }

    fn traces(&self) -> Option<&Traces> {
        self.traces.as_ref()
    }
}
