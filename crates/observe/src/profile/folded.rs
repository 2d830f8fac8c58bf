//! Converts the stacks of a profile to folded stacks. The root is the server's program, or the place where its packets
//! were handled outside it.

use super::attribute::{Owner, Ran, Stack};
use record::profile::folded::{Folded, KERNEL_MARK};

/// Folds the server's work of a profile.
pub fn of(stacks: &[Stack], command: &str) -> Folded {
    let mut folded = Folded::default();
    for stack in stacks.iter().filter(|stack| stack.event == 0 && stack.owner == Owner::Server) {
        *folded.0.entry(path(stack, command)).or_default() += stack.count();
    }
    folded
}

fn path(stack: &Stack, command: &str) -> Vec<String> {
    let root = match stack.ran {
        Ran::Server if command.is_empty() => "server".to_string(),
        Ran::Server => command.replace([';', '\n', '\r'], "?"),
        Ran::Others => "[packets in other processes]".into(),
        Ran::Idle => "[packets on idle CPUs]".into(),
    };
    let frames =
        stack.frames.iter().rev().map(|frame| {
            if frame.is_kernel { format!("{}{KERNEL_MARK}", frame.function) } else { frame.function.clone() }
        });
    let unknown = stack.frames.is_empty().then(|| "[no stack]".to_string());
    [root].into_iter().chain(frames).chain(unknown).collect()
}
