//! Status line and header fields, and how they determine the end of the response (RFC 9112 sections 4, 5, 6 and 9).

use super::{Malformed, Parts, is_identity};

pub(super) const TOO_LONG: Malformed = Malformed("a header of more than 64 KiB");

pub(crate) const HTTP_2: Malformed = Malformed("the server speaks HTTP/2 only on this port: use --http2");
const FRAME_HEAD_BYTES: usize = 9;

/// Determines where the body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// No body (HEAD, 1xx, 204, 304).
    None,
    /// A body of Content-Length bytes.
    Fixed(u64),
    /// Chunked transfer coding.
    Chunked,
    /// The body ends when the connection closes.
    UntilClose,
}

/// A complete head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Bytes of the head, including the empty line.
    pub len: usize,
    /// Status code, 100 to 999.
    pub status: u16,
    /// How the body ends.
    pub body: BodyKind,
    /// Whether the connection stays open after the body.
    pub is_keep_alive: bool,
    /// The body's end is ambiguous, so the client closes the connection after it.
    pub is_ambiguous: bool,
    /// Kind of the body's parts.
    pub parts: Parts,
}

impl Head {
    /// Whether this is an interim response, which a final one follows. 101 is final, because another protocol follows
    /// it.
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }
}

/// Refuses bytes that do not begin like a response, so that a non-HTTP peer is noticed at once.
pub(super) fn check_start(bytes: &[u8]) -> Result<(), Malformed> {
    const START: &[u8] = b"HTTP/1.";
    let known = bytes.len().min(START.len());
    if bytes[..known] == START[..known] {
        Ok(())
    } else if !may_be_http_2(bytes) {
        Err(Malformed("the response does not begin with HTTP/1."))
    } else if bytes.len() < FRAME_HEAD_BYTES {
        Ok(())
    } else {
        Err(HTTP_2)
    }
}

/// Whether bytes begin like an HTTP/2 server's first frame. That is SETTINGS (type 4), or GOAWAY (type 7) for a
/// client that did not begin in HTTP/2, on stream 0 with less than 256 bytes.
fn may_be_http_2(bytes: &[u8]) -> bool {
    let is_right = |at: usize, byte: u8| match at {
        2 | 4 => true,
        3 => byte == 4 || byte == 7,
        _ => byte == 0,
    };
    bytes.iter().take(FRAME_HEAD_BYTES).enumerate().all(|(at, byte)| is_right(at, *byte))
}

pub(crate) fn is_http_2(bytes: &[u8]) -> bool {
    bytes.len() >= FRAME_HEAD_BYTES && may_be_http_2(bytes)
}

/// The offset after the empty line that ends a head, searching from `from`. A lone LF ends a line, too: RFC 9112
/// section 2.2 allows it, and CGI scripts rely on it.
pub(super) fn find_end(bytes: &[u8], from: usize) -> Option<usize> {
    for at in memchr::memchr_iter(b'\n', &bytes[from..]) {
        match &bytes[from + at + 1..] {
            [b'\n', ..] => return Some(from + at + 2),
            [b'\r', b'\n', ..] => return Some(from + at + 3),
            _ => {}
        }
    }
    None
}

/// Offset at which to resume the search after `len` bytes without an end: an end may begin in the last two.
pub(super) fn resume_at(len: usize) -> usize {
    len.saturating_sub(2)
}

