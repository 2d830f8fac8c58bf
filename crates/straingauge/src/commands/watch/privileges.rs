//! Drops the privileges that a watch no longer needs once its programs are attached. It keeps those for attaching and
//! detaching in windows (CAP_BPF, CAP_PERFMON) and for finding a restarted server among other users' processes
//! (CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH). Probes in functions (a pack) need CAP_SYS_ADMIN, too. Everything else is
//! given up for good.

use std::io;

/// Numbers of include/uapi/linux/capability.h.
const KEPT: [u32; 4] = [2, 19, 38, 39];

/// CAP_SYS_ADMIN.
const ADMIN: u32 = 21;

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// `struct __user_cap_data_struct`, two of them.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const VERSION_3: u32 = 0x2008_0522;

/// Drops every capability that a watch does not need after it has started. Does nothing where there is none.
pub fn drop_all_but_bpf(probes_functions: bool) -> io::Result<()> {
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut data = [Data::default(); 2];
    // SAFETY: header and data are live and laid out as the kernel's; version 3 fills two elements.
    if unsafe { libc::syscall(libc::SYS_capget, &mut header, data.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for (index, word) in data.iter_mut().enumerate() {
        let kept = KEPT
            .iter()
            .chain(probes_functions.then_some(&ADMIN))
            .filter(|number| (*number / 32) as usize == index)
            .fold(0, |mask, number| mask | 1 << (number % 32));
        word.permitted &= kept;
        word.effective = word.permitted;
        word.inheritable = 0;
    }
    // SAFETY: as above; capset only reads.
    if unsafe { libc::syscall(libc::SYS_capset, &header, data.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
