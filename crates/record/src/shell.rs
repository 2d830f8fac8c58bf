//! Quotes words for a shell, and finds programs like a shell.

use std::borrow::Cow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Folders with servers and administration tools that may be missing from PATH.
const ADMINISTRATOR: [&str; 2] = ["/usr/sbin", "/sbin"];

/// A word for a shell, quoted if necessary.
pub fn quoted(word: &str) -> Cow<'_, str> {
    // shlex would also quote `=`, `,` and `%`, which have no meaning in an argument.
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,+@%".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return Cow::Borrowed(word);
    }
    // Only a zero byte cannot be quoted, and no program's argument has one.
    shlex::try_quote(word).unwrap_or_else(|_| Cow::Owned(word.escape_debug().to_string()))
}

/// Words as one line for a shell.
pub fn joined<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    words.into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

/// The words of such a line; none if a quotation has no end.
pub fn split(line: &str) -> Vec<String> {
    shlex::split(line).unwrap_or_default()
}

/// The words of a command without some options, up to `--`: whether the option has a value, for an option that goes.
pub fn without(words: &[String], goes: impl Fn(&str) -> Option<bool>) -> Vec<String> {
    let (own, rest) = words.split_at(words.iter().position(|word| word == "--").unwrap_or(words.len()));
    let mut is_value = false;
    let stays = |word: &&String| {
        if std::mem::take(&mut is_value) {
            return false;
        }
        let (name, has_own_value) = word.split_once('=').map_or((word.as_str(), false), |(name, _)| (name, true));
        let option = goes(name);
        is_value = option == Some(true) && !has_own_value;
        option.is_none()
    };
    own.iter().filter(stays).chain(rest).cloned().collect()
}

/// Finds a program like a shell: the file itself if its name has a slash, else the first executable file of that name
/// in PATH or the administration folders.
pub fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(ADMINISTRATOR.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| is_executable(file))
}

/// Whether this is a file that may be executed.
pub fn is_executable(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
