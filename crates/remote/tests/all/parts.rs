//! The parts of a load and its sum: shares of connections, plans on the wire, results, and what a loss leaves out.

use load::LoadResult;
use load::cold::ColdRoom;
use proptest::prelude::*;
use record::protocol::{Protocol, RedisPlan};
use record::{Arrival, LoadPlan, LoadShare, Origin, Pace, Point, Sweep, names};
use remote::cold::{self, Node, NodeLimits};
use remote::merge::Sum;
use remote::protocol::{Capacity, LineReader, PlanMessage, ToWorker, line};
use remote::shares::{self, behind};
use remote::{HostPlace, leave_out_uncounted};

fn fractions(capacities: &[f64], connections: u64) -> Vec<f64> {
    let known: Vec<Option<f64>> = capacities.iter().copied().map(Some).collect();
    shares::divide(&known, connections).into_iter().map(LoadShare::fraction).collect()
}

#[test]
fn shares_follow_the_capacity_and_equal_machines_get_equal_shares() {
    assert_eq!(fractions(&[4e9, 12e9], 100), [0.25, 0.75]);
    assert_eq!(fractions(&[4.1e9, 3.9e9, 4.2e9], 100), [1.0 / 3.0; 3]);
    assert_eq!(fractions(&[2e9, 3e9], 100), [0.4, 0.6]);
    assert_eq!(fractions(&[7e9], 1), [1.0]);
    assert_eq!(shares::divide(&[Some(7e9)], 1), [LoadShare::WHOLE]);
    assert_eq!(shares::divide(&[Some(1e9), None], 9), [LoadShare::one(0, 2), LoadShare::one(1, 2)]);
    let unlike: Vec<Option<f64>> =
        (0..1100).map(|number| Some(if number == 0 { 1.0 } else { 1e9 + f64::from(number) })).collect();
    assert_eq!(shares::divide(&unlike, 10_000_000)[1099], LoadShare::one(1099, 1100), "so many parts no worker takes");
    assert_eq!(fractions(&[3e9, 1e9], 2), [0.5, 0.5]);
    assert_eq!(fractions(&[3e9, 1e9], 4), [0.75, 0.25]);
    assert_eq!(fractions(&[3e9, 1e9], 1_300_000), [0.75, 0.25]);
    assert_eq!(fractions(&[3e9, 1e9], 1_400_000), [0.5, 0.5], "one client holds a million");
}

#[test]
fn a_worker_is_behind_if_it_is_late_and_another_is_not() {
    const NOBODY: [usize; 0] = [];
    let never = f64::INFINITY;
    assert_eq!(behind(&[0.0, 0.0]), NOBODY);
    assert_eq!(behind(&[0.0, 2e6, 0.0, never]), [1, 3]);
    assert_eq!(behind(&[1e6, 2e6, 9e7]), [2], "all are late on a busy machine");
    assert_eq!(behind(&[never, never]), NOBODY, "there is nobody else");
    assert_eq!(behind(&[5e6]), NOBODY);
    assert_eq!(behind(&[]), NOBODY);
}

proptest! {
    #[test]
    fn any_capacities_give_every_worker_a_share_of_the_whole(
        capacities in prop::collection::vec((any::<u32>(), any::<f64>()), 1..200), connections in 200u64..1_000_000
    ) {
        let total = |(cpus, speed_per_sec)| Capacity { cpus, speed_per_sec }.total();
        let totals: Vec<Option<f64>> = capacities.into_iter().map(total).collect();
        let shares = shares::divide(&totals, connections);
        prop_assert_eq!(shares.len(), totals.len());
        prop_assert!(shares.iter().all(|share| share.exists() && share.part(connections) > 0));
        prop_assert_eq!(shares.iter().map(|share| share.part(connections)).sum::<u64>(), connections);
        prop_assert_eq!(shares.iter().map(|share| share.parts).sum::<u32>(), shares[0].of);
    }
}

fn node(ports: u64, descriptors: u64, memory_bytes: u64, hot: u64, network: u32) -> Node {
    let place =
        HostPlace { network: network.to_string().as_str().into(), machine: (network / 2).to_string().as_str().into() };
    let room = ColdRoom { ports, addresses: 1, descriptors, memory_bytes };
    Node { name: "client".into(), place, room, hot }
}

