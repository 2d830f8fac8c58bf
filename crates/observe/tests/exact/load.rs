//! A small server and its client, both copies of this program.

use rustix::process::{Pid, Signal};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};

const ROLE: &str = "STRAINGAUGE_TEST_ROLE";
const REQUEST_BYTES: usize = 100;
const RESPONSE_BYTES: usize = 4000;

/// A copy of this program in a role; ends on drop.
pub struct Actor {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Actor {
    /// Starts a role: `server`, `places`, `client PORT`, `share`, `idle`.
    pub fn start(role: &str) -> Actor {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "exact::load::role_of_an_actor", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Actor { process, answers }
    }

    /// The rest of the next line that contains `@key `, even after text of the harness.
    pub fn read(&mut self, key: &str) -> String {
        let start = format!("@{key} ");
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the actor ended before it said '{key}'");
            if let Some(at) = line.find(&start) {
                return line[at + start.len()..].trim().to_string();
            }
        }
    }

    /// The port that it listens on.
    pub fn port(&mut self) -> u16 {
        self.read("port").parse().unwrap()
    }

    /// Stops the process.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues the process.
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.process.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Sends it a line.
    pub fn say(&mut self, word: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{word}").unwrap();
    }
}

impl Drop for Actor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Not a test by itself: the actors' side. Does nothing unless started in a role.
#[test]
fn role_of_an_actor() {
    let Ok(role) = std::env::var(ROLE) else { return };
    wake_without_preempting();
    match role.split_once(' ') {
        None if role == "server" => serve(),
        None if role == "places" => serve_places(),
        None if role == "share" => share(),
        None if role == "idle" => idle(),
        Some(("client", port)) => ask(port.parse().unwrap()),
        _ => panic!("{role}"),
    }
}

/// The scheduler charges a process that preempts its waker from the wake-up on (rq_clock_skip_update), so the waker's
/// account would be too low. Batch processes wait for their turn.
fn wake_without_preempting() {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a live sched_param, which the kernel only reads; 0 means the calling thread.
    assert_eq!(unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &parameter) }, 0);
}

fn listen() -> TcpListener {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    println!("\n@port {}", listener.local_addr().unwrap().port());
    std::io::stdout().flush().unwrap();
    listener
}

/// Serves connections one after another until each ends: computes and reads a file's metadata for every request.
fn serve() {
    let mut random = Random(1);
    for stream in listen().incoming() {
        let mut stream = stream.unwrap();
        stream.set_nodelay(true).unwrap();
        let (mut request, response) = ([0; REQUEST_BYTES], [7; RESPONSE_BYTES]);
        while stream.read_exact(&mut request).is_ok() {
            // The duration is random, so that no timer coincides with the requests.
            compute(random.next() % 4_000);
            std::hint::black_box(std::fs::metadata("/proc/self/exe").is_ok());
            if stream.write_all(&response).is_err() {
                break;
            }
        }
    }
}

/// A function of the server that serves as a place.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn straingauge_test_place() {
    compute(10);
}

/// Answers each request after one call of that function and one read of a file.
fn serve_places() {
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    for stream in listen().incoming() {
        let mut stream = stream.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut bytes = [0; 100];
        while stream.read_exact(&mut bytes).is_ok() {
            straingauge_test_place();
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
            if stream.write_all(&bytes).is_err() {
                break;
            }
        }
    }
}

/// Sends requests one after another, with a new connection every hundred. Stopped until the test continues it.
fn ask(port: u16) {
    let mut random = Random(2);
    rustix::process::kill_process(rustix::process::getpid(), Signal::STOP).unwrap();
    loop {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.set_nodelay(true).unwrap();
        let (request, mut response) = ([1; REQUEST_BYTES], [0; RESPONSE_BYTES]);
        for _ in 0..100 {
            compute(random.next() % 2_000);
            stream.write_all(&request).unwrap();
            stream.read_exact(&mut response).unwrap();
        }
    }
}

fn idle() {
    let _listener = listen();
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}

/// Computes and reads in turn, one piece per received line; prints the share of computing in its CPU time.
fn share() {
    let _listener = listen();
    for line in std::io::stdin().lines() {
        let seconds: f64 = line.unwrap().parse().unwrap();
        println!("\n@share {}", work(seconds));
        std::io::stdout().flush().unwrap();
    }
}

fn work(seconds: f64) -> f64 {
    let clock = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
    };
    let mut zeros = std::fs::File::open("/dev/zero").unwrap();
    let mut buffer = vec![0; 128 << 10];
    let (mut user, mut kernel) = (0.0, 0.0);
    while user + kernel < seconds {
        let begin = clock();
        compute(20_000);
        let middle = clock();
        zeros.read_exact(&mut buffer).unwrap();
        user += middle - begin;
        kernel += clock() - middle;
    }
    user / (user + kernel)
}

/// Xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn compute(steps: u64) {
    let mut sum = 1u64;
    for i in 0..steps {
        sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(i));
    }
}
