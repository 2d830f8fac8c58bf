//! Load from several machines: a *worker* is any command that speaks the protocol on its standard input and output
//! (`straingauge load --worker`, over ssh or here), the *driver* is the straingauge that started it (`--client`).
//!
//! Read next: [`protocol`] (messages), [`serve`] (the worker's side), [`link`] (one worker as the driver sees it),
//! [`fleet`] (a load over all of them), [`merge`] (shares and sums), [`account`] (what is told of
//! each), [`permit`] (what is refused before), [`ray`] (workers on the nodes of a Ray cluster), [`sources`] (addresses from
//! which a worker connects).

mod account;
mod fleet;
mod link;
mod merge;
mod permit;
pub mod protocol;
mod ray;
pub mod serve;
mod sources;

pub use fleet::Fleet;
pub use permit::connect;
pub use sources::Sources;
