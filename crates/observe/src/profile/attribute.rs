//! Assigns each sample to an owner and a layer.
//!
//! The server's work is the work of its processes, and the network softirq work on packets that its connections
//! receive, wherever it ran: in another process, in ksoftirqd, on an idle CPU. On loopback and veth, the other end's
//! receive path runs in the server's own send. It is the *peer's* work, though the scheduler charges the server for
//! it. Both sums are kept: the first describes the server, and the second can be compared with the scheduler.

use super::names::SymbolNames;
use super::samples::{BLOCKS, PacketReceiver, RawSamples, TGID_IDLE, TGID_OTHERS};
use crate::bpf::types::profile::Sample;
use record::layers::{Layer, LayerRule, Role, Row};
use record::profile::{Coverage, CpuMode, Frame, Ran};
use std::collections::{BTreeMap, HashMap, HashSet};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StackOwner {
    Server,
    /// The other end, on this machine.
    Peer,
    Others,
    Idle,
}

#[derive(Debug, Clone)]
pub struct AttributedStack {
    pub owner: StackOwner,
    pub ran: Ran,
    /// The layer; `None` if no function of the stack determines one.
    pub row: Option<Row>,
    pub mode: CpuMode,
    /// Functions, innermost first; empty if the stack was lost.
    pub frames: Vec<Frame>,
    pub event: u8,
    /// The server's process, if one ran.
    pub tgid: u32,
    /// Samples in each tenth of the window.
    pub blocks: [u64; BLOCKS as usize],
}

pub fn of_server(stacks: &[AttributedStack], event: u8) -> impl Iterator<Item = &AttributedStack> {
    stacks.iter().filter(move |stack| stack.event == event && stack.owner == StackOwner::Server)
}

impl AttributedStack {
    fn new(key: &Sample, owner: StackOwner, row: Option<Row>, mode: CpuMode, frames: Vec<Frame>) -> AttributedStack {
        let ran = ran_in(key);
        AttributedStack {
            owner,
            ran,
            row,
            mode,
            frames,
            event: key.event,
            tgid: key.tgid,
            blocks: [0; BLOCKS as usize],
        }
    }

    /// Number of all samples.
    pub fn count(&self) -> u64 {
        self.blocks.iter().sum()
    }
}

/// Functions between a tracepoint or probe and its program.
const HOOKS: [&str; 8] = [
    "bpf_trace_run",
    "__bpf_trace_",
    "__traceiter_",
    "bpf_trampoline_",
    "bpf_dispatcher_",
    "__bpf_prog_",
    "trace_call_bpf",
    "uprobe_",
];

/// Functions that receive or forward packets in a software interrupt. Below them, the packet determines the owner,
/// not the process.
const NETWORK_SOFTIRQ: [&str; 4] = ["net_rx_action", "net_tx_action", "napi_threaded_poll", "run_backlog_napi"];
const SOFTIRQ: [&str; 5] =
    ["handle_softirqs", "__do_softirq", "run_ksoftirqd", "napi_threaded_poll", "run_backlog_napi"];

/// Determines the owner and the row of every sample. Functions are named in processes that still live.
pub fn attribute(raw: &RawSamples, names: &mut SymbolNames<'_>, rule: &LayerRule) -> Vec<AttributedStack> {
    learn_users(raw, names);
    let mut kernel: HashMap<u64, (Vec<Frame>, Option<Row>, CpuMode, bool)> = HashMap::new();
    let mut stacks: BTreeMap<Sample, AttributedStack> = BTreeMap::new();
    for (key, count) in &raw.samples {
        let block = usize::from(key.block).min(BLOCKS as usize - 1);
        let stack = stacks.entry(Sample { block: 0, ..*key }).or_insert_with(|| {
            if key.is_user != 0 {
                return user_stack(raw, names, key);
            }
            let (frames, row, mode, is_network) = kernel
                .entry(key.kernel_stack)
                .or_insert_with(|| {
                    let frames = raw.kernel_stacks.get(&key.kernel_stack).map(|stack| names.kernel_stack(stack));
                    classify(frames.unwrap_or_default(), rule)
                })
                .clone();
            AttributedStack::new(key, owner_of(key, is_network, row.as_ref()), row, mode, frames)
        });
        stack.blocks[block] += count;
    }
    stacks.into_values().collect()
}

fn learn_users(raw: &RawSamples, names: &mut SymbolNames<'_>) {
    let mut by_process: BTreeMap<u32, HashSet<u64>> = BTreeMap::new();
    for (key, _) in raw.samples.iter().filter(|(key, _)| key.user_stack != 0) {
        by_process.entry(raw.named_by(key)).or_default().insert(key.user_stack);
    }
    for (pid, hashes) in by_process {
        let stacks: Vec<&Vec<u64>> = hashes.iter().filter_map(|hash| raw.user_stacks.get(hash)).collect();
        names.learn_user(pid, &stacks);
    }
}

