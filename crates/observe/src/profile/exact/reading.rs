use crate::bpf::types::exact::Cpu;
pub use crate::bpf::types::exact::PlaceTime;
use crate::profile::samples::PacketReceiver;
use record::layers::Layer;
use record::profile::exact::Unpaired;
use record::sum::{Growing, Summand};

/// As in `bpf/exact.h`; with another number of cells, [`ExactReading::add_cpu`] does not compile.
const LAYERS: usize = 16;
const PLACES: usize = 4;
const CELLS: usize = 4 * PLACES * LAYERS;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChargedTo {
    To(Layer),
    /// The thread was already running when the programs were attached.
    Unknown,
    /// The programs' own work.
    Measurement,
    /// An empty kernel function, called to measure the cost of a pair of hooks.
    Calibration,
}

impl ChargedTo {
    fn from_number(number: usize) -> Option<ChargedTo> {
        match number {
            8 => Some(ChargedTo::Unknown),
            9 => Some(ChargedTo::Measurement),
            10 => Some(ChargedTo::Calibration),
            _ => Layer::ALL.get(number).map(|layer| ChargedTo::To(*layer)),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RunningProcess {
    Server,
    Others,
    Idle,
    /// straingauge itself.
    Tool,
}

impl RunningProcess {
    const ALL: [RunningProcess; 4] =
        [RunningProcess::Server, RunningProcess::Others, RunningProcess::Idle, RunningProcess::Tool];
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExactPlace {
    pub whose: RunningProcess,
    /// Within a network softirq: the end that receives the packet.
    pub packet: Option<PacketReceiver>,
    pub charged: ChargedTo,
}

impl ExactPlace {
    fn from_index(index: usize) -> Option<ExactPlace> {
        let side = (index / LAYERS % PLACES).checked_sub(1);
        let packet = side.map(|side| PacketReceiver::from_side(side as u8));
        let whose = *RunningProcess::ALL.get(index / LAYERS / PLACES)?;
        Some(ExactPlace { whose, packet, charged: ChargedTo::from_number(index % LAYERS)? })
    }
}

#[derive(Debug, Clone)]
pub struct ExactReading {
    cells: Vec<PlaceTime>,
    /// System calls that began, by caller.
    pub system_calls: [u64; 4],
    /// Events without a counterpart.
    pub unpaired: Unpaired,
    /// Programs run.
    pub hooks: u64,
    /// CPUs on which no program ran.
    pub silent_cpus: u64,
}

impl ExactReading {
    pub fn empty() -> Self {
        ExactReading {
            cells: vec![PlaceTime::default(); CELLS],
            system_calls: [0; 4],
            unpaired: Unpaired::default(),
            hooks: 0,
            silent_cpus: 0,
        }
    }

    /// Adds the record of a CPU. A sleeping CPU reaches no hook, so its uncharged time between `opens_ns` and
    /// `closes_ns` is added to its current place.
    pub fn add_cpu(&mut self, cpu: &Cpu, opens_ns: u64, closes_ns: u64) {
        if cpu.is_known == 0 {
            self.silent_cpus += 1;
            return;
        }
        self.system_calls.add(&cpu.system_calls);
        let Cpu { not_entered, not_left, too_deep, lost_threads, .. } = *cpu;
        self.unpaired.add(&Unpaired { not_entered, not_left, too_deep, lost_threads });
        self.hooks += cpu.hooks;
        let cells: &[_; CELLS] = &cpu.cells;
        for (sum, cell) in self.cells.iter_mut().zip(cells) {
            sum.add(cell);
        }
        let top = cpu.stack[cpu.depth as usize % cpu.stack.len()];
        let place = if top.is_network != 0 { 1 + cpu.side as usize } else { 0 };
        let index = (cpu.whose as usize * PLACES + place) * LAYERS + usize::from(top.layer);
        if let Some(cell) = self.cells.get_mut(index) {
            cell.ns += closes_ns.saturating_sub(cpu.last_ns.max(opens_ns));
        }
    }

    pub fn since(&self, earlier: &ExactReading) -> ExactReading {
        let mut new = self.clone();
        for (cell, then) in new.cells.iter_mut().zip(&earlier.cells) {
            *cell = cell.since(then);
        }
        new.system_calls = self.system_calls.since(&earlier.system_calls);
        new.unpaired = self.unpaired.since(&earlier.unpaired);
        new.hooks = self.hooks.saturating_sub(earlier.hooks);
        new
    }

    pub fn places(&self) -> impl Iterator<Item = (ExactPlace, &PlaceTime)> {
        self.cells.iter().enumerate().filter_map(|(index, cell)| Some((ExactPlace::from_index(index)?, cell)))
    }

    pub fn sum(&self, wanted: impl Fn(ExactPlace) -> bool) -> PlaceTime {
        let mut sum = PlaceTime::default();
        self.places().filter(|(place, _)| wanted(*place)).for_each(|(_, cell)| sum.add(cell));
        sum
    }

    pub fn calls_of(&self, whose: RunningProcess) -> u64 {
        self.system_calls[whose as usize]
    }
}

pub const CALIBRATION: u8 = 10;
