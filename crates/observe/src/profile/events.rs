//! The events that trigger a sample: the CPU clock, and hardware events if the machine counts them, each with a fixed
//! period.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A kind of event. A sample represents `period` of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventKind {
    /// Name in tables and JSON.
    pub name: &'static str,
    kind: u32,
    config: u64,
    /// Events between two samples. Odd, so that it does not coincide with loops of the program.
    pub period: u64,
}

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const CACHE: u32 = 3;
const DISABLED: u64 = 1;
/// PERF_COUNT_HW_CACHE_x | op << 8 | result << 16 for loads that miss.
const fn load_misses(cache: u64) -> u64 {
    cache | 1 << 16
}

/// The hardware events (include/uapi/linux/perf_event.h). At usual rates, their periods give about a thousand samples
/// per second and CPU.
pub const HARDWARE_EVENTS: [EventKind; 9] = [
    EventKind { name: "cycles", kind: HARDWARE, config: 0, period: 2_000_003 },
    EventKind { name: "instructions", kind: HARDWARE, config: 1, period: 2_000_003 },
    EventKind { name: "l1d-load-misses", kind: CACHE, config: load_misses(0), period: 50_021 },
    EventKind { name: "l1i-load-misses", kind: CACHE, config: load_misses(1), period: 50_021 },
    EventKind { name: "llc-load-misses", kind: CACHE, config: load_misses(2), period: 10_007 },
    EventKind { name: "dtlb-load-misses", kind: CACHE, config: load_misses(3), period: 10_007 },
    EventKind { name: "itlb-load-misses", kind: CACHE, config: load_misses(4), period: 10_007 },
    EventKind { name: "branch-misses", kind: HARDWARE, config: 5, period: 20_011 },
    EventKind { name: "cache-misses", kind: HARDWARE, config: 3, period: 10_007 },
];

/// The CPU clock at this frequency: a high-resolution timer on each CPU.
pub fn cpu_clock(frequency_hz: u32) -> EventKind {
    EventKind { name: "cpu-clock", kind: SOFTWARE, config: 0, period: 1_000_000_000 / u64::from(frequency_hz.max(1)) }
}

/// Page faults, which the kernel itself counts, so that a second event can be tested on any machine.
pub const PAGE_FAULTS: EventKind = EventKind { name: "page-faults", kind: SOFTWARE, config: 2, period: 1 };

#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    bp_type: u32,
    config1: u64,
}

/// An event on one CPU, stopped until a program is attached.
#[derive(Debug)]
pub struct PerfEvent(OwnedFd);

impl PerfEvent {
    /// Opens the event for all code on `cpu`.
    pub fn open(kind: EventKind, cpu: usize) -> io::Result<PerfEvent> {
        record::fault::step()?;
        const TIMES: u64 = 3; // PERF_FORMAT_TOTAL_TIME_ENABLED | _RUNNING
        let (sample_period, read_format) = (kind.period, TIMES);
        let (config, flags) = (kind.config, DISABLED);
        Self::with_attributes(
            Attributes { kind: kind.kind, config, sample_period, read_format, flags, ..Attributes::default() },
            -1,
            cpu as libc::c_int,
        )
    }

    /// Opens a counter of this thread's CPU cycles in user mode, which any CPU with counters allows.
    pub fn of_this_thread() -> io::Result<PerfEvent> {
        let (exclude_kernel, exclude_hypervisor) = (1 << 5, 1 << 6);
        let flags = DISABLED | exclude_kernel | exclude_hypervisor;
        Self::with_attributes(Attributes { kind: HARDWARE, flags, ..Attributes::default() }, 0, -1)
    }

    fn with_attributes(attributes: Attributes, pid: libc::pid_t, cpu: libc::c_int) -> io::Result<PerfEvent> {
        let attributes = Attributes { size: size_of::<Attributes>() as u32, ..attributes };
        const CLOSE_ON_EXEC: u64 = 8;
        // SAFETY: `attributes` is a complete perf_event_attr of the size it states and outlives the call.
        let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &attributes, pid, cpu, -1, CLOSE_ON_EXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
        Ok(PerfEvent(unsafe { OwnedFd::from_raw_fd(fd as RawFd) }))
    }

    /// Number of events so far, and the share of the time in which the counter was used for this event.
    pub fn read(&self) -> io::Result<(u64, f64)> {
        let mut words = [0u64; 3];
        // SAFETY: the buffer holds the 24 bytes that this read_format yields.
        let count = unsafe { libc::read(self.0.as_raw_fd(), words.as_mut_ptr().cast(), size_of_val(&words)) };
        if count != size_of_val(&words) as isize {
            return Err(io::Error::last_os_error());
        }
        let [value, enabled, running] = words;
        Ok((value, if enabled == 0 { 1.0 } else { running as f64 / enabled as f64 }))
    }

    /// A second descriptor of the event, for a callee that closes it.
    pub fn second(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }
}