proptest! {
    #[test]
    fn parts_add_up_and_are_as_even_as_the_limits_allow(
        rooms in prop::collection::vec((0u64..500, 0u64..600, 0u64..5_000_000, 0u64..50, 0u32..4), 1..8),
        count in 0u64..2000, is_local: bool,
    ) {
        let nodes: Vec<Node> = rooms.into_iter().map(|(a, b, c, d, e)| node(a, b, c, d, e)).collect();
        let fits: Vec<u64> = NodeLimits::per_node(&nodes, is_local)
            .iter()
            .zip(&nodes)
            .map(|(limits, node)| limits.least().0.saturating_sub(node.hot))
            .collect();
        match cold::divide(count, &nodes, is_local) {
            Ok(parts) => {
                prop_assert_eq!(parts.iter().sum::<u64>(), count);
                prop_assert!(parts.iter().zip(&fits).all(|(part, room)| part <= room));
                // A worker with a smaller share than another is full. Only the remainder of the division may
                // differ.
                let most = parts.iter().copied().max().unwrap_or(0);
                prop_assert!(parts.iter().zip(&fits).all(|(part, room)| part == room || part + 1 >= most));
            }
            Err(why) => {
                prop_assert!(fits.iter().sum::<u64>() < count);
                prop_assert_eq!(why.table.len(), nodes.len() + 2);
            }
        }
    }
}

fn plan() -> LoadPlan {
    LoadPlan {
        body: b"\0body".to_vec(),
        pace: Pace::Open { rate_per_sec: 1000.0, arrival: Arrival::Poisson },
        connections: 11,
        ..LoadPlan::simple("127.0.0.1:80".parse().unwrap())
    }
}

#[test]
fn the_protocol_carries_a_plan_with_its_body_and_password() {
    let redis = RedisPlan { password: "secret".into(), pipeline: 3, ..Default::default() };
    let of_redis = LoadPlan { protocol: Protocol::Redis(redis), targets: Vec::new(), ..plan() };
    for plan in [plan(), of_redis] {
        let text = line(&ToWorker::Plan(Box::new(PlanMessage::new(plan.clone()))));
        match LineReader::new(text.as_bytes()).next_message::<ToWorker>().unwrap() {
            Some(ToWorker::Plan(message)) => assert_eq!(message.into_plan(), plan),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn merged_histograms_equal_the_histogram_of_all_samples() {
    let (left, right) = ([5_000, 70_000, 900], [1_000_000, 5_000]);
    let both: Vec<u64> = left.iter().chain(&right).copied().collect();
    let mut sum = Sum::default();
    sum.add("client 1", of_requests(&left), None);
    sum.add("client 2", of_requests(&right), None);
    let merged = sum.finish().unwrap();
    assert_eq!(merged.counts.times, of_requests(&both).counts.times);
    assert_eq!(merged.counts.outcomes.ok, 5);
    assert!(Sum::default().finish().is_none());
}

fn of_requests(values: &[u64]) -> LoadResult {
    let mut one = LoadResult { window_ns: 1_000_000_000, ..LoadResult::default() };
    for value in values {
        let times = &mut one.counts.times;
        for latency in [&mut times.response, &mut times.service, &mut times.first_byte] {
            latency.record_ns(*value);
        }
        // Each request counts as if it was sampled after it had waited a tenth of its time.
        times.sampled.record_ns(*value);
        times.reap.record_ns(value / 10);
        times.arrived.record_ns(value - value / 10);
    }
    one.counts.outcomes.sent = values.len() as u64;
    one.counts.outcomes.ok = values.len() as u64;
    one
}

#[test]
fn every_client_cost_per_request_is_recognised() {
    // Figures whose requests are counted by the server, or by the client that bears the cost.
    let has_requests_of_its_own = |name: &str| name.starts_with("watch.") || name == names::CLIENT_CPU;
    let mut point = Point::new(Sweep::Single, 0, 1, Pace::Closed);
    for (name, ..) in names::ALL.iter() {
        point.figures.measured(name, 1.0, 1, Origin::Counted);
    }
    leave_out_uncounted(&mut point, "a worker was lost");
    let needs_every_request = |name: &str| point.figures.value(name).is_none();
    for (name, ..) in names::ALL.iter() {
        let is_per_request = name.contains("per_request");
        assert!(!is_per_request || has_requests_of_its_own(name) || needs_every_request(name), "{name}");
    }
    assert!(!needs_every_request(names::SERVER_CPUS_USED) && !needs_every_request(names::RESPONSE_P99));
}
