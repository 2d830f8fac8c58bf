use super::classes::SIZE_CLASSES;
use super::error::WatchError;
use super::kernel::{ALWAYS, KernelHooks};
use super::pack_places::PackPlace;
use super::states::WaitingClient;
use super::timer_wheel::TimerWheel;
use crate::bpf::members::Members;
use crate::bpf::types::members::MemberCounts;
use crate::bpf::types::watch::{
    ClassRow, Control, LookCount, LookRecord, PhaseRow, PortCounts, ProgramOptions, RequestRecord, RunRow, Sweep,
    ThreadRecord,
};
use crate::bpf::{self, MappedArray, Refusal};
use crate::processes::Process;
use libbpf_rs::{ErrorKind, Link, MapCore, MapFlags, Object, OpenObject, ProgramInput, UprobeOpts};
use std::path::Path;

/// Places in which a connection's record may be: `WAYS` of `bpf/watch.h`.
pub const WAYS: u32 = 4;

#[derive(Debug, Clone, Copy)]
pub struct PortOptions {
    /// Upper ends of the size classes.
    pub class_below_bytes: [u64; SIZE_CLASSES - 1],
    /// Slots of the table of connections; rounded up to a power of two.
    pub slots: u32,
    pub has_boundaries: bool,
    /// Maximum clients with sockets in TIME_WAIT that are tracked individually.
    pub waiting_clients: u32,
}

impl PortOptions {
    /// Options for trying the programs: the smallest tables, one size class.
    pub fn smallest() -> PortOptions {
        PortOptions {
            class_below_bytes: [u64::MAX; SIZE_CLASSES - 1],
            slots: 16,
            has_boundaries: false,
            waiting_clients: 16,
        }
    }
}

/// Links are dropped before their object, those of writers first.
#[derive(Debug)]
pub struct WatchPrograms {
    /// The program that observes reads. Without it, all else continues.
    pub receive: Option<Link>,
    window: Vec<Link>,
    pub always: Vec<Link>,
    pub object: Object,
    pub hooks: KernelHooks,
    wheel: TimerWheel,
    looked: u32,
    pub counts: MappedArray<PortCounts>,
    /// Rows by CPU and class; those of the state hook are last.
    pub classes: MappedArray<ClassRow>,
    /// Rows of phases by CPU and class.
    pub phases: MappedArray<PhaseRow>,
    /// Phases by the server's functions, by class.
    pub boundary_phases: MappedArray<PhaseRow>,
    pub threads: MappedArray<ThreadRecord>,
    pub requests: MappedArray<RequestRecord>,
    control: MappedArray<Control>,
    members: Members,
    member_counts: MappedArray<MemberCounts>,
    swept: MappedArray<Sweep>,
    runs: MappedArray<RunRow>,
    looks: MappedArray<LookRecord>,
    look_count: MappedArray<LookCount>,
}

impl WatchPrograms {
    pub fn load(hooks: KernelHooks, options: &PortOptions) -> Result<Self, WatchError> {
        let cpus = libbpf_rs::num_possible_cpus().map_err(Refusal::from)?;
        let wheel = TimerWheel::of_this_kernel();
        let slots = options.slots.clamp(WAYS, 1 << 20).next_power_of_two();
        let fixed = ProgramOptions {
            class_below_bytes: options.class_below_bytes,
            slots_mask: slots - 1,
            state_bank: cpus as u32,
            split_syscalls: split_syscalls(),
            read_syscalls: [libc::SYS_read, libc::SYS_recvfrom, libc::SYS_readv, libc::SYS_recvmsg]
                .map(|call| call as i32),
            write_syscalls: [libc::SYS_write, libc::SYS_sendto, libc::SYS_writev, libc::SYS_sendmsg]
                .map(|call| call as i32),
            time_wait_jiffies: wheel.minute as u32,
            time_wait_shift: wheel.shift,
        };
        let rows = (cpus + 1) * SIZE_CLASSES;
        let mut used = vec![hooks.receive_program()];
        used.extend(hooks.send_programs());
        used.extend(hooks.window_programs());
        used.extend(ALWAYS);
        used.extend(["on_syscall", "sweep", "end_counting", "forget_waiting", "moment"]);
        if options.has_boundaries {
            used.push("on_boundary");
        }
        let prepare = |open: &mut OpenObject| {
            for mut program in open.progs_mut() {
                let is_used = program.name().to_str().is_some_and(|name| used.contains(&name));
                program.set_autoload(is_used);
            }
            for mut map in open.maps_mut() {
                match map.name().to_str().unwrap_or_default() {
                    "requests" => map.set_max_entries(slots)?,
                    "marks" if options.has_boundaries => map.set_max_entries(slots)?,
                    "runs" => map.set_max_entries(cpus as u32)?,
                    "sending" if hooks.runs_per_send() == 1 => map.set_max_entries(1)?,
                    "waiting_clients" => map.set_max_entries(options.waiting_clients.max(1))?,
                    "classes" | "phases" => map.set_max_entries(rows as u32)?,
                    _ => {}
                }
            }
            bpf::set_constants(open, ".rodata.options", &fixed)
        };
        let object = bpf::load(bpf::WATCH, prepare)?;
        Ok(WatchPrograms {
            counts: bpf::mapped(&object, ".bss.counts", 1)?,
            classes: bpf::mapped(&object, "classes", rows)?,
            phases: bpf::mapped(&object, "phases", rows)?,
            boundary_phases: bpf::mapped(&object, "boundary_phases", 0)?,
            threads: bpf::mapped(&object, "threads", 0)?,
            requests: bpf::mapped(&object, "requests", slots as usize)?,
            control: bpf::mapped(&object, ".bss.control", 1)?,
            members: Members::default(),
            member_counts: bpf::mapped(&object, ".bss.members", 1)?,
            swept: bpf::mapped(&object, ".bss.swept", 1)?,
            runs: bpf::mapped(&object, "runs", cpus)?,
            looks: bpf::mapped(&object, "looks", 0)?,
            look_count: bpf::mapped(&object, ".bss.looks", 1)?,
            receive: None,
            window: Vec::new(),
            always: Vec::new(),
            object,
            hooks,
            wheel,
            looked: 0,
        })
    }

