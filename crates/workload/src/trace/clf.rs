//! Apache's common and combined formats, and nginx's default, which is combined:
//!
//! ```text
//! host ident user [17/May/2015:10:05:03 +0000] "GET /path HTTP/1.1" 200 1234 "referrer" "agent" ...
//! ```
//!
//! One parser reads common, combined and any longer variant, because it skips all text after the size.

use super::escape::closing_quote;
use super::{RawFields, RejectReason, instant};
use memchr::{memchr, memrchr};

/// The last time that was read. On a busy server many successive lines have the same time.
#[derive(Debug, Clone, Default)]
pub(super) struct LastTime(Option<([u8; 26], i64)>);

impl LastTime {
    #[inline]
    fn read(&mut self, text: &[u8]) -> Option<i64> {
        let digits: &[u8; 26] = text.first_chunk()?;
        if let Some((known, time_ns)) = &self.0
            && known == digits
        {
            return Some(*time_ns);
        }
        let (time_ns, _, _) = instant::clf(digits)?;
        self.0 = Some((*digits, time_ns));
        Some(time_ns)
    }
}

/// Parses one line. With `has_host`, a virtual host precedes the client (`%v:%p %h ...`).
#[inline]
pub(super) fn parse<'a>(line: &'a [u8], has_host: bool, last: &mut LastTime) -> Result<RawFields<'a>, RejectReason> {
    let mut rest = line;
    if has_host {
        let end = memchr(b' ', rest).ok_or(RejectReason::Layout)?;
        rest = &rest[end + 1..];
    }
    // Addresses are so short that a plain loop is faster than a vector search.
    let end = rest.iter().position(|byte| *byte == b' ').filter(|end| *end > 0).ok_or(RejectReason::Client)?;
    let (client, mut rest) = rest.split_at(end);
    // Nearly every line has neither ident nor user.
    if rest.starts_with(b" - - [") {
        rest = &rest[5..];
    }
    // A user's name may contain any characters, even spaces and brackets, so the time starts at the first bracket
    // that is followed by one.
    let time_ns = loop {
        let open = memchr(b'[', rest).ok_or(RejectReason::Time)?;
        rest = &rest[open + 1..];
        if let Some(time_ns) = last.read(rest) {
            rest = &rest[26..];
            break time_ns;
        }
    };
    rest = rest.strip_prefix(b"] \"").ok_or(RejectReason::Layout)?;
    let (line, status, bytes) = quoted_then_status(rest)?;
    let (method, target) = request_line(line)?;
    Ok(RawFields {
        client,
        time_ns,
        resolution_ns: instant::SECOND_NS,
        method,
        target,
        query: b"",
        status: Some(status),
        bytes: Some(bytes),
    })
}

/// Parses `GET / HTTP/1.1" 200 1234 ...`. Some servers do not escape quotes inside the request, so it ends at the
/// first quote that is followed by a status.
#[inline]
fn quoted_then_status(text: &[u8]) -> Result<(&[u8], u16, u64), RejectReason> {
    let mut from = 0;
    let mut reason = RejectReason::Layout;
    while let Some(quote) = closing_quote(text, from) {
        match status_and_bytes(&text[quote + 1..]) {
            Ok((status, bytes)) => return Ok((&text[..quote], status, bytes)),
            Err(why) if from == 0 => reason = why,
            Err(_) => {}
        }
        from = quote + 1;
    }
    Err(reason)
}

/// Parses ` 200 1234`, followed by the end or a space.
#[inline]
fn status_and_bytes(text: &[u8]) -> Result<(u16, u64), RejectReason> {
    let Some(&[b' ', a, b, c, b' ']) = text.first_chunk::<5>() else { return Err(RejectReason::Status) };
    let status = status(&[a, b, c])?;
    let size = &text[5..];
    let end = size.iter().position(|byte| *byte == b' ').unwrap_or(size.len());
    Ok((status, bytes(&size[..end])?))
}

#[inline]
pub(super) fn status(text: &[u8]) -> Result<u16, RejectReason> {
    match *text {
        [a, b, c] if a.is_ascii_digit() && b.is_ascii_digit() && c.is_ascii_digit() => {
            Ok(u16::from(a - b'0') * 100 + u16::from(b - b'0') * 10 + u16::from(c - b'0'))
        }
        _ => Err(RejectReason::Status),
    }
}

#[inline]
pub(super) fn bytes(text: &[u8]) -> Result<u64, RejectReason> {
    if text == b"-" {
        return Ok(0);
    }
    // A size of 18 digits is nearly an exabyte. A longer number is no size and would overflow.
    if text.is_empty() || text.len() > 18 {
        return Err(RejectReason::Bytes);
    }
    let mut value = 0;
    for byte in text {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return Err(RejectReason::Bytes);
        }
        value = value * 10 + u64::from(digit);
    }
    Ok(value)
}

/// Splits `METHOD TARGET HTTP/1.1` (or HTTP/0.9's `METHOD TARGET`). Spaces inside the target are kept; the caller
/// rejects them.
#[inline]
pub fn request_line(line: &[u8]) -> Result<(&[u8], &[u8]), RejectReason> {
    let (method, rest) = match line.strip_prefix(b"GET ") {
        // Nearly every request is a GET.
        Some(rest) => (&line[..3], rest),
        None => {
            let Some(space) = line.iter().position(|byte| *byte == b' ') else {
                return Err(if line.is_empty() || line == b"-" {
                    RejectReason::NoRequest
                } else {
                    RejectReason::Request
                });
            };
            (&line[..space], &line[space + 1..])
        }
    };
    if !is_method(method) {
        return Err(RejectReason::Request);
    }
    // Every HTTP version in use but "HTTP/2" and "HTTP/3" has 8 bytes.
    if let Some((target, version)) = rest.split_last_chunk::<9>()
        && version.starts_with(b" HTTP/")
    {
        return Ok((method, target));
    }
    match memrchr(b' ', rest) {
        // Some JSON encoders escape the slash.
        Some(last) if rest[last + 1..].starts_with(b"HTTP/") || rest[last + 1..].starts_with(br"HTTP\/") => {
            Ok((method, &rest[..last]))
        }
        _ => Ok((method, rest)),
    }
}

/// A method is a token of at most 32 letters, `-` or `_`. Servers log binary junk as "requests" too.
#[inline]
pub(super) fn is_method(method: &[u8]) -> bool {
    matches!(method.len(), 1..=32)
        && method.iter().all(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'-' | b'_'))
}
