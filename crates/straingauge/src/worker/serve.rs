//! `straingauge load --worker`: plans come in, results go out, and no load outlives the driver's lease.
//!
//! Threads: one reads (and answers pings at once), one writes (so that a driver that does not read never holds up the
//! engine's stop), one watches the lease, and the main thread runs the engine.

use super::Sources;
use super::protocol::{FromWorker, LEASE_NS, Lines, PROTOCOL, PlanMessage, ToWorker, WireProgress, WireResult, line};
use crate::failure::sentence;
use anyhow::{Result, bail};
use load::{LoadEvents, Progress};
use record::time::monotonic_ns;
use record::{LoadPlan, machine};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A start may be agreed on this far ahead at most.
const MAX_LEAD_NS: u64 = 60_000_000_000;

/// What the reading thread hands to the main one.
enum Order {
    Plan(Box<PlanMessage>),
    Start(u64),
    Broken(String),
    Gone,
}

/// Shared by the threads.
#[derive(Default)]
struct Lease {
    /// When the driver was last heard, on the monotonic clock.
    heard_ns: AtomicU64,
    /// The load in progress ends now.
    stop: AtomicBool,
}

/// Serves one driver until it goes away, breaks the protocol, or is silent for the lease.
pub fn serve(sources: &Sources) -> Result<ExitCode> {
    machine::raise_descriptor_limit();
    let lease = Arc::new(Lease::default());
    lease.heard_ns.store(monotonic_ns(), Ordering::Release);
    let (out, writer) = start_writer();
    let hello = FromWorker::Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").into(),
        host: std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_string(),
        pid: std::process::id(),
    };
    let _ = out.send(line(&hello));
    // One plan and one start wait at most; a driver that sends more is held up by the pipe.
    let (tell, orders) = sync_channel(4);
    {
        let (lease, out) = (lease.clone(), out.clone());
        std::thread::spawn(move || read(&lease, &out, &tell));
    }
    {
        let lease = lease.clone();
        std::thread::spawn(move || watch(&lease));
    }
    let ended = obey(sources, &lease, &out, &orders);
    if let Err(error) = &ended {
        let _ = out.send(line(&FromWorker::Refused { why: sentence(error) }));
    }
    // The reading thread holds its own end of the queue only while it lives; what is queued is still written.
    lease.stop.store(true, Ordering::Relaxed);
    flush(out, writer);
    ended.map(|()| ExitCode::from(crate::failure::DONE))
}

fn start_writer() -> (SyncSender<String>, JoinHandle<()>) {
    let (out, lines) = sync_channel::<String>(256);
    let writer = std::thread::spawn(move || {
        let mut stdout = std::io::stdout().lock();
        for text in lines {
            // An empty line is the end: the queue has other senders still.
            if text.is_empty() || stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
                return;
            }
        }
    });
    (out, writer)
}

/// Lets the writer finish; a driver that does not read is not waited for beyond the lease ([`watch`] ends the process).
fn flush(out: SyncSender<String>, writer: JoinHandle<()>) {
    let _ = out.send(String::new());
    let _ = writer.join();
}

fn read(lease: &Lease, out: &SyncSender<String>, tell: &SyncSender<Order>) {
    let mut lines = Lines::new(std::io::stdin());
    loop {
        let order = match lines.next::<ToWorker>() {
            Ok(Some(message)) => {
                lease.heard_ns.store(monotonic_ns(), Ordering::Release);
                match message {
                    ToWorker::Ping { sent_ns } => {
                        let _ = out.try_send(line(&FromWorker::Pong { sent_ns, clock_ns: monotonic_ns() }));
                        continue;
                    }
                    ToWorker::Stop {} => {
                        lease.stop.store(true, Ordering::Relaxed);
                        continue;
                    }
                    ToWorker::Plan(plan) => {
                        // A stop that came behind the end of the last load does not end this one.
                        lease.stop.store(false, Ordering::Relaxed);
                        Order::Plan(plan)
                    }
                    ToWorker::Start { at_ns } => Order::Start(at_ns),
                }
            }
            Ok(None) => Order::Gone,
            Err(error) => Order::Broken(error.to_string()),
        };
        let is_last = matches!(order, Order::Gone | Order::Broken(_));
        if is_last {
            lease.stop.store(true, Ordering::Relaxed);
        }
        if tell.send(order).is_err() || is_last {
            return;
        }
    }
}

