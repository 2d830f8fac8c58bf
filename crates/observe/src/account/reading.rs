//! Reads a window's counts from the programs' maps and gives them names.

use super::calls::{DescriptorKind, meaning};
use crate::bpf::types::account::{CpuClock, Gate, Outgoing, Place, Sums, Use, WaitSample, WaitStack as StackRecord};
use crate::bpf::{self, Refusal};
use crate::outgoing::{is_of_system, name_of};
use crate::processes::{ProcessTable, living_thread};
use crate::profile::names::SymbolNames;
use crate::profile::sampler::{frames, stacks};
use libbpf_rs::Object;
use record::PlainText;
use record::account::{
    ADDRESS_SPACE, Account, BackendUse, CLOSED_WINDOW, ENDED, ProcessUse, SEND_BUFFER, ThreadGroup, Wait, WaitKind,
    WaitStack,
};
use record::profile::Frame;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;

/// Value of `enum doing` in `bpf/account.h`.
const RUNNING: u8 = 1;
const READY_OWN: u8 = 2;
const READY_OTHERS: u8 = 3;
const READY_STOPPED: u8 = 4;
const READY_MOVED: u8 = 5;
const FIRST_THREAD: u8 = 0x80;
/// Marks sockets of the served port, and those whose receiver's window was closed.
const SERVED: u32 = 0x8000_0000;
/// Marks waits at Unix sockets that did not end in the window.
const IN_PROGRESS: u32 = 0x4000_0000;
const WINDOW_CLOSED: u16 = 1;
const SEND_BUFFER_FULL: u16 = 2;
/// Mark of a wait at a futex that the call's own timeout ended, and of one that ended otherwise.
const BY_TIMER: u8 = 0xf;
const BY_THREAD: u8 = 0xe;

/// If the busiest child has run this many times as long as its parent worked, the parent counts as idle.
const IDLE_PARENT: u64 = 10;
/// Maximum numbers: groups, waits per group, stacks per wait, processes per group, backends.
const MAX_GROUPS: usize = 24;
const MAX_WAITS: usize = 12;
const MAX_STACKS: usize = 3;
const MAX_PROCESSES: usize = 32;
const MAX_BACKENDS: usize = 16;
/// Waits with a smaller share of their group's time are combined by kind.
const LEAST_SHARE: f64 = 0.002;
const MAX_DESCRIPTORS: usize = 4096;
/// Messages without an answer from which on a connection is one way. A single call that is never answered has fewer.
const LEAST_UNANSWERED: u8 = 8;

/// The account of the window that has just ended.
pub fn read(object: &Object, gate: &Gate, table: &ProcessTable) -> Result<Account, Refusal> {
    let sums: Sums = bpf::variable(object, ".bss.sums")?;
    let clocks: Vec<CpuClock> = bpf::variables(object, ".bss.clocks")?;
    let clocks = clocks.iter().filter(|clock| clock.window == gate.window);
    let places: Vec<(Place, Use)> = bpf::entries(object, "places")?;
    let samples: Vec<(WaitSample, Use)> = bpf::entries(object, "wait_samples")?;
    let mut outgoing: Vec<([u64; 2], Outgoing)> = bpf::entries(object, "outgoing")?;
    outgoing.retain(|(_, one)| one.window == gate.window);
    let mut naming = Naming {
        names: SymbolNames::new(Some(object)),
        table,
        files: HashMap::new(),
        stacks: stacks(object, "wait_stacks", |stack: &StackRecord| frames(stack.count, &stack.frames))?,
        go: HashSet::new(),
        samples: HashMap::new(),
        futexes: HashMap::new(),
        peers: outgoing.iter().filter_map(|(_, one)| Some((peer_of(one)?, backend_name(one)?))).collect(),
        one_way: outgoing.iter().filter(|(_, one)| is_one_way(one)).filter_map(|(_, one)| backend_name(one)).collect(),
        ended: places.iter().map(|(place, _)| *place).filter(|place| place.device & IN_PROGRESS == 0).collect(),
    };
    for (sample, used) in &samples {
        naming.samples.entry(sample.place).or_default().push((*sample, *used));
    }
    naming.look_up_stacks(&samples);
    naming.decide_futexes(&places, &samples);
    let mut account = Account {
        window_ns: gate.closes_ns.saturating_sub(gate.opened_ns),
        threads_ns: sums.threads_ns,
        threads: sums.threads,
        cost_ns: clocks.map(|clock| clock.cost_ns).sum(),
        lost: sums.lost_places + sums.lost_threads + sums.lost_stacks + sums.lost_calls,
        groups: groups(&places, &mut naming),
        backends: backends(&outgoing, gate),
        ..Account::default()
    };
    account.groups.sort_by_key(|group| std::cmp::Reverse(group.total_ns() - group.blocked_ns(WaitKind::is_idle)));
    account.groups.truncate(MAX_GROUPS);
    Ok(account)
}

