//! The guest's file system: a cpio archive of the kind "newc" that depends only on the names and bytes of its files.
//!
//! Every byte matters: the guest's clock counts instructions and its random numbers come from its clock, so a
//! different inode number or time stamp would lead to another boot with other hash seeds and addresses.

use super::libraries::libraries_of;
use crate::SimulateError;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const TEXT: u32 = 0o100_644;
/// Maximum size. More does not fit next to a kernel in a guest of a few hundred MiB.
const LARGEST_BYTES: usize = 512 << 20;
/// Maximum number of files in a directory.
const MOST_FILES: usize = 20_000;

/// Files for the guest, by path without the leading slash.
#[derive(Debug, Default, Clone)]
pub struct Image {
    files: BTreeMap<String, (u32, Vec<u8>)>,
    bytes: usize,
}

impl Image {
    /// An empty image.
    pub fn new() -> Image {
        Image::default()
    }

    /// Adds bytes at an absolute path, and creates the directories above it.
    pub fn put(&mut self, path: &str, bytes: Vec<u8>, is_program: bool) -> Result<(), SimulateError> {
        let refused = |why: &str| SimulateError::NotTaken { what: path.into(), why: why.into() };
        let inside = path.trim_start_matches('/');
        if inside.is_empty() || inside.split('/').any(|part| part == ".." || part.contains('\0')) {
            return Err(refused("it is not a path within the guest"));
        }
        self.bytes += bytes.len();
        if self.bytes > LARGEST_BYTES || u32::try_from(bytes.len()).is_err() {
            return Err(refused("the guest's file system would be larger than 512 MiB"));
        }
        self.folder_above(inside);
        self.files.insert(inside.into(), (if is_program { PROGRAM } else { TEXT }, bytes));
        Ok(())
    }

    /// Adds an empty directory.
    pub fn folder(&mut self, path: &str) {
        let inside = path.trim_start_matches('/').trim_end_matches('/');
        self.folder_above(inside);
        self.files.entry(inside.into()).or_insert((FOLDER, Vec::new()));
    }

    /// Copies a file of the host, or a directory with all its contents, to the same path. Links are followed; in a
    /// directory, dangling links and links to a parent directory are left out.
    pub fn take(&mut self, path: &Path) -> Result<(), SimulateError> {
        let refused = |why: String| SimulateError::NotTaken { what: path.display().to_string(), why };
        let failed = |at: &Path, why: std::io::Error| SimulateError::NotTaken {
            what: at.display().to_string(),
            why: why.to_string(),
        };
        let absolute = std::path::absolute(path).map_err(|why| failed(path, why))?;
        // These are views of this machine's kernel, and some of their files never end.
        if ["/proc", "/sys", "/dev"].iter().any(|view| absolute.starts_with(view)) || absolute == Path::new("/") {
            return Err(refused("the guest has its own directory of that name".into()));
        }
        let mut waiting = vec![absolute.clone()];
        let mut taken = 0;
        while let Some(next) = waiting.pop() {
            let is_link_within = next != absolute && next.is_symlink();
            let facts = match std::fs::metadata(&next) {
                Err(why) if is_link_within && why.kind() == std::io::ErrorKind::NotFound => continue,
                facts => facts.map_err(|why| failed(&next, why))?,
            };
            if is_link_within && facts.is_dir() && leads_up(&next) {
                continue;
            }
            let name = next.to_str().ok_or_else(|| refused("its name is not text".into()))?.to_string();
            taken += 1;
            if taken > MOST_FILES {
                return Err(refused(format!("it holds more than {MOST_FILES} files")));
            }
            if facts.is_dir() {
                self.folder(&name);
                let entries = std::fs::read_dir(&next).map_err(|why| failed(&next, why))?;
                for entry in entries {
                    waiting.push(entry.map_err(|why| failed(&next, why))?.path());
                }
            } else if facts.is_file() && facts.len() > LARGEST_BYTES as u64 {
                return Err(refused(format!("{name} is larger than 512 MiB")));
            } else if facts.is_file() {
                let bytes = std::fs::read(&next).map_err(|why| failed(&next, why))?;
                self.put(&name, bytes, facts.permissions().mode() & 0o111 != 0)?;
            }
        }
        Ok(())
    }

    /// Copies a program with its libraries and its loader; returns its path, or `at` if given.
    pub fn take_program(&mut self, program: &Path, at: Option<&str>) -> Result<PathBuf, SimulateError> {
        let refused =
            |why: std::io::Error| SimulateError::NotTaken { what: program.display().to_string(), why: why.to_string() };
        let place = std::path::absolute(program).map_err(refused)?;
        let place = at.map_or(place, PathBuf::from);
        let bytes = std::fs::read(program).map_err(refused)?;
        for library in libraries_of(program, &bytes)? {
            if !self.has(&library) {
                self.take(&library)?;
            }
        }
        self.put(&place.to_string_lossy(), bytes, true)?;
        Ok(place)
    }

