//! Messages to and from a watcher: those of `watch --worker`, besides the messages of every worker.

use super::{bounded_doubts, words};
use record::figure::{Figure, Figures};
use record::point::FunctionCost;
use record::profile::Stacks;
use record::{Doubt, Outside, Watched, WatchedClass};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most figures, states or facts of a watcher.
const MAX_FIGURES: usize = 500;
/// Most size classes; no watcher has as many.
const MAX_CLASSES: usize = 16;

/// How requests are to be watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WireWatch {
    /// `zero`, `counts`, `default` or `exact`.
    pub mode: String,
    /// Share of the server's CPU time that mode default may cost.
    pub overhead_ratio: f64,
    /// Boundaries of the size classes as typed; absent for the usual ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classes: Option<String>,
    /// Functions of the server that mark its phases, as text, and the text's name; absent if none are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pack: Option<(String, String)>,
}

/// A watcher's observation of its server in a window: as in point.json, and facts as in run.json.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WireObservation {
    pub figures: Figures,
    pub connection_states: BTreeMap<String, Figure>,
    pub doubts: Vec<Doubt>,
    pub server_facts: BTreeMap<String, String>,
    /// When the window began and ended, on the watcher's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edges_ns: Option<[u64; 2]>,
    /// Requests by size class, if they were counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<Watched>,
    /// The functions that cost most, and all stacks, if the layers were sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<FunctionCost>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks: Option<Stacks>,
}

impl WireObservation {
    /// The same with bounds: names of figures as straingauge has them, texts made safe to print.
    pub fn bounded(self) -> WireObservation {
        WireObservation {
            figures: Figures(bounded_figures(self.figures.0)),
            connection_states: bounded_figures(self.connection_states),
            doubts: bounded_doubts(&self.doubts),
            server_facts: self
                .server_facts
                .iter()
                .take(MAX_FIGURES)
                .map(|(name, fact)| (Outside::new(name, 80).into(), words(fact)))
                .collect(),
            edges_ns: self.edges_ns,
            watched: self.watched.map(bounded_watched),
            functions: self.functions.into_iter().take(MAX_FIGURES).map(bounded_function).collect(),
            // Its text is safe, its numbers are places that may be missing, and a line bounds it.
            stacks: self.stacks,
        }
    }
}

fn bounded_function(cost: FunctionCost) -> FunctionCost {
    FunctionCost { function: words(&cost.function), module: cost.module.map(|module| words(&module)), ..cost }
}

fn bounded_watched(watched: Watched) -> Watched {
    Watched {
        mode: Outside::new(&watched.mode, 20).into(),
        classes: watched.classes.into_iter().take(MAX_CLASSES).map(bounded_class).collect(),
        states: bounded_figures(watched.states),
        why_not: watched.why_not.map(|why| words(&why)),
    }
}

fn bounded_class(class: WatchedClass) -> WatchedClass {
    let half_widths = class.half_widths.into_iter().filter(|(name, half)| is_name(name) && half.is_finite());
    WatchedClass {
        name: Outside::new(&class.name, 40).into(),
        figures: Figures(bounded_figures(class.figures.0)),
        half_widths: half_widths.take(MAX_FIGURES).collect(),
        ..class
    }
}

fn bounded_figures(figures: BTreeMap<String, Figure>) -> BTreeMap<String, Figure> {
    figures.into_iter().filter(|(name, _)| is_name(name)).take(MAX_FIGURES).map(bounded_figure).collect()
}

fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    !text.is_empty() && text.len() <= 80 && text.bytes().all(is_plain)
}

fn bounded_figure((name, figure): (String, Figure)) -> (String, Figure) {
    let not_measured = figure.not_measured.map(|why| words(&why));
    (name, Figure { unit: Outside::new(&figure.unit, 20).into(), not_measured, ..figure })
}
