//! A file of /proc that is opened once and read repeatedly: `pread` from offset 0 makes the kernel generate it again,
//! at about half the cost of reopening. For an ended process it returns ESRCH, even if the process id was reused.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Maximum bytes read; no file read here is larger, even on a machine with thousands of CPUs.
const MAX_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub struct KeptFile {
    file: File,
}

impl KeptFile {
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(KeptFile { file: File::open(path)? })
    }

    /// Reads the whole file into `buffer`, which grows as needed and should be reused.
    pub fn read<'a>(&self, buffer: &'a mut Vec<u8>) -> io::Result<&'a [u8]> {
        let mut filled = 0;
        loop {
            if filled == buffer.len() {
                if filled >= MAX_BYTES {
                    return Ok(&buffer[..filled]);
                }
                buffer.resize((filled * 2).max(4096), 0);
            }
            match self.file.read_at(&mut buffer[filled..], filled as u64) {
                Ok(0) => return Ok(&buffer[..filled]),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

pub fn read<'a>(file: &Option<KeptFile>, buffer: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    file.as_ref()?.read(buffer).ok()
}
