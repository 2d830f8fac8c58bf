//! Anonymous files in memory.

use crate::SimulateError;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::{AsRawFd, RawFd};

/// Maximum bytes that are read of the output of a guest or of QEMU.
const LONGEST_TEXT: u64 = 64 << 20;

/// A file in memory. It vanishes when the last process closes it.
#[derive(Debug)]
pub(super) struct MemoryFile(File);

impl MemoryFile {
    /// An empty file. The name is for users who look into `/proc`.
    pub fn new(name: &str) -> Result<MemoryFile, SimulateError> {
        let fd = memfd_create(name, MemfdFlags::CLOEXEC)
            .map_err(|why| SimulateError::system("cannot make a file in memory")(why.into()))?;
        Ok(MemoryFile(File::from(fd)))
    }

    /// A file with these bytes.
    pub fn with(name: &str, bytes: &[u8]) -> Result<MemoryFile, SimulateError> {
        let mut file = MemoryFile::new(name)?;
        file.0.write_all(bytes).map_err(SimulateError::system("cannot fill a file in memory"))?;
        Ok(file)
    }

    /// A file on disk that is used in place of one in memory.
    pub fn opened(file: File) -> MemoryFile {
        MemoryFile(file)
    }

    /// Its descriptor number, which is the same in the child.
    pub fn number(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// A path with which the child opens it again at its beginning.
    pub fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.number())
    }

    /// The file itself, at its beginning.
    pub fn rewound(&mut self) -> Result<&File, SimulateError> {
        self.0.seek(SeekFrom::Start(0)).map_err(SimulateError::system("cannot rewind a file in memory"))?;
        Ok(&self.0)
    }

    /// Its contents as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// Its contents.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Opened again, so that the position of the child's descriptor does not change.
        if let Ok(file) = File::open(self.path()) {
            let _ = file.take(LONGEST_TEXT).read_to_end(&mut bytes);
        }
        bytes
    }
}
