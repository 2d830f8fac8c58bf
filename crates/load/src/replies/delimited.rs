//! Finds the end of a reply over TCP by a line end, a count or a length, without parsing it.

use super::{Consumed, Malformed, Reply};
use record::protocol::Expect;

const MAX_LINE_BYTES: u64 = 1 << 20;

/// The state of one answer.
#[derive(Debug, Default)]
pub struct Delimited {
    length: u64,
    announced: u64,
}

impl Reply for Delimited {
    fn reset(&mut self) {
        *self = Delimited::default();
    }

    fn has_started(&self) -> bool {
        self.length > 0
    }
}

impl Delimited {
    /// Takes the next bytes of the connection. After an error or a complete answer, call [`Reply::reset`] before the
    /// next call.
    pub fn feed(&mut self, expect: Expect, bytes: &[u8]) -> Result<Consumed, Malformed> {
        let prefix = match expect {
            Expect::Line => return self.feed_line(bytes),
            Expect::Bytes(_) => 0,
            Expect::U16be => 2,
            Expect::U32be => 4,
        };
        let mut used = 0;
        while self.length < prefix {
            let Some(byte) = bytes.get(used) else { break };
            self.announced = self.announced << 8 | u64::from(*byte);
            self.length += 1;
            used += 1;
        }
        if self.length < prefix {
            return Ok(Consumed { used, body: 0, parts: None, is_complete: false });
        }
        let whole = if let Expect::Bytes(count) = expect { count } else { prefix + self.announced };
        let part = (bytes.len() - used).min(usize::try_from(whole - self.length).unwrap_or(usize::MAX));
        self.length += part as u64;
        Ok(Consumed { used: used + part, body: part, parts: None, is_complete: self.length == whole })
    }

    fn feed_line(&mut self, bytes: &[u8]) -> Result<Consumed, Malformed> {
        // One byte more than the limit shows that the line is too long, however the bytes are split.
        let room = (MAX_LINE_BYTES + 1 - self.length) as usize;
        let part = &bytes[..bytes.len().min(room)];
        let end = memchr::memchr(b'\n', part);
        let used = end.map_or(part.len(), |end| end + 1);
        self.length += used as u64;
        if end.is_none() && self.length > MAX_LINE_BYTES {
            return Err(Malformed("the answer has no end of line within 1 MiB: define its end with --expect"));
        }
        Ok(Consumed { used, body: used, parts: None, is_complete: end.is_some() })
    }
}