#[derive(PartialEq, Eq, Hash)]
struct FileId {
    device: u64,
    inode: u64,
}

struct Naming<'s> {
    names: SymbolNames<'s>,
    table: &'s ProcessTable,
    /// Paths of a process's open files; read once.
    files: HashMap<u32, HashMap<FileId, String>>,
    stacks: HashMap<u64, Vec<u64>>,
    go: HashSet<u32>,
    samples: HashMap<Place, Vec<(WaitSample, Use)>>,
    /// Kinds of the waits at futexes, by process and address.
    futexes: HashMap<(u32, u64), WaitKind>,
    /// Names of the other ends of Unix sockets, by the kernel's record of the name.
    peers: HashMap<u64, String>,
    /// Other ends that only receive, as a log does.
    one_way: HashSet<String>,
    /// Places where waits ended.
    ended: HashSet<Place>,
}

#[derive(Default)]
struct Futex {
    /// Waits that the call's own timeout ended, and all others that ended.
    by_timer: u64,
    by_thread: u64,
    /// Sampled waits with functions of a lock, and with functions that hand out work.
    locks: u64,
    work: u64,
    is_bitset: bool,
}

impl Naming<'_> {
    /// Looks up the names of all sampled user stacks, while the processes live.
    fn look_up_stacks(&mut self, samples: &[(WaitSample, Use)]) {
        let mut of_process: BTreeMap<u32, HashSet<u64>> = BTreeMap::new();
        for (sample, _) in samples {
            let stacks = of_process.entry(sample.place.tgid).or_default();
            stacks.extend([sample.user_stack, sample.waker_stack].into_iter().filter(|hash| *hash != 0));
        }
        for (pid, hashes) in of_process {
            let stacks: Vec<&Vec<u64>> = hashes.iter().filter_map(|hash| self.stacks.get(hash)).collect();
            self.names.learn_user(pid, &stacks);
            let has_runtime = |frame: &Frame| frame.function.starts_with("runtime.");
            if hashes.iter().any(|hash| self.user_frames(pid, *hash).iter().any(has_runtime)) {
                self.go.insert(pid);
            }
        }
    }

    /// The second address of a user stack is the return address of a function without a frame, of which only glibc's
    /// `syscall` is known; in others it is any word.
    fn user_frames(&self, pid: u32, hash: u64) -> Vec<Frame> {
        let Some(stack) = self.stacks.get(&hash) else { return Vec::new() };
        let [first, second, callers @ ..] = &stack[..] else { return Vec::new() };
        match &self.names.user_stack(pid, &[*first, *second])[..] {
            [frameless, _] if frameless.function == "syscall" => self.names.user_stack(pid, stack),
            _ => self.names.user_stack(pid, &[&[*first], callers].concat()),
        }
    }

    fn stacks_of(&mut self, place: &Place) -> Vec<WaitStack> {
        let Some(mut samples) = self.samples.remove(place) else { return Vec::new() };
        samples.sort_by_key(|(_, used)| std::cmp::Reverse(used.ns));
        let mut stacks: Vec<WaitStack> = Vec::new();
        for (sample, used) in samples {
            let kernel = self.stacks.get(&sample.kernel_stack).cloned().unwrap_or_default();
            let mut frames = self.names.kernel_stack(&kernel);
            frames.retain(|frame| !is_scheduler(&frame.function));
            frames.extend(self.user_frames(place.tgid, sample.user_stack));
            let woken_by = self.user_frames(place.tgid, sample.waker_stack);
            match stacks.iter_mut().find(|one| one.frames == frames && one.woken_by == woken_by) {
                Some(one) => {
                    one.ns += used.ns;
                    one.samples += used.times;
                }
                None => stacks.push(WaitStack { frames, woken_by, ns: used.ns, samples: used.times }),
            }
        }
        stacks.sort_by_key(|stack| std::cmp::Reverse(stack.ns));
        stacks.truncate(MAX_STACKS);
        stacks
    }

    fn program(&self, pid: u32) -> PlainText {
        self.table.get(pid).map_or_else(|| ENDED.into(), |origin| origin.command.clone())
    }

    fn file(&mut self, place: &Place) -> String {
        let files = self.files.entry(place.tgid).or_insert_with(|| open_files(place.tgid));
        let id = FileId { device: device_number(place.device), inode: place.object[0] };
        files.get(&id).cloned().unwrap_or_else(|| "a file that is closed".into())
    }

    /// Decides for each futex whether its threads wait for a lock, wait for work, or sleep.
    ///
    /// If no thread ended any of its waits, they are sleeps: locks and queues that are waited for with a time limit
    /// (Python's interpreter lock, an idle pool thread) are released or filled now and then. Otherwise the functions of
    /// the waiting threads and of those that woke them decide; if none is known, the call decides: glibc waits for a
    /// lock with FUTEX_WAIT and for a condition with FUTEX_WAIT_BITSET.
    fn decide_futexes(&mut self, places: &[(Place, Use)], samples: &[(WaitSample, Use)]) {
        const LOCKS: [&str; 14] = [
            "mutex_lock",
            "mutex_unlock",
            "lll_lock",
            "rwlock",
            "lock_contended",
            // Those of the crate parking_lot, in whose name "park" is no wait for work.
            "lock_slow",
            "shared_slow",
            "exclusive_slow",
            "runtime.lock",
            "semacquire",
            "onitor::enter",
            "onitor::Enter",
            "onitor::exit",
            "onitor.Enter",
        ];
        const HANDS_OUT: [&str; 16] = [
            "cond_wait",
            "cond_timedwait",
            "cond_clockwait",
            "cond_signal",
            "cond_broadcast",
            "cnd_",
            "sem_wait",
            "sem_timedwait",
            "sem_post",
            "ondvar",
            "otify",
            "park",
            "runtime.stopm",
            "runtime.startm",
            "runtime.wakep",
            "runtime.note",
        ];
        let mut seen: HashMap<(u32, u64), Futex> = HashMap::new();
        for (place, used) in places {
            let Some(futex) = futex_of(place) else { continue };
            let seen = seen.entry(futex).or_default();
            seen.is_bitset |= place.object[1] == libc::FUTEX_WAIT_BITSET as u64;
            match place.file_type {
                BY_TIMER => seen.by_timer += used.times,
                BY_THREAD => seen.by_thread += used.times,
                _ => {}
            }
        }
        for (sample, used) in samples {
            let Some(seen) = futex_of(&sample.place).and_then(|futex| seen.get_mut(&futex)) else { continue };
            let frames = [sample.user_stack, sample.waker_stack].map(|hash| self.user_frames(sample.place.tgid, hash));
            let has = |parts: &[&str]| {
                let is_one = |frame: &Frame| parts.iter().any(|part| frame.function.contains(part));
                frames.iter().any(|frames| frames.iter().take(6).any(is_one))
            };
            match (has(&LOCKS), has(&HANDS_OUT)) {
                (true, _) => seen.locks += used.times,
                (false, true) => seen.work += used.times,
                (false, false) => {}
            }
        }
        let kind = |(pid, _): &(u32, u64), seen: &Futex| match seen {
            Futex { locks: 1.., work, .. } if seen.locks >= *work => WaitKind::Lock,
            Futex { by_timer: 1.., by_thread: 0, .. } => WaitKind::Sleep,
            // No wait ended: the threads do nothing for the requests of the window.
            Futex { by_timer: 0, by_thread: 0, .. } => WaitKind::Work,
            // Go's own locks are not futexes; its threads sleep in futexes only without work.
            Futex { work, is_bitset, .. } if *work > 0 || *is_bitset || self.go.contains(pid) => WaitKind::Work,
            _ => WaitKind::Lock,
        };
        self.futexes = seen.iter().map(|(futex, seen)| (*futex, kind(futex, seen))).collect();
    }

    /// The other end of a socket that is not served.
    fn other_end(&self, place: &Place) -> Option<String> {
        address(place.device as u16, &place.object, place.port).or_else(|| self.peers.get(&place.object[0]).cloned())
    }

    /// Whether no wait ended at a Unix socket without a name: a thread waits there for news, not for an answer.
    fn is_silent(&self, place: &Place) -> bool {
        let ended = Place { device: place.device & !IN_PROGRESS, ..*place };
        place.device & IN_PROGRESS != 0 && !self.ended.contains(&ended) && self.other_end(&ended).is_none()
    }

    /// Whether most of the sampled time at a place was spent on the lock of the address space, which mmap, munmap and
    /// others take (mm/mmap.c, mmap_write_lock).
    fn is_for_address_space(&mut self, place: &Place) -> bool {
        let Naming { samples, stacks, names, .. } = self;
        let (mut locked_ns, mut all_ns) = (0, 0);
        for (sample, used) in samples.get(place).into_iter().flatten() {
            let frames = stacks.get(&sample.kernel_stack).map_or_else(Vec::new, |stack| names.kernel_stack(stack));
            all_ns += used.ns;
            if frames.iter().any(|frame| frame.function.starts_with("rwsem_down_")) {
                locked_ns += used.ns;
            }
        }
        2 * locked_ns > all_ns
    }

    /// The event that a thread waits for, the call and the object.
    fn wait(&mut self, place: &Place) -> (WaitKind, String, String) {
        let descriptor = match place.file_type {
            0 if place.object[0] != 0 => DescriptorKind::Source,
            0 => DescriptorKind::Nothing,
            0x1 => DescriptorKind::Pipe,
            0x2 => DescriptorKind::Source,
            BY_TIMER | BY_THREAD => DescriptorKind::Nothing,
            0xc if place.device & SERVED != 0 => DescriptorKind::Served,
            0xc if self.is_silent(place) => DescriptorKind::Silent,
            0xc => DescriptorKind::Socket,
            _ => DescriptorKind::File,
        };
        let (mut kind, call) = meaning(place.call, descriptor);
        if let Some(decided) = futex_of(place).and_then(|futex| self.futexes.get(&futex)) {
            kind = *decided;
        }
        let other_end = (kind == WaitKind::Backend).then(|| self.other_end(place)).flatten();
        if other_end.as_ref().is_some_and(|name| self.one_way.contains(name)) {
            kind = WaitKind::Pipe;
        }
        if kind == WaitKind::Memory && self.is_for_address_space(place) {
            return (WaitKind::Lock, call, ADDRESS_SPACE.into());
        }
        let object = match (kind, descriptor) {
            (WaitKind::Lock | WaitKind::Work, DescriptorKind::Nothing | DescriptorKind::Source)
                if place.object[0] != 0 =>
            {
                format!("{:#x}", place.object[0])
            }
            (WaitKind::Sleep, _) if futex_of(place).is_some() => "with a timeout".into(),
            (WaitKind::Send, _) if place.port == WINDOW_CLOSED => CLOSED_WINDOW.into(),
            (WaitKind::Send, _) if place.port == SEND_BUFFER_FULL => SEND_BUFFER.into(),
            (_, DescriptorKind::File) | (WaitKind::Pipe, DescriptorKind::Source) => self.file(place),
            (_, DescriptorKind::Silent) => "a Unix socket".into(),
            (WaitKind::Backend | WaitKind::Pipe, DescriptorKind::Socket) => {
                other_end.unwrap_or_else(|| "a Unix socket".into())
            }
            _ => String::new(),
        };
        (kind, call, object)
    }
}

