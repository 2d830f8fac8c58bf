use base64::prelude::{BASE64_STANDARD, Engine as _};
use proptest::prelude::*;
use record::Latency;
use record::histogram::{MAX_NS, read_log, write_log};
use std::time::Duration;

/// Maximum size of a histogram.
const MAX_BYTES: usize = 4 << 20;
/// The first word of HdrHistogram's V2 encoding, and of its compressed form.
const PLAIN: u32 = 0x1c84_9313;
const COMPRESSED: u32 = 0x1c84_9314;

fn decode(payload: &str) -> Result<Latency, String> {
    serde_json::from_value(serde_json::json!({ "v2": payload })).map_err(|error| error.to_string())
}

#[test]
fn a_value_beyond_the_range_is_kept_and_counted() {
    let mut latency = Latency::new();
    latency.record_ns(0);
    latency.record_ns(MAX_NS * 7);
    assert_eq!(latency.len(), 2);
    assert_eq!(latency.clamped(), 1);
    assert!(latency.max_ns().unwrap() >= MAX_NS);
}

#[test]
fn a_log_is_read_back_unchanged() {
    let mut response = Latency::new();
    for value in 1..5000u64 {
        response.record_ns(value * 977);
    }
    let service = Latency::new();
    let text = write_log(1_763_757_412_000, Duration::from_secs(2), &[("response", &response), ("service", &service)])
        .unwrap();
    let back = read_log(&text).unwrap();
    assert_eq!(back.len(), 2);
    assert_eq!(back[0].0, "response");
    assert_eq!(back[0].1, response);
    assert_eq!(back[1].1.len(), 0);
}

/// A histogram whose header states this number of bytes of counts, followed by these, with valid checksums.
fn made(claimed: u32, counts: &[u8]) -> String {
    use std::io::Write;
    let mut plain = Vec::new();
    for word in [PLAIN, claimed, 0, 3] {
        plain.extend(word.to_be_bytes());
    }
    plain.extend([1, MAX_NS].iter().flat_map(|bound| bound.to_be_bytes()));
    plain.extend(1f64.to_be_bytes());
    plain.extend(counts);
    let mut coder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    coder.write_all(&plain).unwrap();
    let coded = coder.finish().unwrap();
    let mut raw = COMPRESSED.to_be_bytes().to_vec();
    raw.extend((coded.len() as u32).to_be_bytes());
    raw.extend(coded);
    BASE64_STANDARD.encode(raw)
}

#[test]
fn a_header_cannot_reserve_memory_or_overflow_numbers() {
    let of = |claimed: u32, counts: &[u8]| decode(&made(claimed, counts));
    // One value of 5 ns after five zeros, and one of 7 ns after another zero.
    assert_eq!(of(4, &[9, 2, 1, 2]).unwrap().len(), 2);
    assert!(of(u32::MAX, &[9, 2]).unwrap_err().contains("announces 4294967295 bytes"));
    // More zeros than a number can count.
    let most = [0xff; 9];
    assert!(of(9, &most).unwrap_err().contains("zeros"));
    assert!(of(3, &[0xff; 3]).is_err(), "a number that breaks off");
    let bomb = vec![0; MAX_BYTES + 1];
    assert!(of(1 << 20, &bomb).unwrap_err().contains("more than the maximum"));
}

#[test]
fn garbage_is_refused_with_a_reason() {
    assert!(decode("AAAA").is_err());
    assert!(read_log(b"not a log").is_err());
    assert!(read_log(b"Tag=a,0.0,1.0,1.0,AAAA\n").is_err());
}

proptest! {
    #[test]
    fn merging_equals_recording_together(
        a in prop::collection::vec(1u64..MAX_NS, 0..200),
        b in prop::collection::vec(1u64..MAX_NS, 0..200),
    ) {
        let (mut left, mut right, mut both) = (Latency::new(), Latency::new(), Latency::new());
        for value in &a { left.record_ns(*value); both.record_ns(*value); }
        for value in &b { right.record_ns(*value); both.record_ns(*value); }
        left.merge(&right);
        prop_assert_eq!(left.buckets(), both.buckets());
    }

    #[test]
    fn no_bytes_panic_the_log_reader(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = read_log(&bytes);
    }
}
