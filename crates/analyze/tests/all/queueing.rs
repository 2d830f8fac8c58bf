//! Queueing solvers against published solutions and against the laws that hold for every network.

use analyze::predict::network::{Class, NetworkError, Service, Solution, Station};
use analyze::predict::{approximate, convolution, exact, open};
use proptest::prelude::*;

#[track_caller]
fn near(found: f64, expected: f64, digits: i32) {
    let slack = 0.6 * 10f64.powi(expected.abs().log10().floor() as i32 + 1 - digits);
    assert!((found - expected).abs() <= slack, "{found} is not {expected} to {digits} digits");
}

fn class(population: u64, think_s: f64) -> Class {
    Class { population, think_s }
}

#[test]
fn two_classes_of_one_customer_are_the_fractions_of_the_textbook() {
    // Lazowska, Zahorjan, Graham, Sevcik: Quantitative System Performance, 1984, p. 138. The same case opens PDQ's demo of
    // several workloads (Gunther's pretty damn quick analyzer, multiwo).
    let stations = [Station::queue("cpu", &[1.0, 2.0]), Station::queue("disk", &[3.0, 4.0])];
    let found = exact::closed(&stations, &[class(1, 0.0), class(1, 0.0)]).unwrap();
    near(found.throughput_per_sec[0], 3.0 / 19.0, 12);
    near(found.throughput_per_sec[1], 2.0 / 19.0, 12);
    for (queue, parts) in found.queue.iter().zip([[4.0, 15.0], [5.0, 14.0]]) {
        near(queue[0], parts[0] / 19.0, 12);
        near(queue[1], parts[1] / 19.0, 12);
    }
    let open = open::open(&stations, &[3.0 / 19.0, 2.0 / 19.0]).unwrap();
    near(open.queue[0][0], 0.25, 12);
    near(open.response_s[0], 19.0 / 12.0 + 57.0 / 2.0, 12);
    near(open.response_s[0], 30.08, 4);
}

#[test]
fn timesharing_and_batch_agree_with_the_figures_of_jmva() {
    // Schwetman's network of 40 terminals and 4 batch jobs, solved with JMVA of the Java Modelling Tools (Bertoli, Casale,
    // Serazzi, 2009); the numbers are those that Marzolla's queueing toolbox (2010) keeps as its reference.
    let disks = ["disk 1", "disk 2", "disk 3", "disk 4"];
    let mut stations = vec![Station::delay("terminals", &[5.0, 10.0]), Station::queue("cpu", &[0.1 / 9.0, 2.0])];
    stations[1].demands_s = vec![0.010 / 0.9, 0.100 / 0.05];
    stations.extend(disks.map(|disk| Station::queue(disk, &[0.25 * 0.035 / 0.9, 0.25 * 0.035 / 0.05])));
    let found = exact::closed(&stations, &[class(40, 0.0), class(4, 0.0)]).unwrap();
    near(found.throughput_per_sec[0], 7.891588, 7);
    near(found.throughput_per_sec[1], 0.277270, 6);
    for (queue, expected) in found.queue.iter().zip([[39.457941, 0.192262, 0.087449], [2.772704, 1.008198, 0.054775]]) {
        for (k, expected) in expected.iter().enumerate() {
            near(queue[k], *expected, 5);
        }
    }
    near(found.residence_s[0][1], 0.024363, 5);
    near(found.residence_s[1][1], 3.636155, 7);
    near(found.residence_s[1][2], 0.197549, 6);
}

/// Allen: Probability, Statistics and Queueing Theory, 1990, example 6.3.4; PDQ's demo `allen`.
fn allen() -> ([Station; 3], [Class; 3]) {
    (
        [
            Station::queue("node1", &[0.50, 0.40, 1.20]),
            Station::queue("node2", &[0.04, 0.20, 0.05]),
            Station::queue("node3", &[0.06, 0.30, 0.06]),
        ],
        [class(5, 20.0), class(10, 30.0), class(5, 0.0)],
    )
}

