//! Text that is safe to show, dates, and words of a shell.

use proptest::prelude::*;
use record::PlainText;
use record::shell::{find_program, joined, quoted};
use record::time::{parse_utc, utc_iso, utc_stamp};

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

#[test]
fn dates_are_read_back_and_impossible_days_are_refused() {
    let unix_ms = 1_763_757_412_000;
    assert_eq!(parse_utc(&utc_iso(unix_ms)), Some(unix_ms));
    assert_eq!(parse_utc("2025-11-21 20:36:52"), Some(unix_ms));
    assert_eq!(parse_utc("2025-11-21T20:36").map(utc_iso).as_deref(), Some("2025-11-21T20:36:00Z"));
    assert_eq!(parse_utc("2024-02-29").map(utc_iso).as_deref(), Some("2024-02-29T00:00:00Z"));
    for wrong in ["", "2025", "2025-02-29", "2025-13-01", "2025-00-10", "21.11.2025", "2025-11-21T25:00", "+2025-1-1"] {
        assert_eq!(parse_utc(wrong), None, "{wrong}");
    }
}

#[test]
fn stamps_are_utc() {
    assert_eq!(utc_stamp(0), "19700101-000000");
    assert_eq!(utc_iso(1_763_757_412_000), "2025-11-21T20:36:52Z");
    assert_eq!(utc_stamp(u64::MAX), "99991231-235959");
}

#[test]
fn words_that_a_shell_would_split_are_quoted() {
    for plain in ["nginx", "-c", "/etc/nginx.conf", "--cpus=0,1", "50%", "http://a:1/x"] {
        assert_eq!(quoted(plain), plain);
    }
    for word in ["", "a b", "it's", "$HOME", "a;b", "x?y=1&z", "back\\slash", "two\nlines", "\"", "!^`"] {
        let line = joined(["run", word]);
        assert_eq!(shlex::split(&line), Some(vec!["run".to_string(), word.to_string()]), "{line}");
    }
}

#[test]
fn programs_are_found_by_name_or_path_and_other_files_are_not() {
    let shell = find_program("sh").expect("every system has one");
    assert_eq!(find_program(shell.to_str().expect("plain")), Some(shell));
    assert_eq!(find_program("/etc/passwd/none"), None);
    assert_eq!(find_program("passwd.no-such-program"), None);
}
