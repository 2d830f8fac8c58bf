//! The yardstick: the current speed of a CPU, measured by a fixed piece of arithmetic. It depends on the clock
//! frequency, a busy sibling thread and the hypervisor, but not on scheduling, because it counts only the thread's
//! CPU time.

use crate::cpu_clock;
use record::figure::{Figure, Origin};
use rustix::thread::CpuSet;
use std::hint::black_box;
use std::time::{Duration, Instant};

const UNIT: &str = "1/s";
/// Iterations between two clock readings: much longer than a reading, and shorter than a scheduler's slice.
pub const ITERATIONS_PER_ROUND: u64 = 20_000;

/// Runs the yardstick for `duration` on `cpu` (`None`: on any CPU): iterations per second of CPU time
/// ([`record::names::YARDSTICK_CPU`]).
pub fn yardstick(cpu: Option<usize>, duration: Duration) -> Figure {
    let measured = std::thread::scope(|scope| scope.spawn(|| run(cpu, duration)).join());
    match measured {
        Ok(Ok((iterations, cpu_ns))) if cpu_ns > 0 => {
            Figure::new(iterations as f64 * 1e9 / cpu_ns as f64, UNIT, iterations, Origin::Timed)
        }
        Ok(Ok(_)) => Figure::not_measured(UNIT, "the yardstick's thread got no CPU time"),
        Ok(Err(error)) => Figure::not_measured(UNIT, format!("no thread could be pinned to CPU {cpu:?}: {error}")),
        Err(_) => Figure::not_measured(UNIT, "the yardstick's thread failed"),
    }
}

fn run(cpu: Option<usize>, duration: Duration) -> std::io::Result<(u64, u64)> {
    if let Some(cpu) = cpu {
        if cpu >= CpuSet::MAX_CPU {
            return Err(std::io::Error::from(std::io::ErrorKind::InvalidInput));
        }
        let mut set = CpuSet::new();
        set.set(cpu);
        rustix::thread::sched_setaffinity(None, &set)?;
    }
    let deadline = Instant::now() + duration;
    let began_ns = cpu_clock::of_this_thread();
    let (mut iterations, mut state) = (0, 0x9e37_79b9_7f4a_7c15);
    while iterations == 0 || Instant::now() < deadline {
        state = black_box(round(state));
        iterations += ITERATIONS_PER_ROUND;
    }
    Ok((iterations, cpu_clock::of_this_thread() - began_ns))
}

/// A chain of dependent shifts and multiplications (xorshift64*), whose speed is that of the core, not of the memory.
fn round(mut state: u64) -> u64 {
    for _ in 0..ITERATIONS_PER_ROUND {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
    }
    state
}
