//! Companions of a load: they observe the server, count its requests, sample its layers, hold cold connections or
//! TIME_WAIT sockets, or provide the path. Each adds its observations to the point.

pub mod cold;
pub mod layers;
mod path;
mod requests;
pub mod server;
mod slow_down;
mod time_wait;

pub use path::MeteredPath;
pub use requests::watch_requests;
pub use slow_down::SlowedServer;
pub use time_wait::TimeWait;

use crate::measured::MeasuredPoint;
use crate::progress::Progress;
use crate::signals::Stop;
use anyhow::Result;
use load::LoadEvents;
use record::{AxisPlace, LoadPlan, Sweep};
use remote::RemoteWatcher;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A watcher that several companions share; each borrows it only during its own calls.
pub type SharedWatcher = Rc<RefCell<RemoteWatcher>>;

#[derive(Debug, Clone, Copy)]
pub struct UpcomingLoad<'a> {
    pub plan: &'a LoadPlan,
    pub sweep: Sweep,
    /// Whether its requests are those of users.
    pub is_live: bool,
}

pub struct AxisMove<'a> {
    pub plan: &'a LoadPlan,
    pub stop: &'a Stop,
    pub progress: &'a mut Progress,
}

/// An observer or holder that accompanies loads.
///
/// For each load, in this order, and for all companions in the order in which they joined:
///
/// 1. [`load_begins`](Companion::load_begins).
/// 2. [`window_begins`](Companion::window_begins) and [`window_ends`](Companion::window_ends), at the start and end
///    of the measured window, on the thread that runs the load. Both or neither: Ctrl-C in the warm-up skips both,
///    Ctrl-C in the window ends it early.
/// 3. [`record_into`](Companion::record_into), once the load has a result, also after Ctrl-C; or
///    [`load_failed`](Companion::load_failed) if it has none.
///
/// A companion never makes a load fail: if it cannot observe something, it adds a figure `not measured: why` or a
/// doubt.
pub trait Companion {
    /// Changes the held connections or sockets to this value of an axis, between loads; false if another companion
    /// owns the axis.
    fn hold(&mut self, _place: AxisPlace, _with: &mut AxisMove<'_>) -> Result<bool> {
        Ok(false)
    }

    /// Starts sampling the server's layers in each point; the error says why that is not possible. `None` if this
    /// companion does not watch a server on another machine.
    fn sample_layers(&mut self) -> Option<Result<(), String>> {
        None
    }

    fn set_beside(&mut self, _pids: &[u32]) {}

    fn watcher(&self) -> Option<SharedWatcher> {
        None
    }

    fn load_begins(&mut self, _load: &UpcomingLoad<'_>) {}

    fn window_begins(&mut self, _load: &UpcomingLoad<'_>) {}

    /// Called when the load's measured window is over; the last responses may still be on their way.
    fn window_ends(&mut self) {}

    /// Whether the load has become useless. Called many times a second.
    fn should_abort(&mut self) -> bool {
        false
    }

    /// Adds the companion's figures and doubts to the point, under names of its own, and forgets the load.
    fn record_into(&mut self, measured: &mut MeasuredPoint);

    fn load_failed(&mut self) {}

    fn server_facts(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }
}

#[derive(Default)]
pub struct Companions(Vec<Box<dyn Companion>>);

impl Companions {
    /// Adds a companion, which is called after all others.
    pub fn join(&mut self, companion: impl Companion + 'static) {
        self.0.push(Box::new(companion));
    }

    /// Adds a companion that is called before all others, right at the window's edges.
    pub fn join_first(&mut self, companion: impl Companion + 'static) {
        self.0.insert(0, Box::new(companion));
    }

    /// False if no companion owns this axis.
    pub fn hold(&mut self, place: AxisPlace, with: &mut AxisMove<'_>) -> Result<bool> {
        for companion in &mut self.0 {
            if companion.hold(place, with)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Starts sampling the layers of a server that is watched on another machine; `None` if there is none.
    pub fn sample_layers(&mut self) -> Option<Result<(), String>> {
        self.0.iter_mut().find_map(|companion| companion.sample_layers())
    }

    pub fn set_beside(&mut self, pids: &[u32]) {
        self.0.iter_mut().for_each(|companion| companion.set_beside(pids));
    }

    pub fn watcher(&self) -> Option<SharedWatcher> {
        self.0.iter().find_map(|companion| companion.watcher())
    }

    /// Accompanies a load, which `send` runs with the given events.
    pub fn accompany(
        &mut self,
        load: &UpcomingLoad<'_>,
        progress: &mut dyn FnMut(&load::LoadProgress),
        send: impl FnOnce(&mut dyn LoadEvents) -> Result<MeasuredPoint>,
    ) -> Result<MeasuredPoint> {
        self.0.iter_mut().for_each(|companion| companion.load_begins(load));
        match send(&mut WindowEvents { companions: &mut self.0, load, progress }) {
            Ok(mut measured) => {
                self.0.iter_mut().for_each(|companion| companion.record_into(&mut measured));
                Ok(measured)
            }
            Err(error) => {
                self.0.iter_mut().for_each(|companion| companion.load_failed());
                Err(error)
            }
        }
    }

    pub fn server_facts(&self) -> BTreeMap<String, String> {
        self.0.iter().flat_map(|companion| companion.server_facts()).collect()
    }
}

struct WindowEvents<'a> {
    companions: &'a mut [Box<dyn Companion>],
    load: &'a UpcomingLoad<'a>,
    progress: &'a mut dyn FnMut(&load::LoadProgress),
}

impl LoadEvents for WindowEvents<'_> {
    fn window_begins(&mut self) {
        self.companions.iter_mut().for_each(|companion| companion.window_begins(self.load));
    }

    fn window_ends(&mut self) {
        self.companions.iter_mut().for_each(|companion| companion.window_ends());
    }

    fn progress(&mut self, now: &load::LoadProgress) {
        (self.progress)(now);
    }

    fn should_abort(&mut self) -> bool {
        self.companions.iter_mut().any(|companion| companion.should_abort())
    }
}
