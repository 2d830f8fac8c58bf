//! The parts of the guest: a distribution's kernel, an image of the host's programs, and the kernel's functions by
//! layer.

mod accounts;
mod image;
mod kernel;
mod libraries;
mod symbols;

pub use image::Image;
pub use kernel::Kernel;
pub use model::job;
pub use symbols::{Functions, KernelFunction};

/// The server's address in the guest.
pub const SERVER_ADDRESS: &str = "10.0.0.2";

impl Image {
    /// The contents of every guest: its first process, the modules, and the programs that configure its network.
    pub fn base(kernel: &Kernel) -> Result<Image, crate::SimulateError> {
        let mut image = Image::new();
        image.take_program(&crate::parts::find(crate::parts::FIRST_PROCESS)?, Some("/init"))?;
        for folder in ["/proc", "/sys", "/dev", "/run", "/tmp"] {
            image.folder(folder);
        }
        for (name, file) in &kernel.modules {
            let refused = |why: std::io::Error| crate::SimulateError::NotTaken {
                what: file.display().to_string(),
                why: why.to_string(),
            };
            image.put(&format!("/modules/{name}"), std::fs::read(file).map_err(refused)?, false)?;
        }
        for name in ["ip", "tc"] {
            image.take_program(&tool(name)?, Some(&format!("/bin/{name}")))?;
        }
        Ok(image)
    }

    /// Users and groups, for a server that switches to one. Files that are copied later may replace them.
    pub fn put_accounts(&mut self) -> Result<(), crate::SimulateError> {
        let text = |path| std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let (passwd, group) = (text("/etc/passwd").unwrap_or_default(), text("/etc/group").unwrap_or_default());
        let (passwd, group) = accounts::passwd_and_group(&passwd, &group);
        self.put("/etc/passwd", passwd.into_bytes(), false)?;
        self.put("/etc/group", group.into_bytes(), false)
    }
}

/// A program of the host, also searched in the directories of administration tools.
fn tool(name: &str) -> Result<std::path::PathBuf, crate::SimulateError> {
    record::shell::find_program(name).ok_or_else(|| crate::SimulateError::NotTaken {
        what: format!("the program {name}"),
        why: "it is not installed (apt-get install iproute2)".into(),
    })
}
