//! The server's processes in the programs' table (`bpf/members.h`).

use super::types::members::{Member, MemberCounts};
use super::types::{bytes_of, value_of};
use super::{Refusal, map, variable};
use crate::processes::Process;
use libbpf_rs::{MapCore, MapFlags, Object};
use std::collections::HashSet;

pub const FOLLOWERS: [&str; 3] = ["process_forked", "process_executed", "process_ended"];

/// Synchronises the programs' table with the processes found in /proc.
#[derive(Debug, Default)]
pub struct Members {
    known: HashSet<Process>,
    lost: u64,
}

impl Members {
    /// Adds new processes. If the table is full, removes processes whose end the programs missed because they ended
    /// before they were added.
    pub fn update(&mut self, object: &Object, processes: &[Process]) -> Result<(), Refusal> {
        let members = map(object, "members")?;
        let place = |process: &Process| process.pid.to_ne_bytes();
        let has = |process: &Process| -> Result<bool, Refusal> {
            let found = members.lookup(&place(process), MapFlags::ANY)?.and_then(|bytes| value_of::<Member>(&bytes));
            Ok(found.is_some_and(|member| member.start_ticks == process.start_ticks))
        };
        let now: HashSet<Process> = processes.iter().copied().collect();
        let mut is_tidy = false;
        for new in now.difference(&self.known) {
            let member = Member { start_ticks: new.start_ticks, image: new.pid, reserved: 0 };
            if has(new)? {
                continue;
            }
            let put = || members.update(&place(new), bytes_of(&member), MapFlags::ANY);
            if put().is_ok() {
                continue;
            }
            if !std::mem::replace(&mut is_tidy, true) {
                let of_now: HashSet<u32> = now.iter().map(|process| process.pid).collect();
                for ended in Self::living(object)?.difference(&of_now) {
                    let _ = members.delete(&ended.to_ne_bytes());
                }
            }
            self.lost += u64::from(put().is_err());
        }
        self.known = now;
        Ok(())
    }

    /// Number of processes that had no place in the table.
    pub fn lost(&self, object: &Object) -> Result<u64, Refusal> {
        Ok(self.lost + variable::<MemberCounts>(object, ".bss.members")?.lost)
    }

    /// The processes that have not ended.
    pub fn living(object: &Object) -> Result<HashSet<u32>, Refusal> {
        Ok(map(object, "members")?.keys().filter_map(|key| Some(u32::from_ne_bytes(key.try_into().ok()?))).collect())
    }
}
