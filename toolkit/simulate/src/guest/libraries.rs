//! Finds the libraries that a program of the host needs, by the program's own loader.

use crate::SimulateError;
use object::read::elf::{FileHeader, ProgramHeader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Absolute paths: the loader first, then the libraries. Empty for a static program.
pub(super) fn libraries_of(program: &Path, bytes: &[u8]) -> Result<Vec<PathBuf>, SimulateError> {
    let refused = |why: String| SimulateError::NotTaken { what: program.display().to_string(), why };
    if bytes.starts_with(b"#!") {
        return Err(refused("it is a script; name its interpreter as the program, and the script with --file".into()));
    }
    let Some(loader) = loader_of(bytes).map_err(refused)? else { return Ok(Vec::new()) };
    // The loader lists instead of running the program.
    let output = Command::new(&loader)
        .arg("--list")
        .arg(program)
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .output()
        .map_err(|why| refused(format!("its loader {} does not start: {why}", loader.display())))?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(missing) = listed.lines().find(|line| line.contains("=> not found")) {
        return Err(refused(missing.trim().to_string()));
    }
    if !output.status.success() {
        return Err(refused(String::from_utf8_lossy(&output.stderr).trim().to_string()));
    }
    let mut found = vec![loader];
    // "libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x...)"
    for word in listed.split_whitespace().filter(|word| word.starts_with('/')) {
        if !found.iter().any(|library| library == Path::new(word)) {
            found.push(PathBuf::from(word));
        }
    }
    Ok(found)
}

/// The loader that an ELF program names; `None` if it is static.
fn loader_of(bytes: &[u8]) -> Result<Option<PathBuf>, String> {
    let header = object::elf::FileHeader64::<object::Endianness>::parse(bytes)
        .map_err(|_| "it is not a 64-bit program of Linux".to_string())?;
    let endian = header.endian().map_err(|why| why.to_string())?;
    let parts = header.program_headers(endian, bytes).map_err(|why| why.to_string())?;
    for part in parts {
        if let Ok(Some(name)) = part.interpreter(endian, bytes) {
            return Ok(Some(PathBuf::from(String::from_utf8_lossy(name).into_owned())));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_brings_its_loader_and_its_libraries() {
        let program = std::env::current_exe().unwrap();
        let found = libraries_of(&program, &std::fs::read(&program).unwrap()).unwrap();
        assert!(found.iter().all(|library| library.is_absolute() && library.exists()), "{found:?}");
        assert!(found.iter().any(|library| library.to_string_lossy().contains("libc.so")), "{found:?}");
    }

    #[test]
    fn a_script_is_refused() {
        let refused = |bytes: &[u8]| libraries_of(Path::new("x"), bytes).unwrap_err().to_string();
        assert!(refused(b"#!/bin/sh\n").contains("script"));
        assert!(refused(b"\x7fELF").contains("not a 64-bit program"));
        assert!(refused(b"").contains("not a 64-bit program"));
    }
}
