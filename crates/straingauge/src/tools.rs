//! `straingauge NAME` runs the program `straingauge-NAME` next to this program or in PATH, like git and cargo.

use anyhow::Context;
use record::shell::is_executable;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

pub const PREFIX: &str = "straingauge-";

/// Folders of tools, in the order of search: this program's folder, then PATH.
fn folders() -> Vec<PathBuf> {
    let own = std::env::current_exe().ok().and_then(|program| Some(program.parent()?.to_path_buf()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    own.into_iter().chain(std::env::split_paths(&path)).collect()
}

/// Whether a word can be the name of a tool: not a path, an option, or a build artefact.
fn is_name(word: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    word.starts_with(|first: char| first.is_ascii_lowercase()) && word.bytes().all(is_letter)
}

pub fn find(name: &str) -> Option<PathBuf> {
    let program = is_name(name).then(|| format!("{PREFIX}{name}"))?;
    folders().into_iter().map(|folder| folder.join(&program)).find(|file| is_executable(file))
}

pub fn names() -> BTreeSet<String> {
    let files = folders().into_iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let named =
        files.filter_map(|file| Some((file.file_name().to_str()?.strip_prefix(PREFIX)?.to_string(), file.path())));
    named.filter(|(name, file)| is_name(name) && is_executable(file)).map(|(name, _)| name).collect()
}

/// Replaces this process by the tool. Returns only the error if that fails.
pub fn exec(name: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> anyhow::Error {
    match program(name) {
        Ok(program) => {
            let failed = Command::new(&program).args(arguments).exec();
            anyhow::Error::new(failed).context(format!("{} cannot be started", program.display()))
        }
        Err(missing) => missing,
    }
}

pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    find(name).with_context(|| {
        format!("this needs the tool {PREFIX}{name}, which is neither next to this program nor in PATH: install it")
    })
}
