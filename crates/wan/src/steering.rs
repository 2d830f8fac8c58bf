//! Receive packet steering (RPS) selects the CPUs that run the receive half of the network stack for a link.
//!
//! On a veth pair the server's end receives a client's packet on the CPU that sent it. So without steering, the
//! client's CPU would do the server's receive work (Documentation/networking/scaling.rst).

use crate::error::{DuringStep, WanError};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use std::fs::File;
use std::io::{Read, Write};

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

    /// Sets the CPUs of every receive queue of `link`. An empty list switches steering off.
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

    /// The CPUs that are set on the first receive queue of `link`.
    pub(crate) fn steered_to(&self, link: &str) -> Result<Vec<usize>, WanError> {
        let path = format!("class/net/{link}/queues/rx-0/rps_cpus");
        let file = openat(&self.root, path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .during(format!("open {path}"))?;
        let mut text = String::new();
        File::from(file).take(4096).read_to_string(&mut text).during(format!("read {path}"))?;
        Ok(cpus_of_mask(&text))
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
fn cpu_mask(cpus: &[usize]) -> String {
    let groups = cpus.iter().max().map_or(1, |highest| highest / 32 + 1);
    let mut words = vec![0u32; groups];
    for cpu in cpus {
        words[cpu / 32] |= 1 << (cpu % 32);
    }
    words.iter().rev().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(",")
}

/// The inverse of [`cpu_mask`]. Invalid groups count as 0.
fn cpus_of_mask(text: &str) -> Vec<usize> {
    let mut cpus = Vec::new();
    for (group, word) in text.trim().split(',').rev().enumerate() {
        let bits = u32::from_str_radix(word.trim(), 16).unwrap_or(0);
        cpus.extend((0..32).filter(|bit| bits & (1 << bit) != 0).map(|bit| group * 32 + bit));
    }
    cpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_many_cpus_are_grouped_from_the_highest() {
        assert_eq!(cpu_mask(&[]), "00000000");
        assert_eq!(cpu_mask(&[0, 1]), "00000003");
        assert_eq!(cpu_mask(&[1, 33]), "00000002,00000002");
        for cpus in [vec![], vec![5], vec![0, 31, 32, 95]] {
            assert_eq!(cpus_of_mask(&cpu_mask(&cpus)), cpus);
        }
    }

    #[test]
    fn an_invalid_mask_names_no_cpu() {
        assert!(cpus_of_mask("zz,\n").is_empty());
        assert!(cpus_of_mask("").is_empty());
    }
}
