//! Anonymous network namespaces, held by a descriptor.
//!
//! A namespace lives as long as a process, a socket or a descriptor refers to it. Without a name under /run/netns it
//! vanishes with all its devices, addresses and routes when its holder dies.

use crate::error::{DuringStep, WanError};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::File;
use std::os::unix::fs::MetadataExt;

/// A network namespace that this value keeps alive.
#[derive(Debug)]
pub struct NetNamespace {
    file: File,
}

impl NetNamespace {
    /// The namespace that the calling thread is in.
    pub fn current() -> Result<Self, WanError> {
        let file = File::open("/proc/thread-self/ns/net").during("open this thread's network namespace")?;
        Ok(NetNamespace { file })
    }

    /// The namespace that a process is in.
    pub fn of_process(pid: u32) -> Result<Self, WanError> {
        let file = File::open(format!("/proc/{pid}/ns/net")).during(format!("open the namespace of process {pid}"))?;
        Ok(NetNamespace { file })
    }

    /// Creates an empty namespace. The calling thread stays in its namespace.
    pub fn create() -> Result<Self, WanError> {
        on_own_thread(|| {
            record::fault::step().during("make a network namespace")?;
            // SAFETY: only the network namespace of this short-lived thread changes; descriptors stay shared.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(|errno| match errno {
                rustix::io::Errno::PERM => WanError::NotPermitted,
                other => WanError::Unsupported {
                    what: "make a network namespace",
                    remedy: "it needs CONFIG_NET_NS and room under /proc/sys/user/max_net_namespaces",
                    source: other.into(),
                },
            })?;
            NetNamespace::current()
        })
    }

    /// Moves the calling thread into the namespace. Threads that it creates later start there too.
    pub fn enter(&self) -> Result<(), WanError> {
        record::fault::step().during("enter a network namespace")?;
        move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
            .during("enter a network namespace")
    }

    /// Runs `work` inside the namespace on a separate thread.
    pub fn run_inside<T: Send>(&self, work: impl FnOnce() -> Result<T, WanError> + Send) -> Result<T, WanError> {
        on_own_thread(|| {
            self.enter()?;
            work()
        })
    }

    /// A name such as `net:[NUMBER]`, as in `/proc/PID/ns/net`. The kernel reuses the number after the namespace has
    /// ended.
    pub fn name(&self) -> Result<String, WanError> {
        Ok(format!("net:[{}]", self.file.metadata().during("read a namespace's number")?.ino()))
    }

    /// Another descriptor of the same namespace.
    pub fn try_clone_fd(&self) -> Result<OwnedFd, WanError> {
        Ok(self.file.try_clone().during("duplicate a namespace's descriptor")?.into())
    }
}

impl AsFd for NetNamespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Runs `work` on a separate thread, because a thread that changed its namespace must not return to the caller.
fn on_own_thread<T: Send>(work: impl FnOnce() -> Result<T, WanError> + Send) -> Result<T, WanError> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("namespace".into())
            .spawn_scoped(scope, work)
            .during("start a thread for a network namespace")?;
        match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
