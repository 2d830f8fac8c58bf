//! Why a simulation failed, as a sentence with the remedy.

use std::path::PathBuf;

/// An error of a simulation.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The emulator is not installed.
    #[error("qemu-system-x86_64 is not installed; install QEMU 6.0 to 10 (apt-get install qemu-system-x86)")]
    NoQemu,
    /// The emulator has another plugin interface.
    #[error(
        "QEMU {version} has another plugin interface; install QEMU 6.0 to 10 (tested with 7.2 and 10.0), or name it \
         with --qemu"
    )]
    OtherQemu {
        /// Its version.
        version: String,
    },
    /// A part of the program is missing.
    #[error(
        "{name} is not in {folder}, next to this program; build all parts with make -C toolkit/simulate, and keep them \
         together",
        folder = folder.display()
    )]
    NotInstalled {
        /// Name of the file.
        name: String,
        /// Directory of the program.
        folder: PathBuf,
    },
    /// Only x86-64 is supported.
    #[error(
        "the simulated machine is x86-64 and runs this machine's programs, but this machine has another \
    processor"
    )]
    OtherProcessor,
    /// There is no kernel with the required modules.
    #[error(
        "no kernel with the modules veth and sch_netem under {looked}; unpack a kernel package (apt-get download \
         linux-image-cloud-amd64's package, dpkg -x PACKAGE FOLDER) and name it: --kernel FOLDER"
    )]
    NoKernel {
        /// The places that were searched.
        looked: String,
    },
    /// A file of the host is missing.
    #[error("{what} cannot be copied into the guest: {why}")]
    NotTaken {
        /// The file or program.
        what: String,
        /// The reason.
        why: String,
    },
    /// The guest needs more memory than is free.
    #[error(
        "the guest needs {needed_mib} MiB of memory, but only {free_mib} MiB are free; end other programs, or give it \
         less with --memory"
    )]
    NoMemory {
        /// Memory that it would use.
        needed_mib: u64,
        /// Memory that is free.
        free_mib: u64,
    },
    /// An operation of the host's operating system failed.
    #[error("{what}: {source}")]
    System {
        /// The action that failed.
        what: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The emulator ended or misbehaved.
    #[error("QEMU ended before the guest had finished its work: {words}")]
    Qemu {
        /// Its last output, or the guest's.
        words: String,
    },
    /// The guest's reason for failing.
    #[error("{0}")]
    Guest(String),
    /// The simulation exceeded the time limit.
    #[error(
        "the guest did not end within {seconds} s; give it more time (--guest-timeout), or more memory (--memory) if \
         it has many connections; its last output: {words}"
    )]
    Late {
        /// The limit.
        seconds: u64,
        /// The last output of its kernel.
        words: String,
    },
    /// The request is impossible.
    #[error("{0}")]
    Impossible(String),
    /// Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// A file has wrong contents.
    #[error("{path}: {why}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        why: String,
    },
}

impl SimulateError {
    /// Wraps an error of the operating system with the action that failed.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> SimulateError {
        let what = what.into();
        move |source| SimulateError::System { what, source }
    }
}
