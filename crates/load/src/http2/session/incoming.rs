use super::super::frame::*;
use super::super::settings::{MAX_WINDOW_BYTES, WINDOW_BYTES};
use super::super::{Consumed, Malformed};
use super::{Data, GoAway, Header, Http2Session, KEPT_BYTES, StreamEnd};
use crate::framing::PartCounter;

const MAX_HEADER_BYTES: usize = 64 * 1024;
const MAX_HEADER_FRAMES: u32 = 128;
const MAX_INTERIM: u8 = 100;
/// Maximum frames between two responses that we must answer.
const MAX_DEMANDS: u32 = 10_000;
const HTTP_1: Malformed = Malformed("the server answered HTTP/1.1, not HTTP/2: leave out --http2");
const TLS: Malformed = Malformed("the server answered TLS: write the URL with https");
const NOT_HTTP_2: Malformed =
    Malformed("the server does not speak HTTP/2: its connection does not begin with SETTINGS");
const TOO_LONG_FRAME: Malformed = Malformed("an HTTP/2 frame is longer than the allowed 16384 bytes");
const WRONG_LENGTH: Malformed = Malformed("an HTTP/2 frame has a wrong length for its type");
const WRONG_STREAM: Malformed = Malformed("an HTTP/2 frame is on a stream on which its type is not allowed");
const WRONG_PADDING: Malformed = Malformed("an HTTP/2 frame has more padding than payload");
const WRONG_ORDER: Malformed = Malformed("the server interrupts a header with another HTTP/2 frame");
const TOO_LONG_HEADER: Malformed = Malformed("a header of more than 64 KiB");
const UNASKED: Malformed = Malformed("the server answers a request that was not sent");
const NO_STATUS: Malformed = Malformed("an HTTP/2 response has no status");
const NO_HEADER: Malformed = Malformed("an HTTP/2 response has a body before its header");
const NO_END: Malformed = Malformed("an HTTP/2 response continues after its trailers");
const BAD_LENGTH: Malformed = Malformed("an HTTP/2 response has a content-length that is not one decimal number");
const TOO_SHORT: Malformed = Malformed("the body of an HTTP/2 response is shorter than its content-length");
const TOO_LONG: Malformed =
    Malformed("an HTTP/2 response has a longer body than its content-length, its status or HEAD allows");
const CUT_MESSAGE: Malformed = Malformed("a gRPC response ends in the middle of a message");
const TOO_MANY_INTERIM: Malformed = Malformed("more than 100 interim (1xx) responses");
const PUSHED: Malformed = Malformed("the server pushes a response (PUSH_PROMISE), which the client did not allow");
const OVER_WINDOW: Malformed = Malformed("the server sends more than the HTTP/2 window allows");
const WRONG_WINDOW: Malformed = Malformed("the server opens an HTTP/2 window by 0, or beyond 2 GiB");
const FLOOD: Malformed =
    Malformed("the server sends 10000 frames that require an answer (PING, SETTINGS), and no response");

impl<R: Default + Clone> Http2Session<R> {
    pub(super) fn feed_frames(&mut self, bytes: &[u8], consumed: &mut Consumed) -> Result<(), Malformed> {
        if self.is_refusing && self.refuse() {
            consumed.is_complete = true;
            return Ok(());
        }
        while consumed.used < bytes.len() && !consumed.is_complete {
            let rest = &bytes[consumed.used..];
            if self.data.left + self.data.padding > 0 {
                // Only the first bytes of a slice can be the rest of a frame.
                self.take_data(rest, consumed);
            } else if !self.carry.is_empty() {
                self.carry_on(rest, consumed)?;
            } else {
                if !self.has_settings {
                    check_start(rest)?;
                }
                let head = FrameHead::read(rest);
                let whole = head.map_or(HEAD_BYTES, |head| needed(&head));
                if rest.len() < whole {
                    if let Some(head) = &head {
                        self.check(head)?;
                    }
                    self.carry.extend_from_slice(rest);
                    consumed.used = bytes.len();
                    break;
                }
                let Some(head) = head else { break };
                // A frame of another request than the current one waits for the next call.
                let is_of_request = matches!(head.kind, DATA | HEADERS | RST_STREAM | CONTINUATION);
                let is_of_another = |place| is_of_request && head.stream != self.streams.get(place).id;
                if self.current.is_some_and(is_of_another) {
                    break;
                }
                self.check(&head)?;
                consumed.used += whole;
                self.take_frame(&head, &rest[HEAD_BYTES..whole], consumed)?;
            }
        }
        Ok(())
    }

