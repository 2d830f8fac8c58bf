//! The watch on real servers: what it counts is compared with what a client counts, with the scheduler, with scans. And
//! the exact profile, which shares a guest with it. Needs root or CAP_BPF and CAP_PERFMON; reports where it does not
//! run.

#[path = "watch/account.rs"]
mod account;
#[path = "../../../testbed/guest/boot.rs"]
mod boot;
#[path = "watch/churn.rs"]
mod churn;
#[path = "watch/client.rs"]
mod client;
#[path = "watch/counts.rs"]
mod counts;
#[path = "watch/disk.rs"]
mod disk;
#[path = "exact/mod.rs"]
mod exact;
#[path = "watch/failing_steps.rs"]
mod failing_steps;
#[path = "watch/faults.rs"]
mod faults;
#[path = "watch/guest.rs"]
mod guest;
#[path = "watch/loads.rs"]
mod loads;
#[path = "watch/older_kernel.rs"]
mod older_kernel;
#[path = "watch/overload.rs"]
mod overload;
#[path = "watch/packs.rs"]
mod packs;
#[path = "watch/process_ids.rs"]
mod process_ids;
#[path = "watch/proxy.rs"]
mod proxy;
#[path = "watch/rig.rs"]
mod rig;
#[path = "watch/secure.rs"]
mod secure;
#[path = "watch/servers.rs"]
mod servers;
#[path = "watch/slow_places.rs"]
mod slow_places;
#[path = "watch/streams.rs"]
mod streams;
#[path = "watch/unprivileged.rs"]
mod unprivileged;
#[path = "watch/validation.rs"]
mod validation;
#[path = "watch/ways.rs"]
mod ways;
