//! Options of load from several machines.

use super::overlay;
use clap::{Args, ValueEnum};
use serde::Deserialize;

/// Options of the client machines.
#[derive(Debug, Default, Clone, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Client machines")]
pub struct FleetOptions {
    /// Send the load from this worker instead, as in 'ssh c1 straingauge load --worker' (repeatable: rate and connections
    /// are split, results added up)
    #[arg(long = "client", value_name = "COMMAND")]
    pub client: Vec<String>,
    /// When a worker is lost: stop the others, or go on without it [default: end]
    #[arg(long, value_enum)]
    pub on_worker_loss: Option<WorkerLossWord>,
    /// Target that several clients may send to (repeatable); loopback needs none
    #[arg(long = "allow-target", value_name = "HOST")]
    pub allow_target: Vec<String>,
}

/// The words for what a lost worker means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerLossWord {
    /// The others stop, what was measured is kept
    End,
    /// The others go on
    GoOn,
}

impl FleetOptions {
    /// What was typed, with the gaps filled from a scenario file.
    pub fn over(mut self, file: FleetOptions) -> Self {
        let typed = &mut self;
        overlay!(typed, file; on_worker_loss);
        if typed.client.is_empty() {
            typed.client = file.client;
        }
        if typed.allow_target.is_empty() {
            typed.allow_target = file.allow_target;
        }
        self
    }
}
