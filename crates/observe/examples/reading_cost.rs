//! Measures the cost of watching: CPU time of this crate's readings compared with the usual ways of reading the same
//! data.
//!
//! `reading_cost OUT_DIR [ROUNDS]` writes OUT_DIR/readings.csv (raw) and prints the medians. It opens its connections
//! in a network namespace of its own, so it needs root. bench/observer-cost/run runs it.

use observe::proc_text::{parse_process_stat, parse_tcp_line, parse_thread_account};
use observe::sock_diag::{DiagSocket, Scope};
use observe::watch::system::SystemReader;
use observe::watch::{WatchOptions, Watcher};
use observe::{Group, Observer, WatchTarget};
use std::fmt::Write as _;
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Both ends of each connection are in this process, whose descriptors are limited.
const CONNECTIONS: [usize; 4] = [0, 100, 1000, 10_000];
const PROCESSES: [usize; 3] = [1, 10, 100];
/// Programs started for each reading are slow, so they have fewer rounds.
const ROUNDS_OF_PROGRAMS: usize = 7;

struct Reading {
    situation: String,
    method: &'static str,
    cpu_us: f64,
}

fn main() {
    let out = std::env::args().nth(1).expect("usage: reading_cost OUT_DIR [ROUNDS]");
    let rounds = std::env::args().nth(2).map_or(25, |text| text.parse().expect("ROUNDS is a number"));
    let most = raise_descriptor_limit() / 2 - 100;
    enter_new_namespace();
    let mut readings = Vec::new();
    system(rounds, &mut readings);
    for count in CONNECTIONS {
        sockets(count.min(most), rounds, &mut readings);
    }
    for count in PROCESSES {
        processes(count, rounds, &mut readings);
    }
    let mut csv = String::from("situation,method,cpu_us\n");
    for reading in &readings {
        writeln!(csv, "{},{},{:.1}", reading.situation, reading.method, reading.cpu_us).unwrap();
    }
    std::fs::write(format!("{out}/readings.csv"), csv).expect("OUT_DIR is writable");
    summary(&readings);
}

/// Makes room for both ends of 10,000 connections, as far as the hard limit allows; returns the number of
/// descriptors.
fn raise_descriptor_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 40_000, rlim_max: 40_000 };
    // SAFETY: `limit` is a live rlimit; as root the hard limit may grow up to fs.nr_open, unless a capability is
    // missing.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } == 0 {
        return limit.rlim_cur as usize;
    }
    // SAFETY: `limit` is a live rlimit that the kernel first writes and then reads.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0, "{}", std::io::Error::last_os_error());
    }
    limit.rlim_cur as usize
}

/// The watch's reading of the machine, compared with opening the same files each time and with vmstat.
fn system(rounds: usize, readings: &mut Vec<Reading>) {
    const FILES: [&str; 6] =
        ["/proc/stat", "/proc/vmstat", "/proc/diskstats", "/proc/interrupts", "/proc/softirqs", "/proc/meminfo"];
    let mut reader = SystemReader::open();
    for round in 0..rounds {
        let mut record = |method, cpu_us| readings.push(Reading { situation: "the machine".into(), method, cpu_us });
        record(SYSTEM_OURS, thread_us(|| assert!(reader.read().cpu.is_some())));
        record(
            "open, read, close the same six files, unparsed",
            thread_us(|| assert!(FILES.iter().all(|file| std::fs::read(file).is_ok_and(|text| !text.is_empty())))),
        );
        if round < ROUNDS_OF_PROGRAMS {
            record(
                "vmstat",
                children_us(|| {
                    assert!(Command::new("vmstat").output().expect("procps is installed").status.success());
                }),
            );
        }
    }
}

/// Our method comes first; the others are shown as a ratio to it.
const STATES_OURS: &str = "transitions, counted by the watch (ours)";
const SYSTEM_OURS: &str = "counters of the watch, files kept open (ours)";
const SCAN: &str = "inet_diag, all states";
/// Number of readings per measurement, because one is too short for the clock.
const STATES_AT_ONCE: usize = 1000;
const EDGES_OURS: &str = "both edges of a window (ours)";

