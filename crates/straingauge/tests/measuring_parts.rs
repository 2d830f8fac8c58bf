//! Measuring: companions, files of a workload, connections of an open loop.

mod companions {
    use crate::plan_parts::of_url;
    use anyhow::Result;
    use record::{Figure, Origin, Sweep, names};
    use std::cell::RefCell;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use straingauge::cli::LoadOptions;
    use straingauge::companions::{Companion, Companions, UpcomingLoad};
    use straingauge::measured::{MeasuredPoint, measured};
    use straingauge::quantity::Count;

    /// Records its calls, and sets the stop flag in one of them as Ctrl-C would.
    struct Fake {
        name: &'static str,
        calls: Rc<RefCell<Vec<String>>>,
        stop: Arc<AtomicBool>,
        stops_in: &'static str,
    }

    impl Fake {
        fn called(&self, call: &str) {
            self.calls.borrow_mut().push(format!("{} {call}", self.name));
            if call == self.stops_in {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    impl Companion for Fake {
        fn load_begins(&mut self, _load: &UpcomingLoad<'_>) {
            self.called("load begins");
        }

        fn window_begins(&mut self, load: &UpcomingLoad<'_>) {
            assert_eq!(load.plan.duration_ns, 100_000_000);
            self.called("window begins");
        }

        fn window_ends(&mut self) {
            self.called("window ends");
        }

        fn record_into(&mut self, measured: &mut MeasuredPoint) {
            // The engine's figures are already in the point.
            assert!(measured.point.figures.get(names::THROUGHPUT).is_some());
            measured.point.figures.set(self.name, Figure::new(1.0, "1", 1, Origin::Counted));
            self.called("note");
        }

        fn load_failed(&mut self) {
            self.called("load failed");
        }
    }

    /// A loopback server that answers all requests, one connection at a time.
    fn server() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(mut connection) = connection else { return };
                let mut request = [0; 4096];
                while matches!(connection.read(&mut request), Ok(1..)) {
                    if connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                        break;
                    }
                }
            }
        });
        address
    }

    fn accompanied(stops_in: &'static str, is_possible: bool) -> (Vec<String>, Result<MeasuredPoint>) {
        let calls = Rc::new(RefCell::new(Vec::new()));
        let stop = Arc::new(AtomicBool::new(false));
        let mut companions = Companions::default();
        for name in ["a", "b"] {
            let (calls, stop) = (calls.clone(), stop.clone());
            companions.join(Fake { name, calls, stop, stops_in: if name == "a" { stops_in } else { "" } });
        }
        let options = LoadOptions { connections: Some(Count(1)), ..LoadOptions::default() };
        let mut plan = of_url(&format!("http://{}/", server()), &options).unwrap();
        plan.duration_ns = 100_000_000;
        if !is_possible {
            // Makes the engine fail without sending anything.
            plan.addresses.clear();
        }
        let load = UpcomingLoad { plan: &plan, sweep: Sweep::Single, is_live: false };
        let result = companions.accompany(&load, &mut |_| {}, |events| {
            let result = load::run(&plan, &stop, events)?;
            let figures = result.figures(&plan);
            Ok(measured(Sweep::Single, 0, (plan.connections, plan.pace), result, figures))
        });
        (calls.take(), result)
    }

    #[test]
    fn companions_are_called_in_the_order_of_the_list() {
        let (begins, window) = ("load begins", ["window begins", "window ends"]);
        for (stops_in, is_possible, expected) in [
            ("", true, &[begins, window[0], window[1], "note"][..]),
            ("", false, &[begins, "load failed"]),
            // An interrupted window ends, too.
            (window[0], true, &[begins, window[0], window[1], "note"]),
            (begins, true, &[begins, "note"]),
        ] {
            let (calls, result) = accompanied(stops_in, is_possible);
            let of_both = expected.iter().flat_map(|call| [format!("a {call}"), format!("b {call}")]);
            assert_eq!(calls, of_both.collect::<Vec<_>>(), "stopped in '{stops_in}'");
            assert_eq!(result.is_ok(), is_possible);
            if let Ok(measured) = result {
                assert_eq!(measured.result.interrupted, !stops_in.is_empty());
                assert!(measured.point.figures.get("b").is_some());
            }
        }
    }
}

mod supply {
    use load::{ReplaySource, ReplayStep};
    use record::LoadShare;
    use record::workload::TraceSource;
    use straingauge::workload::supply::{LogFile, LogSteps};
    use workload::replay::LogShape;
    use workload::trace::{LogFormat, TraceReader};

