//! The axes that can be varied, named alike in all commands.

use clap::ValueEnum;
use serde::Deserialize;

/// An axis, as typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AxisWord {
    /// Connections of the closed loop
    Connections,
    /// Requests per second of the open loop, also far beyond the capacity
    Rate,
    /// Requests in flight on each connection (HTTP/2, redis, memcached, tcp)
    InFlight,
    /// Idle connections held open during the load
    Cold,
    /// Connections of fixed bandwidth; shows how many get it
    Conforming,
    /// TIME_WAIT sockets on the server
    TimeWait,
    /// One-way delay of the path between client and server
    Delay,
    /// Delay added at places of the server's code (--places); shows which place limits it most
    SlowDown,
    /// CPUs of the server that straingauge starts, anew for each number
    Cpus,
}

impl From<AxisWord> for record::Axis {
    fn from(word: AxisWord) -> Self {
        let word = word.to_possible_value();
        let is_its = |axis: &Self| word.as_ref().is_some_and(|word| word.matches(axis.word(), false));
        Self::ALL.into_iter().find(is_its).unwrap_or(Self::Other)
    }
}
