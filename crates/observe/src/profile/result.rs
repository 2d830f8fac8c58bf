//! What a profile says: CPU time by layer, per packet and per request, functions, groups, checks.

use super::arrivals::Arrivals;
use super::attribute::{Coverage, Mode, Owner, Ran, Stack};
use super::exact::calibrated::Calibration;
use super::groups::FunctionGroup;
use super::interval::{Estimate, ratio};
use super::samples::{BLOCKS, Losses, PacketCounts};
use record::Doubt;
use record::layers::{Layer, Row};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// Functions listed.
const TOP_FUNCTIONS: usize = 40;
/// Unattributed or unclassified functions listed.
const TOP_UNKNOWN: usize = 8;

/// A number per tenth of the window.
pub type Blocks = [f64; BLOCKS as usize];

/// A line of the table. Times are the server's CPU time, wherever it ran.
#[derive(Debug, Clone, Serialize)]
pub struct LayerRow {
    /// The layer; `None` = unattributed.
    pub layer: Option<Layer>,
    /// Part of the layer, empty for the layer's whole.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub part: String,
    /// Samples.
    pub samples: u64,
    /// CPU time, nanoseconds.
    pub cpu_ns: f64,
    /// Share of the server's CPU time.
    pub share_ratio: Option<Estimate>,
    /// CPU time per packet (both directions), microseconds.
    pub us_per_packet: Option<Estimate>,
    /// CPU time per request, microseconds.
    pub us_per_request: Option<Estimate>,
    /// Events of the hardware per packet, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub events_per_packet: BTreeMap<String, Estimate>,
}

/// A function, charged with what it does itself.
#[derive(Debug, Clone, Serialize)]
pub struct FunctionRow {
    /// Name; untrusted text.
    pub function: String,
    /// The kernel's module or the server's file.
    pub module: Option<String>,
    /// Layer that most of its samples were charged to; `None` = unattributed.
    pub layer: Option<Layer>,
    /// The CPU's mode for most of its samples.
    pub mode: Mode,
    /// Samples in the server's work.
    pub samples: u64,
    /// Share of all CPU time of the machine.
    pub cpu_ratio: f64,
    /// Share of the machine's CPU time that was not idle.
    pub non_idle_ratio: f64,
    /// Share of the server's CPU time.
    pub server_ratio: f64,
}

/// A group of functions; a sample belongs to the group of its innermost function that is in one.
#[derive(Debug, Clone, Serialize)]
pub struct GroupRow {
    /// The group; `None` = in no group.
    pub group: Option<String>,
    /// Samples.
    pub samples: u64,
    /// Share of the server's CPU time.
    pub share_ratio: Option<Estimate>,
    /// CPU time per packet, microseconds.
    pub us_per_packet: Option<Estimate>,
}

/// Where the machine's samples went; their sum is all of them.
#[derive(Debug, Clone, Default, Serialize)]
pub struct SampleSums {
    /// The server's work in its own processes.
    pub server_in_own_process: u64,
    /// The server's packets in other processes' time.
    pub server_in_others: u64,
    /// The server's packets on idle CPUs.
    pub server_on_idle: u64,
    /// The other end's packets in the server's time.
    pub peer_in_server: u64,
    /// Other packets in the server's time.
    pub others_in_server: u64,
    /// The rest, busy.
    pub others: u64,
    /// Idle.
    pub idle: u64,
}

impl SampleSums {
    /// The server's work, wherever it ran.
    pub fn server(&self) -> u64 {
        self.server_in_own_process + self.server_in_others + self.server_on_idle
    }

    /// What the scheduler charges the server for.
    pub fn in_server(&self) -> u64 {
        self.server_in_own_process + self.peer_in_server + self.others_in_server
    }

    /// All samples.
    pub fn all(&self) -> u64 {
        self.in_server() + self.server_in_others + self.server_on_idle + self.others + self.idle
    }
}

/// Two sources of one number.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct CpuCheck {
    /// Samples in the server's processes times their period, nanoseconds.
    pub sampled_ns: f64,
    /// The scheduler's account of the same processes, nanoseconds.
    pub scheduler_ns: f64,
    /// (sampled - scheduler) / scheduler.
    pub difference_ratio: Option<f64>,
    /// Share of the machine's time that the hypervisor took: samples count it, the scheduler does not.
    pub steal_ratio: Option<f64>,
    /// Whether the clock's interrupts came.
    pub arrivals: Arrivals,
}

/// An event beside the CPU clock.
#[derive(Debug, Clone, Serialize)]
pub struct EventRow {
    /// Name.
    pub event: String,
    /// Events from sample to sample.
    pub period: u64,
    /// Samples in the server's work.
    pub samples: u64,
    /// Share of the time in which the counter ran; below 1 the counters were shared by several events.
    pub counter_ran_ratio: f64,
    /// Why there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_measured: Option<String>,
}

