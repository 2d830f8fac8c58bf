//! Load from several machines: a *worker* is any command that speaks the protocol on its standard input and output
//! (`straingauge load --worker`, over ssh or here), the *driver* is the straingauge that started it (`--client`).
//!
//! Read next: [`protocol`] (messages, with those of watchers in `observation`), [`session`] (the worker's side, with [`serve`] for load and [`serve_watch`] for a watcher), [`link`] (one worker as the driver sees it),
//! [`fleet`] (a load over all of them), [`merge`] (shares and sums; what is believed of a result stands in `consistency`), [`account`] (what is told of
//! each), [`complaints`] (its standard error), [`permit`] (what is refused before), [`ray`] (workers on the nodes of a Ray cluster), [`sources`] (addresses from
//! which a worker connects), [`watcher`] (the watcher of a server elsewhere, `--watch-with`).

mod account;
mod complaints;
mod fleet;
mod link;
mod merge;
mod permit;
pub mod protocol;
mod ray;
pub mod serve;
pub mod serve_watch;
mod session;
mod sources;
mod watcher;

#[cfg(test)]
#[path = "../../fuzz/properties/worker_protocol.rs"]
mod properties;

pub use account::leave_out_uncounted;
pub use fleet::Fleet;
pub use permit::connect;
pub use protocol::{WireClient, WireWatch};
pub use sources::Sources;
pub use watcher::Watcher;