    fn carry_on(&mut self, bytes: &[u8], consumed: &mut Consumed) -> Result<(), Malformed> {
        let before = self.carry.len();
        let mut used = 0;
        loop {
            let head = FrameHead::read(&self.carry);
            let whole = head.map_or(HEAD_BYTES, |head| needed(&head));
            let part = (whole - self.carry.len()).min(bytes.len() - used);
            self.carry.extend_from_slice(&bytes[used..used + part]);
            used += part;
            consumed.used += part;
            if before < HEAD_BYTES && !self.has_settings {
                check_start(&self.carry)?;
            }
            if self.carry.len() < whole {
                return Ok(());
            }
            let Some(head) = head else {
                if let Some(head) = FrameHead::read(&self.carry) {
                    self.check(&head)?;
                }
                continue;
            };
            self.check(&head)?;
            let mut carry = std::mem::take(&mut self.carry);
            self.take_frame(&head, &carry[HEAD_BYTES..whole], consumed)?;
            if carry.capacity() <= KEPT_BYTES {
                carry.clear();
                self.carry = carry;
            }
            return Ok(());
        }
    }

    #[inline]
    fn check(&self, head: &FrameHead) -> Result<(), Malformed> {
        if !self.has_settings && (head.kind != SETTINGS || head.has(ACK) || head.stream != 0) {
            return Err(NOT_HTTP_2);
        }
        if head.length > MAX_PAYLOAD_BYTES {
            return Err(TOO_LONG_FRAME);
        }
        if let Some(header) = &self.header
            && (head.kind != CONTINUATION || head.stream != header.stream)
        {
            return Err(WRONG_ORDER);
        }
        let is_of_connection = head.stream == 0;
        let (is_right_length, is_right_stream) = match head.kind {
            DATA => (!head.has(PADDED) || head.length > 0, !is_of_connection),
            HEADERS => (true, !is_of_connection),
            RST_STREAM => (head.length == 4, !is_of_connection),
            SETTINGS => (!head.has(ACK) || head.length == 0, is_of_connection),
            PUSH_PROMISE => return Err(PUSHED),
            PING => (head.length == 8, is_of_connection),
            GOAWAY => (head.length >= 8, is_of_connection),
            WINDOW_UPDATE => (head.length == 4, true),
            CONTINUATION if self.header.is_none() => return Err(WRONG_ORDER),
            _ => (true, true),
        };
        match (is_right_length, is_right_stream) {
            (false, _) => Err(WRONG_LENGTH),
            (_, false) => Err(WRONG_STREAM),
            _ => Ok(()),
        }
    }

    #[inline]
    fn take_frame(&mut self, head: &FrameHead, payload: &[u8], consumed: &mut Consumed) -> Result<(), Malformed> {
        match head.kind {
            DATA => self.begin_data(head, payload, consumed),
            HEADERS => self.take_headers(head, payload, consumed),
            CONTINUATION => self.take_continuation(head, payload, consumed),
            RST_STREAM => self.take_reset(head.stream, number(payload), consumed),
            WINDOW_UPDATE => self.open_window(head.stream, number(payload)),
            SETTINGS if !head.has(ACK) => self.take_settings(payload, consumed),
            PING if !head.has(ACK) => {
                FrameHead::put(PING, ACK, 0, payload.len(), &mut self.out);
                self.out.extend_from_slice(payload);
                self.demanded()
            }
            GOAWAY => {
                self.go_away(number(payload) & 0x7fff_ffff, number(&payload[4..]), consumed);
                Ok(())
            }
            // PRIORITY, acknowledgements and unknown types, which must be ignored.
            _ => Ok(()),
        }
    }

