//! Phases by the server's own functions on real servers, and the message if the functions are missing.

use crate::client::keep_alive;
use crate::rig::{Server, counting, root, settle, watch};
use observe::watch::pack::Pack;
use observe::watch::{WatchOptions, Watcher};
use record::time::monotonic_ns;
use record::watch::{PackTotals, Reading};
use std::sync::atomic::AtomicBool;

const CONNECTIONS: usize = 4;

fn timed(pack: &PackTotals) -> (u64, u64) {
    let sum = |of: &[record::watch::PhaseTotals]| of.iter().map(|class| class.requests).sum();
    (sum(&pack.by_functions), sum(&pack.by_events))
}

/// Loads the server until a window of the pack has observed requests; the counts stay exact throughout.
fn load_until_timed(watcher: &mut Watcher, port: u16) -> (Reading, u64) {
    let mut requests = 0;
    for _ in 0..200 {
        let client = std::thread::spawn(move || keep_alive(port, CONNECTIONS, 150, &["/1k.bin"]).1.requests);
        // Windows are opened by the thread that waits.
        while !client.is_finished() {
            watcher.wait_until(monotonic_ns() + 20_000_000, &AtomicBool::new(false));
        }
        requests += client.join().expect("the client lives");
        let reading = watcher.read();
        if reading.pack.as_ref().is_some_and(|pack| timed(pack).0 > 0) {
            settle(watcher);
            return (watcher.read(), requests);
        }
    }
    panic!("no window of the pack showed a request: {:#?}", watcher.read().pack);
}

fn check(test: &str, name: &str) {
    let Some(server) = Server::start(test, name) else { return };
    let pack = Pack::open(name).expect("it ships with the program");
    // With a large budget, windows are frequent.
    let options = WatchOptions { pack: Some(pack), overhead_ratio: 1.0, ..counting(server.port) };
    let Some(mut watcher) = watch(test, options) else { return };
    let refused = watcher.doubts().into_iter().find(|doubt| doubt.what.contains("functions of the server"));
    assert!(refused.is_none(), "{refused:?}");
    let (reading, requests) = load_until_timed(&mut watcher, server.port);
    assert_eq!(reading.all().requests, requests, "probes take nothing from the counts");
    let pack = reading.pack.expect("a pack was given");
    println!("{name}: {pack:#?}");
    let (by_functions, by_events) = timed(&pack);
    // Only the functions see a request whose bytes arrived before the window opened.
    let at_the_edge = CONNECTIONS as u64 * pack.windows;
    assert!(by_functions <= by_events + at_the_edge, "{by_functions} by functions, {by_events} by reads and sends");
    assert!(pack.hits >= 3 * by_functions && pack.windows >= 1, "{pack:?}");
    assert!(pack.request_ns > 0.0, "a probe is not free");
    for (functions, events) in pack.by_functions.iter().zip(&pack.by_events).filter(|(class, _)| class.requests > 0) {
        let elapsed = |phase: usize| functions.elapsed_ns[phase].expect("timed").mean;
        assert!((0..3).all(|phase| elapsed(phase) >= 0.0), "{functions:?}");
        assert!(elapsed(0) > 0.0 && elapsed(1) > 0.0, "parse and process take time: {functions:?}");
        // The server has parsed a request before it sends, which is true for each request and for their sums.
        let by_event = events.elapsed_ns[0].expect("timed").mean * events.requests as f64;
        let by_function = elapsed(0) * functions.requests.min(events.requests) as f64;
        assert!(by_function <= by_event, "{by_function} ns against {by_event} ns: {functions:?} {events:?}");
    }
}

#[test]
fn nginx_marks_its_own_phases() {
    check("nginx_marks_its_own_phases", "nginx");
}

#[test]
fn apache_marks_its_own_phases() {
    check("apache_marks_its_own_phases", "apache");
}

#[test]
fn a_pack_for_another_server_and_missing_functions_are_named() {
    let test = "a_pack_for_another_server_and_missing_functions_are_named";
    let Some(server) = Server::start(test, "nginx") else { return };
    let text = "server mine\nbinary nginx*\nparsed ngx_http_handler\nprocessed no_such\nlogged no_such return\n";
    for (pack, words) in [
        (Pack::open("apache").expect("it ships"), "the server's program is nginx"),
        (Pack::parse("mine.pack", text).expect("a pack"), "nginx has no symbol no_such (line 4)"),
    ] {
        let options = WatchOptions { pack: Some(pack), ..counting(server.port) };
        let Some(watcher) = watch(test, options) else { return };
        let doubts = watcher.doubts();
        let found = doubts.iter().find(|doubt| doubt.what.contains(words));
        assert!(found.is_some(), "'{words}' is not said: {doubts:?}");
    }
}

#[test]
fn the_packs_are_found_in_their_directory() {
    for (name, text) in observe::watch::pack::BUILT_IN {
        let path = root().join(format!("crates/observe/packs/{name}.pack"));
        assert_eq!(std::fs::read_to_string(&path).expect("the pack's file"), text);
    }
}
