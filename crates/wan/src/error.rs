use std::io;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
pub enum WanError {
    /// The kernel refuses namespaces to this user.
    #[error(
        "separate network namespaces for client and server need root (CAP_SYS_ADMIN and CAP_NET_ADMIN): use sudo, or \
         start the server yourself and give only its URL"
    )]
    NotPermitted,
    /// The kernel lacks a feature.
    #[error("this kernel cannot {what} ({source}): {remedy}")]
    Unsupported {
        /// The action that failed.
        what: &'static str,
        /// How to fix it.
        remedy: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// Another process uses the name of a TUN device.
    #[error("the TUN device {name} is in use by another process: end it, or try again to get another name")]
    TunTaken {
        /// The device's name.
        name: String,
    },
    /// The plan is impossible.
    #[error(transparent)]
    Path(#[from] record::path::PathError),
    /// A step failed unexpectedly.
    #[error("cannot {what}: {source}")]
    Step {
        /// The action that failed.
        what: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The caller stopped the self-test.
    #[error("the test of the path was stopped")]
    Stopped,
    /// The plan names CPUs that this process may not use.
    #[error("CPU {cpu} cannot be used: this process may run on CPUs {allowed}; choose from these")]
    NoSuchCpu {
        /// The CPU of the plan.
        cpu: usize,
        /// The CPUs that may be used, as a list.
        allowed: String,
    },
}

impl WanError {
    /// Whether no pair can be created on this machine or with these rights.
    pub fn is_of_machine(&self) -> bool {
        matches!(self, WanError::NotPermitted | WanError::Unsupported { .. })
    }
}

pub(crate) trait DuringStep<T> {
    fn during(self, what: impl Into<String>) -> Result<T, WanError>;
}

impl<T, E: Into<io::Error>> DuringStep<T> for Result<T, E> {
    fn during(self, what: impl Into<String>) -> Result<T, WanError> {
        self.map_err(|error| {
            let source = error.into();
            match source.raw_os_error() {
                Some(libc::EPERM) | Some(libc::EACCES) if !rustix::process::geteuid().is_root() => {
                    WanError::NotPermitted
                }
                _ => WanError::Step { what: what.into(), source },
            }
        })
    }
}
