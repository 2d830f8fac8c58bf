mod incoming;

use super::frame::*;
use super::requests::{RequestBlocks, TableState};
use super::settings::{INITIAL_WINDOW_BYTES, Settings, put_opening};
use super::streams::Streams;
use super::{Consumed, Malformed, hpack};
use std::collections::VecDeque;
use std::sync::Arc;

/// Larger buffers are freed when empty. Bodies are put only into smaller ones.
const KEPT_BYTES: usize = 64 * 1024;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// The response is complete.
    Response,
    /// The response is malformed because it breaks this rule; the connection goes on.
    Malformed(Malformed),
    /// The server reset its stream with this code.
    Reset(u32),
    /// The server ends the connection (GOAWAY) without processing the request.
    GoneAway(u32),
}

#[derive(Debug, Default)]
struct Data {
    left: u32,
    padding: u32,
    place: Option<usize>,
    is_last: bool,
}

#[derive(Debug, Clone, Copy)]
struct GoAway {
    /// The last stream that the server processes.
    last: u32,
    code: u32,
}

#[derive(Debug)]
struct Header {
    stream: u32,
    is_last: bool,
    block: Vec<u8>,
    frames: u32,
}

/// A connection to a server. The caller keeps a value `R` for each request.
#[derive(Debug, Default)]
pub struct Http2Session<R> {
    /// A partly received frame, without the payload of DATA.
    carry: Vec<u8>,
    data: Data,
    header: Option<Box<Header>>,
    fields: hpack::Reader,
    has_settings: bool,
    settings: Settings,
    streams: Streams<R>,
    most: u32,
    current: Option<usize>,
    ended: Option<StreamEnd>,
    newest: usize,
    going: Option<GoAway>,
    /// Requests that the server's GOAWAY refuses are still to be reported.
    is_refusing: bool,
    /// The rule that the server broke; reported after the frames before it.
    broken: Option<Malformed>,
    received: u32,
    send_window: i64,
    coding: TableState,
    body: Arc<[u8]>,
    waiting: VecDeque<u32>,
    demands: u32,
    out: Vec<u8>,
    location: Option<Box<[u8]>>,
    grpc_message: Option<Box<[u8]>>,
    counts_messages: bool,
}

impl<R: Default + Clone> Http2Session<R> {
    /// Starts counting the parts of bodies: gRPC messages, or the parts that the content type defines.
    pub fn count_parts(&mut self, is_grpc: bool) {
        self.fields.reads_content_type = !is_grpc;
        self.counts_messages = is_grpc;
    }

    /// Starts keeping the `location` of responses.
    pub fn keep_location(&mut self) {
        self.fields.keeps_location = true;
    }

    /// Opens the connection for at most `most` concurrent requests. The opening is complete when the server's
    /// SETTINGS come: [`Consumed::is_complete`].
    pub fn open(&mut self, requests: &RequestBlocks, most: u32) {
        self.most = most.max(1);
        self.streams.allot(self.most);
        self.body = requests.body.clone();
        self.send_window = i64::from(INITIAL_WINDOW_BYTES);
        put_opening(&mut self.out);
    }

    /// Puts the request for a target. The caller checks [`has_room`](Self::has_room) first.
    #[inline]
    pub fn put(&mut self, requests: &RequestBlocks, target: usize, request: R) {
        let (is_head, body_bytes) = (requests.is_head, self.body.len() as u32);
        self.put_header(request, is_head, body_bytes, |coding, out| requests.put(target, coding, out));
        if !self.body.is_empty() {
            self.send_body(self.newest);
        }
    }

    /// Puts a request without a body, whose block a [writer](super::LogRequestWriter) has made. `requests` has its
    /// trace id.
    pub fn put_block(&mut self, requests: &RequestBlocks, block: &[u8], is_head: bool, request: R) {
        self.put_header(request, is_head, 0, |coding, out| requests.put_block(block, coding, out));
    }