    #[inline]
    fn place_of(&self, stream: u32) -> Result<Option<usize>, Malformed> {
        match self.streams.find(stream) {
            None if !self.streams.was_begun(stream) => Err(UNASKED),
            place => Ok(place),
        }
    }

    fn complete(&mut self, place: usize, ended: StreamEnd, consumed: &mut Consumed) {
        self.demands = 0;
        (self.current, self.ended) = (Some(place), Some(ended));
        consumed.is_complete = true;
    }

    /// Ends a response; malformed if its body differs from the announced length (RFC 9113 section 8.1.1).
    #[inline]
    fn complete_response(&mut self, place: usize, consumed: &mut Consumed) {
        let stream = self.streams.get(place);
        let is_good_call = stream.status == 200 && stream.grpc_status == Some(0);
        let ended = if stream.body_left.is_some_and(|left| left > 0) {
            StreamEnd::Malformed(TOO_SHORT)
        } else if self.counts_messages && is_good_call && stream.messages.is_within() {
            StreamEnd::Malformed(CUT_MESSAGE)
        } else {
            StreamEnd::Response
        };
        self.complete(place, ended, consumed);
    }

    #[inline]
    fn begin_data(&mut self, head: &FrameHead, payload: &[u8], consumed: &mut Consumed) -> Result<(), Malformed> {
        let place = self.place_of(head.stream)?;
        let padding = if head.has(PADDED) { u32::from(payload[0]) + 1 } else { 0 };
        if padding > head.length {
            return Err(WRONG_PADDING);
        }
        receive(&mut self.received, head.length, Some(0), &mut self.out)?;
        let is_last = head.has(END_STREAM);
        if let Some(place) = place {
            let stream = self.streams.at(place);
            if stream.status == 0 {
                return Err(NO_HEADER);
            }
            self.current = Some(place);
            receive(&mut stream.received, head.length, (!is_last).then_some(stream.id), &mut self.out)?;
        }
        let left = head.length - padding;
        self.data = Data { left, padding: padding.saturating_sub(1), place, is_last };
        if let Some(place) = place
            && let Some(announced) = &mut self.streams.at(place).body_left
        {
            match announced.checked_sub(u64::from(left)) {
                Some(rest) => *announced = rest,
                None => {
                    // The stream is over: skip the payload.
                    self.data.place = None;
                    self.complete(place, StreamEnd::Malformed(TOO_LONG), consumed);
                    return Ok(());
                }
            }
        }
        if self.data.left + self.data.padding == 0 {
            self.end_data(consumed);
        }
        Ok(())
    }

    #[inline]
    fn take_data(&mut self, bytes: &[u8], consumed: &mut Consumed) {
        let part = (self.data.left as usize).min(bytes.len());
        let padding = (self.data.padding as usize).min(bytes.len() - part);
        self.data.left -= part as u32;
        self.data.padding -= padding as u32;
        consumed.used += part + padding;
        if let Some(place) = self.data.place {
            self.current = Some(place);
            consumed.body += part;
            self.count(place, &bytes[..part], consumed);
        }
        if self.data.left + self.data.padding == 0 {
            self.end_data(consumed);
        }
    }

    #[inline]
    fn count(&mut self, place: usize, bytes: &[u8], consumed: &mut Consumed) {
        let stream = self.streams.at(place);
        let parts = if self.counts_messages {
            stream.messages.take(bytes)
        } else if stream.parted.counts() {
            stream.parted.take(bytes)
        } else {
            return;
        };
        consumed.add_parts(parts);
    }

