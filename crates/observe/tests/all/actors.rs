//! Processes to be watched: this test binary in another role. A role obeys lines on its standard input and answers
//! with lines that begin with `> `.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "STRAINGAUGE_TEST_ROLE";

/// A running role.
pub struct Actor {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Actor {
    pub fn start(role: &str) -> Self {
        Self::start_with(role, |_| {})
    }

    pub fn start_with(role: &str, prepare: impl FnOnce(&mut Command)) -> Self {
        let mut command = command(role);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        prepare(&mut command);
        let mut child = command.spawn().expect("the test binary starts again");
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut actor = Actor { child, input, output };
        assert_eq!(actor.answer(), "ready", "{role}");
        actor
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line and waits for the answer.
    pub fn ask(&mut self, line: &str) -> String {
        writeln!(self.input, "{line}").expect("the role listens");
        self.answer()
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the role ended early");
            // The test harness may have printed text before it on the line.
            if let Some((_, answer)) = line.split_once("> ") {
                return answer.trim().to_string();
            }
        }
    }

    pub fn end(mut self) {
        drop(self.input);
        self.child.wait().unwrap();
    }
}

fn command(role: &str) -> Command {
    // The kernel's link works even for a user who may not enter the folders of the path.
    let mut command = Command::new("/proc/self/exe");
    command.args(["--exact", "actors::role_process", "--nocapture", "--test-threads=1"]).env(ROLE, role);
    command
}

pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not run: it needs root");
    }
    is_root
}

/// Not a test by itself: it runs in the processes that the tests start.
#[test]
fn role_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    match role.as_str() {
        // Much more than the tolerance between two accounts of CPU time, which is four ticks.
        "once" => burn_ms(120),
        "burner" => obey(|line| match line {
            "burn" => {
                let before = own_cpu_ns();
                burn_ms(150);
                format!("{}", own_cpu_ns() - before)
            }
            "thread" => {
                let before = own_cpu_ns();
                std::thread::spawn(|| burn_ms(100)).join().unwrap();
                format!("{}", own_cpu_ns() - before)
            }
            "children" => {
                let before = own_cpu_ns() + children_cpu_ns();
                for _ in 0..4 {
                    command("once").stdout(Stdio::null()).status().unwrap();
                }
                format!("{}", own_cpu_ns() + children_cpu_ns() - before)
            }
            "orphans" => {
                // No process waits for the grandchild, because its parent, a shell, ends first.
                let program = std::env::current_exe().unwrap();
                let line = format!("{} --exact actors::role_process >/dev/null 2>&1 & exit 0", program.display());
                Command::new("sh").args(["-c", &line]).env(ROLE, "once").status().unwrap();
                "started".into()
            }
            _ => unreachable!("{line}"),
        }),
        "listener" => {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            obey(|_| listener.local_addr().unwrap().port().to_string());
        }
        // A service manager with a listening socket: a service gets it as standard input, another child does not.
        "manager" => {
            std::fs::write("/proc/self/comm", "systemd").unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let start = |input: Stdio| Command::new("sleep").arg("600").stdin(input).spawn().unwrap();
            let end = |mut child: Child| child.kill().and_then(|()| child.wait()).map(drop).unwrap();
            let (bystander, mut service) = (start(Stdio::null()), None);
            obey(|line| match line {
                "port" => listener.local_addr().unwrap().port().to_string(),
                "serve" => {
                    service.take().into_iter().for_each(end);
                    let socket = std::os::fd::OwnedFd::from(listener.try_clone().unwrap());
                    service.insert(start(socket.into())).id().to_string()
                }
                _ => unreachable!("{line}"),
            });
            service.into_iter().chain([bystander]).for_each(end);
        }
        "poller" => {
            std::thread::spawn(|| {
                // Nothing is written to these, so the thread sleeps until the process ends.
                let (_writer, reader) = std::os::unix::net::UnixStream::pair().unwrap();
                let entry =
                    libc::pollfd { fd: std::os::fd::AsRawFd::as_raw_fd(&reader), events: libc::POLLIN, revents: 0 };
                let mut set = [entry; 100];
                // SAFETY: the array outlives the call and has as many entries as the argument states.
                unsafe { libc::poll(set.as_mut_ptr(), set.len() as libc::nfds_t, -1) };
            });
            obey(|_| String::new());
        }
        "stuck" => {
            let program = || std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
            let (first, second) = (program(), program());
            std::thread::spawn(move || {
                first.lock().unwrap();
                // Nothing reads, so the thread sleeps in write, with the lock held, until the process ends.
                let (_reader, mut writer) = std::io::pipe().unwrap();
                let _ = writer.write_all(&[0; 1 << 20]);
            });
            std::thread::sleep(std::time::Duration::from_millis(20));
            std::thread::spawn(move || second.lock());
            obey(|_| String::new());
        }
        "apart" => {
            enter_new_namespace();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let held: Vec<_> =
                (0..7).map(|_| (TcpStream::connect(address).unwrap(), listener.accept().unwrap())).collect();
            obey(|_| address.port().to_string());
            drop(held);
        }
        "unprivileged" => obey(super::windows::as_nobody),
        _ => unreachable!("{role}"),
    }
}

fn obey(mut act: impl FnMut(&str) -> String) {
    println!("\n> ready");
    for line in std::io::stdin().lines() {
        println!("> {}", act(line.unwrap().trim()));
    }
}

/// Uses this much CPU time, however busy the machine is.
fn burn_ms(milliseconds: u64) {
    let end = own_cpu_ns() + milliseconds * 1_000_000;
    let mut state = 1u64;
    while own_cpu_ns() < end {
        for _ in 0..10_000 {
            state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

fn own_cpu_ns() -> u64 {
    usage_ns(libc::RUSAGE_SELF)
}

fn children_cpu_ns() -> u64 {
    usage_ns(libc::RUSAGE_CHILDREN)
}

fn usage_ns(who: libc::c_int) -> u64 {
    // SAFETY: an all-zero rusage is valid, and getrusage writes only to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(who, &mut usage), 0);
        usage
    };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    ns(usage.ru_utime) + ns(usage.ru_stime)
}

fn enter_new_namespace() {
    // SAFETY: only this thread's network namespace changes.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }.unwrap();
    // The loopback device of a new namespace is down. ifreq: 16 bytes of name, then the flags.
    let mut request = [0u8; 40];
    request[..2].copy_from_slice(b"lo");
    request[16..18].copy_from_slice(&(libc::IFF_UP as u16).to_ne_bytes());
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which is 40 bytes long, from the pointer.
    let done = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&socket), libc::SIOCSIFFLAGS, request.as_ptr()) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// A command that runs as the user `nobody`.
pub fn as_nobody(command: &mut Command) {
    command.uid(65534).gid(65534);
}

/// The main thread of a test process is the harness, so a namespace entered by a role is that of the role's thread.
pub fn pid_of_role_thread(actor: &Actor) -> u32 {
    let threads = std::fs::read_dir(format!("/proc/{}/task", actor.pid())).unwrap();
    threads.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).max().unwrap()
}
