//! Tests of the whole crate with synthetic servers, whose true yield and failure points are known.

mod account;
mod axis;
mod calibration;
mod causes;
mod changes;
mod claims;
mod compare_power;
mod comparison;
mod crowded;
mod fits;
mod fixture;
mod grid;
mod headroom;
mod index;
mod laws;
mod layout;
mod limit;
mod parked;
mod prediction;
mod prediction_inputs;
mod prediction_limits;
mod price;
mod proof;
mod properties;
mod quantiles;
mod queueing;
mod recorded;
mod recording;
mod reference;
mod repair;
mod rules;
mod search;
mod server;
mod simulation;
mod slow_down;
mod stalling;
mod sure;
mod sweep;
mod unloading;
mod workers;
mod zones;

/// Whether slow tests run at full length (`make test-long`).
fn long_run() -> bool {
    std::env::var_os("STRAINGAUGE_LONG").is_some_and(|value| value == "1")
}
