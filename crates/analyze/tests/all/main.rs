//! Tests of the whole room against synthetic servers, whose true yield and failure points are known.

mod axis;
mod browser;
mod comparison;
mod fits;
mod fixture;
mod golden;
mod prediction;
mod properties;
mod queueing;
mod reference;
mod repair;
mod reporting;
mod rules;
mod search;
mod server;
mod simulated;
mod simulation;
mod told;
