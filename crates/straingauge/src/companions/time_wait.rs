use super::server::is_here;
use super::{AxisMove, Companion, SharedWatcher, UpcomingLoad};
use crate::measured::MeasuredPoint;
use crate::progress::Progress;
use crate::signals::Stop;
use anyhow::{Context, Result, anyhow};
use load::time_wait::TimeWaitMaker;
use observe::TimeWaitSockets;
use record::{Axis, AxisPlace, Figures, LoadPlan, Origin, Sweep, names};
use std::time::{Duration, Instant};

/// Longest wait for sockets that cannot be ended; TIME_WAIT lasts a minute.
const OUTLIVED: Duration = Duration::from_secs(70);
/// The number of sockets may differ from the target by this share.
const NEAR: f64 = 0.98;

pub struct TimeWait {
    maker: TimeWaitMaker,
    sockets: Sockets,
    seen: Option<Figures>,
}

enum Sockets {
    Here(TimeWaitSockets),
    Elsewhere(SharedWatcher),
}

impl Sockets {
    fn count(&mut self) -> Result<u64> {
        match self {
            Sockets::Here(sockets) => Ok(sockets.count()?),
            Sockets::Elsewhere(_) => self.count_and_bytes().map(|(count, _)| count),
        }
    }

    fn count_and_bytes(&mut self) -> Result<(u64, Option<f64>)> {
        match self {
            Sockets::Here(sockets) => Ok((sockets.count()?, TimeWaitSockets::bytes_each())),
            Sockets::Elsewhere(watcher) => {
                let seen = watcher.borrow_mut().time_wait(false).map_err(|why| anyhow!(why))?;
                Ok((seen.count, seen.bytes_each))
            }
        }
    }

    /// Returns false if that was not possible.
    fn end_all(&mut self) -> bool {
        match self {
            Sockets::Here(sockets) => sockets.end_all().is_ok(),
            Sockets::Elsewhere(watcher) => watcher.borrow_mut().time_wait(true).is_ok(),
        }
    }
}

impl TimeWait {
    /// Counts for the server of the plan, in the network namespace of `server_pid`, or on the watcher's machine.
    pub fn new(plan: &LoadPlan, server_pid: Option<u32>, watcher: Option<SharedWatcher>) -> Result<Self> {
        const UNSEEN: &str = "the server's TIME_WAIT sockets cannot be seen";
        if let Some(watcher) = watcher {
            let mut sockets = Sockets::Elsewhere(watcher);
            sockets.count().context(UNSEEN)?;
            return Ok(TimeWait { maker: TimeWaitMaker::new(plan)?, sockets, seen: None });
        }
        if server_pid.is_none() {
            is_here(plan)
                .map_err(|why| anyhow!("{UNSEEN}: {why}; --watch-with or --server-with counts them on its machine"))?;
        }
        let port = plan.addresses[0].port();
        let sockets =
            TimeWaitSockets::open(server_pid, port).with_context(|| format!("{UNSEEN}: is it on this machine?"))?;
        Ok(TimeWait { maker: TimeWaitMaker::new(plan)?, sockets: Sockets::Here(sockets), seen: None })
    }

    fn resize(&mut self, wanted: u64, stop: &Stop, progress: &mut Progress) -> Result<()> {
        if wanted > self.maker.capacity() {
            anyhow::bail!(
                "{wanted} TIME_WAIT sockets are more than the ports allow ({}): add --source-address",
                self.maker.capacity()
            );
        }
        let present = self.sockets.count()?;
        if present > wanted {
            self.end(wanted, stop, progress)?;
        }
        for _ in 0..4 {
            let present = self.sockets.count()?;
            if present as f64 >= wanted as f64 * NEAR || stop.is_set() {
                break;
            }
            self.maker.make(wanted - present, stop.flag(), |made| {
                progress.show(&format!("making TIME_WAIT sockets: {} of {wanted}", present + made));
            })?;
        }
        Ok(())
    }

    fn end(&mut self, wanted: u64, stop: &Stop, progress: &mut Progress) -> Result<()> {
        if self.sockets.end_all() {
            return Ok(());
        }
        let begun = Instant::now();
        while self.sockets.count()? > wanted.max(10) && begun.elapsed() < OUTLIVED && !stop.is_set() {
            progress.show("waiting for TIME_WAIT sockets to end (root can end them at once)");
            std::thread::sleep(Duration::from_millis(200));
        }
        Ok(())
    }

    fn figures(&mut self) -> Figures {
        let mut figures = Figures::default();
        match self.sockets.count_and_bytes() {
            Ok((count, bytes_each)) => {
                figures.measured(names::TIME_WAIT, count as f64, 1, Origin::Counted);
                let bytes = bytes_each.map(|bytes| bytes * count as f64);
                let why_not = "/proc/slabinfo cannot be read: root can";
                figures.found(names::TIME_WAIT_MEMORY, bytes, (count, Origin::Modelled), why_not);
            }
            Err(why) => figures.not_measured(names::TIME_WAIT, &why.to_string()),
        }
        figures
    }
}

impl Companion for TimeWait {
    fn hold(&mut self, place: AxisPlace, with: &mut AxisMove<'_>) -> Result<bool> {
        if place.axis != Axis::TimeWait {
            return Ok(false);
        }
        self.resize(place.value as u64, with.stop, with.progress)?;
        Ok(true)
    }

    fn load_begins(&mut self, load: &UpcomingLoad<'_>) {
        self.seen = (load.sweep != Sweep::Yardstick).then(|| self.figures());
    }

    fn record_into(&mut self, measured: &mut MeasuredPoint) {
        measured.point.figures.extend(self.seen.take().unwrap_or_default());
    }

    fn load_failed(&mut self) {
        self.seen = None;
    }
}