#[test]
fn three_classes_agree_with_pdqs_case() {
    let (stations, classes) = allen();
    let found = exact::closed(&stations, &classes).unwrap();
    // Six digits: qncmmva of Marzolla's queueing toolbox 1.2.7 on the same case.
    for (c, (rate, response)) in
        [(0.209977, 3.812108), (0.297997, 3.557425), (0.646510, 7.733829)].into_iter().enumerate()
    {
        near(found.throughput_per_sec[c], rate, 6);
        near(found.response_s[c], response, 6);
    }
    let total = |k: usize| found.queue.iter().map(|queue| queue[k]).sum::<f64>();
    near(total(0), 6.586664, 6);
    near(total(1), 0.111109, 5);
    near(total(2), 0.162784, 6);
}

#[test]
fn the_approximations_are_those_of_their_authors() {
    let stations = [Station::queue("cpu", &[0.605]), Station::queue("fast", &[2.1]), Station::queue("slow", &[1.35])];
    let classes = [class(3, 15.0)];
    // Lazowska and others, 1984, p. 117: exact 0.1515, Schweitzer 0.1510; more digits from qncsmva and qncsmvaap.
    let exact = exact::closed(&stations, &classes).unwrap();
    near(exact.throughput_per_sec[0], 0.151516492347, 9);
    let rough = approximate::schweitzer(&stations, &classes).unwrap();
    near(rough.throughput_per_sec[0], 0.150985872704, 8);
    near(rough.queue[0][1], 0.402057292295, 8);
    let fine = approximate::linearizer(&stations, &classes).unwrap();
    let miss = |found: &Solution| (found.throughput_per_sec[0] / exact.throughput_per_sec[0] - 1.0).abs();
    assert!(miss(&fine) < 0.1 * miss(&rough), "{} and {}", miss(&fine), miss(&rough));

    let (stations, classes) = allen();
    let rough = approximate::schweitzer(&stations, &classes).unwrap();
    near(rough.throughput_per_sec[2], 0.620298137278, 8);
    let (fine, exact) =
        (approximate::linearizer(&stations, &classes).unwrap(), exact::closed(&stations, &classes).unwrap());
    for c in 0..3 {
        let miss = (fine.throughput_per_sec[c] / exact.throughput_per_sec[c] - 1.0).abs();
        assert!(miss < 0.002, "class {c}: {miss}");
    }
}

#[test]
fn several_servers_and_load_dependence_are_the_textbooks() {
    // Bolch, Greiner, de Meer, Trivedi: Queueing Networks and Markov Chains, 1998, examples 8.4 and 8.7.
    let stations = [
        Station::servers("two", 2, &[0.5]),
        Station::queue("a", &[0.3]),
        Station::queue("b", &[0.4]),
        Station::delay("many", &[1.0]),
    ];
    let found = convolution::closed(&stations, class(3, 0.0)).unwrap();
    near(found.throughput_per_sec[0], 1.217460633845, 9);
    for (queue, expected) in found.queue[0].iter().zip([0.623679489735, 0.472872234403, 0.685987642017]) {
        near(*queue, expected, 9);
    }
    let mut dependent = stations.clone();
    dependent[0].service = Service::LoadDependent { rates: vec![1.0, 2.0] };
    let same = convolution::closed(&dependent, class(3, 0.0)).unwrap();
    near(same.throughput_per_sec[0], found.throughput_per_sec[0], 12);
    let four = [Station::servers("cpu", 4, &[0.4]), Station::queue("disk", &[0.1])];
    let found = convolution::closed(&four, class(20, 2.0)).unwrap();
    near(found.throughput_per_sec[0], 7.208294467018, 9);
    near(found.queue[0][0], 3.546401603784, 9);
}

