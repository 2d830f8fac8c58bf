//! Delays are added at the requested place, with the requested length, and nowhere else: here, and in the guest.

use crate::exact::load::Actor;
use crate::guest::print_verified;
use observe::slow_down::{AddedDelays, SlowDown, SlowDownError};
use observe::watch::WatchError;
use record::SlowPlace;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

const CONNECTIONS: u64 = 5;
const REQUESTS_EACH: u64 = 8;
const REQUESTS: u64 = CONNECTIONS * REQUESTS_EACH;
const ADDED_NS: u64 = 50_000;

/// Sends requests to the server with the places.
fn ask(port: u16) {
    for _ in 0..CONNECTIONS {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the server accepts");
        stream.set_nodelay(true).expect("a socket");
        let mut answer = [0; 100];
        for _ in 0..REQUESTS_EACH {
            stream.write_all(&[1; 100]).expect("the server reads");
            stream.read_exact(&mut answer).expect("the server answers");
        }
    }
}

/// The places that every kernel has; waits for locks of the kernel are traced from Linux 5.19 on.
pub fn places() -> Vec<SlowPlace> {
    SlowPlace::ALL.into_iter().filter(|place| *place != SlowPlace::KernelLock).collect()
}

/// How often these requests reach a place: minimum and maximum.
fn reached(place: SlowPlace) -> (u64, u64) {
    match place {
        SlowPlace::Accept => (CONNECTIONS, CONNECTIONS),
        SlowPlace::Request | SlowPlace::FileRead | SlowPlace::Function => (REQUESTS, REQUESTS),
        // Including packets that open, end and acknowledge.
        SlowPlace::Receive | SlowPlace::Send => (REQUESTS + CONNECTIONS, 6 * REQUESTS),
        // A server that is always busy is not woken up.
        SlowPlace::WakeUp => (1, 20 * REQUESTS),
        // Nothing waits for a lock.
        SlowPlace::Lock | SlowPlace::KernelLock => (0, REQUESTS),
    }
}

/// Fails unless each place is reached and only it is slowed down. Returns the reason if programs are not permitted.
pub fn adds_time_at_every_place() -> Option<SlowDownError> {
    let mut server = Actor::start("places");
    let port = server.port();
    let mut slow = match SlowDown::attach(port, None, &places(), Some("straingauge_test_place")) {
        Err(why @ SlowDownError::Watch(WatchError::NotPermitted)) => return Some(why),
        attached => attached.expect("the kernel has every hook"),
    };
    for place in places() {
        slow.set(Some(place), ADDED_NS).expect("less than the bound");
        let all = |slow: &SlowDown| -> Vec<AddedDelays> {
            places().into_iter().map(|at| slow.spun(at).expect("the kernel says")).collect()
        };
        let before = all(&slow);
        ask(port);
        // Wait until the last connection has ended.
        std::thread::sleep(Duration::from_millis(50));
        for (at, (before, after)) in places().into_iter().zip(before.into_iter().zip(all(&slow))) {
            let spun = AddedDelays { count: after.count - before.count, ns: after.ns - before.ns };
            let (least, most) = reached(at);
            assert!((least..=most).contains(&spun.count), "{at:?} slows {place:?} down: {spun:?}");
            if at == place {
                // An interrupted delay lasts longer.
                assert!(spun.ns >= spun.count * ADDED_NS, "{place:?}: {spun:?}");
            } else {
                assert_eq!(spun.ns, 0, "{at:?} while {place:?} is slowed down");
            }
        }
    }
    print_verified();
    None
}

#[test]
fn time_is_added_at_the_requested_place() {
    if let Some(why) = adds_time_at_every_place() {
        eprintln!("SKIPPED time_is_added_at_the_requested_place: {why}");
    }
}
