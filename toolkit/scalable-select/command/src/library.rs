//! Finds libscalable-select.so and checks that it is safe to load into a server.

use anyhow::{Context, Result, bail};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The library's file name.
pub const NAME: &str = "libscalable-select.so";
/// Directories of an installation, besides those near the binary.
const FOLDERS: [&str; 3] = ["/usr/local/lib/straingauge", "/usr/lib/straingauge", "/usr/libexec/straingauge"];

/// Finds the library: the named one, or next to the binary, in an installation's lib directory, or in the build tree.
pub fn find(named: Option<&Path>) -> Result<PathBuf> {
    let candidates = match named {
        Some(path) => vec![path.to_path_buf()],
        None => candidates(&std::env::current_exe().context("cannot find this program's own file")?),
    };
    let Some(found) = candidates.iter().find(|path| path.is_file()) else {
        match named {
            Some(path) => bail!("{} does not exist: build it with make -C toolkit/scalable-select", path.display()),
            None => bail!(
                "{NAME} was not found next to this program or in {}: build it with make -C toolkit/scalable-select, or \
                 name it with --library",
                FOLDERS.join(", ")
            ),
        }
    };
    let path = found.canonicalize().with_context(|| format!("cannot resolve {}", found.display()))?;
    refuse_writable(&path)?;
    // The dynamic linker splits LD_PRELOAD at these characters and cannot quote them.
    if path.to_str().is_none_or(|text| text.contains([':', ' ', '\t', '\n'])) {
        bail!(
            "{} has a colon or a blank in its path, which LD_PRELOAD cannot contain: install it elsewhere",
            path.display()
        );
    }
    let defined = super::target::defined_by(&path)?;
    if !super::target::SELECTS.iter().all(|name| defined.contains(*name)) {
        bail!("{} is not {NAME}: it does not define select and poll for programs of this machine", path.display());
    }
    Ok(path)
}

fn candidates(binary: &Path) -> Vec<PathBuf> {
    let binary = binary.canonicalize().unwrap_or_else(|_| binary.to_path_buf());
    let mut found = Vec::new();
    if let Some(folder) = binary.parent() {
        found.push(folder.join(NAME));
        found.push(folder.join("../lib/straingauge").join(NAME));
        found.push(folder.join("../lib").join(NAME));
        // target/PROFILE/straingauge, or target/PROFILE/deps/a-test
        for up in ["../..", "../../.."] {
            found.push(folder.join(up).join("toolkit/scalable-select/build").join(NAME));
        }
    }
    found.extend(FOLDERS.iter().map(|folder| Path::new(folder).join(NAME)));
    found
}

/// Refuses a library that others can write, or replace in its directory or a parent directory, because they could run
/// code in the server.
fn refuse_writable(path: &Path) -> Result<()> {
    // SAFETY: these take no arguments and cannot fail.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    for (level, part) in path.ancestors().enumerate() {
        let meta = std::fs::metadata(part).with_context(|| format!("cannot read {}", part.display()))?;
        if level == 0 && !meta.is_file() {
            bail!("{} is not a file", part.display());
        }
        let mode = meta.mode();
        // In a directory with the sticky bit only the owner of a file can replace it.
        let is_shared = level > 0 && mode & libc::S_ISVTX != 0;
        let by_group = mode & libc::S_IWGRP != 0 && meta.gid() != 0 && meta.gid() != group;
        if !is_shared && (mode & libc::S_IWOTH != 0 || by_group) {
            bail!(
                "{} can be written by others, who could put code into the server: chmod go-w it, or use another copy",
                part.display()
            );
        }
        if meta.uid() != 0 && meta.uid() != user {
            bail!("{} belongs to another user, who could put code into the server: use your own copy", part.display());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn chmod(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("our own file");
    }

    #[test]
    fn a_library_that_others_can_write_is_refused_anywhere_in_its_path() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let folder = dir.path().join("lib");
        let file = folder.join(NAME);
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(&file, b"x").expect("a file");
        chmod(&folder, 0o755);
        chmod(&file, 0o644);
        assert!(find(Some(&file)).expect_err("no library").to_string().contains("is not libscalable-select.so"));
        chmod(&file, 0o646);
        assert!(find(Some(&file)).expect_err("writable").to_string().contains("written by others"));
        chmod(&file, 0o644);
        chmod(&folder, 0o777);
        assert!(find(Some(&file)).expect_err("writable").to_string().contains("written by others"));
        chmod(&folder, 0o755);
        let spaced = folder.join("a b.so");
        std::fs::copy(&file, &spaced).expect("a copy");
        assert!(find(Some(&spaced)).expect_err("a blank").to_string().contains("LD_PRELOAD cannot contain"));
    }

    #[test]
    fn a_missing_library_is_reported_with_the_remedy() {
        let missing = find(Some(Path::new("/nonexistent/x.so"))).expect_err("missing").to_string();
        assert!(missing.contains("make -C toolkit/scalable-select"), "{missing}");
    }
}