#[test]
fn central_server_of_jain_and_web_tiers_of_pdq() {
    // Jain: The Art of Computer Systems Performance Analysis, 1991, example 34.2.
    let jain = [Station::queue("cpu", &[2.0]), Station::queue("a", &[3.0]), Station::queue("b", &[1.0])];
    let found = exact::closed(&jain, &[class(20, 4.0)]).unwrap();
    near(found.queue[0][0], 1.990623284949, 9);
    near(found.throughput_per_sec[0], 5.331944195529 / 16.0, 9);
    // Gunther: Analyzing Computer System Performance with Perl::PDQ, 2005, sections 12.2 and 12.4 (PDQ's httpd and ebiz).
    let mut httpd = vec![Station::queue("master", &[0.0109])];
    httpd.extend((0..16).map(|slave| Station::queue(&format!("slave {slave}"), &[0.0044 / 16.0])));
    let found = exact::closed(&httpd, &[class(5, 0.0)]).unwrap();
    near(found.throughput_per_sec[0], 91.733459, 8);
    near(found.response_s[0], 0.0545057, 6);
    let tiers = [9.8e-3, 2.5e-3, 0.72e-3, 9.8e-3].map(|demand| Station::queue("tier", &[demand]));
    near(exact::closed(&tiers, &[class(10, 0.0)]).unwrap().throughput_per_sec[0], 92.394525, 8);
}

#[test]
fn single_stations_follow_erlang_and_pollaczek_khinchine() {
    let four = open::general_service(3.0, 1.0, 1.0, 4).unwrap();
    near(four.waits_ratio, 27.0 / 53.0, 12);
    near(four.response_s, 1.509433962264, 12);
    // Mean wait: rate E[S^2] / (2 (1 - utilisation)); a constant service halves the exponential's.
    for (cv_squared, second_moment) in [(0.0, 1.0), (1.0, 2.0), (9.0, 10.0)] {
        let queue = open::general_service(0.8, 1.0, cv_squared, 1).unwrap();
        near(queue.wait_s, 0.8 * second_moment / (2.0 * 0.2), 12);
    }
    let queue = open::general_service(0.8, 1.0, 1.0, 1).unwrap();
    // M/M/1: P(W > t) = utilisation exp(-t (1 - utilisation) / service).
    near(0.8 * (-queue.wait_quantile_s(0.99) * 0.2).exp(), 0.01, 12);
    assert_eq!(queue.wait_quantile_s(0.1), 0.0, "20 % do not wait at all");
}

#[test]
fn bad_numbers_are_refused_in_one_sentence() {
    let one = |demand: f64| [Station::queue("cpu", &[demand])];
    let said = |result: Result<Solution, NetworkError>| result.unwrap_err().to_string();
    for bad in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(said(exact::closed(&one(bad), &[class(1, 0.0)])).contains("must be a number of at least 0"));
    }
    assert!(said(exact::closed(&one(0.0), &[class(1, 0.0)])).contains("no bound"));
    assert!(said(exact::closed(&one(1.0), &[class(100_000_000, 0.0)])).contains("approximate"));
    assert!(said(exact::closed(&[], &[class(1, 0.0)])).contains("no station"));
    assert!(said(open::open(&one(1.0), &[1.0])).contains("no steady state"));
    assert!(said(exact::closed(&one(1.0), &[class(1, 0.0), class(1, 0.0)])).contains("demands of 1 classes"));
    let servers = [Station::servers("cpu", 2, &[1.0])];
    assert!(said(exact::closed(&servers, &[class(1, 0.0)])).contains("approximate"));
    assert!(open::general_service(1.0, -1.0, 1.0, 1).is_err());
    let empty = exact::closed(&one(1.0), &[class(0, 0.0)]).unwrap();
    assert_eq!((empty.throughput_per_sec[0], empty.queue[0][0]), (0.0, 0.0));
}

fn any_network() -> impl Strategy<Value = (Vec<Station>, Vec<Class>)> {
    (1usize..4, 1usize..5).prop_flat_map(|(classes, stations)| {
        let demand = prop_oneof![1 => Just(0.0), 5 => 0.001f64..10.0];
        let station = (prop::collection::vec(demand, classes), prop::bool::weighted(0.25));
        let class = (0u64..7, 0.01f64..20.0).prop_map(|(population, think_s)| Class { population, think_s });
        (prop::collection::vec(station, stations), prop::collection::vec(class, classes)).prop_map(
            |(stations, classes)| {
                let make = |(demands, is_delay): (Vec<f64>, bool)| match is_delay {
                    true => Station::delay("delay", &demands),
                    false => Station::queue("queue", &demands),
                };
                (stations.into_iter().map(make).collect(), classes)
            },
        )
    })
}

