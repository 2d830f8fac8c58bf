//! End-to-end tests: the real binary against real servers, on loopback and in network namespaces that it creates.
//!
//! All tests are in one binary, which links once. [`rig`] runs straingauge and reads its output; [`server`] starts
//! the testbed's servers, [`document_server`] serves the documents of a workload; [`broken_server`] misbehaves on
//! purpose. A test that cannot run here writes `SKIPPED name: why` and returns; `.ci/sum` counts it.

mod axis;
mod bad_input;
mod bad_workloads;
mod beside;
mod broken_server;
/// Arguments with which [`person`] starts the browser.
mod browser {
    pub use crate::report_page::ARGUMENTS;
}
mod ci_output;
mod clients;
mod command_line_parts;
mod compare_page;
mod document_server;
mod documented;
mod exports;
mod find;
mod fleet_loads;
mod fleet_nodes;
mod grpc;
mod headroom;
mod help;
mod interruption;
mod leftovers;
mod live;
mod load_counts;
mod measuring_parts;
mod metrics;
mod mixes;
mod network_cuts;
mod package;
#[allow(dead_code)]
#[path = "../../report/tests/all/person.rs"]
mod person;
mod plan_parts;
mod planted;
mod predict;
mod privileges;
mod process_parts;
mod profile_input;
mod profile_kept;
mod profile_sweep;
mod protocols;
mod prove;
#[allow(dead_code)]
#[path = "../../analyze/tests/all/recorded.rs"]
mod recorded;
mod replay;
mod report_page;
mod requests;
mod rig;
mod rooms;
mod runs;
mod schemas;
mod server;
mod server_elsewhere;
mod serving_parts;
mod shift;
mod slow_down;
mod slowest;
mod ssh_workers;
mod stall;
mod text_from_outside;
mod tools;
mod unload;
mod wan;
mod watch;
mod watch_degraded;
mod watch_elsewhere;
mod worker_faults;
mod worker_times;
mod workers;
