//! Findings as figures, which limits and other tools read by name.

use super::{Findings, PointFinding, SweepFindings};
use record::{Figures, Origin, names};

impl Findings {
    /// The yield and failure points and the peak by name. Where a point was not reached, the measured bound
    /// takes its place: a server that held 60k/s does not cross `failure_rate < 50k`.
    pub fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        let yields: fn(&SweepFindings) -> &PointFinding = |sweep| &sweep.yield_point;
        let failures: fn(&SweepFindings) -> &PointFinding = |sweep| &sweep.failure_point;
        for (sweep, name, find) in [
            (&self.connections, names::FIND_YIELD_CONNECTIONS, yields),
            (&self.connections, names::FIND_FAILURE_CONNECTIONS, failures),
            (&self.rate, names::FIND_YIELD_RATE, yields),
            (&self.rate, names::FIND_FAILURE_RATE, failures),
        ] {
            match sweep.as_ref().map(find) {
                Some(point) => {
                    let load = point.estimate.or(point.low);
                    figures.found(name, load, (point.n_repeats, Origin::Modelled), &point.reason);
                }
                None => figures.not_measured(name, "this sweep was not run"),
            }
        }
        let peaks = self.sweeps().filter_map(|sweep| Some((sweep.peak?.per_sec, sweep.repeats)));
        let (peak, repeats) = peaks.max_by(|a, b| a.0.total_cmp(&b.0)).unzip();
        figures.found(names::FIND_PEAK, peak, (repeats.unwrap_or(0), Origin::Counted), "no request was completed");
        figures
    }
}
