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
            word @ (b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR") => memcached_error(word),
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(keys: u32, bytes: &[u8], size: usize) -> Result<(usize, usize, Option<u16>), Malformed> {
        crate::replies::read_in_pieces(bytes, size, |reply: &mut MemcachedReply, piece| reply.feed(keys, piece))
    }

    #[test]
    fn hits_misses_and_errors_are_distinguished() {
        for (keys, text, status) in [
            (1, "VALUE key:1 0 3\r\nabc\r\nEND\r\n", ANSWER),
            (1, "VALUE key:1 0 0\r\n\r\nEND\r\n", ANSWER),
            (1, "END\r\n", MISS),
            (2, "VALUE a 0 1\r\nx\r\nEND\r\n", MISS),
            (2, "VALUE a 0 1\r\nx\r\nVALUE b 5 2 77\r\nyz\r\nEND\r\n", ANSWER),
            (0, "STORED\r\n", ANSWER),
            (0, "NOT_STORED\r\n", NOT_STORED),
            (0, "ERROR\r\n", memcached_error(b"ERROR")),
            (1, "SERVER_ERROR out of memory\r\n", memcached_error(b"SERVER_ERROR")),
            (META | 1, "VA 3\r\nabc\r\n", ANSWER),
            (META | 1, "VA 0 f30 c7\r\n\r\n", ANSWER),
            (META | 1, "EN\r\n", MISS),
            (META | 2, "EN\r\nVA 2\r\nEN\r\n", MISS),
            (META | 3, "VA 1\r\nx\r\nSERVER_ERROR busy\r\nEN\r\n", memcached_error(b"SERVER_ERROR")),
            (META, "HD\r\n", ANSWER),
            (META, "NS\r\n", NOT_STORED),
            (META, "ERROR\r\n", memcached_error(b"ERROR")),
        ] {
            let used = text.len();
            let (read_to, _, found) = read(keys, text.as_bytes(), usize::MAX).unwrap();
            assert_eq!((read_to, found), (used, Some(status)), "{text:?}");
        }
    }

    #[test]
    fn an_invalid_reply_is_refused_with_a_reason() {
        let endless = "x".repeat(100_000);
        for text in ["END\r\n", "VALUE a 0 1\r\nx\r\n", "HD\r\n"] {
            assert!(read(META | 1, text.as_bytes(), 1).is_err(), "no answer to a meta command: {text}");
        }
        assert!(read(1, b"EN\r\n", 1).is_err() && read(1, b"VA 1\r\n", 1).is_err());
        for (text, words) in [
            ("HTTP/1.1 400 Bad Request\r\n", "answered HTTP"),
            ("-ERR unknown command\r\n", "Redis"),
            ("\x16\x03\x01", "TLS"),
            ("HELLO\r\n", "not in the protocol"),
            ("VALUE a 0 -1\r\n", "not a number"),
            ("VALUE a 0 99999999999\r\n", "larger"),
            ("VALUE a 0 1\r\nxx\r\n", "longer than it announced"),
            ("VALUE a 0 1\r\nx\r\nVALUE a 0 1\r\nx\r\n", "more values"),
            (&endless, "64 KiB"),
        ] {
            let why = read(1, text.as_bytes(), usize::MAX).expect_err(words);
            assert!(why.0.contains(words), "{}", why.0);
            assert_eq!(read(1, text.as_bytes(), 1), Err(why), "in single bytes");
        }
    }

    fn likely() -> impl Strategy<Value = Vec<u8>> {
        let token = prop_oneof![
            3 => Just(b"VALUE key:1 0 ".to_vec()),
            3 => "[0-9]{1,2}\r\n".prop_map(String::into_bytes),
            3 => "[a-z]{0,9}\r\n".prop_map(String::into_bytes),
            2 => Just(b"END\r\n".to_vec()),
            1 => Just(b"STORED\r\n".to_vec()),
            1 => Just(b"VA 2\r\nab\r\n".to_vec()),
            1 => Just(b"EN\r\n".to_vec()),
            1 => any::<u8>().prop_map(|byte| vec![byte]),
        ];
        prop::collection::vec(token, 0..20).prop_map(|tokens| tokens.concat())
    }

    proptest! {
        #[test]
        fn splitting_changes_nothing(bytes in likely(), keys in 0u32..3, is_meta: bool, size in 1usize..9) {
            let keys = if is_meta { keys | META } else { keys };
            prop_assert_eq!(read(keys, &bytes, size), read(keys, &bytes, usize::MAX));
        }
    }
}
