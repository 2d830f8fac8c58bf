//! Finds the control group of --cgroup by its folder, by the name of a unit, or by the id of a container.

use crate::failure::wrong_usage;
use anyhow::Result;
use record::text::plain;
use std::path::{Path, PathBuf};

const MOST_FOLDERS: usize = 100_000;
/// Characters of a container's id that runtimes print.
const SHORT_ID: usize = 12;

pub fn found(word: &Path) -> Result<PathBuf> {
    match word.to_str() {
        Some(name) if !name.contains('/') && !word.exists() => {
            by_name(&record::machine::cgroup_mount(None).unwrap_or_else(|| "/sys/fs/cgroup".into()), name)
        }
        _ => Ok(word.to_path_buf()),
    }
}

pub fn by_name(root: &Path, name: &str) -> Result<PathBuf> {
    let mut matches = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    let mut seen = 0;
    while let Some(folder) = folders.pop().filter(|_| seen < MOST_FOLDERS) {
        seen += 1;
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                if is_named(&entry.file_name().to_string_lossy(), name) {
                    matches.push(entry.path());
                } else {
                    folders.push(entry.path());
                }
            }
        }
    }
    matches.sort();
    match matches.as_slice() {
        [one] => Ok(one.clone()),
        [] => Err(wrong_usage(format!(
            "--cgroup {}: no control group below {} has this name: give its folder, a unit (nginx, nginx.service) or \
             at least {SHORT_ID} characters of a container id",
            plain(name, 80),
            root.display()
        ))),
        [first, .., last] => Err(wrong_usage(format!(
            "--cgroup {}: {} control groups have this name, from {} to {}: give the folder of one",
            plain(name, 80),
            matches.len(),
            plain(&first.display().to_string(), 200),
            plain(&last.display().to_string(), 200)
        ))),
    }
}

/// Whether a folder has this name: `nginx.service` and `nginx.scope` are named `nginx`; `docker-ID.scope`,
/// `cri-containerd-ID.scope`, `libpod-ID.scope` and `ID` are named by the container's id.
fn is_named(folder: &str, name: &str) -> bool {
    let stem = [".service", ".scope", ".slice"].iter().find_map(|end| folder.strip_suffix(end)).unwrap_or(folder);
    let id = stem.rsplit('-').next().unwrap_or(stem);
    let is_id = name.len() >= SHORT_ID && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    folder == name || stem == name || is_id && id.starts_with(name)
}
