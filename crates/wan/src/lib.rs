//! The path between client and server.
//!
//! On one machine, [`Pair`] gives each side a network namespace of its own, joined by a veth pair, and steers the receive
//! half of the network stack to the CPUs of the side that it belongs to: so the client's traffic does not run on the
//! server's CPU time, nor the other way round, and no other traffic of the machine is in the counters.
//!
//! Nothing outlives a run. The namespaces have no name: the kernel removes them, and the links in them, with their last
//! process. The server's processes are the only thing that could stay behind when the run is killed; [`remove_stale`]
//! finds and ends them.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! wan::remove_stale();
//! let plan = wan::PairPlan { name: "nginx".into(), server_cpus: vec![1], client_cpus: vec![0] };
//! let pair = wan::Pair::create(&plan)?;
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
mod cgroup;
mod error;
mod namespace;
mod pair;
mod rtnetlink;
mod stale;
mod state;
mod steering;

pub use affinity::pin;
pub use error::WanError;
pub use namespace::NetNamespace;
pub use pair::{Pair, PairPlan};
pub use stale::remove_stale;

/// Whether this process may make namespaces and links; the error says what to do when it may not.
pub fn is_permitted() -> Result<(), WanError> {
    NetNamespace::create().map(drop)
}
