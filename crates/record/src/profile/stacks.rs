//! The stacks of the server's work in a window, with the layers to which they were charged: the content of
//! `points/NNN/stacks.json`, and the source of exported profiles. Names are [`PlainText`] from their origin.

use super::folded::{Folded, KERNEL_MARK};
use super::{CpuMode, Profile};
use crate::PlainText;
use crate::layers::Layer;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Deeper stacks were not written by straingauge, because the kernel keeps 127 functions in each of the two parts.
const MAX_DEPTH: usize = 1024;

/// A window's stacks.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Stacks {
    /// When the window began, Unix milliseconds.
    pub started_unix_ms: u64,
    /// Length of the window, nanoseconds.
    pub duration_ns: u64,
    /// The event that triggers a sample.
    pub clock: PlainText,
    /// Nanoseconds between samples on each CPU.
    pub period_ns: u64,
    /// Hardware events that were counted in addition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<PlainText>,
    /// The server's processes that were sampled.
    pub processes: Vec<SampledProcess>,
    /// Every function of the stacks, once.
    pub functions: Vec<Frame>,
    /// The stacks, each once.
    pub stacks: Vec<Stack>,
}

/// A process of the server.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
pub struct SampledProcess {
    /// Id of the process.
    pub pid: u32,
    /// The name of its program.
    pub name: PlainText,
}

/// A function of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Frame {
    /// Name of the function.
    pub function: PlainText,
    /// The kernel's loadable module, or the server's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub module: Option<PlainText>,
    /// Whether the function is the kernel's.
    pub is_kernel: bool,
}

/// Where work of the server ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Ran {
    /// In a process of the server, which the scheduler accounts for.
    Server,
    /// In another process.
    Others,
    /// On an idle CPU.
    Idle,
}

/// Samples of one stack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Stack {
    /// Functions by their index in [`Stacks::functions`], innermost first; empty if the stack was lost.
    pub functions: Vec<u32>,
    /// Process by its index in [`Stacks::processes`], if it is one of the server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// The place where the samples ran.
    pub ran: Ran,
    /// The CPU's mode.
    pub mode: CpuMode,
    /// Layer to which the stack was charged; absent = unattributed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layer: Option<Layer>,
    /// Part of the layer; empty for a layer without parts.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub part: PlainText,
    /// Samples of the clock.
    pub samples: u64,
    /// CPU time, nanoseconds. The sum over the stacks of a layer is the layer's time, rounded.
    pub cpu_ns: u64,
    /// Hardware events, in the order of [`Stacks::events`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<u64>,
}

impl Stack {
    /// The word of its layer.
    pub fn layer_word(&self) -> &'static str {
        self.layer.map_or("unattributed", Layer::word)
    }
}

impl Stacks {
    /// All samples.
    pub fn samples(&self) -> u64 {
        self.stacks.iter().map(|stack| stack.samples).sum()
    }

    /// A stack's functions, outermost first.
    pub fn outermost_first<'s>(&'s self, stack: &'s Stack) -> impl Iterator<Item = &'s Frame> {
        stack.functions.iter().rev().filter_map(|place| self.functions.get(*place as usize))
    }

