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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(expect: Expect, bytes: &[u8], size: usize) -> Result<(usize, usize, bool), Malformed> {
        let feed = |answer: &mut Delimited, piece: &[u8]| answer.feed(expect, piece);
        crate::replies::read_in_pieces(bytes, size, feed).map(|(used, body, status)| (used, body, status.is_some()))
    }

    #[test]
    fn an_answer_ends_at_its_delimiter() {
        assert_eq!(read(Expect::Line, b"ab\ncd\n", usize::MAX), Ok((3, 3, true)));
        assert_eq!(read(Expect::Bytes(4), b"abcde", usize::MAX), Ok((4, 4, true)));
        assert_eq!(read(Expect::U16be, b"\x00\x03abcd", usize::MAX), Ok((5, 3, true)));
        assert_eq!(read(Expect::U16be, b"\x00\x00abcd", usize::MAX), Ok((2, 0, true)));
        assert_eq!(read(Expect::U32be, b"\xff\xff\xff\xffabcd", usize::MAX), Ok((8, 4, false)));
        let endless = vec![b'x'; 2 << 20];
        for size in [usize::MAX, 1000] {
            let why = read(Expect::Line, &endless, size).expect_err("no line is so long");
            assert!(why.0.contains("--expect"), "{}", why.0);
        }
    }

    proptest! {
        #[test]
        fn splitting_changes_nothing(
            bytes in prop::collection::vec(0u8..12, 0..40),
            size in 1usize..9,
            choice in 0usize..4,
        ) {
            let expect = [Expect::Line, Expect::Bytes(5), Expect::U16be, Expect::U32be][choice];
            prop_assert_eq!(read(expect, &bytes, size), read(expect, &bytes, usize::MAX));
        }
    }
}
