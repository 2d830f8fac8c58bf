//! Options that `load` and `find` share: target, server, load, output.

use super::MetricsOptions;
use super::overlay;
use super::scenario::Options;
use super::summary::SummaryOptions;
use crate::quantity::Time;
use clap::{Args, ValueEnum};
use serde::Deserialize;
use std::path::PathBuf;

/// Arguments of both commands.
#[derive(Debug, Args)]
pub struct DriveArgs {
    /// Read options from a TOML file
    ///
    /// Options on the command line override the file. Sections: load, workload, protocol, clients, fleet, path, find,
    /// server, watching; keys are the long options. find also answers the questions of section predict. Some keys
    /// have no option: give them in the file or with --set. Section load: connect-timeout, connect-rate, precise,
    /// source-address; workload: classes, trace-format, dynamic-urls, dynamic-share, session-gap, logged-host; clients:
    /// close-first, demanded-bandwidth; fleet: on-worker-loss; path: path-by, quickack; watching: response-classes;
    /// find: min-connections, error-limit, goodput-limit, settle, elastic-gain, saturation, efficiency-loss, bracket,
    /// conforming-share. docs/load.md describes them.
    #[arg(long, value_name = "FILE", help_heading = "Scenario")]
    pub scenario: Option<PathBuf>,
    /// Set one key of a scenario file, e.g. find.settle=5s
    ///
    /// SECTION.KEY=VALUE; overrides the file. Repeatable.
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Scenario")]
    pub set: Vec<String>,
    #[command(flatten)]
    pub options: Options,
    #[command(flatten)]
    pub output: OutputOptions,
}

/// Options of the server that is started after `--`.
#[derive(Debug, Default, Clone, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = "Server under test (with -- SERVER ...)")]
pub struct ServerOptions {
    /// Run client and server in separate network namespaces, connected by veth [default: {isolate}]
    ///
    /// With `auto`, `find` starts a server again in this machine's namespace if its first request fails because the
    /// server itself reaches nothing outside its own (a database on this machine, say).
    ///
    /// With --server-with, `always` fails if a client shares the server's network stack, or if the server gets no
    /// control group.
    #[arg(long, value_enum)]
    pub isolate: Option<IfPermitted>,
    /// Pin the server to these CPUs
    ///
    /// [default: those that the client does not get]
    #[arg(long, value_name = "LIST")]
    pub server_cpus: Option<String>,
    /// Wait this long for the server to accept connections [default: {server_timeout}]
    #[arg(long, value_name = "TIME")]
    pub server_timeout: Option<Time>,
    /// Server to start and watch, after --
    ///
    /// It is stopped at the end.
    #[arg(last = true, value_name = "SERVER", help_heading = None)]
    pub command: Vec<String>,
}
impl ServerOptions {
    /// Timeout for the server to accept connections.
    pub fn timeout(&self) -> std::time::Duration {
        self.server_timeout.map_or(crate::defaults::SERVER_TIMEOUT, |time| time.0)
    }
}
overlay!(ServerOptions; isolate, server_cpus, server_timeout, command);

/// Options for output and storage.
#[derive(Debug, Default, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputOptions {
    /// Keep the run in this directory
    ///
    /// The directory must not contain a run. [default: {out}]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print JSON, not tables
    #[arg(long)]
    pub json: bool,
    /// Show no progress
    #[arg(long, short = 'q')]
    pub quiet: bool,
    #[command(flatten)]
    pub metrics: MetricsOptions,
    /// Also measure responses other than 2xx (redirects, errors)
    ///
    /// By default, find does not start if the server sends such responses, and load exits with code 1 if it sends no
    /// others.
    #[arg(long)]
    pub any_status: bool,
    #[command(flatten)]
    pub summary: SummaryOptions,
}

/// When to use features that need permission: namespaces, sampling.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IfPermitted {
    /// Use it if permitted
    #[default]
    Auto,
    /// Fail if not permitted
    Always,
    /// Never use it
    Never,
}
