use crate::failure::wrong_usage;
use anyhow::{Context, Result};
use std::path::Path;

pub fn read_file(path: &Path, limit: u64, option: &str) -> Result<Vec<u8>> {
    use std::io::Read;
    let read = || {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(limit + 1).read_to_end(&mut bytes).map(|_| bytes)
    };
    let bytes = read().with_context(|| format!("{option}: cannot read {}", path.display()))?;
    if bytes.len() as u64 > limit {
        let path = path.display();
        return Err(wrong_usage(format!("{option}: {path} has more than {limit} bytes: is this the right file?")));
    }
    Ok(bytes)
}
