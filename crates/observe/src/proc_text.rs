//! Parsers of /proc and cgroup text: pure functions from bytes to numbers.
//!
//! The text is the kernel's, but process names in it are untrusted, and a file may be cut short: no input panics,
//! missing or malformed fields are `None` or left out, and memory is bounded.
//!
//! The crate procfs is not used: it has no `softnet_stat`, `TcpExt`, `interrupts`, `softirqs` or control groups'
//! `cpu.stat`, panics on a truncated `stat`, and reads all fields although a few are needed every few milliseconds.

use crate::sock_diag::TcpSocket;
use record::PlainText;
use std::net::{IpAddr, SocketAddr};

/// Maximum CPUs, as in Linux (CONFIG_NR_CPUS is at most 8192).
const MAX_CPUS: usize = 8192;

pub(crate) fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty())
}

pub(crate) fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

/// The fields read from `/proc/PID/stat` (proc_pid_stat(5)). Times are in clock ticks (`sysconf(_SC_CLK_TCK)`, 100 a
/// second).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessStat {
    /// Name of the program, at most 15 bytes; untrusted text.
    pub command: PlainText,
    /// State letter: `R`, `S`, `Z`, ...
    pub state: char,
    /// The current parent; 1 or a subreaper after the original one has ended.
    pub parent: u32,
    /// Leader of the session.
    pub session: u32,
    /// Minor faults of all threads, including ended ones.
    pub minor_faults: u64,
    /// Major faults of all threads, including ended ones.
    pub major_faults: u64,
    /// Major faults of waited-for children.
    pub children_major_faults: u64,
    /// User time of all threads, including ended ones.
    pub user_ticks: u64,
    /// System time of all threads, including ended ones.
    pub system_ticks: u64,
    /// User time of waited-for children.
    pub children_user_ticks: u64,
    /// System time of waited-for children.
    pub children_system_ticks: u64,
    /// Threads alive.
    pub threads: u64,
    /// Start, ticks since boot.
    pub start_ticks: u64,
    /// Resident pages.
    pub resident_pages: u64,
}

/// Parses `/proc/PID/stat`. The command, in parentheses, may contain spaces, parentheses and newlines.
pub fn parse_process_stat(text: &[u8]) -> Option<ProcessStat> {
    let open = text.iter().position(|byte| *byte == b'(')?;
    let close = text.iter().rposition(|byte| *byte == b')')?;
    let command = PlainText::of_bytes(text.get(open + 1..close)?, 64);
    let fields: Vec<&[u8]> = words(text.get(close + 1..)?).take(24).collect();
    // Field numbers as in the manual page, which counts from 1; the state is the third.
    let field = |numbered: usize| fields.get(numbered - 3).copied().and_then(number);
    Some(ProcessStat {
        command,
        state: char::from(*fields.first()?.first()?),
        parent: field(4)? as u32,
        session: field(6).unwrap_or(0) as u32,
        minor_faults: field(10)?,
        major_faults: field(12)?,
        children_major_faults: field(13)?,
        user_ticks: field(14)?,
        system_ticks: field(15)?,
        children_user_ticks: field(16).unwrap_or(0),
        children_system_ticks: field(17).unwrap_or(0),
        threads: field(20)?,
        start_ticks: field(22)?,
        resident_pages: field(24).unwrap_or(0),
    })
}

/// `/proc/PID/task/TID/schedstat`: the scheduler's account of one thread (Documentation/scheduler/sched-stats.rst).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ThreadAccount {
    /// Time on a CPU, nanoseconds.
    pub run_ns: u64,
    /// Time runnable without a CPU, nanoseconds.
    pub wait_ns: u64,
    /// Number of times that the thread was switched in.
    pub switches: u64,
}

/// Parses a schedstat file of a thread.
pub fn parse_thread_account(text: &[u8]) -> Option<ThreadAccount> {
    let mut fields = words(text).map(number);
    Some(ThreadAccount { run_ns: fields.next()??, wait_ns: fields.next()??, switches: fields.next()?? })
}

/// CPU time by mode, in clock ticks. User time includes guest time, as in the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTimes {
    /// User mode, including nice.
    pub user: u64,
    /// System mode.
    pub system: u64,
    /// Idle.
    pub idle: u64,
    /// Idle while a disk request of this CPU was outstanding.
    pub iowait: u64,
    /// Hard interrupts.
    pub irq: u64,
    /// Soft interrupts.
    pub softirq: u64,
    /// Taken by the hypervisor.
    pub steal: u64,
}

// Idle times may step back by a tick on some kernels.
record::grows!(CpuTimes { user, system, idle, iowait, irq, softirq, steal });

