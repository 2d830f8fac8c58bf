//! `straingauge simulate`.

use super::{ClientOptions, WorkloadOptions};
use crate::quantity::{Bytes, Count, Time};
use clap::{ArgGroup, Args, ValueEnum};
use std::path::PathBuf;

/// `straingauge simulate`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("served").args(["server", "scenario"]).multiple(true)))]
pub struct SimulateArgs {
    /// Open connections, a point each [default: 4,32,128,512]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub connections: Vec<Count>,
    /// Packets (with a server: requests) a second over all connections, a point each [default: 8333 packets, 100 Mbit/s; a server: closed loop]
    #[arg(long, value_name = "N,...", value_delimiter = ',')]
    pub rate: Vec<Count>,
    /// One-way delay of the path, a point each [default: 0ms]
    #[arg(long, value_name = "TIME,...", value_delimiter = ',')]
    pub delay: Vec<Time>,
    /// Packets that are counted [default: 4000]
    #[arg(long, value_name = "N")]
    pub packets: Option<Count>,
    /// Packets before the count, at least two a connection [default: 1000]
    #[arg(long, value_name = "N")]
    pub warmup_packets: Option<Count>,
    /// Size of L1I and of L1D [default: 64KiB]
    #[arg(long, value_name = "BYTES")]
    pub l1: Option<Bytes>,
    /// Ways of L1I and of L1D [default: 2]
    #[arg(long, value_name = "N")]
    pub l1_ways: Option<Count>,
    /// Sizes of L2, up to eight, all in the same pass [default: 256KiB,512KiB,1MiB]
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',')]
    pub l2: Vec<Bytes>,
    /// Ways of L2 [default: 16]
    #[arg(long, value_name = "N")]
    pub l2_ways: Option<Count>,
    /// Size of an L3 behind the first L2 [default: none]
    #[arg(long, value_name = "BYTES")]
    pub l3: Option<Bytes>,
    /// Ways of L3 [default: 16]
    #[arg(long, value_name = "N", requires = "l3")]
    pub l3_ways: Option<Count>,
    /// Length of a line [default: 64]
    #[arg(long, value_name = "BYTES")]
    pub line: Option<Bytes>,
    /// Which line of a full set makes room [default: lru]
    #[arg(long, value_name = "RULE")]
    pub replacement: Option<ReplacementWord>,
    /// Entries of ITLB and of DTLB, 8-way; 0 for none [default: 64]
    #[arg(long, value_name = "N")]
    pub tlb: Option<Count>,
    /// Let L2 bring the next line when it misses
    #[arg(long)]
    pub next_line_prefetch: bool,
    /// Also say what L2 would miss at every size (fully associative, from distances of reuse)
    #[arg(long)]
    pub curve: bool,
    /// Also count by kernel object, its lines and fields, and say what prefetching objects would hide
    #[arg(long)]
    pub objects: bool,
    /// Also run each point with the fields of these structures in the order of their accesses (tcp_sock, socket_alloc, file, ...)
    #[arg(long, value_name = "STRUCT,...", value_delimiter = ',')]
    pub repack: Vec<String>,
    /// Also estimate cycles: what an instruction, a miss of L1 and, on top, a miss of the first L2 cost; nothing overlaps
    #[arg(long, value_name = "CYCLES,CYCLES,CYCLES", value_delimiter = ',', num_args = 1)]
    pub cost: Vec<f64>,
    /// Count instructions alone, several times faster
    #[arg(long, conflicts_with_all = ["l1", "l2", "l3", "curve", "next_line_prefetch", "tlb", "objects", "repack", "cost"])]
    pub no_caches: bool,
    /// Boots, each with other places in memory; tables show the mean, and the range where it matters [default: 1]
    #[arg(long, value_name = "K")]
    pub seeds: Option<Count>,
    /// Functions listed by misses [default: 10]
    #[arg(long, value_name = "N")]
    pub functions: Option<Count>,
    /// The guest's kernel: vmlinuz-VERSION beside its modules, or the folder of an unpacked kernel package
    #[arg(long, value_name = "PATH")]
    pub kernel: Option<PathBuf>,
    /// The emulator [default: qemu-system-x86_64 of PATH]
    #[arg(long, value_name = "PATH")]
    pub qemu: Option<PathBuf>,
    /// The guest's memory [default: 512MiB]
    #[arg(long, value_name = "BYTES")]
    pub memory: Option<Bytes>,
    /// The longest that a boot or a point may take on this machine [default: 10m]
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Time>,
    /// Where the server listens [default: 8080]
    #[arg(long, value_name = "PORT", requires = "served")]
    pub port: Option<u16>,
    /// What is asked of the server [default: /]
    #[arg(long, value_name = "PATH", requires = "served")]
    pub path: Option<String>,
    /// A file or folder that the server needs in the guest, at the same path (repeatable; what its arguments name comes by itself)
    #[arg(long, value_name = "PATH", requires = "served")]
    pub file: Vec<PathBuf>,
    /// An empty folder that the server needs in the guest (repeatable)
    #[arg(long, value_name = "PATH", requires = "served")]
    pub folder: Vec<String>,
    /// Load before the count, in the guest's time [default: 300ms]
    #[arg(long, value_name = "TIME", requires = "served")]
    pub warmup: Option<Time>,
    /// Length of the count, in the guest's time [default: 500ms]
    #[arg(long, short = 'd', value_name = "TIME", requires = "served", value_parser = crate::quantity::seconds)]
    pub duration: Option<Time>,
    /// Read the load, its server and the path's delay from a TOML file of load and find; the command line wins
    #[arg(long, value_name = "FILE")]
    pub scenario: Option<PathBuf>,
    /// Close and reopen a connection after this many requests; 1 = no keep-alive [default: never]
    #[arg(long, value_name = "N", requires = "served")]
    pub requests_per_connection: Option<Count>,
    /// Visit the paths of this file in turn, one a line; with a weight behind one of them, in proportion to the weights
    #[arg(long, value_name = "FILE", requires = "served")]
    pub urls: Option<PathBuf>,
    #[command(flatten)]
    pub workload: WorkloadOptions,
    #[command(flatten)]
    pub clients: ClientOptions,
    /// Keep the counts in this new run directory, for `straingauge report`
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print JSON instead of tables
    #[arg(long)]
    pub json: bool,
    /// A server of this machine to run in the guest instead of the microbenchmark, in the foreground
    #[arg(last = true, value_name = "SERVER")]
    pub server: Vec<String>,
}

/// Which line makes room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ReplacementWord {
    /// The one that was not used for the longest time
    Lru,
    /// The one that the bits of a tree point to, as processors approximate it
    Plru,
}
