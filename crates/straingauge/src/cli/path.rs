//! The options of the wide-area path, the same for every command that has one.

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
    /// In each direction: a round trip takes twice as long. [default: no delay]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub delay: Option<Time>,
    /// Drop this share of the packets in each direction, as 0.1% [default: none]
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true)]
    pub loss: Option<Share>,
    /// Bandwidth in each direction, in bits per second, as 100Mbit [default: no limit]
    #[arg(long, value_name = "BITS", allow_hyphen_values = true)]
    pub bandwidth: Option<Bandwidth>,
    // In scenario files, and typed for `wan`: acknowledge every segment at once, at both ends: no delayed ACKs.
    #[arg(skip)]
    pub quickack: bool,
    // What makes the path, without it netem where the kernel has it, else tun.
    #[arg(skip)]
    pub path_by: Option<PathWord>,
}
overlay!(PathOptions; delay, loss, bandwidth, path_by, quickack);

/// The mechanisms that make a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathWord {
    /// The kernel's netem
    Netem,
    /// A delay line between two TUN devices
    Tun,
}

impl PathOptions {
    /// Whether any option asks for a path.
    pub fn is_set(&self) -> bool {
        *self != PathOptions::default()
    }
}
