//! A figure: one measured number with its unit, its sample count and its origin, or the reason why it is missing.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

crate::worded! {
    /// Origin of a number. Printed with it; numbers of different origin are not added without a note.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum Origin {
        /// Every event was counted.
        Counted = "counted",
        /// Read from a clock.
        Timed = "timed",
        /// Estimated from samples of the whole.
        Sampled = "sampled",
        /// Computed by a cache or machine simulator.
        Simulated = "simulated",
        /// Computed by a model from other figures.
        Modelled = "modelled",
    }
}

/// Number of a point. JSON: `{"value": 12.5, "unit": "us", "n": 81234, "origin": "timed"}` or `{"unit": "us",
/// "not_measured": "the kernel has no ..."}`; a missing number is never 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Figure {
    /// Value of the figure; absent if it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Unit in field notation: `us`, `bytes`, `1/s`, `ratio`, `count`.
    pub unit: String,
    /// Number of events, readings or requests that the value is based on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
    /// How the value was obtained.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// Whether the value is a lower bound, because it belongs to requests without a response.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// Why the figure has no value; absent if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<String>,
}

impl Figure {
    /// A measured number. A value that is not finite becomes "not measured", so that no NaN reaches a file.
    pub fn new(value: f64, unit: &str, n: u64, origin: Origin) -> Self {
        if !value.is_finite() {
            return Figure::not_measured(unit, "no events to divide by");
        }
        Figure { value: Some(value), unit: unit.into(), n: Some(n), origin: Some(origin), ..Figure::default() }
    }

    /// A number that this machine or this run could not provide, with the reason.
    pub fn not_measured(unit: &str, why: impl Into<String>) -> Self {
        Figure { unit: unit.into(), not_measured: Some(why.into()), ..Figure::default() }
    }
}

/// The figures of a point by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct Figures(pub BTreeMap<String, Figure>);

impl Figures {
    /// Stores a figure under its name, replacing an earlier one.
    pub fn set(&mut self, name: &str, figure: Figure) {
        self.0.insert(name.into(), figure);
    }

    /// Stores a number under a name of [`crate::names`], which determines its unit.
    pub fn measured(&mut self, name: &str, value: f64, n: u64, origin: Origin) {
        self.set(name, Figure::new(value, crate::names::unit(name), n, origin));
    }

    /// Stores under a name of [`crate::names`] the reason why there is no number.
    pub fn not_measured(&mut self, name: &str, why: &str) {
        self.set(name, Figure::not_measured(crate::names::unit(name), why));
    }

    /// Stores under a name of [`crate::names`] a number with its count and origin, or the reason why there is none.
    pub fn found(&mut self, name: &str, value: Option<f64>, (n, origin): (u64, Origin), why_not: &str) {
        match value {
            Some(value) => self.measured(name, value, n, origin),
            None => self.not_measured(name, why_not),
        }
    }

    /// Stores under a name of [`crate::names`] the growth per second of a counter between two readings, `(now,
    /// then)`.
    pub fn rate(&mut self, name: &str, counts: Option<(u64, u64)>, seconds: f64, why_not: &str) {
        let count = counts.map_or(0, |(now, then)| now.saturating_sub(then));
        self.found(name, counts.map(|_| count as f64 / seconds), (count, Origin::Counted), why_not);
    }

    /// The value, if the figure exists and was measured.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.0.get(name).and_then(|figure| figure.value)
    }

    /// The figure with its unit, count and origin.
    pub fn get(&self, name: &str) -> Option<&Figure> {
        self.0.get(name)
    }

    /// Adds all of `other`'s figures.
    pub fn extend(&mut self, other: Figures) {
        self.0.extend(other.0);
    }
}
