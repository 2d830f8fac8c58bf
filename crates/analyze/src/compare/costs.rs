//! Compares where two runs spend the CPU time of a request: by layer, function and stack, at the loads that both
//! measured. Each load has the same weight, regardless of its number of requests. So a run that measured one load
//! longer does not look like a changed server.

use super::pooled::{CommonLoad, pooled};
use super::{MatchedLoad, levels, matched};
use crate::growth::{CpuChange, LAYERS, function_names, function_us};
use crate::profile::why_no_stacks;
use crate::within;
use record::profile::Folded;
use record::{Point, RunDir, names};
use std::collections::{BTreeMap, BTreeSet};

/// The counts of [`Costs::stacks`] per nanosecond.
pub const STACK_COUNTS_PER_NS: f64 = 1000.0;

/// CPU time per request in two runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Costs {
    /// Layers of the network stack, from the server's code down.
    pub layers: Vec<CpuChange>,
    /// Functions without their callees, the largest change first. Their names are untrusted text.
    pub functions: Vec<CpuChange>,
    /// Stacks of A and B with counts in picoseconds per request, or the reason why there are none.
    pub stacks: Result<(Folded, Folded), String>,
}

/// Compares the costs of a request in two runs.
pub fn costs(a: &RunDir, b: &RunDir, confidence: f64) -> Costs {
    let (of_a, of_b) = (levels(a), levels(b));
    let loads = matched(&of_a, &of_b);
    let layer = |(word, name): &(&str, &'static str)| cost(word, &loads, confidence, |point| point.value(name));
    let function = |name: &str| cost(name, &loads, confidence, |point| function_us(point, name));
    let names = function_names(loads.iter().flat_map(|(_, a, b)| a.iter().chain(*b)).copied());
    let mut functions: Vec<CpuChange> = names.into_iter().filter_map(function).collect();
    functions.sort_by(|a, b| b.difference_us.value.abs().total_cmp(&a.difference_us.value.abs()));
    Costs { layers: LAYERS.iter().filter_map(layer).collect(), functions, stacks: stacks((a, b), &loads) }
}

type FoldedPair = (Folded, Folded);

fn cost(
    name: &str,
    loads: &[MatchedLoad<'_>],
    confidence: f64,
    value: impl Fn(&Point) -> Option<f64>,
) -> Option<CpuChange> {
    let common =
        |(_, a, b): &MatchedLoad<'_>| CommonLoad { at: (), a: within::visits(a, &value), b: within::visits(b, &value) };
    let known: Vec<CommonLoad<()>> =
        loads.iter().map(common).filter(|one| !one.a.is_empty() && !one.b.is_empty()).collect();
    let all = pooled(&known, false)?;
    Some(CpuChange { name: name.to_string(), from_us: all.a, to_us: all.b, difference_us: all.difference(confidence) })
}

fn stacks((a, b): (&RunDir, &RunDir), loads: &[MatchedLoad<'_>]) -> Result<FoldedPair, String> {
    let loads: Vec<FoldedPair> = loads
        .iter()
        .map(|(_, of_a, of_b)| (per_request(a, of_a), per_request(b, of_b)))
        .filter(|(a, b)| !a.0.is_empty() && !b.0.is_empty())
        .collect();
    if loads.is_empty() {
        let none = |(name, run): (&str, &RunDir)| {
            let has_any = run.points.iter().any(|point| run.stacks(point.index).is_ok_and(|stacks| stacks.is_some()));
            (!has_any).then(|| format!("{name} has no stacks: {}", why_no_stacks(run)))
        };
        let why: Vec<String> = [("A", a), ("B", b)].into_iter().filter_map(none).collect();
        let none_in_common = || "no common load has stacks in both runs".into();
        return Err(if why.is_empty() { none_in_common() } else { why.join("; ") });
    }
    let count = loads.len() as u64;
    let whole = |side: fn(&FoldedPair) -> &Folded| {
        let mut sums: BTreeMap<Vec<String>, u64> = BTreeMap::new();
        for (frames, counts) in loads.iter().flat_map(|both| &side(both).0) {
            *sums.entry(frames.clone()).or_default() += counts;
        }
        Folded(sums.into_iter().map(|(frames, counts)| (frames, counts / count)).filter(|(_, n)| *n > 0).collect())
    };
    Ok(under_one_root(whole(|both| &both.0), whole(|both| &both.1)))
}

/// Gives the programs of two different servers the same name, so that the kernel's work below them is compared.
pub fn under_one_root(a: Folded, b: Folded) -> FoldedPair {
    let is_program = |name: &String| !name.starts_with('[');
    let roots = |folded: &Folded| -> BTreeSet<String> {
        folded.0.keys().filter_map(|frames| frames.first()).filter(|name| is_program(name)).cloned().collect()
    };
    if !roots(&a).is_disjoint(&roots(&b)) {
        return (a, b);
    }
    let renamed = |folded: Folded| {
        let mut one = Folded::default();
        for (mut frames, count) in folded.0 {
            if let Some(root) = frames.first_mut().filter(|root| is_program(root)) {
                *root = "server".into();
            }
            one.add(frames, count);
        }
        one
    };
    (renamed(a), renamed(b))
}

/// The stacks of the points at one load, with counts per request.
fn per_request(run: &RunDir, points: &[&Point]) -> Folded {
    let mut sums: BTreeMap<Vec<String>, f64> = BTreeMap::new();
    let mut requests = 0;
    for point in points {
        let Ok(Some(stacks)) = run.stacks(point.index) else { continue };
        // The number of requests by which the layers' figures are divided.
        let of_point = point.figures.get(names::THROUGHPUT).and_then(|figure| figure.n).unwrap_or(0);
        requests = of_point.saturating_add(requests);
        for (frames, cpu_ns) in stacks.folded_cpu_ns().0 {
            *sums.entry(frames).or_default() += cpu_ns as f64;
        }
    }
    let count = |ns: f64| (ns * STACK_COUNTS_PER_NS / requests.max(1) as f64).round() as u64;
    let counted = sums.into_iter().map(|(frames, ns)| (frames, count(ns)));
    Folded(if requests == 0 { BTreeMap::new() } else { counted.collect() })
}
