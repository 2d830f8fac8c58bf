//! The options of the wide-area path, shared by the commands that have them.

use super::overlay;
use crate::quantity::{Bandwidth, Share, Time};
use clap::{Args, ValueEnum};
use serde::Deserialize;

/// The heading of these options in help.
pub const PATH_HEADING: &str = "Wide-area path between client and server (needs root)";

/// The path between client and server.
#[derive(Debug, Default, Clone, PartialEq, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
#[command(next_help_heading = PATH_HEADING)]
pub struct PathOptions {
    /// One-way delay of an emulated path
    ///
    /// The delay applies in each direction, so a round trip takes twice as long. [default: no delay]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub delay: Option<Time>,
    /// Drop this share of the packets in each direction, e.g. 0.1% [default: none]
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    pub loss: Option<Share>,
    /// Bandwidth in each direction, in bits per second, e.g. 100Mbit [default: no limit]
    #[arg(long, value_name = "BITS", allow_hyphen_values = true)]
    pub bandwidth: Option<Bandwidth>,
    // Scenario files and `wan` only: both ends acknowledge every segment at once (no delayed ACKs).
    #[arg(skip)]
    pub quickack: bool,
    // Mechanism of the path; by default netem if the kernel has it, else tun.
    #[arg(skip)]
    pub path_by: Option<PathWord>,
}
overlay!(PathOptions; delay, loss, bandwidth, path_by, quickack);

/// Mechanisms for a path, as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathWord {
    /// The kernel's netem
    Netem,
    /// A delay line between two TUN devices
    Tun,
}

impl PathOptions {
    /// Whether any path option is set.
    pub fn is_set(&self) -> bool {
        *self != PathOptions::default()
    }
}
