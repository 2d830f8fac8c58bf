//! The watch on real servers: what it counts is compared with what a client counts, with the scheduler, with scans.
//! Needs root or CAP_BPF and CAP_PERFMON; says so where it does not run.
#![cfg(feature = "bpf")]

#[path = "../../../testbed/guest/boot.rs"]
mod boot;
#[path = "watch/client.rs"]
mod client;
#[path = "watch/counts.rs"]
mod counts;
#[path = "watch/faults.rs"]
mod faults;
#[path = "watch/older_kernel.rs"]
mod older_kernel;
#[path = "watch/rig.rs"]
mod rig;
#[path = "watch/servers.rs"]
mod servers;
#[path = "watch/unprivileged.rs"]
mod unprivileged;
