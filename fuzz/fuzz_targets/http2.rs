//! An HTTP/2 connection. No bytes may make a session panic, keep much, or give another result in different pieces.

#![no_main]

use load::http2::{Http2Session, Malformed, RequestBlocks, StreamEnd};
use straingauge_fuzz::fuzz_target;

/// The ends of requests in their order; body bytes and parts; used bytes; or the rule that the bytes break.
type Verdict = (Vec<(Option<usize>, Option<StreamEnd>, u16)>, (usize, u32), Result<usize, Malformed>);

fn verdict(requests: &RequestBlocks, is_grpc: bool, bytes: &[u8], size: usize) -> Verdict {
    let mut session = Http2Session::<u8>::default();
    session.count_parts(is_grpc);
    session.open(requests, 4);
    let (mut ends, mut body, mut at) = (Vec::new(), (0, 0), 0);
    while at < bytes.len() || session.has_more() {
        let piece = &bytes[at..bytes.len().min(at.saturating_add(size))];
        let consumed = match session.feed(piece) {
            Ok(consumed) => consumed,
            Err(malformed) => return (ends, body, Err(malformed)),
        };
        assert!(consumed.used <= piece.len() && consumed.body <= consumed.used);
        assert!(session.memory_bytes() < 4 << 20);
        at += consumed.used;
        body.0 += consumed.body;
        body.1 += consumed.parts.unwrap_or(0);
        if consumed.is_complete {
            let place = session.current();
            ends.push((place, session.ended(), place.map_or(0, |place| session.status(place))));
            if let Some(place) = place {
                session.end(place);
            }
            while session.has_room() {
                session.put(requests, 0, 1);
            }
        }
    }
    (ends, body, Ok(session.out().len()))
}

// The first byte chooses the size of pieces and of a part. If it is odd, the other bytes follow an empty SETTINGS
// frame.
fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else { return };
    let requests = RequestBlocks::new("POST", "http", "a", &[], ["/"].into_iter(), &[b'b'; 100][..]);
    let mut all = if choice & 1 == 0 { Vec::new() } else { vec![0, 0, 0, 4, 0, 0, 0, 0, 0] };
    all.extend_from_slice(bytes);
    let is_grpc = choice & 2 != 0;
    let whole = verdict(&requests, is_grpc, &all, usize::MAX);
    for size in [1, usize::from(choice >> 1).max(1)] {
        assert_eq!(verdict(&requests, is_grpc, &all, size), whole);
    }
});
