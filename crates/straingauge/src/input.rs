//! Reads files that are named on the command line or in a scenario.

use crate::failure::wrong_usage;
use anyhow::{Context, Result};
use std::path::Path;

/// Reads a file that must not be larger than `limit`.
pub fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>> {
    use std::io::Read;
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).with_context(|| format!("cannot read {}", path.display()))?;
    if bytes.len() as u64 > limit {
        return Err(wrong_usage(format!("{} has more than {limit} bytes: is it the right file?", path.display())));
    }
    Ok(bytes)
}
