//! Findings as figures, which limits and other tools read by name.

use super::{Findings, PointFinding, SweepFindings};
use record::{Figure, Figures, Origin, names};

impl Findings {
    /// The yield and failure points and the peak by name. Where a point was not reached, the measured bound
    /// takes its place: a server that held 60k/s does not cross `failure_rate < 50k`.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        let sweeps = [
            (&self.connections, names::FIND_YIELD_CONNECTIONS, names::FIND_FAILURE_CONNECTIONS, "connections"),
            (&self.rate, names::FIND_YIELD_RATE, names::FIND_FAILURE_RATE, "1/s"),
        ];
        for (sweep, yield_name, failure_name, unit) in sweeps {
            let point = |find: fn(&SweepFindings) -> &PointFinding| match sweep {
                Some(sweep) => figure(find(sweep), unit),
                None => Figure::not_measured(unit, "this sweep was not run"),
            };
            figures.set(yield_name, point(|sweep| &sweep.yield_point));
            figures.set(failure_name, point(|sweep| &sweep.failure_point));
        }
        let peak = self.sweeps().filter_map(|sweep| Some((sweep.peak?.per_sec, sweep.repeats)));
        let peak = peak.max_by(|a, b| a.0.total_cmp(&b.0));
        let peak = match peak {
            Some((per_sec, repeats)) => Figure::new(per_sec, "1/s", repeats, Origin::Counted),
            None => Figure::not_measured("1/s", "no request was completed"),
        };
        figures.set(names::FIND_PEAK, peak);
        figures
    }
}

fn figure(point: &PointFinding, unit: &str) -> Figure {
    match point.estimate.or(point.low) {
        Some(load) => Figure::new(load, unit, point.n_repeats, Origin::Modelled),
        None => Figure::not_measured(unit, point.reason.as_str()),
    }
}
