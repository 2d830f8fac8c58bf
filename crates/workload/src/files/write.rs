use super::{Tree, TreeLimits, content, manifest};
use crate::{WorkloadError, wrong};
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

const MANIFEST: &str = "manifest.tsv";
const NGINX_MAP: &str = "nginx-map.conf";
const ROOT: &str = "root";
const PARTIAL: &str = ".partial";

/// Result of writing a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenTree {
    /// The document root.
    pub root: PathBuf,
    /// The manifest.
    pub manifest: PathBuf,
    /// Files written by this run.
    pub written: u64,
    /// Bytes of the files written by this run.
    pub written_bytes: u64,
    /// Files that an earlier run had already written.
    pub kept: u64,
    /// Bytes of all files.
    pub total_bytes: u64,
}

/// Writes the tree below `out`, which must be absent or empty, or hold a finished or unfinished run of the same tree.
/// `progress` is called after each file with the bytes written and the bytes to write.
pub fn make(
    tree: &Tree,
    out: &Path,
    limits: &TreeLimits,
    mut progress: impl FnMut(u64, u64),
) -> Result<WrittenTree, WorkloadError> {
    let total_bytes = tree.total_bytes();
    if total_bytes > limits.bytes {
        return Err(wrong(format!(
            "the files need {total_bytes} bytes, but the limit is {}: raise the limit, or use a smaller mix or log",
            limits.bytes
        )));
    }
    std::fs::create_dir_all(out).map_err(io_error("created", out))?;
    let rows = manifest::tsv(tree);
    claim(out, &rows)?;
    let root_path = out.join(ROOT);
    let out_fd = open_directory(out)?;
    let root_fd = step_into(out_fd.as_fd(), ROOT).map_err(|errno| io_error("created", &root_path)(errno.into()))?;
    let mut place = OpenFolder::new(&root_fd);
    let mut missing = Vec::new();
    let mut kept = 0;
    for (file, bytes) in tree.files() {
        let (directory, name) = file.rsplit_once('/').unwrap_or(("", file));
        let is_there = place
            .size_of(directory, name)
            .map_err(|errno| io_error("looked at", &root_path.join(file))(errno.into()))?;
        if is_there == Some(bytes) { kept += 1 } else { missing.push((file, bytes)) }
    }
    let needed_bytes = missing.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
    let room = fs::fstatvfs(&out_fd).map_err(|errno| io_error("looked at", out)(errno.into()))?;
    let free_bytes = room.f_bavail.saturating_mul(room.f_frsize);
    if needed_bytes > free_bytes {
        return Err(wrong(format!(
            "the files need {needed_bytes} more bytes, but the file system of {} has only {free_bytes} free",
            out.display()
        )));
    }
    let written = missing.len() as u64;
    let mut done_bytes = 0;
    for (file, bytes) in missing {
        write_file(&mut place, file, bytes).map_err(io_error("written", &root_path.join(file)))?;
        done_bytes += bytes;
        progress(done_bytes, needed_bytes);
    }
    write_whole(out, NGINX_MAP, &manifest::nginx_map(tree))?;
    Ok(WrittenTree {
        root: root_path,
        manifest: out.join(MANIFEST),
        written,
        written_bytes: needed_bytes,
        kept,
        total_bytes,
    })
}

fn io_error<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> WorkloadError + 'a {
    move |cause| wrong(format!("{} cannot be {what}: {cause}", path.display()))
}

fn foreign(out: &Path) -> WorkloadError {
    wrong(format!("{} is not empty and was not written by this command: name a new or empty directory", out.display()))
}

fn claim(out: &Path, rows: &[u8]) -> Result<(), WorkloadError> {
    let path = out.join(MANIFEST);
    let is_link = path.symlink_metadata().is_ok_and(|found| !found.is_file());
    match File::open(&path) {
        _ if is_link => Err(foreign(out)),
        Ok(file) => {
            let mut found = Vec::new();
            file.take(rows.len() as u64 + 1).read_to_end(&mut found).map_err(io_error("read", &path))?;
            if found == rows {
                Ok(())
            } else if found.starts_with(manifest::FIRST_LINE) {
                let out = out.display();
                Err(wrong(format!(
                    "{out} contains the files of another workload: name another directory, or remove it first"
                )))
            } else {
                Err(foreign(out))
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            for found in std::fs::read_dir(out).map_err(io_error("read", out))? {
                // A run that was interrupted while it wrote the manifest left only this file.
                let is_ours = |name: &std::ffi::OsStr| name.to_str() == Some(&format!("{MANIFEST}{PARTIAL}"));
                if !is_ours(&found.map_err(io_error("read", out))?.file_name()) {
                    return Err(foreign(out));
                }
            }
            write_whole(out, MANIFEST, rows)
        }
        Err(error) => Err(io_error("read", &path)(error)),
    }
}

fn write_whole(out: &Path, name: &str, bytes: &[u8]) -> Result<(), WorkloadError> {
    let path = out.join(name);
    let directory = open_directory(out)?;
    write_renamed(directory.as_fd(), name, |file| file.write_all(bytes)).map_err(io_error("written", &path))
}

fn open_directory(path: &Path) -> Result<OwnedFd, WorkloadError> {
    fs::open(path, OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| io_error("opened", path)(errno.into()))
}

/// Creates the directory if needed. A symbolic link is refused (ELOOP or ENOTDIR).
fn step_into(parent: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    match fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => open_below(parent, name),
        Err(errno) => Err(errno),
    }
}

fn open_below(parent: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    fs::openat(parent, name, flags, Mode::empty())
}

fn write_renamed(directory: impl AsFd, name: &str, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let partial = format!("{name}{PARTIAL}");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(fs::openat(&directory, &partial, flags, Mode::from_raw_mode(0o644))?);
    write(&mut file)?;
    fs::renameat(&directory, &partial, &directory, name)?;
    Ok(())
}

fn write_file(place: &mut OpenFolder<'_>, file: &str, bytes: u64) -> io::Result<()> {
    let (directory, name) = file.rsplit_once('/').unwrap_or(("", file));
    let directory = place.directory(directory)?;
    write_renamed(directory, name, |out| content::write(file, bytes, out))
}

/// The last opened directory below the root. Files come in the order of their paths.
struct OpenFolder<'a> {
    root: &'a OwnedFd,
    path: String,
    fd: Option<OwnedFd>,
}

impl<'a> OpenFolder<'a> {
    fn new(root: &'a OwnedFd) -> Self {
        OpenFolder { root, path: String::new(), fd: None }
    }

    /// Creates missing parts. No part may be a symbolic link.
    fn directory(&mut self, path: &str) -> Result<std::os::fd::BorrowedFd<'_>, Errno> {
        if self.path != path || self.fd.is_none() {
            self.fd = None;
            let mut fd: Option<OwnedFd> = None;
            for part in path.split('/').filter(|part| !part.is_empty()) {
                let next = match &fd {
                    Some(parent) => step_into(parent, part)?,
                    None => step_into(self.root, part)?,
                };
                fd = Some(next);
            }
            self.fd = fd;
            self.path = path.into();
        }
        Ok(self.fd.as_ref().unwrap_or(self.root).as_fd())
    }

    /// Size of a regular file below the root; `None` if the file or its directory does not exist.
    fn size_of(&mut self, directory: &str, name: &str) -> Result<Option<u64>, Errno> {
        let directory = self.directory(directory)?;
        match fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if fs::FileType::from_raw_mode(found.st_mode).is_file() => Ok(Some(found.st_size as u64)),
            Ok(_) => Ok(None),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}
