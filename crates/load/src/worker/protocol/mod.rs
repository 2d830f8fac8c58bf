//! The protocol of a connection: its opening, the bytes of a request, and where its response ends. No I/O.
//!
//! A connection describes one request in flight. In-order protocols describe the oldest one and keep the later ones
//! in their [`Stream`]. Multiplexed protocols keep all requests, and [`Stream::describe_current`] lets the connection
//! describe the one that is answered.

pub mod commands;
mod connect;
mod http;
mod http2;
mod in_order;
mod memcached;
mod redis;
mod tcp;
mod traces;

pub(crate) use connect::Connect;
pub(crate) use http::Http1;
pub(crate) use http2::{Http2, grpc_status};
pub(crate) use in_order::InOrder;
pub use in_order::OrderedProtocol;
pub use memcached::Memcached;
pub use redis::Redis;
pub(crate) use tcp::Tcp;
pub use traces::Traces;

use super::Source;
use crate::connection::Connection;
use crate::connection::RequestInFlight;
use crate::framing::{AtEnd, Consumed, Malformed};
use crate::request::Requests;
use crate::tally::Failure;

/// A protocol's part of a connection: the response in progress, and the requests that the connection does not describe.
pub(crate) trait Stream: Default {
    fn reset(&mut self);

    fn close(&mut self) {
        self.reset();
    }

    /// The status of the complete response; 200 to 399 mean success.
    fn status(&self) -> u16;

    /// Whether another request may follow the complete response on the connection.
    fn is_keep_alive(&self) -> bool;

    /// Whether the server will end the connection after the complete response.
    fn server_closes(&self) -> bool {
        !self.is_keep_alive()
    }

    fn at_end(&self) -> AtEnd {
        AtEnd::Nothing
    }

    /// Number of the next bytes that are certainly body and need no inspection.
    fn skippable(&self) -> u64 {
        0
    }

    /// Skips `count` body bytes that were discarded unread; at most [`Stream::skippable`].
    fn skip(&mut self, _count: u64) {}

    fn carry_bytes(&self) -> usize {
        0
    }

    /// Whether another request may be put while others are in flight, at most `depth` in all.
    fn has_room(&self, _depth: usize) -> bool {
        false
    }

    fn push(&mut self, _request: RequestInFlight) {}

    /// Forgets the described request and returns another one, the oldest if responses come in order.
    fn next(&mut self) -> Option<RequestInFlight> {
        None
    }

    /// Multiplexed: the place of the described request, less than [`WireProtocol::places`].
    #[inline]
    fn place(&self) -> usize {
        0
    }

    /// Multiplexed: the place of the request put last.
    #[inline]
    fn newest(&self) -> usize {
        0
    }

    /// Multiplexed: describes the request that the last bytes belong to; false if there is none.
    fn describe_current(&mut self, _described: &mut RequestInFlight) -> bool {
        true
    }

    /// Multiplexed: describes one of the requests in flight if none is described.
    fn describe_any(&mut self, _described: &mut RequestInFlight) {}

    /// Multiplexed: forgets the described request; returns whether others are in flight.
    fn release(&mut self) -> bool {
        false
    }

    fn bytes_came(&mut self, _now_ns: u64) {}

    /// Multiplexed: describes a request that was sent before `before_ns`, if any. Returns when bytes last came in.
    fn late(&mut self, _before_ns: u64, _described: &mut RequestInFlight) -> Option<u64> {
        None
    }

    /// Multiplexed: whether there is more to report before further bytes come.
    fn has_more(&self) -> bool {
        false
    }

    /// Multiplexed: why the request has ended without a response.
    fn failure(&self) -> Option<Failure> {
        None
    }

    /// Whether requests were put but not handed to the transport.
    fn has_unsent(&self) -> bool {
        false
    }

    fn all_sent(&mut self) {}

    fn error_message(&self) -> Option<&[u8]> {
        None
    }
}

pub(crate) trait WireProtocol: Sized {
    type Stream: Stream;

    /// Whether a connection may have several requests in flight, and an opening. If false, the code for both is not
    /// compiled.
    const IS_PIPELINED: bool;

    /// Whether requests are answered in any order and fail separately. Some bytes then belong to no request.
    const IS_MULTIPLEXED: bool = false;

    /// Whether statuses are those of HTTP/1.
    const IS_HTTP_1: bool = false;

    /// Whether an open connection is an answered request, without sending anything.
    const CONNECTS_ONLY: bool = false;

    fn depth(&self) -> usize {
        1
    }

    #[inline]
    fn places(&self) -> usize {
        1
    }

    /// Puts the opening of a connection; returns the number of replies to it.
    fn open(&mut self, _stream: &mut Self::Stream) -> u32 {
        0
    }

    /// Puts the next request on `slot`. [`feed`](Self::feed) receives the returned target with the response.
    fn put<S: Source>(&mut self, source: &mut S, requests: &Requests, slot: usize, stream: &mut Self::Stream) -> u32;

    /// The bytes of the last request on a connection, if not all of them were handed to the transport.
    fn bytes<'b, S: Source>(
        &'b mut self,
        source: &'b S,
        requests: &'b Requests,
        slot: usize,
        connection: &'b Connection<Self::Stream>,
    ) -> &'b [u8];

    fn traces(&self) -> Option<&Traces> {
        None
    }

    /// The length of the longest request, as far as it matters for Nagle's algorithm: unlimited if requests follow
    /// each other without a response between them.
    fn longest<S: Source>(&self, _requests: &Requests) -> usize {
        usize::MAX
    }

    /// Takes the next bytes of a connection. `target`: that of the request that they answer.
    fn feed(&mut self, stream: &mut Self::Stream, target: u32, bytes: &[u8]) -> Result<Consumed, Malformed>;

    fn failure(malformed: Malformed) -> Failure {
        Failure::Foreign(malformed.0)
    }
}
