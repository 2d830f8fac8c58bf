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
fn parse(text: &str) -> Result<Vec<Boundary>, String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::{LayerRule, Role};

    #[test]
    fn every_boundary_has_the_layer_of_the_sampling_rule() {
        let table = parse(TABLE).unwrap();
        assert!(table.len() > 40);
        for boundary in &table {
            match LayerRule::built_in().role(&boundary.function, None) {
                Role::Names(row) => assert_eq!(row.layer, boundary.layer, "{}", boundary.function),
                other => panic!("{} is {other:?} in layers.txt", boundary.function),
            }
        }
        assert!(table.iter().any(|boundary| boundary.is_packets && boundary.function == "net_rx_action"));
    }

    #[test]
    fn a_function_may_replace_an_earlier_one() {
        let table = parse("[IP]\nip6_xmit ip6_output(ip6_xmit)").unwrap();
        assert_eq!(table[0].instead_of, None);
        assert_eq!((table[1].function.as_str(), table[1].instead_of.as_deref()), ("ip6_output", Some("ip6_xmit")));
        assert!(built_in().iter().any(|boundary| boundary.instead_of.as_deref() == Some("ip6_xmit")));
    }

    #[test]
    fn a_faulty_table_is_refused() {
        for text in [
            "tcp_sendmsg",
            "[TCP]\ntcp_*",
            "[TCP]\na b\nb",
            "[Tcp]",
            "[TCP: fast]",
            "[TCP",
            "[TCP]\n!",
            "[IP]\na b(c)",
            "[IP]\na b(a",
            "[IP]\na (a)",
        ] {
            assert_eq!(parse(text).expect_err(text), text.lines().last().unwrap());
        }
    }
}
