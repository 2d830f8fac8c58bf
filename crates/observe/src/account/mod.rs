//! The account of the server's threads: exact times from scheduler events in a window, and times of calls to other
//! servers from the server's sends and receives. The programs measure their own cost, and end a window when the cost
//! reaches its budget.

pub mod calls;
pub mod reading;

use crate::bpf::members::{FOLLOWERS, Members};
use crate::bpf::types::account::{Gate, Sums};
use crate::bpf::{self, Refusal};
use crate::listening::holders_of;
use crate::namespace::needs_hosts_process_ids;
use crate::outgoing::name_of;
use crate::port_sockets::PortReader;
use crate::processes::{Process, ProcessTable};
use crate::profile::symbols;
use crate::sock_diag::Scope;
use crate::watch::kernel_has_send_events;
use calls::arguments;
use libbpf_rs::{Iter, Link, Object, ProgramInput};
use record::account::{Account, Wait, WaitKind};
use std::collections::{BTreeMap, HashSet};
use std::io::Read;
use std::net::SocketAddr;
use std::time::Duration;

const GATE: &str = ".bss.gate";
/// Size of the programs' table of system calls (`SYSCALLS_KNOWN`).
const KNOWN_CALLS: usize = 512;
/// Maximum addresses of other servers that are checked for being the server's own.
const MOST_ADDRESSES: usize = 64;
/// Budget of the programs as a share of the time of each CPU.
const BUDGET: f64 = 0.008;
/// Budget of the programs on each CPU in a first window of unknown length.
const FIRST_BUDGET_NS: u64 = 4_000_000;
/// Windows between two searches for calls to other servers if none was found.
const WINDOWS_BETWEEN_LOOKS_FOR_CALLS: u64 = 4;
/// Minimum time between two sampled stacks on a CPU.
const STACK_GAP_NS: u64 = 2_000_000;

/// Links are dropped before their object.
#[derive(Debug)]
pub struct Accountant {
    _links: Vec<Link>,
    switch: &'static str,
    /// Programs that are attached only in windows, because events of all processes have a cost.
    in_window: Vec<Link>,
    windows: u64,
    /// Whether the last window that searched for calls to other servers saw any.
    has_backends: bool,
    looks_for_calls: bool,
    walk: Link,
    object: Object,
    members: Members,
    sockets: Option<PortReader>,
    /// Whether a process of the server listens at an address that it calls.
    is_own: BTreeMap<String, bool>,
    port: u16,
    /// Budget of the next window on each CPU.
    budget_ns: u64,
    why_no_backends: Option<String>,
}

/// The program for the event of a switch with its fourth argument (since Linux 5.18), which the verifier of older
/// kernels refuses.
const SWITCH: &str = "on_account_switch";
/// The same without that argument.
const OLDER_SWITCH: &str = "on_older_switch";

fn load(switch: &'static str, has_calls: bool) -> Result<Object, Refusal> {
    let object = bpf::load(bpf::ACCOUNT, |open| {
        bpf::set_constants(open, ".rodata.calls", &arguments::<KNOWN_CALLS>())?;
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().to_string();
            let is_wanted = match name.as_str() {
                SWITCH | OLDER_SWITCH => name == switch,
                "find_wakeup" => switch == SWITCH,
                "on_call" | "on_answer" => has_calls,
                _ => true,
            };
            program.set_autoload(is_wanted);
        }
        Ok(())
    })?;
    if switch == SWITCH {
        bpf::program(&object, "find_wakeup")?.test_run(ProgramInput::default())?;
    } else {
        bpf::set_variable(&object, ".bss.wakeup", &symbols::address_of("hrtimer_wakeup").unwrap_or(0))?;
    }
    Ok(object)
}

impl Accountant {
    /// Loads the programs and attaches the permanent ones; opens no window.
    pub fn start(port: u16) -> Result<Accountant, Refusal> {
        needs_hosts_process_ids()
            .map_err(|error| Refusal::from(libbpf_rs::Error::from(std::io::Error::other(error))))?;
        let has_calls = kernel_has_send_events();
        let (switch, object) = match load(SWITCH, has_calls) {
            Ok(object) => (SWITCH, object),
            Err(refusal) if refusal.is_permission() => return Err(refusal),
            Err(_) => (OLDER_SWITCH, load(OLDER_SWITCH, has_calls)?),
        };
        let links = FOLLOWERS.into_iter().map(|name| bpf::attach(&object, name)).collect::<Result<_, _>>()?;
        let why_no_backends =
            (!has_calls).then(|| "this kernel has no event for sends and receives (Linux 6.3)".to_string());
        let walk = bpf::attach(&object, "walk_threads")?;
        Ok(Accountant {
            _links: links,
            switch,
            in_window: Vec::new(),
            windows: 0,
            has_backends: false,
            looks_for_calls: false,
            walk,
            object,
            members: Members::default(),
            sockets: None,
            is_own: BTreeMap::new(),
            port,
            budget_ns: FIRST_BUDGET_NS,
            why_no_backends,
        })
    }

    /// Sets the expected length of the next window; its budget is a share of that.
    pub fn expect(&mut self, length: Duration) {
        self.budget_ns = (BUDGET * length.as_nanos() as f64) as u64;
    }

    /// Ends the open window, if any, and opens the next.
    pub fn next(
        &mut self,
        processes: &[Process],
        table: &ProcessTable,
        budget_ns: u64,
    ) -> Result<Option<Account>, Refusal> {
        let ended = (!self.in_window.is_empty()).then(|| self.end(processes, table)).transpose()?;
        self.budget_ns = budget_ns;
        self.begin(processes)?;
        Ok(ended)
    }