fn user_stack(raw: &RawSamples, names: &SymbolNames<'_>, key: &Sample) -> AttributedStack {
    let frames = raw.user_stacks.get(&key.user_stack).map(|stack| names.user_stack(raw.named_by(key), stack));
    let owner = if key.tgid == TGID_OTHERS { StackOwner::Others } else { StackOwner::Server };
    let row = Row { layer: Layer::User, part: String::new() };
    AttributedStack::new(key, owner, Some(row), CpuMode::User, frames.unwrap_or_default())
}

fn ran_in(key: &Sample) -> Ran {
    match key.tgid {
        TGID_IDLE => Ran::Idle,
        TGID_OTHERS => Ran::Others,
        _ => Ran::Server,
    }
}

fn owner_of(key: &Sample, is_network: bool, row: Option<&Row>) -> StackOwner {
    match (is_network, PacketReceiver::from_side(key.side), ran_in(key)) {
        (true, PacketReceiver::Server, _) => StackOwner::Server,
        (true, PacketReceiver::Peer, _) => StackOwner::Peer,
        (true, PacketReceiver::Nobody, _) => StackOwner::Others,
        (false, _, Ran::Server) => StackOwner::Server,
        (false, _, Ran::Idle) if row.is_none_or(|row| row.layer == Layer::Idle) => StackOwner::Idle,
        (false, ..) => StackOwner::Others,
    }
}

/// The row of a kernel stack, its mode, and whether the current packet determines the owner.
pub fn classify(frames: Vec<Frame>, rule: &LayerRule) -> (Vec<Frame>, Option<Row>, CpuMode, bool) {
    let charged = without_slow_down(&frames);
    let row = rule.row_of(charged.iter().map(|frame| (frame.function.as_str(), frame.module.as_deref()))).cloned();
    let has = |names: &[&str]| frames.iter().any(|frame| names.contains(&frame.function.as_str()));
    let is_network = has(&NETWORK_SOFTIRQ);
    let softirq = frames.iter().position(|frame| SOFTIRQ.contains(&frame.function.as_str()));
    let interrupt = frames.iter().position(|frame| is_interrupt(&frame.function));
    // The inner one counts, because interrupts and software interrupts may nest in both orders.
    let mode = match (softirq, interrupt) {
        (Some(softirq), Some(interrupt)) if interrupt < softirq => CpuMode::Interrupt,
        (Some(_), _) => CpuMode::Softirq,
        (None, Some(_)) => CpuMode::Interrupt,
        (None, None) => CpuMode::Kernel,
    };
    // A device's interrupt during network work does not belong to the packet.
    let is_packets = is_network && mode == CpuMode::Softirq;
    (frames, row, mode, is_packets)
}

/// The frames below a deliberate delay, whose time belongs to the place where it is attached. An interrupt during the
/// delay does not belong to it.
fn without_slow_down(frames: &[Frame]) -> &[Frame] {
    let is_spin = |frame: &Frame| {
        let tagged = frame.function.strip_prefix("bpf_prog_").and_then(|rest| rest.split_once('_'));
        tagged.is_some_and(|(_, name)| name.starts_with("slow_"))
    };
    let is_hook = |frame: &Frame| HOOKS.iter().any(|hook| frame.function.starts_with(hook));
    match frames.iter().position(is_spin) {
        Some(spin) if !frames[..spin].iter().any(|frame| is_interrupt(&frame.function)) => {
            let place = &frames[spin + 1..];
            &place[place.iter().take_while(|frame| is_hook(frame)).count()..]
        }
        _ => frames,
    }
}

fn is_interrupt(function: &str) -> bool {
    [
        "asm_sysvec_",
        "asm_common_interrupt",
        "common_interrupt",
        "sysvec_",
        "el1h_64_irq",
        "el0t_64_irq",
        "do_interrupt_handler",
    ]
    .iter()
    .any(|prefix| function.starts_with(prefix))
}

/// Checks the rule against the samples.
pub fn coverage<'s>(stacks: impl IntoIterator<Item = &'s AttributedStack>, rule: &LayerRule) -> Coverage {
    let mut coverage = Coverage::default();
    let mut unknown: BTreeMap<&str, u64> = BTreeMap::new();
    for stack in stacks.into_iter().filter(|stack| stack.mode != CpuMode::User) {
        let count = stack.count();
        coverage.kernel_samples += count;
        coverage.attributed += if stack.row.is_some() { count } else { 0 };
        let Some(leaf) = stack.frames.first() else { continue };
        if rule.role(&leaf.function, leaf.module.as_deref()) == Role::Unknown {
            *unknown.entry(&leaf.function).or_default() += count;
        } else {
            coverage.classified += count;
        }
    }
    coverage.not_classified = unknown.into_iter().map(|(name, count)| (name.to_string(), count)).collect();
    coverage.not_classified.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    coverage
}
