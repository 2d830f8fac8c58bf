//! The sending end, which is profiled: a process that takes orders, with one thread that sends on schedule.
//!
//! The thread waits until the next segment is due and hands it to the kernel; a late segment is sent at once and the
//! schedule stays, so the rate is kept on average. Nothing else runs in the window: the thread that takes orders is
//! asleep.

use super::{Order, Reply, SEGMENT_BYTES};
use record::Latency;
use record::time::monotonic_ns;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// The time limit for opening the ordered connections.
const CONNECTING: Duration = Duration::from_secs(50);
/// Length of the accept queue; the kernel lowers it to net.core.somaxconn.
const QUEUE: libc::c_int = 65_535;
const LOOK: Duration = Duration::from_millis(1);
/// A receiver that takes nothing for this long is lost.
const STUCK: Duration = Duration::from_secs(10);

const WARMING: u8 = 0;
const WARM: u8 = 1;
const COUNTING: u8 = 2;

/// Serves one order after another until the process is ended. The data's port and the next one must be free.
pub fn serve(port: u16) -> std::io::Result<()> {
    precise_sleeps();
    let data = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    lengthen_queue(&data)?;
    let control = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port.wrapping_add(1)))?;
    data.set_nonblocking(true)?;
    for stream in control.incoming() {
        // A controller that left, or that sent no order, is no reason to end.
        let _ = stream.and_then(|stream| obey(&data, stream));
    }
    Ok(())
}

/// Lengthens the accept queue. A reader does not know whether its connection was accepted, and opens the next one;
/// connections that find the queue full wait for seconds.
fn lengthen_queue(listener: &TcpListener) -> std::io::Result<()> {
    // SAFETY: no pointers; the descriptor is a listener's, whose queue a second listen(2) changes.
    match unsafe { libc::listen(listener.as_raw_fd(), QUEUE) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Keeps the kernel from delaying timers of this process to save wake-ups.
fn precise_sleeps() {
    // SAFETY: prctl with these arguments takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}

fn obey(data: &TcpListener, stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let reply = |reply: Reply| (&stream).write_all(reply.to_line().as_bytes());
    let mut next = || lines.next().transpose().map(|line| line.map(|line| Order::from_line(&line)));
    let (connections, rate_per_sec, warmup_ns, polls) = match next()? {
        Some(Ok(Order::Open { connections, rate_per_sec, warmup_ns, polls }))
            if connections > 0 && rate_per_sec.is_finite() && rate_per_sec > 0.0 =>
        {
            (connections, rate_per_sec, warmup_ns, polls)
        }
        Some(other) => return reply(Reply::Trouble(format!("got an unexpected order: {other:?}"))),
        None => return Ok(()),
    };
    // A connection that only checked whether the port listens may be waiting here.
    while data.accept().is_ok() {}
    reply(Reply::Listening)?;
    let streams = match accept(data, connections) {
        Ok(streams) => streams,
        Err(error) => return reply(Reply::Trouble(format!("did not get {connections} connections: {error}"))),
    };
    let pacer = Pacer {
        state: AtomicU8::new(WARMING),
        is_over: AtomicBool::new(false),
        counted: Mutex::default(),
        interval_ns: 1e9 / rate_per_sec,
        warmup_ns,
        polls,
    };
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            precise_sleeps();
            let result = pacer.send(&streams);
            pacer.is_over.store(true, Ordering::Relaxed);
            result
        });
        let done = (|| {
            while pacer.state.load(Ordering::Acquire) == WARMING && !pacer.is_over.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
            }
            if pacer.is_over.load(Ordering::Relaxed) {
                return Ok(None);
            }
            reply(Reply::Ready)?;
            let Some(Ok(Order::Begin)) = next()? else { return Ok(None) };
            let began_ns = monotonic_ns();
            pacer.state.store(COUNTING, Ordering::Release);
            let Some(Ok(Order::End)) = next()? else { return Ok(None) };
            pacer.state.store(WARM, Ordering::Release);
            Ok::<_, std::io::Error>(Some(monotonic_ns() - began_ns))
        })();
        pacer.is_over.store(true, Ordering::Relaxed);
        let sent = sending.join().unwrap_or_else(|_| Err(std::io::Error::other("its thread died")));
        match (done?, sent) {
            (_, Err(error)) => reply(Reply::Trouble(format!("could not send: {error}"))),
            (Some(window_ns), Ok(())) => {
                let counted = pacer.counted.lock().map_err(|_| std::io::Error::other("its thread died"))?;
                let lag = counted.lag.to_base64().map_err(std::io::Error::other)?;
                reply(Reply::Sent { segments: counted.segments, window_ns, lag })
            }
            (None, Ok(())) => Ok(()),
        }
    })
}

fn accept(data: &TcpListener, connections: u64) -> std::io::Result<Vec<TcpStream>> {
    let mut streams = Vec::new();
    let began = Instant::now();
    while (streams.len() as u64) < connections {
        match data.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                stream.set_write_timeout(Some(STUCK))?;
                streams.push(stream);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                if began.elapsed() > CONNECTING {
                    return Err(std::io::Error::other(format!(
                        "{} came within {} s",
                        streams.len(),
                        CONNECTING.as_secs()
                    )));
                }
                std::thread::sleep(LOOK);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(streams)
}

#[derive(Default)]
struct Counted {
    segments: u64,
    lag: Latency,
}

/// A constant rate over connections in turn.
struct Pacer {
    state: AtomicU8,
    is_over: AtomicBool,
    counted: Mutex<Counted>,
    interval_ns: f64,
    warmup_ns: u64,
    polls: bool,
}

impl Pacer {
    fn send(&self, streams: &[TcpStream]) -> std::io::Result<()> {
        let segment = [0u8; SEGMENT_BYTES];
        let mut counted = Counted::default();
        let (mut began_ns, mut number) = (monotonic_ns(), 0u64);
        let warm_ns = began_ns + self.warmup_ns;
        for turn in 0u64.. {
            if self.is_over.load(Ordering::Relaxed) {
                break;
            }
            let due_ns = began_ns + (number as f64 * self.interval_ns) as u64;
            let now_ns = self.wait_until(due_ns);
            (&streams[(turn % streams.len() as u64) as usize]).write_all(&segment)?;
            number += 1;
            match self.state.load(Ordering::Acquire) {
                COUNTING => {
                    counted.segments += 1;
                    counted.lag.record_ns(now_ns.saturating_sub(due_ns));
                }
                WARMING if now_ns >= warm_ns && turn >= 2 * streams.len() as u64 => {
                    // The cost of the first round trips is not made up for in the window.
                    (began_ns, number) = (monotonic_ns(), 0);
                    self.state.store(WARM, Ordering::Release);
                }
                _ => {}
            }
        }
        *self.counted.lock().map_err(|_| std::io::Error::other("its thread died"))? = counted;
        Ok(())
    }
}

impl Pacer {
    /// Waits until the time; returns the actual time.
    fn wait_until(&self, due_ns: u64) -> u64 {
        let mut now_ns = monotonic_ns();
        if now_ns < due_ns && !self.polls {
            sleep_until(due_ns);
            return monotonic_ns();
        }
        while now_ns < due_ns && !self.is_over.load(Ordering::Relaxed) {
            std::hint::spin_loop();
            now_ns = monotonic_ns();
        }
        now_ns
    }
}

fn sleep_until(due_ns: u64) {
    let due = libc::timespec {
        tv_sec: (due_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (due_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the timespec lives through the call; with an absolute time nothing is written back.
    unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &due, std::ptr::null_mut()) };
}
