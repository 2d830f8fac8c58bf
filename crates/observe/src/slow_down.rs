//! Slow-down experiments: BPF programs at places of a server's code add a given delay, and count it. The loss of
//! throughput shows what would be gained if that place were cheaper.
//!
//! Nothing is pinned, so the programs end with this process. They also limit each delay.

use crate::ObserveError;
use crate::bpf::members::{FOLLOWERS, Members};
use crate::bpf::types::value_of;
use crate::bpf::{self, Refusal};
use crate::group::ServerGroup;
use crate::listening::server_on_port;
use crate::maps;
use crate::namespace::{namespace_number, needs_hosts_process_ids};
use crate::processes::{ProcessTable, living_thread};
use crate::watch::WatchError;
use libbpf_rs::{Link, MapCore, MapFlags, Object, UprobeOpts};
use record::axis::MAX_SLOW_DOWN_NS;
use record::{PlainText, SlowPlace};
use std::collections::BTreeSet;

/// The reason why a server cannot be slowed down, as a sentence.
#[derive(Debug, thiserror::Error)]
pub enum SlowDownError {
    /// No process listens.
    #[error("nothing listens on port {port} here")]
    NoServer {
        /// The port.
        port: u16,
    },
    /// The kernel refused the programs.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The server's program has no such function.
    #[error("the server's program has no symbol '{0}': it was inlined or stripped, or lies in another library")]
    NoFunction(PlainText),
    /// The delay exceeds the limit.
    #[error("a spin takes {MAX_SLOW_DOWN_NS} ns at most")]
    TooLong,
    /// The server is not visible.
    #[error(transparent)]
    Observe(#[from] ObserveError),
}

impl From<Refusal> for SlowDownError {
    fn from(refusal: Refusal) -> Self {
        WatchError::from(refusal).into()
    }
}

/// Delays added at a place since the program was attached.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AddedDelays {
    /// Number of times the place was reached.
    pub count: u64,
    /// Duration of the delays, nanoseconds.
    pub ns: u64,
}

/// BPF programs at the places of a server. Links are dropped before their object.
#[derive(Debug)]
pub struct SlowDown {
    links: Vec<Link>,
    object: Object,
    /// Programs that are attached when a delay is first set, so that they run after the programs of a profile that
    /// begins before that, which record the current packet.
    late: Vec<&'static str>,
    group: ServerGroup,
    table: ProcessTable,
    members: Members,
}

fn program_of(place: SlowPlace) -> &'static str {
    match place {
        SlowPlace::Receive => "slow_packet_received",
        SlowPlace::Send => "slow_packet_queued",
        SlowPlace::WakeUp => "slow_thread_runs",
        SlowPlace::Request => "slow_request_read",
        SlowPlace::Accept => "slow_call_accepts",
        SlowPlace::FileRead => "slow_call_reads_file",
        SlowPlace::Function => "slow_function_begins",
        SlowPlace::Lock => "slow_mutex_held",
        SlowPlace::KernelLock => "slow_lock_taken",
    }
}

/// The libraries of a process that have locks of whole programs.
fn libraries(pid: u32) -> BTreeSet<String> {
    let has_lock = |path: &str| path.contains("/libc.so") || path.contains("/libc-2") || path.contains("/libpython");
    let mapped = maps::of_process(pid).unwrap_or_default().into_iter().filter(|mapping| has_lock(&mapping.path));
    mapped.map(|mapping| format!("/proc/{pid}/root{}", mapping.path)).collect()
}