    #[inline]
    fn put_header(
        &mut self,
        request: R,
        is_head: bool,
        body_bytes: u32,
        put: impl FnOnce(&mut TableState, &mut Vec<u8>),
    ) {
        let place = self.streams.begin();
        self.newest = place;
        let stream = self.streams.at(place);
        stream.unsent = body_bytes;
        stream.send_window = i64::from(self.settings.window_bytes);
        stream.request = request;
        stream.is_head = is_head;
        let id = stream.id;
        // The request may have waited for the connection's opening.
        self.is_refusing |= self.going.is_some_and(|going| id > going.last);
        let end = if body_bytes == 0 { END_STREAM } else { 0 };
        let start = self.out.len();
        self.out.extend_from_slice(&[0; HEAD_BYTES]);
        put(&mut self.coding, &mut self.out);
        let length = self.out.len() - start - HEAD_BYTES;
        if length > self.settings.frame_bytes as usize {
            self.split_header(start, id, end);
        } else {
            let head = FrameHead { length: length as u32, kind: HEADERS, flags: END_HEADERS | end, stream: id };
            self.out[start..start + HEAD_BYTES].copy_from_slice(&head.bytes());
        }
    }

    fn split_header(&mut self, start: usize, id: u32, end: u8) {
        let block = self.out.split_off(start + HEAD_BYTES);
        self.out.truncate(start);
        let parts = block.chunks(self.settings.frame_bytes as usize);
        let last = parts.len() - 1;
        for (number, part) in parts.enumerate() {
            let (kind, flags) = if number == 0 { (HEADERS, end) } else { (CONTINUATION, 0) };
            let flags = if number == last { flags | END_HEADERS } else { flags };
            FrameHead::put(kind, flags, id, part.len(), &mut self.out);
            self.out.extend_from_slice(part);
        }
    }

    fn send_body(&mut self, place: usize) {
        let stream = self.streams.at(place);
        while stream.unsent > 0 {
            let window = self.send_window.min(stream.send_window).max(0);
            let most = i64::from(stream.unsent.min(self.settings.frame_bytes)).min(window) as usize;
            let room = KEPT_BYTES.saturating_sub(self.out.len() + HEAD_BYTES);
            if most == 0 {
                return self.waiting.push_back(place as u32);
            }
            if room == 0 {
                return self.waiting.push_front(place as u32);
            }
            let part = most.min(room);
            let from = self.body.len() - stream.unsent as usize;
            stream.unsent -= part as u32;
            stream.send_window -= part as i64;
            self.send_window -= part as i64;
            FrameHead::put(DATA, if stream.unsent == 0 { END_STREAM } else { 0 }, stream.id, part, &mut self.out);
            self.out.extend_from_slice(&self.body[from..from + part]);
        }
    }

    fn send_waiting(&mut self) {
        for _ in 0..self.waiting.len() {
            if self.send_window <= 0 || self.out.len() + HEAD_BYTES >= KEPT_BYTES {
                return;
            }
            let Some(place) = self.waiting.pop_front() else { return };
            self.send_body(place as usize);
        }
    }

    /// Bytes not yet handed to the transport.
    #[inline]
    pub fn out(&self) -> &[u8] {
        &self.out
    }

    /// Empties the buffer after the transport has taken all bytes. May put more bytes.
    #[inline]
    pub fn all_sent(&mut self) {
        self.out.clear();
        if self.out.capacity() > KEPT_BYTES {
            self.out = Vec::new();
        }
        if !self.waiting.is_empty() {
            self.send_waiting();
        }
    }

    /// Whether another request may be put.
    #[inline]
    pub fn has_room(&self) -> bool {
        self.streams.open() < self.most.min(self.settings.streams) && self.is_lasting()
    }

    /// Requests in progress.
    #[inline]
    pub fn open_streams(&self) -> u32 {
        self.streams.open()
    }

