use super::{AxisMove, Companion, UpcomingLoad};
use crate::measured::MeasuredPoint;
use anyhow::{Context, Result};
use observe::slow_down::{AddedDelays, SlowDown};
use record::{Axis, AxisPlace, Figures, Origin, SlowPlace, names};
use rustix::thread::CpuSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub struct SlowedServer {
    slow: SlowDown,
    at: Option<SlowPlace>,
    before: Option<AddedDelays>,
    during: Option<AddedDelays>,
    _awake: Awake,
}

impl SlowedServer {
    /// Wraps attached BPF programs. `idle_cpus`: the client's CPUs, on which the server does not run.
    pub fn with(slow: SlowDown, idle_cpus: &[usize]) -> SlowedServer {
        SlowedServer { slow, at: None, before: None, during: None, _awake: Awake::keep(idle_cpus) }
    }

    fn spun(&self) -> Option<AddedDelays> {
        self.slow.spun(self.at?).ok()
    }
}

/// Keeps CPUs from halting, by threads that run only on idle CPUs. A client that waits for a slower server would halt
/// its CPU, and the server would pay for waking it, which is expensive on a virtual machine. The slow-down would then
/// seem to cost more than it does.
struct Awake(Arc<AtomicBool>);

impl Awake {
    fn keep(cpus: &[usize]) -> Awake {
        let is_over = Arc::new(AtomicBool::new(false));
        for cpu in cpus.iter().copied().filter(|cpu| *cpu < CpuSet::MAX_CPU) {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || {
                let mut set = CpuSet::new();
                set.set(cpu);
                let parameter = libc::sched_param { sched_priority: 0 };
                // SAFETY: the call reads one structure, which outlives it.
                let is_idle = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameter) } == 0;
                // With another priority or on another CPU, the thread would disturb the server.
                if is_idle && rustix::thread::sched_setaffinity(None, &set).is_ok() {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                }
            });
        }
        Awake(is_over)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Companion for SlowedServer {
    fn hold(&mut self, place: AxisPlace, _with: &mut AxisMove<'_>) -> Result<bool> {
        if place.axis != Axis::SlowDown {
            return Ok(false);
        }
        self.slow.set(place.slowed, place.value as u64).context("the server cannot be slowed down")?;
        self.at = place.slowed;
        Ok(true)
    }

    fn window_begins(&mut self, _load: &UpcomingLoad<'_>) {
        self.before = self.spun();
    }

    fn window_ends(&mut self) {
        let between = |(before, after): (AddedDelays, AddedDelays)| AddedDelays {
            count: after.count.saturating_sub(before.count),
            ns: after.ns.saturating_sub(before.ns),
        };
        self.during = self.before.take().zip(self.spun()).map(between);
    }

    fn record_into(&mut self, measured: &mut MeasuredPoint) {
        let Some(during) = self.during.take() else { return };
        let figures = &mut measured.point.figures;
        match figures.get(names::THROUGHPUT).and_then(|figure| figure.n).filter(|n| *n > 0) {
            Some(requests) => figures.extend(per_request(during, requests)),
            None => {
                for name in [names::SLOW_REACHED, names::SLOW_ADDED] {
                    figures.not_measured(name, "no request was answered");
                }
            }
        }
    }

    fn load_failed(&mut self) {
        (self.before, self.during) = (None, None);
    }
}

fn per_request(spun: AddedDelays, requests: u64) -> Figures {
    let mut figures = Figures::default();
    figures.measured(names::SLOW_REACHED, spun.count as f64 / requests as f64, requests, Origin::Counted);
    figures.measured(names::SLOW_ADDED, spun.ns as f64 / 1e3 / requests as f64, spun.count, Origin::Timed);
    figures
}
