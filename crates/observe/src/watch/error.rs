//! The reason why a port cannot be watched from inside the kernel. Scans may still give some figures: see the
//! degraded modes in docs/watching.md.

/// An error of the watch. The message is one sentence with cause and remedy.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The kernel has no type information.
    #[error(
        "the kernel has no type information (/sys/kernel/btf/vmlinux: {0}): make /sys visible in this container, or \
         use a kernel built with CONFIG_DEBUG_INFO_BTF, 5.15 or later"
    )]
    NoTypes(String),
    /// Loading programs is not permitted.
    #[error(
        "loading BPF programs is not permitted: run as root, or give the program cap_bpf and cap_perfmon (setcap \
         cap_bpf,cap_perfmon+ep straingauge)"
    )]
    NotPermitted,
    /// The kernel refused a program.
    #[error("the kernel refused the BPF programs ({what}){log}")]
    Refused {
        /// libbpf's message.
        what: String,
        /// The end of the messages of libbpf and the verifier, beginning with ": ", or empty.
        log: String,
    },
    /// An operation around the programs failed.
    #[error("cannot {doing}: {source}")]
    System {
        /// The operation.
        doing: &'static str,
        /// The kernel's error.
        source: std::io::Error,
    },
    /// An unprivileged reading failed.
    #[error(transparent)]
    Observe(#[from] crate::error::ObserveError),
}
