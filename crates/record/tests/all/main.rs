//! Tests of the record crate.

mod fault;
mod histograms;
mod layers;
mod machine;
mod numbers;
mod profile;
mod run;
mod scenario;
mod text;
mod watch;