/// Ends the load when the driver is silent for the lease, and the process when that did not help.
fn watch(lease: &Lease) {
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let silent_ns = monotonic_ns().saturating_sub(lease.heard_ns.load(Ordering::Acquire));
        if silent_ns > LEASE_NS {
            lease.stop.store(true, Ordering::Relaxed);
        }
        // By now the engine has long stopped: what is left waits for a driver that neither speaks nor reads.
        if silent_ns > LEASE_NS + 3_000_000_000 {
            eprintln!("straingauge: the driver was silent for {} s: stopped", LEASE_NS / 1_000_000_000);
            std::process::exit(i32::from(crate::failure::FAILED));
        }
    }
}

fn obey(sources: &Sources, lease: &Lease, out: &SyncSender<String>, orders: &Receiver<Order>) -> Result<()> {
    loop {
        match orders.recv() {
            Ok(Order::Plan(message)) => {
                let answer = match drive(*message, sources, lease, out, orders) {
                    Ok(result) => FromWorker::Result(Box::new(result)),
                    Err(error) => FromWorker::Refused { why: sentence(&error) },
                };
                let _ = out.send(line(&answer));
            }
            // Behind a load that ended before its start.
            Ok(Order::Start(_)) => {}
            Ok(Order::Broken(why)) => bail!("the driver broke the protocol: {why}"),
            Ok(Order::Gone) | Err(_) => return Ok(()),
        }
    }
}

fn drive(
    message: PlanMessage,
    sources: &Sources,
    lease: &Lease,
    out: &SyncSender<String>,
    orders: &Receiver<Order>,
) -> Result<WireResult> {
    let mut plan = message.into_plan()?;
    complete(&mut plan);
    sources.apply(&mut plan)?;
    load::check(&plan)?;
    let mut events = Telling { lease, out, orders, started_late_ns: 0 };
    let result = load::run(&plan, &lease.stop, &mut events)?;
    Ok(WireResult::new(&result, events.started_late_ns)?)
}

/// What the driver leaves to this machine.
fn complete(plan: &mut LoadPlan) {
    if plan.threads == 0 {
        let cpus = machine::allowed_cpus().len();
        let is_local = plan.addresses.iter().all(|address| address.ip().is_loopback());
        plan.threads = if is_local { (cpus / 2).max(1) } else { cpus.max(1) };
    }
    plan.threads = plan.threads.min(usize::try_from(plan.connections).unwrap_or(usize::MAX)).max(1);
}

/// Tells the driver how the load goes, and waits for its start.
struct Telling<'a> {
    lease: &'a Lease,
    out: &'a SyncSender<String>,
    orders: &'a Receiver<Order>,
    started_late_ns: u64,
}

impl LoadEvents for Telling<'_> {
    fn starts_at(&mut self, earliest_ns: u64) -> u64 {
        let _ = self.out.send(line(&FromWorker::Ready {}));
        loop {
            match self.orders.recv_timeout(Duration::from_millis(10)) {
                Ok(Order::Start(at_ns)) => {
                    let now = monotonic_ns();
                    self.started_late_ns = now.saturating_sub(at_ns);
                    return at_ns.min(now + MAX_LEAD_NS);
                }
                Ok(Order::Plan(_)) => self.lease.stop.store(true, Ordering::Relaxed),
                // The reading thread has set `stop`, and says so again behind this load.
                Ok(Order::Broken(_) | Order::Gone)
                | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if self.lease.stop.load(Ordering::Relaxed) {
                // Nothing is sent before the engine sees the stop.
                return earliest_ns + MAX_LEAD_NS;
            }
        }
    }

    fn progress(&mut self, progress: &Progress) {
        // Dropped when the driver does not read: progress is not worth waiting for.
        let _ = self.out.try_send(line(&FromWorker::Progress(WireProgress::from(progress))));
    }
}
