//! The structures that the programs in the kernel share with this program, as libbpf-cargo generates them from the type
//! information of the compiled objects: a field that moves in `bpf/*.h` moves here, too, and use of a removed field
//! does not compile.

/// The types of libbpf-cargo's skeletons; loading is the same for all objects ([`super::load`]).
#[allow(unused, nonstandard_style, clippy::all, clippy::undocumented_unsafe_blocks, rust_2018_idioms)]
mod generated {
    pub mod account {
        include!(concat!(env!("OUT_DIR"), "/account.types.rs"));
    }
    pub mod watch {
        include!(concat!(env!("OUT_DIR"), "/watch.types.rs"));
    }
    pub mod profile {
        include!(concat!(env!("OUT_DIR"), "/profile.types.rs"));
    }
    pub mod exact {
        include!(concat!(env!("OUT_DIR"), "/exact.types.rs"));
    }
}

/// `bpf/account.h`.
pub mod account {
    pub use super::generated::account::types::{
        account_gate as Gate, account_sums as Sums, cpu_clock as CpuClock, outgoing as Outgoing, place as Place,
        wait_sample as WaitSample, wait_stack as WaitStack, wait_use as Use,
    };
}

/// `bpf/watch.h`.
pub mod watch {
    pub use super::generated::watch::types::{
        class_row as ClassRow, control as Control, look as LookRecord, look_count as LookCount, phase_row as PhaseRow,
        port_counts as PortCounts, request as RequestRecord, run_row as RunRow, sweep as Sweep, thread as ThreadRecord,
        watch_options as ProgramOptions,
    };
}

/// `bpf/profile.h`.
pub mod profile {
    pub use super::generated::profile::types::{
        cpu_row as CpuRow, gate as Gate, kernel_stack as KernelStack, sample as Sample, target as Target,
        user_stack as UserStack,
    };
}

/// `bpf/members.h`.
pub mod members {
    pub use super::generated::profile::types::{member as Member, member_counts as MemberCounts};
}

/// `bpf/exact.h`; the packets are counted as in `profile`.
pub mod exact {
    pub use super::generated::exact::types::{exact_cpu as Cpu, exact_gate as Gate, exact_options as Options};
}

/// Marks structures of plain numbers that may be read from memory shared with the kernel.
///
/// # Safety
/// Implementors are `repr(C)`, consist of whole numbers only and have no padding.
pub unsafe trait Shared: Copy {}

// SAFETY: a whole number has no padding.
unsafe impl Shared for u64 {}

macro_rules! shared {
    ($($name:ty),+ $(,)?) => {$(
        // SAFETY: generated as repr(C) with whole numbers only; the headers are compiled with -Wpadded as an error.
        unsafe impl Shared for $name {}
    )+};
}

shared! {
    account::Gate, account::Sums, account::CpuClock, account::Outgoing, account::Place, account::Use,
    account::WaitSample, account::WaitStack,
    watch::ClassRow, watch::Control, watch::LookRecord, watch::LookCount, watch::PhaseRow, watch::PortCounts,
    watch::RequestRecord, watch::RunRow, watch::Sweep, watch::ThreadRecord, watch::ProgramOptions,
    members::Member, members::MemberCounts,
    profile::CpuRow, profile::Gate, profile::KernelStack, profile::Sample, profile::Target, profile::UserStack,
    exact::Cpu, exact::Gate, exact::Options,
}

/// The bytes of a value.
pub fn bytes_of<T: Shared>(value: &T) -> &[u8] {
    // SAFETY: `Shared` types have no padding; the slice lives no longer than the value.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// The value of these bytes; `None` if the length differs.
pub fn value_of<T: Shared>(bytes: &[u8]) -> Option<T> {
    // SAFETY: there are as many bytes as are read, at any alignment, and any bytes are a value of a `Shared` type.
    (bytes.len() == size_of::<T>()).then(|| unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_another_length_are_no_value() {
        let gate = profile::Gate { is_open: 1, block: 7, opened_ns: 1 << 40 };
        let bytes = bytes_of(&gate).to_vec();
        assert_eq!(value_of::<profile::Gate>(&bytes).map(|gate| (gate.block, gate.opened_ns)), Some((7, 1 << 40)));
        assert!(value_of::<profile::Gate>(&bytes[1..]).is_none() && value_of::<profile::Gate>(&[]).is_none());
    }
}
