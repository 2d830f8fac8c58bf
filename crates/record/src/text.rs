//! Text from outside (names, paths, headers, what a server said) made safe to show.

/// Text from outside made safe for a terminal: control characters (escape sequences) become `?`, length is bounded.
pub fn plain(text: &str, limit: usize) -> String {
    let mut clean: String =
        text.chars().take(limit).map(|c| if c.is_control() || is_format_character(c) { '?' } else { c }).collect();
    if text.chars().nth(limit).is_some() {
        clean.push_str("...");
    }
    clean
}

/// Characters that change the direction or the joining of what follows: a name must not reorder a line.
fn is_format_character(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        assert_eq!(plain("a\u{1b}[31mb\nc\u{202e}d", 40), "a?[31mb?c?d");
        assert_eq!(plain("abcdef", 3), "abc...");
    }
}