fn sockets(count: usize, rounds: usize, readings: &mut Vec<Reading>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback device is up");
    let address = listener.local_addr().expect("bound");
    let mut watcher = Watcher::start(WatchOptions::of_port(address.port())).expect("the watch starts");
    if let Some(why) = watcher.why_no_programs() {
        panic!("transitions cannot be counted: {why}");
    }
    let held: Vec<_> = (0..count)
        .map(|_| {
            (TcpStream::connect(address).expect("descriptors and ports are left"), listener.accept().expect("accepts"))
        })
        .collect();
    let port = address.port();
    let mut diag = DiagSocket::connect().expect("inet_diag");
    let situation = format!("{count} connections");
    let filter = format!("sport = :{port}");
    for round in 0..rounds {
        let mut record = |method, cpu_us| readings.push(Reading { situation: situation.clone(), method, cpu_us });
        let mut established = [0; 4];
        record(
            STATES_OURS,
            thread_us(|| {
                for _ in 0..STATES_AT_ONCE {
                    established[3] = std::hint::black_box(watcher.states())[1] as usize;
                }
            }) / STATES_AT_ONCE as f64,
        );
        record(
            SCAN,
            thread_us(|| {
                established[0] = diag.read_port(port, Scope::AllStates).expect("inet_diag").by_state[1] as usize;
            }),
        );
        record(
            "inet_diag, listeners",
            thread_us(|| {
                diag.read_port(port, Scope::Listeners).expect("inet_diag");
            }),
        );
        record("/proc/net/tcp and tcp6", thread_us(|| established[1] = read_proc_net_tcp(port)));
        if round < ROUNDS_OF_PROGRAMS {
            record(
                "ss -Htan",
                children_us(|| {
                    let output = Command::new("ss").args(["-Htan", "state", "established", &filter]).output();
                    established[2] =
                        output.expect("iproute2 is installed").stdout.split(|byte| *byte == b'\n').count() - 1;
                }),
            );
            assert_eq!(established[2], count, "ss");
        }
        assert_eq!(established[..2], [count, count], "every way of reading sees every connection");
        assert_eq!(established[3], count, "the watch sees them, too");
    }
    let target = WatchTarget {
        port,
        group: Group::ListeningOn(port),
        netns_pid: None,
        server_cpus: vec![],
        client_pid: std::process::id(),
    };
    let mut observer = Observer::start(target, Duration::from_millis(100)).expect("starts");
    for _ in 0..3 {
        observer.window_begins().expect("begins");
        std::thread::sleep(Duration::from_secs(3));
        let figures = observer.window_ends().expect("ends").observation(1).figures;
        let percent = figures.value(record::names::OBSERVER_CPUS).expect("measured") * 100.0;
        readings.push(Reading { situation: situation.clone(), method: SHARE, cpu_us: percent });
    }
    drop(held);
}

/// This method is shown in per cent of a CPU instead of microseconds.
const SHARE: &str = "observer, 3 s windows, 100 ms interval: % of a CPU";

fn read_proc_net_tcp(port: u16) -> usize {
    let count = |path: &str| {
        let text = std::fs::read(path).unwrap_or_default();
        text.split(|byte| *byte == b'\n')
            .filter_map(parse_tcp_line)
            .filter(|line| line.local.port() == port && line.state == 1)
            .count()
    };
    count("/proc/thread-self/net/tcp") + count("/proc/thread-self/net/tcp6")
}

struct Sleepers(Vec<Child>);