/// Parses a complete head; `bytes` ends with its empty line.
pub fn parse_head(bytes: &[u8], is_head_request: bool) -> Result<Head, Malformed> {
    let (line, mut rest) = next_line(bytes);
    let (status, is_http_1_0) = parse_status_line(line)?;
    let mut length: Option<u64> = None;
    let mut coding = TransferCoding::Absent;
    let (mut parts, mut is_encoded) = (Parts::Reads, false);
    let (mut says_close, mut says_keep_alive) = (false, false);
    while !rest.is_empty() {
        let (mut line, behind) = next_line(rest);
        rest = behind;
        if line.is_empty() {
            break;
        }
        let unfolded;
        if begins_with_space(rest) {
            (unfolded, rest) = unfold(line, rest);
            line = &unfolded;
        }
        let (name, value) = split_field(line)?;
        // The length of the name rules out most fields.
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                if length.is_some() {
                    return Err(Malformed("more than one Content-Length"));
                }
                length = Some(parse_length(value)?);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => coding.add(value)?,
            12 if name.eq_ignore_ascii_case(b"content-type") => parts = Parts::of_type(value),
            16 if name.eq_ignore_ascii_case(b"content-encoding") => is_encoded |= !is_identity(value),
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for token in tokens(value) {
                    says_close |= token.eq_ignore_ascii_case(b"close");
                    says_keep_alive |= token.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            _ => {}
        }
    }
    let mut is_ambiguous = false;
    let mut is_keep_alive = !says_close && (!is_http_1_0 || says_keep_alive);
    if is_http_1_0 && coding != TransferCoding::Absent {
        return Err(Malformed("Transfer-Encoding in an HTTP/1.0 response"));
    }
    let body = if is_head_request || (100..200).contains(&status) || status == 204 || status == 304 {
        BodyKind::None
    } else {
        match (coding, length) {
            (TransferCoding::Chunked, announced) => {
                // RFC 9112 section 6.3: the transfer coding overrides the length, but the connection must be closed
                // afterwards.
                is_ambiguous = is_keep_alive && announced.is_some();
                is_keep_alive &= announced.is_none();
                BodyKind::Chunked
            }
            (TransferCoding::Other, _) => BodyKind::UntilClose,
            (TransferCoding::Absent, Some(length)) => BodyKind::Fixed(length),
            (TransferCoding::Absent, None) => BodyKind::UntilClose,
        }
    };
    if body == BodyKind::UntilClose || status == 101 {
        is_keep_alive = false;
    }
    // Part boundaries are not visible in a compressed body.
    let parts = if is_encoded { Parts::Reads } else { parts };
    Ok(Head { len: bytes.len(), status, body, is_keep_alive, is_ambiguous, parts })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransferCoding {
    Absent,
    Chunked,
    Other,
}

impl TransferCoding {
    /// Adds the codings of one field, in order. `chunked` may occur only once, at the end. `identity` is ignored: RFC
    /// 2616 defined it, and servers still send it.
    fn add(&mut self, value: &[u8]) -> Result<(), Malformed> {
        let mut is_empty = true;
        for token in tokens(value) {
            is_empty = false;
            if token.eq_ignore_ascii_case(b"identity") {
                continue;
            }
            if *self == TransferCoding::Chunked {
                return Err(Malformed("a transfer coding after chunked"));
            }
            *self =
                if token.eq_ignore_ascii_case(b"chunked") { TransferCoding::Chunked } else { TransferCoding::Other };
        }
        if is_empty && *self == TransferCoding::Absent {
            return Err(Malformed("an empty Transfer-Encoding"));
        }
        Ok(())
    }
}

#[inline]
fn begins_with_space(bytes: &[u8]) -> bool {
    matches!(bytes, [b' ' | b'\t', ..])
}

/// Joins a line with its continuation lines by spaces, as a user agent must (RFC 9112 section 5.2).
#[cold]
fn unfold<'b>(line: &[u8], mut rest: &'b [u8]) -> (Vec<u8>, &'b [u8]) {
    let mut unfolded = line.trim_ascii_end().to_vec();
    while begins_with_space(rest) {
        let (more, behind) = next_line(rest);
        rest = behind;
        unfolded.push(b' ');
        unfolded.extend_from_slice(more.trim_ascii());
    }
    (unfolded, rest)
}

fn next_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let Some(at) = memchr::memchr(b'\n', bytes) else { return (bytes, &[]) };
    let line = &bytes[..at];
    (line.strip_suffix(b"\r").unwrap_or(line), &bytes[at + 1..])
}

fn parse_status_line(line: &[u8]) -> Result<(u16, bool), Malformed> {
    let is_http_1_0 = match line.get(..9) {
        Some(b"HTTP/1.1 ") => false,
        Some(b"HTTP/1.0 ") => true,
        _ => return Err(Malformed("the status line does not begin with HTTP/1.1 or HTTP/1.0")),
    };
    let &[a, b, c, ref reason @ ..] = &line[9..] else { return Err(Malformed("a status line without a status code")) };
    if !(a.is_ascii_digit() && b.is_ascii_digit() && c.is_ascii_digit()) || a == b'0' {
        return Err(Malformed("a status code that is not three digits from 100 to 999"));
    }
    if !(reason.is_empty() || reason[0] == b' ') || has_control(reason) {
        return Err(Malformed("a status line that does not end after its reason"));
    }
    let digit = |d: u8| u16::from(d - b'0');
    Ok((digit(a) * 100 + digit(b) * 10 + digit(c), is_http_1_0))
}

fn split_field(line: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    if begins_with_space(line) {
        return Err(Malformed("a space before the first header line"));
    }
    let colon = memchr::memchr(b':', line).ok_or(Malformed("a header line without a colon"))?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if name.is_empty() || !name.iter().all(|byte| is_token_byte(*byte)) {
        return Err(Malformed("a header name with an invalid character"));
    }
    if has_control(value) {
        return Err(Malformed("a control character in a header value"));
    }
    Ok((name, value.trim_ascii()))
}

fn has_control(bytes: &[u8]) -> bool {
    bytes.iter().any(|byte| (*byte < b' ' && *byte != b'\t') || *byte == 0x7f)
}

/// A `tchar` of RFC 9110 section 5.6.2.
pub(super) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn parse_length(value: &[u8]) -> Result<u64, Malformed> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Malformed("a Content-Length that is not one decimal number"));
    }
    value.iter().try_fold(0u64, |sum, digit| {
        sum.checked_mul(10)
            .and_then(|sum| sum.checked_add(u64::from(digit - b'0')))
            .ok_or(Malformed("a Content-Length of more than 64 bits"))
    })
}

fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|byte| *byte == b',')
        .map(|member| member.split(|byte| *byte == b';').next().unwrap_or(member).trim_ascii())
        .filter(|token| !token.is_empty())
}
