//! The layer of the network stack that a kernel function belongs to: a reviewed table (`data/layers.txt`), and the
//! walk of a stack that uses it.
//!
//! A function *names* a layer, is a *helper* (buffers, memory, copies, locks, timers), or is unknown. A sample
//! belongs to the layer of its innermost naming function: helpers are charged to their caller, like all unlisted
//! functions in Kim and Rixner's profiler (2005, section 3). A sample without a naming function is unattributed.
//!
//! Names are compared without leading underscores and compiler suffixes (`.isra.0`, `.part.0`, `.cold`, ...). An
//! exact name takes precedence over a prefix (`tcp_*`), and a longer prefix over a shorter one.

use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

const TABLE: &str = include_str!("../data/layers.txt");

static BUILT_IN: LazyLock<LayerRule> = LazyLock::new(|| LayerRule::parse(TABLE).unwrap_or_default());

crate::worded! {
    /// The layers, from the server's own code down to the wire. Their sum, with unattributed time, is the total.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    pub enum Layer {
        /// CPU time in user mode.
        User = "User",
        /// System calls down to the protocol: entry, socket layer, event notification, files.
        SystemCall = "System Call",
        /// TCP: segments, acknowledgements, timers, connections.
        Tcp = "TCP",
        /// IPv4 and IPv6: routing, fragments, packet filters.
        Ip = "IP",
        /// The device-independent part of the link layer: queues, backlog, NAPI, GRO, neighbours.
        Ethernet = "Ethernet",
        /// The driver of the network interface, virtual ones included.
        Driver = "Driver",
        /// The rest of the kernel: scheduler, interrupts, page faults, measurement.
        Other = "Other",
        /// Idle time of the CPU.
        Idle = "Idle",
    }
}

impl Layer {
    /// The layer of a word, as written by [`Layer::word`].
    pub fn from_word(word: &str) -> Option<Layer> {
        Layer::ALL.into_iter().find(|layer| layer.word() == word)
    }

    /// Whether the layer is part of the network stack proper (the paper's "Overall Stack": all except User, Other and
    /// Idle).
    pub fn is_stack(self) -> bool {
        matches!(self, Layer::SystemCall | Layer::Tcp | Layer::Ip | Layer::Ethernet | Layer::Driver)
    }
}

/// A row of the table: a layer, and a part of it that the table distinguishes (`socket layer` of System Call); the part
/// is empty for a layer without parts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Row {
    /// Layer of the row.
    pub layer: Layer,
    /// Part in words, or empty.
    pub part: String,
}

/// The role of a function in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role<'r> {
    /// The function names a layer.
    Names(&'r Row),
    /// The function works for its caller.
    Helper,
    /// The table does not list the function; it is charged like a helper and counted as not classified.
    Unknown,
}

/// The rule that maps function and module names to rows and helpers.
#[derive(Debug, Clone, Default)]
pub struct LayerRule {
    /// The rows of the table's sections; `None` = helpers.
    sections: Vec<Option<Row>>,
    exact: HashMap<String, usize>,
    prefixes: HashMap<String, usize>,
    modules: HashMap<String, usize>,
    longest_prefix: usize,
}