    /// A log with `each` requests in each second, each from another client.
    fn log(file: &tempfile::NamedTempFile, seconds: u32, each: u32) -> LogFile {
        let line = |n: u32| {
            let (client, second) = (n % 250, n / each);
            format!("10.0.0.{client} - - [17/May/2015:10:05:{second:02} +0000] \"GET /a HTTP/1.1\" 200 5\n")
        };
        let text: String = (0..seconds * each).map(line).collect();
        std::fs::write(file.path(), text).unwrap();
        let reader = TraceReader::open(file.path(), &LogFormat::Common).unwrap();
        let shape = LogShape::read(reader, u64::MAX).unwrap();
        LogFile {
            path: file.path().into(),
            format: LogFormat::Common,
            has_body_sizes: true,
            is_empty: false,
            origin_ns: None,
            round_ns: shape.round_ns(),
            shape: Some(shape),
        }
    }

    fn source(speed: f64) -> TraceSource {
        TraceSource {
            file: "a log".into(),
            format: "common".into(),
            speed: Some(speed),
            session_gap_ns: 15_000_000_000,
            has_host: false,
            is_repeated: true,
        }
    }

    #[test]
    fn a_log_restarts_after_its_last_second() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (log, speed) = (log(&file, 3, 10), 0.5);
        let mut steps = LogSteps::open(&log, &source(speed), LoadShare::WHOLE, 7, u64::MAX).unwrap();
        let (mut last_ns, mut requests) = (0, 0);
        while requests < 300 {
            let at_ns = match steps.next_step().unwrap().unwrap() {
                ReplayStep::Close { at_ns, .. } => at_ns,
                ReplayStep::Request(request) => {
                    let second = requests / 10;
                    assert_eq!(request.intended_ns / 2_000_000_000, second, "request {requests}");
                    requests += 1;
                    request.intended_ns
                }
            };
            assert!(at_ns >= last_ns, "a step at {at_ns} comes after one at {last_ns}, and would be late");
            last_ns = at_ns;
        }
    }

    /// Steps of a log with these dates in May (UTC), and the sentence that ends them, if any.
    fn of_dates(dates: &[&str], speed: Option<f64>, length_ns: u64) -> (usize, Option<String>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let log = log(&file, 1, 1);
        let line = |date: &&str| format!("10.0.0.1 - - [{date} +0000] \"GET /a HTTP/1.1\" 200 5\n");
        std::fs::write(file.path(), dates.iter().map(line).collect::<String>()).unwrap();
        let source = TraceSource { speed, is_repeated: false, ..source(1.0) };
        let mut steps = LogSteps::open(&log, &source, LoadShare::WHOLE, 7, length_ns).unwrap();
        let mut requests = 0;
        loop {
            match steps.next_step() {
                Some(Ok(ReplayStep::Request(_))) => requests += 1,
                Some(Ok(ReplayStep::Close { .. })) => {}
                Some(Err(why)) => return (requests, Some(why)),
                None => return (requests, None),
            }
        }
    }

    #[test]
    fn a_replay_does_not_wait_for_years() {
        let jump = ["01/Jan/1970:00:00:03", "01/Jan/1970:00:00:04", "17/May/2015:10:05:03", "17/May/2015:10:05:04"];
        let (sent, why) = of_dates(&jump, Some(1.0), u64::MAX);
        let why = why.expect("the replay ends");
        assert!(sent == 2 && why.contains(": line 3 is 16572.4 days later than the lines above it"), "{sent}: {why}");
        // No long wait occurs without times, in a shorter window, or at a high speed.
        assert_eq!(of_dates(&jump, None, u64::MAX), (4, None));
        assert_eq!(of_dates(&jump, Some(1.0), 60_000_000_000), (4, None));
        assert_eq!(of_dates(&jump, Some(1e6), u64::MAX), (4, None));
        // A gap of less than a day is accepted.
        let quiet = ["16/May/2015:12:05:03", "17/May/2015:10:05:03"];
        assert_eq!(of_dates(&quiet, Some(1.0), u64::MAX), (2, None));
    }

    #[test]
    fn the_clients_of_a_log_are_counted_over_its_rounds() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let log = log(&file, 3, 10);
        let mut steps = LogSteps::open(&log, &source(1.0), LoadShare::WHOLE, 7, u64::MAX).unwrap();
        let mut requests = 0;
        while requests < 61 {
            requests += u64::from(matches!(steps.next_step(), Some(Ok(ReplayStep::Request(_)))));
        }
        let account = steps.account();
        assert_eq!((account.requests, account.clients, account.largest_client_requests), (61, 30, 3));
    }

    #[test]
    fn a_tiny_speed_does_not_overflow() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let log = log(&file, 2, 1);
        let mut steps = LogSteps::open(&log, &source(1e-12), LoadShare::WHOLE, 7, u64::MAX).unwrap();
        assert!((0..20).all(|_| steps.next_step().unwrap().is_ok()));
    }
}

mod measure {
    use straingauge::measure::progress_line;

