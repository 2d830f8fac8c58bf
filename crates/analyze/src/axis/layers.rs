//! The cost of a packet in each layer of the network stack along an axis, if points were profiled per packet: Kim and
//! Rixner's Table 1 and Figures 4 to 6 (2005).
//!
//! Everything is per packet that the server sent, including its receive work for that packet.

use super::{FigureChange, change, estimate};
use record::layers::Layer;
use record::{Criteria, Estimate, Point, names};
use serde::Serialize;

/// A layer's name in tables, its name in figures, and the figure of its CPU time.
type LayerNames = (&'static str, &'static str, &'static str);

/// Columns of the table, from the server's own code down to the device.
pub(crate) const LAYERS: [LayerNames; 8] = [
    ("User", "user", names::PACKET_USER),
    ("System Call", "system_call", names::PACKET_SYSTEM_CALL),
    ("TCP", "tcp", names::PACKET_TCP),
    ("IP", "ip", names::PACKET_IP),
    ("Ethernet", "ethernet", names::PACKET_ETHERNET),
    ("Driver", "driver", names::PACKET_DRIVER),
    ("Other", "other", names::PACKET_OTHER),
    ("unattributed", "unattributed", names::PACKET_UNATTRIBUTED),
];
/// The sum of the stack's layers: all except User, Other and unattributed time.
pub const OVERALL: &str = "Overall Stack";

/// Layers per packet along an axis.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct AxisLayers {
    /// Layers at each value, ascending.
    pub levels: Vec<LayersAt>,
    /// Changes from the axis's lowest value to its highest: the whole stack first, then each layer.
    pub changes: Vec<LayerChange>,
    /// Hardware events that this machine counts.
    pub events: Vec<String>,
    /// Hardware events that this machine cannot count, with the reason.
    pub not_measured: Vec<(String, String)>,
}

/// One value of the axis.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct LayersAt {
    /// Value in the axis's unit.
    pub value: f64,
    /// Costs in the order of the table: each layer, unattributed, the whole stack.
    pub costs: Vec<LayerCost>,
    /// Packets sent in all windows.
    pub packets_sent: u64,
    /// Packets received for each packet sent.
    pub received_per_sent: Option<f64>,
    /// Segments per sent packet; 1 if the stack segments its packets itself.
    pub segments_per_packet: Option<f64>,
    /// Samples of the server's work in all windows.
    pub samples: u64,
    /// Payload sent per second, bits.
    pub bits_per_sec: Option<Estimate>,
}

/// One layer at one value.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct LayerCost {
    /// Name of the layer.
    pub layer: String,
    /// CPU time per packet sent, microseconds.
    pub us_per_packet: Option<Estimate>,
    /// CPU time as a share of one CPU over the windows.
    pub cpu_ratio: Option<Estimate>,
    /// Events per packet sent, in the order of [`AxisLayers::events`].
    pub events_per_packet: Vec<Option<Estimate>>,
    /// Samples in all windows.
    pub samples: u64,
}

/// Change of a layer's CPU time per packet.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct LayerChange {
    /// Name of the layer.
    pub layer: String,
    /// Microseconds at both ends, and their ratio within repeats.
    #[serde(flatten)]
    pub us: FigureChange,
}

impl LayersAt {
    /// A layer's row.
    pub fn cost(&self, layer: &str) -> Option<&LayerCost> {
        self.costs.iter().find(|cost| cost.layer == layer)
    }
}

impl LayerCost {
    /// Instructions per cycle, if both are counted.
    pub fn instructions_per_cycle(&self, events: &[String]) -> Option<f64> {
        let of = |name: &str| self.events_per_packet.get(events.iter().position(|event| event == name)?)?.as_ref();
        let (instructions, cycles) = (of("instructions")?.value, of("cycles")?.value);
        (cycles > 0.0).then(|| instructions / cycles)
    }
}

fn is_stack(word: &str) -> bool {
    Layer::from_word(word).is_some_and(Layer::is_stack)
}

/// CPU time per packet of the whole stack at one point.
pub fn stack_us(point: &Point) -> Option<f64> {
    LAYERS.iter().filter(|(word, ..)| is_stack(word)).map(|(.., name)| point.value(name)).sum()
}