proptest! {
    #[test]
    fn laws_hold_in_every_network((stations, classes) in any_network()) {
        let solutions = [
            ("exact", exact::closed(&stations, &classes).unwrap()),
            ("schweitzer", approximate::schweitzer(&stations, &classes).unwrap()),
            ("linearizer", approximate::linearizer(&stations, &classes).unwrap()),
        ];
        for (name, found) in &solutions {
            for (c, class) in classes.iter().enumerate() {
                let (rate, n) = (found.throughput_per_sec[c], class.population as f64);
                // Little: every customer is at a station or thinks.
                let present: f64 = found.queue[c].iter().sum::<f64>() + rate * class.think_s;
                prop_assert!((present - n).abs() <= 1e-6 * n.max(1.0), "{name}: {present} of {n}");
                // Asymptotic bounds.
                let demand: f64 = stations.iter().map(|station| station.demands_s[c]).sum();
                prop_assert!(rate <= n / (demand + class.think_s) * (1.0 + 1e-9));
                for (k, station) in stations.iter().enumerate() {
                    // Utilisation law.
                    let used = rate * station.demands_s[c];
                    prop_assert!((found.utilisation[c][k] - used).abs() <= 1e-9 * used.max(1.0));
                }
            }
            for (k, station) in stations.iter().enumerate().filter(|(_, station)| station.is_single()) {
                let busy: f64 = found.utilisation.iter().map(|class| class[k]).sum();
                // Linearizer's correction may overshoot the bound by a hair; the other two may not.
                let slack = if *name == "linearizer" { 1.02 } else { 1.0 + 1e-9 };
                prop_assert!(busy <= slack, "{name}: {} is {busy} busy", station.name);
            }
        }
        for (c, class) in classes.iter().enumerate().filter(|(_, class)| class.population > 0) {
            let miss = solutions[2].1.throughput_per_sec[c] / solutions[0].1.throughput_per_sec[c] - 1.0;
            prop_assert!(miss.abs() < 0.15, "class {c} of {class:?}: linearizer is {miss} off");
        }
    }

    #[test]
    fn one_more_customer_never_lowers_throughput(
        demands in prop::collection::vec(0.001f64..10.0, 1..5), think_s in 0.0f64..20.0, servers in 1u32..5,
    ) {
        let mut stations: Vec<Station> = demands.iter().map(|demand| Station::queue("queue", &[*demand])).collect();
        stations[0].service = Service::Queueing { servers };
        let mut before = 0.0;
        for n in 1..12 {
            let found = convolution::closed(&stations, class(n, think_s)).unwrap();
            let rate = found.throughput_per_sec[0];
            prop_assert!(rate >= before * (1.0 - 1e-12));
            let limit = stations.iter().map(|s| s.speed(1000) / s.demands_s[0]).fold(f64::INFINITY, f64::min);
            prop_assert!(rate <= limit * (1.0 + 1e-9));
            let present: f64 = found.queue[0].iter().sum::<f64>() + rate * think_s;
            prop_assert!((present - n as f64).abs() < 1e-6 * n as f64);
            if servers == 1 {
                let mva = exact::closed(&stations, &[class(n, think_s)]).unwrap().throughput_per_sec[0];
                prop_assert!((mva / rate - 1.0).abs() < 1e-9, "two exact algorithms differ: {mva} {rate}");
            }
            before = rate;
        }
    }

    #[test]
    fn no_numbers_panic_a_solver(
        demands in prop::collection::vec(any::<f64>(), 2), population in 0u64..30, think_s in any::<f64>(), servers in 0u32..4,
    ) {
        let stations = [Station::servers("a", servers, &demands[..1]), Station::queue("b", &demands[1..])];
        let classes = [Class { population, think_s }];
        let _ = (exact::closed(&stations, &classes), approximate::schweitzer(&stations, &classes));
        let _ = (approximate::linearizer(&stations, &classes), convolution::closed(&stations, classes[0]));
        let _ = (open::open(&stations, &[think_s]), open::general_service(think_s, demands[0], demands[1], servers));
    }
}