/// The profile of a window.
#[derive(Debug, Clone, Serialize)]
pub struct Profile {
    /// How it was measured.
    pub method: &'static str,
    /// What makes a sample.
    pub clock: &'static str,
    /// Nanoseconds from sample to sample on each CPU.
    pub period_ns: u64,
    /// CPU time that a sample stands for, nanoseconds: the scheduler's account of the server's processes divided by the
    /// samples in them; the period where there are too few.
    pub sample_ns: f64,
    /// Length of the window.
    pub duration_ns: u64,
    /// The server's port.
    pub port: u16,
    /// Its first process.
    pub pid: u32,
    /// Name of its program; untrusted text.
    pub command: String,
    /// CPUs of the machine.
    pub cpus: usize,
    /// Where all samples went.
    pub samples: SampleSums,
    /// Layers, parts, unattributed; parts follow their layer and are contained in it.
    pub layers: Vec<LayerRow>,
    /// Functions with the most samples in the server's work.
    pub functions: Vec<FunctionRow>,
    /// The user's groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupRow>,
    /// Innermost functions of unattributed samples.
    pub unattributed_top: Vec<(String, u64)>,
    /// The port's packets, in and out.
    pub packets: PacketCounts,
    /// Requests: packets with payload received, one a request where requests fit into one packet and do not overtake
    /// their responses; or as told by the caller.
    pub requests: u64,
    /// Whether the caller counted the requests.
    pub requests_are_counted: bool,
    /// Sampled against scheduled CPU time.
    pub cpu_check: CpuCheck,
    /// How much of the kernel's samples the layer rule knows.
    pub coverage: Coverage,
    /// Events beside the CPU clock.
    pub events: Vec<EventRow>,
    /// What was lost.
    pub losses: Losses,
    /// How bursts of the exact profile corrected it, where they did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// Reasons not to trust it.
    pub doubts: Vec<Doubt>,
    /// The stacks themselves, for folding.
    #[serde(skip)]
    pub stacks: Vec<Stack>,
}

impl Profile {
    /// The row of a layer's whole (`None`: unattributed).
    pub fn layer(&self, layer: Option<Layer>) -> Option<&LayerRow> {
        self.layers.iter().find(|row| row.layer == layer && row.part.is_empty())
    }

    /// The network stack proper: all of the server's work but User, Other and what is unattributed.
    pub fn stack_share(&self) -> f64 {
        let of = |row: &LayerRow| row.share_ratio.map_or(0.0, |share| share.value);
        let is_stack = |row: &&LayerRow| row.part.is_empty() && row.layer.is_some_and(Layer::is_stack);
        self.layers.iter().filter(is_stack).map(of).sum()
    }
}

/// Sums the samples by owner and place.
pub fn sums(stacks: &[Stack]) -> SampleSums {
    let mut sums = SampleSums::default();
    for stack in stacks.iter().filter(|stack| stack.event == 0) {
        let count = stack.count();
        *match (stack.owner, stack.ran) {
            (Owner::Server, Ran::Server) => &mut sums.server_in_own_process,
            (Owner::Server, Ran::Others) => &mut sums.server_in_others,
            (Owner::Server, Ran::Idle) => &mut sums.server_on_idle,
            (Owner::Peer, Ran::Server) => &mut sums.peer_in_server,
            (_, Ran::Server) => &mut sums.others_in_server,
            (Owner::Idle, _) => &mut sums.idle,
            _ => &mut sums.others,
        } += count;
    }
    sums
}

/// The event's samples of the server's work that `wanted` accepts, by tenth.
fn counted(stacks: &[Stack], event: u8, wanted: impl Fn(&Stack) -> bool) -> (u64, Blocks) {
    let mut blocks = [0.0; BLOCKS as usize];
    let mut samples = 0;
    for stack in stacks.iter().filter(|stack| stack.event == event && stack.owner == Owner::Server && wanted(stack)) {
        samples += stack.count();
        for (sum, count) in blocks.iter_mut().zip(stack.blocks) {
            *sum += count as f64;
        }
    }
    (samples, blocks)
}

/// What the rows are divided by, in each tenth.
#[derive(Debug, Clone, Copy)]
pub struct Denominators {
    /// Packets, both directions.
    pub packets: Blocks,
    /// Requests.
    pub requests: Blocks,
}

fn scaled(blocks: &Blocks, factor: f64) -> Blocks {
    blocks.map(|count| count * factor)
}

