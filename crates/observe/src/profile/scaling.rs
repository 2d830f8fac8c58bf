//! The cost of the calls of event-driven servers on this kernel as the process holds more descriptors: the measurements
//! of Banga and Mogul's Figure 1 (1998) for any kernel.
//!
//! N idle TCP connections over loopback are held open, their other ends by a thread with a separate descriptor table.
//! One more descriptor, the highest, is always ready. Each call is timed in batches by the thread's CPU clock.

mod calls;
mod idle;

use record::profile::scaling::{Call, CallScaling, Cost, Growth, Scaling};
use std::io;

/// Numbers of descriptors to measure, as far as the limit allows.
pub const STEPS: [usize; 6] = [16, 64, 256, 1024, 4096, 16384];
/// Costs below this exponent do not count as growing: caches alone cause some difference.
const FLAT: f64 = 0.2;
/// From this exponent on the cost is in proportion to the descriptors.
const PROPORTIONAL: f64 = 0.7;
/// From this exponent on a further descriptor costs more than the one before: the sockets no longer fit into caches.
const FASTER: f64 = 1.2;
/// The exponent is fitted from this many descriptors on, where fixed costs no longer hide it.
const FIT_FROM: usize = 256;

/// Judges costs, which come in rising numbers of descriptors.
pub fn judge(call: Call, costs: Vec<Cost>) -> CallScaling {
    let exponent = exponent(&costs);
    let growth = match exponent {
        None => Growth::Unknown,
        Some(exponent) if exponent < FLAT => Growth::Flat,
        Some(exponent) if exponent < PROPORTIONAL => Growth::Slow,
        Some(exponent) if exponent < FASTER => Growth::Proportional,
        Some(_) => Growth::Faster,
    };
    let ns_per_descriptor = match costs.as_slice() {
        [first, .., last] if last.descriptors > first.descriptors => {
            Some((last.median_ns - first.median_ns) / (last.descriptors - first.descriptors) as f64)
        }
        _ => None,
    };
    CallScaling { call, costs, exponent, growth, ns_per_descriptor }
}

/// Slope of log cost over log descriptors by least squares.
fn exponent(costs: &[Cost]) -> Option<f64> {
    let points: Vec<(f64, f64)> = costs
        .iter()
        .filter(|cost| cost.descriptors >= FIT_FROM && cost.median_ns > 0.0)
        .map(|cost| ((cost.descriptors as f64).ln(), cost.median_ns.ln()))
        .collect();
    if points.len() < 2 {
        return None;
    }
    let count = points.len() as f64;
    let mean_x = points.iter().map(|point| point.0).sum::<f64>() / count;
    let mean_y = points.iter().map(|point| point.1).sum::<f64>() / count;
    let covariance: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let variance: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    Some(covariance / variance)
}

/// Measures on this kernel, in this process; uses up to `most` descriptors besides those it has. Ends early when
/// `is_stopped`.
pub fn probe(most: usize, is_stopped: &dyn Fn() -> bool) -> io::Result<Scaling> {
    let limit = idle::raise_limit()?;
    // Descriptors of this process anyway, the connections to accept, and a margin.
    let room = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(256).min(most);
    let mut idle = idle::IdleSet::new()?;
    let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); Call::ALL.len()];
    let mut is_interrupted = false;
    for step in STEPS.into_iter().filter(|step| *step <= room) {
        if is_stopped() {
            is_interrupted = true;
            break;
        }
        idle.grow_to(step)?;
        for (call, costs) in Call::ALL.into_iter().zip(&mut costs) {
            costs.push(calls::measure(call, &mut idle)?);
        }
    }
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_string();
    let calls = Call::ALL.into_iter().zip(costs).map(|(call, costs)| judge(call, costs)).collect();
    Ok(Scaling { kernel, descriptor_limit: limit, calls, is_interrupted })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(of: impl Fn(usize) -> f64) -> Vec<Cost> {
        let cost = |descriptors| {
            let median_ns = of(descriptors);
            Cost { descriptors, median_ns, lower_ns: median_ns, upper_ns: median_ns, batches: 1 }
        };
        STEPS.into_iter().map(cost).collect()
    }

    #[test]
    fn known_laws_are_recognised() {
        let growth = |of: fn(usize) -> f64| judge(Call::Poll, costs(of)).growth;
        assert_eq!(growth(|n| 300.0 + 25.0 * n as f64), Growth::Proportional);
        assert_eq!(growth(|n| 300.0 + (n as f64).sqrt()), Growth::Flat);
        assert_eq!(growth(|n| (n as f64).sqrt()), Growth::Slow);
        assert_eq!(growth(|n| (n as f64).powf(1.5)), Growth::Faster);
        assert_eq!(judge(Call::Poll, Vec::new()).growth, Growth::Unknown);
    }

    #[test]
    fn every_call_is_measured_at_every_step_that_fits() {
        let scaling = probe(70, &|| false).unwrap();
        for call in &scaling.calls {
            let steps: Vec<usize> = call.costs.iter().map(|cost| cost.descriptors).collect();
            assert_eq!(steps, vec![16, 64], "{:?}", call.call);
            assert!(call.costs.iter().all(|cost| cost.median_ns > 0.0), "{call:?}");
        }
    }

    #[test]
    fn an_interrupted_probe_keeps_what_it_has() {
        let scaling = probe(70, &|| true).unwrap();
        assert!(scaling.is_interrupted && scaling.calls.iter().all(|call| call.costs.is_empty()));
    }
}
