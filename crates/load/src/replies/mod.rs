//! Finds the end of a reply and reads its meaning, for protocols other than HTTP: incremental state machines over
//! byte slices, without I/O. They keep only a few bytes of each reply. Splitting the bytes differently never changes
//! the result.

pub mod delimited;
pub mod memcached;
pub mod resp;

use crate::framing::{Consumed, Malformed};
pub use record::protocol::ANSWER;

/// The state of a reply that is being received.
pub trait Reply: Default {
    /// Resets the state: the next byte begins another reply.
    fn reset(&mut self);

    /// Whether any byte of the reply has arrived.
    fn has_started(&self) -> bool;

    /// The status, as [`record::protocol::Protocol::status_words`] defines it. Valid once the reply is complete.
    fn status(&self) -> u16 {
        ANSWER
    }

    /// The first bytes of an error reply. Untrusted.
    fn error(&self) -> &[u8] {
        &[]
    }

    /// Bytes allocated for nested replies.
    fn memory_bytes(&self) -> usize {
        0
    }
}

fn of_another_protocol(first: u8, wanted: StoreProtocol) -> Malformed {
    Malformed(match (first, wanted) {
        (b'H', StoreProtocol::Redis) => "the server answered HTTP, not Redis' protocol: write the URL with http",
        (b'H', StoreProtocol::Memcached) => {
            "the server answered HTTP, not memcached's protocol: write the URL with http"
        }
        (0x15 | 0x16, StoreProtocol::Redis) => "the server answered TLS: write the URL with rediss",
        (0x15 | 0x16, StoreProtocol::Memcached) => "the server answered TLS: use its plain port",
        (b'E', StoreProtocol::Redis) => "the server answered as memcached does: write the URL with memcached",
        (b'-', StoreProtocol::Memcached) => "the server answered as Redis does: write the URL with redis",
        (_, StoreProtocol::Redis) => "not a Redis reply: its first byte is not a type",
        (_, StoreProtocol::Memcached) => "not a memcached reply: its first word is not in the protocol",
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StoreProtocol {
    Redis,
    Memcached,
}

const KEPT_BYTES: usize = 96;
const MAX_LINE_BYTES: u32 = 64 * 1024;

#[derive(Debug, Clone)]
struct ReplyLine {
    kept: [u8; KEPT_BYTES],
    length: u32,
    ends_with_return: bool,
}

impl Default for ReplyLine {
    fn default() -> Self {
        ReplyLine { kept: [0; KEPT_BYTES], length: 0, ends_with_return: false }
    }
}

impl ReplyLine {
    #[inline]
    fn feed(&mut self, bytes: &[u8]) -> Result<(usize, bool), Malformed> {
        const TOO_LONG: Malformed = Malformed("a line of the reply is longer than 64 KiB");
        const NO_RETURN: Malformed =
            Malformed("a line of the reply does not end with a carriage return and a line feed");
        // One byte more than the limit shows that the line is too long, however the bytes are split.
        let room = (MAX_LINE_BYTES + 1 - self.length) as usize;
        let part = &bytes[..bytes.len().min(room)];
        let end = memchr::memchr(b'\n', part);
        let text = &part[..end.unwrap_or(part.len())];
        let at = (self.length as usize).min(KEPT_BYTES);
        let kept = text.len().min(KEPT_BYTES - at);
        self.kept[at..at + kept].copy_from_slice(&text[..kept]);
        self.length += text.len() as u32;
        if let Some(last) = text.last() {
            self.ends_with_return = *last == b'\r';
        }
        match end {
            Some(_) if !self.ends_with_return => Err(NO_RETURN),
            Some(end) => Ok((end + 1, true)),
            None if self.length > MAX_LINE_BYTES => Err(TOO_LONG),
            None => Ok((text.len(), false)),
        }
    }

    fn text(&self) -> &[u8] {
        &self.kept[..((self.length as usize).saturating_sub(1)).min(KEPT_BYTES)]
    }

    fn is_whole(&self) -> bool {
        self.length as usize <= KEPT_BYTES
    }

    fn clear(&mut self) {
        self.length = 0;
        self.ends_with_return = false;
    }
}

/// Bytes of the line end after a value.
const LINE_END_BYTES: u64 = 2;

/// Takes bytes of a value and its line end, of which `left` bytes are missing; returns how many are missing then.
/// `bytes` is not empty.
fn feed_value(left: u64, bytes: &[u8], consumed: &mut Consumed) -> Result<u64, Malformed> {
    if left > LINE_END_BYTES {
        let part = bytes.len().min(usize::try_from(left - LINE_END_BYTES).unwrap_or(usize::MAX));
        consumed.used += part;
        consumed.body += part;
        return Ok(left - part as u64);
    }
    if bytes[0] != if left == LINE_END_BYTES { b'\r' } else { b'\n' } {
        return Err(Malformed("a value of the reply is longer than it announced"));
    }
    consumed.used += 1;
    Ok(left - 1)
}

/// A decimal number without a sign, of at most 19 digits.
fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 19 {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0')))
}

fn first_word(line: &[u8]) -> &[u8] {
    line.split(|byte| *byte == b' ').next().unwrap_or_default()
}