    #[test]
    fn the_line_about_several_clients_names_the_slowest_and_fits_a_narrow_terminal() {
        let now = load::LoadProgress {
            elapsed_ns: 12_300_000_000,
            connected: 100_000,
            throughput_per_sec: 1_234_567.0,
            apart: Some([(17, 12_345.0), (3, 99_876.0)]),
            ..load::LoadProgress::default()
        };
        let line = progress_line("1.25M requests/s offered", &now);
        assert_eq!(line, "1.25M requests/s offered: 12.3 s, 1.23M requests/s: 12.3k (client 17) to 99.9k");
        assert!(line.len() < 80);
        let line = progress_line("1k requests/s offered", &load::LoadProgress { elapsed_ns: 0, apart: None, ..now });
        assert_eq!(line, "1k requests/s offered: measuring 0.0 s, 100000 connected, 1.23M requests/s");
    }
}

mod load {
    use record::protocol::Protocol;
    use straingauge::commands::load::useless_answers;

    #[test]
    fn a_load_without_any_requested_answer_is_useless() {
        let said =
            |statuses: &[u16]| useless_answers(&statuses.iter().map(|status| (*status, 1)).collect(), &Protocol::Http);
        for useful in [&[200][..], &[304], &[206], &[304, 301], &[200, 500], &[]] {
            assert_eq!(said(useful), None, "{useful:?}");
        }
        for (status, word) in [
            (101, "another protocol"),
            (300, "redirect"),
            (301, "redirect"),
            (308, "redirect"),
            (404, "path"),
            (503, "error log"),
            (600, "error"),
        ] {
            assert!(said(&[status]).is_some_and(|why| why.contains(word)), "{status}");
        }
        assert!(said(&[301, 302]).is_some_and(|why| why.contains("redirect")));
    }
}

mod session {
    use straingauge::commands::session::without_out;

    #[test]
    fn a_repeated_run_gets_a_new_directory() {
        let words = |text: &str| text.split(' ').map(String::from).collect::<Vec<_>>();
        for (typed, repeated) in [
            ("find :80 --out kept --budget 5s", "find :80 --budget 5s"),
            ("find :80 --out=kept -- server --out logs", "find :80 -- server --out logs"),
            ("find :80 -- server", "find :80 -- server"),
        ] {
            assert_eq!(without_out(words(typed)), words(repeated));
        }
    }
}

mod open_loop {
    use record::{Arrival, LoadPlan, Outcomes, Pace, Point, Sweep, names};
    use std::convert::Infallible;
    use straingauge::commands::find::open_loop::{self, is_more, served};

    /// The result for a server that answers this many of 250 requests with a given number of connections, of which it
    /// serves at most `most`; also the numbers tried.
    fn found_with(known: u64, most: u64, answered: u64, pool: impl Fn(u64) -> u64) -> (u64, Vec<u64>) {
        let mut tried = Vec::new();
        let result = served(
            &LoadPlan::simple(([127, 0, 0, 1], 80).into()),
            most,
            known,
            |plan| -> Result<Outcomes, Infallible> {
                tried.push(plan.connections);
                let used = plan.connections.min(250);
                let heard = used.min(pool(plan.connections));
                let ok = answered.min(250 * heard / used);
                let connections_silent = used - heard.min(ok);
                Ok(Outcomes { sent: 250, ok, connections_used: used, connections_silent, ..Outcomes::default() })
            },
        );
        let found = result.unwrap_or_else(|never| match never {});
        (found.map_or(most, |[_, served]| served.connections), tried)
    }

    fn found(most: u64, answered: u64, pool: impl Fn(u64) -> u64) -> (u64, Vec<u64>) {
        found_with(0, most, answered, pool)
    }

    fn point(sweep: Sweep, connections: u64, pace: Pace, good: f64, wait_ms: f64) -> Point {
        let mut point = Point { duration_ns: 1_000_000_000, ..Point::new(sweep, 0, connections, pace) };
        for (name, value) in [(names::GOODPUT, good), (names::CONNECTION_WAIT_P99, wait_ms * 1e3)] {
            point.figures.measured(name, value, 1_000, record::Origin::Counted);
        }
        point
    }

