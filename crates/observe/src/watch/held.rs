//! A watch whose windows are opened by a caller that knows when the load runs ([`super::point_watch`]), instead of by a
//! schedule.

use super::error::WatchError;
use super::states::ByState;
use super::tracer::Tracer;
use super::watcher::Watcher;
use record::watch::{ClassTotals, Mode, PhaseTotals};

/// What can be read at a moment without listing the server's processes and without a scan.
#[derive(Debug, Clone, Copy, Default)]
pub struct Glance {
    /// Requests read and not answered yet.
    pub waiting: u64,
    /// Requests answered and not acknowledged to the end.
    pub sending: u64,
    /// Sockets by state, from counted transitions.
    pub states: ByState,
}

/// What events cost, nanoseconds (calibrated).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct EventPrices {
    /// A read that counts, and the client's read of the response, if it is on this machine.
    pub receive_ns: f64,
    /// What a window adds to each read.
    pub window_receive_ns: f64,
    /// A send in a window.
    pub send_ns: f64,
    /// Sends per read, once windows have measured it.
    pub sends_per_receive: Option<f64>,
    /// What the probes of a pack add to a request; `None` without one.
    pub pack_request_ns: Option<f64>,
}

impl EventPrices {
    /// What a request of one read costs.
    pub fn request_ns(&self, mode: Mode) -> f64 {
        let phases = self.window_receive_ns + self.sends_per_receive.unwrap_or(1.0) * self.send_ns;
        self.receive_ns + if mode == Mode::Exact { phases } else { 0.0 }
    }
}

impl Watcher {
    /// Requests in progress and connections by state; `None` without programs.
    pub fn glance(&mut self) -> Option<Glance> {
        let (waiting, sending) = self.tracer.as_mut()?.in_flight()?;
        Some(Glance { waiting, sending, states: self.states() })
    }

    /// Opens a window, in mode counts only. An open one stays.
    pub fn open_held(&mut self) -> Result<(), WatchError> {
        self.tracer.as_mut().map_or(Ok(()), Tracer::open_held)
    }

    /// Opens a window of the pack, in mode counts only. An open window stays.
    pub fn open_held_pack(&mut self) -> Result<(), WatchError> {
        self.tracer.as_mut().map_or(Ok(()), Tracer::open_held_pack)
    }

    /// Why the functions of the pack are not probed.
    pub fn pack_note(&self) -> Option<String> {
        self.tracer.as_ref()?.pack_note().map(str::to_string)
    }

    /// Shuts the window: no further request begins in it.
    pub fn shut_held(&mut self) {
        self.tracer.iter_mut().for_each(Tracer::shut_held);
    }

    /// Closes the window.
    pub fn close_held(&mut self) {
        self.tracer.iter_mut().for_each(Tracer::close_held);
    }

    /// Sums phases from now on.
    pub fn restart_phases(&mut self) {
        self.tracer.iter_mut().for_each(Tracer::restart_phases);
    }

    /// Phases since the last restart by class, with the exact counts of the same time; and the number of requests
    /// without a response when their window was closed. `share`: the part of that time in windows.
    pub fn phases_of(&mut self, share: f64, exact: &[ClassTotals]) -> (Vec<PhaseTotals>, u64) {
        self.tracer.as_mut().map(|tracer| tracer.phases_of(share, exact)).unwrap_or_default()
    }

    /// What events cost; `None` without programs.
    pub fn prices(&self) -> Option<EventPrices> {
        self.tracer.as_ref().map(Tracer::prices)
    }
}