/// Whether a connection carried several messages of the server and no answer.
fn is_one_way(one: &Outgoing) -> bool {
    one.calls == 0 && one.unanswered >= LEAST_UNANSWERED
}

fn peer_of(one: &Outgoing) -> Option<u64> {
    (i32::from(one.family) == libc::AF_UNIX).then_some(one.address[0])
}

/// The process and the address of a wait at a futex.
fn futex_of(place: &Place) -> Option<(u32, u64)> {
    let is_futex = is_wait(place) && i64::from(place.call) == libc::SYS_futex;
    is_futex.then_some((place.tgid, place.object[0]))
}

/// Whether every thread that falls asleep has this function on its stack.
fn is_scheduler(function: &str) -> bool {
    const OF_ALL: [&str; 12] = [
        "__schedule",
        "schedule",
        "bpf_jit_code",
        "__traceiter_sched_switch",
        "__bpf_trace_sched_switch",
        "do_syscall_64",
        "entry_SYSCALL_64_after_hwframe",
        "x64_sys_call",
        "schedule_timeout",
        "el0_svc",
        "el0t_64_sync",
        "el0t_64_sync_handler",
    ];
    OF_ALL.contains(&function)
        || function.starts_with("bpf_prog_")
        || function.starts_with("bpf_trampoline")
        || function.starts_with("bpf_trace_run")
}

