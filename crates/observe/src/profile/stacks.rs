//! Converts the attributed stacks of a window to their recorded form: only the server's work, each stack once, with
//! the samples of the clock and of the hardware events.

use super::attribute::{AttributedStack, StackOwner};
use record::PlainText;
use record::layers::{Layer, Row};
use record::profile::stacks::apportion;
use record::profile::{CpuMode, EventRow, Frame, Ran, SampledProcess, Stacks};
use std::collections::{BTreeMap, HashMap};

type StackKey = (Option<u32>, Ran, CpuMode, Option<Row>, Vec<u32>);

/// `command_of` names a process.
pub fn recorded(stacks: &[AttributedStack], command_of: &dyn Fn(u32) -> PlainText, events: &[EventRow]) -> Stacks {
    let measured: Vec<(u8, &EventRow)> = (1..).zip(events).filter(|(_, event)| event.not_measured.is_none()).collect();
    let mut recorded = Stacks::default();
    let mut functions: HashMap<&Frame, u32> = HashMap::new();
    let mut processes: BTreeMap<u32, u32> = BTreeMap::new();
    let mut counts: BTreeMap<StackKey, Vec<u64>> = BTreeMap::new();
    for stack in stacks.iter().filter(|stack| stack.owner == StackOwner::Server) {
        let column = match measured.iter().position(|(number, _)| *number == stack.event) {
            Some(place) => place + 1,
            None if stack.event == 0 => 0,
            None => continue,
        };
        let places = stack.frames.iter().map(|frame| {
            *functions.entry(frame).or_insert_with(|| {
                recorded.functions.push(frame.clone());
                recorded.functions.len() as u32 - 1
            })
        });
        let places = places.collect();
        let process = (stack.ran == Ran::Server).then(|| {
            *processes.entry(stack.tgid).or_insert_with(|| {
                recorded.processes.push(SampledProcess { pid: stack.tgid, name: command_of(stack.tgid) });
                recorded.processes.len() as u32 - 1
            })
        });
        let place = (process, stack.ran, stack.mode, stack.row.clone(), places);
        counts.entry(place).or_insert_with(|| vec![0; measured.len() + 1])[column] += stack.count();
    }
    let layer_of = |row: &Option<Row>| row.as_ref().map(|row| row.layer);
    // Each sample represents the event's period, or more if the event shared its counter.
    let in_events = |(index, (_, event)): (usize, &(u8, &EventRow))| {
        let parts: Vec<(Option<Layer>, u64)> =
            counts.iter().map(|((_, _, _, row, _), counts)| (layer_of(row), counts[index + 1])).collect();
        let each = event.period as f64 / event.counter_ran_ratio.max(1e-6);
        apportion(&parts, |layer| {
            parts.iter().filter(|(of, _)| *of == layer).map(|(_, samples)| *samples as f64 * each).sum()
        })
    };
    let amounts: Vec<Vec<u64>> = measured.iter().enumerate().map(in_events).collect();
    recorded.events = measured.iter().map(|(_, event)| event.event.as_str().into()).collect();
    let columns = counts.into_iter().enumerate();
    recorded.stacks = columns
        .map(|(index, ((process, ran, mode, row, functions), counts))| record::profile::Stack {
            functions,
            process,
            ran,
            mode,
            layer: layer_of(&row),
            part: row.map_or_else(PlainText::default, |row| row.part.as_str().into()),
            samples: counts[0],
            cpu_ns: 0,
            events: amounts.iter().map(|amount| amount[index]).collect(),
        })
        .collect();
    recorded
}