/// The layers along the axis; `None` if no point was profiled per packet.
pub(super) fn find(groups: &[(f64, Vec<&Point>)], criteria: &Criteria) -> Option<AxisLayers> {
    let profiled = || groups.iter().flat_map(|(_, points)| points).filter(|point| stack_us(point).is_some());
    profiled().next()?;
    let (events, not_measured) = events(groups.iter().flat_map(|(_, points)| points.iter().copied()));
    let mut changes: Vec<LayerChange> = Vec::new();
    changes.extend(change(groups, stack_us, criteria).map(|us| LayerChange { layer: OVERALL.into(), us }));
    for (word, _, name) in LAYERS {
        let found = change(groups, |point| point.value(name), criteria);
        changes.extend(found.map(|us| LayerChange { layer: word.into(), us }));
    }
    let levels = groups.iter().map(|(value, points)| level(*value, points, &events, criteria)).collect();
    Some(AxisLayers { levels, changes, events, not_measured })
}

/// The events that some point counted, and those that no point counted, with the reason.
fn events<'a>(points: impl Iterator<Item = &'a Point>) -> (Vec<String>, Vec<(String, String)>) {
    let (mut counted, mut missing): (Vec<String>, Vec<(String, String)>) = Default::default();
    for point in points {
        for (name, figure) in &point.figures.0 {
            let event = name.strip_prefix("layer.stack_").and_then(|rest| rest.strip_suffix("_per_packet_sent"));
            let Some(event) = event.map(|event| event.replace('_', "-")) else { continue };
            match &figure.not_measured {
                None if !counted.contains(&event) => counted.push(event),
                Some(why) if !missing.iter().any(|(known, _)| *known == event) => missing.push((event, why.clone())),
                _ => {}
            }
        }
    }
    missing.retain(|(event, _)| !counted.contains(event));
    // Cycles and instructions come first, as in the paper.
    counted.sort_by_key(|event| (event != "cycles", event != "instructions", event.clone()));
    (counted, missing)
}

fn level(value: f64, points: &[&Point], events: &[String], criteria: &Criteria) -> LayersAt {
    let over = |read: &dyn Fn(&Point) -> Option<f64>| estimate(points.iter().filter_map(|point| read(point)), criteria);
    let sum = |name: &str| points.iter().filter_map(|point| point.value(name)).sum::<f64>();
    let per_sent = |name: &str| Some(sum(name) / sum(names::PACKETS_SENT)).filter(|ratio| ratio.is_finite());
    let seconds = |point: &Point| point.duration_ns as f64 / 1e9;
    let share =
        |point: &Point, us: f64| Some(us * point.value(names::PACKETS_SENT)? / 1e6 / seconds(point).max(f64::EPSILON));
    let count = |name: &str| {
        points.iter().filter_map(|point| point.figures.get(name)?.n).fold(0u64, |sum, n| sum.saturating_add(n))
    };
    let cost = |layer: &str, short: &str, us: &dyn Fn(&Point) -> Option<f64>, samples| LayerCost {
        layer: layer.into(),
        us_per_packet: over(us),
        cpu_ratio: over(&|point| share(point, us(point)?)),
        events_per_packet: events
            .iter()
            .map(|event| over(&|point| point.value(&names::event_per_packet(short, event))))
            .collect(),
        samples,
    };
    let of_layer = |(word, short, name): &LayerNames| cost(word, short, &|point| point.value(name), count(name));
    let mut costs: Vec<LayerCost> = LAYERS.iter().map(of_layer).collect();
    let of_stack = costs.iter().filter(|cost| is_stack(&cost.layer)).map(|cost| cost.samples).sum();
    costs.push(cost(OVERALL, "stack", &stack_us, of_stack));
    LayersAt {
        value,
        packets_sent: sum(names::PACKETS_SENT) as u64,
        received_per_sent: per_sent(names::PACKETS_RECEIVED),
        segments_per_packet: per_sent(names::SEGMENTS_SENT),
        samples: costs.iter().filter(|cost| cost.layer != OVERALL).map(|cost| cost.samples).sum(),
        bits_per_sec: over(&|point| Some(point.value(names::PAYLOAD_SENT)? * 8.0 / seconds(point))),
        costs,
    }
}