    fn end_data(&mut self, consumed: &mut Consumed) {
        if let Some(place) = self.data.place.take()
            && self.data.is_last
        {
            self.complete_response(place, consumed);
        }
    }

    #[inline]
    fn take_headers(&mut self, head: &FrameHead, payload: &[u8], consumed: &mut Consumed) -> Result<(), Malformed> {
        let mut block = payload;
        if head.has(PADDED) {
            let (padding, rest) = block.split_first().ok_or(WRONG_PADDING)?;
            block = rest.len().checked_sub(usize::from(*padding)).map(|length| &rest[..length]).ok_or(WRONG_PADDING)?;
        }
        if head.has(PRIORITY) {
            block = block.get(5..).ok_or(WRONG_LENGTH)?;
        }
        let is_last = head.has(END_STREAM);
        if head.has(END_HEADERS) {
            return self.take_block(head.stream, is_last, block, consumed);
        }
        if let place @ Some(_) = self.place_of(head.stream)? {
            self.current = place;
        }
        self.header = Some(Box::new(Header { stream: head.stream, is_last, block: block.to_vec(), frames: 1 }));
        Ok(())
    }

    fn take_continuation(
        &mut self,
        head: &FrameHead,
        payload: &[u8],
        consumed: &mut Consumed,
    ) -> Result<(), Malformed> {
        let Some(mut header) = self.header.take() else { return Err(WRONG_ORDER) };
        header.block.extend_from_slice(payload);
        header.frames += 1;
        if header.block.len() > MAX_HEADER_BYTES || header.frames > MAX_HEADER_FRAMES {
            return Err(TOO_LONG_HEADER);
        }
        if head.has(END_HEADERS) {
            return self.take_block(header.stream, header.is_last, &header.block, consumed);
        }
        if let place @ Some(_) = self.streams.find(head.stream) {
            self.current = place;
        }
        self.header = Some(header);
        Ok(())
    }

    #[inline]
    fn take_block(
        &mut self,
        stream: u32,
        is_last: bool,
        block: &[u8],
        consumed: &mut Consumed,
    ) -> Result<(), Malformed> {
        // Also read for a stream that is over, because the table belongs to the connection.
        let fields = self.fields.read(block)?;
        let Some(place) = self.place_of(stream)? else { return Ok(()) };
        self.current = Some(place);
        let stream = self.streams.at(place);
        if fields.grpc_status.is_some() {
            stream.grpc_status = fields.grpc_status;
        }
        if fields.grpc_message.is_some() {
            self.grpc_message = fields.grpc_message;
        }
        match fields.status {
            _ if stream.status != 0 => {
                if !is_last {
                    return Err(NO_END);
                }
            }
            0 => return Err(NO_STATUS),
            100..=199 => {
                stream.interim += 1;
                // HTTP/2 does not allow 101.
                return if is_last || fields.status == 101 {
                    Err(NO_STATUS)
                } else if stream.interim > MAX_INTERIM {
                    Err(TOO_MANY_INTERIM)
                } else {
                    Ok(())
                };
            }
            status => {
                stream.status = status;
                stream.parted = PartCounter::new(fields.parts);
                if fields.is_length_wrong {
                    self.complete(place, StreamEnd::Malformed(BAD_LENGTH), consumed);
                    return Ok(());
                }
                let has_no_body = stream.is_head || status == 204 || status == 304;
                stream.body_left = if has_no_body { Some(0) } else { fields.length };
            }
        }
        if fields.location.is_some() {
            self.location = fields.location;
        }
        if is_last {
            self.complete_response(place, consumed);
        }
        Ok(())
    }

    fn take_reset(&mut self, stream: u32, code: u32, consumed: &mut Consumed) -> Result<(), Malformed> {
        if let Some(place) = self.place_of(stream)? {
            self.complete(place, StreamEnd::Reset(code), consumed);
        }
        Ok(())
    }

