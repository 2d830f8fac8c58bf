//! The workload's files: a cpio archive of the kind "newc", as the host writes it.

use crate::{Outcome, because};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const HEADER_BYTES: usize = 110;
const END: &str = "TRAILER!!!";
const KIND: u32 = 0o170_000;
const FOLDER: u32 = 0o040_000;
const RIGHTS: u32 = 0o777;

/// Puts the files of an archive below the root.
pub fn unpack(mut archive: impl Read) -> Outcome<()> {
    while let Some((name, mode, size)) = entry(&mut archive).map_err(because("the host's files"))? {
        let path = Path::new("/").join(&name);
        let failed = || because(format!("cannot put {} into the guest", path.display()));
        if mode & KIND == FOLDER {
            fs::create_dir_all(&path).map_err(failed())?;
            continue;
        }
        // A file that a program uses goes on existing without its name.
        let _ = fs::remove_file(&path);
        let mut options = OpenOptions::new();
        let mut file: File = options.write(true).create_new(true).mode(mode & RIGHTS).open(&path).map_err(failed())?;
        io::copy(&mut (&mut archive).take(size), &mut file).map_err(failed())?;
        pad(&mut archive, size as usize).map_err(failed())?;
    }
    Ok(())
}

/// Name, mode and size of the next entry; `None` at the end.
fn entry(archive: &mut impl Read) -> io::Result<Option<(String, u32, u64)>> {
    let mut header = [0; HEADER_BYTES];
    archive.read_exact(&mut header)?;
    let field = |number: usize| {
        let digits = std::str::from_utf8(&header[6 + 8 * number..14 + 8 * number]).unwrap_or_default();
        u32::from_str_radix(digits, 16).map_err(|_| io::Error::other("their archive cannot be read"))
    };
    let (mode, size, length) = (field(1)?, field(6)?, field(11)? as usize);
    let mut name = vec![0; length];
    archive.read_exact(&mut name)?;
    pad(archive, HEADER_BYTES + length)?;
    name.pop();
    let name = String::from_utf8(name).map_err(io::Error::other)?;
    Ok((name != END).then_some((name, mode, size.into())))
}

/// Skips to the next multiple of four.
fn pad(archive: &mut impl Read, behind: usize) -> io::Result<()> {
    archive.read_exact(&mut [0; 3][..behind.next_multiple_of(4) - behind])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_read_as_the_host_writes_it() {
        let mut archive = Vec::new();
        for (name, mode, bytes) in [("a/b", 0o100_755_u32, &b"hello"[..]), (END, 0, b"")] {
            let fields = [1, mode, 0, 0, 1, 0, bytes.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
            archive.extend(b"070701");
            fields.iter().for_each(|field| archive.extend(format!("{field:08x}").bytes()));
            archive.extend(name.bytes().chain([0]));
            archive.resize(archive.len().next_multiple_of(4), 0);
            archive.extend(bytes);
            archive.resize(archive.len().next_multiple_of(4), 0);
        }
        let mut rest = &archive[..];
        assert_eq!(entry(&mut rest).unwrap(), Some(("a/b".into(), 0o100_755, 5)));
        assert!(rest.starts_with(b"hello"));
        rest = &rest[8..];
        assert_eq!(entry(&mut rest).unwrap(), None);
        assert!(entry(&mut rest).is_err());
    }
}
