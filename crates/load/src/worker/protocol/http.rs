use super::{Stream, Traces, WireProtocol};
use crate::connection::Connection;
use crate::framing::{AtEnd, Consumed, Framing, HeadCache, Malformed};
use crate::request::Requests;
use crate::tally::Failure;
use crate::worker::Source;

pub(crate) struct Http1 {
    heads: HeadCache,
    traces: Option<Traces>,
}

impl Http1 {
    pub(crate) fn new(heads: HeadCache, traces: Option<Traces>) -> Self {
        Http1 { heads, traces }
    }
}

impl Stream for Framing {
    #[inline]
    fn reset(&mut self) {
        Framing::reset(self);
    }

    #[inline]
    fn status(&self) -> u16 {
        Framing::status(self)
    }

    #[inline]
    fn is_keep_alive(&self) -> bool {
        Framing::is_keep_alive(self)
    }

    #[inline]
    fn server_closes(&self) -> bool {
        Framing::server_closes(self)
    }

    fn at_end(&self) -> AtEnd {
        Framing::at_end(self)
    }

    #[inline]
    fn skippable(&self) -> u64 {
        Framing::skippable(self)
    }

    #[inline]
    fn skip(&mut self, count: u64) {
        Framing::skip(self, count);
    }

    #[inline]
    fn carry_bytes(&self) -> usize {
        Framing::carry_bytes(self)
    }
}

impl WireProtocol for Http1 {
    type Stream = Framing;

    const IS_PIPELINED: bool = false;

    const IS_HTTP_1: bool = true;

    /// Does nothing: the source has the bytes, apart from a trace id.
    #[inline]
    fn put<S: Source>(&mut self, source: &mut S, requests: &Requests, slot: usize, _stream: &mut Framing) -> u32 {
        if let Some(traces) = &mut self.traces {
            let id = traces.draw();
            traces.keep(slot, id);
        }
        source.target(requests, slot) as u32
    }

    #[inline]
    fn bytes<'b, S: Source>(
        &'b mut self,
        source: &'b S,
        requests: &'b Requests,
        slot: usize,
        connection: &'b Connection<Framing>,
    ) -> &'b [u8] {
        let bytes = match source.logged(slot) {
            Some(request) => &request.bytes[..],
            None => requests.bytes_for(connection),
        };
        match &mut self.traces {
            None => bytes,
            Some(traces) => traces.patched(bytes, slot, connection.written as usize),
        }
    }

    fn longest<S: Source>(&self, requests: &Requests) -> usize {
        if S::IS_LOG { usize::MAX } else { requests.longest() }
    }

    #[inline]
    fn feed(&mut self, stream: &mut Framing, target: u32, bytes: &[u8]) -> Result<Consumed, Malformed> {
        stream.feed(&mut self.heads, target as usize, bytes)
    }

    fn traces(&self) -> Option<&Traces> {
        self.traces.as_ref()
    }

    fn failure(malformed: Malformed) -> Failure {
        Failure::Malformed(malformed.0)
    }
}
