//! Removes the escapes that servers write into logs: `\"`, `\\`, the byte `\xHH` (Apache, nginx), and JSON's `\/` and
//! `\uHHHH`, which stand for characters.

/// Whether a target can be sent unchanged, because it has no space, control byte or escape.
#[inline]
pub(super) fn is_plain(target: &[u8]) -> bool {
    let mut bad = 0u8;
    for &byte in target {
        // The loop has no early exit, so that the compiler vectorizes it. Targets are short.
        bad |= u8::from(byte <= b' ') | u8::from(byte == 0x7f) | u8::from(byte == b'\\');
    }
    bad == 0
}

pub(super) fn is_sendable(target: &[u8]) -> bool {
    !target.is_empty() && target.iter().all(|&byte| byte > b' ' && byte != 0x7f)
}

/// Appends `text` without its escapes. An unknown escape stays unchanged.
pub fn undo(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        out.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        if let Some((char, length)) = json_character(rest) {
            out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
            rest = &rest[length..];
            continue;
        }
        let (byte, length) = match rest {
            [_, b'x', high, low, ..] => hex_byte(*high, *low).map_or((b'\\', 1), |byte| (byte, 4)),
            [_, b'b', ..] => (8, 2),
            [_, b't', ..] => (b'\t', 2),
            [_, b'n', ..] => (b'\n', 2),
            [_, b'v', ..] => (11, 2),
            [_, b'f', ..] => (12, 2),
            [_, b'r', ..] => (b'\r', 2),
            [_, quoted @ (b'"' | b'\\' | b'/'), ..] => (*quoted, 2),
            _ => (b'\\', 1),
        };
        out.push(byte);
        rest = &rest[length..];
    }
    out.extend_from_slice(rest);
}

/// The character at the beginning of `text` that is written as `\uHHHH` or as a surrogate pair, and the escape's
/// length. A lone surrogate becomes U+FFFD.
fn json_character(text: &[u8]) -> Option<(char, usize)> {
    let unit = |at: usize| match *text.get(at..at + 6)? {
        [b'\\', b'u', a, b, c, d] => Some(u16::from_be_bytes([hex_byte(a, b)?, hex_byte(c, d)?])),
        _ => None,
    };
    let first = unit(0)?;
    match char::decode_utf16([first].into_iter().chain(unit(6))).next()? {
        Ok(char) => Some((char, 6 * char.len_utf16())),
        Err(_) => Some((char::REPLACEMENT_CHARACTER, 6)),
    }
}

/// Index of the closing quote of a quoted field at the beginning of `text`: the first unescaped `"` at or after
/// `from`.
#[inline]
pub fn closing_quote(text: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        let quote = at + memchr::memchr(b'"', text.get(at..)?)?;
        let backslashes = text[..quote].iter().rev().take_while(|byte| **byte == b'\\').count();
        if backslashes % 2 == 0 {
            return Some(quote);
        }
        at = quote + 1;
    }
}

/// The byte that two hexadecimal digits stand for.
pub(crate) fn hex_byte(high: u8, low: u8) -> Option<u8> {
    let digit = |digit: u8| (digit as char).to_digit(16);
    Some((digit(high)? << 4 | digit(low)?) as u8)
}
