use std::io;

/// An error of the profile. The message is one sentence with the cause and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Permission to load programs or to open events is missing.
    #[error(
        "sampling the kernel is not permitted: run as root, or give the program cap_bpf and cap_perfmon (setcap \
         cap_bpf,cap_perfmon+ep straingauge)"
    )]
    NotPermitted,
    /// The kernel refused a program.
    #[error(
        "the kernel refused the sampler's programs ({0}): they need Linux 5.15 or later with BTF \
         (CONFIG_DEBUG_INFO_BTF)"
    )]
    Refused(String),
    /// No CPU has a timer.
    #[error("cannot sample by the CPU clock: {0}")]
    NoClock(io::Error),
    /// The kernel does not list its functions.
    #[error("cannot read /proc/kallsyms ({0}): the kernel needs CONFIG_KALLSYMS")]
    Symbols(io::Error),
    /// No process listens.
    #[error(
        "nothing listens on port {port}: is the server running on this port? (in another network namespace: name one \
         of its processes with --netns-of)"
    )]
    NoServer {
        /// The port.
        port: u16,
    },
    /// The server used no CPU.
    #[error(
        "no sample fell on the server in {seconds:.1} s: put load on it while it is profiled, or profile for longer"
    )]
    NoSamples {
        /// Length of the window.
        seconds: f64,
    },
    /// The kernel does not permit hooks in its functions.
    #[error("exact accounting is not possible here: {0}; use --accounting sampled, which needs no hooks in functions")]
    ExactNotPossible(String),
    /// The server used no CPU in any burst.
    #[error(
        "the server used no CPU time in bursts of {seconds:.2} s in total: put load on it while it is profiled, or use \
         longer bursts (--burst)"
    )]
    NoTime {
        /// Length of all bursts.
        seconds: f64,
    },
    /// A group can match no function.
    #[error(
        "group '{group}': no function of this kernel matches '{pattern}' (functions of the server are written \
         user:{pattern})"
    )]
    UnknownPattern {
        /// The group's name.
        group: String,
        /// The pattern without a match.
        pattern: String,
    },
    /// An unprivileged reading failed.
    #[error(transparent)]
    Observe(#[from] crate::error::ObserveError),
}
