//! The protocol of a connection: its opening, the bytes of a request, and where its response ends. Without I/O: a
//! [`Transport`](super::Transport) carries the bytes, and [`exchange`](super::exchange) passes them to the protocol and
//! acts on its answer.
//!
//! - [`Http1`]: one request at a time on a connection; its state is [`Framing`](crate::framing::Framing), inline in the
//!   connection;
//! - [`InOrder`]: several requests in flight on a connection, answered in order: [`Redis`], [`Memcached`], [`Tcp`];
//! - [`Http2`]: several, answered in any order;
//! - [`Connect`]: none, only a connection.
//!
//! A connection describes one request in flight. In-order protocols describe the oldest one and keep the later ones in
//! their [`Stream`]. Multiplexed protocols keep all, and [`Stream::turn`] lets the connection describe the one that is
//! answered.

mod commands;
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
pub(crate) use in_order::{InOrder, OrderedProtocol};
pub(crate) use memcached::Memcached;
pub(crate) use redis::Redis;
pub(crate) use tcp::Tcp;
pub(crate) use traces::Traces;

use super::Source;
use crate::connection::Connection;
use crate::connection::UnderWay;
use crate::framing::{AtEnd, Consumed, Malformed};
use crate::request::Requests;
use crate::tally::Failure;

/// A protocol's part of a connection: the response in progress, and the requests that the connection does not describe.
pub(crate) trait Stream: Default {
    /// Prepares for another response.
    fn reset(&mut self);

    /// The connection is closed: forgets everything.
    fn close(&mut self);

    /// The status of the complete response; 200 to 399 are good.
    fn status(&self) -> u16;

    /// Whether another request may follow the complete response on the connection.
    fn is_keep_alive(&self) -> bool;

    /// Whether the server will end the connection after the complete response.
    fn server_closes(&self) -> bool {
        !self.is_keep_alive()
    }

    /// The effect of the connection's end on the response.
    fn at_end(&self) -> AtEnd;

    /// Number of the next bytes that are certainly body and need no inspection.
    fn skippable(&self) -> u64 {
        0
    }

    /// Skips `count` body bytes that were discarded unread; at most [`Stream::skippable`].
    fn skip(&mut self, _count: u64) {}

    /// Bytes allocated outside the connection.
    fn carry_bytes(&self) -> usize;

    /// Whether another request may be put while one is in flight, with at most `depth` of them.
    fn has_room(&self, _depth: usize) -> bool {
        false
    }

    /// Keeps the request that was just put.
    fn push(&mut self, _request: UnderWay) {}

    /// Forgets the described request and returns another one, the oldest if in order.
    fn next(&mut self) -> Option<UnderWay> {
        None
    }

    /// Multiplexed: the place of the described request, less than [`Protocol::places`].
    #[inline]
    fn place(&self) -> usize {
        0
    }

    /// Multiplexed: the place of the request put last.
    #[inline]
    fn newest(&self) -> usize {
        0
    }

    /// Multiplexed: describes the request to which the last bytes belong. False if there is none.
    fn turn(&mut self, _described: &mut UnderWay) -> bool {
        true
    }

    /// Multiplexed: describes one of the requests in flight if none is described.
    fn describe_any(&mut self, _described: &mut UnderWay) {}

    /// Multiplexed: forgets the described request. Returns whether others are in flight.
    fn release(&mut self) -> bool {
        false
    }

    /// Multiplexed: bytes came in.
    fn heard(&mut self, _now_ns: u64) {}

    /// Multiplexed: describes a request that was sent before `before_ns`, if there is one. Returns when bytes last came
    /// in.
    fn late(&mut self, _before_ns: u64, _described: &mut UnderWay) -> Option<u64> {
        None
    }

    /// Multiplexed: whether there is something to report without more bytes.
    fn has_more(&self) -> bool {
        false
    }

    /// Multiplexed: why the complete request has no response.
    fn failure(&self) -> Option<Failure> {
        None
    }

    /// Whether requests were put but not handed to the transport.
    fn has_unsent(&self) -> bool {
        false
    }

    /// Every request was handed to the transport.
    fn all_sent(&mut self) {}

    /// The server's message in an error response. Untrusted.
    fn error_message(&self) -> Option<&[u8]> {
        None
    }
}

/// Chosen once for each thread, like its [`Source`] and [`Transport`](super::Transport).
pub(crate) trait Protocol: Sized {
    type Stream: Stream;

    /// Several requests may be in flight on a connection, and connections may have an opening. Otherwise code for these
    /// is not compiled.
    const IS_PIPELINED: bool;

    /// Requests are answered in any order, and fail one by one. Some bytes belong to no request.
    const IS_MULTIPLEXED: bool = false;

    /// Statuses are those of HTTP/1, in their bytes.
    const IS_HTTP_1: bool = false;

    /// Nothing is sent: an open connection is an answered request.
    const CONNECTS_ONLY: bool = false;

    /// Maximum requests in flight on a connection.
    fn depth(&self) -> usize {
        1
    }

    /// Maximum places for requests on a connection.
    #[inline]
    fn places(&self) -> usize {
        1
    }

    /// Puts what opens a connection; returns the number of replies to it.
    fn open(&mut self, _stream: &mut Self::Stream) -> u32 {
        0
    }

    /// Puts the next request on `slot`. The returned target is passed to [`feed`](Self::feed) with its response.
    fn put<S: Source>(&mut self, source: &mut S, requests: &Requests, slot: usize, stream: &mut Self::Stream) -> u32;

    /// The bytes put last on a connection, not all of which were handed to the transport.
    fn bytes<'b, S: Source>(
        &'b mut self,
        source: &'b S,
        requests: &'b Requests,
        slot: usize,
        connection: &'b Connection<Self::Stream>,
    ) -> &'b [u8];

    /// The trace ids of requests; `None` without any.
    fn traces(&self) -> Option<&Traces> {
        None
    }

    /// The length of the longest possible request, as far as it matters for Nagle's algorithm.
    fn longest<S: Source>(&self, source: &S, requests: &Requests) -> usize;

    /// Takes the next bytes of a connection. `target` is that of the request they answer.
    fn feed(&mut self, stream: &mut Self::Stream, target: u32, bytes: &[u8]) -> Result<Consumed, Malformed>;

    /// The failure of a request that is answered by such bytes.
    fn failure(malformed: Malformed) -> Failure;
}
