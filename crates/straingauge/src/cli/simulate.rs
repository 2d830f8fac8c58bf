//! `straingauge simulate`.

use super::WorkloadOptions;
use super::axis::{AxisWord, OF_THE_STACK};
use crate::quantity::{Bytes, Count, Rate, Time};
use clap::{ArgGroup, Args};
use serde::Deserialize;
use std::path::PathBuf;

/// `straingauge simulate`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("served").args(["server", "scenario"]).multiple(true)))]
pub struct SimulateArgs {
    /// Vary one thing, a point for each value; connections by default
    #[arg(long, value_name = "AXIS", value_parser = OF_THE_STACK, help_heading = "Points")]
    pub axis: Option<AxisWord>,
    /// Values along the axis, as 4,32,128 [default: connections: {simulate_connections}; others: none]
    #[arg(long, value_name = "LIST", help_heading = "Points", allow_hyphen_values = true)]
    pub axis_values: Option<String>,
    /// Connections, beside another axis [default: {simulate_held_connections}]
    #[arg(long, short = 'c', value_name = "N", help_heading = "Points")]
    pub connections: Option<Count>,
    /// Requests per second (open loop); of the microbenchmark, full segments per second over all connections [default:
    /// closed loop; of the microbenchmark: {simulate_rate}]
    #[arg(long, short = 'r', value_name = "RATE", help_heading = "Points")]
    pub rate: Option<Rate>,
    /// One-way delay of an emulated path [default: no delay]
    #[arg(long, value_name = "TIME", help_heading = "Points")]
    pub delay: Option<Time>,
    /// Packets that are counted [default: {packets}]
    #[arg(long, value_name = "N", help_heading = "Points")]
    pub packets: Option<Count>,
    /// Load before the window, in the guest's time, with a server [default: {simulate_warmup}]
    #[arg(long, value_name = "TIME", requires = "served", help_heading = "Points", allow_hyphen_values = true, value_parser = crate::quantity::seconds)]
    pub warmup: Option<Time>,
    /// Length of the window, in the guest's time, with a server [default: {simulate_duration}]
    #[arg(long, short = 'd', value_name = "TIME", requires = "served", help_heading = "Points", allow_hyphen_values = true, value_parser = crate::quantity::seconds)]
    pub duration: Option<Time>,
    /// Boots, each with other places in memory; tables show the mean, and the range where it matters [default: {seeds}]
    #[arg(long, value_name = "K", help_heading = "Points")]
    pub seeds: Option<Count>,
    /// Read options from a TOML file: the load, its server, the path's delay, and the machine's details in [simulate]
    #[arg(long, value_name = "FILE", help_heading = "Points")]
    pub scenario: Option<PathBuf>,
    /// Size of L1I and of L1D [default: {l1}]
    #[arg(long, value_name = "BYTES", help_heading = "Caches")]
    pub l1: Option<Bytes>,
    /// Sizes of L2, up to eight, all in the same pass [default: {l2}]
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', help_heading = "Caches")]
    pub l2: Vec<Bytes>,
    /// Size of an L3 after the first L2 [default: none]
    #[arg(long, value_name = "BYTES", help_heading = "Caches")]
    pub l3: Option<Bytes>,
    /// Let L2 bring the next line when it misses
    #[arg(long, help_heading = "Caches")]
    pub next_line_prefetch: bool,
    /// Count instructions alone, several times faster
    #[arg(long, conflicts_with_all = ["l1", "l2", "l3", "curve", "next_line_prefetch", "objects", "repack", "cost"], help_heading = "Caches")]
    pub no_caches: bool,
    /// Report what L2 would miss at every size up to a million lines, too (fully associative, from distances of reuse)
    #[arg(long, help_heading = "What is reported")]
    pub curve: bool,
    /// Count by kernel object, its lines and fields, too, and what prefetching objects would hide
    #[arg(long, help_heading = "What is reported")]
    pub objects: bool,
    /// Run each point again with the fields of these structures in the order of their accesses (tcp_sock, socket_alloc, file, ...)
    #[arg(long, value_name = "STRUCT,...", value_delimiter = ',', help_heading = "What is reported")]
    pub repack: Vec<String>,
    /// Estimate cycles, too: what an instruction, a miss of L1 and, on top, a miss of the first L2 cost; nothing overlaps
    #[arg(
        long,
        value_name = "CYCLES,CYCLES,CYCLES",
        value_delimiter = ',',
        num_args = 1,
        help_heading = "What is reported"
    )]
    pub cost: Vec<f64>,
    /// Functions listed by misses [default: {functions}]
    #[arg(long, value_name = "N", help_heading = "What is reported")]
    pub functions: Option<Count>,
    /// The guest's kernel: vmlinuz-VERSION beside its modules, or the folder of an unpacked kernel package
    #[arg(long, value_name = "PATH", help_heading = "Guest")]
    pub kernel: Option<PathBuf>,
    /// The emulator [default: qemu-system-x86_64 of PATH]
    #[arg(long, value_name = "PATH", help_heading = "Guest")]
    pub qemu: Option<PathBuf>,
    /// The guest's memory [default: {memory}]
    #[arg(long, value_name = "BYTES", help_heading = "Guest")]
    pub memory: Option<Bytes>,
    /// The longest that a boot or a point may take on this machine [default: {guest_timeout}]
    #[arg(long, value_name = "TIME", help_heading = "Guest")]
    pub guest_timeout: Option<Time>,
    /// Where the server listens [default: {port}]
    #[arg(long, value_name = "PORT", requires = "served", help_heading = "Server in the guest (with -- SERVER ...)")]
    pub port: Option<u16>,
    /// Path of the requests [default: /]
    #[arg(long, value_name = "PATH", requires = "served", help_heading = "Server in the guest (with -- SERVER ...)")]
    pub path: Option<String>,
    /// A file or folder that the server needs in the guest, at the same path (repeatable; files in its arguments are included)
    #[arg(long, value_name = "PATH", requires = "served", help_heading = "Server in the guest (with -- SERVER ...)")]
    pub file: Vec<PathBuf>,
    /// An empty folder that the server needs in the guest (repeatable)
    #[arg(long, value_name = "PATH", requires = "served", help_heading = "Server in the guest (with -- SERVER ...)")]
    pub folder: Vec<String>,
    /// Close a connection after N requests, and open another; 1 = no keep-alive [default: never]
    #[arg(
        long,
        value_name = "N",
        requires = "served",
        help_heading = "Server in the guest (with -- SERVER ...)",
        allow_hyphen_values = true
    )]
    pub requests_per_connection: Option<Count>,
    /// Request the URLs of this file in turn
    #[arg(long, value_name = "FILE", requires = "served", help_heading = "Server in the guest (with -- SERVER ...)")]
    pub urls: Option<PathBuf>,
    #[command(flatten)]
    pub workload: WorkloadOptions,
    /// Keep the run in this directory, for straingauge report [default: not kept]
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Print JSON, not tables
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// A server of this machine to run in the guest instead of the microbenchmark, in the foreground
    #[arg(last = true, value_name = "SERVER")]
    pub server: Vec<String>,
}

/// `[simulate]` of a scenario file: the machine's details.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct SimulateToml {
    /// Packets before the count; at least two a connection.
    pub warmup_packets: Option<Count>,
    /// Ways of L1I and of L1D.
    pub l1_ways: Option<Count>,
    /// Ways of L2.
    pub l2_ways: Option<Count>,
    /// Ways of L3.
    pub l3_ways: Option<Count>,
    /// Length of a line.
    pub line: Option<Bytes>,
    /// Which line of a full set is replaced.
    pub replacement: Option<ReplacementWord>,
    /// Entries of ITLB and of DTLB, 8-way; 0 for none.
    pub tlb: Option<Count>,
}

/// Which line is replaced.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplacementWord {
    /// The one that was not used for the longest time
    #[default]
    Lru,
    /// The one that the bits of a tree point to, as processors approximate it
    Plru,
}
