use super::attribute::{AttributedStack, StackOwner, of_server};
use super::groups::FunctionGroup;
use super::interval::ratio;
use super::samples::BLOCKS;
use record::PlainText;
use record::layers::{Layer, Row};
use record::profile::{CpuMode, EventRow, FunctionRow, GroupRow, LayerRow, Ran, SampleSums};
use std::collections::{BTreeMap, HashMap};

const TOP_FUNCTIONS: usize = 40;
const TOP_UNKNOWN: usize = 8;

/// A number per tenth of the window.
pub type Blocks = [f64; BLOCKS as usize];

pub fn sums(stacks: &[AttributedStack]) -> SampleSums {
    let mut sums = SampleSums::default();
    for stack in stacks.iter().filter(|stack| stack.event == 0) {
        let count = stack.count();
        *match (stack.owner, stack.ran) {
            (StackOwner::Server, Ran::Server) => &mut sums.server_in_own_process,
            (StackOwner::Server, Ran::Others) => &mut sums.server_in_others,
            (StackOwner::Server, Ran::Idle) => &mut sums.server_on_idle,
            (StackOwner::Peer, Ran::Server) => &mut sums.peer_in_server,
            (_, Ran::Server) => &mut sums.others_in_server,
            (StackOwner::Idle, _) => &mut sums.idle,
            _ => &mut sums.others,
        } += count;
    }
    sums
}

fn counted(stacks: &[AttributedStack], event: u8, wanted: impl Fn(&AttributedStack) -> bool) -> (u64, Blocks) {
    let mut blocks = [0.0; BLOCKS as usize];
    let mut samples = 0;
    for stack in of_server(stacks, event).filter(|stack| wanted(stack)) {
        samples += stack.count();
        for (sum, count) in blocks.iter_mut().zip(stack.blocks) {
            *sum += count as f64;
        }
    }
    (samples, blocks)
}

#[derive(Debug, Clone, Copy)]
pub struct Denominators {
    pub packets: Blocks,
    pub requests: Blocks,
}

fn scaled(blocks: &Blocks, factor: f64) -> Blocks {
    blocks.map(|count| count * factor)
}

pub fn layer_rows(stacks: &[AttributedStack], sample_ns: f64, by: &Denominators, events: &[EventRow]) -> Vec<LayerRow> {
    let (_, whole) = counted(stacks, 0, |_| true);
    let row = |layer: Option<Layer>, part: &str| {
        let wanted = |stack: &AttributedStack| match (&stack.row, layer) {
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
        for stack in of_server(stacks, 0) {
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

/// The functions with the most samples, without their callees.
pub fn function_rows(stacks: &[AttributedStack], sums: &SampleSums) -> Vec<FunctionRow> {
    type LayerAndMode = (Option<Layer>, CpuMode);
    let mut functions: HashMap<(&str, Option<&str>), BTreeMap<LayerAndMode, u64>> = HashMap::new();
    for stack in of_server(stacks, 0) {
        let (name, module) = stack
            .frames
            .first()
            .map_or(("[no stack]", None), |leaf| (leaf.function.as_str(), leaf.module.as_ref().map(PlainText::as_str)));
        let place = (stack.row.as_ref().map(|row| row.layer), stack.mode);
        *functions.entry((name, module)).or_default().entry(place).or_default() += stack.count();
    }
    let share = |samples: u64, of: u64| samples as f64 / of.max(1) as f64;
    let all = sums.all();
    let mut rows: Vec<FunctionRow> = functions
        .into_iter()
        .map(|((function, module), places)| {
            let samples = places.values().sum();
            let most = places.iter().max_by_key(|(_, count)| **count);
            let (layer, mode) = most.map_or((None, CpuMode::Kernel), |(place, _)| *place);
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

/// The user's groups, and a row for the functions outside of them.
pub fn group_rows(
    stacks: &[AttributedStack],
    groups: &[FunctionGroup],
    sample_ns: f64,
    by: &Denominators,
) -> Vec<GroupRow> {
    if groups.is_empty() {
        return Vec::new();
    }
    let group_of = |stack: &AttributedStack| {
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

/// Innermost functions of the server's samples that belong to no layer.
pub fn unattributed_top(stacks: &[AttributedStack]) -> Vec<(String, u64)> {
    let mut tops: BTreeMap<&str, u64> = BTreeMap::new();
    for stack in of_server(stacks, 0).filter(|stack| stack.row.is_none()) {
        *tops.entry(stack.frames.first().map_or("[no stack]", |leaf| &leaf.function)).or_default() += stack.count();
    }
    let mut tops: Vec<(String, u64)> = tops.into_iter().map(|(name, count)| (name.to_string(), count)).collect();
    tops.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    tops.truncate(TOP_UNKNOWN);
    tops
}
