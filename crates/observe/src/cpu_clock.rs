//! CPU-time clocks of processes: the scheduler's exact account, read by one system call without opening a file.
//!
//! `CLOCK_PROCESS_CPUTIME_ID` of another process (clock_getcpuclockid(3)) is the run time of all its threads,
//! including ended ones, up to now. /proc/PID/schedstat has only the main thread, up to its last tick. A user may
//! read the clock of any visible process (kernel/time/posix-cpu-timers.c).

use std::io;

/// Clock of a whole process by scheduler time (CPUCLOCK_SCHED).
const WHOLE_PROCESS: i32 = 2;
/// Clock of one thread by scheduler time (CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED).
const ONE_THREAD: i32 = 6;

fn read(clock: libc::clockid_t) -> io::Result<u64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a live, writable timespec; the kernel refuses an unknown clock.
    if unsafe { libc::clock_gettime(clock, &mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// CPU time of a process since its start, nanoseconds; an error if it has ended.
pub fn of_process(pid: u32) -> io::Result<u64> {
    // Pid 0 would be the caller, and numbers above Linux's maximum would change other bits of the clock's number.
    if pid == 0 || pid > 1 << 22 {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    read((!(pid as i32) << 3) | WHOLE_PROCESS)
}

pub fn of_own_thread(tid: u32) -> io::Result<u64> {
    read((!(tid as i32) << 3) | ONE_THREAD)
}

pub fn of_this_thread() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}
