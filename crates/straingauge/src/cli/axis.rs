//! The quantities that can be varied: the same words in every command that varies one.

use clap::ValueEnum;
use clap::builder::{PossibleValue, TypedValueParser};
use serde::Deserialize;

/// The words for axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AxisWord {
    /// Connections of the closed loop
    Connections,
    /// Requests per second of the open loop, also far beyond the capacity
    Rate,
    /// Full segments per second of the microbenchmark
    PacketRate,
    /// Cold connections beside the load
    Cold,
    /// Connections of fixed bandwidth: how many conform
    Conforming,
    /// TIME_WAIT sockets on the server
    TimeWait,
    /// One-way delay of the path between client and server
    Delay,
}

impl From<AxisWord> for record::Axis {
    fn from(word: AxisWord) -> Self {
        match word {
            AxisWord::Connections => Self::Connections,
            AxisWord::Rate => Self::Rate,
            AxisWord::PacketRate => Self::PacketRate,
            AxisWord::Cold => Self::Cold,
            AxisWord::Conforming => Self::Conforming,
            AxisWord::TimeWait => Self::TimeWait,
            AxisWord::Delay => Self::Delay,
        }
    }
}

/// A parser for the axis words that a command accepts.
#[derive(Debug, Clone)]
pub struct Axes(pub &'static [AxisWord]);

/// What `find` varies.
pub const OF_FIND: Axes = Axes(&[
    AxisWord::Connections,
    AxisWord::Rate,
    AxisWord::Cold,
    AxisWord::Conforming,
    AxisWord::TimeWait,
    AxisWord::Delay,
]);
/// What `profile` and `simulate` vary.
pub const OF_THE_STACK: Axes = Axes(&[AxisWord::Connections, AxisWord::Rate, AxisWord::PacketRate, AxisWord::Delay]);

impl TypedValueParser for Axes {
    type Value = AxisWord;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<AxisWord, clap::Error> {
        let words = clap::builder::PossibleValuesParser::new(self.possible_values().into_iter().flatten());
        let word = words.parse_ref(command, argument, value)?;
        Ok(AxisWord::from_str(&word, false).expect("it is one of the words"))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().filter_map(AxisWord::to_possible_value)))
    }
}