/// Converts the kernel's device number to that of `stat`: the kernel's has 20 bits of minor number
/// (include/linux/kdev_t.h).
fn device_number(device: u32) -> u64 {
    let (major, minor) = (device >> 20, device & 0xf_ffff);
    libc::makedev(major, minor)
}

fn open_files(pid: u32) -> HashMap<FileId, String> {
    let mut files = HashMap::new();
    let Ok(folder) = std::fs::read_dir(format!("/proc/{}/fd", living_thread(pid))) else { return files };
    for entry in folder.flatten().take(MAX_DESCRIPTORS) {
        let Ok(path) = std::fs::read_link(entry.path()) else { continue };
        if path.is_absolute()
            && let Ok(file) = std::fs::metadata(entry.path())
        {
            files.insert(FileId { device: file.dev(), inode: file.ino() }, path.to_string_lossy().into_owned());
        }
    }
    files
}

/// The address of an internet socket's other end; `None` for another family.
pub fn address(family: u16, object: &[u64; 2], port: u16) -> Option<String> {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&object[0].to_ne_bytes());
    bytes[8..].copy_from_slice(&object[1].to_ne_bytes());
    let [a, b, c, d, ..] = bytes;
    let ip = match i32::from(family) {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port).to_string())
}

fn thread_name(place: &Place) -> PlainText {
    let bytes: Vec<u8> = place.name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    PlainText::of_bytes(&bytes, 16)
}

