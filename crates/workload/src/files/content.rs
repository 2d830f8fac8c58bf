//! Content of the files of a tree.

use crate::stable_hash;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::io::{self, Write};

const BLOCK_BYTES: usize = 64 * 1024;
const LINE_BYTES: usize = 80;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 .";

/// Extensions of files that are served as text.
const TEXT: &[&str] = &["html", "htm", "css", "js", "txt", "xml", "svg", "json", "md", "csv", "php", "rss", "atom"];

/// Writes the content of the file at `path` (below the root): random lines for text, random bytes for all other
/// types. The text compresses to three quarters and random bytes not at all. Real documents compress better, so a
/// server that compresses on the fly works harder here.
pub fn write(path: &str, bytes: u64, out: &mut impl Write) -> io::Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(stable_hash(path.as_bytes()));
    let is_text = path.rsplit_once('.').is_some_and(|(_, extension)| TEXT.contains(&extension));
    let mut block = vec![0u8; BLOCK_BYTES.min(usize::try_from(bytes).unwrap_or(BLOCK_BYTES)).max(1)];
    let mut written = 0;
    while written < bytes {
        rng.fill_bytes(&mut block);
        if is_text {
            for (at, byte) in (written..).zip(block.iter_mut()) {
                *byte = if (at + 1) % LINE_BYTES as u64 == 0 { b'\n' } else { ALPHABET[usize::from(*byte & 63)] };
            }
        }
        let count = (bytes - written).min(block.len() as u64);
        out.write_all(&block[..count as usize])?;
        written += count;
    }
    Ok(())
}
