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
pub(super) fn write(path: &str, bytes: u64, out: &mut impl Write) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn made(path: &str, bytes: u64) -> Vec<u8> {
        let mut out = Vec::new();
        write(path, bytes, &mut out).unwrap();
        out
    }

    #[test]
    fn content_is_exact_repeatable_and_different_by_file() {
        for bytes in [0, 1, 79, 80, 65_535, 65_536, 65_537, 200_000] {
            assert_eq!(made("a.html", bytes).len() as u64, bytes);
        }
        assert_eq!(made("a.bin", 100_000), made("a.bin", 100_000));
        assert_ne!(made("a.bin", 1000), made("b.bin", 1000));
        assert_eq!(made("a.html", 70_000)[..100], made("a.html", 100)[..]);
    }

    #[test]
    fn text_files_have_lines_and_other_files_have_random_bytes() {
        let text = made("x/a.css", 100_000);
        assert!(text.split(|byte| *byte == b'\n').all(|line| line.len() < 80));
        assert!(text.iter().all(|byte| ALPHABET.contains(byte) || *byte == b'\n'));
        let mut counts = [0u32; 256];
        made("a.gif", 1 << 20).iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        assert!(counts.iter().all(|count| (3500..4700).contains(count)), "no byte is rare: it is not sparse");
    }
}