    /// Watches this port in the network namespace with this number (0 = any), and forgets earlier counts. Call it while
    /// no program is attached.
    pub fn watch(&self, port: u16, netns_inum: u32) {
        self.counts.clear();
        self.classes.clear();
        self.phases.clear();
        self.threads.clear();
        self.requests.clear();
        self.runs.clear();
        self.control.set(0, Control { port: port.into(), netns_inum, by_thread: 1, ..Control::default() });
    }

    /// Attaches the programs for connections: states, resets, retransmissions.
    pub fn attach_states(&mut self) -> Result<(), WatchError> {
        for name in ALWAYS {
            let link = self.attach(name)?;
            self.always.push(link);
        }
        Ok(())
    }

    /// Starts counting requests. Earlier work of threads belongs to no request.
    pub fn attach_receive(&mut self) -> Result<(), WatchError> {
        // The program may still be attached after a window was shut.
        self.receive = None;
        self.forget_threads();
        self.set_counts(true);
        self.receive = Some(self.attach(self.hooks.receive_program())?);
        Ok(())
    }

    /// Counts the status of responses until the links are dropped, and not in windows only.
    pub fn attach_sends(&self) -> Result<Vec<Link>, WatchError> {
        self.hooks.send_programs().into_iter().map(|name| self.attach(name)).collect()
    }

    /// Whether new requests are counted; those in progress are followed in any case.
    pub fn set_counts(&self, counts: bool) {
        self.control.set(0, Control { counts: u32::from(counts), ..self.control.get(0) });
    }

    /// Clears the threads' last work; only while no requests are counted.
    fn forget_threads(&self) {
        for index in 0..self.threads.len() {
            let thread = self.threads.get(index);
            if thread.pid != 0 {
                self.threads.set(index, ThreadRecord { mark_ns: 0, sk: 0, ..thread });
            }
        }
    }

    /// Detaches the programs that count requests; connections are still observed. Every request in progress counts,
    /// answered or not.
    pub fn detach_receive(&mut self) -> Result<(), WatchError> {
        self.set_counts(false);
        self.receive = None;
        self.run("end_counting")
    }

    /// Opens window `number` (not 0): attaches the hooks of sends and switches, with `with_syscalls` also those of
    /// system calls, then lets requests begin.
    pub fn open_window(&mut self, number: u32, with_syscalls: bool) -> Result<(), WatchError> {
        self.set_window(number, 0);
        let mut names = self.hooks.send_programs();
        names.extend(self.hooks.window_programs());
        if with_syscalls {
            names.push("on_syscall");
        }
        for name in names {
            self.hold(self.attach(name))?;
        }
        self.set_window(number, 1);
        Ok(())
    }

    /// Probes these functions until the window is closed, in every process that runs the file.
    pub fn attach_boundaries(&mut self, places: &[PackPlace]) -> Result<(), WatchError> {
        for place in places {
            self.hold(self.probe(-1, &place.path, place.offset, place.boundary, place.at_return))?;
        }
        Ok(())
    }

    /// Keeps a hook until the window is closed, which an error does.
    fn hold(&mut self, link: Result<Link, WatchError>) -> Result<(), WatchError> {
        let link = link.inspect_err(|_| self.close_window())?;
        self.window.push(link);
        Ok(())
    }

    pub fn probe(
        &self,
        pid: i32,
        path: &Path,
        offset: u64,
        boundary: u64,
        at_return: bool,
    ) -> Result<Link, WatchError> {
        let options = UprobeOpts { cookie: boundary, retprobe: at_return, ..UprobeOpts::default() };
        let program = bpf::program(&self.object, "on_boundary")?;
        let probed = bpf::logged(|| program.attach_uprobe_with_opts(pid, path, offset as usize, options));
        probed.map_err(|refusal| match refusal.error.kind() {
            ErrorKind::PermissionDenied => WatchError::Refused {
                what: "probing a function needs CAP_SYS_ADMIN (run as root)".into(),
                log: String::new(),
            },
            _ => refusal.into(),
        })
    }