/// The name without its number, so that `worker-12` and `worker-3` are one group.
pub fn common_name(name: &str) -> String {
    let trimmed = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let trimmed = trimmed.trim_end_matches(['-', '_', '#', ':', '/', ' ']);
    if trimmed.is_empty() { name.to_string() } else { trimmed.to_string() }
}

fn is_wait(place: &Place) -> bool {
    !matches!(place.doing & !FIRST_THREAD, RUNNING | READY_OWN | READY_OTHERS | READY_STOPPED | READY_MOVED)
}

/// Processes that start others of their program and leave the work to them; they are not part of a pool of workers.
fn idle_parents(
    places: &[(Place, Use)],
    waits: &[Option<(WaitKind, String, String)>],
    naming: &Naming<'_>,
) -> HashSet<u32> {
    let (mut running, mut at_work) = (BTreeMap::<u32, u64>::new(), BTreeMap::<u32, u64>::new());
    for ((place, used), wait) in places.iter().zip(waits) {
        let is_running = place.doing & !FIRST_THREAD == RUNNING;
        *running.entry(place.tgid).or_default() += if is_running { used.ns } else { 0 };
        let is_asleep = |kind: WaitKind| kind.is_idle() || kind == WaitKind::Sleep;
        let is_blocked = wait.as_ref().is_some_and(|(kind, ..)| !is_asleep(*kind));
        *at_work.entry(place.tgid).or_default() += if is_running || is_blocked { used.ns } else { 0 };
    }
    let mut busiest_child: BTreeMap<u32, u64> = BTreeMap::new();
    for (pid, ns) in &running {
        let Some(parent) = naming.table.get(*pid).map(|origin| origin.parent) else { continue };
        if running.contains_key(&parent) && naming.program(parent) == naming.program(*pid) {
            let most = busiest_child.entry(parent).or_default();
            *most = (*most).max(*ns);
        }
    }
    let is_idle = |(parent, most): (u32, u64)| (IDLE_PARENT * at_work[&parent] <= most).then_some(parent);
    busiest_child.into_iter().filter_map(is_idle).collect()
}

