//! The cost of a packet in each layer of the network stack along an axis.

use crate::fixture;
use analyze::axis::layers::{LayersAt, OVERALL};
use analyze::axis::{AxisFindings, of_points};
use record::{Axis, AxisPlace, Criteria, Figure, Figures, Origin, Point, Sweep, names};

const LAYERS: [&str; 8] = [
    names::PACKET_USER,
    names::PACKET_SYSTEM_CALL,
    names::PACKET_TCP,
    names::PACKET_IP,
    names::PACKET_ETHERNET,
    names::PACKET_DRIVER,
    names::PACKET_OTHER,
    names::PACKET_UNATTRIBUTED,
];

fn point(repeat: u32, connections: u64, tcp_us: f64) -> Point {
    let mut figures = LAYERS.map(|name| (name, if name == names::PACKET_TCP { tcp_us } else { 1.0 })).to_vec();
    figures.extend([
        (names::PACKETS_SENT, 10_000.0),
        (names::PACKETS_RECEIVED, 9_000.0),
        (names::SEGMENTS_SENT, 10_000.0),
        (names::PAYLOAD_SENT, 14_480_000.0),
    ]);
    let mut point = fixture::point(Sweep::Axis, repeat, connections, &figures);
    point.figures.set("layer.stack_cycles_per_packet_sent", Figure::not_measured("count", "no counter"));
    point.axis = Some(AxisPlace { axis: Axis::Connections, value: connections as f64, slowed: None });
    point
}

fn findings(points: &[Point]) -> AxisFindings {
    of_points(points, &Criteria::default(), 1.0).remove(0)
}

#[test]
fn the_stack_is_the_sum_of_its_layers_and_names_the_layers_that_grew() {
    let points: Vec<Point> = (1..=4).flat_map(|repeat| [point(repeat, 4, 2.0), point(repeat, 2048, 5.0)]).collect();
    let layers = findings(&points).layers.unwrap();
    let overall = |level: &LayersAt| level.cost(OVERALL).unwrap().us_per_packet.unwrap().value;
    // System Call, IP, Ethernet and Driver cost 1 us each.
    assert_eq!(layers.levels.iter().map(overall).collect::<Vec<_>>(), [6.0, 9.0]);
    let level = &layers.levels[0];
    assert_eq!((level.packets_sent, level.samples), (40_000, 3200));
    assert!((level.received_per_sent.unwrap() - 0.9).abs() < 1e-9);
    assert_eq!(level.segments_per_packet, Some(1.0));
    assert!((level.bits_per_sec.unwrap().value - 115_840_000.0).abs() < 1e-3);
    // 2 us per packet for 10,000 packets in a second.
    assert!((level.cost("TCP").unwrap().cpu_ratio.unwrap().value - 0.02).abs() < 1e-9);
    let change = layers.changes.iter().find(|change| change.layer == "TCP").unwrap();
    assert!((change.us.ratio.value - 2.5).abs() < 1e-9 && change.us.ratio.n == 4, "{change:?}");
    assert_eq!(layers.changes[0].layer, OVERALL);
    assert_eq!(layers.not_measured, [("cycles".to_string(), "no counter".to_string())]);
    assert!(layers.events.is_empty());
}

#[test]
fn instructions_per_cycle_need_both_counters() {
    let mut both = point(1, 4, 2.0);
    for (event, value) in [("cycles", 3000.0), ("instructions", 1200.0)] {
        for word in ["tcp", "stack"] {
            both.figures.set(&names::event_per_packet(word, event), Figure::new(value, "count", 50, Origin::Sampled));
        }
    }
    let layers = findings(&[both]).layers.unwrap();
    assert_eq!(layers.events, ["cycles", "instructions"]);
    let tcp = layers.levels[0].cost("TCP").unwrap();
    assert!((tcp.instructions_per_cycle(&layers.events).unwrap() - 0.4).abs() < 1e-9);
    assert_eq!(layers.levels[0].cost("IP").unwrap().instructions_per_cycle(&layers.events), None);
    assert!(layers.not_measured.is_empty());
}

#[test]
fn points_without_a_profile_have_no_layers() {
    let mut bare = point(1, 4, 2.0);
    bare.figures = Figures::default();
    assert_eq!(findings(&[bare]).layers, None);
}
