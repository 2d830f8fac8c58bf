//! The protocol of a connection: what opens it, the bytes of a request, and where its response ends. Without I/O: a
//! [`Transport`](super::Transport) carries the bytes, and [`exchange`](super::exchange) gives them to the protocol and
//! acts on its answer.
//!
//! - [`Http1`]: one request at a time on a connection; its state is [`Framing`](crate::framing::Framing), inline in the
//!   connection;
//! - [`InOrder`]: several requests in flight on a connection, answered in their order: [`Redis`], [`Memcached`], [`Tcp`].
//!
//! A connection describes the oldest request under way; the later ones are in the protocol's own part, its [`Stream`].
//! A protocol whose responses come in any order would keep its requests there by number, and let [`Stream::next`] give
//! the one that is answered.

mod commands;
mod http;
mod in_order;
mod memcached;
mod redis;
mod tcp;

pub(crate) use http::Http1;
pub(crate) use in_order::{InOrder, Reply, Talk};
pub(crate) use memcached::Memcached;
pub(crate) use redis::Redis;
pub(crate) use tcp::Tcp;

use super::Source;
use crate::connection::Connection;
use crate::framing::{AtEnd, Fed, Malformed};
use crate::request::Requests;
use crate::tally::Failure;

/// A request under way that is not the oldest one of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Behind {
    pub(crate) intended_ns: u64,
    pub(crate) since_ns: u64,
    pub(crate) target: u32,
}

/// A protocol's part of a connection: the response under way, and the requests after the oldest one.
pub(crate) trait Stream: Default {
    /// The next byte begins another response.
    fn reset(&mut self);

    /// Forgets everything: the connection is closed.
    fn close(&mut self);

    /// The status of the response; 200 to 399 are good ones. Meaningful once it is complete.
    fn status(&self) -> u16;

    /// Whether another request may follow on the connection. Meaningful once the response is complete.
    fn is_keep_alive(&self) -> bool;

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

    /// The number of requests after the oldest one.
    fn behind(&self) -> usize {
        0
    }

    /// Puts a request after the others.
    fn push(&mut self, _request: Behind) {}

    /// Takes the request that is the oldest one now.
    fn next(&mut self) -> Option<Behind> {
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

    /// The most requests in flight on a connection.
    fn depth(&self) -> usize {
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
