//! Finds the end of an HTTP/1.x response and reads its meaning: an incremental state machine over byte slices,
//! without I/O.
//!
//! The rules are those of RFC 9112 section 6.3 for a client, read strictly: a response that a proxy could read in two
//! ways (two lengths, space before a colon) is malformed, because a benchmark must not guess. Splitting the bytes
//! differently never changes the result (a property test checks that).

mod chunked;
mod head;
mod parts;
mod template;

pub use head::{BodyKind, Head, parse_head};
pub(crate) use head::{HTTP_2, is_http_2};
pub use parts::{PartCounter, Parts};
pub(crate) use parts::{TYPE_BYTES, is_identity};
pub use template::HeadCache;

/// Maximum length of status line and fields. Bounds the memory of a connection.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Maximum interim (1xx) responses before a final one. Ends an endless stream of them.
const MAX_INTERIM: u8 = 100;

/// The rule that the bytes violate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

/// The effect of a slice of bytes on a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Consumed {
    /// Bytes that belong to this response; fewer than the slice only if `is_complete`.
    pub used: usize,
    /// Body bytes among `used`, without framing.
    pub body: usize,
    /// Body parts that end in these bytes; `None` if the content type does not define parts.
    pub parts: Option<u32>,
    /// The response is complete.
    pub is_complete: bool,
}

impl Consumed {
    pub(crate) fn add_parts(&mut self, parts: u32) {
        self.parts = Some(self.parts.unwrap_or(0) + parts);
    }
}

/// State of the response when its connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtEnd {
    /// The end of the connection completes the response.
    Complete,
    /// No byte of the response came before the end.
    Nothing,
    /// The response is incomplete.
    Truncated,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum MessagePhase {
    #[default]
    Head,
    Fixed,
    UntilClose,
    Chunked(chunked::ChunkStep),
    Done,
}

#[derive(Debug)]
struct SplitHead {
    bytes: Vec<u8>,
    searched: usize,
}

const STARTED: u8 = 1;
const KEEP_ALIVE: u8 = 2;
const AMBIGUOUS: u8 = 4;

/// The state of one response: 32 bytes, and a buffer only while a head is split over reads.
#[derive(Debug, Default)]
pub struct Framing {
    remaining: u64,
    carry: Option<Box<SplitHead>>,
    /// Bytes of the chunk-size line or of the trailers so far.
    line_bytes: u32,
    status: u16,
    phase: MessagePhase,
    parted: PartCounter,
    flags: u8,
    interim: u8,
}

impl Framing {
    /// A framing that expects the first byte of a response.
    pub fn new() -> Self {
        Framing::default()
    }

    /// Prepares for another response.
    #[inline]
    pub fn reset(&mut self) {
        self.carry = None;
        self.phase = MessagePhase::Head;
        self.flags = 0;
        self.interim = 0;
        self.status = 0;
    }

    /// Whether any byte of the response has arrived.
    #[inline]
    pub fn has_started(&self) -> bool {
        self.flags & STARTED != 0
    }

    /// The final status code; 0 until the head is complete.
    #[inline]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Whether another request may follow on the connection. Meaningful once the response is complete.
    #[inline]
    pub fn is_keep_alive(&self) -> bool {
        self.flags & KEEP_ALIVE != 0
    }

    /// Whether the server will end the connection. Meaningful once the response is complete.
    #[inline]
    pub fn server_closes(&self) -> bool {
        self.flags & (KEEP_ALIVE | AMBIGUOUS) == 0
    }

    /// Bytes allocated for a split head.
    pub fn carry_bytes(&self) -> usize {
        self.carry.as_ref().map_or(0, |carry| carry.bytes.capacity() + size_of::<SplitHead>())
    }

    /// Number of the next bytes that are certainly body and need no inspection.
    #[inline]
    pub fn skippable(&self) -> u64 {
        match self.phase {
            _ if self.parted.counts() => 0,
            // `feed` takes the last byte, because it completes the response.
            MessagePhase::Fixed => self.remaining - 1,
            MessagePhase::Chunked(chunked::ChunkStep::Data) => self.remaining.saturating_sub(1),
            MessagePhase::UntilClose => u64::MAX,
            _ => 0,
        }
    }

    /// Skips `count` body bytes that were discarded unread; at most [`Framing::skippable`].
    #[inline]
    pub fn skip(&mut self, count: u64) {
        debug_assert!(count <= self.skippable());
        if self.phase != MessagePhase::UntilClose {
            self.remaining -= count;
        }
    }

