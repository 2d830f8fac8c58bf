//! Scenario files. No text may make their reader panic. It is refused, or gives options whose numbers are in their
//! ranges.
//!
//! The program has no library, so its reader is compiled in from its source.

#![no_main]
#![allow(dead_code, unused_imports, missing_docs)]

#[path = "../../crates/straingauge/src/cli/mod.rs"]
mod cli;
#[path = "../../crates/straingauge/src/defaults.rs"]
mod defaults;
#[path = "../../crates/straingauge/src/quantity.rs"]
mod quantity;

/// The program's modules that the command line's source uses.
mod server {
    pub mod guardian {
        pub const COMMAND: &str = "guardian";
    }
}

use cli::Options;
use libfuzzer_sys::fuzz_target;
use quantity::Speed;

fuzz_target!(|text: &str| {
    let Ok(file) = toml::from_str::<Options>(text) else { return };
    let shares = [file.find.error_limit, file.find.saturation, file.workload.dynamic_share];
    for share in shares.into_iter().flatten() {
        assert!((0.0..=1.0).contains(&share.0), "{share:?}");
    }
    for rate in [file.load.rate, file.load.connect_rate].into_iter().flatten() {
        assert!(rate.0.is_finite() && rate.0 >= 0.0, "{rate:?}");
    }
    if let Some(Speed::Times(speed)) = file.workload.speed {
        assert!(speed.is_finite() && speed > 0.0, "{speed}");
    }
    for time in [file.load.duration, file.load.timeout, file.workload.session_gap].into_iter().flatten() {
        // Nanoseconds are counted in 64 bits.
        assert!(time.0.as_nanos() < 1 << 62, "{time:?}");
    }
});
