use record::time::{parse_utc, utc_iso, utc_stamp};

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