    /// Sets whether phases are also summed by thread, which is off while probes change the times.
    pub fn sum_by_thread(&self, is_wanted: bool) {
        self.control.set(0, Control { by_thread: u32::from(is_wanted), ..self.control.get(0) });
    }

    /// Ends the window: stops timing and detaches its hooks.
    pub fn close_window(&mut self) {
        self.set_window(0, 0);
        self.window.clear();
    }

    /// Reads the requests that no event has ended yet. Walks the table of connections.
    pub fn sweep(&mut self) -> Result<Sweep, WatchError> {
        self.swept.set(0, Sweep::default());
        self.run("sweep")?;
        Ok(self.swept.get(0))
    }

    /// The kernel's timer wheel, which ends TIME_WAIT; each call improves its accuracy.
    pub fn wheel(&mut self) -> Result<TimerWheel, WatchError> {
        self.run("moment")?;
        let moment = self.swept.get(0);
        self.wheel.add_moment(moment.now_jiffies, moment.now_ns);
        Ok(self.wheel)
    }

    /// Sets the server's processes. Returns the CPU time of those that have ended.
    pub fn follow(&mut self, processes: &[Process]) -> Result<u64, WatchError> {
        self.members.update(&self.object, processes)?;
        Ok(self.member_counts.get(0).ended_cpu_ns)
    }

    /// Adds clients whose sockets entered TIME_WAIT unobserved, and removes those that have left. If the table is
    /// full, clients that come back early are missed until a scan.
    pub fn update_waiting_clients(&mut self, clients: &[WaitingClient]) -> Result<(), WatchError> {
        self.run("forget_waiting")?;
        if !clients.is_empty() {
            let keys: Vec<u8> = clients.iter().flat_map(|client| client.key.to_ne_bytes()).collect();
            let steps: Vec<u8> = clients.iter().flat_map(|client| client.step.to_ne_bytes()).collect();
            let count = clients.len() as u32;
            let map = bpf::map(&self.object, "waiting_clients")?;
            let _ = map.update_batch(&keys, &steps, count, MapFlags::ANY, MapFlags::ANY);
        }
        Ok(())
    }

    /// Number of runs of the programs since they were loaded, on all CPUs.
    pub fn runs(&self) -> RunRow {
        let mut sum = RunRow::default();
        self.runs.iter().for_each(|row| sum.add(&row));
        sum
    }

    /// The reads sampled since the last call; permits as many more as there is room for.
    pub fn sampled_reads(&mut self) -> Vec<LookRecord> {
        let (taken, room) = (self.look_count.get(0).taken, self.looks.len() as u32);
        // Concurrent reads beyond the permitted number have overwritten the oldest ones.
        let new = taken.wrapping_sub(self.looked).min(room);
        let first = taken.wrapping_sub(new);
        let records = (0..new)
            .map(|offset| first.wrapping_add(offset))
            .map(|number| (number.wrapping_add(1), self.looks.get((number % room) as usize)))
            .filter(|(number, record)| record.number == *number)
            .map(|(_, record)| record)
            .collect();
        self.looked = taken;
        let control = Control { looks_granted: taken.wrapping_add(room), ..self.control.get(0) };
        self.control.set(0, control);
        records
    }

    /// The window in which requests are timed (0 = none), and whether requests that begin belong to it.
    pub fn set_window(&self, window: u32, gate: u32) {
        self.control.set(0, Control { window, gate, ..self.control.get(0) });
    }

    fn run(&self, name: &str) -> Result<(), WatchError> {
        let ran = bpf::program(&self.object, name)?.test_run(ProgramInput::default());
        Ok(ran.map(drop).map_err(Refusal::from)?)
    }

    fn attach(&self, name: &str) -> Result<Link, WatchError> {
        Ok(bpf::attach(&self.object, name)?)
    }
}

/// Briefly loads and attaches all programs that count requests, for no port. Returns the hooks in use; the error
/// tells why requests cannot be counted on this machine.
pub fn try_out() -> Result<String, WatchError> {
    let hooks = KernelHooks::detect()?;
    let mut programs = WatchPrograms::load(hooks, &PortOptions::smallest())?;
    programs.attach_states()?;
    programs.attach_receive()?;
    let windows = match programs.open_window(1, false) {
        Ok(()) => String::new(),
        Err(error) => format!("; no phases: {error}"),
    };
    Ok(hooks.in_words() + &windows)
}

impl From<Refusal> for WatchError {
    fn from(refusal: Refusal) -> Self {
        if refusal.is_permission() {
            return WatchError::NotPermitted;
        }
        let tail = refusal.last_words(6);
        let log = if tail.is_empty() { tail } else { format!(": {tail}") };
        WatchError::Refused { what: format!("{:#}", refusal.error), log }
    }
}

/// System calls by which servers open or look up a requested file.
fn split_syscalls() -> [i32; 8] {
    let mut numbers = [-1; 8];
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
