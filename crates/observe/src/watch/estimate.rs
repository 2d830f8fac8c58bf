//! Estimates from windows, with their intervals.
//!
//! Requests are counted exactly at all times, but their phases are timed only in windows. The mean of a phase is the
//! ratio of two sums over windows (time in the phase, requests). Windows, not requests, are the independent samples,
//! because requests of one window share its load. Variance of a ratio from K of the run's windows (Cochran, *Sampling
//! Techniques*, 1977, section 6.4): `(1 - f) / (K (K - 1) nbar^2) * sum (y_w - ybar n_w)^2`, with f the share of the
//! time in windows.

use record::watch::{FEWEST_WINDOWS, Mean};

#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct RatioEstimator {
    windows: f64,
    n: f64,
    nn: f64,
    y: f64,
    yy: f64,
    ny: f64,
}

impl RatioEstimator {
    /// Adds a window whose `requests` took `total` together. A window without requests is ignored.
    pub fn add(&mut self, requests: u64, total: f64) {
        if requests == 0 {
            return;
        }
        let n = requests as f64;
        self.windows += 1.0;
        self.n += n;
        self.nn += n * n;
        self.y += total;
        self.yy += total * total;
        self.ny += n * total;
    }

    pub fn total(&self) -> f64 {
        self.y
    }

    pub fn requests(&self) -> u64 {
        self.n as u64
    }

    /// The mean per request; `None` before the first request. `share`: the share of the time in windows.
    pub fn estimate(&self, share: f64) -> Option<Mean> {
        if self.n <= 0.0 {
            return None;
        }
        let mean = self.y / self.n;
        let k = self.windows;
        let half_width = (k >= FEWEST_WINDOWS as f64).then(|| {
            let nbar = self.n / k;
            let squares = (self.yy - 2.0 * mean * self.ny + mean * mean * self.nn).max(0.0);
            let variance = (1.0 - share.clamp(0.0, 1.0)) * squares / (k * (k - 1.0) * nbar * nbar);
            1.96 * variance.sqrt()
        });
        Some(Mean { mean, half_width, requests: self.n as u64, windows: k as u64 })
    }
}
