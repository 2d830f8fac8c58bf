use super::{Headroom, Mode, Rates, Reading, SizeClass};
use crate::Doubt;
use serde::{Deserialize, Serialize};

/// One JSON object per line, identified by `kind`.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Line {
    /// First line of a recording.
    Watch(Beginning),
    /// One reading of the watch's counters.
    Reading(Box<Taken>),
}

impl Line {
    /// Reads a line. The code is here and not at the callers, because it takes half a megabyte.
    ///
    /// # Errors
    /// The text is not a line of a watch, or a part of it has another type.
    pub fn parse(text: &[u8]) -> Result<Line, serde_json::Error> {
        serde_json::from_slice(text)
    }
}

/// The first line of a recording.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Beginning {
    /// Version of the format of `run.json` that the writer uses.
    pub schema: u32,
    /// The recorded watch.
    #[serde(flatten)]
    pub watching: Watching,
}

/// Options of a watch, also part of `run.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Watching {
    /// The server's port.
    pub port: u16,
    /// The level of detail.
    pub mode: Mode,
    /// Size classes of the response.
    pub classes: Vec<SizeClass>,
    /// The highest average cost to the server, as a share of its CPU time.
    pub overhead_limit_ratio: f64,
}

/// A reading as it is printed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
pub struct Taken {
    /// Counts since the watch began.
    pub totals: Reading,
    /// Rates since the previous reading.
    pub rates: Rates,
    /// Headroom, estimated from the readings so far: how much more load the server can take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom: Option<Headroom>,
    /// Reasons to doubt the reading.
    pub doubts: Vec<Doubt>,
}

impl Line {
    /// The text of the line with its line end; members are in alphabetical order.
    pub fn text(&self) -> String {
        let value = serde_json::to_value(self).expect("a line has only string keys");
        format!("{value}\n")
    }
}
