//! The hooks that the running kernel offers, read from its type information (BTF) before anything is loaded.

use super::error::WatchError;
use crate::bpf;
use crate::bpf::members::FOLLOWERS;
use libbpf_rs::OpenObject;
use memchr::memmem;
use std::sync::OnceLock;

/// Programs attached during the whole watch; that of the states first, because it must precede the others.
pub const ALWAYS: [&str; 8] = [
    "on_state",
    "on_missed_state",
    FOLLOWERS[0],
    FOLLOWERS[1],
    FOLLOWERS[2],
    "on_retransmit",
    "on_send_reset",
    "on_receive_reset",
];
const ON_SENDMSG: &str = "on_sendmsg";
const TYPES: &str = "/sys/kernel/btf/vmlinux";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiveHook {
    /// `sock_recv_length` (Linux 6.3): one event per read, with its length.
    Length,
    Position,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendHook {
    Length,
    /// Return of `tcp_sendmsg` and `tcp_sendpage`.
    Return {
        /// Whether the kernel still has `tcp_sendpage` (before 6.5).
        has_sendpage: bool,
        /// Whether kprobes at entry and return are used, because the kernel's functions cannot be hooked (fentry).
        is_probed: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelHooks {
    pub receive: ReceiveHook,
    pub send: SendHook,
    pub has_disk_reads: bool,
}

impl KernelHooks {
    /// The hooks of the running kernel, whose types are read once.
    pub fn detect() -> Result<Self, WatchError> {
        static KNOWN: OnceLock<KernelHooks> = OnceLock::new();
        match KNOWN.get() {
            Some(hooks) => Ok(*hooks),
            None => Self::read().map(|hooks| *KNOWN.get_or_init(|| hooks)),
        }
    }

    fn read() -> Result<Self, WatchError> {
        let types = std::fs::read(TYPES).map_err(|error| WatchError::NoTypes(error.to_string()))?;
        // Searching for names is quicker than parsing all types.
        let has = |name: &str| memmem::find(&types, format!("\0{name}\0").as_bytes()).is_some();
        let has_event = |name: &str| has(&format!("btf_trace_{name}"));
        let receive = if has_event("sock_recv_length") { ReceiveHook::Length } else { ReceiveHook::Position };
        let send = if has_event("sock_send_length") {
            SendHook::Length
        } else {
            SendHook::Return { has_sendpage: has("tcp_sendpage"), is_probed: !can_hook_functions() }
        };
        Ok(KernelHooks { receive, send, has_disk_reads: has_event("block_bio_queue") })
    }

    /// Describes briefly which hooks observe which events.
    pub fn in_words(&self) -> String {
        let reads = match self.receive {
            ReceiveHook::Length => "reads by sock_recv_length",
            ReceiveHook::Position => "reads by segment (tcp_rcv_space_adjust)",
        };
        let sends = match self.send {
            SendHook::Length => "sends by sock_send_length",
            SendHook::Return { is_probed: false, .. } => "sends by the return of tcp_sendmsg",
            SendHook::Return { is_probed: true, .. } => "sends by probes at tcp_sendmsg",
        };
        let disk = if self.has_disk_reads { ", disk reads" } else { "" };
        format!("{reads}, {sends}, resets, retransmissions{disk}")
    }

    pub fn receive_program(&self) -> &'static str {
        match self.receive {
            ReceiveHook::Length => "on_receive",
            ReceiveHook::Position => "on_copied",
        }
    }

    /// Programs of every window, in addition to those that observe writes.
    pub fn window_programs(&self) -> Vec<&'static str> {
        if self.has_disk_reads { vec!["on_switch", "on_disk_read"] } else { vec!["on_switch"] }
    }

    pub fn send_programs(&self) -> Vec<&'static str> {
        match self.send {
            SendHook::Length => vec!["on_send"],
            SendHook::Return { has_sendpage: true, is_probed: false } => vec![ON_SENDMSG, "on_sendpage"],
            SendHook::Return { has_sendpage: false, is_probed: false } => vec![ON_SENDMSG],
            SendHook::Return { has_sendpage: true, is_probed: true } => {
                vec!["begin_sendmsg", "end_sendmsg", "begin_sendpage", "end_sendpage"]
            }
            SendHook::Return { has_sendpage: false, is_probed: true } => vec!["begin_sendmsg", "end_sendmsg"],
        }
    }

    /// Number of programs that run for a write.
    pub fn runs_per_send(&self) -> u32 {
        match self.send {
            SendHook::Return { is_probed: true, .. } => 2,
            _ => 1,
        }
    }
}

/// Whether programs can be attached to the return of a function (fexit).
fn can_hook_functions() -> bool {
    let only = |open: &mut OpenObject| {
        open.progs_mut().for_each(|mut program| program.set_autoload(program.name() == ON_SENDMSG));
        Ok(())
    };
    bpf::load(bpf::WATCH, only).and_then(|object| bpf::attach(&object, ON_SENDMSG)).is_ok()
}
