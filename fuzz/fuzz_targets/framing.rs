//! Response framing. No bytes may make it panic, keep more than a head, or give another result in different pieces or
//! with a remembered head.

#![no_main]

use load::framing::{AtEnd, Framing, HeadCache, MAX_HEAD_BYTES};
use straingauge_fuzz::fuzz_target;

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Malformed,
    Complete(u16, usize, usize, u32, bool),
    Ended(AtEnd, usize, u32),
}

fn verdict(heads: &mut HeadCache, bytes: &[u8], size: usize) -> Verdict {
    let mut framing = Framing::new();
    let (mut used, mut body, mut parts) = (0, 0, 0);
    while used < bytes.len() {
        let piece = &bytes[used..bytes.len().min(used + size)];
        let Ok(consumed) = framing.feed(heads, 0, piece) else { return Verdict::Malformed };
        assert!(consumed.used <= piece.len() && consumed.body <= consumed.used);
        assert!(framing.carry_bytes() <= 4 * MAX_HEAD_BYTES);
        used += consumed.used;
        body += consumed.body;
        parts += consumed.parts.unwrap_or(0);
        if consumed.is_complete {
            return Verdict::Complete(framing.status(), used, body, parts, framing.is_keep_alive());
        }
        assert_eq!(consumed.used, piece.len());
    }
    Verdict::Ended(framing.at_end(), body, parts)
}

// The first byte chooses method and piece size.
fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else { return };
    let is_head = choice & 1 == 1;
    let whole = verdict(&mut HeadCache::new(is_head, 1), bytes, usize::MAX);
    let mut heads = HeadCache::new(is_head, 1);
    for size in [1, usize::from(choice >> 1).max(1), usize::MAX, usize::MAX] {
        assert_eq!(verdict(&mut heads, bytes, size), whole);
    }
});