impl LayerRule {
    /// The rule that ships with the program; a test proves that it can be parsed.
    pub fn built_in() -> &'static LayerRule {
        &BUILT_IN
    }

    /// Parses a table with the sections `[Layer]`, `[Layer: part]`, `[helper: what]`, `[modules of Layer]`, whose words
    /// are names and prefixes (`tcp_*`). A name may appear only once.
    pub fn parse(text: &str) -> Result<LayerRule, String> {
        let begin_section = |rule: &mut LayerRule, title: &str| {
            let (entry, is_modules) = parse_title(title)?;
            rule.sections.push(entry);
            Some((rule.sections.len() - 1, is_modules))
        };
        let add_word = |rule: &mut LayerRule, (entry, is_modules), word: &str| {
            let bare = bare_name(word);
            let (table, name) = match bare.strip_suffix('*') {
                _ if is_modules => (&mut rule.modules, word),
                Some(prefix) => (&mut rule.prefixes, prefix),
                None => (&mut rule.exact, bare),
            };
            rule.longest_prefix = rule.longest_prefix.max(name.len());
            !name.is_empty() && !name.contains('*') && table.insert(name.to_string(), entry).is_none()
        };
        parse_sections(text, begin_section, add_word)
    }

    /// The role of `function` in the loadable `module` (`None` for built-in code).
    pub fn role(&self, function: &str, module: Option<&str>) -> Role<'_> {
        let bare = bare_name(function);
        if let Some(&entry) = self.exact.get(bare) {
            return self.as_role(entry);
        }
        // A module's name takes precedence over a prefix: both veth's veth_* and a generic get_* belong to the
        // driver.
        if let Some(&entry) = module.and_then(|module| self.modules.get(module)) {
            return self.as_role(entry);
        }
        let longest = bare.len().min(self.longest_prefix);
        (1..=longest)
            .rev()
            .filter_map(|end| bare.get(..end))
            .find_map(|prefix| self.prefixes.get(prefix))
            .map_or(Role::Unknown, |&entry| self.as_role(entry))
    }

    /// The row of the first function of a kernel stack, from the innermost on, that names a layer; `None` =
    /// unattributed.
    pub fn row_of<'f>(&self, stack: impl IntoIterator<Item = (&'f str, Option<&'f str>)>) -> Option<&Row> {
        stack.into_iter().find_map(|(function, module)| match self.role(function, module) {
            Role::Names(row) => Some(row),
            Role::Helper | Role::Unknown => None,
        })
    }

    /// Every row that the table can name, in the table's order, each once.
    pub fn rows(&self) -> Vec<&Row> {
        let mut seen = HashSet::new();
        self.sections.iter().flatten().filter(|row| seen.insert(*row)).collect()
    }

    fn as_role(&self, entry: usize) -> Role<'_> {
        self.sections[entry].as_ref().map_or(Role::Helper, Role::Names)
    }
}

/// Parses a table of sections `[title]`, each followed by words separated by white space; `#` begins a comment.
/// `begin_section` returns what belongs to a title, and `add_word` whether a word of that section is right. The error
/// is the faulty line.
pub(crate) fn parse_sections<T: Default, S: Copy>(
    text: &str,
    begin_section: impl Fn(&mut T, &str) -> Option<S>,
    add_word: impl Fn(&mut T, S, &str) -> bool,
) -> Result<T, String> {
    let (mut table, mut section) = (T::default(), None);
    for line in text.lines() {
        let bare = line.split('#').next().unwrap_or_default().trim();
        let is_right = match bare.strip_prefix('[') {
            Some(rest) => {
                section = rest.strip_suffix(']').and_then(|title| begin_section(&mut table, title));
                section.is_some()
            }
            None => {
                bare.split_whitespace().all(|word| section.is_some_and(|section| add_word(&mut table, section, word)))
            }
        };
        if !is_right {
            return Err(line.to_string());
        }
    }
    Ok(table)
}

fn parse_title(title: &str) -> Option<(Option<Row>, bool)> {
    let title = title.trim();
    if title.starts_with("helper:") {
        return Some((None, false));
    }
    let (title, is_modules) = match title.strip_prefix("modules of ") {
        Some(rest) => (rest, true),
        None => (title, false),
    };
    let (word, part) = title.split_once(':').unwrap_or((title, ""));
    let layer = Layer::from_word(word.trim())?;
    Some((Some(Row { layer, part: part.trim().to_string() }), is_modules))
}

/// The name as the table compares it: without leading underscores and compiler suffixes.
pub fn bare_name(function: &str) -> &str {
    let name = function.trim_start_matches(['_', '.']);
    name.split('.').next().unwrap_or(name)
}
