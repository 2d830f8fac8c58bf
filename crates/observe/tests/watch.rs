//! The watch on real servers: its counts are compared with those of a client, of the scheduler, and of scans. Also
//! the exact profile, which shares a guest with it. Needs root or CAP_BPF and CAP_PERFMON; tests that do not run
//! print why.

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
