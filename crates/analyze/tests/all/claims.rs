//! Statements that findings and causes must not make: each test is a server for which a false one would be easy.

use crate::fixture;
use crate::rules::{found, healthy, judged, judged_points, refuses, set, waits};
use crate::server::{Bench, Server, plan};
use analyze::zones;
use record::{Point, Sweep, names};

#[test]
fn errors_do_not_count_as_cheap_requests() {
    // The cost of a request grows by 60 % from 1 to 16 connections; above, nine of ten are refused for a quarter of
    // that cost.
    let grows = Server { doubles_at: 25.0, ..healthy() };
    let sheds = |share: f64| {
        move |point: &mut Point| {
            refuses(16, share)(point);
            if point.connections > 16 {
                set(point, names::SERVER_CPU, 5.0, point.outcomes.sent);
            }
        }
    };
    let verdict = judged(grows.clone(), fixture::record(), sheds(0.9));
    let said = verdict.sentences.join(" ");
    assert!(!said.contains("did not grow with load"), "{said}");
    let cost = verdict.sentences.iter().find(|said| said.contains("16 connections") && said.contains("CPU"));
    assert!(cost.is_some(), "{said}");
    // A few errors hardly change the cost of a request.
    let few = judged(grows, fixture::record(), refuses(16, 0.02)).sentences.join(" ");
    assert!(few.contains("128 connections"), "{few}");
}

#[test]
fn an_event_at_a_single_load_is_not_reported_for_higher_loads() {
    let fails = |at: fn(u64) -> bool| {
        move |point: &mut Point| {
            if at(point.connections) {
                point.outcomes.non_2xx = point.outcomes.sent / 50;
                point.outcomes.ok -= point.outcomes.non_2xx;
            }
        }
    };
    let once = judged(healthy(), fixture::record(), fails(|load| load == 4));
    assert!(once.causes.is_empty(), "{:?}", once.causes);
    let most = judged(healthy(), fixture::record(), fails(|load| load >= 4 && load != 16));
    assert_eq!(found(&most), ["server-errors"], "{:?}", most.sentences);
    assert!(most.causes[0].because.contains("from 4 connections on"), "{:?}", most.causes[0]);
}

#[test]
fn windows_that_no_response_fits_into_are_no_sign_of_a_server_without_answers() {
    let verdict = judged(healthy(), fixture::record(), |point| {
        for name in [names::THROUGHPUT, names::GOODPUT] {
            set(point, name, 0.0, 0);
        }
        for name in [names::RESPONSE_P50, names::RESPONSE_P99] {
            set(point, name, 1.5 * point.duration_ns as f64 / 1e3, point.connections);
        }
    });
    assert!(!verdict.headline.contains("No request was answered"), "{}", verdict.headline);
    assert!(verdict.headline.contains("Sure: low"), "{}", verdict.headline);
}

#[test]
fn errors_are_a_share_of_answers() {
    // Requests of the warm-up that end in the window are answered, too.
    let verdict = judged(healthy(), fixture::record(), |point| {
        point.outcomes.carried_in = point.outcomes.sent;
        point.outcomes.non_2xx = 2 * point.outcomes.sent;
        point.outcomes.ok = 0;
    });
    let because = &verdict.causes[0].because;
    let counts = because.split_once(": ").and_then(|(_, rest)| rest.split_once(" answers")).expect("two counts").0;
    let (bad, all) = counts.split_once(" of ").expect("two counts");
    assert_eq!(bad, all, "{because}");
}

#[test]
fn a_nearly_full_table_with_other_failures_is_not_a_cause() {
    let nearly = |point: &mut Point| {
        set(point, names::SERVER_DESCRIPTORS, if point.connections == 128 { 0.985 } else { 0.5 }, 1010);
        set(point, names::ACCEPT_QUEUE_MAX, 0.0, 10);
        let p99 = if point.connections == 128 { 130e3 } else { 1e3 };
        set(point, names::RESPONSE_P99, p99, 1000);
    };
    let verdict = judged(healthy(), fixture::record(), nearly);
    assert!(verdict.causes.is_empty(), "{:?}", verdict.causes);
    // A server that does not answer connections has no capacity for more.
    let silent = |point: &mut Point| {
        nearly(point);
        if point.connections == 128 {
            (point.outcomes.connections_used, point.outcomes.connections_silent) = (128, 5);
        }
    };
    assert_eq!(found(&judged(healthy(), fixture::record(), silent)), ["descriptors"]);
}

