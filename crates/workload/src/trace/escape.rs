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
pub(super) fn undo(text: &[u8], out: &mut Vec<u8>) {
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
pub(super) fn closing_quote(text: &[u8], from: usize) -> Option<usize> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_escapes_are_characters_and_x_escapes_are_bytes() {
        for (logged, target) in [
            (&br#"/a\"b\\c\x41\u0042\/\q\x4"#[..], r#"/a"b\cAB/\q\x4"#),
            (br"/\u00e4\u00E4", "/\u{e4}\u{e4}"),
            (br"/\u4e2d\u002f\u0026\u00ff\u0100\u07ff\u0800\uffff", "/\u{4e2d}/&\u{ff}\u{100}\u{7ff}\u{800}\u{ffff}"),
            (br"/\ud83d\ude00\uDBFF\uDFFF", "/\u{1f600}\u{10ffff}"),
            // A lone surrogate is no character.
            (br"/\ud83d", "/\u{fffd}"),
            (br"/\ud83dx\ude00", "/\u{fffd}x\u{fffd}"),
            (br"/\ud83d\u0041", "/\u{fffd}A"),
            (br"/\ud83d\ud83d\ude00", "/\u{fffd}\u{1f600}"),
            (br"/\ud83d\ude0", "/\u{fffd}\\ude0"),
            (br"/\u4e2\u\uxyzw", r"/\u4e2\u\uxyzw"),
            (br"/\xc3\xa4\xC3\xA4", "/\u{e4}\u{e4}"),
            (br"\b\f\n\r\t\v\u0007", "\x08\x0c\n\r\t\x0b\x07"),
        ] {
            let mut out = Vec::new();
            undo(logged, &mut out);
            assert_eq!(out.escape_ascii().to_string(), target.as_bytes().escape_ascii().to_string());
        }
        let mut out = Vec::new();
        undo(br"/\xe4", &mut out);
        assert_eq!(out, b"/\xe4");
    }

    #[test]
    fn an_escaped_quote_does_not_end_the_field() {
        assert_eq!(closing_quote(br#"a\"b" c"#, 0), Some(4));
        assert_eq!(closing_quote(br#"a\\" c"#, 0), Some(3));
        assert_eq!(closing_quote(br#"a\""#, 0), None);
    }
}
