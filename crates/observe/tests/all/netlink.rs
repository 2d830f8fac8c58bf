//! Well-formed and malformed answers of inet_diag.

use observe::sock_diag::{DumpProgress, PortSockets, read_datagram};
use proptest::prelude::*;

const GETSOCK: u16 = 18;

fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = ((16 + body.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&2u16.to_ne_bytes());
    bytes.extend_from_slice(&sequence.to_ne_bytes());
    bytes.extend_from_slice(&0u32.to_ne_bytes());
    bytes.extend_from_slice(body);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn socket(family: i32, state: u8) -> Vec<u8> {
    let mut body = vec![0u8; 72];
    body[0] = family as u8;
    body[1] = state;
    body[4..6].copy_from_slice(&8080u16.to_be_bytes());
    body[8..12].copy_from_slice(&[127, 0, 0, 1]);
    body[56..60].copy_from_slice(&3u32.to_ne_bytes());
    body[60..64].copy_from_slice(&511u32.to_ne_bytes());
    body[64..68].copy_from_slice(&33u32.to_ne_bytes());
    body[68..72].copy_from_slice(&4242u32.to_ne_bytes());
    body
}

#[test]
fn sockets_are_counted_until_the_dump_is_done() {
    let mut sockets = PortSockets::default();
    let mut datagram = message(GETSOCK, 7, &socket(libc::AF_INET, 1));
    datagram.extend(message(20, 7, &socket(libc::AF_INET6, 12)));
    datagram.extend(message(GETSOCK, 7, &socket(libc::AF_INET, 10)));
    assert_eq!(read_datagram(&datagram, 7, &mut sockets).unwrap(), DumpProgress::More);
    let done = message(libc::NLMSG_DONE as u16, 7, &0u32.to_ne_bytes());
    assert_eq!(read_datagram(&done, 7, &mut sockets).unwrap(), DumpProgress::Complete);
    assert_eq!((sockets.by_state[1], sockets.by_state[3], sockets.by_state[10]), (1, 1, 1));
    let listener = sockets.listeners[0];
    assert_eq!(listener.local, "127.0.0.1:8080".parse().unwrap());
    assert_eq!((listener.queue, listener.queue_limit, listener.uid, listener.inode), (3, 511, 33, 4242));
}

#[test]
fn a_listeners_drops_are_read_from_its_attributes() {
    let mut body = socket(libc::AF_INET, 10);
    // Another attribute comes first, then struct sk_meminfo: nine words, of which the last is drops.
    body.extend([5, 0, 8, 0, 1, 0, 0, 0]);
    body.extend([40, 0, 7, 0]);
    (0..9u32).for_each(|word| body.extend((word * 11).to_ne_bytes()));
    let mut sockets = PortSockets::default();
    read_datagram(&message(GETSOCK, 1, &body), 1, &mut sockets).unwrap();
    assert_eq!(sockets.listeners[0].drops, 88);
    // A truncated attribute is not read.
    body.truncate(72 + 8 + 36);
    let mut sockets = PortSockets::default();
    read_datagram(&message(GETSOCK, 1, &body), 1, &mut sockets).unwrap();
    assert_eq!(sockets.listeners[0].drops, 0);
}

#[test]
fn an_answer_to_an_earlier_request_is_skipped() {
    let mut sockets = PortSockets::default();
    let mut datagram = message(GETSOCK, 6, &socket(libc::AF_INET, 1));
    datagram.extend(message(libc::NLMSG_DONE as u16, 6, &0u32.to_ne_bytes()));
    assert_eq!(read_datagram(&datagram, 7, &mut sockets).unwrap(), DumpProgress::More);
    assert_eq!(sockets, PortSockets::default());
}

#[test]
fn the_kernels_error_is_returned() {
    let refused = message(libc::NLMSG_ERROR as u16, 1, &(-libc::ENOENT).to_ne_bytes());
    let error = read_datagram(&refused, 1, &mut PortSockets::default()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
}

#[test]
fn a_message_that_is_cut_short_is_an_error() {
    let datagram = message(GETSOCK, 1, &socket(libc::AF_INET, 1));
    assert!(read_datagram(&datagram[..40], 1, &mut PortSockets::default()).is_err());
}

proptest! {
    #[test]
    fn no_datagram_panics_or_hangs(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = read_datagram(&bytes, 1, &mut PortSockets::default());
    }

    #[test]
    fn no_damaged_dump_panics_or_hangs(
        at in 0usize..264,
        value in any::<u8>(),
        state in any::<u8>(),
        cut in 0usize..264,
    ) {
        let mut datagram = message(GETSOCK, 1, &socket(libc::AF_INET, state));
        datagram.extend(message(GETSOCK, 1, &socket(libc::AF_INET6, 10)));
        datagram.extend(message(libc::NLMSG_ERROR as u16, 1, &i32::MIN.to_ne_bytes()));
        let at = at % datagram.len();
        datagram[at] = value;
        datagram.truncate(datagram.len() - cut % datagram.len());
        let mut sockets = PortSockets::default();
        let _ = read_datagram(&datagram, 1, &mut sockets);
        prop_assert!(sockets.by_state.iter().sum::<u64>() <= 3);
    }
}
