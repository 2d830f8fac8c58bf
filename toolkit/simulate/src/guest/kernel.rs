//! Finds the guest's kernel, which is installed or an unpacked package of a distribution.

use crate::SimulateError;
use std::path::{Path, PathBuf};

/// Modules that the guest loads, with their directories below `kernel/`.
const MODULES: [&str; 2] = ["drivers/net/veth.ko", "net/sched/sch_netem.ko"];
const ENDS: [&str; 4] = ["", ".xz", ".zst", ".gz"];

/// A kernel with its modules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The image to boot.
    pub image: PathBuf,
    /// Its version, as in `vmlinuz-VERSION`.
    pub version: String,
    /// Files of the modules by their names in the guest.
    pub modules: Vec<(String, PathBuf)>,
}

impl Kernel {
    /// The kernel at `named`: an image with `../lib/modules/VERSION` next to its directory, or the directory of an
    /// unpacked package. Without a name, the one in the directory that `STRAINGAUGE_GUEST_KERNEL` names, or an
    /// installed one.
    pub fn find(named: Option<&Path>) -> Result<Kernel, SimulateError> {
        let from_environment = std::env::var_os("STRAINGAUGE_GUEST_KERNEL").map(PathBuf::from);
        let roots: Vec<PathBuf> = match named {
            Some(path) => vec![path.to_path_buf()],
            None => from_environment.into_iter().chain([PathBuf::from("/")]).collect(),
        };
        let found = roots.iter().find_map(|root| if root.is_dir() { in_folder(root) } else { of_image(root) });
        found.ok_or_else(|| SimulateError::NoKernel {
            looked: roots.iter().map(|root| root.display().to_string()).collect::<Vec<_>>().join(" and "),
        })
    }
}

/// The newest kernel with all modules, by name.
fn in_folder(root: &Path) -> Option<Kernel> {
    let entries = std::fs::read_dir(root.join("boot")).ok()?;
    let mut images: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    images.sort();
    images.iter().rev().find_map(|image| of_image(image))
}

fn of_image(image: &Path) -> Option<Kernel> {
    let version = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_string();
    let root = image.parent()?.parent()?;
    // A merged /usr has the modules below it.
    let folders = ["lib/modules", "usr/lib/modules"].map(|folder| root.join(folder).join(&version).join("kernel"));
    let folder = folders.iter().find(|folder| folder.is_dir())?;
    let module = |path: &&str| {
        let name = path.rsplit('/').next()?;
        let end = ENDS.iter().find(|end| folder.join(format!("{path}{end}")).is_file())?;
        Some((format!("{name}{end}"), folder.join(format!("{path}{end}"))))
    };
    let modules = MODULES.iter().map(module).collect::<Option<_>>()?;
    image.is_file().then(|| Kernel { image: image.to_path_buf(), version, modules })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unpacked_package_is_found_and_one_without_modules_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let put = |path: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        };
        put("boot/vmlinuz-6.9");
        let refused = Kernel::find(Some(folder.path())).unwrap_err().to_string();
        assert!(refused.contains("veth") && refused.contains("--kernel"), "{refused}");
        put("boot/vmlinuz-6.1");
        put("lib/modules/6.1/kernel/drivers/net/veth.ko");
        put("lib/modules/6.1/kernel/net/sched/sch_netem.ko.xz");
        let kernel = Kernel::find(Some(folder.path())).unwrap();
        assert_eq!(kernel.version, "6.1");
        assert_eq!(kernel.modules[1].0, "sch_netem.ko.xz");
        assert_eq!(Kernel::find(Some(&folder.path().join("boot/vmlinuz-6.1"))).unwrap(), kernel);
        assert!(Kernel::find(Some(&folder.path().join("boot/vmlinuz-6.2"))).is_err());
    }
}
