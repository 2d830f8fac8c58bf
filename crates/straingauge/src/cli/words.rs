use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};

/// A parser that accepts only these words of an option.
pub fn words<T: ValueEnum + Send + Sync + 'static>(accepted: &'static [T]) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(accepted.iter().filter_map(T::to_possible_value))
        .map(|word| T::from_str(&word, false).expect("one of the accepted words"))
}
