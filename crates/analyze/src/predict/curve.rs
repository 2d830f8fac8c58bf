//! The chosen model as curves over the loads of a run, with bootstrap bands, for the report.

use super::check;
use super::question::{pick, shapes};
use super::readings;
use super::{Fitted, fitted_to};
use crate::Refused;
use record::RunDir;
use statistics::server::Server;

const STEPS_PER_DOUBLING: f64 = 4.0;

/// A curve over the load: (load, value, lower end, upper end). Without resamples, both ends are the value.
pub type Curve = Vec<(f64, f64, f64, f64)>;

/// The curves to draw.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves {
    /// The chosen model, with its checks.
    pub fitted: Fitted,
    /// Requests per second.
    pub throughput: Curve,
    /// Median response time, seconds; empty if the points have none.
    pub p50: Curve,
}

/// Fits the models to a run and evaluates the best one over its loads.
///
/// # Errors
/// Those of [`super::of_runs`] without a question.
pub fn curves(run: &RunDir, resamples: usize) -> Result<Curves, Refused> {
    let readings = readings::read(std::slice::from_ref(run))?;
    let fitted = fitted_to(&readings, run, resamples)?;
    let server = &fitted.choice.server;
    let levels = readings::typicals(&readings.closed);
    let (first, last) = (levels[0].load, levels[levels.len() - 1].load);
    let steps = ((last / first).log2() * STEPS_PER_DOUBLING).ceil().clamp(1.0, 200.0);
    let loads: Vec<f64> = (0..=steps as usize).map(|at| first * (last / first).powf(at as f64 / steps)).collect();
    let confidence = readings.criteria.confidence_ratio;
    let ratio = readings.criteria.saturation_ratio;
    let shapes = shapes(&readings, server);
    let follow = |value: &dyn Fn(&Server, f64) -> Option<f64>| -> Curve {
        let at = |load: f64| {
            let middle = value(server, load)?;
            let ends = check::interval(&fitted.servers, confidence, |server| value(server, load));
            let (low, high) = ends.unwrap_or((middle, middle));
            Some((load, middle, low, high))
        };
        loads.iter().filter_map(|load| at(*load)).collect()
    };
    let cold = levels[0].cold;
    let throughput = follow(&|server, load| Some(server.closed(load, cold).throughput_per_sec));
    let p50 = follow(&|server, load| {
        let (state, cycle_s) = server.cycle(load, cold);
        let shape = pick(&shapes, server, &state, ratio)?;
        Some(cycle_s * shape.mean * shape.p50)
    });
    Ok(Curves { fitted, throughput, p50 })
}
