//! A parser for the words of an option that a command accepts.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::ffi::OsStr;

/// Accepts only these words.
#[derive(Debug, Clone)]
pub struct Words<T: 'static>(pub &'static [T]);

impl<T: ValueEnum + Send + Sync + 'static> TypedValueParser for Words<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &OsStr,
    ) -> Result<T, clap::Error> {
        let words = PossibleValuesParser::new(self.possible_values().into_iter().flatten());
        let word = words.parse_ref(command, argument, value)?;
        Ok(T::from_str(&word, false).expect("not one of the accepted words"))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().filter_map(T::to_possible_value)))
    }
}