impl CpuTimes {
    /// Sum of all modes.
    pub fn total(&self) -> u64 {
        [self.user, self.system, self.idle, self.iowait, self.irq, self.softirq, self.steal]
            .iter()
            .fold(0, |sum, part| sum.saturating_add(*part))
    }
}

/// The fields read from `/proc/stat`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MachineStat {
    /// Times of each CPU, by CPU number. Offline CPUs are absent.
    pub cpus: Vec<(usize, CpuTimes)>,
    /// Interrupts since boot.
    pub interrupts: u64,
    /// Context switches since boot.
    pub context_switches: u64,
}

/// Parses `/proc/stat`; `None` if it lists no CPU.
pub fn parse_machine_stat(text: &[u8]) -> Option<MachineStat> {
    let mut stat = MachineStat::default();
    for line in lines(text) {
        let mut fields = words(line);
        let Some(key) = fields.next() else { continue };
        if let Some(cpu) = key.strip_prefix(b"cpu").and_then(number) {
            let times: Vec<u64> = fields.take(8).map(|field| number(field).unwrap_or(0)).collect();
            let part = |index: usize| times.get(index).copied().unwrap_or(0);
            if stat.cpus.len() < MAX_CPUS && (cpu as usize) < MAX_CPUS && times.len() >= 4 {
                let times = CpuTimes {
                    user: part(0).saturating_add(part(1)),
                    system: part(2),
                    idle: part(3),
                    iowait: part(4),
                    irq: part(5),
                    softirq: part(6),
                    steal: part(7),
                };
                stat.cpus.push((cpu as usize, times));
            }
        } else if key == b"intr" {
            stat.interrupts = fields.next().and_then(number).unwrap_or(0);
        } else if key == b"ctxt" {
            stat.context_switches = fields.next().and_then(number).unwrap_or(0);
        }
    }
    (!stat.cpus.is_empty()).then_some(stat)
}

/// Reads a counter of `/proc/net/snmp` or `/proc/net/netstat`, where a line of names is followed by a line of values,
/// both beginning with the protocol (`Tcp:`). `None` for negative values (`MaxConn: -1`).
pub fn parse_protocol_counter(text: &[u8], protocol: &str, counter: &str) -> Option<u64> {
    let mut of_protocol =
        lines(text).filter(|line| line.strip_prefix(protocol.as_bytes()).is_some_and(|rest| rest.starts_with(b":")));
    let (names, values) = (of_protocol.next()?, of_protocol.next()?);
    words(names).zip(words(values)).find(|(name, _)| *name == counter.as_bytes()).and_then(|(_, value)| number(value))
}

/// Bytes received and sent by each interface in `/proc/net/dev`, at most 64 of them. Names are untrusted text.
pub fn parse_net_bytes(text: &[u8]) -> Vec<(String, u64, u64)> {
    let of_line = |(name, numbers): (&[u8], Vec<u64>)| match numbers[..] {
        [received, _, _, _, _, _, _, _, sent, ..] => {
            Some((String::from_utf8_lossy(name).trim().to_string(), received, sent))
        }
        _ => None,
    };
    interfaces(text).filter_map(of_line).take(64).collect()
}

/// The interfaces in `/proc/net/dev` with their numbers. Names may contain anything except `/` and spaces, even
/// colons; the numbers do not.
fn interfaces(text: &[u8]) -> impl Iterator<Item = (&[u8], Vec<u64>)> {
    lines(text).filter_map(|line| {
        let colon = line.iter().rposition(|byte| *byte == b':')?;
        Some((&line[..colon], words(&line[colon + 1..]).take(16).filter_map(number).collect()))
    })
}

/// Packets received and sent by all interfaces in `/proc/net/dev`, including the loopback device.
pub fn parse_net_dev(text: &[u8]) -> Option<(u64, u64)> {
    let of_one = |(_, numbers): (&[u8], Vec<u64>)| Some((*numbers.get(1)?, *numbers.get(9)?));
    interfaces(text).filter_map(of_one).reduce(|sum, one| (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1)))
}

/// Packets dropped by the backlog queues of all CPUs: the second column of `/proc/net/softnet_stat`, hexadecimal.
pub fn parse_softnet_drops(text: &[u8]) -> Option<u64> {
    sum_of_column(text, 1)
}

/// How often receive processing stopped with packets left: the third column of the same file.
pub fn parse_softnet_squeezes(text: &[u8]) -> Option<u64> {
    sum_of_column(text, 2)
}

