//! The server and its machine, watched from outside while the load runs: counters, CPU time, connection states.
//!
//! An [`Observer`] watches the processes of one server ([`WatchTarget`]) in windows. [`Observer::window_begins`] and
//! [`Observer::window_ends`] take their readings at once, with the server's CPU clocks and the wall clock at nearly
//! the same time. In between, a thread samples momentary state (connection states, accept queue).
//! [`ObservedWindow::observation`] turns the difference into figures ([`record::names`]), each with its origin, or with
//! the reason why it could not be measured.
//!
//! No privilege is required, but without it fewer processes are visible, and the affected figures have the reason.
//! [`capabilities()`] lists what this machine can measure.
//!
//! ```no_run
//! use observe::{Group, Observer, WatchTarget};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let target = WatchTarget {
//!     port: 8080,
//!     group: Group::ListeningOn(8080),
//!     netns_pid: None,
//!     server_cpus: vec![],
//!     client_pid: std::process::id(),
//! };
//! let mut observer = Observer::start(target, std::time::Duration::from_millis(100))?;
//! observer.window_begins()?;
//! let completed = 1000; // ... load the server ...
//! let observation = observer.window_ends()?.observation(completed);
//! println!("{:?}", observation.figures.get(record::names::SERVER_CPU));
//! # Ok(()) }
//! ```
//!
//! A new source, such as a BPF program, is another reader like `network`: it is read at both ends of the window into
//! `window::WindowEdge`, or by the sampler into its samples, and `window` converts it into figures.

mod capabilities;
mod error;
mod facts;
mod maps;
mod namespace;
mod network;
mod observer;
pub mod proc_text;
pub mod profile;
mod sampler;
pub mod slow_down;
pub mod sock_diag;
pub mod watch;

// Public for tests/all only.
#[doc(hidden)]
pub mod account;
#[doc(hidden)]
pub mod backends;
#[doc(hidden)]
pub mod bpf;
#[doc(hidden)]
pub mod cpu_clock;
#[doc(hidden)]
pub mod go_file;
#[doc(hidden)]
pub mod goroutines;
#[doc(hidden)]
pub mod group;
#[doc(hidden)]
pub mod java;
#[doc(hidden)]
pub mod kept_file;
#[doc(hidden)]
pub mod limits;
#[doc(hidden)]
pub mod listening;
#[doc(hidden)]
pub mod machine;
#[doc(hidden)]
pub mod memory;
#[doc(hidden)]
pub mod outgoing;
#[doc(hidden)]
pub mod parked;
#[doc(hidden)]
pub mod port_sockets;
#[doc(hidden)]
pub mod processes;
#[doc(hidden)]
pub mod time_wait;
#[doc(hidden)]
pub mod wait_call;
#[doc(hidden)]
pub mod window;
#[doc(hidden)]
pub mod yardstick;

pub use capabilities::capabilities;
pub use error::ObserveError;
pub use group::{Group, WatchTarget};
pub use listening::{ServerProcess, listening_addresses, other_ports, server_on_port};
pub use network::FailedConnections;
pub use observer::Observer;
pub use time_wait::TimeWaitSockets;
pub use window::{Observation, ObservedWindow};
pub use yardstick::yardstick;
