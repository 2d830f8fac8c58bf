//! `straingauge load --worker` takes plans and returns results. No load outlives the driver's lease.

use crate::cold::Cold;
use crate::error::{Result, unusable};
use crate::inputs::InputStore;
use crate::options::WorkerOptions;
use crate::protocol::{FromWorker, PlanMessage, ToWorker, WireResult, line};
use crate::session::{self, DriverLease, DriverOrder};
use load::{LoadEvents, LoadProgress, Supply};
use record::sentence;
use record::time::monotonic_ns;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

const MAX_LEAD_NS: u64 = 60_000_000_000;

/// Serves one driver until it leaves, breaks the protocol, or is silent for the lease.
pub fn serve(options: &WorkerOptions, inputs: &mut dyn InputStore) -> ExitCode {
    session::hold(options.capacity(), |lease, out, orders| handle_orders(options, inputs, lease, out, orders))
}

fn handle_orders(
    options: &WorkerOptions,
    inputs: &mut dyn InputStore,
    lease: &DriverLease,
    out: &SyncSender<String>,
    orders: &Receiver<DriverOrder>,
) -> Result<()> {
    let mut cold = Cold::new(out.clone());
    let mut is_first = true;
    loop {
        let answer = match orders.recv() {
            Ok(Ok(ToWorker::ColdAsk(message))) => cold.room_for(*message, options).map(FromWorker::ColdRoom),
            Ok(Ok(ToWorker::Cold { count, most })) => match cold.hold(count, most, &lease.stop) {
                Ok(()) => continue,
                Err(error) => Err(error),
            },
            Ok(Ok(ToWorker::Input(piece))) => inputs.keep(piece).map(|()| FromWorker::InputKept {}).map_err(unusable),
            Ok(Ok(ToWorker::Plan(message))) => {
                let is_first = std::mem::replace(&mut is_first, false);
                let driven = drive(*message, is_first, options, inputs.supply(), lease, out, orders);
                driven.map(|result| FromWorker::Result(Box::new(result)))
            }
            // The load ended before this late start.
            Ok(Ok(ToWorker::Start { .. })) => continue,
            Ok(Ok(_)) => {
                return Err(unusable("the driver broke the protocol: it sent a watcher's message to a load worker"));
            }
            Ok(Err(broken)) => return Err(broken),
            Err(_) => return Ok(()),
        };
        let answer = answer.unwrap_or_else(|error| FromWorker::Refused { why: sentence(&error).as_str().into() });
        let _ = out.send(line(&answer));
    }
}

fn drive(
    message: PlanMessage,
    is_first: bool,
    options: &WorkerOptions,
    supply: &dyn Supply,
    lease: &DriverLease,
    out: &SyncSender<String>,
    orders: &Receiver<DriverOrder>,
) -> Result<WireResult> {
    let mut plan = message.into_plan();
    options.complete(&mut plan)?;
    load::check(&plan)?;
    if is_first {
        // Reports a server that refuses this machine as one error instead of many failed requests.
        load::check_opening(&plan)?;
    }
    let mut events = Reporting { lease, out, orders, started_late_ns: 0 };
    let result = load::run_supplied(&plan, supply, &lease.stop, &mut events)?;
    Ok(WireResult::new(result, events.started_late_ns)?)
}

struct Reporting<'a> {
    lease: &'a DriverLease,
    out: &'a SyncSender<String>,
    orders: &'a Receiver<DriverOrder>,
    started_late_ns: u64,
}

impl LoadEvents for Reporting<'_> {
    fn starts_at(&mut self, earliest_ns: u64) -> u64 {
        let _ = self.out.send(line(&FromWorker::Ready {}));
        loop {
            match self.orders.recv_timeout(Duration::from_millis(10)) {
                Ok(Ok(ToWorker::Start { at_ns })) => {
                    let now = monotonic_ns();
                    self.started_late_ns = now.saturating_sub(at_ns);
                    return at_ns.min(now + MAX_LEAD_NS);
                }
                Ok(Ok(_)) => self.lease.stop.store(true, Ordering::Relaxed),
                // The reading thread has set `stop`. It reports the end again after this load.
                Ok(Err(_)) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
            if self.lease.stop.load(Ordering::Relaxed) {
                // The engine's check of `stop` comes before this time, so no request is sent.
                return earliest_ns + MAX_LEAD_NS;
            }
        }
    }

    fn progress(&mut self, progress: &LoadProgress) {
        // The line is dropped if the driver does not read.
        let _ = self.out.try_send(line(&FromWorker::Progress(*progress)));
    }
}