/// The columns `entries` and `drop` of `/proc/net/stat/nf_conntrack`, with one line per CPU: tracked connections (of
/// all CPUs), and packets dropped because the table was full or an entry was removed early.
pub fn parse_conntrack(text: &[u8]) -> Option<(u64, u64)> {
    let mut rows = lines(text);
    let drops = words(rows.next()?).position(|word| word == b"drop")?;
    Some((sum_of_column(rows.next()?, 0)?, sum_of_column(text, drops)?))
}

/// The sum of a column of hexadecimal numbers; lines without a number there are skipped.
fn sum_of_column(text: &[u8], column: usize) -> Option<u64> {
    let number = |line| u64::from_str_radix(std::str::from_utf8(words(line).nth(column)?).ok()?, 16).ok();
    lines(text).take(MAX_CPUS).filter_map(number).reduce(u64::saturating_add)
}

/// `usage_usec` in a control group's `cpu.stat`: CPU time of all processes that ever ran in it, microseconds.
pub fn parse_cgroup_usage_us(text: &[u8]) -> Option<u64> {
    parse_named(text, "usage_usec")
}

/// The limit in a control group's `cpu.max`, in CPUs; `None` for `max`.
pub fn parse_cpu_limit(text: &[u8]) -> Option<f64> {
    let mut fields = words(text).map(number);
    let (quota_us, period_us) = (fields.next()??, fields.next()??);
    (quota_us > 0 && period_us > 0).then(|| quota_us as f64 / period_us as f64)
}

/// The path in the unified hierarchy from `/proc/PID/cgroup`; untrusted text without `..`.
pub fn parse_cgroup_path(text: &[u8]) -> Option<String> {
    checked_path(lines(text).find_map(|line| line.strip_prefix(b"0::"))?)
}

/// Stalls in a control group's `memory.pressure`: time in which at least one thread was stalled, microseconds.
pub fn parse_stalled_us(text: &[u8]) -> Option<u64> {
    words(lines(text).find_map(|line| line.strip_prefix(b"some "))?)
        .find_map(|word| number(word.strip_prefix(b"total=")?))
}

/// The number after a name, in a file with a name and a number per line (e.g. `memory.events`).
pub fn parse_named(text: &[u8], name: &str) -> Option<u64> {
    let [number] = parse_named_numbers(text, [name]);
    number
}

/// The number of each line that begins with one of `names`.
pub fn parse_named_numbers<const N: usize>(text: &[u8], names: [&str; N]) -> [Option<u64>; N] {
    let mut found = [None; N];
    for line in lines(text) {
        let mut fields = words(line);
        let Some(key) = fields.next() else { continue };
        if let Some(at) = names.iter().position(|name| name.as_bytes() == key) {
            found[at] = fields.next().and_then(number);
        }
    }
    found
}

/// The path in the hierarchy of a controller (version 1), from the same file.
pub fn parse_controller_path(text: &[u8], controller: &str) -> Option<String> {
    checked_path(lines(text).find_map(|line| {
        let mut fields = line.splitn(3, |byte| *byte == b':').skip(1);
        let mut controllers = fields.next()?.split(|byte| *byte == b',');
        controllers.any(|name| name == controller.as_bytes()).then(|| fields.next()).flatten()
    })?)
}

fn checked_path(path: &[u8]) -> Option<String> {
    let path = std::str::from_utf8(path).ok()?;
    (path.starts_with('/') && !path.contains("..")).then(|| path.to_string())
}

/// The system call in which a sleeping thread waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitCall {
    /// poll or ppoll.
    Poll {
        /// Size of the set.
        descriptors: u64,
    },
    /// select or pselect6.
    Select {
        /// Highest descriptor in the sets, plus 1.
        limit: u64,
        /// Addresses of the sets in the thread's memory (bits by descriptor); 0 = none.
        sets: [u64; 3],
    },
    /// epoll or io_uring.
    Scalable,
}

/// The call in which a thread sleeps, from `/proc/PID/task/TID/syscall` (its number and arguments; `running` if it
/// does not sleep); `None` for other calls. 32-bit programs have other numbers, so the result is `None` or wrong; no
/// such server is known to matter.
pub fn parse_wait_call(text: &[u8]) -> Option<WaitCall> {
    let mut fields = words(lines(text).next()?);
    let call = std::str::from_utf8(fields.next()?).ok()?.parse::<libc::c_long>().ok()?;
    let mut arguments = [0u64; 4];
    for argument in &mut arguments {
        let text = fields.next().and_then(|field| std::str::from_utf8(field).ok())?;
        *argument = u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
    }
    let [first, second, third, fourth] = arguments;
    let low = |argument: u64| argument & u64::from(u32::MAX);
    match call {
        #[cfg(target_arch = "x86_64")]
        libc::SYS_poll => Some(WaitCall::Poll { descriptors: low(second) }),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_select => Some(WaitCall::Select { limit: low(first), sets: [second, third, fourth] }),
        libc::SYS_ppoll => Some(WaitCall::Poll { descriptors: low(second) }),
        libc::SYS_pselect6 => Some(WaitCall::Select { limit: low(first), sets: [second, third, fourth] }),
        #[cfg(target_arch = "x86_64")]
        libc::SYS_epoll_wait => Some(WaitCall::Scalable),
        libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 | libc::SYS_io_uring_enter => Some(WaitCall::Scalable),
        _ => None,
    }
}

