use std::io;
use std::ops::Range;

const MOST: usize = 100_000;

/// A line: `START-END PERMISSIONS OFFSET DEVICE INODE PATH`.
#[derive(Debug)]
pub struct Mapping {
    pub addresses: Range<u64>,
    pub is_executable: bool,
    /// Offset in the file.
    pub offset: u64,
    /// Path of the file, a word in brackets, or empty.
    pub path: String,
}

impl Mapping {
    pub fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    fn parse(line: &str) -> Option<Mapping> {
        let mut words = line.splitn(6, ' ');
        let hex = |word: &str| u64::from_str_radix(word, 16).ok();
        let (start, end) = words.next()?.split_once('-')?;
        let (addresses, is_executable) = (hex(start)?..hex(end)?, words.next()?.contains('x'));
        let offset = hex(words.next()?)?;
        Some(Mapping { addresses, is_executable, offset, path: words.nth(2)?.trim().to_string() })
    }
}

pub fn of_process(pid: u32) -> io::Result<Vec<Mapping>> {
    let text = std::fs::read(format!("/proc/{pid}/maps"))?;
    Ok(String::from_utf8_lossy(&text).lines().take(MOST).filter_map(Mapping::parse).collect())
}