    fn run(&self, program: &str) -> Result<(), Refusal> {
        bpf::program(&self.object, program)?.test_run(ProgramInput::default())?;
        Ok(())
    }

    /// Opens a window for these processes and what they start.
    pub fn begin(&mut self, processes: &[Process]) -> Result<(), Refusal> {
        self.members.update(&self.object, processes)?;
        bpf::set_variable(&self.object, ".bss.sums", &Sums::default())?;
        for name in ["places", "wait_samples", "wait_stacks", "outgoing"] {
            bpf::clear(&self.object, name)?;
        }
        self.set_listening(processes)?;
        let gate = Gate {
            window: bpf::variable::<Gate>(&self.object, GATE)?.window,
            port: self.port.into(),
            stack_gap_ns: STACK_GAP_NS,
            budget_ns: self.budget_ns,
            ..Gate::default()
        };
        bpf::set_variable(&self.object, GATE, &gate)?;
        let mut names = vec![self.switch, "on_waking", "on_exit"];
        // Tracing costs time at every send and receive of the machine, so a server without backends is traced in few
        // windows only.
        self.looks_for_calls = self.why_no_backends.is_none()
            && (self.has_backends || self.windows.is_multiple_of(WINDOWS_BETWEEN_LOOKS_FOR_CALLS));
        if self.looks_for_calls {
            names.extend(["on_call", "on_answer"]);
        }
        self.windows += 1;
        self.in_window = names.into_iter().map(|name| bpf::attach(&self.object, name)).collect::<Result<_, _>>()?;
        self.run("open_window")
    }

    /// Passes the listening ports to the programs. The other end of a connection to one of them is a client.
    fn set_listening(&mut self, processes: &[Process]) -> Result<(), Refusal> {
        if self.sockets.is_none() {
            self.sockets = processes.first().and_then(|first| PortReader::open(Some(first.pid), self.port).ok());
        }
        let mut listening = [0u64; 1 << 10];
        if let Some(sockets) = &mut self.sockets {
            let mut add = |port: u16| listening[usize::from(port / 64)] |= 1 << (port % 64);
            // Sockets that cannot be read are skipped.
            let _ = sockets.read_elsewhere(self.port, Scope::ListenersElsewhere, |one| add(one.local.port()));
        }
        bpf::set_variable(&self.object, ".bss.listening", &listening)
    }

    /// Closes the window in the programs and adds the waits that are not over.
    pub fn close(&mut self, processes: &[Process]) -> Result<(), Refusal> {
        self.run("close_window")?;
        self.members.update(&self.object, processes)?;
        let mut walk = Iter::new(&self.walk)?;
        walk.read_to_end(&mut Vec::new()).map_err(libbpf_rs::Error::from)?;
        Ok(())
    }

    /// Ends the window and returns its account. `processes` are those of the server that live now.
    pub fn end(&mut self, processes: &[Process], table: &ProcessTable) -> Result<Account, Refusal> {
        self.close(processes)?;
        let gate: Gate = bpf::variable(&self.object, GATE)?;
        bpf::set_variable(&self.object, GATE, &Gate { is_open: 0, ..gate })?;
        // The kernel waits until no CPU runs these programs.
        let ended = std::mem::take(&mut self.in_window);
        std::thread::spawn(move || drop(ended));
        self.expect(Duration::from_nanos(gate.ended_ns.saturating_sub(gate.opened_ns).max(1)));
        let mut account = reading::read(&self.object, &gate, table)?;
        if self.looks_for_calls {
            let is_one_way = |wait: &Wait| wait.kind == WaitKind::Pipe && !wait.object.is_empty();
            let mut waits = account.groups.iter().flat_map(|group| &group.waits);
            self.has_backends = !account.backends.is_empty() || waits.any(is_one_way);
        }
        for backend in &mut account.backends {
            let known = self.is_own.get(backend.address.as_str()).copied();
            backend.is_own = known.unwrap_or_else(|| self.listens_at(&backend.address, processes));
            if self.is_own.len() < MOST_ADDRESSES {
                self.is_own.insert(backend.address.to_string(), backend.is_own);
            }
        }
        account.lost += self.members.lost(&self.object)?;
        account.why_no_backends.clone_from(&self.why_no_backends);
        Ok(account)
    }

    /// Whether one of the processes listens at the address. Sockets that cannot be read are those of others.
    fn listens_at(&mut self, address: &str, processes: &[Process]) -> bool {
        let Some(sockets) = &mut self.sockets else { return false };
        let mut listeners = HashSet::new();
        let read = match (address.strip_prefix("unix:"), address.parse::<SocketAddr>()) {
            (Some(path), _) => sockets.read_unix(|socket| {
                let is_there = socket.is_listener && name_of(socket.name) == path;
                listeners.extend(is_there.then_some(socket.inode));
            }),
            (None, Ok(at)) => sockets.read_elsewhere(self.port, Scope::ListenersElsewhere, |one| {
                let is_here = at.ip().is_loopback() || one.local.ip() == at.ip();
                listeners.extend((is_here && one.local.port() == at.port()).then_some(one.inode));
            }),
            (None, Err(_)) => Ok(()),
        };
        let pids: Vec<u32> = processes.iter().map(|process| process.pid).collect();
        read.is_ok() && !holders_of(&listeners, &pids).is_empty()
    }
}
