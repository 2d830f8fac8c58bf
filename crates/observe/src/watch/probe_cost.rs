//! Measures the cost of a probe in a function, on functions of this program that begin like the server's.
//!
//! The cost of a trap depends on the instruction that it replaces. Instructions that the kernel can emulate (on
//! x86-64 a push of a register, a nop, a jump or a call: arch/x86/kernel/uprobes.c) cost one trap. All others are
//! single-stepped from a copy, which is a second trap, and in a virtual machine perhaps an exit to the hypervisor:
//! four to six times as much. So one function of each kind is measured, and each function of a pack is charged by its
//! own first instruction.

use super::calibration::rank;
use super::error::WatchError;
use super::pack_places::PackPlace;
use super::programs::WatchPrograms;
use crate::cpu_clock;
use record::lock;
use std::hint::black_box;
use std::path::Path;
use std::sync::Mutex;

const CALLS: u32 = 200;
const ROUNDS: usize = 5;

/// Nanoseconds of CPU time per call of a probed function.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FunctionCosts {
    pub call_ns: f64,
    /// With a probe at the return; the call traps, too, to catch the return.
    pub return_ns: f64,
    /// With both probes; one trap at the call serves both.
    pub both_ns: f64,
}

/// Costs by the first instruction of the probed function; `None` if no function of the pack begins with that kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProbeCosts {
    /// An instruction that the kernel emulates.
    pub emulated: Option<FunctionCosts>,
    /// An instruction that is single-stepped.
    pub stepped: Option<FunctionCosts>,
}

impl ProbeCosts {
    pub fn per_call_ns(&self, is_stepped: bool, at_call: bool, at_return: bool) -> f64 {
        let Some(costs) = (if is_stepped { self.stepped } else { self.emulated }) else { return 0.0 };
        match (at_call, at_return) {
            (true, true) => costs.both_ns,
            (false, true) => costs.return_ns,
            (true, false) => costs.call_ns,
            (false, false) => 0.0,
        }
    }
}

pub type ProbedFunction = extern "C" fn(u64) -> u64;

/// A function that begins with a push.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub extern "C" fn emulated(number: u64) -> u64 {
    std::arch::naked_asm!("push rbp", "lea rax, [rdi + rdi*2]", "pop rbp", "ret")
}

/// A function that begins with an instruction on memory, like one that reads its argument; it uses its own red zone.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub extern "C" fn stepped(number: u64) -> u64 {
    std::arch::naked_asm!("mov qword ptr [rsp - 8], rdi", "lea rax, [rdi + rdi*2]", "ret")
}

/// The probed function on architectures whose instructions are not distinguished. Called through a pointer, so that
/// there is only one copy.
#[cfg(not(target_arch = "x86_64"))]
#[inline(never)]
pub extern "C" fn emulated(number: u64) -> u64 {
    black_box(number).wrapping_mul(3)
}

#[cfg(not(target_arch = "x86_64"))]
pub use emulated as stepped;

/// Allows one measurement at a time, because calls without a probe must not reach another one's probe.
static MEASURING: Mutex<()> = Mutex::new(());

/// Measures the kinds that these places need, some milliseconds each.
pub fn measure(programs: &WatchPrograms, places: &[PackPlace]) -> Result<ProbeCosts, WatchError> {
    let _alone = lock(&MEASURING);
    let of_kind = |kind: bool, function: ProbedFunction| {
        let is_needed = places.iter().any(|place| place.is_stepped == kind);
        is_needed.then(|| function_costs(programs, function)).transpose()
    };
    Ok(ProbeCosts { emulated: of_kind(false, emulated)?, stepped: of_kind(true, stepped)? })
}

fn function_costs(programs: &WatchPrograms, function: ProbedFunction) -> Result<FunctionCosts, WatchError> {
    let io = |source| WatchError::System { doing: "find a function of this program to probe", source };
    let offset = offset_in_own_file(function as usize as u64).map_err(io)?;
    let path = Path::new("/proc/self/exe");
    let calls = || {
        let before_ns = cpu_clock::of_this_thread();
        for number in 0..CALLS {
            black_box(black_box(function)(u64::from(number)));
        }
        (cpu_clock::of_this_thread() - before_ns) as f64 / f64::from(CALLS)
    };
    let mut costs = [0.0; 3];
    for (cost, at) in costs.iter_mut().zip([&[false][..], &[true], &[false, true]]) {
        let (mut without, mut with) = (Vec::with_capacity(ROUNDS), Vec::with_capacity(ROUNDS));
        for _ in 0..ROUNDS {
            without.push(calls());
            let probe = |at_return: &bool| programs.probe(std::process::id() as i32, path, offset, 0, *at_return);
            let links = at.iter().map(probe).collect::<Result<Vec<_>, _>>()?;
            // The first hits copy the file's page and allocate the place for copied instructions.
            black_box(black_box(function)(0));
            with.push(calls());
            drop(links);
        }
        *cost = added(&without, with);
    }
    let [call_ns, return_ns, both_ns] = costs;
    Ok(FunctionCosts { call_ns, return_ns, both_ns })
}

/// The cost that probes add to a call: the lower quartile of the rounds with probes, minus the quickest round
/// without. Differences of single rounds would be too small if other work slowed those without a probe.
pub fn added(without: &[f64], with: Vec<f64>) -> f64 {
    let quickest = without.iter().copied().fold(f64::INFINITY, f64::min);
    (rank(with, 4) - quickest).max(0.0)
}

pub fn offset_in_own_file(address: u64) -> std::io::Result<u64> {
    let mappings = crate::maps::of_process(std::process::id())?;
    let found = mappings.iter().find(|mapping| mapping.addresses.contains(&address));
    let offset = found.map(|mapping| address - mapping.addresses.start + mapping.offset);
    offset.ok_or_else(|| std::io::Error::other("its address is in no mapping"))
}