#[test]
fn concurrent_requests_follow_from_the_mean_time() {
    // 20 requests at a time; seven of ten take 20 ms and three take 100 ms.
    let pool = Server { path: 44e-3, hidden_limit: 20.0 / 44e-3, noise: 0.01, drift: 0.01, ..Server::default() };
    let said = |on_a_connection: f64| {
        let verdict = judged(pool.clone(), fixture::record(), |point| {
            let mean = point.value(names::RESPONSE_P50).unwrap() * on_a_connection;
            set(point, names::RESPONSE_MEAN, mean, 1000);
            set(point, names::RESPONSE_P50, mean * 20.0 / 44.0, 1000);
            set(point, names::RESPONSE_P99, 90e3, 1000);
        });
        verdict.sentences.join(" ")
    };
    assert!(said(1.0).contains("It serves about 20 requests at a time"), "{}", said(1.0));
    // Requests of one connection wait for each other, so the time of a single one is unknown.
    assert!(!said(2.0).contains("at a time"), "{}", said(2.0));
}

#[test]
fn a_device_that_others_fill_is_not_full_because_of_answers() {
    // A backup runs while the server waits for its database.
    let backup = |point: &mut Point| {
        set(point, names::NET_LINK_USED, 0.92, 1);
        let answers = point.value(names::THROUGHPUT).unwrap();
        set(point, names::RECEIVED, 100.0 * answers, 1000);
    };
    assert!(judged(waits(), fixture::record(), backup).causes.is_empty());
    let own = |point: &mut Point| {
        backup(point);
        let answers = point.value(names::THROUGHPUT).unwrap();
        set(point, names::NET_LINK_USED, 0.95 * answers / 10_000.0, 1);
    };
    assert_eq!(found(&judged(waits(), fixture::record(), own)), ["bandwidth"]);
}

#[test]
fn overflows_of_another_service_do_not_count() {
    // The kernel's count covers all services; 128 connections cannot fill a queue of 4,096.
    let overflows = |limit: f64| {
        move |point: &mut Point| {
            set(point, names::TCP_LISTEN_OVERFLOWS, 5.0, 10);
            set(point, names::ACCEPT_QUEUE_LIMIT, limit, 10);
        }
    };
    assert!(judged(healthy(), fixture::record(), overflows(4096.0)).causes.is_empty());
    let own = judged(healthy(), fixture::record(), overflows(5.0));
    assert_eq!(found(&own), ["backlog"]);
    assert!(own.causes[0].because.contains("from 8 connections on"), "{:?}", own.causes[0]);
}

#[test]
fn a_polling_thread_is_not_full() {
    // One thread polls at any load; above 10k/s, the server waits for something else.
    let polls = |point: &mut Point| {
        set(point, names::SERVER_BUSIEST_THREAD, 1.0, 10);
        set(point, names::SERVER_CPU_BUSY, 0.55, 100);
        let rate = point.value(names::THROUGHPUT).unwrap();
        set(point, names::SERVER_CPU, 1e6 / rate, 1000);
    };
    let verdict = judged(waits(), fixture::record(), polls);
    let said = verdict.sentences.join(" ");
    assert!(!said.contains("saturated first") && said.contains("the server polls"), "{said}");
    assert!(!said.contains("no CPU of the server"), "{said}");
    // A thread that one connection keeps busy with requests is full.
    let busy = Server { demand: 5e-3, path: 50e-6, noise: 0.02, drift: 0.02, ..Server::default() };
    let said = judged(busy, fixture::record(), |_| ()).sentences.join(" ");
    assert!(said.contains("saturated first"), "{said}");
}

