use proptest::prelude::*;
use record::PlainText;

#[test]
fn control_characters_are_not_shown() {
    let text = |text: &str| String::from(PlainText::new(text, 40));
    assert_eq!(text("a\u{1b}[31mb\nc\u{202e}d"), "a?[31mb?c?d");
    assert_eq!(text("\u{9b}2J\u{7f}\r\t\0"), "?2J????");
    assert_eq!(text("\u{2066}x\u{2069}\u{200f}\u{61c}\u{feff}"), "?x????");
    assert_eq!(text("Grüße, 世界 \u{1f980}"), "Grüße, 世界 \u{1f980}");
}

#[test]
fn the_text_is_cut_at_its_maximum_length_with_a_mark() {
    assert_eq!(PlainText::new("abcdef", 3).as_str(), "abc...");
    assert_eq!(PlainText::new("abc", 3).as_str(), "abc");
    assert_eq!(PlainText::of_bytes("äöü".repeat(1000).as_bytes(), 3).as_str(), "äöü...");
    assert_eq!(PlainText::of_bytes(b" bad \xff end\n", 40).as_str(), "bad \u{fffd} end");
    assert_eq!(format!("{:>5}|", PlainText::new("ab", 9)), "   ab|");
}

#[test]
fn text_from_a_file_is_safe_after_reading() {
    let read: PlainText = serde_json::from_str(r#""a\u001b[2J\u202eb""#).unwrap();
    assert_eq!(read.as_str(), "a?[2J?b");
    assert_eq!(serde_json::to_string(&read).unwrap(), r#""a?[2J?b""#);
}

proptest! {
    #[test]
    fn no_unsafe_character_remains(
        text in any::<String>(),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        limit in 0usize..80,
    ) {
        for made in [PlainText::new(&text, limit), PlainText::of_bytes(&bytes, limit)] {
            prop_assert_eq!(&PlainText::new(&made, usize::MAX), &made);
            prop_assert!(made.chars().count() <= limit + 3);
        }
    }
}
