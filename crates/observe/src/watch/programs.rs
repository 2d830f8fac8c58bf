//! The BPF programs of one port: loaded, attached, read, detached. Nothing is pinned: when this process ends, however it
//! ends, the kernel closes its descriptors and with them removes every program.

use super::error::WatchError;
use super::kernel::KernelHooks;
use super::layout::{
    ClassRow, Control, PhaseRow, PortCounts, ProgramOptions, RequestRecord, SIZE_CLASSES, Shared, Sweep, SweepRow,
    ThreadRecord, WAYS, bytes_of, zeroed,
};
use super::mapped::Mapped;
use libbpf_rs::{Link, MapCore, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramInput, ProgramMut};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Compiled from `bpf/watch.bpf.c` by the build script. An ELF file is read in place, as structures of 8 bytes' alignment.
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/watch.bpf.o")));

#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

/// Where the loader's words go: the last of them belong into the error.
static LOADER_LOG: Mutex<String> = Mutex::new(String::new());
const LOG_BYTES: usize = 4096;

/// What is watched, as the programs need to know it.
#[derive(Debug, Clone, Copy)]
pub struct PortOptions {
    /// The server's port.
    pub port: u16,
    /// Inode number of its network namespace; 0 = any.
    pub netns_inum: u32,
    /// Upper ends of the size classes.
    pub class_below_bytes: [u64; SIZE_CLASSES - 1],
    /// Slots of the table of connections; rounded up to a power of two.
    pub slots: u32,
}

/// Loaded programs. Links are dropped before the object they belong to.
pub struct Programs {
    receive: Option<Link>,
    window: Vec<Link>,
    always: Vec<Link>,
    object: Object,
    hooks: KernelHooks,
    /// Connections and losses.
    pub counts: Mapped<PortCounts>,
    /// Rows by CPU and class, the state hook's last.
    pub classes: Mapped<ClassRow>,
    /// The same with phases.
    pub phases: Mapped<PhaseRow>,
    /// Threads by number.
    pub threads: Mapped<ThreadRecord>,
    /// Connections and their requests in progress.
    pub requests: Mapped<RequestRecord>,
    control: Mapped<Control>,
    swept: Mapped<Sweep>,
}

impl Programs {
    /// Loads the programs for a port; none is attached yet.
    pub fn load(hooks: KernelHooks, options: &PortOptions) -> Result<Self, WatchError> {
        let cpus = libbpf_rs::num_possible_cpus().map_err(|error| refused(&error))?;
        let slots = options.slots.clamp(WAYS, 1 << 20).next_power_of_two();
        let fixed = ProgramOptions {
            class_below_bytes: options.class_below_bytes,
            netns_inum: options.netns_inum,
            slots_mask: slots - 1,
            state_bank: cpus as u32,
            split_syscalls: split_syscalls(),
            port: options.port,
            reserved: 0,
        };
        let rows = (cpus + 1) * SIZE_CLASSES;
        let mut open = open_object()?;
        let used: Vec<&str> = hooks
            .always()
            .into_iter()
            .chain(hooks.send_programs())
            .chain([hooks.receive_program(), "on_switch", "on_syscall", "sweep"])
            .collect();
        for mut program in open.progs_mut() {
            let is_used = program.name().to_str().is_some_and(|name| used.contains(&name));
            program.set_autoload(is_used);
        }
        for mut map in open.maps_mut() {
            let sized = match map.name().to_str().unwrap_or_default() {
                "requests" => map.set_max_entries(slots),
                "classes" | "phases" => map.set_max_entries(rows as u32),
                ".rodata.options" => match map.initial_value_mut() {
                    Some(bytes) if bytes.len() >= size_of::<ProgramOptions>() => {
                        bytes[..size_of::<ProgramOptions>()].copy_from_slice(bytes_of(&fixed));
                        Ok(())
                    }
                    _ => return Err(odd_object("the options have another size")),
                },
                _ => Ok(()),
            };
            sized.map_err(|error| refused(&error))?;
        }
        let object = open.load().map_err(|error| refused(&error))?;
        Ok(Programs {
            counts: mapped(&object, ".bss.counts", 1)?,
            classes: mapped(&object, "classes", rows)?,
            phases: mapped(&object, "phases", rows)?,
            threads: mapped(&object, "threads", 0)?,
            requests: mapped(&object, "requests", slots as usize)?,
            control: mapped(&object, ".bss.control", 1)?,
            swept: mapped(&object, ".bss.swept", 1)?,
            receive: None,
            window: Vec::new(),
            always: Vec::new(),
            object,
            hooks,
        })
    }

    /// Attaches what sees connections: states, resets, retransmissions.
    pub fn attach_states(&mut self) -> Result<(), WatchError> {
        for name in self.hooks.always() {
            let link = self.attach(name)?;
            self.always.push(link);
        }
        Ok(())
    }

    /// Attaches what counts requests.
    pub fn attach_receive(&mut self) -> Result<(), WatchError> {
        self.receive = Some(self.attach(self.hooks.receive_program())?);
        Ok(())
    }

