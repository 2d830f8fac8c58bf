//! Checks that the guest fits into memory.

use crate::SimulateError;

/// Memory of QEMU itself: translated code and its heap.
const EMULATOR_MIB: u64 = 400;

/// Refuses a guest for which this machine has too little memory. If the free memory is unknown, it refuses no guest.
pub(super) fn check(guest_mib: u64, files_bytes: u64) -> Result<(), SimulateError> {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let Some(free_mib) = available_mib(&text) else { return Ok(()) };
    let needed_mib = guest_mib + EMULATOR_MIB + (files_bytes >> 20);
    if needed_mib > free_mib { Err(SimulateError::NoMemory { needed_mib, free_mib }) } else { Ok(()) }
}

fn available_mib(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_larger_than_the_machine_is_refused() {
        assert_eq!(available_mib("MemTotal: 1 kB\nMemAvailable:    2097152 kB\n"), Some(2048));
        assert_eq!(available_mib(""), None);
        let refused = check(1 << 40, 0).unwrap_err().to_string();
        assert!(refused.contains("--memory"), "{refused}");
    }
}