/// A select server with 2,000 cold connections: each wake-up checks all of them, however many requests it finds. So
/// its thread is full with one connection, and a request is cheaper with many. At a low rate it sleeps.
#[test]
fn a_server_that_checks_many_connections_is_not_polling() {
    let of_select = |is_idle_at_low_rates: bool| {
        let mut bench = Bench::new(waits(), 5);
        for repeat in 0..4 {
            for load in [1, 2, 4, 8, 16, 32, 64, 128] {
                bench.closed(load, repeat, 1_000_000_000);
            }
            for rate in [98.0, 2000.0, 8000.0] {
                bench.open(rate, repeat, 1_000_000_000);
            }
        }
        for point in &mut bench.points {
            let rate = point.value(names::THROUGHPUT).unwrap();
            let busy = if is_idle_at_low_rates { (rate / 1500.0).min(1.0) } else { 1.0 };
            set(point, names::SERVER_BUSIEST_THREAD, busy, 10);
            set(point, names::SERVER_CPU_BUSY, 0.5 * busy + 0.02, 100);
            set(point, names::SERVER_CPU, busy * 1e6 / rate, 1000);
            set(point, names::SERVER_SELECT_WAITS, 1.0, 10);
            set(point, names::SERVER_SELECT_SET, 2000.0, 10);
            set(point, names::COLD, 2000.0, 1);
        }
        judged_points(fixture::record(), &bench.points)
    };
    let verdict = of_select(true);
    let said = verdict.sentences.join(" ");
    assert!(!said.contains("polls") && found(&verdict) == ["scalable-select"], "{:?} {said}", found(&verdict));
    let said = of_select(false).sentences.join(" ");
    assert!(said.contains("the server polls"), "{said}");
    // With all connections open, the server is full at the lowest rate; with one connection it is not.
    let mut bench = Bench::new(Server { doubles_at: 60.0, ..healthy() }, 5);
    for repeat in 0..4 {
        for load in [1, 2, 4, 8, 16, 32, 64, 128] {
            bench.closed(load, repeat, 1_000_000_000);
        }
        for rate in [2000.0, 8000.0] {
            bench.open(rate, repeat, 1_000_000_000);
        }
    }
    for point in &mut bench.points {
        set(point, names::SERVER_SELECT_WAITS, 1.0, 10);
        set(point, names::SERVER_SELECT_SET, 128.0, 10);
        if point.sweep == Sweep::Rate {
            let rate = point.value(names::THROUGHPUT).unwrap();
            set(point, names::SERVER_BUSIEST_THREAD, 1.0, 10);
            set(point, names::SERVER_CPU, 1e6 / rate, 1000);
        }
    }
    let verdict = judged_points(fixture::record(), &bench.points);
    let said = verdict.sentences.join(" ");
    assert!(!said.contains("polls") && found(&verdict) == ["scalable-select"], "{:?} {said}", found(&verdict));
}

#[test]
fn connections_that_are_all_in_use_for_the_time_of_a_lone_request_limit_the_load() {
    let of = |connections: u64, wait_us: f64| {
        let server = Server { path: 0.05, hidden_limit: 1250.0, noise: 0.02, drift: 0.02, ..Server::default() };
        let mut bench = Bench::new(server, 5);
        for repeat in 0..3 {
            [1, 2, 4, 8, 16, 32].into_iter().for_each(|load| bench.closed(load, repeat, 1_000_000_000));
            [300.0, 900.0, 1800.0, 3600.0].into_iter().for_each(|rate| bench.open(rate, repeat, 1_000_000_000));
        }
        for point in bench.points.iter_mut().filter(|point| point.sweep == Sweep::Rate) {
            point.connections = connections;
            let waits = point.offered_per_sec().is_some_and(|rate| rate > 1000.0);
            set(point, names::CONNECTION_WAIT_P99, if waits { wait_us } else { 0.0 }, 1000);
        }
        judged_points(fixture::record(), &bench.points)
    };
    let verdict = of(64, 200e3);
    assert_eq!(found(&verdict), ["client"], "{:?}", verdict.sentences);
    let because = &verdict.causes[0].because;
    assert!(because.starts_with("The load had too few connections: at 1800/s all 64 were in use"), "{because}");
    assert!(verdict.causes[0].commands[0].contains("--max-connections 256"), "{:?}", verdict.causes[0]);
    assert!(!found(&of(512, 200e3)).contains(&"client"), "the server does not use them");
    assert!(!found(&of(64, 100.0)).contains(&"client"), "no request waited for one");
}

#[test]
fn the_cpus_of_a_polling_server_give_no_open_loop_yield_point() {
    let mut bench = Bench::new(Server { noise: 0.02, drift: 0.02, ..Server::default() }, 7);
    for repeat in 0..3 {
        for rate in [2000.0, 8000.0, 32_000.0, 64_000.0] {
            bench.open(rate, repeat, 1_000_000_000);
        }
    }
    for point in &mut bench.points {
        set(point, names::SERVER_BUSIEST_THREAD, 1.0, 10);
        set(point, names::SERVER_CPU_BUSY, 1.0, 100);
        set(point, names::SERVER_CPUS_TAKEN, 0.05, 100);
        let rate = point.value(names::THROUGHPUT).unwrap();
        set(point, names::SERVER_CPU, 1e6 / rate, 1000);
    }
    let open = zones::find(&bench.points, &Default::default()).rate.expect("an open loop");
    assert!(open.yield_point.estimate.is_none() && open.yield_point.reason.contains("polls"), "{:?}", open.yield_point);
    let is_wrong = |level: &zones::Level| level.zone == zones::Zone::Plastic || level.crowded;
    assert!(!open.levels.iter().any(is_wrong), "{:?}", open.levels);
}

