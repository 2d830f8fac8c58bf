//! The pool of cold connections against listeners that hold, drop and refuse.

use crate::servers::plan;
use load::cold::ColdPool;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// A listener that keeps every connection it accepts.
fn hoarder() -> (std::net::SocketAddr, Arc<Mutex<Vec<TcpStream>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port on loopback");
    let address = listener.local_addr().unwrap();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let theirs = kept.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            theirs.lock().unwrap().push(stream);
        }
    });
    (address, kept)
}

fn wait_for(what: &str, is_done: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if is_done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} did not happen within a minute");
}

#[test]
fn cold_connections_grow_and_shrink_with_little_memory() {
    let (address, kept) = hoarder();
    let mut pool = ColdPool::begin(&plan(address), 3_000).unwrap();
    let never = AtomicBool::new(false);
    pool.resize(2_000, PATIENCE, &never, |_| {}).unwrap();
    assert_eq!(pool.counts().established, 2_000);
    // The listener also has connections that the client gave up during their handshake.
    let accepted = || kept.lock().unwrap().len();
    wait_for("the server's accepts", || accepted() >= 2_000);
    assert!(pool.counts().user_bytes / 2_000 <= 512, "{} bytes each", pool.counts().user_bytes / 2_000);
    let dropped = pool.counts().dropped;
    pool.resize(500, PATIENCE, &never, |_| {}).unwrap();
    assert_eq!(pool.counts().established, 500);
    assert_eq!(pool.counts().dropped, dropped, "closing on request is not a drop");
    // The server reads the end of the closed connections.
    let ended = || {
        let mut byte = [0u8; 1];
        let kept = kept.lock().unwrap();
        kept.iter()
            .filter(|stream| {
                stream.set_nonblocking(true).unwrap();
                stream.peek(&mut byte).is_ok_and(|count| count == 0)
            })
            .count()
    };
    wait_for("all ends of connections but 500", || accepted() - ended() == 500);
}

/// A listener with a short queue that does not accept at once. Its kernel answers some handshakes with cookies and
/// forgets them, so that only the client has those connections.
#[test]
fn connections_that_only_the_client_has_are_found_and_reopened() {
    use std::os::fd::AsRawFd;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port on loopback");
    // SAFETY: no pointers; listening again only changes the queue's length.
    unsafe { libc::listen(listener.as_raw_fd(), 16) };
    let address = listener.local_addr().unwrap();
    let kept = Arc::new(Mutex::new(Vec::new()));
    let theirs = kept.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        listener.incoming().flatten().for_each(|stream| theirs.lock().unwrap().push(stream));
    });
    let mut pool = ColdPool::begin(&plan(address), 600).unwrap();
    pool.resize(600, PATIENCE, &AtomicBool::new(false), |_| {}).unwrap();
    let open = || {
        let kept = kept.lock().unwrap();
        let has_ended = |stream: &&TcpStream| {
            stream.set_nonblocking(true).unwrap();
            stream.peek(&mut [0u8; 1]).is_ok()
        };
        kept.len() - kept.iter().filter(has_ended).count()
    };
    wait_for("the server's accepts", || open() == 600);
    println!("{:?}", pool.counts());
    assert_eq!(pool.counts().established, 600);
}

#[test]
fn connections_that_the_server_drops_are_counted_and_reopened() {
    let (address, kept) = hoarder();
    let mut pool = ColdPool::begin(&plan(address), 400).unwrap();
    let never = AtomicBool::new(false);
    pool.resize(400, PATIENCE, &never, |_| {}).unwrap();
    wait_for("the server's accepts", || kept.lock().unwrap().len() == 400);
    kept.lock().unwrap().drain(..150);
    wait_for("150 drops", || pool.counts().dropped == 150);
    wait_for("the refill", || pool.counts().established == 400);
    assert_eq!(pool.counts().opened, 550);
}

#[test]
fn a_server_that_refuses_ends_the_opening_with_a_sentence() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let mut pool = ColdPool::begin(&plan(address), 10).unwrap();
    let never = AtomicBool::new(false);
    let error = pool.resize(10, Duration::from_millis(500), &never, |_| {}).unwrap_err().to_string();
    assert!(error.contains("only 0 of 10") && error.contains("attempts failed"), "{error}");
}

#[test]
fn too_many_connections_are_refused_with_the_number_that_fits() {
    let (address, _kept) = hoarder();
    let limit = record::machine::raise_descriptor_limit();
    let error = ColdPool::begin(&plan(address), limit + 1).unwrap_err().to_string();
    assert!(error.contains(&format!("may open {limit} (")) && error.contains(" connections fit"), "{error}");
}

#[test]
fn connections_to_a_server_that_resets_all_are_not_retried_at_full_speed() {
    use std::os::fd::AsRawFd;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port on loopback");
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let linger = libc::linger { l_onoff: 1, l_linger: 0 };
            let size = size_of::<libc::linger>() as libc::socklen_t;
            // SAFETY: the option's value lives through the call and its size is given.
            unsafe {
                let value = std::ptr::from_ref(&linger).cast();
                libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, size);
            }
        }
    });
    let mut pool = ColdPool::begin(&plan(address), 500).unwrap();
    let error = pool.resize(500, Duration::from_millis(1500), &AtomicBool::new(false), |_| {}).unwrap_err().to_string();
    assert!(error.contains("cold connections are established"), "{error}");
    let counts = pool.counts();
    assert!(counts.dropped + counts.failed > 0, "{counts:?}");
    // For 1.5 s, the pool wants 500 more connections; without a pause it would make tens of thousands of attempts.
    assert!(counts.opened + counts.failed < 5_000, "it spins: {counts:?}");
}
