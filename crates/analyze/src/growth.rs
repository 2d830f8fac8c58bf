//! The layers of the network stack and the functions that grew between two loads, from the samples of their points.
//!
//! Points are compared within repeats ([`crate::within`]); the interval is a bootstrap over the pairs.

use crate::within;
use record::{Estimate, Point, names};
use std::collections::BTreeSet;

/// The layers' figures and names, from the server's own code down to the device.
pub const LAYERS: [(&str, &str); 8] = [
    ("User", names::LAYER_USER),
    ("System Call", names::LAYER_SYSTEM_CALL),
    ("TCP", names::LAYER_TCP),
    ("IP", names::LAYER_IP),
    ("Ethernet", names::LAYER_ETHERNET),
    ("Driver", names::LAYER_DRIVER),
    ("Other", names::LAYER_OTHER),
    ("unattributed", names::LAYER_UNATTRIBUTED),
];

/// Pairs needed for an interval.
const LEAST_PAIRS: u64 = 3;

/// CPU time per request of a layer or function at two loads, or in two runs.
#[derive(Debug, Clone, PartialEq)]
pub struct CpuChange {
    /// Name of the layer or function. A function's name is untrusted text.
    pub name: String,
    /// Mean at the lower load, or in run A, microseconds.
    pub from_us: f64,
    /// Mean at the higher load, or in run B, microseconds.
    pub to_us: f64,
    /// The difference of the CPU times, microseconds.
    pub difference_us: Estimate,
}

/// The layers that certainly grew, largest growth first.
pub fn layers(low: &[&Point], high: &[&Point], confidence: f64) -> Vec<CpuChange> {
    let of = |(word, name): &(&str, &'static str)| compare(word, (low, high), confidence, |point| point.value(name));
    grown(LAYERS.iter().filter_map(of))
}

/// The functions that certainly grew, without their callees, largest growth first.
pub fn functions(low: &[&Point], high: &[&Point], confidence: f64) -> Vec<CpuChange> {
    let grew = |name: &str| compare(name, (low, high), confidence, |point| function_us(point, name));
    grown(function_names(high.iter().copied()).into_iter().filter_map(grew))
}

pub(crate) fn function_names<'p>(points: impl Iterator<Item = &'p Point>) -> BTreeSet<&'p str> {
    points.flat_map(|point| &point.functions).map(|cost| cost.function.as_str()).collect()
}

/// CPU time of a function without its callees, microseconds per request. A point lists only its most expensive
/// functions, so a missing one counts as 0. `None` if the point lists none.
pub(crate) fn function_us(point: &Point, name: &str) -> Option<f64> {
    let named = point.functions.iter().filter(|known| known.function == name);
    // The sum of no values would be -0.
    (!point.functions.is_empty()).then(|| named.fold(0.0, |sum, known| sum + known.us_per_request))
}

fn grown(all: impl Iterator<Item = CpuChange>) -> Vec<CpuChange> {
    let is_growth = |change: &CpuChange| change.difference_us.low.is_some_and(|low| low > 0.0);
    let mut grown: Vec<CpuChange> = all.filter(is_growth).collect();
    grown.sort_by(|a, b| b.difference_us.value.total_cmp(&a.difference_us.value));
    grown
}

fn compare(
    name: &str,
    (low, high): (&[&Point], &[&Point]),
    confidence: f64,
    value: impl Fn(&Point) -> Option<f64>,
) -> Option<CpuChange> {
    let (from_us, to_us, difference_us) = within::pairs(low, high, value).difference(confidence)?;
    (difference_us.n >= LEAST_PAIRS).then(|| CpuChange { name: name.to_string(), from_us, to_us, difference_us })
}