impl Drop for Sleepers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn processes(count: usize, rounds: usize, readings: &mut Vec<Reading>) {
    let sleeper = || Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().expect("coreutils");
    let sleepers = Sleepers((0..count).map(|_| sleeper()).collect());
    let pids: Vec<u32> = sleepers.0.iter().map(Child::id).collect();
    let target = WatchTarget {
        port: 1,
        group: Group::Tree(std::process::id()),
        netns_pid: None,
        server_cpus: vec![],
        client_pid: std::process::id(),
    };
    // An interval so long that the thread does not read in between.
    let mut observer = Observer::start(target, Duration::from_secs(3600)).expect("starts");
    let list = pids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let situation = format!("{count} processes");
    for round in 0..rounds {
        let mut record = |method, cpu_us| readings.push(Reading { situation: situation.clone(), method, cpu_us });
        record(
            EDGES_OURS,
            thread_us(|| {
                observer.window_begins().expect("begins");
                observer.window_ends().expect("ends");
            }),
        );
        record(
            "open, read, close stat and schedstat, twice",
            thread_us(|| {
                for _ in 0..2 {
                    for pid in &pids {
                        let stat = std::fs::read(format!("/proc/{pid}/stat")).expect("lives");
                        let account = std::fs::read(format!("/proc/{pid}/schedstat")).expect("lives");
                        assert!(parse_process_stat(&stat).is_some() && parse_thread_account(&account).is_some());
                    }
                }
            }),
        );
        if round < ROUNDS_OF_PROGRAMS {
            record(
                "ps -o, twice",
                children_us(|| {
                    for _ in 0..2 {
                        let ps = Command::new("ps").args(["-o", "pid,cputime,rss,maj_flt,nlwp", "-p", &list]).output();
                        assert!(ps.expect("procps is installed").status.success());
                    }
                }),
            );
        }
    }
}

fn summary(readings: &[Reading]) {
    println!("| situation | method | n | CPU us: median [quartiles] | ratio to ours |");
    println!("|---|---|---|---|---|");
    let mut groups: Vec<(&str, &str)> = Vec::new();
    for reading in readings {
        let key = (reading.situation.as_str(), reading.method);
        if !groups.contains(&key) {
            groups.push(key);
        }
    }
    for (situation, method) in groups {
        let values = sorted(readings, situation, method);
        let ours = [STATES_OURS, EDGES_OURS, SYSTEM_OURS].map(|ours| sorted(readings, situation, ours)).concat();
        let (median, low, high) = (quantile(&values, 0.5), quantile(&values, 0.25), quantile(&values, 0.75));
        let ratio = if method == SHARE { "".into() } else { ratio_words(median / quantile(&ours, 0.5)) };
        let digits = if method == SHARE || method == STATES_OURS { 2 } else { 0 };
        println!(
            "| {situation} | {method} | {} | {median:.digits$} [{low:.digits$} {high:.digits$}] | {ratio} |",
            values.len()
        );
    }
}

fn ratio_words(ratio: f64) -> String {
    if ratio >= 100.0 { format!("{ratio:.0}") } else { format!("{ratio:.2}") }
}

fn sorted(readings: &[Reading], situation: &str, method: &str) -> Vec<f64> {
    let wanted = readings.iter().filter(|reading| reading.situation == situation && reading.method == method);
    let mut values: Vec<f64> = wanted.map(|reading| reading.cpu_us).collect();
    values.sort_by(f64::total_cmp);
    values
}

fn quantile(sorted: &[f64], at: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * at).round() as usize]
}

fn thread_us(work: impl FnOnce()) -> f64 {
    let now = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
    };
    let before = now();
    work();
    now() - before
}

/// CPU time of the programs that `work` starts and waits for.
fn children_us(work: impl FnOnce()) -> f64 {
    let now = || {
        // SAFETY: an all-zero rusage is valid, and getrusage writes only to it.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
            usage
        };
        let us = |time: libc::timeval| time.tv_sec as f64 * 1e6 + time.tv_usec as f64;
        us(usage.ru_utime) + us(usage.ru_stime)
    };
    let before = now();
    work();
    now() - before
}

fn enter_new_namespace() {
    // SAFETY: this is the only thread; it moves to a new network namespace.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.expect("a namespace needs root");
    // struct ifreq: 16 bytes of name, then the flags.
    let mut request = [0u8; 40];
    request[..2].copy_from_slice(b"lo");
    request[16..18].copy_from_slice(&(libc::IFF_UP as u16).to_ne_bytes());
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which is 40 bytes long, from the pointer.
    let done = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&socket), libc::SIOCSIFFLAGS, request.as_ptr()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
