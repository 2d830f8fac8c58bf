use super::{Stream, WireProtocol};
use crate::connection::{Connection, RequestInFlight};
use crate::framing::{AtEnd, Consumed, Malformed};
use crate::replies::Reply;
use crate::request::Requests;
use crate::worker::Source;
use std::collections::VecDeque;

/// A protocol that answers in order: the bytes of its requests, and the end of its replies.
pub trait OrderedProtocol {
    /// The state of a reply.
    type Reply: Reply;

    /// Appends the opening of a connection; returns the number of replies to it.
    fn open(&mut self, _out: &mut Vec<u8>) -> u32 {
        0
    }

    /// Appends the next request. `feed` receives the returned value with the reply.
    fn put(&mut self, out: &mut Vec<u8>) -> u32;

    /// Takes the next bytes of a reply.
    fn feed(&mut self, reply: &mut Self::Reply, target: u32, bytes: &[u8]) -> Result<Consumed, Malformed>;
}

pub(crate) struct InOrder<K> {
    protocol: K,
    depth: usize,
}

impl<K: OrderedProtocol> InOrder<K> {
    pub(crate) fn new(protocol: K, depth: u32) -> Self {
        InOrder { protocol, depth: depth as usize }
    }
}

#[derive(Debug, Default)]
pub(crate) struct ReplyQueue<R> {
    reply: R,
    out: Vec<u8>,
    behind: VecDeque<RequestInFlight>,
}

/// Larger buffers are freed when empty.
const KEPT_BYTES: usize = 64 * 1024;

impl<R: Reply> Stream for ReplyQueue<R> {
    fn reset(&mut self) {
        self.reply.reset();
    }

    fn close(&mut self) {
        self.reply.reset();
        self.behind.clear();
        self.all_sent();
    }

    fn status(&self) -> u16 {
        self.reply.status()
    }

    fn is_keep_alive(&self) -> bool {
        true
    }

    fn at_end(&self) -> AtEnd {
        if self.reply.has_started() { AtEnd::Truncated } else { AtEnd::Nothing }
    }

    fn carry_bytes(&self) -> usize {
        self.reply.memory_bytes() + self.out.capacity() + self.behind.capacity() * size_of::<RequestInFlight>()
    }

    #[inline]
    fn has_room(&self, depth: usize) -> bool {
        self.behind.len() + 1 < depth
    }

    #[inline]
    fn push(&mut self, request: RequestInFlight) {
        self.behind.push_back(request);
    }

    #[inline]
    fn next(&mut self) -> Option<RequestInFlight> {
        self.behind.pop_front()
    }

    #[inline]
    fn has_unsent(&self) -> bool {
        !self.out.is_empty()
    }

    #[inline]
    fn all_sent(&mut self) {
        self.out.clear();
        if self.out.capacity() > KEPT_BYTES {
            self.out = Vec::new();
        }
    }

    fn error_message(&self) -> Option<&[u8]> {
        Some(self.reply.error())
    }
}

impl<K: OrderedProtocol> WireProtocol for InOrder<K> {
    type Stream = ReplyQueue<K::Reply>;

    const IS_PIPELINED: bool = true;

    #[inline]
    fn depth(&self) -> usize {
        self.depth
    }

    fn open(&mut self, stream: &mut Self::Stream) -> u32 {
        self.protocol.open(&mut stream.out)
    }

    /// The source chooses only the time; the protocol chooses the request.
    #[inline]
    fn put<S: Source>(
        &mut self,
        _source: &mut S,
        _requests: &Requests,
        _slot: usize,
        stream: &mut Self::Stream,
    ) -> u32 {
        self.protocol.put(&mut stream.out)
    }

    #[inline]
    fn bytes<'b, S: Source>(
        &'b mut self,
        _source: &'b S,
        _requests: &'b Requests,
        _slot: usize,
        connection: &'b Connection<Self::Stream>,
    ) -> &'b [u8] {
        &connection.stream.out
    }

    #[inline]
    fn feed(&mut self, stream: &mut Self::Stream, target: u32, bytes: &[u8]) -> Result<Consumed, Malformed> {
        self.protocol.feed(&mut stream.reply, target, bytes)
    }
}