    fn has(&self, path: &Path) -> bool {
        path.to_str().is_some_and(|path| self.files.contains_key(path.trim_start_matches('/')))
    }

    /// Leaves out files that are identical in another image.
    pub fn leave_out(&mut self, other: &Image) {
        self.files.retain(|path, file| other.files.get(path) != Some(file));
    }

    fn folder_above(&mut self, inside: &str) {
        for (at, _) in inside.match_indices('/') {
            self.files.entry(inside[..at].into()).or_insert((FOLDER, Vec::new()));
        }
    }

    /// The archive.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bytes + 256 * self.files.len());
        for (number, (path, (mode, bytes))) in self.files.iter().enumerate() {
            entry(&mut out, number as u32 + 1, path, *mode, bytes);
        }
        entry(&mut out, 0, "TRAILER!!!", 0, &[]);
        out.resize(out.len().next_multiple_of(512), 0);
        out
    }
}

/// Whether a link points to a directory that contains it.
fn leads_up(link: &Path) -> bool {
    let to = link.canonicalize().ok();
    to.is_some() && link.ancestors().skip(1).any(|above| above.canonicalize().ok() == to)
}

/// Fields of eight hexadecimal digits: inode, mode, user, group, links, time, size, device numbers, length of the
/// name, check.
fn entry(out: &mut Vec<u8>, inode: u32, path: &str, mode: u32, bytes: &[u8]) {
    let links = if mode == FOLDER { 2 } else { 1 };
    let size = bytes.len() as u32;
    let name_size = path.len() as u32 + 1;
    out.extend(b"070701");
    for field in [inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0] {
        out.extend(format!("{field:08X}").bytes());
    }
    out.extend(path.bytes());
    out.push(0);
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_depends_only_on_names_and_bytes() {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "words").unwrap();
        let image = |order: &[&str]| {
            let mut image = Image::new();
            order.iter().for_each(|path| image.put(path, path.as_bytes().to_vec(), false).unwrap());
            image.take(&file).unwrap();
            image.to_bytes()
        };
        let first = image(&["/x/y/z", "/b"]);
        // Another inode, another time.
        std::fs::remove_file(&file).unwrap();
        std::fs::write(folder.path().join("other"), "").unwrap();
        std::fs::write(&file, "words").unwrap();
        assert_eq!(first, image(&["/b", "/x/y/z"]));
        assert_eq!(first.len() % 512, 0);
        let text = String::from_utf8_lossy(&first);
        assert!(text.find("x\0").unwrap() < text.find("x/y\0").unwrap(), "folders come before what is in them");
        assert!(text.contains("TRAILER!!!"));
    }

    #[test]
    fn dangling_links_and_links_to_parent_directories_are_left_out() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let (site, other) = (folder.path().join("site"), folder.path().join("other"));
        std::fs::create_dir_all(site.join("pages")).unwrap();
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("page"), "words").unwrap();
        symlink(&other, site.join("pages/other")).unwrap();
        symlink("/does/not/exist", site.join("pages/nowhere")).unwrap();
        symlink("..", site.join("pages/above")).unwrap();
        symlink(&site, other.join("back")).unwrap();
        let mut image = Image::new();
        image.take(&site).unwrap();
        let taken: Vec<&str> = image.files.keys().filter_map(|path| path.split_once("/site/")).map(|at| at.1).collect();
        assert_eq!(taken, ["pages", "pages/other", "pages/other/page"]);
        // Files that cannot be read for another reason are named, and so is a given path.
        symlink("itself", site.join("itself")).unwrap();
        for (path, named) in [(&site, site.join("itself")), (&site.join("pages/nowhere"), site.join("pages/nowhere"))] {
            let error = image.take(path).unwrap_err().to_string();
            assert!(error.contains(named.to_str().unwrap()), "{error}");
        }
    }

    #[test]
    fn paths_that_lead_out_of_the_guest_are_refused() {
        let mut image = Image::new();
        for path in ["/", "", "/a/../../b", "/a\0b"] {
            assert!(image.put(path, Vec::new(), false).is_err(), "{path:?}");
        }
        let missing = image.take(Path::new("/does/not/exist")).unwrap_err().to_string();
        assert!(image.take(Path::new("/proc/self")).is_err() && image.take(Path::new("/")).is_err());
        assert!(missing.contains("/does/not/exist") && missing.contains("No such file"), "{missing}");
    }
}
