//! The worker's end of a session. One thread reads (and answers pings at once), one writes (so that a driver that
//! does not read blocks only this thread), one checks the lease, and the main thread does the work.

use crate::error::{Result, unusable};
use crate::protocol::{Capacity, FromWorker, HostPlace, LEASE_NS, LineReader, ToWorker, VERSION, line};
use record::time::monotonic_ns;
use record::{machine, sentence};
use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// A message from the reading thread to the main one, or the reason why the driver broke the protocol. The reading
/// thread handles pings and stops, and closes the queue when the driver is gone.
pub type DriverOrder = Result<ToWorker>;

/// Timeout for the driver's first message, because fast workers wait for the slowest. A worker ends at once when its
/// input ends.
const FIRST_MESSAGE_NS: u64 = 600_000_000_000;
/// Timeout for the engine to stop.
const STOPPING_NS: u64 = 3_000_000_000;

#[derive(Default)]
pub struct DriverLease {
    /// Time of the driver's last message on the monotonic clock; 0 before the first.
    received_ns: AtomicU64,
    pub stop: AtomicBool,
}

/// Serves one driver until it leaves, breaks the protocol, or is silent for the lease. `capacity` is that of a load
/// worker's machine.
pub fn hold(
    capacity: Option<Capacity>,
    work: impl FnOnce(&DriverLease, &SyncSender<String>, &Receiver<DriverOrder>) -> Result<()>,
) -> ExitCode {
    machine::raise_descriptor_limit();
    let lease = Arc::new(DriverLease::default());
    let (out, writer) = start_writer();
    let hello = FromWorker::Hello {
        version: VERSION.into(),
        host: std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().into(),
        pid: std::process::id(),
        place: HostPlace::here(),
        capacity,
    };
    let _ = out.send(line(&hello));
    // If the driver sends more, the pipe blocks it.
    let (tell, orders) = sync_channel(4);
    {
        let (lease, out) = (lease.clone(), out.clone());
        std::thread::spawn(move || read(&lease, &out, &tell));
    }
    {
        let lease = lease.clone();
        std::thread::spawn(move || watch(&lease));
    }
    let ended = work(&lease, &out, &orders);
    if let Err(error) = &ended {
        let _ = out.send(line(&FromWorker::Refused { why: sentence(error).as_str().into() }));
    }
    // The reading thread keeps its end of the queue open. Queued messages are still written.
    lease.stop.store(true, Ordering::Relaxed);
    flush(out, writer);
    // The driver prints the sentence, so this process does not.
    if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn start_writer() -> (SyncSender<String>, JoinHandle<()>) {
    let (out, lines) = sync_channel::<String>(256);
    let writer = std::thread::spawn(move || {
        let mut stdout = std::io::stdout().lock();
        for text in lines {
            // An empty line marks the end, because the queue still has other senders.
            if text.is_empty() || stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
                return;
            }
        }
    });
    (out, writer)
}

/// Lets the writer finish. [`watch`] ends the process if the driver does not read for the lease.
fn flush(out: SyncSender<String>, writer: JoinHandle<()>) {
    let _ = out.send(String::new());
    let _ = writer.join();
}

fn read(lease: &DriverLease, out: &SyncSender<String>, tell: &SyncSender<DriverOrder>) {
    let mut lines = LineReader::new(std::io::stdin());
    loop {
        let message = lines.next_message::<ToWorker>();
        if let Ok(Some(_)) = message {
            lease.received_ns.store(monotonic_ns(), Ordering::Release);
        }
        let order = match message {
            Ok(Some(ToWorker::Ping { sent_ns })) => {
                let _ = out.try_send(line(&FromWorker::Pong { sent_ns, clock_ns: monotonic_ns() }));
                continue;
            }
            Ok(Some(ToWorker::Stop {})) => {
                lease.stop.store(true, Ordering::Relaxed);
                continue;
            }
            Ok(Some(message)) => {
                if let ToWorker::Plan(_) | ToWorker::Cold { .. } = message {
                    // A stop that came after the last load had ended does not end this one.
                    lease.stop.store(false, Ordering::Relaxed);
                }
                Some(Ok(message))
            }
            Ok(None) => None,
            Err(error) => Some(Err(unusable(format!("the driver broke the protocol: {error}")))),
        };
        let is_last = !matches!(order, Some(Ok(_)));
        if is_last {
            lease.stop.store(true, Ordering::Relaxed);
        }
        if order.is_none_or(|order| tell.send(order).is_err()) || is_last {
            return;
        }
    }
}

/// Ends the load when the driver was silent for the lease, which begins with its first message. If the load does not
/// end, ends the process.
fn watch(lease: &DriverLease) {
    let began_ns = monotonic_ns();
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let (received_ns, lease_ns) = match lease.received_ns.load(Ordering::Acquire) {
            0 => (began_ns, FIRST_MESSAGE_NS),
            received_ns => (received_ns, LEASE_NS),
        };
        let silent_ns = monotonic_ns().saturating_sub(received_ns);
        if silent_ns > lease_ns {
            lease.stop.store(true, Ordering::Relaxed);
        }
        // The engine has stopped by now. Only a driver that neither writes nor reads can block this process.
        if silent_ns > lease_ns + STOPPING_NS {
            // The standard error may have closed with the driver.
            let seconds = lease_ns / 1_000_000_000;
            let _ = writeln!(std::io::stderr(), "straingauge: the driver was silent for {seconds} s: stopped");
            std::process::exit(1);
        }
    }
}
