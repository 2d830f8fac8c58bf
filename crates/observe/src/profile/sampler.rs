//! The sampler in the kernel: loaded, opened for a window, read. Nothing is pinned: it goes when this process does.

use super::error::ProfileError;
use super::events::{self, Event, EventKind};
use super::layout::{self, Interrupts, RawSamples, SampleKey};
use libbpf_rs::{ErrorKind, Link, MapCore, MapFlags, Object, ObjectBuilder, PerfEventOpts};
use record::profile::{Losses, PacketCounts};
use record::time::monotonic_ns;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsRawFd, IntoRawFd};

/// Compiled from `bpf/profile.bpf.c` by the build script. An ELF file is read in place, as structures of 8 bytes' alignment.
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/profile.bpf.o")));

#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

/// What is sampled.
#[derive(Debug, Clone)]
pub struct SamplerOptions {
    /// The server's port.
    pub port: u16,
    /// Inode number of its network namespace.
    pub netns_inode: u32,
    /// Samples a second and CPU.
    pub frequency_hz: u32,
    /// Events beside the CPU clock; those that the machine lacks are left out and named.
    pub events: Vec<EventKind>,
}

/// An event that samples, or the reason why it does not.
#[derive(Debug)]
pub struct EventState {
    /// Which.
    pub kind: EventKind,
    /// Why it is missing.
    pub missing: Option<String>,
    cpus: Vec<Event>,
}

impl EventState {
    /// Events counted so far over all CPUs, and the smallest share of time that a counter ran.
    pub fn read(&self) -> (u64, f64) {
        self.cpus
            .iter()
            .filter_map(|event| event.read().ok())
            .fold((0, 1.0), |(sum, share), (count, ran)| (sum + count, share.min(ran)))
    }
}

/// Loaded and attached, its gate shut.
pub struct Sampler {
    links: Vec<Link>,
    /// The CPU clock first, then the others as asked for.
    pub events: Vec<EventState>,
    object: Object,
    members: HashSet<u32>,
    /// Since when the gate is open; 0 = it is shut.
    opened_ns: Cell<u64>,
}

impl Sampler {
    /// Loads and attaches. The CPU clock must work; other events may be missing.
    pub fn attach(options: &SamplerOptions) -> Result<Self, ProfileError> {
        libbpf_rs::set_print(None);
        let mut open = ObjectBuilder::default().open_memory(&OBJECT.0).map_err(|error| refused(&error))?;
        for mut map in open.maps_mut() {
            if map.name() == ".rodata.target"
                && let Some(bytes) = map.initial_value_mut()
            {
                let period_ns = events::cpu_clock(options.frequency_hz).period;
                bytes[..16].copy_from_slice(&layout::target_bytes(options.port, options.netns_inode, period_ns));
            }
        }
        let object = open.load().map_err(|error| refused(&error))?;
        let mut sampler =
            Sampler { links: Vec::new(), events: Vec::new(), object, members: HashSet::new(), opened_ns: Cell::new(0) };
        for name in ["process_forked", "packet_received", "packet_queued"] {
            let link = sampler.program(name)?.attach_trace().map_err(|error| refused(&error))?;
            sampler.links.push(link);
        }
        let cpus = events::online_cpus();
        let kinds = [events::cpu_clock(options.frequency_hz)].into_iter().chain(options.events.iter().copied());
        for (number, kind) in kinds.enumerate() {
            let state = sampler.attach_event(number, kind, &cpus)?;
            if number == 0
                && let Some(why) = &state.missing
            {
                return Err(ProfileError::NoClock(std::io::Error::other(why.clone())));
            }
            sampler.events.push(state);
        }
        Ok(sampler)
    }

