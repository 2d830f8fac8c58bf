//! Receive packet steering (RPS) selects the CPUs that run the receive half of the network stack for a link.
//!
//! On a veth pair the server's end receives a client's packet on the CPU that sent it. So without steering, the
//! client's CPU would do the server's receive work (Documentation/networking/scaling.rst).

use crate::error::{DuringStep, WanError};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::Write;

/// The sysfs of the calling thread's network namespace. It is reachable only through this descriptor, because /sys
/// shows the namespace of the process that mounted it, and other processes would see a mount over it.
pub(crate) struct NamespaceSysfs {
    root: OwnedFd,
}

impl NamespaceSysfs {
    pub(crate) fn mount() -> Result<Self, WanError> {
        let what = "see the network devices of a namespace in sysfs (Linux 5.2 or later is needed)";
        let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC).during(what)?;
        fsconfig_create(&context).during(what)?;
        let attributes =
            MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let root = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).during(what)?;
        Ok(NamespaceSysfs { root })
    }

    /// An empty list switches steering off.
    pub(crate) fn steer(&self, link: &str, cpus: &[usize]) -> Result<(), WanError> {
        let mask = cpu_mask(cpus);
        for queue in self.receive_queues(link)? {
            let path = format!("class/net/{link}/queues/{queue}/rps_cpus");
            record::fault::step().during(format!("steer {link}"))?;
            let file = openat(&self.root, path.as_str(), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
                .during(format!("open {path}"))?;
            File::from(file).write_all(mask.as_bytes()).during(format!("steer {link} to CPUs {cpus:?}"))?;
        }
        Ok(())
    }

    fn receive_queues(&self, link: &str) -> Result<Vec<String>, WanError> {
        let path = format!("class/net/{link}/queues");
        let folder =
            openat(&self.root, path.as_str(), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .during(format!("open {path}"))?;
        let mut queues = Vec::new();
        for entry in rustix::fs::Dir::new(folder).during(format!("list {path}"))? {
            let entry = entry.during(format!("list {path}"))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("rx-") {
                queues.push(name);
            }
        }
        Ok(queues)
    }
}

/// CPUs as the kernel's bitmap: 32-bit groups in hexadecimal, most significant first, separated by commas.
pub fn cpu_mask(cpus: &[usize]) -> String {
    let groups = cpus.iter().max().map_or(1, |highest| highest / 32 + 1);
    let mut words = vec![0u32; groups];
    for cpu in cpus {
        words[cpu / 32] |= 1 << (cpu % 32);
    }
    words.iter().rev().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(",")
}