#[test]
fn a_server_that_is_slow_after_its_start_is_measured_up_to_its_limit() {
    let cold = Server { cold_s: 0.7, noise: 0.02, drift: 0.02, ..Server::pool(8.0, 5e-3) };
    let mut bench = Bench::new(cold.clone(), 3);
    let plan = plan(120);
    bench.sweep_connections(&plan, 3);
    let closed = zones::find(&bench.points, &plan.criteria).connections.expect("a sweep");
    let slow = bench
        .points
        .iter()
        .filter(|point| point.value(names::RESPONSE_P99).is_some_and(|us| us > 1e5) && point.connections < 3);
    assert!(slow.count() >= 2, "the first two loads fail at first");
    let found = closed.yield_point.estimate.unwrap_or_else(|| panic!("{:?}", closed.yield_point));
    assert!((found / cold.true_yield() - 1.0).abs() < 0.2, "{found}");
}

#[test]
fn cpus_filled_by_backend_and_client_are_not_filled_by_other_work() {
    // The server uses 0.5 of 4 CPUs and its backend 3.2.
    let eight_at_once = Server { path: 5e-3, hidden_limit: 1600.0, noise: 0.02, drift: 0.05, ..Server::default() };
    let full = |backend: f64, taken: Option<f64>| {
        judged(eight_at_once.clone(), fixture::record(), move |point| {
            let busy = if point.connections < 8 { 0.3 } else { 0.99 };
            set(point, names::SERVER_CPU_BUSY, busy, 100);
            set(point, names::SERVER_CPUS, 4.0, 1);
            set(point, names::SERVER_CPUS_USED, 0.5 * busy, 10);
            set(point, names::SERVER_BUSIEST_THREAD, 0.5 * busy, 10);
            set(point, names::BACKEND_CPUS, backend * busy, 2);
            if let Some(taken) = taken {
                set(point, names::SERVER_CPUS_TAKEN, taken * busy, 2);
            }
        })
    };
    let by_backend = full(3.2, Some(0.02));
    let first = &by_backend.sentences[0];
    assert!(first.contains("CPUs saturated first") && first.contains("79 % its backend's"), "{first}");
    assert!(!first.contains("other work"), "{first}");
    let older = full(3.2, None).sentences.remove(0);
    assert!(older.contains("saturated first"), "{older}");
    // The client shares the CPUs.
    let client = full(0.0, Some(0.05));
    assert!(client.sentences[0].contains("the rest the client's"), "{:?}", client.sentences);
    assert!(client.causes.is_empty(), "{:?}", client.causes);
    let others = full(0.0, Some(0.8)).sentences.remove(0);
    assert!(others.contains("other work filled the rest"), "{others}");
}

#[test]
fn a_server_with_an_exhausted_cpu_limit_is_not_idle() {
    let said = |used: f64, stopped: f64| {
        let verdict = judged(healthy(), fixture::record(), move |point| {
            refuses(16, 0.9)(point);
            for name in [names::SERVER_CPU_BUSY, names::SERVER_BUSIEST_THREAD] {
                set(point, name, if point.connections > 16 { 0.5 } else { 0.2 }, 100);
            }
            let p99 = if point.connections <= 4 { 80e3 } else { 1e3 };
            set(point, names::RESPONSE_P99, p99, point.outcomes.ok);
            set(point, names::SERVER_QUOTA, 0.5, 1);
            set(point, names::SERVER_QUOTA_USED, used, 10);
            set(point, names::SERVER_THROTTLED, stopped, 10);
        });
        verdict.sentences.join(" ")
    };
    let (idle, errors) = ("Some requests are slow though the server is idle", "Errors came before any CPU");
    let free = said(0.4, 0.0);
    assert!(free.contains(idle) && free.contains(errors), "{free}");
    let full = said(0.99, 0.0);
    assert!(!full.contains(idle) && !full.contains(errors), "{full}");
    assert!(!said(0.4, 0.1).contains(idle), "it was stopped");
}