    fn attach_event(&mut self, number: usize, kind: EventKind, cpus: &[usize]) -> Result<EventState, ProfileError> {
        let mut state = EventState { kind, missing: None, cpus: Vec::new() };
        for cpu in cpus {
            let event = match Event::open(kind, *cpu) {
                Ok(event) => event,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
                    return Err(ProfileError::NotPermitted);
                }
                // A CPU that went offline meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) && !state.cpus.is_empty() => continue,
                Err(error) => {
                    state.missing = Some(match error.raw_os_error() {
                        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::EINVAL) => {
                            "not supported by this machine (no counter for it, or hidden by the hypervisor)".into()
                        }
                        _ => error.to_string(),
                    });
                    return Ok(state);
                }
            };
            let options = PerfEventOpts { cookie: number as u64, ..PerfEventOpts::default() };
            let given = event.second().map_err(ProfileError::NoClock)?;
            let attached = self.program("sample_taken")?.attach_perf_event_with_opts(given.as_raw_fd(), options);
            self.links.push(attached.map_err(|error| refused(&error))?);
            // The link closes it.
            let _ = given.into_raw_fd();
            state.cpus.push(event);
        }
        Ok(state)
    }

    /// Processes of the server; those that they fork are followed by themselves.
    pub fn add_members(&mut self, pids: impl IntoIterator<Item = u32>) -> Result<(), ProfileError> {
        let map = self.object.maps().find(|map| map.name() == "members").ok_or_else(odd_object)?;
        for pid in pids {
            if self.members.insert(pid) {
                map.update(&pid.to_ne_bytes(), &[1], MapFlags::ANY).map_err(|error| refused(&error))?;
            }
        }
        Ok(())
    }

    /// Lets samples and packets count, as part of `block`; or no longer.
    pub fn set_gate(&self, is_open: bool, block: u32) -> Result<(), ProfileError> {
        self.opened_ns.set(match self.opened_ns.get() {
            _ if !is_open => 0,
            0 => monotonic_ns(),
            since_ns => since_ns,
        });
        let gate = layout::gate_bytes(is_open, block, self.opened_ns.get());
        self.map(".bss.gate")?.update(&0u32.to_ne_bytes(), &gate, MapFlags::ANY).map_err(|error| refused(&error))
    }

    /// Lets the events interrupt, or no longer: a shut gate ignores them, but each still costs an interrupt.
    pub fn set_running(&self, is_running: bool) -> Result<(), ProfileError> {
        let events = self.events.iter().flat_map(|state| &state.cpus);
        events.into_iter().try_for_each(|event| event.set_running(is_running)).map_err(ProfileError::NoClock)
    }

    /// Forgets the samples and stacks of an earlier window. The gate must be shut.
    pub fn forget(&self) -> Result<(), ProfileError> {
        for name in ["samples", "kernel_stacks", "user_stacks"] {
            let map = self.map(name)?;
            // First the keys, then the deletions: a walk over a changing table may begin again.
            for key in map.keys().collect::<Vec<_>>() {
                map.delete(&key).map_err(|error| refused(&error))?;
            }
        }
        Ok(())
    }

    /// The port's packets so far, what was lost so far, and the clock's interrupts so far.
    pub fn rows(&self) -> Result<(PacketCounts, Losses, Interrupts), ProfileError> {
        let bytes =
            self.map(".bss.rows")?.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(|error| refused(&error))?;
        Ok(layout::parse_rows(&bytes.unwrap_or_default()))
    }

    /// Reads what was counted. The gate must be shut.
    pub fn read(&self) -> Result<RawSamples, ProfileError> {
        let mut raw = RawSamples { losses: self.rows()?.1, ..RawSamples::default() };
        let samples = self.map("samples")?;
        for key in samples.keys() {
            let value = samples.lookup(&key, MapFlags::ANY).map_err(|error| refused(&error))?;
            let count = value.and_then(|value| Some(u64::from_ne_bytes(value.try_into().ok()?))).unwrap_or(0);
            if let Some(key) = SampleKey::parse(&key) {
                raw.samples.push((key, count));
            }
        }
        raw.samples.sort_unstable();
        raw.kernel_stacks = self.stacks("kernel_stacks")?;
        raw.user_stacks = self.stacks("user_stacks")?;
        Ok(raw)
    }

    fn stacks(&self, name: &str) -> Result<HashMap<u64, Vec<u64>>, ProfileError> {
        let map = self.map(name)?;
        let mut stacks = HashMap::new();
        for key in map.keys() {
            let record = map.lookup(&key, MapFlags::ANY).map_err(|error| refused(&error))?;
            if let (Ok(hash), Some(record)) = (key.try_into(), record) {
                stacks.insert(u64::from_ne_bytes(hash), layout::parse_stack(&record));
            }
        }
        Ok(stacks)
    }

    fn map(&self, name: &str) -> Result<libbpf_rs::Map<'_>, ProfileError> {
        self.object.maps().find(|map| map.name() == name).ok_or_else(odd_object)
    }

    fn program(&self, name: &str) -> Result<libbpf_rs::ProgramMut<'_>, ProfileError> {
        self.object.progs_mut().find(|program| program.name() == name).ok_or_else(odd_object)
    }
}

impl std::fmt::Debug for Sampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sampler").field("events", &self.events).field("members", &self.members).finish_non_exhaustive()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        // Links refer to programs of the object.
        self.links.clear();
    }
}

fn odd_object() -> ProfileError {
    ProfileError::Refused("the compiled object lacks a part".into())
}

fn refused(error: &libbpf_rs::Error) -> ProfileError {
    match error.kind() {
        ErrorKind::PermissionDenied => ProfileError::NotPermitted,
        _ => ProfileError::Refused(error.to_string()),
    }
}