    /// Takes the next bytes of the connection. `slot` chooses the cached head to compare with (the request's target).
    /// After an error or a complete response, call [`Framing::reset`] before the next call.
    #[inline]
    pub fn feed(&mut self, heads: &mut HeadCache, slot: usize, bytes: &[u8]) -> Result<Consumed, Malformed> {
        if self.flags & STARTED == 0 && !bytes.is_empty() {
            self.flags |= STARTED;
            // Fast path: the kept head, followed by the whole body.
            if let Some(known) = heads.matching(slot, bytes) {
                self.begin_body(&known)?;
                let after = self.feed_slow(heads, slot, &bytes[known.len..])?;
                return Ok(Consumed { used: after.used + known.len, ..after });
            }
        }
        self.feed_slow(heads, slot, bytes)
    }

    fn feed_slow(&mut self, heads: &mut HeadCache, slot: usize, bytes: &[u8]) -> Result<Consumed, Malformed> {
        let mut consumed = Consumed::default();
        loop {
            let rest = &bytes[consumed.used..];
            match self.phase {
                MessagePhase::Done => {
                    consumed.is_complete = true;
                    return Ok(consumed);
                }
                _ if rest.is_empty() => return Ok(consumed),
                MessagePhase::Head => consumed.used += self.feed_head(heads, slot, rest)?,
                MessagePhase::UntilClose => self.body_came(rest, &mut consumed),
                MessagePhase::Fixed => {
                    let part = rest.len().min(usize::try_from(self.remaining).unwrap_or(usize::MAX));
                    self.remaining -= part as u64;
                    self.body_came(&rest[..part], &mut consumed);
                    if self.remaining == 0 {
                        self.phase = MessagePhase::Done;
                    }
                }
                MessagePhase::Chunked(step) => {
                    let (used, is_body) = self.feed_chunked(step, rest)?;
                    if is_body { self.body_came(&rest[..used], &mut consumed) } else { consumed.used += used }
                }
            }
        }
    }

    #[inline]
    fn body_came(&mut self, bytes: &[u8], consumed: &mut Consumed) {
        consumed.used += bytes.len();
        consumed.body += bytes.len();
        if self.parted.counts() {
            consumed.add_parts(self.parted.take(bytes));
        }
    }

    fn feed_head(&mut self, heads: &mut HeadCache, slot: usize, bytes: &[u8]) -> Result<usize, Malformed> {
        let before = self.carry.as_ref().map_or(0, |carry| carry.bytes.len());
        // One byte more than the limit shows that the head is too long.
        let part = &bytes[..bytes.len().min(MAX_HEAD_BYTES + 1 - before)];
        let (known, searched) = match &mut self.carry {
            None => (part, 0),
            Some(carry) => {
                carry.bytes.extend_from_slice(part);
                (&carry.bytes[..], carry.searched)
            }
        };
        head::check_start(known)?;
        match head::find_end(known, searched) {
            Some(end) if end <= MAX_HEAD_BYTES => {
                let head = heads.parse(slot, &known[..end])?;
                self.carry = None;
                self.begin_body(&head)?;
                Ok(end - before)
            }
            None if known.len() < MAX_HEAD_BYTES => {
                let searched = head::resume_at(known.len());
                match &mut self.carry {
                    None => self.carry = Some(Box::new(SplitHead { bytes: part.to_vec(), searched })),
                    Some(carry) => carry.searched = searched,
                }
                Ok(part.len())
            }
            _ => Err(head::TOO_LONG),
        }
    }

    #[inline]
    fn begin_body(&mut self, head: &Head) -> Result<(), Malformed> {
        if head.is_interim() {
            self.interim += 1;
            if self.interim > MAX_INTERIM {
                return Err(Malformed("more than 100 interim (1xx) responses"));
            }
            self.phase = MessagePhase::Head;
            return Ok(());
        }
        self.status = head.status;
        if head.is_keep_alive {
            self.flags |= KEEP_ALIVE;
        } else if head.is_ambiguous {
            self.flags |= AMBIGUOUS;
        }
        self.remaining = 0;
        self.line_bytes = 0;
        self.parted = PartCounter::new(head.parts);
        self.phase = match head.body {
            BodyKind::None | BodyKind::Fixed(0) => MessagePhase::Done,
            BodyKind::Fixed(length) => {
                self.remaining = length;
                MessagePhase::Fixed
            }
            BodyKind::Chunked => MessagePhase::Chunked(chunked::ChunkStep::Size),
            BodyKind::UntilClose => MessagePhase::UntilClose,
        };
        Ok(())
    }

    /// State of the response if its connection ends now.
    pub fn at_end(&self) -> AtEnd {
        match self.phase {
            MessagePhase::Done | MessagePhase::UntilClose => AtEnd::Complete,
            _ if self.has_started() => AtEnd::Truncated,
            _ => AtEnd::Nothing,
        }
    }
}

/// Whether the text is a `token` of RFC 9110 section 5.6.2: a method or a field name.
pub(crate) fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| head::is_token_byte(*byte))
}

/// Length of the head at the beginning of `bytes`; `None` if its end is missing.
pub fn head_end(bytes: &[u8]) -> Option<usize> {
    head::find_end(bytes, 0)
}
