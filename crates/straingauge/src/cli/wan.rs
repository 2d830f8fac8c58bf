use super::path::{PATH_HEADING, PathOptions, PathWord};
use crate::quantity::Time;
use clap::Args;

/// Help on COMMAND's environment. The lines are wrapped by hand, because clap does not wrap them.
const TOPOLOGY: &str = "\
COMMAND is the client: it runs alone in a network namespace with the address 198.18.0.2 (fd00::2),
in this terminal. What it reaches is the other end of the path, 198.18.0.1 (fd00::1), where
--server starts a server; both find the server's addresses in STRAINGAUGE_SERVER and
STRAINGAUGE_SERVER_V6. Nothing else is reachable from either end.

The exit code is COMMAND's, or 128 + N when signal N ended it.";

/// `straingauge wan`.
#[derive(Debug, Args)]
#[command(after_long_help = TOPOLOGY)]
pub struct WanArgs {
    #[command(flatten)]
    pub path: PathOptions,
    /// Acknowledge every segment at once, at both ends (no delayed ACKs)
    #[arg(long, help_heading = PATH_HEADING)]
    pub quickack: bool,
    /// Mechanism of the path [default: netem if the kernel has it, else tun]
    #[arg(long, value_enum, help_heading = PATH_HEADING)]
    pub path_by: Option<PathWord>,
    /// Seed of random choices: losses [default: {seed}]
    #[arg(long, value_name = "N", help_heading = PATH_HEADING)]
    pub seed: Option<u64>,
    /// Shell command that starts the server at the other end
    ///
    /// COMMAND starts when the server listens.
    #[arg(long, value_name = "SHELL COMMAND", help_heading = "Server at the other end")]
    pub server: Option<String>,
    /// Wait this long for the server to accept connections [default: {server_timeout}]
    #[arg(long, value_name = "TIME", help_heading = "Server at the other end")]
    pub server_timeout: Option<Time>,
    /// Print JSON: path, self-test and counts
    ///
    /// One line on standard error at the end.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Show no progress
    #[arg(long, short = 'q', help_heading = "Output")]
    pub quiet: bool,
    /// Program to run, and its arguments: everything after --
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}
