//! Renders the synthetic runs of the tests in `analyze`, and recorded runs.

mod browser;
mod chart;
mod ci;
mod compare;
mod counters;
mod doubt;
mod export;
#[allow(dead_code)]
#[path = "../../../analyze/tests/all/fixture.rs"]
mod fixture;
mod flame;
mod golden;
mod markup;
mod metrics;
mod one_set;
mod person;
mod predict;
#[path = "../../../analyze/tests/all/recorded.rs"]
mod recorded;
mod reporting;
mod runs;
#[allow(dead_code)]
#[path = "../../../analyze/tests/all/server.rs"]
mod server;
mod tables;
mod watch;