impl SlowDown {
    /// Loads the programs for these places of the server that listens on `port`, without a delay. `netns_pid`: a
    /// process in the server's network namespace, if that is a separate one. `function`: a function of the server's
    /// program, for the place of that kind.
    pub fn attach(
        port: u16,
        netns_pid: Option<u32>,
        places: &[SlowPlace],
        function: Option<&str>,
    ) -> Result<Self, SlowDownError> {
        let server = server_on_port(port, netns_pid)?.ok_or(SlowDownError::NoServer { port })?;
        needs_hosts_process_ids()?;
        let netns = namespace_number(Some(server.pid));
        let target = bpf::types::profile::Target { port: port.into(), netns, period_ns: 0 };
        let mut wanted: Vec<&'static str> = places.iter().map(|place| program_of(*place)).chain(FOLLOWERS).collect();
        wanted.extend(places.contains(&SlowPlace::KernelLock).then_some("slow_lock_waits"));
        let object = bpf::load(bpf::SLOW, |open| {
            for mut program in open.progs_mut() {
                let is_wanted = wanted.iter().any(|name| program.name() == *name);
                program.set_autoload(is_wanted);
            }
            bpf::set_constants(open, ".rodata.target", &target)
        })?;
        let mut slow = SlowDown {
            object,
            links: Vec::new(),
            late: Vec::new(),
            group: ServerGroup::new(server.sharing, None),
            table: ProcessTable::default(),
            members: Members::default(),
        };
        slow.admit()?;
        let of_packets = [SlowPlace::Receive, SlowPlace::Send].map(program_of);
        for name in wanted {
            if of_packets.contains(&name) {
                slow.late.push(name);
                continue;
            }
            let link = match function {
                Some(function) if name == program_of(SlowPlace::Function) => slow.probe(name, server.pid, function)?,
                _ if name == program_of(SlowPlace::Lock) => slow.probe(name, server.pid, "pthread_mutex_unlock")?,
                _ => bpf::attach(&slow.object, name)?,
            };
            slow.links.push(link);
        }
        Ok(slow)
    }

    /// Attaches a program to a function of the server's program, or of a library with locks.
    fn probe(&self, name: &str, pid: u32, function: &str) -> Result<Link, SlowDownError> {
        let pid = living_thread(pid);
        let files = std::iter::once(format!("/proc/{pid}/exe")).chain(libraries(pid));
        let program = bpf::program(&self.object, name)?;
        for file in files {
            let options = UprobeOpts { func_name: Some(function.to_string()), ..UprobeOpts::default() };
            match bpf::logged(|| program.attach_uprobe_with_opts(-1, file, 0, options)) {
                Err(refusal) if refusal.error.kind() == libbpf_rs::ErrorKind::NotFound => {}
                attached => return Ok(attached?),
            }
        }
        Err(SlowDownError::NoFunction(PlainText::new(function, 80)))
    }

    fn admit(&mut self) -> Result<(), SlowDownError> {
        self.table.scan();
        self.group.admit(&self.table);
        Ok(self.members.update(&self.object, &self.group.processes())?)
    }

    /// Sets a delay at `place` and removes all others; `None` removes all.
    pub fn set(&mut self, place: Option<SlowPlace>, ns: u64) -> Result<(), SlowDownError> {
        if ns > MAX_SLOW_DOWN_NS {
            return Err(SlowDownError::TooLong);
        }
        self.admit()?;
        for name in std::mem::take(&mut self.late) {
            self.links.push(bpf::attach(&self.object, name)?);
        }
        let map = bpf::map(&self.object, "delays")?;
        for (number, at) in (0u32..).zip(SlowPlace::ALL) {
            let delay_ns = if Some(at) == place { ns } else { 0 };
            map.update(&number.to_ne_bytes(), &delay_ns.to_ne_bytes(), MapFlags::ANY).map_err(Refusal::from)?;
        }
        Ok(())
    }

    /// The delays added at a place so far.
    pub fn spun(&self, place: SlowPlace) -> Result<AddedDelays, SlowDownError> {
        let number = SlowPlace::ALL.iter().position(|at| *at == place).unwrap_or(0) as u32;
        let map = bpf::map(&self.object, "spun")?;
        let of_cpus = map.lookup_percpu(&number.to_ne_bytes(), MapFlags::ANY).map_err(Refusal::from)?;
        let mut sum = AddedDelays::default();
        for [count, ns] in of_cpus.iter().flatten().filter_map(|bytes| value_of::<[u64; 2]>(bytes)) {
            sum.count += count;
            sum.ns += ns;
        }
        Ok(sum)
    }
}