    /// Whether more requests may follow on the connection.
    #[inline]
    pub fn is_lasting(&self) -> bool {
        self.going.is_none() && self.streams.has_numbers()
    }

    /// Place of the request that the last bytes belong to; `None` if they belong to the connection.
    #[inline]
    pub fn current(&self) -> Option<usize> {
        self.current
    }

    /// Place of the request put last.
    #[inline]
    pub fn newest(&self) -> usize {
        self.newest
    }

    /// How the current request ended. The caller calls [`Http2Session::end`] for it before it feeds more bytes.
    #[inline]
    pub fn ended(&self) -> Option<StreamEnd> {
        self.ended
    }

    /// The caller's value for an open request.
    #[inline]
    pub fn request(&mut self, place: usize) -> &mut R {
        &mut self.streams.at(place).request
    }

    /// The final status of an open request; 0 before its header has arrived.
    #[inline]
    pub fn status(&self, place: usize) -> u16 {
        self.streams.get(place).status
    }

    /// The `grpc-status` of an open request.
    #[inline]
    pub fn grpc_status(&self, place: usize) -> Option<u16> {
        self.streams.get(place).grpc_status
    }

    /// The last `grpc-message` received.
    pub fn grpc_message(&self) -> Option<&[u8]> {
        self.grpc_message.as_deref()
    }

    /// The last `location` received.
    pub fn location(&self) -> Option<&[u8]> {
        self.location.as_deref()
    }

    /// Place of an open request for which `holds` is true, searched from a place on.
    pub fn find(&self, from: usize, mut holds: impl FnMut(&R) -> bool) -> Option<usize> {
        self.streams.position(from, |stream| holds(&stream.request))
    }

    /// Ends a request: forgets it if it is over, else cancels it.
    #[inline]
    pub fn end(&mut self, place: usize) {
        let is_over = self.ended.is_some() && self.current == Some(place);
        let stream = self.streams.get(place);
        let reset = match self.ended.filter(|_| is_over) {
            None => Some(CANCEL),
            Some(StreamEnd::Malformed(_)) => Some(PROTOCOL_ERROR),
            // A response may be complete before the whole request was sent.
            Some(StreamEnd::Response) => (stream.unsent > 0).then_some(CANCEL),
            Some(StreamEnd::Reset(_) | StreamEnd::GoneAway(_)) => None,
        };
        if let Some(code) = reset {
            put_number(RST_STREAM, stream.id, code, &mut self.out);
        }
        if stream.unsent > 0 {
            self.waiting.retain(|waiting| *waiting != place as u32);
        }
        if self.data.place == Some(place) {
            self.data.place = None;
        }
        self.streams.end(place);
        if is_over {
            (self.current, self.ended) = (None, None);
        }
    }

    /// Whether [`Http2Session::feed`] has more to report before further bytes come.
    #[inline]
    pub fn has_more(&self) -> bool {
        self.is_refusing || self.broken.is_some()
    }

    /// Bytes allocated.
    pub fn memory_bytes(&self) -> usize {
        self.carry.capacity()
            + self.header.as_ref().map_or(0, |header| header.block.capacity() + size_of::<Header>())
            + self.fields.memory_bytes()
            + self.streams.memory_bytes()
            + self.out.capacity()
            + self.waiting.capacity() * size_of::<u32>()
    }

    /// Takes the next bytes of the connection, up to the end of a request or to bytes of another one.
    #[inline]
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Consumed, Malformed> {
        if let Some(broken) = self.broken {
            return Err(broken);
        }
        (self.current, self.ended) = (None, None);
        let mut consumed = Consumed::default();
        match self.feed_frames(bytes, &mut consumed) {
            // Report the frames before the error first: the result must not depend on how the bytes are split.
            Err(broken) if consumed.used > 0 => self.broken = Some(broken),
            Err(broken) => return Err(broken),
            Ok(()) => {}
        }
        Ok(consumed)
    }
}