    /// The program that ran, or the place outside it where the server's packets were handled.
    pub fn root<'s>(&'s self, stack: &Stack) -> &'s str {
        match (stack.ran, stack.process.and_then(|place| self.processes.get(place as usize))) {
            (Ran::Server, Some(process)) if !process.name.is_empty() => &process.name,
            (Ran::Server, _) => "server",
            (Ran::Others, _) => "[packets in other processes]",
            (Ran::Idle, _) => "[packets on idle CPUs]",
        }
    }

    /// Folded stacks: each begins with its [`root`](Self::root), and kernel functions are marked.
    pub fn folded(&self) -> Folded {
        let mut folded = Folded::default();
        self.fold_into(&mut folded, None, false);
        folded
    }

    /// [`folded`](Self::folded), counting CPU time in nanoseconds.
    pub fn folded_cpu_ns(&self) -> Folded {
        let mut folded = Folded::default();
        self.fold_by(&mut folded, None, false, |stack| stack.cpu_ns);
        folded
    }

    /// Adds the folded stacks to others. `first`: an outermost frame; `with_layers`: the layer follows the root.
    pub fn fold_into(&self, folded: &mut Folded, first: Option<&str>, with_layers: bool) {
        self.fold_by(folded, first, with_layers, |stack| stack.samples);
    }

    fn fold_by(&self, folded: &mut Folded, first: Option<&str>, with_layers: bool, count: impl Fn(&Stack) -> u64) {
        for stack in self.stacks.iter().filter(|stack| count(stack) > 0) {
            let layer = with_layers.then(|| stack.layer_word().to_string());
            let frames = self.outermost_first(stack).map(|frame| {
                if frame.is_kernel { format!("{}{KERNEL_MARK}", frame.function) } else { frame.function.to_string() }
            });
            let unknown = stack.functions.is_empty().then(|| NO_STACK.to_string());
            let begin = first.into_iter().chain([self.root(stack)]).map(str::to_string);
            folded.add(begin.chain(layer).chain(frames).chain(unknown), count(stack));
        }
    }

    pub(super) fn divide_cpu(&mut self, of_layer: impl Fn(Option<Layer>) -> f64) {
        let samples: Vec<(Option<Layer>, u64)> = self.stacks.iter().map(|stack| (stack.layer, stack.samples)).collect();
        let parts = apportion(&samples, of_layer);
        for (stack, part) in self.stacks.iter_mut().zip(parts) {
            stack.cpu_ns = part;
        }
    }

    /// The reason why the stacks cannot be used, if any; those of a file may contain anything.
    pub fn fault(&self) -> Option<&'static str> {
        let is_in = |place: u32, length: usize| (place as usize) < length;
        let mut sums = vec![0u64; self.events.len() + 2];
        for stack in &self.stacks {
            if stack.functions.len() > MAX_DEPTH {
                return Some("a stack has more than 1024 functions");
            }
            if !stack.functions.iter().all(|place| is_in(*place, self.functions.len()))
                || !stack.process.is_none_or(|place| is_in(place, self.processes.len()))
            {
                return Some("a stack names a function or a process that is not there");
            }
            if stack.events.len() > self.events.len() {
                return Some("a stack has more events than the window");
            }
            for (sum, value) in sums.iter_mut().zip([stack.samples, stack.cpu_ns].iter().chain(&stack.events)) {
                // Other formats have signed numbers.
                match sum.checked_add(*value).filter(|sum| *sum <= i64::MAX as u64) {
                    Some(more) => *sum = more,
                    None => return Some("its sums are too large"),
                }
            }
        }
        None
    }
}

/// The function of a sample whose stack was lost.
pub const NO_STACK: &str = "[no stack]";

/// Divides each layer's amount over its parts by weight, into whole numbers that add up to the rounded amount. A
/// layer without weight gets nothing.
pub fn apportion(parts: &[(Option<Layer>, u64)], of_layer: impl Fn(Option<Layer>) -> f64) -> Vec<u64> {
    let mut whole: BTreeMap<Option<Layer>, u64> = BTreeMap::new();
    for (layer, weight) in parts {
        *whole.entry(*layer).or_default() += weight;
    }
    let mut given: BTreeMap<Option<Layer>, (u64, u64)> = BTreeMap::new();
    let mut divide = |(layer, weight): &(Option<Layer>, u64)| {
        let (weights, amounts) = given.entry(*layer).or_default();
        *weights += weight;
        let all = whole.get(layer).copied().unwrap_or(0);
        let until = if *weights == all { 1.0 } else { *weights as f64 / all as f64 };
        let due = if all == 0 { 0 } else { (of_layer(*layer).max(0.0) * until).round() as u64 };
        let part = due.saturating_sub(*amounts);
        *amounts += part;
        part
    };
    parts.iter().map(&mut divide).collect()
}

impl Profile {
    /// The stacks with the CPU time of the table of layers.
    pub fn weighed_stacks(&self) -> Stacks {
        let mut stacks = self.stacks.clone();
        stacks.divide_cpu(|layer| self.layer(layer).map_or(0.0, |row| row.cpu_ns));
        stacks
    }

    /// The stacks with the CPU time of a point's layers ([`point_figures`](Self::point_figures)).
    pub fn point_stacks(&self) -> Stacks {
        let mut stacks = self.stacks.clone();
        let sample_ns = self.point_sample_ns();
        stacks.divide_cpu(|layer| self.layer(layer).map_or(0, |row| row.samples) as f64 * sample_ns);
        stacks
    }
}
