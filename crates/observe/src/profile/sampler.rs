//! The sampler in the kernel, which is loaded, opened for a window, and read. Nothing is pinned, so it ends with this
//! process.

use super::error::ProfileError;
use super::events::{self, EventKind, PerfEvent};
use super::samples::{Interrupts, RawSamples};
use crate::bpf::members::{FOLLOWERS, Members};
use crate::bpf::types::profile::{CpuRow, Gate, KernelStack, Sample, Target, UserStack};
use crate::bpf::{self, Refusal, Shared};
use crate::namespace::needs_hosts_process_ids;
use crate::processes::Process;
use libbpf_rs::{Link, Object, PerfEventOpts};
use record::profile::{Losses, PacketCounts};
use record::time::monotonic_ns;
use std::cell::Cell;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, IntoRawFd};

/// A sampling event, or the reason why it is missing.
#[derive(Debug)]
pub struct EventState {
    /// The kind.
    pub kind: EventKind,
    /// Why it is missing.
    pub missing: Option<String>,
    cpus: Vec<PerfEvent>,
}

impl EventState {
    /// Number of events so far on all CPUs, and the smallest share of time in which a counter ran.
    pub fn read(&self) -> (u64, f64) {
        self.cpus
            .iter()
            .filter_map(|event| event.read().ok())
            .fold((0, 1.0), |(sum, share), (count, ran)| (sum + count, share.min(ran)))
    }
}

/// A loaded and attached sampler, whose gate is closed at first. Links are dropped before their object.
#[derive(Debug)]
pub struct StackSampler {
    links: Vec<Link>,
    /// The CPU clock first, then the others.
    pub events: Vec<EventState>,
    pub object: Object,
    members: Members,
    opened_ns: Cell<u64>,
}

impl StackSampler {
    /// Loads and attaches the programs, for the port of a server and the inode of its network namespace. The CPU clock
    /// must work; `others` may be missing.
    pub fn attach(port: u16, netns: u32, frequency_hz: u32, others: &[EventKind]) -> Result<Self, ProfileError> {
        needs_hosts_process_ids()?;
        let clock = events::cpu_clock(frequency_hz);
        let target = Target { port: port.into(), netns, period_ns: clock.period };
        let object = bpf::load(bpf::PROFILE, |open| bpf::set_constants(open, ".rodata.target", &target))?;
        let mut sampler = StackSampler {
            links: Vec::new(),
            events: Vec::new(),
            object,
            members: Members::default(),
            opened_ns: Cell::new(0),
        };
        for name in FOLLOWERS.into_iter().chain(["packet_received", "packet_queued"]) {
            sampler.links.push(bpf::attach(&sampler.object, name)?);
        }
        let cpus = record::machine::online_cpu_numbers();
        for (number, kind) in [clock].iter().chain(others).copied().enumerate() {
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

    /// Loads and attaches the programs for an unused port; the error tells why that is not possible.
    pub fn try_out() -> Result<(), ProfileError> {
        StackSampler::attach(0, 0, 1, &[]).map(drop)
    }

    fn attach_event(&mut self, number: usize, kind: EventKind, cpus: &[usize]) -> Result<EventState, ProfileError> {
        let mut state = EventState { kind, missing: None, cpus: Vec::new() };
        for cpu in cpus {
            let event = match PerfEvent::open(kind, *cpu) {
                Ok(event) => event,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM)) => {
                    return Err(ProfileError::NotPermitted);
                }
                // The CPU is offline.
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
            let program = bpf::program(&self.object, "sample_taken")?;
            let link = bpf::logged(|| program.attach_perf_event_with_opts(given.as_raw_fd(), options))?;
            self.links.push(link);
            // The link closes the descriptor.
            let _ = given.into_raw_fd();
            state.cpus.push(event);
        }
        Ok(state)
    }

    /// Sets the server's processes; the programs follow their forks.
    pub fn set_members(&mut self, processes: &[Process]) -> Result<(), ProfileError> {
        Ok(self.members.update(&self.object, processes)?)
    }

    /// Starts counting samples and packets for `block`, or stops counting.
    pub fn set_gate(&self, is_open: bool, block: u32) -> Result<(), ProfileError> {
        self.opened_ns.set(match self.opened_ns.get() {
            _ if !is_open => 0,
            0 => monotonic_ns(),
            since_ns => since_ns,
        });
        let gate = Gate { is_open: is_open.into(), block, opened_ns: self.opened_ns.get() };
        Ok(bpf::set_variable(&self.object, ".bss.gate", &gate)?)
    }

    /// Removes the samples and stacks of an earlier window. The gate must be closed.
    pub fn forget(&self) -> Result<(), ProfileError> {
        for name in ["samples", "kernel_stacks", "user_stacks"] {
            bpf::clear(&self.object, name)?;
        }
        Ok(())
    }

    /// The port's packets, the losses, and the clock's interrupts so far.
    pub fn rows(&self) -> Result<(PacketCounts, Losses, Interrupts), ProfileError> {
        let (packets, losses, interrupts) = rows(&self.object)?;
        Ok((packets, Losses { processes: self.members.lost(&self.object)?, ..losses }, interrupts))
    }

    /// Reads the counts; the gate must be closed.
    pub fn read(&self) -> Result<RawSamples, ProfileError> {
        let living = Members::living(&self.object)?;
        let mut raw = RawSamples { losses: self.rows()?.1, living, ..RawSamples::default() };
        raw.samples = bpf::entries::<Sample, u64>(&self.object, "samples")?;
        raw.samples.sort_unstable();
        raw.kernel_stacks =
            stacks(&self.object, "kernel_stacks", |stack: &KernelStack| frames(stack.count, &stack.frames))?;
        raw.user_stacks = stacks(&self.object, "user_stacks", |stack: &UserStack| frames(stack.count, &stack.frames))?;
        Ok(raw)
    }
}

pub(crate) fn stacks<T: Shared>(
    object: &Object,
    name: &str,
    frames: impl Fn(&T) -> Vec<u64>,
) -> Result<HashMap<u64, Vec<u64>>, Refusal> {
    let records = bpf::entries::<u64, T>(object, name)?;
    Ok(records.into_iter().map(|(hash, record)| (hash, frames(&record))).collect())
}

pub(crate) fn frames(count: u64, frames: &[u64]) -> Vec<u64> {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    frames.iter().take(count).copied().take_while(|frame| *frame != 0).collect()
}

/// The port's packets, the losses, and the clock's interrupts, summed over the CPUs. The exact method's object has
/// the same rows.
pub(super) fn rows(object: &Object) -> Result<(PacketCounts, Losses, Interrupts), Refusal> {
    let mut all = CpuRow::default();
    bpf::variables(object, ".bss.rows")?.iter().for_each(|row| all.add(row));
    let CpuRow { packets, segments, data_packets, payload_bytes, unread, peer_packets, .. } = all;
    let packets = PacketCounts { packets, segments, data_packets, payload_bytes, unread, peer_packets };
    let losses = Losses { stacks: all.lost_stacks, samples: all.lost_samples, processes: 0 };
    Ok((packets, losses, Interrupts { arrived: all.arrived, late: all.late }))
}

impl From<Refusal> for ProfileError {
    fn from(refusal: Refusal) -> Self {
        if refusal.is_permission() { ProfileError::NotPermitted } else { ProfileError::Refused(refusal.to_string()) }
    }
}