fn groups(places: &[(Place, Use)], naming: &mut Naming<'_>) -> Vec<ThreadGroup> {
    let mut groups: BTreeMap<(PlainText, String, bool), ThreadGroup> = BTreeMap::new();
    let mut serving = HashSet::new();
    let waits: Vec<_> = places.iter().map(|(place, _)| is_wait(place).then(|| naming.wait(place))).collect();
    for ((place, _), wait) in places.iter().zip(&waits) {
        if matches!(wait, Some((WaitKind::Events | WaitKind::Requests, ..))) {
            serving.insert((place.tgid, place.name));
        }
    }
    let parents = idle_parents(places, &waits, naming);
    for ((place, used), wait) in places.iter().zip(waits) {
        let program = naming.program(place.tgid);
        let is_first = place.doing & FIRST_THREAD != 0;
        let is_parent = is_first && parents.contains(&place.tgid);
        let name = if is_parent { "parent".into() } else { common_name(&thread_name(place)) };
        let group = groups.entry((program.clone(), name.clone(), is_first)).or_insert_with(|| ThreadGroup {
            program,
            name: name.as_str().into(),
            is_first,
            ..ThreadGroup::default()
        });
        let at = match group.processes.iter().position(|one| one.pid == place.tgid) {
            Some(at) => at,
            None => {
                group.processes.push(ProcessUse { pid: place.tgid, running_ns: 0, idle_ns: 0, ns: 0 });
                group.processes.len() - 1
            }
        };
        group.processes[at].ns += used.ns;
        match place.doing & !FIRST_THREAD {
            RUNNING => {
                group.running_ns += used.ns;
                group.works += used.times;
                group.longest_work_ns = group.longest_work_ns.max(used.longest_ns);
                group.processes[at].running_ns += used.ns;
            }
            READY_OWN => group.ready_own_ns += used.ns,
            READY_OTHERS => group.ready_others_ns += used.ns,
            READY_STOPPED => group.ready_stopped_ns += used.ns,
            READY_MOVED => group.ready_moved_ns += used.ns,
            _ => {
                let Some((mut kind, call, object)) = wait else { continue };
                if kind == WaitKind::Children && serving.contains(&(place.tgid, place.name)) {
                    kind = WaitKind::Child;
                }
                if kind.is_idle() {
                    group.processes[at].idle_ns += used.ns;
                }
                let stacks = naming.stacks_of(place);
                add_wait(&mut group.waits, kind, call, object, used, stacks);
            }
        }
    }
    let mut groups: Vec<ThreadGroup> = groups.into_values().collect();
    groups.iter_mut().for_each(shorten);
    groups
}