    #[test]
    fn the_open_loop_has_the_peaks_connections_with_headroom() {
        let needed = |closed: &[(u64, f64)]| {
            let of = |&(connections, good): &_| point(Sweep::Connections, connections, Pace::Closed, good, 0.0);
            open_loop::needed(&closed.iter().map(of).collect::<Vec<_>>(), 1024)
        };
        let flat = [(1, 30e3), (2, 58e3), (4, 80e3), (8, 83e3), (16, 82e3), (64, 80e3), (256, 79e3)];
        assert_eq!(needed(&flat), Some((16, 1024)));
        // The server scans a list of connections.
        let scanned = [(1, 30e3), (2, 58e3), (4, 70e3), (8, 83e3), (16, 81e3), (32, 60e3), (256, 12e3)];
        assert_eq!(needed(&scanned), Some((16, 16)), "32 were slower");
        assert_eq!(needed(&[(1, 10.0), (64, 640.0), (1024, 9e3)]), Some((1024, 1024)), "the most");
        assert_eq!(needed(&[(1, 80e3)]), Some((16, 1024)));
        let mut silent = [(8, 190.0), (16, 330.0), (32, 500.0), (64, 1.1e3), (128, 900.0), (256, 2.2e3)]
            .map(|(connections, good)| point(Sweep::Connections, connections, Pace::Closed, good, 0.0));
        silent[4..].iter_mut().for_each(|point| point.outcomes.connections_silent = 60);
        assert_eq!(open_loop::needed(&silent, 1024), Some((64, 64)), "128 got no answer");
        assert_eq!(needed(&[]), None);
        assert_eq!(needed(&[(1, 0.0)]), None);
    }

    #[test]
    fn more_connections_are_opened_if_requests_wait_for_a_connection() {
        let pace = Pace::Open { rate_per_sec: 10e3, arrival: Arrival::Poisson };
        let more = |connections, good, wait_ms, capacity| {
            open_loop::more(&point(Sweep::Rate, connections, pace, good, wait_ms), capacity, 1024)
        };
        assert_eq!(more(64, 6e3, 200.0, Some(20e3)), Some(256));
        assert_eq!(more(512, 6e3, 200.0, None), Some(1024));
        assert_eq!(more(1024, 6e3, 200.0, None), None, "the most");
        assert_eq!(more(64, 6e3, 200.0, Some(9e3)), None, "beyond the server's own limit");
        assert_eq!(more(64, 6e3, 0.1, Some(20e3)), None, "none waited");
        let [few, many] = [6e3, 6.1e3].map(|good| point(Sweep::Rate, 64, pace, good, 0.0));
        assert!(!is_more(&many, &few) && is_more(&point(Sweep::Rate, 256, pace, 9e3, 0.0), &few));
    }

    #[test]
    fn a_server_that_answers_all_connections_is_tried_once() {
        assert_eq!(found(1024, 250, |held| held), (1024, vec![1024]));
    }

    #[test]
    fn idle_connections_do_not_use_up_all_workers() {
        // Apache, which loses connections beyond its backlog, and a server with 64 processes.
        assert_eq!(found(1024, 250, |held| if held > 512 { 0 } else { held }), (256, vec![1024, 256]));
        assert_eq!(found(1024, 250, |_| 64), (64, vec![1024, 256, 64]));
        assert_eq!(found_with(64, 1024, 250, |_| 64), (64, vec![1024, 64]), "a closed loop went as far as 64");
        assert_eq!(found_with(2048, 1024, 250, |_| 64), (64, vec![1024, 256, 64]));
    }

    #[test]
    fn connections_with_errors_or_closed_by_the_server_count_as_unserved() {
        let found = |of: fn(u64) -> Outcomes| {
            let plan = LoadPlan::simple(([127, 0, 0, 1], 80).into());
            let load = |plan: &LoadPlan| Ok::<_, Infallible>(of(plan.connections));
            served(&plan, 1024, 0, load).unwrap_or_else(|never| match never {})
        };
        let closing = |connections: u64| Outcomes {
            ok: 250,
            connections_used: 128.min(connections),
            closed_unused: connections.saturating_sub(128),
            ..Outcomes::default()
        };
        let [more, served] = found(closing).expect("fewer are served");
        assert_eq!((more.connections, served.connections), (1024, 64));
        assert!(more.outcome().ends_with("with 1,024 open (896 closed before any request)"), "{}", more.outcome());
        let refusing = |connections: u64| {
            let ok = if connections > 128 { 50 } else { 250 };
            Outcomes { ok, non_2xx: 250 - ok, connections_used: 250.min(connections), ..Outcomes::default() }
        };
        let [more, served] = found(refusing).expect("fewer are served");
        assert_eq!(served.connections, 64);
        assert!(more.outcome().ends_with("with 1,024 open (200 of 250 answers were errors)"), "{}", more.outcome());
        let missing = |_| Outcomes { non_2xx: 250, connections_used: 250, ..Outcomes::default() };
        assert!(found(missing).is_none(), "a page that is not there is an error over any number");
    }

    #[test]
    fn slow_and_dead_servers_do_not_change_the_number_of_connections() {
        assert_eq!(found(1024, 50, |held| held), (1024, vec![1024, 256, 64, 16]));
        assert_eq!(found(1024, 0, |_| 0).0, 1024);
        assert_eq!(found(20, 0, |_| 0), (20, vec![20]));
    }
}