#[test]
fn loads_are_compared_within_repeats_even_if_most_were_measured_once() {
    // A sweep visits all loads once, then repeats the deciding ones. From the second repeat on, each request costs
    // 2.5 times as much, so repeated loads look worse than the others.
    let verdict = |grows: f64| {
        let mut bench = Bench::new(Server { doubles_at: grows, ..healthy() }, 5);
        [1, 2, 4, 8, 16, 32, 64, 128].iter().for_each(|load| bench.closed(*load, 0, 1_000_000_000));
        for repeat in 1..4 {
            [1, 4, 11, 128].iter().for_each(|load| bench.closed(*load, repeat, 1_000_000_000));
        }
        for point in bench.points.iter_mut().filter(|point| point.repeat > 0) {
            for (name, times) in [(names::THROUGHPUT, 0.4), (names::GOODPUT, 0.4), (names::SERVER_CPU, 2.5)] {
                let value = point.value(name).unwrap();
                set(point, name, times * value, 1000);
            }
        }
        judged_points(fixture::record(), &bench.points).sentences.join(" ")
    };
    let said = verdict(f64::INFINITY);
    assert!(!said.contains("A request cost"), "{said}");
    assert!(said.contains("was about the same at 128 connections"), "{said}");
    // The cost doubles at 128 connections, which all repeats have.
    let said = verdict(128.0);
    let more = said.split_once("A request cost ").and_then(|(_, rest)| rest.split_once(" %")).expect(&said).0;
    assert!((85.0..=110.0).contains(&more.parse::<f64>().unwrap()), "{said}");
}

#[test]
fn visits_of_a_load_right_after_each_other_say_nothing_about_slowing_with_requests() {
    let mut bench = Bench::new(healthy(), 5);
    let visits = [(1, 0), (2, 0), (4, 0), (8, 0), (16, 0), (32, 0), (2, 1), (8, 1), (32, 1), (64, 0), (64, 1)];
    visits.iter().for_each(|(load, repeat)| bench.closed(*load, *repeat, 1_000_000_000));
    for (index, point) in bench.points.iter_mut().enumerate() {
        point.outcomes.ok = 3000;
        for name in [names::SERVER_CPU, names::RESPONSE_P50] {
            let value = point.value(name).unwrap();
            set(point, name, (1.0 + 0.5 * index as f64) * value, 1000);
        }
    }
    let verdict = judged_points(fixture::record(), &bench.points);
    assert!(found(&verdict).contains(&"slows-with-time"), "{:?}", verdict.sentences);
}

#[test]
fn a_server_with_a_nearly_full_cpu_waits_for_no_other_resource() {
    let at_most = |most: f64| {
        let verdict = judged(healthy(), fixture::record(), |point| {
            for name in [names::SERVER_CPU_BUSY, names::SERVER_BUSIEST_THREAD] {
                let value = point.value(name).unwrap();
                set(point, name, value.min(most), 10);
            }
        });
        verdict.sentences.join(" ")
    };
    let said = at_most(0.9);
    assert!(said.contains("with the server's busiest thread 90 % busy: nearly full"), "{said}");
    assert!(!said.contains("waits for something else"), "{said}");
    let said = at_most(0.7);
    assert!(said.contains("(70 % busy): it waits for something else"), "{said}");
}

#[test]
fn a_changing_server_is_not_reported_as_machine_drift() {
    let said = |rates: [f64; 4], arithmetic: [f64; 4]| {
        let mut bench = Bench::new(healthy(), 5);
        for repeat in 0..4 {
            bench.yardstick(repeat);
            [1, 4, 16].iter().for_each(|load| bench.closed(*load, repeat, 1_000_000_000));
        }
        for point in bench.points.iter_mut().filter(|point| point.sweep == record::Sweep::Yardstick) {
            set(point, names::THROUGHPUT, rates[point.repeat as usize], 1000);
            set(point, names::YARDSTICK_CPU, arithmetic[point.repeat as usize], 1000);
        }
        let verdict = judged_points(fixture::record(), &bench.points);
        let doubt = verdict.doubts.iter().find(|doubt| doubt.kind == record::DoubtKind::Drift).unwrap().what.clone();
        (verdict.sentences.join(" "), doubt)
    };
    let (sentences, doubt) = said([100.0, 60.0, 50.0, 40.0], [1.0, 1.01, 0.99, 1.0]);
    assert!(doubt.contains("while the machine's arithmetic speed did not"), "{doubt}");
    assert!(sentences.contains("the server changed, or memory"), "{sentences}");
    let (sentences, doubt) = said([100.0, 80.0, 75.0, 70.0], [1.0, 0.8, 0.75, 0.7]);
    assert!(doubt.contains("the machine's speed varied by"), "{doubt}");
    assert!(!sentences.contains("the server changed"), "{sentences}");
}
