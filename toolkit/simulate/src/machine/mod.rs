//! The emulated machine: QEMU as a child process that cannot outlive this one and leaves no file.
//!
//! All its files are anonymous memory, passed by descriptor, so no files remain, however this process ends.

mod cache;
mod free_memory;
mod memory_file;
mod plugin_file;
mod qemu;
mod qmp;
mod saved;

pub use qemu::{Limits, Qemu};
pub use saved::{Debugger, Resumed, Saved};