/// Resident pages minus those of files and shared memory, from `/proc/PID/statm` (its second and third number,
/// proc(5)).
pub fn parse_anonymous_pages(text: &[u8]) -> Option<u64> {
    let mut pages = words(text).skip(1).map(number);
    let (resident, shared) = (pages.next()??, pages.next()??);
    resident.checked_sub(shared)
}

/// Proportional set size in `/proc/PID/smaps_rollup`, bytes.
pub fn parse_proportional_memory(text: &[u8]) -> Option<u64> {
    let line = lines(text).find_map(|line| line.strip_prefix(b"Pss:"))?;
    words(line).next().and_then(number)?.checked_mul(1024)
}

/// The soft limit of open descriptors in `/proc/PID/limits`; `None` if it is unlimited or missing.
pub fn parse_descriptor_limit(text: &[u8]) -> Option<u64> {
    lines(text)
        .find_map(|line| line.strip_prefix(b"Max open files"))
        .and_then(|rest| words(rest).next())
        .and_then(number)
}

/// Parses a line of `/proc/net/tcp` or `tcp6`, which has neither limits of queues nor drops; `None` for the heading and
/// anything else.
pub fn parse_tcp_line(line: &[u8]) -> Option<TcpSocket> {
    let fields: Vec<&[u8]> = words(line).take(10).collect();
    let text = |index: usize| std::str::from_utf8(fields.get(index)?).ok();
    let queues = text(4)?.split_once(':')?;
    let end = |index: usize| {
        let (address, port) = text(index)?.rsplit_once(':')?;
        Some(SocketAddr::new(parse_hex_address(address)?, u16::from_str_radix(port, 16).ok()?))
    };
    Some(TcpSocket {
        local: end(1)?,
        remote: end(2)?,
        state: u8::from_str_radix(text(3)?, 16).ok()?,
        queue: u32::from_str_radix(queues.1, 16).ok()?,
        uid: text(7)?.parse().ok()?,
        inode: text(9)?.parse().ok()?,
        queue_limit: u32::from_str_radix(queues.0, 16).ok()?,
        drops: 0,
    })
}

/// The kernel prints each 32-bit word of an address, which is in network order, as a number in this machine's byte
/// order.
fn parse_hex_address(hex: &str) -> Option<IpAddr> {
    if !hex.is_ascii() {
        return None;
    }
    let mut octets = Vec::with_capacity(16);
    for start in (0..hex.len()).step_by(8) {
        let word = u32::from_str_radix(hex.get(start..start + 8)?, 16).ok()?;
        octets.extend_from_slice(&word.to_ne_bytes());
        if octets.len() > 16 {
            return None;
        }
    }
    match <[u8; 4]>::try_from(&octets[..]) {
        Ok(v4) => Some(IpAddr::from(v4)),
        Err(_) => <[u8; 16]>::try_from(&octets[..]).ok().map(IpAddr::from),
    }
}

/// The inode in a descriptor's link text, `socket:[123]`.
pub fn parse_socket_link(link: &[u8]) -> Option<u64> {
    link.strip_prefix(b"socket:[")?.strip_suffix(b"]").and_then(number)
}

/// The words of a field of `/proc/PID/status`.
pub fn status_field<'t>(text: &'t [u8], name: &str) -> Option<impl Iterator<Item = &'t str>> {
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    let value = lines.filter_map(|line| line.split_once(':')).find(|(of, _)| *of == name)?.1;
    Some(value.split_ascii_whitespace())
}

/// Whether a process catches a signal, by its `/proc/PID/status`.
pub fn is_caught(text: &[u8], signal: i32) -> bool {
    let mask = status_field(text, "SigCgt").and_then(|mut words| u64::from_str_radix(words.next()?, 16).ok());
    mask.is_some_and(|mask| (1..=64).contains(&signal) && mask >> (signal - 1) & 1 == 1)
}
