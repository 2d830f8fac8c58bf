//! Replies of memcached's text protocol, classic and meta commands (memcached's `doc/protocol.txt`).

use super::{
    Consumed, LINE_END_BYTES, Malformed, Reply, ReplyLine, StoreProtocol, feed_value, first_word, number,
    of_another_protocol,
};
use record::protocol::{ANSWER, MISS, NOT_STORED, memcached_error};

/// Flag in the number of requested keys: meta commands, one for each key.
pub const META: u32 = 1 << 31;
/// Maximum length of a value; larger than any server allows.
const MAX_VALUE_BYTES: u64 = 1 << 30;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum MemcachedStep {
    #[default]
    Line,
    /// In a value, with this many bytes left, those of its line end included.
    Value(u64),
    Done,
}

/// The state of one reply.
#[derive(Debug, Default)]
pub struct MemcachedReply {
    step: MemcachedStep,
    line: ReplyLine,
    values: u32,
    answers: u32,
    status: u16,
    has_started: bool,
}

impl Reply for MemcachedReply {
    fn reset(&mut self) {
        *self = MemcachedReply::default();
    }

    fn has_started(&self) -> bool {
        self.has_started
    }

    fn status(&self) -> u16 {
        self.status
    }

    fn error(&self) -> &[u8] {
        self.line.text()
    }
}

impl MemcachedReply {
    /// Takes the next bytes of the connection. `asked`: number of keys, with the flag [`META`] for meta commands; 0
    /// for a command whose reply is one line. After an error or a complete reply, call [`Reply::reset`] before the
    /// next call.
    pub fn feed(&mut self, asked: u32, bytes: &[u8]) -> Result<Consumed, Malformed> {
        let mut consumed = Consumed::default();
        loop {
            let rest = &bytes[consumed.used..];
            if self.step == MemcachedStep::Done {
                consumed.is_complete = true;
                return Ok(consumed);
            }
            let Some(&first) = rest.first() else { return Ok(consumed) };
            self.has_started = true;
            match self.step {
                MemcachedStep::Line => {
                    if self.line.length == 0 && !first.is_ascii_alphanumeric() {
                        return Err(of_another_protocol(first, StoreProtocol::Memcached));
                    }
                    let (used, is_complete) = self.line.feed(rest)?;
                    consumed.used += used;
                    if is_complete {
                        self.take_line(asked)?;
                    }
                }
                MemcachedStep::Value(left) => match feed_value(left, rest, &mut consumed)? {
                    0 => {
                        self.step = MemcachedStep::Line;
                        if asked & META != 0 {
                            self.answer(asked & !META, ANSWER);
                        }
                    }
                    left => self.step = MemcachedStep::Value(left),
                },
                MemcachedStep::Done => {}
            }
        }
    }

    /// The most severe status is that of the whole reply.
    fn answer(&mut self, keys: u32, status: u16) {
        self.answers += 1;
        self.status = self.status.max(status);
        self.step = if self.answers >= keys { MemcachedStep::Done } else { MemcachedStep::Line };
        if self.step == MemcachedStep::Line {
            self.line.clear();
        }
    }

    fn take_line(&mut self, asked: u32) -> Result<(), Malformed> {
        let (keys, is_meta) = (asked & !META, asked & META != 0);
        let text = self.line.text();
        let status = match first_word(text) {
            b"VA" if is_meta && keys > 0 => return self.begin_value(keys, 1),
            b"EN" if is_meta && keys > 0 => MISS,
            b"HD" if is_meta && keys == 0 => ANSWER,
            b"NF" if is_meta && keys == 0 => MISS,
            b"NS" | b"EX" if is_meta && keys == 0 => NOT_STORED,
            b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" => memcached_error(text),
            _ if text.starts_with(b"HTTP/") => return Err(of_another_protocol(b'H', StoreProtocol::Memcached)),
            _ if is_meta => return Err(of_another_protocol(b'?', StoreProtocol::Memcached)),
            b"VALUE" if keys > 0 => return self.begin_value(keys, 3),
            b"END" if keys > self.values => MISS,
            b"END" if keys > 0 => ANSWER,
            b"STORED" | b"DELETED" | b"TOUCHED" | b"OK" if keys == 0 => ANSWER,
            b"NOT_FOUND" if keys == 0 => MISS,
            b"NOT_STORED" | b"EXISTS" if keys == 0 => NOT_STORED,
            _ => return Err(of_another_protocol(b'?', StoreProtocol::Memcached)),
        };
        if is_meta {
            self.answer(keys, status);
        } else {
            self.status = status;
            self.step = MemcachedStep::Done;
        }
        Ok(())
    }

    /// Begins the value of a line `VALUE key flags bytes [cas]`, or `VA bytes flags` of a meta command. `place`:
    /// position of the word with the length.
    fn begin_value(&mut self, keys: u32, place: usize) -> Result<(), Malformed> {
        // Only the first bytes of a line are kept, so a long key (up to 250 bytes) may hide the length.
        if !self.line.is_whole() {
            return Err(Malformed("a line of the reply is too long for the requested keys"));
        }
        let length = self.line.text().split(|byte| *byte == b' ').nth(place).and_then(number);
        match length {
            None => return Err(Malformed("the length of a value in the reply is not a number")),
            Some(length) if length > MAX_VALUE_BYTES => {
                return Err(Malformed("the length of a value in the reply is larger than any that memcached sends"));
            }
            Some(length) => self.step = MemcachedStep::Value(length + LINE_END_BYTES),
        }
        self.values += 1;
        if self.values > keys {
            return Err(Malformed("the reply has more values than requested keys"));
        }
        self.line.clear();
        Ok(())
    }
}
