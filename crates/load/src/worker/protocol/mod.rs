//! The protocol of a connection: what opens it, the bytes of a request, and where its response ends. Without I/O: a
//! [`Transport`](super::Transport) carries the bytes, and [`exchange`](super::exchange) gives them to the protocol and
//! acts on its answer.
//!
//! - [`Http1`]: one request at a time on a connection; its state is [`Framing`](crate::framing::Framing), inline in the
//!   connection;
//! - [`InOrder`]: several requests in flight on a connection, answered in their order: [`Redis`], [`Memcached`],
//!   [`Tcp`];
//! - [`Http2`]: several, answered in any order;
//! - [`Connect`]: none, a connection alone.
//!
//! A connection describes one request under way. Of those in order it is the oldest one, and the later ones are in the
//! protocol's own part, its [`Stream`]. Of those in any order all are there, and [`Stream::turn`] lets the connection
//! describe the one that is answered.

mod commands;
mod connect;
mod http;
mod http2;
mod in_order;
mod memcached;
mod redis;
mod tcp;

pub(crate) use connect::Connect;
pub(crate) use http::Http1;
pub(crate) use http2::{Http2, grpc_status};
pub(crate) use in_order::{InOrder, Reply, Talk};
pub(crate) use memcached::Memcached;
pub(crate) use redis::Redis;
pub(crate) use tcp::Tcp;

use super::Source;
use crate::connection::Connection;
use crate::connection::UnderWay;
use crate::framing::{AtEnd, Fed, Malformed};
use crate::request::Requests;
use crate::tally::Failure;

/// A protocol's part of a connection: the response under way, and the requests that the connection does not describe.
pub(crate) trait Stream: Default {
    /// The next byte begins another response.
    fn reset(&mut self);

    /// Forgets everything: the connection is closed.
    fn close(&mut self);

    /// The status of the response; 200 to 399 are good ones. Meaningful once it is complete.
    fn status(&self) -> u16;

    /// Whether another request may follow on the connection. Meaningful once the response is complete.
    fn is_keep_alive(&self) -> bool;

    /// Whether the server will end the connection. Meaningful once the response is complete.
    fn server_closes(&self) -> bool {
        !self.is_keep_alive()
    }

    /// The effect of the connection's end on the response.
    fn at_end(&self) -> AtEnd;

    /// How many of the next bytes are certainly body, so that they need not be looked at.
    fn skippable(&self) -> u64 {
        0
    }

    /// Skips `count` body bytes that were discarded unread; at most [`Stream::skippable`].
    fn skip(&mut self, _count: u64) {}

    /// Bytes allocated beside the connection.
    fn carry_bytes(&self) -> usize;

    /// Whether another request may be put while one is under way, of at most `depth` in flight.
    fn has_room(&self, _depth: usize) -> bool {
        false
    }

    /// Keeps the request that was just put.
    fn push(&mut self, _request: UnderWay) {}

    /// Forgets the request that the connection describes and takes another one, in order the oldest; `None`: there is
    /// no other.
    fn next(&mut self) -> Option<UnderWay> {
        None
    }

    /// In any order: the place of the request that the connection describes, less than [`Protocol::places`].
    #[inline]
    fn place(&self) -> usize {
        0
    }

    /// In any order: the place of the request that was put last.
    #[inline]
    fn newest(&self) -> usize {
        0
    }

    /// In any order: lets the connection describe the request that the last bytes belong to. False: they belong to
    /// none.
    fn turn(&mut self, _described: &mut UnderWay) -> bool {
        true
    }

    /// In any order: lets the connection describe one of the requests under way, where it describes none.
    fn describe_any(&mut self, _described: &mut UnderWay) {}

    /// In any order: forgets the request that the connection describes. Returns whether others are under way.
    fn release(&mut self) -> bool {
        false
    }

    /// In any order: notes when bytes came in.
    fn heard(&mut self, _now_ns: u64) {}

    /// In any order: lets the connection describe a request that was sent before `before_ns`, if there is one. Returns
    /// when bytes came in last.
    fn late(&mut self, _before_ns: u64, _described: &mut UnderWay) -> Option<u64> {
        None
    }

    /// In any order: whether there is something left to report that needs no more bytes.
    fn has_more(&self) -> bool {
        false
    }

    /// In any order: why the request that is complete has no response.
    fn failure(&self) -> Option<Failure> {
        None
    }

    /// Whether requests are put but not handed to the transport.
    fn has_unsent(&self) -> bool {
        false
    }

    /// Notes that every request was handed to the transport.
    fn all_sent(&mut self) {}

    /// The server's words about a response with an error's status. Untrusted.
    fn complaint(&self) -> Option<&[u8]> {
        None
    }
}

/// Chosen once for each thread, like its [`Source`] and [`Transport`](super::Transport).
pub(crate) trait Protocol: Sized {
    type Stream: Stream;

    /// Several requests may be in flight on a connection, and connections may have an opening. Otherwise neither is the
    /// case, and what only they need is not compiled.
    const IS_PIPELINED: bool;

    /// Such requests are answered in any order, and fail one by one. Bytes come that belong to none of them.
    const IS_MULTIPLEXED: bool = false;

    /// Statuses are those of HTTP, in their bytes.
    const IS_HTTP_1: bool = false;

    /// Nothing is sent: a connection that is ready is a request that is answered.
    const CONNECTS_ONLY: bool = false;

    /// The most requests in flight on a connection.
    fn depth(&self) -> usize {
        1
    }

    /// The most places for requests that a connection has.
    #[inline]
    fn places(&self) -> usize {
        1
    }

    /// Puts what opens a connection; returns the number of replies to it.
    fn open(&mut self, _stream: &mut Self::Stream) -> u32 {
        0
    }

    /// Puts the next request on `slot`. Returns what the protocol wants to know of it when its response comes.
    fn put<S: Source>(&mut self, source: &mut S, requests: &Requests, slot: usize, stream: &mut Self::Stream) -> u32;

    /// The bytes that were put last on a connection and not all handed to the transport.
    fn bytes<'b, S: Source>(
        source: &'b S,
        requests: &'b Requests,
        slot: usize,
        connection: &'b Connection<Self::Stream>,
    ) -> &'b [u8];

    /// The length of the longest possible request, so far as it matters for Nagle's algorithm.
    fn longest<S: Source>(&self, source: &S, requests: &Requests) -> usize;

    /// Takes the next bytes of a connection. `target`: of the request that they answer.
    fn feed(&mut self, stream: &mut Self::Stream, target: u32, bytes: &[u8]) -> Result<Fed, Malformed>;

    /// How a request fails by such bytes.
    fn failure(malformed: Malformed) -> Failure;
}
