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

/// Counts the parts of a body.
#[derive(Debug, Default, Clone, Copy)]
pub struct PartCounter {
    kind: Parts,
    state: u8,
}

impl PartCounter {
    /// A counter of these parts.
    pub fn new(kind: Parts) -> Self {
        PartCounter { kind, state: 0 }
    }

    #[inline]
    pub(crate) fn counts(&self) -> bool {
        self.kind != Parts::Reads
    }

    /// Number of parts that end in these bytes.
    pub fn take(&mut self, bytes: &[u8]) -> u32 {
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
