//! Replies of Redis and memcached. No bytes may make a reader panic, keep more than a nested reply's counts, or give
//! another result in different pieces.

#![no_main]

use load::framing::{Consumed, Malformed};
use load::replies::Reply;
use load::replies::memcached::{META, MemcachedReply};
use load::replies::resp::{MAX_DEPTH, Resp};
use straingauge_fuzz::fuzz_target;

/// Used bytes, body and status of a complete reply; or the rule that the bytes break.
type Verdict = Result<(usize, usize, Option<u16>), Malformed>;

fn verdict(bytes: &[u8], size: usize, mut feed: impl FnMut(&[u8]) -> Result<(Consumed, u16), Malformed>) -> Verdict {
    let (mut used, mut body) = (0, 0);
    while used < bytes.len() {
        let piece = &bytes[used..bytes.len().min(used.saturating_add(size))];
        let (consumed, status) = feed(piece)?;
        assert!(consumed.used <= piece.len() && consumed.body <= consumed.used);
        used += consumed.used;
        body += consumed.body;
        if consumed.is_complete {
            return Ok((used, body, Some(status)));
        }
        assert_eq!(consumed.used, piece.len());
    }
    Ok((used, body, None))
}

fn resp(bytes: &[u8], size: usize) -> Verdict {
    let mut reply = Resp::default();
    verdict(bytes, size, |piece| {
        let consumed = reply.feed(piece)?;
        assert!(reply.memory_bytes() <= 4 * MAX_DEPTH * size_of::<u64>());
        Ok((consumed, reply.status()))
    })
}

fn memcached(keys: u32, bytes: &[u8], size: usize) -> Verdict {
    let mut reply = MemcachedReply::default();
    verdict(bytes, size, |piece| reply.feed(keys, piece).map(|consumed| (consumed, reply.status())))
}

// The first byte chooses the number of keys and the piece size.
fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else { return };
    let (keys, size) = (u32::from(choice & 3), usize::from(choice >> 2).max(1));
    for size in [1, size] {
        assert_eq!(resp(bytes, size), resp(bytes, usize::MAX));
        for asked in [keys, keys | META] {
            assert_eq!(memcached(asked, bytes, size), memcached(asked, bytes, usize::MAX));
        }
    }
});
