//! The path between client and server.
//!
//! On one machine, [`NamespacePair`] gives each side a separate network namespace, joined by a veth pair, and steers
//! each side's receive processing to that side's CPUs. So neither side's traffic uses the other's CPU time, and the
//! counters include no other traffic of the machine.
//!
//! They may be connected by an emulated wide-area path ([`record::PathPlan`]) with delay, loss, bandwidth and quick
//! acknowledgements. The kernel's netem emulates it, or straingauge's delay line between two TUN devices if the
//! kernel has no netem. [`NamespacePair::self_test`] checks the path against its plan; [`NamespacePair::path_meter`]
//! measures its lateness.
//!
//! A run leaves no namespace behind. The namespaces have no name: the kernel removes them, and the links in them,
//! with their last process. Only the server's processes and their control group could remain when the run is killed;
//! [`LEFTOVERS`] finds and ends them.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let plan = wan::PairPlan { server_cpus: vec![1], client_cpus: vec![0], ..Default::default() };
//! let pair = wan::NamespacePair::create(&plan)?;
//! let mut server = std::process::Command::new("nginx");
//! pair.run_server(&mut server)?;
//! let child = server.spawn()?;
//! pair.enter_client()?; // this thread, and the threads it makes from now on, are the client side
//! let address = pair.server_addr_v4();
//! // ... load `address` ...
//! pair.leave()?;
//! pair.remove()?;
//! # drop(child); Ok(()) }
//! ```

mod affinity;
mod capabilities;
mod cgroup;
mod error;
mod ethtool;
mod namespace;
mod pair;
mod setting;
mod stale;

// Public for tests/all only.
#[doc(hidden)]
pub mod delay_line;
#[doc(hidden)]
pub mod link;
#[doc(hidden)]
pub mod meter;
#[doc(hidden)]
pub mod rtnetlink;
#[doc(hidden)]
pub mod self_test;
#[doc(hidden)]
pub mod steering;
#[doc(hidden)]
pub mod tun;

pub use affinity::pin;
pub use capabilities::capabilities;
pub use cgroup::ServerCgroup;
pub use error::WanError;
pub use link::has_netem;
pub use meter::{PathMeter, PathTally};
pub use namespace::NetNamespace;
pub use pair::{NamespacePair, PairPlan};
pub use self_test::SelfTest;
pub use stale::LEFTOVERS;