/// The table of layers with their parts.
pub fn layer_rows(stacks: &[Stack], sample_ns: f64, by: &Denominators, events: &[EventRow]) -> Vec<LayerRow> {
    let (_, whole) = counted(stacks, 0, |_| true);
    let row = |layer: Option<Layer>, part: &str| {
        let wanted = |stack: &Stack| match (&stack.row, layer) {
            (Some(row), Some(layer)) => row.layer == layer && (part.is_empty() || row.part == part),
            (row, layer) => row.is_none() && layer.is_none(),
        };
        let (samples, blocks) = counted(stacks, 0, wanted);
        let us = scaled(&blocks, sample_ns / 1000.0);
        let per_packet = |(number, event): (usize, &EventRow)| {
            let counts = scaled(
                &counted(stacks, number as u8 + 1, wanted).1,
                event.period as f64 / event.counter_ran_ratio.max(1e-6),
            );
            Some((event.event.clone(), ratio(&counts, &by.packets)?))
        };
        LayerRow {
            layer,
            part: part.to_string(),
            samples,
            cpu_ns: samples as f64 * sample_ns,
            share_ratio: ratio(&blocks, &whole),
            us_per_packet: ratio(&us, &by.packets),
            us_per_request: ratio(&us, &by.requests),
            events_per_packet: events
                .iter()
                .enumerate()
                .filter(|(_, event)| event.not_measured.is_none())
                .filter_map(per_packet)
                .collect(),
        }
    };
    let mut rows = Vec::new();
    for layer in Layer::ALL.into_iter().filter(|layer| *layer != Layer::Idle) {
        rows.push(row(Some(layer), ""));
        let mut parts: BTreeMap<&str, u64> = BTreeMap::new();
        for stack in stacks.iter().filter(|stack| stack.event == 0 && stack.owner == Owner::Server) {
            if let Some(Row { part, .. }) = stack.row.as_ref().filter(|row| row.layer == layer && !row.part.is_empty())
            {
                *parts.entry(part).or_default() += stack.count();
            }
        }
        let mut parts: Vec<(&str, u64)> = parts.into_iter().collect();
        parts.sort_by_key(|(part, count)| (std::cmp::Reverse(*count), *part));
        rows.extend(parts.into_iter().map(|(part, _)| row(Some(layer), part)));
    }
    rows.push(row(None, ""));
    rows
}

/// The functions with the most samples of their own.
pub fn function_rows(stacks: &[Stack], sums: &SampleSums) -> Vec<FunctionRow> {
    type Place = (Option<Layer>, Mode);
    let mut functions: HashMap<(&str, Option<&str>), BTreeMap<Place, u64>> = HashMap::new();
    for stack in stacks.iter().filter(|stack| stack.event == 0 && stack.owner == Owner::Server) {
        let (name, module) =
            stack.frames.first().map_or(("[no stack]", None), |leaf| (leaf.function.as_str(), leaf.module.as_deref()));
        let place = (stack.row.as_ref().map(|row| row.layer), stack.mode);
        *functions.entry((name, module)).or_default().entry(place).or_default() += stack.count();
    }
    let share = |samples: u64, of: u64| samples as f64 / of.max(1) as f64;
    let all = sums.all();
    let mut rows: Vec<FunctionRow> = functions
        .into_iter()
        .map(|((function, module), places)| {
            let samples = places.values().sum();
            let most = |key: &dyn Fn(&Place) -> Place| {
                places
                    .iter()
                    .max_by_key(|(_, count)| **count)
                    .map(|(place, _)| key(place))
                    .unwrap_or((None, Mode::Kernel))
            };
            let (layer, mode) = most(&|place| *place);
            FunctionRow {
                function: function.to_string(),
                module: module.map(str::to_string),
                layer,
                mode,
                samples,
                cpu_ratio: share(samples, all),
                non_idle_ratio: share(samples, all - sums.idle),
                server_ratio: share(samples, sums.server()),
            }
        })
        .collect();
    rows.sort_by(|a, b| (b.samples, &a.function).cmp(&(a.samples, &b.function)));
    rows.truncate(TOP_FUNCTIONS);
    rows
}

/// The user's groups; with what is in none of them they are the whole.
pub fn group_rows(stacks: &[Stack], groups: &[FunctionGroup], sample_ns: f64, by: &Denominators) -> Vec<GroupRow> {
    if groups.is_empty() {
        return Vec::new();
    }
    let group_of = |stack: &Stack| {
        stack
            .frames
            .iter()
            .find_map(|frame| groups.iter().position(|group| group.contains(&frame.function, !frame.is_kernel)))
    };
    let (_, whole) = counted(stacks, 0, |_| true);
    (0..groups.len())
        .map(Some)
        .chain([None])
        .map(|index| {
            let (samples, blocks) = counted(stacks, 0, |stack| group_of(stack) == index);
            GroupRow {
                group: index.map(|index| groups[index].name.clone()),
                samples,
                share_ratio: ratio(&blocks, &whole),
                us_per_packet: ratio(&scaled(&blocks, sample_ns / 1000.0), &by.packets),
            }
        })
        .collect()
}

/// Innermost functions of the server's samples that no layer claims.
pub fn unattributed_top(stacks: &[Stack]) -> Vec<(String, u64)> {
    let mut tops: BTreeMap<&str, u64> = BTreeMap::new();
    for stack in stacks.iter().filter(|stack| stack.event == 0 && stack.owner == Owner::Server && stack.row.is_none()) {
        *tops.entry(stack.frames.first().map_or("[no stack]", |leaf| &leaf.function)).or_default() += stack.count();
    }
    let mut tops: Vec<(String, u64)> = tops.into_iter().map(|(name, count)| (name.to_string(), count)).collect();
    tops.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    tops.truncate(TOP_UNKNOWN);
    tops
}
