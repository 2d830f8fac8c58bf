//! A port for a server that a test starts.

use std::sync::atomic::{AtomicU16, Ordering};

/// A port that no socket uses now, not even one in TIME_WAIT at either end from an earlier test. It is below the
/// range from which the kernel picks ports for clients. Tests that run at the same time begin the search in different
/// places.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // cargo-nextest numbers its parallel slots from 0.
    let slot = std::env::var("NEXTEST_TEST_GLOBAL_SLOT").ok().and_then(|slot| slot.parse().ok());
    let slot: u32 = slot.unwrap_or_else(std::process::id);
    let place = (std::os::unix::process::parent_id() % 40 * 300 + slot % 100 * 100) % 12_000;
    let taken = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    loop {
        let port = 20_000 + place as u16 + NEXT.fetch_add(1, Ordering::Relaxed) % 700;
        if !taken.contains(&format!(":{port:04X} ")) && std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