fn add_wait(waits: &mut Vec<Wait>, kind: WaitKind, call: String, object: String, used: &Use, stacks: Vec<WaitStack>) {
    let (call, object) = (PlainText::new(&call, 40), PlainText::new(&object, 200));
    let same = |one: &&mut Wait| one.kind == kind && one.call == call && one.object == object;
    match waits.iter_mut().find(same) {
        Some(one) => {
            one.ns += used.ns;
            one.times += used.times;
            one.longest_ns = one.longest_ns.max(used.longest_ns);
            one.stacks.extend(stacks);
        }
        None => {
            waits.push(Wait { kind, call, object, ns: used.ns, times: used.times, longest_ns: used.longest_ns, stacks })
        }
    }
}

/// Combines small waits, and those above the maximum number.
fn shorten(group: &mut ThreadGroup) {
    let least = (LEAST_SHARE * group.total_ns() as f64) as u64;
    let mut waits = std::mem::take(&mut group.waits);
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.ns));
    for (place, wait) in waits.into_iter().enumerate() {
        if place < MAX_WAITS && wait.ns >= least {
            group.waits.push(wait);
            continue;
        }
        let used = Use { ns: wait.ns, times: wait.times, longest_ns: wait.longest_ns };
        add_wait(&mut group.waits, wait.kind, String::new(), String::new(), &used, Vec::new());
    }
    for wait in &mut group.waits {
        wait.stacks.sort_by_key(|stack| std::cmp::Reverse(stack.ns));
        wait.stacks.truncate(MAX_STACKS);
    }
    group.processes.sort_by_key(|process| std::cmp::Reverse(process.running_ns));
    group.processes.truncate(MAX_PROCESSES);
}

fn backends(connections: &[([u64; 2], Outgoing)], gate: &Gate) -> Vec<BackendUse> {
    let mut backends: BTreeMap<String, BackendUse> = BTreeMap::new();
    for (_, one) in connections.iter().filter(|(_, one)| !is_one_way(one)) {
        let open_ns = if one.busy_since_ns == 0 { 0 } else { gate.closes_ns.saturating_sub(one.busy_since_ns) };
        let Some(name) = backend_name(one).filter(|_| one.calls > 0 || open_ns > 0) else { continue };
        let entry = backends.entry(name.clone()).or_insert_with(|| BackendUse {
            address: PlainText::new(&name, 200),
            is_own: false,
            connections: 0,
            busy_ns: 0,
            calls: 0,
            longest_ns: 0,
        });
        entry.connections += 1;
        entry.busy_ns += one.busy_ns + open_ns;
        entry.calls += one.calls;
        entry.longest_ns = entry.longest_ns.max(one.longest_ns).max(open_ns);
    }
    let mut backends: Vec<BackendUse> = backends.into_values().collect();
    backends.sort_by_key(|backend| std::cmp::Reverse(backend.busy_ns));
    backends.truncate(MAX_BACKENDS);
    backends
}

fn backend_name(one: &Outgoing) -> Option<String> {
    if i32::from(one.family) != libc::AF_UNIX {
        let address = address(one.family, &one.address, one.port)?;
        let is_udp = i32::from(one.protocol) == libc::IPPROTO_UDP;
        return Some(if is_udp { format!("udp:{address}") } else { address });
    }
    let length = (one.path_bytes as usize).min(one.path.len());
    let bytes: Vec<u8> = one.path[..length].iter().map(|byte| *byte as u8).collect();
    let name = name_of(&bytes);
    (!name.is_empty() && !is_of_system(&name)).then(|| format!("unix:{name}"))
}
