use crate::error::{DuringStep, WanError};
use rustix::thread::CpuSet;

/// A set of CPUs in the kernel's form. Fails if this process may not use one of them.
pub(crate) fn cpu_set(cpus: &[usize]) -> Result<CpuSet, WanError> {
    let allowed = rustix::thread::sched_getaffinity(None).during("read the CPUs this process may use")?;
    // A pinned thread may still move to any CPU that its cpuset allows.
    let online = record::machine::online_cpu_numbers();
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU || !(allowed.is_set(cpu) || online.contains(&cpu)) {
            let list: Vec<String> =
                (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).map(|cpu| cpu.to_string()).collect();
            return Err(WanError::NoSuchCpu { cpu, allowed: list.join(",") });
        }
        set.set(cpu);
    }
    Ok(set)
}

/// Pins the calling thread to `cpus`. Threads and children that it creates later inherit the set. An empty list
/// changes nothing.
pub fn pin(cpus: &[usize]) -> Result<(), WanError> {
    if cpus.is_empty() {
        return Ok(());
    }
    rustix::thread::sched_setaffinity(None, &cpu_set(cpus)?).during(format!("pin this thread to CPUs {cpus:?}"))
}
