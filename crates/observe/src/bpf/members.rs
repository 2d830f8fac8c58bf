//! The server's processes as the programs know them (`bpf/members.h`).

use super::types::members::{Member, MemberCounts};
use super::types::{bytes_of, value_of};
use super::{Refusal, map};
use crate::processes::Process;
use libbpf_rs::{MapCore, MapFlags, Object};
use std::collections::HashSet;

/// The programs that follow them.
pub const FOLLOWERS: [&str; 3] = ["process_forked", "process_executed", "process_ended"];

/// Keeps the programs' table in step with the processes that are found in /proc.
#[derive(Debug, Default)]
pub struct Members {
    known: HashSet<Process>,
    lost: u64,
}

impl Members {
    /// Puts in those that are new. Those that were given before and are no longer are taken out, if the programs did
    /// not do that: they may have ended before they were put in.
    pub fn update(&mut self, object: &Object, processes: &[Process]) -> Result<(), Refusal> {
        let members = map(object, "members")?;
        let place = |process: &Process| process.pid.to_ne_bytes();
        let has = |process: &Process| -> Result<bool, Refusal> {
            let found = members.lookup(&place(process), MapFlags::ANY)?.and_then(|bytes| value_of::<Member>(&bytes));
            Ok(found.is_some_and(|member| member.start_ticks == process.start_ticks))
        };
        let now: HashSet<Process> = processes.iter().copied().collect();
        for gone in self.known.difference(&now) {
            if has(gone)? {
                // The programs may be faster.
                let _ = members.delete(&place(gone));
            }
        }
        for new in now.difference(&self.known) {
            let member = Member { start_ticks: new.start_ticks, image: new.pid, reserved: 0 };
            if !has(new)? && members.update(&place(new), bytes_of(&member), MapFlags::ANY).is_err() {
                self.lost += 1;
            }
        }
        self.known = now;
        Ok(())
    }

    /// Processes that had no place in the table.
    pub fn lost(&self, object: &Object) -> Result<u64, Refusal> {
        Ok(self.lost + counts(object)?.lost)
    }

    /// The numbers of those that have not ended.
    pub fn living(object: &Object) -> Result<HashSet<u32>, Refusal> {
        Ok(map(object, "members")?.keys().filter_map(|key| Some(u32::from_ne_bytes(key.try_into().ok()?))).collect())
    }
}

fn counts(object: &Object) -> Result<MemberCounts, Refusal> {
    let bytes = map(object, ".bss.members")?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
    Ok(value_of(&bytes).unwrap_or_default())
}