    fn open_window(&mut self, stream: u32, bytes: u32) -> Result<(), Malformed> {
        let bytes = i64::from(bytes & 0x7fff_ffff);
        let window = match stream {
            0 => &mut self.send_window,
            stream => match self.place_of(stream)? {
                None => return Ok(()),
                Some(place) => &mut self.streams.at(place).send_window,
            },
        };
        *window += bytes;
        if bytes == 0 || *window > MAX_WINDOW_BYTES {
            return Err(WRONG_WINDOW);
        }
        self.send_waiting();
        Ok(())
    }

    fn take_settings(&mut self, payload: &[u8], consumed: &mut Consumed) -> Result<(), Malformed> {
        let before = self.settings.window_bytes;
        self.settings.take(payload)?;
        if let Some(limit) = self.settings.table_bytes {
            self.coding.limit(limit);
        }
        let change = i64::from(self.settings.window_bytes) - i64::from(before);
        if change != 0 {
            self.streams.each(|stream| stream.send_window += change);
            if self.streams.position(0, |stream| stream.send_window > MAX_WINDOW_BYTES).is_some() {
                return Err(WRONG_WINDOW);
            }
            self.send_waiting();
        }
        FrameHead::put(SETTINGS, ACK, 0, 0, &mut self.out);
        if !self.has_settings {
            self.has_settings = true;
            consumed.is_complete = true;
        }
        self.demanded()
    }

    fn demanded(&mut self) -> Result<(), Malformed> {
        self.demands += 1;
        if self.demands > MAX_DEMANDS { Err(FLOOD) } else { Ok(()) }
    }

    fn go_away(&mut self, last: u32, code: u32, consumed: &mut Consumed) {
        // For a graceful close, the first GOAWAY still allows all streams.
        let last = self.going.map_or(last, |before| before.last.min(last));
        self.going = Some(GoAway { last, code });
        self.is_refusing = true;
        consumed.is_complete = self.refuse();
    }

    fn refuse(&mut self) -> bool {
        let GoAway { last, code } = self.going.unwrap_or(GoAway { last: u32::MAX, code: 0 });
        let place = self.streams.position(0, |stream| stream.id > last);
        self.is_refusing = place.is_some();
        if self.is_refusing {
            (self.current, self.ended) = (place, Some(StreamEnd::GoneAway(code)));
        }
        self.is_refusing
    }
}

/// Counts received bytes of a connection or stream, and reopens its window unless this was the stream's last frame.
#[inline]
fn receive(received: &mut u32, bytes: u32, reopened: Option<u32>, out: &mut Vec<u8>) -> Result<(), Malformed> {
    *received += bytes;
    if *received > WINDOW_BYTES {
        return Err(OVER_WINDOW);
    }
    if let Some(stream) = reopened.filter(|_| *received >= WINDOW_BYTES / 2) {
        put_number(WINDOW_UPDATE, stream, std::mem::take(received), out);
    }
    Ok(())
}

/// Bytes of a frame that must be complete before it is handled: the whole frame, or the header of DATA.
#[inline]
fn needed(head: &FrameHead) -> usize {
    match head.kind {
        DATA => HEAD_BYTES + usize::from(head.has(PADDED)),
        _ => HEAD_BYTES + head.length as usize,
    }
}

/// Recognises other protocols. HTTP/2 begins with byte 0, the high byte of the length of a short SETTINGS frame.
fn check_start(bytes: &[u8]) -> Result<(), Malformed> {
    match bytes {
        [b'H', ..] => Err(HTTP_1),
        [0x15 | 0x16, ..] => Err(TLS),
        [0, ..] | [] => Ok(()),
        _ => Err(NOT_HTTP_2),
    }
}

#[inline]
fn number(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes))
}