    /// Detaches what counts requests; connections are still seen.
    pub fn detach_receive(&mut self) {
        self.receive = None;
    }

    /// Opens window `number` (not 0): attaches the hooks on sends and on switches, `with_syscalls` on system calls too,
    /// then lets requests begin.
    pub fn open_window(&mut self, number: u32, with_syscalls: bool) -> Result<(), WatchError> {
        self.set_control(Control { window: number, gate: 0 });
        let mut names = self.hooks.send_programs();
        names.push("on_switch");
        if with_syscalls {
            names.push("on_syscall");
        }
        for name in names {
            match self.attach(name) {
                Ok(link) => self.window.push(link),
                Err(error) => {
                    self.close_window();
                    return Err(error);
                }
            }
        }
        self.set_control(Control { window: number, gate: 1 });
        Ok(())
    }

    /// No further request begins in the window; those that did go on to be timed.
    pub fn shut_gate(&mut self, number: u32) {
        self.set_control(Control { window: number, gate: 0 });
    }

    /// Ends the window: nothing is timed any more, and the hooks are gone.
    pub fn close_window(&mut self) {
        self.set_control(Control { window: 0, gate: 0 });
        self.window.clear();
    }

    /// Looks at the requests that no event has ended yet. Walks the table of connections.
    pub fn sweep(&mut self) -> Result<Sweep, WatchError> {
        let mut blank: Sweep = zeroed();
        blank.answered = [zeroed::<SweepRow>(); SIZE_CLASSES];
        self.swept.set(0, blank);
        self.program("sweep")?.test_run(ProgramInput::default()).map_err(|error| refused(&error))?;
        Ok(self.swept.get(0))
    }

    fn set_control(&self, control: Control) {
        self.control.set(0, control);
    }

    fn program(&self, name: &str) -> Result<ProgramMut<'_>, WatchError> {
        self.object.progs_mut().find(|program| program.name() == name).ok_or_else(|| odd_object("a program is missing"))
    }

    fn attach(&self, name: &str) -> Result<Link, WatchError> {
        let _log = quiet_loader();
        self.program(name)?.attach_trace().map_err(|error| refused(&error))
    }
}

impl std::fmt::Debug for Programs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Programs").field("hooks", &self.hooks).field("slots", &self.requests.len()).finish()
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        // Writers first, so that no program writes into a window that is being closed.
        self.receive = None;
        self.window.clear();
        self.always.clear();
    }
}

fn open_object() -> Result<OpenObject, WatchError> {
    let _log = quiet_loader();
    ObjectBuilder::default()
        .name("straingauge")
        .map_err(|error| refused(&error))?
        .open_memory(&OBJECT.0)
        .map_err(|error| refused(&error))
}

fn mapped<T: Shared>(object: &Object, name: &str, len: usize) -> Result<Mapped<T>, WatchError> {
    let map = object.maps().find(|map| map.name() == name).ok_or_else(|| odd_object("a map is missing"))?;
    if map.value_size() as usize != size_of::<T>() {
        return Err(odd_object("a map has another size"));
    }
    let len = if len == 0 { map.max_entries() as usize } else { len };
    Mapped::new(map.as_fd(), len).map_err(|source| WatchError::System { doing: "map the counters into memory", source })
}

fn odd_object(what: &str) -> WatchError {
    WatchError::Refused { what: format!("{what} in the compiled object"), log: String::new() }
}

/// Sends the loader's words into [`LOADER_LOG`], beginning anew.
fn quiet_loader() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    LOADER_LOG.lock().unwrap_or_else(PoisonError::into_inner).clear();
    libbpf_rs::set_print(Some((PrintLevel::Warn, |_, text| {
        let mut log = LOADER_LOG.lock().unwrap_or_else(PoisonError::into_inner);
        log.push_str(&text);
        let surplus = log.len().saturating_sub(LOG_BYTES);
        let cut = (surplus..log.len()).find(|at| log.is_char_boundary(*at)).unwrap_or(log.len());
        log.drain(..cut);
    })));
    guard
}

fn refused(error: &libbpf_rs::Error) -> WatchError {
    if error.kind() == libbpf_rs::ErrorKind::PermissionDenied {
        return WatchError::NotPermitted;
    }
    let log = LOADER_LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let words: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let tail = words[words.len().saturating_sub(6)..].join("; ");
    WatchError::Refused { what: format!("{error:#}"), log: if tail.is_empty() { tail } else { format!(": {tail}") } }
}

/// The system calls with which servers open or look up what was asked for.
fn split_syscalls() -> [i32; super::layout::SYSCALLS] {
    let mut numbers = [-1; super::layout::SYSCALLS];
    let known = [
        libc::SYS_openat,
        libc::SYS_openat2,
        libc::SYS_newfstatat,
        libc::SYS_statx,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_open,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_stat,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_lstat,
    ];
    for (number, call) in numbers.iter_mut().zip(known) {
        *number = call as i32;
    }
    numbers
}
