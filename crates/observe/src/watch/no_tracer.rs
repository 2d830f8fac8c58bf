//! The tracer of a build without BPF, which never exists.

use super::error::WatchError;
use super::held::EventPrices;
use super::pack::Pack;
use super::standing::Standing;
use super::timer_wheel::TimerWheel;
use super::watcher::{Charged, Counted, WatchOptions};
use record::watch::{AddedCost, ClassTotals, Mode, PhaseTotals, Reading};

/// Never constructed; the methods are those of `tracer.rs`.
#[derive(Debug)]
pub enum Tracer {}

#[rustfmt::skip]
#[allow(missing_docs)]
impl Tracer {
    pub fn start(_: &WatchOptions, _: u32, _: u64) -> Result<Self, WatchError> { Err(WatchError::NotBuilt) }
    pub fn set_mode(&mut self, _: Mode) -> Result<(), WatchError> { match *self {} }
    pub fn use_pack(&mut self, _: &Pack, _: &[u32]) { match *self {} }
    pub fn pack_note(&self) -> Option<&str> { match *self {} }
    pub fn step(&mut self, _: u64) -> Option<u64> { match *self {} }
    pub fn open_held(&mut self) -> Result<(), WatchError> { match *self {} }
    pub fn open_held_pack(&mut self) -> Result<(), WatchError> { match *self {} }
    pub fn shut_held(&mut self) { match *self {} }
    pub fn close_held(&mut self) { match *self {} }
    pub fn restart_phases(&mut self) { match *self {} }
    pub fn phases_of(&mut self, _: f64, _: &[ClassTotals]) -> (Vec<PhaseTotals>, u64) { match *self {} }
    pub fn prices(&self) -> EventPrices { match *self {} }
    pub fn keep_budget(&mut self, _: u64, _: u64, _: f64) { match *self {} }
    pub fn counted(&self) -> Counted { match *self {} }
    pub fn wheel(&mut self) -> Result<TimerWheel, WatchError> { match *self {} }
    pub fn update_waiting_clients(&mut self, _: &[(u64, u64)]) -> Result<(), WatchError> { match *self {} }
    pub fn read(&mut self, _: &mut Reading) -> Charged { match *self {} }
    pub fn in_flight(&mut self) -> Option<(u64, u64)> { match *self {} }
    pub fn standing(&mut self, _: u64) -> Option<Standing> { match *self {} }
    pub fn cost(&self, _: u64, _: Option<u64>) -> AddedCost { match *self {} }
    pub fn windows_note(&self) -> Option<String> { match *self {} }
    pub fn slots(&self) -> usize { match *self {} }
}
