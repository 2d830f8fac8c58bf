//! Rate series. No bytes may make the reader panic or hang, and an accepted series gives arrivals in order and within
//! its duration.

#![no_main]

use record::LoadShare;
use straingauge_fuzz::fuzz_target;
use workload::arrival::{RateSeries, SeriesPlan};

fuzz_target!(|data: &[u8]| {
    let Ok(series) = RateSeries::from_reader("fuzz", data, 1_000_000_000) else { return };
    assert!(!series.counts.is_empty() && series.total() > 0);
    assert!(series.peak_ratio() >= 0.999);
    let plan =
        SeriesPlan { mean_rate_per_sec: 200.0, duration_ns: 1_000_000_000, seed: 1, share: LoadShare::one(0, 2) };
    let mut last = 0;
    for at in series.arrivals(plan).take(10_000) {
        assert!(at >= last && at < plan.duration_ns);
        last = at;
    }
});
