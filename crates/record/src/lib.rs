//! The data of a run: scenario, points, figures, doubts, histograms, and the run directory that contains them.
//!
//! This crate knows neither network nor server. Every other crate depends on it, and it depends on none.
//!
//! # The four instants of a request
//!
//! *intended send* (the time in the schedule), *actual send*, *first byte*, *last byte*. From them:
//!
//! - **response time** = last byte - intended send: the time that a user of the service waits;
//! - **service time** = last byte - actual send: the time that the server and the path took;
//! - **schedule lag** = actual send - intended send: the generator's lateness, shown with the other two.
//!
//! In a closed loop the intended send is the actual one, because the next request is due when the last one ends.
//!
//! Read next: [`run`] (the directory), [`point`] (one load point), [`names`] (the meaning of every figure).

pub mod account;
pub mod axis;
pub mod boundaries;
mod clients;
pub mod doubt;
mod estimate;
pub mod fault;
pub mod figure;
pub mod histogram;
pub mod layers;
pub mod leftovers;
mod load_counts;
mod lock;
pub mod machine;
pub mod names;
mod outcome;
pub mod owner;
pub mod path;
pub mod point;
pub mod profile;
pub mod protocol;
pub mod run;
pub mod runs;
pub mod scenario;
mod sentence;
mod share;
pub mod shell;
mod slowest;
pub mod sum;
pub mod text;
pub mod time;
pub mod unfinished;
pub mod units;
pub mod watch;
pub mod watched;
mod what_if;
mod worded;
pub mod workload;

pub use axis::{Axis, AxisPlace, AxisPlan, SlowPlace};
pub use clients::{ClientPlan, CloseFirst, FixedBandwidth, TlsPlan};
pub use doubt::{Doubt, DoubtKind, Severity};
pub use estimate::Estimate;
pub use figure::{Figure, Figures, Origin};
pub use histogram::Latency;
pub use load_counts::{LoadCounts, LoadTimes};
pub use lock::lock;
pub use outcome::Outcomes;
pub use path::{PathMechanism, PathPlan};
pub use point::{Point, Sweep};
pub use run::{RunDir, RunError, RunRecord, RunWriter, Status};
pub use scenario::{Arrival, Criteria, LoadPlan, LoadRun, Pace, RunKind, Scenario, other_rate_ratio};
pub use sentence::sentence;
pub use share::LoadShare;
pub use slowest::{SLOWEST, SlowRequest, Slowest, TraceId};
pub use text::PlainText;
pub use watched::{ClientSide, Watched, WatchedClass, WatchedProcess};
pub use what_if::WhatIf;
pub use workload::{Workload, WorkloadResult};
