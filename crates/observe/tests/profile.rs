//! The profiler on real processes. Tests that need root and BPF print why they did not run.

use observe::profile::{self, ProfileError, ProfileOptions};
use record::layers::Layer;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

const ROLE: &str = "STRAINGAUGE_TEST_ROLE";

/// A copy of this program in another role, as the server under test.
struct Server {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    port: u16,
}

impl Server {
    fn start(role: &str, in_namespace: bool) -> Server {
        let program = std::env::current_exe().unwrap();
        let run = format!("exec '{}' --exact role_of_a_server --nocapture", program.display());
        let mut command = if in_namespace {
            let mut command = Command::new("unshare");
            command.args(["--net", "sh", "-c", &format!("ip link set lo up && {run}")]);
            command
        } else {
            let mut command = Command::new("sh");
            command.args(["-c", &run]);
            command
        };
        let mut process =
            command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let orders = process.stdin.take().unwrap();
        let mut answers = BufReader::new(process.stdout.take().unwrap());
        let port = read_answer(&mut answers, "port").parse().unwrap();
        Server { process, orders, answers, port }
    }

    /// Sends an order and reads its answer.
    fn ask(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        read_answer(&mut self.answers, order)
    }

    fn options(&self, duration: Duration) -> ProfileOptions {
        let mut options = ProfileOptions::new(self.port);
        options.netns_pid = Some(self.process.id());
        options.duration = duration;
        options
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Skips lines of the test harness; answers begin with `@`.
fn read_answer(answers: &mut impl BufRead, key: &str) -> String {
    let start = format!("@{key} ");
    loop {
        let mut line = String::new();
        assert!(answers.read_line(&mut line).unwrap() > 0, "the server ended before it answered '{key}'");
        // The harness may have begun a line without ending it.
        if let Some(at) = line.find(&start) {
            return line[at + start.len()..].trim().to_string();
        }
    }
}

/// Whether the kernel lets this process sample it; otherwise prints the reason.
fn can_sample() -> bool {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut options = ProfileOptions::new(listener.local_addr().unwrap().port());
    options.duration = Duration::from_millis(200);
    let busy_until = Instant::now() + Duration::from_millis(200);
    let spin = std::thread::spawn(move || while Instant::now() < busy_until {});
    let result = profile::run(options, &|| false);
    spin.join().unwrap();
    match result {
        Ok(_) | Err(ProfileError::NoSamples { .. }) => true,
        Err(error) => {
            println!("did not run: {error}");
            false
        }
    }
}

fn can_make_namespaces() -> bool {
    let made = Command::new("unshare").args(["--net", "ip", "link", "set", "lo", "up"]).status();
    let is_made = made.is_ok_and(|status| status.success());
    if !is_made {
        println!("did not run: network namespaces need root, unshare and ip");
    }
    is_made
}

#[test]
fn a_known_share_of_user_time_is_recovered() {
    if !can_sample() {
        return;
    }
    let mut server = Server::start("share", false);
    server.ask("warm");
    let mut options = server.options(Duration::from_secs(4));
    options.frequency_hz = 3989;
    let mut profiler = profile::Profiler::attach(options).unwrap();
    profiler.begin().unwrap();
    let truth: f64 = std::thread::scope(|scope| {
        let working = scope.spawn(|| server.ask("work"));
        while !working.is_finished() {
            std::thread::sleep(Duration::from_millis(20));
            profiler.tick().unwrap();
        }
        working.join().unwrap().parse().unwrap()
    });
    let profile = profiler.end(None).unwrap();
    let share = profile.layer(Some(Layer::User)).unwrap().share_ratio.unwrap();
    let (user, half) = (share.value, share.plus_minus.unwrap());
    println!(
        "true {:.2} %, sampled {:.2} +-{:.2} % of {} samples",
        truth * 100.0,
        user * 100.0,
        half * 100.0,
        profile.samples.server()
    );
    assert!(profile.samples.server() > 5000, "{}", profile.samples.server());
    // On a busy machine, the server is interrupted all the time. That is the kernel's work, but the server's clock
    // includes it. On a quiet machine it is negligible.
    let interrupts: u64 = profile
        .layers
        .iter()
        .filter(|row| row.layer == Some(Layer::Other) && ["interrupts", "scheduler"].contains(&row.part.as_str()))
        .map(|row| row.samples)
        .sum();
    let interrupted = interrupts as f64 / profile.samples.server() as f64;
    let allowed = 0.01 + half;
    assert!(
        user - allowed < truth && truth < user + interrupted + allowed,
        "{user} to {} instead of {truth}, +-{half}",
        user + interrupted
    );
    let sum: u64 = profile.layers.iter().filter(|row| row.part.is_empty()).map(|row| row.samples).sum();
    assert_eq!(sum, profile.samples.server(), "the layers and what is unattributed are the whole");
}

#[test]
fn packets_of_the_port_are_those_of_its_otherwise_idle_interface() {
    if !can_sample() || !can_make_namespaces() {
        return;
    }
    let mut server = Server::start("traffic", true);
    let mut profiler = profile::Profiler::attach(server.options(Duration::from_secs(1))).unwrap();
    profiler.begin().unwrap();
    let before = interface_packets(server.process.id());
    server.ask("exchange 2000");
    profiler.tick().unwrap();
    let after = interface_packets(server.process.id());
    let profile = profiler.end(None).unwrap();
    assert_eq!(profile.packets.total(), after - before, "{:?}", profile.packets);
    assert_eq!(profile.packets.data_packets, [2000, 2000]);
    assert_eq!(profile.packets.payload_bytes, [2000 * 100, 2000 * 1000]);
    assert_eq!(profile.requests, 2000);
    assert_eq!(profile.packets.peer_packets, profile.packets.packets[1], "the other end is on this machine too");
}

/// Packets received by lo in the process's namespace; each was sent once.
fn interface_packets(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/net/dev")).unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("lo:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_second_event_has_separate_samples() {
    if !can_sample() {
        return;
    }
    let mut server = Server::start("faults", false);
    let mut options = server.options(Duration::from_secs(1));
    options.events = vec![profile::events::PAGE_FAULTS];
    let mut profiler = profile::Profiler::attach(options).unwrap();
    profiler.begin().unwrap();
    let faults: u64 = server.ask("fault").parse().unwrap();
    let profile = profiler.end(None).unwrap();
    let seen = profile.events[0].samples * profile.events[0].period;
    assert!(profile.events[0].not_measured.is_none());
    assert!(seen >= faults && seen < faults + 200, "{seen} instead of {faults}");
}

#[test]
fn impossible_profiles_are_refused_with_a_reason() {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    match profile::run(ProfileOptions::new(free), &|| false) {
        Err(error @ ProfileError::NoServer { .. }) => assert!(error.to_string().contains("--netns-of"), "{error}"),
        other => panic!("{other:?}"),
    }
    if !can_sample() {
        return;
    }
    let server = Server::start("share", false);
    match profile::run(server.options(Duration::from_millis(300)), &|| false) {
        Err(error @ ProfileError::NoSamples { .. }) => assert!(error.to_string().contains("load"), "{error}"),
        other => panic!("{other:?}"),
    }
    let mut options = server.options(Duration::from_secs(60));
    options.groups = vec!["acks=tcp_ack,no_such_function*".parse().unwrap()];
    match profile::run(options, &|| false) {
        Err(error @ ProfileError::UnknownPattern { .. }) => {
            assert!(error.to_string().contains("no_such_function*"), "{error}")
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn groups_and_ungrouped_samples_add_up_to_all() {
    if !can_sample() {
        return;
    }
    let mut server = Server::start("share", false);
    let mut options = server.options(Duration::from_secs(1));
    options.groups = vec!["reads=vfs_read,ksys_read".parse().unwrap(), "nothing=user:no_such_*".parse().unwrap()];
    let mut profiler = profile::Profiler::attach(options).unwrap();
    profiler.begin().unwrap();
    server.ask("warm");
    let profile = profiler.end(None).unwrap();
    let sum: u64 = profile.groups.iter().map(|group| group.samples).sum();
    assert_eq!(sum, profile.samples.server());
    assert!(profile.groups[0].samples > 0 && profile.groups[1].samples == 0, "{:?}", profile.groups);
    assert!(profile.doubts.iter().any(|doubt| doubt.what.contains("user:no_such_*")), "{:?}", profile.doubts);
}

#[test]
fn functions_of_ended_children_are_named() {
    if !can_sample() {
        return;
    }
    let mut server = Server::start("forks", false);
    let mut options = server.options(Duration::from_secs(1));
    options.frequency_hz = 3989;
    let mut profiler = profile::Profiler::attach(options).unwrap();
    profiler.begin().unwrap();
    server.ask("fork");
    let profile = profiler.end(None).unwrap();
    let of_children = profile.stacks.stacks.iter().filter(|stack| {
        let process = stack.process.map(|index| &profile.stacks.processes[index as usize]);
        process.is_some_and(|process| process.pid != server.process.id())
    });
    let innermost = |stack: &&record::profile::Stack| {
        let function = &profile.stacks.functions[*stack.functions.first().unwrap() as usize].function;
        println!("{} samples in {function}", stack.samples);
        // Without optimisation, the program calls further functions for each number.
        !function.starts_with('[')
    };
    let (named, other): (Vec<_>, Vec<_>) =
        of_children.filter(|stack| stack.mode == record::profile::CpuMode::User).partition(innermost);
    let samples = |stacks: &[&record::profile::Stack]| stacks.iter().map(|stack| stack.samples).sum::<u64>();
    let (named, other) = (samples(&named), samples(&other));
    assert!(named > 50 && named > 9 * other, "{named} samples of children have a function, {other} have none");
}

#[test]
fn code_in_memory_of_no_file_is_called_compiled() {
    if !can_sample() {
        return;
    }
    let mut server = Server::start("compiled", false);
    for kind in ["anonymous", "memfd"] {
        let mut options = server.options(Duration::from_secs(1));
        options.frequency_hz = 997;
        let mut profiler = profile::Profiler::attach(options).unwrap();
        profiler.begin().unwrap();
        server.ask(kind);
        let profile = profiler.end(None).unwrap();
        let innermost = |stack: &record::profile::Stack| {
            profile.stacks.functions[*stack.functions.first().unwrap() as usize].function.to_string()
        };
        let of_user = profile.stacks.stacks.iter().filter(|stack| stack.mode == record::profile::CpuMode::User);
        let (compiled, other): (Vec<_>, Vec<_>) =
            of_user.partition(|stack| innermost(stack) == record::profile::COMPILED);
        let samples = |stacks: &[&record::profile::Stack]| stacks.iter().map(|stack| stack.samples).sum::<u64>();
        let (compiled, other) = (samples(&compiled), samples(&other));
        assert!(compiled > 50 && compiled > 3 * other, "{kind}: {compiled} samples, {other} others");
    }
}

/// The server's side of the tests; does nothing unless started in a role.
#[test]
fn role_of_a_server() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    println!("\n@port {}", listener.local_addr().unwrap().port());
    for order in std::io::stdin().lines() {
        let order = order.unwrap();
        let answer = match (role.as_str(), order.split_once(' ')) {
            ("share", _) => work(if order == "warm" { 0.3 } else { 3.0 }).to_string(),
            ("faults", _) => fault().to_string(),
            ("forks", _) => fork_and_burn(40),
            ("compiled", _) => count_down_in_memory(order == "memfd"),
            ("traffic", Some((_, count))) => exchange(&listener, count.parse().unwrap()),
            _ => panic!("{order}"),
        };
        println!("\n@{order} {answer}");
        std::io::stdout().flush().unwrap();
    }
}

/// Computes and reads in turn until `seconds` of CPU time are used; returns the share of computing.
fn work(seconds: f64) -> f64 {
    let clock = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
    };
    let mut zeros = std::fs::File::open("/dev/zero").unwrap();
    let mut buffer = vec![0u8; 1 << 20];
    let (mut user, mut kernel, mut sum) = (0.0, 0.0, 1u64);
    while user + kernel < seconds {
        let begin = clock();
        for i in 0..1_000_000u64 {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(i));
        }
        let middle = clock();
        for _ in 0..40 {
            zeros.read_exact(&mut buffer).unwrap();
        }
        user += middle - begin;
        kernel += clock() - middle;
    }
    user / (user + kernel)
}

/// Runs a loop that was written into memory, as a compiler does.
fn count_down_in_memory(is_memfd: bool) -> String {
    // Subtract 1 from the first argument, repeat unless it is 0, return.
    #[cfg(target_arch = "x86_64")]
    const CODE: [u8; 6] = [0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3];
    #[cfg(target_arch = "aarch64")]
    const CODE: [u8; 12] = [0x00, 0x04, 0x00, 0xf1, 0xe1, 0xff, 0xff, 0x54, 0xc0, 0x03, 0x5f, 0xd6];
    let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: a new mapping of one page is filled with the code of a function that changes nothing else, and stays.
    unsafe {
        let (file, flags) = match is_memfd {
            true => (libc::memfd_create(c"compiled".as_ptr(), 0), libc::MAP_SHARED),
            false => (-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
        };
        assert!(!is_memfd || libc::ftruncate(file, 4096) == 0);
        let page = libc::mmap(std::ptr::null_mut(), 4096, protection, flags, file, 0);
        assert_ne!(page, libc::MAP_FAILED);
        std::ptr::copy_nonoverlapping(CODE.as_ptr(), page.cast(), CODE.len());
        let count_down: extern "C" fn(u64) = std::mem::transmute(page);
        count_down(400_000_000);
    }
    "done".into()
}

/// Starts children that compute for some milliseconds each and that no process waits for.
fn fork_and_burn(children: usize) -> String {
    // SAFETY: the signal is ignored, so that the kernel removes children that have ended.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    for _ in 0..children {
        // SAFETY: the child only computes, and ends without running code of its parent.
        unsafe {
            match libc::fork() {
                0 => {
                    caller_that_computes();
                    libc::_exit(0);
                }
                // The last child has ended when there is none to wait for.
                child => drop(libc::waitpid(child, std::ptr::null_mut(), 0).to_string()),
            }
        }
    }
    "done".into()
}

#[inline(never)]
fn caller_that_computes() {
    compute_in_child();
    std::hint::black_box(());
}

#[inline(never)]
fn compute_in_child() {
    for number in 0..4_000_000u64 {
        std::hint::black_box(number.wrapping_mul(31));
    }
}

/// Touches new pages and returns their number.
fn fault() -> u64 {
    const PAGES: usize = 3000;
    let mut pages = vec![0u8; PAGES * 4096];
    for page in 0..PAGES {
        pages[page * 4096] = std::hint::black_box(1);
    }
    std::hint::black_box(&pages);
    // The first and the last of the vector's pages may have been touched before.
    PAGES as u64 - 2
}

/// Exchanges a request and a response on one connection, `count` times, then waits until no packet is on its way.
fn exchange(listener: &TcpListener, count: usize) -> String {
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let (request, response) = ([1u8; 100], [2u8; 1000]);
    let mut buffer = [0u8; 1000];
    for _ in 0..count {
        client.write_all(&request).unwrap();
        server.read_exact(&mut buffer[..100]).unwrap();
        server.write_all(&response).unwrap();
        client.read_exact(&mut buffer).unwrap();
    }
    drop((client, server));
    // Delayed acknowledgements are sent after at most 40 ms, FINs at once.
    std::thread::sleep(Duration::from_millis(200));
    "done".into()
}
