//! What a probe in a function costs, measured on a function of this program's own.

use super::error::WatchError;
use super::programs::Programs;
use crate::cpu_clock;
use std::hint::black_box;
use std::path::Path;

const CALLS: u32 = 200;
const ROUNDS: usize = 9;

/// Nanoseconds of CPU time for each hit, trap included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProbeCosts {
    /// At a function's call.
    pub call_ns: f64,
    /// At its return.
    pub return_ns: f64,
}

impl ProbeCosts {
    /// Of one hit.
    pub fn of(&self, at_return: bool) -> f64 {
        if at_return { self.return_ns } else { self.call_ns }
    }
}

/// The function that is probed. Called through a pointer, so that there is one body.
#[inline(never)]
extern "C" fn probed(number: u64) -> u64 {
    black_box(number).wrapping_mul(3)
}

/// Measures both: calls with the probe less calls without, the lower quartile of the rounds. Takes some ms.
pub fn measure(programs: &Programs) -> Result<ProbeCosts, WatchError> {
    let io = |source| WatchError::System { doing: "find a function of this program to probe", source };
    let function: extern "C" fn(u64) -> u64 = probed;
    let offset = offset_in_own_file(function as usize as u64).map_err(io)?;
    let path = Path::new("/proc/self/exe");
    let calls = || {
        let before_ns = cpu_clock::of_this_thread();
        for number in 0..CALLS {
            black_box(black_box(function)(u64::from(number)));
        }
        (cpu_clock::of_this_thread() - before_ns) as f64 / f64::from(CALLS)
    };
    let cost = |at_return: bool| -> Result<f64, WatchError> {
        let mut differences = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let without = calls();
            let link = programs.probe(std::process::id() as i32, path, offset, 0, at_return)?;
            let with = calls();
            drop(link);
            differences.push(with - without);
        }
        differences.sort_by(f64::total_cmp);
        Ok(differences[ROUNDS / 4].max(0.0))
    };
    Ok(ProbeCosts { call_ns: cost(false)?, return_ns: cost(true)? })
}

/// Where an address of this program's text lies in its file.
fn offset_in_own_file(address: u64) -> std::io::Result<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let of_line = |line: &str| -> Option<u64> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        let offset = u64::from_str_radix(words.nth(1)?, 16).ok()?;
        (start..end).contains(&address).then(|| address - start + offset)
    };
    maps.lines().find_map(of_line).ok_or_else(|| std::io::Error::other("its address is in no mapping"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_lies_within_the_file() {
        let function: extern "C" fn(u64) -> u64 = probed;
        let offset = offset_in_own_file(function as usize as u64).unwrap();
        let length = std::fs::metadata("/proc/self/exe").unwrap().len();
        assert!(offset > 0 && offset < length, "{offset} of {length}");
    }
}
