//! Replies of Redis: RESP2 and RESP3, as in <https://redis.io/docs/latest/develop/reference/protocol-spec/>.

use super::{
    Consumed, LINE_END_BYTES, Malformed, Reply, ReplyLine, StoreProtocol, feed_value, number, of_another_protocol,
};
use record::protocol::{ANSWER, MISS, redis_error};

/// Maximum nesting of aggregates. Bounds the memory of a connection.
pub const MAX_DEPTH: usize = 128;
/// The server's own limit for a string (`proto-max-bulk-len`).
const MAX_STRING_BYTES: u64 = 512 << 20;
const MAX_ELEMENTS: u64 = i32::MAX as u64;
const NEGATIVE: Malformed = Malformed("a length in the reply is negative");
const NOT_A_NUMBER: Malformed = Malformed("a length in the reply is not a number");

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum RespStep {
    #[default]
    Type,
    Line(u8),
    /// In a string with this many bytes left, those of its line end included. `is_error`: its first bytes determine the
    /// status.
    Bytes {
        left: u64,
        is_error: bool,
    },
    Done,
}

/// The state of one reply.
#[derive(Debug)]
pub struct Resp {
    step: RespStep,
    line: ReplyLine,
    /// 1 outside of aggregates.
    left: u64,
    /// Allocated only for nested ones.
    around: Vec<u64>,
    status: u16,
    has_started: bool,
    is_push: bool,
}

impl Default for Resp {
    fn default() -> Self {
        Resp {
            step: RespStep::Type,
            line: ReplyLine::default(),
            left: 1,
            around: Vec::new(),
            status: 0,
            has_started: false,
            is_push: false,
        }
    }
}

impl Reply for Resp {
    fn reset(&mut self) {
        let mut around = std::mem::take(&mut self.around);
        around.clear();
        *self = Resp { around, ..Resp::default() };
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

    fn memory_bytes(&self) -> usize {
        self.around.capacity() * size_of::<u64>()
    }
}

impl Resp {
    /// Takes the next bytes of the connection. After an error or a complete reply, call [`Reply::reset`] before the
    /// next call.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Consumed, Malformed> {
        let mut consumed = Consumed::default();
        loop {
            let rest = &bytes[consumed.used..];
            if self.step == RespStep::Done {
                consumed.is_complete = true;
                return Ok(consumed);
            }
            let Some(&first) = rest.first() else { return Ok(consumed) };
            self.has_started = true;
            match self.step {
                RespStep::Type => {
                    if !b"+-:$*_#,(!=%~>|".contains(&first) {
                        return Err(if self.is_at_top() {
                            of_another_protocol(first, StoreProtocol::Redis)
                        } else {
                            Malformed("the first byte of a value in a Redis reply is not a type")
                        });
                    }
                    self.line.clear();
                    self.step = RespStep::Line(first);
                    consumed.used += 1;
                }
                RespStep::Line(kind) => {
                    let (used, is_complete) = self.line.feed(rest)?;
                    consumed.used += used;
                    if is_complete {
                        self.begin(kind)?;
                    }
                }
                RespStep::Bytes { left, is_error } => {
                    let before = consumed.body;
                    let left = feed_value(left, rest, &mut consumed)?;
                    if is_error {
                        // The error code is within the first bytes.
                        self.keep(&rest[..consumed.body - before]);
                    }
                    if left > 0 {
                        self.step = RespStep::Bytes { left, is_error };
                    } else {
                        let status = if is_error { redis_error(self.line.text()) } else { ANSWER };
                        self.value_ends(status);
                    }
                }
                RespStep::Done => {}
            }
        }
    }

    fn is_at_top(&self) -> bool {
        self.around.is_empty()
    }

    fn keep(&mut self, bytes: &[u8]) {
        let line = &mut self.line;
        let at = (line.length as usize).saturating_sub(1).min(super::KEPT_BYTES);
        let kept = bytes.len().min(super::KEPT_BYTES - at);
        line.kept[at..at + kept].copy_from_slice(&bytes[..kept]);
        line.length = (at + kept + 1) as u32;
    }

    /// Takes the complete first line of a value of this type.
    fn begin(&mut self, kind: u8) -> Result<(), Malformed> {
        match kind {
            b'-' => self.value_ends(redis_error(self.line.text())),
            b'_' => self.value_ends(MISS),
            b'$' | b'=' | b'!' => match self.length(MAX_STRING_BYTES)? {
                Some(length) => {
                    self.line.clear();
                    self.step = RespStep::Bytes { left: length + LINE_END_BYTES, is_error: kind == b'!' };
                }
                None if kind == b'$' => self.value_ends(MISS),
                None => return Err(NEGATIVE),
            },
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                // Attributes precede a value and do not count as values.
                let is_value = kind != b'|';
                self.is_push |= kind == b'>' && self.is_at_top();
                let pairs = u64::from(matches!(kind, b'%' | b'|'));
                match self.length(MAX_ELEMENTS)? {
                    None if kind == b'*' => self.value_ends(MISS),
                    None => return Err(NEGATIVE),
                    Some(0) if is_value => self.value_ends(ANSWER),
                    Some(0) => self.step = RespStep::Type,
                    Some(count) => {
                        if is_value {
                            self.set_status(ANSWER);
                        }
                        self.enter(count << pairs, self.left - u64::from(is_value))?;
                    }
                }
            }
            b':' => {
                let text = self.line.text();
                let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
                if !self.line.is_whole() || number(digits).is_none() {
                    return Err(Malformed("an integer in the reply is not a number"));
                }
                self.value_ends(ANSWER);
            }
            _ => self.value_ends(ANSWER),
        }
        Ok(())
    }

    /// The length in the line; `None` for -1, which stands for null.
    fn length(&self, most: u64) -> Result<Option<u64>, Malformed> {
        match self.line.text() {
            _ if !self.line.is_whole() => Err(NOT_A_NUMBER),
            b"-1" => Ok(None),
            [b'-', digits @ ..] if number(digits).is_some() => Err(NEGATIVE),
            digits => match number(digits) {
                Some(length) if length <= most => Ok(Some(length)),
                Some(_) => Err(Malformed("a length in the reply is larger than any that Redis sends")),
                None => Err(NOT_A_NUMBER),
            },
        }
    }

    fn set_status(&mut self, status: u16) {
        if self.is_at_top() {
            self.status = status;
        }
    }

    fn enter(&mut self, count: u64, left_after: u64) -> Result<(), Malformed> {
        if self.around.len() == MAX_DEPTH {
            return Err(Malformed("the reply is nested more than 128 deep"));
        }
        self.around.push(left_after);
        self.left = count;
        self.step = RespStep::Type;
        Ok(())
    }

    fn value_ends(&mut self, status: u16) {
        self.set_status(status);
        self.step = RespStep::Type;
        self.left -= 1;
        while self.left == 0 {
            match self.around.pop() {
                Some(left) => self.left = left,
                None if self.is_push => return self.reset(),
                None => {
                    self.step = RespStep::Done;
                    return;
                }
            }
        }
    }
}
