/// The parts of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Parts {
    /// The bytes of each read are a part; for types without parts.
    #[default]
    Reads,
    /// Server-sent events with data; each ends with a blank line.
    Events,
    /// Lines that are not empty, e.g. of JSON.
    Lines,
}

pub(crate) const TYPE_BYTES: usize = 24;

impl Parts {
    /// The parts that a value of `content-type` defines.
    pub fn of_type(value: &[u8]) -> Parts {
        let end = memchr::memchr(b';', value).unwrap_or(value.len());
        let is = |name: &str| value[..end].trim_ascii().eq_ignore_ascii_case(name.as_bytes());
        if is("text/event-stream") {
            Parts::Events
        } else if is("application/x-ndjson") || is("application/ndjson") || is("application/jsonl") {
            Parts::Lines
        } else {
            Parts::Reads
        }
    }
}

pub(crate) fn is_identity(value: &[u8]) -> bool {
    value.is_empty() || value.eq_ignore_ascii_case(b"identity")
}

const IN_LINE: u8 = 1;
/// The event has a data line. An event without one is a comment, which only keeps a connection open.
const HAS_DATA: u8 = 2;
/// The last byte was a carriage return, so a line feed ends no further line.
const AFTER_RETURN: u8 = 4;

#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct PartCounter {
    kind: Parts,
    state: u8,
}

impl PartCounter {
    pub(crate) fn new(kind: Parts) -> Self {
        PartCounter { kind, state: 0 }
    }

    #[inline]
    pub(crate) fn counts(&self) -> bool {
        self.kind != Parts::Reads
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) -> u32 {
        let mut parts = 0;
        for byte in bytes {
            let is_second = *byte == b'\n' && self.state & AFTER_RETURN != 0;
            self.state &= !AFTER_RETURN;
            match byte {
                _ if is_second => {}
                b'\n' | b'\r' => {
                    parts += u32::from(self.line_ends());
                    self.state |= if *byte == b'\r' { AFTER_RETURN } else { 0 };
                }
                _ => {
                    // All other field names of an event begin with other letters.
                    if self.state & IN_LINE == 0 && *byte == b'd' {
                        self.state |= HAS_DATA;
                    }
                    self.state |= IN_LINE;
                }
            }
        }
        parts
    }

    fn line_ends(&mut self) -> bool {
        let (is_empty, has_data) = (self.state & IN_LINE == 0, self.state & HAS_DATA != 0);
        self.state &= !IN_LINE;
        match self.kind {
            Parts::Reads => false,
            Parts::Lines => !is_empty,
            Parts::Events => {
                if is_empty {
                    self.state &= !HAS_DATA;
                }
                is_empty && has_data
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn count(kind: Parts, text: &str) -> u32 {
        PartCounter::new(kind).take(text.as_bytes())
    }

    #[test]
    fn an_event_ends_with_a_blank_line_for_every_line_ending() {
        for end in ["\n", "\r\n", "\r"] {
            let text = "id: 1|data: a|data: b||: still there||event: x||data||data: unfinished|".replace('|', end);
            assert_eq!(count(Parts::Events, &text), 2, "{text:?}");
        }
        assert_eq!(count(Parts::Events, "\n\n\n"), 0);
        assert_eq!(count(Parts::Lines, "{}\r\n\n{\"a\": 1}\nrest"), 2);
        assert_eq!(count(Parts::Reads, "data: a\n\n"), 0);
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(
            text in "[d:\r\n]{0,60}",
            at in any::<prop::sample::Index>(),
            is_events in any::<bool>(),
        ) {
            let kind = if is_events { Parts::Events } else { Parts::Lines };
            let (first, second) = text.as_bytes().split_at(at.index(text.len() + 1));
            let mut parted = PartCounter::new(kind);
            let in_two = parted.take(first) + parted.take(second);
            prop_assert_eq!(in_two, count(kind, &text));
            // A part has at least one character and a line end.
            prop_assert!(2 * in_two as usize <= text.len());
        }
    }
}
