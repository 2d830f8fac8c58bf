//! The functions at which one layer of the network stack calls another: a reviewed table (`data/boundaries.txt`),
//! which complements the rule of [`layers`](crate::layers), for measuring layers without sampling.

use crate::layers::{Layer, parse_sections};
use std::sync::LazyLock;

const TABLE: &str = include_str!("../data/boundaries.txt");

static BUILT_IN: LazyLock<Vec<Boundary>> = LazyLock::new(|| parse(TABLE).unwrap_or_default());

/// A function that begins its layer when it is called, and returns to the caller's layer when it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Boundary {
    /// Name in the kernel, including leading underscores.
    pub function: String,
    /// Its layer.
    pub layer: Layer,
    /// Whether it is a network software interrupt, below which the packet decides to which end the work is charged.
    pub is_packets: bool,
    /// Whether it is on the path of every packet or call, so that without it a layer's time counts for another.
    pub is_needed: bool,
    /// Hooked only if this function, earlier in the table, cannot be.
    pub instead_of: Option<String>,
}

/// The table that ships with the program; a test proves that it can be parsed.
pub fn built_in() -> &'static [Boundary] {
    &BUILT_IN
}

/// Parses a table with the sections `[Layer]` and `[Layer: packets]`. A required name ends with `!`, and a substitute
/// for another is `name(other)`. A name may appear only once.
pub fn parse(text: &str) -> Result<Vec<Boundary>, String> {
    let begin_section = |_: &mut Vec<Boundary>, title: &str| {
        let (word, part) = title.split_once(':').unwrap_or((title, ""));
        let is_packets = part.trim() == "packets";
        (is_packets || part.trim().is_empty()).then_some((Layer::from_word(word.trim())?, is_packets))
    };
    let add_word = |found: &mut Vec<Boundary>, (layer, is_packets), word: &str| {
        let is_known = |name: &str| found.iter().any(|known| known.function == name);
        let (name, other) = word.split_once('(').map_or((word, None), |(name, other)| (name, Some(other)));
        let instead_of = other.map(|other| other.strip_suffix(')').filter(|other| is_known(other)));
        let function = name.strip_suffix('!').unwrap_or(name);
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let is_right = !function.is_empty() && function.bytes().all(is_name) && !is_known(function);
        found.push(Boundary {
            function: function.into(),
            layer,
            is_packets,
            is_needed: name.ends_with('!'),
            instead_of: instead_of.flatten().map(String::from),
        });
        is_right && instead_of != Some(None)
    };
    parse_sections(text, begin_section, add_word)
}
