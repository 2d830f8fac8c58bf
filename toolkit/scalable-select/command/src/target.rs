//! Inspects a program's file before scalable select starts it, without running it.

use anyhow::{Context, Result, anyhow, bail};
use object::read::elf::{Dyn, ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSymbol, elf};
use std::collections::{BTreeSet, VecDeque};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Maximum size of a program or library that is read.
const MAX_FILE_BYTES: u64 = 1 << 30;
/// Maximum length of a chain of scripts whose interpreter is a script.
const MAX_INTERPRETERS: usize = 4;
const MAX_LIBRARIES: usize = 200;
/// The functions that the library replaces.
pub const SELECTS: [&str; 8] =
    ["select", "pselect", "poll", "ppoll", "__select", "__poll", "__poll_chk", "__ppoll_chk"];
const SHELLS: [&str; 5] = ["sh", "bash", "ksh", "mksh", "zsh"];
const EPOLLS: [&str; 3] = ["epoll_wait", "epoll_pwait", "epoll_pwait2"];

/// Why the library does not apply to a program.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Hindrance {
    /// It has no dynamic linker, so nothing can be preloaded.
    #[error("{0} is statically linked, so no library can be preloaded; use a dynamically linked build")]
    Static(String),
    /// The Go runtime makes its own system calls.
    #[error("{0} is a Go program: it makes system calls without the C library, and uses epoll already")]
    Go(String),
    /// The dynamic linker ignores LD_PRELOAD.
    #[error("{0} runs with another user's privileges ({1}): the dynamic linker ignores preloaded libraries there")]
    Privileged(String, &'static str),
    /// It waits only with epoll.
    #[error("{0} imports epoll_wait and neither select nor poll: it scales with cold connections already")]
    Epoll(String),
    /// It never waits for several descriptors.
    #[error(
        "{0} and its libraries import neither select nor poll, so there is no call to replace. If it only starts the \
         server, let it start straingauge scale: WRAPPER ... straingauge scale -- SERVER ..."
    )]
    NoImport(String),
    /// Another C library's dynamic linker starts it.
    #[error(
        "{0} is started by {1}, not by the GNU C library's dynamic linker: the library works with that C library only"
    )]
    OtherLibc(String, String),
    /// It has 64 bits, but the library is for another architecture.
    #[error("{0} is not a 64-bit program of this machine's architecture: the library cannot be loaded into it")]
    OtherMachine(String),
    /// It is neither ELF nor a script.
    #[error("{0} is neither an ELF program nor a script that names its interpreter")]
    NotAProgram(String),
}

/// The result of inspecting a program that the library may apply to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The file that is finally executed: for a script, the interpreter.
    pub program: PathBuf,
    /// Replaced functions that the program or its libraries import.
    pub imports: BTreeSet<String>,
    /// Reasons why the library may still have no effect.
    pub notes: Vec<String>,
}

/// Finds the server's program, or the program that runs a script.
pub fn find_program(name: &str) -> Result<PathBuf> {
    record::shell::find_program(name).ok_or_else(|| {
        if name.contains('/') {
            anyhow!("the server '{name}' was not found: is the path right?")
        } else {
            anyhow!("the server '{name}' was not found in PATH: is it installed, and spelt right?")
        }
    })
}

/// The functions that a dynamic object defines; empty if it is no object for this machine.
pub fn defined_by(path: &Path) -> Result<BTreeSet<String>> {
    let bytes = read(path)?;
    let Ok(file) = ElfFile64::<Endianness>::parse(&*bytes) else { return Ok(BTreeSet::new()) };
    if file.elf_header().e_machine(file.endian()) != machine() || file.elf_header().e_type(file.endian()) != elf::ET_DYN
    {
        return Ok(BTreeSet::new());
    }
    let defined = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
    Ok(defined.filter_map(|symbol| symbol.name().ok().map(str::to_string)).collect())
}

/// Inspects the program. `Err(Hindrance)` inside `Ok` is an answer, not a failure.
pub fn inspect(path: &Path) -> Result<Result<Target, Hindrance>> {
    let mut program = path.to_path_buf();
    let mut bytes = read(&program)?;
    for _ in 0..MAX_INTERPRETERS {
        let Some(interpreter) = interpreter_of(&bytes) else { break };
        program = find_program(&interpreter)
            .with_context(|| format!("{} is a script whose interpreter does not exist", path.display()))?;
        bytes = read(&program)?;
    }
    let name = program.display().to_string();
    if let Some(how) = privilege(&program)? {
        return Ok(Err(Hindrance::Privileged(name, how)));
    }
    let Ok(file) = ElfFile64::<Endianness>::parse(&*bytes) else {
        let is_elf = bytes.starts_with(&elf::ELFMAG);
        return Ok(Err(if is_elf { Hindrance::OtherMachine(name) } else { Hindrance::NotAProgram(name) }));
    };
    if file.elf_header().e_machine(file.endian()) != machine() {
        return Ok(Err(Hindrance::OtherMachine(name)));
    }
    if file.section_by_name(".go.buildinfo").is_some() || file.section_by_name(".note.go.buildid").is_some() {
        return Ok(Err(Hindrance::Go(name)));
    }
    let mut headers = file.elf_program_headers().iter();
    let Some(linker) = headers.find_map(|header| header.interpreter(file.endian(), file.data()).ok().flatten()) else {
        return Ok(Err(Hindrance::Static(name)));
    };
    let linker = String::from_utf8_lossy(linker).into_owned();
    if !Path::new(&linker).file_name().is_some_and(|file| file.to_string_lossy().starts_with("ld-linux")) {
        return Ok(Err(Hindrance::OtherLibc(name, linker)));
    }
    let mut found = judge(program, name, &file);
    if let Ok(target) = &mut found
        && !is_system_linker(&linker)
    {
        target.notes.push(format!(
            "it is started by {linker}, not by this system's dynamic linker: if its C library is older than this \
             system's, it cannot start with the library"
        ));
    }
    Ok(found)
}

/// The dynamic linker of the C library that the library was built for.
fn is_system_linker(path: &str) -> bool {
    let same = |system: &str| {
        std::fs::canonicalize(path).ok().is_some_and(|real| std::fs::canonicalize(system).ok() == Some(real))
    };
    ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"].into_iter().any(same)
}

fn judge(program: PathBuf, name: String, file: &ElfFile64<'_>) -> Result<Target, Hindrance> {
    let mut all = imports_of(file);
    // $ORIGIN is the directory of the program's real file; for a library, the directory in which it was found.
    let real = program.canonicalize().unwrap_or_else(|_| program.clone());
    let mut queue: VecDeque<(String, Folders)> = needed_by(file, &real, &[]).into();
    let mut seen = BTreeSet::new();
    let mut missing = Vec::new();
    while let Some((library, folders)) = queue.pop_front() {
        // The C library and its parts define these functions; their own imports do not count.
        let is_libc = ["libc.so", "libm.so", "libpthread.so", "ld-linux", "libdl.so", "librt.so"];
        if is_libc.iter().any(|prefix| library.starts_with(prefix)) || seen.len() >= MAX_LIBRARIES {
            continue;
        }
        if !seen.insert(library.clone()) {
            continue;
        }
        let Some((path, bytes)) = find_library(&library, &folders) else {
            missing.push(library);
            continue;
        };
        if let Ok(file) = ElfFile64::<Endianness>::parse(&*bytes) {
            all.extend(imports_of(&file));
            queue.extend(needed_by(&file, &path, &folders.inherited));
        }
    }
    let pick = |names: &[&str]| -> BTreeSet<String> {
        names.iter().filter(|name| all.contains(**name)).map(|name| (*name).to_string()).collect()
    };
    let imports = pick(&SELECTS);
    let epolls = pick(&EPOLLS);
    let loads_modules = all.contains("dlopen");
    let mut notes = Vec::new();
    if imports.is_empty() && !loads_modules && missing.is_empty() {
        return Err(if epolls.is_empty() { Hindrance::NoImport(name) } else { Hindrance::Epoll(name) });
    }
    if imports.is_empty() && loads_modules {
        notes.push("it imports neither select nor poll itself, but it loads modules that may".to_string());
    }
    if imports.is_empty() && !missing.is_empty() {
        notes.push(format!(
            "it imports neither select nor poll itself, but {} was not found and may: is LD_LIBRARY_PATH the server's?",
            missing.join(", ")
        ));
    }
    if program.file_name().is_some_and(|file| SHELLS.iter().any(|shell| file == *shell)) {
        notes.push(
            "it is a shell: the programs that it starts also get the library, and were not checked; to check them, \
             let the shell start straingauge scale -- SERVER ..."
                .to_string(),
        );
    }
    if !epolls.is_empty() {
        notes.push(
            "it can use epoll as well: the library has an effect only while it is configured to use select or poll"
                .to_string(),
        );
    }
    Ok(Target { program, imports, notes })
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let file = std::fs::File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        bail!("{} is not a file: name the server's program", path.display());
    }
    if meta.len() > MAX_FILE_BYTES {
        bail!("{} has more than {MAX_FILE_BYTES} bytes: is it the server's program?", path.display());
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(bytes)
}

/// The interpreter in a script's first line; for env(1), the program that it searches for.
fn interpreter_of(bytes: &[u8]) -> Option<String> {
    let line = bytes.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line.get(..line.len().min(255))?).ok()?;
    let mut words = line.split_ascii_whitespace();
    let first = words.next()?;
    if Path::new(first).file_name()? == "env" {
        return words.find(|word| !word.starts_with('-') && !word.contains('=')).map(str::to_string);
    }
    Some(first.to_string())
}

/// How the program gets privileges that its caller lacks, if it does.
fn privilege(path: &Path) -> Result<Option<&'static str>> {
    let meta = std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    if meta.mode() & libc::S_ISUID != 0 {
        return Ok(Some("set-user-id"));
    }
    if meta.mode() & libc::S_ISGID != 0 && meta.mode() & libc::S_IXGRP != 0 {
        return Ok(Some("set-group-id"));
    }
    let name = std::ffi::CString::new(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()))?;
    // SAFETY: both strings end with a zero byte. No buffer is given, so only the size is returned.
    let size = unsafe { libc::getxattr(name.as_ptr(), c"security.capability".as_ptr(), std::ptr::null_mut(), 0) };
    Ok((size > 0).then_some("file capabilities"))
}

fn machine() -> u16 {
    if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 }
}

fn imports_of(file: &ElfFile64<'_>) -> BTreeSet<String> {
    file.dynamic_symbols()
        .filter(|symbol| symbol.is_undefined())
        .filter_map(|symbol| symbol.name().ok().map(str::to_string))
        .collect()
}

/// Where the dynamic linker searches for the libraries of an object before the system's directories (ld.so(8)).
#[derive(Clone)]
struct Folders {
    /// DT_RPATH of the object and of those that need it, which also applies to the libraries of its libraries.
    inherited: Vec<PathBuf>,
    /// DT_RUNPATH of the object, which applies only to the object and replaces DT_RPATH.
    own: Vec<PathBuf>,
}

/// The libraries that an object needs (DT_NEEDED), and where to search for them. `inherited` comes from the objects
/// that need it.
fn needed_by(file: &ElfFile64<'_>, path: &Path, inherited: &[PathBuf]) -> Vec<(String, Folders)> {
    let origin = path.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
    let folders_of = |tag: u32| -> Vec<PathBuf> {
        let lists = dynamic_strings(file, tag).into_iter();
        lists
            .map(|list| list.replace("$ORIGIN", &origin).replace("${ORIGIN}", &origin))
            .flat_map(|list| list.split(':').map(PathBuf::from).collect::<Vec<_>>())
            .collect()
    };
    let own = folders_of(elf::DT_RUNPATH);
    let rpath = if own.is_empty() { folders_of(elf::DT_RPATH) } else { Vec::new() };
    let folders = Folders { inherited: [&rpath, inherited].concat(), own };
    dynamic_strings(file, elf::DT_NEEDED).into_iter().map(|name| (name, folders.clone())).collect()
}

/// The strings that entries of one kind in the dynamic table name. An inconsistent table names none.
fn dynamic_strings(file: &ElfFile64<'_>, tag: u32) -> Vec<String> {
    let (endian, data) = (file.endian(), file.data());
    let segments = file.elf_program_headers();
    let Some(table) = segments.iter().find_map(|segment| segment.dynamic(endian, data).ok().flatten()) else {
        return Vec::new();
    };
    let value_of =
        |tag: u32| table.iter().find(|entry| entry.d_tag(endian) == u64::from(tag)).map(|entry| entry.d_val(endian));
    let (Some(address), Some(size)) = (value_of(elf::DT_STRTAB), value_of(elf::DT_STRSZ)) else { return Vec::new() };
    let strings = segments.iter().find_map(|segment| segment.data_range(endian, data, address, size).ok().flatten());
    let Some(strings) = strings else { return Vec::new() };
    table
        .iter()
        .filter(|entry| entry.d_tag(endian) == u64::from(tag))
        .filter_map(|entry| strings.get(usize::try_from(entry.d_val(endian)).ok()?..)?.split(|byte| *byte == 0).next())
        .filter_map(|name| std::str::from_utf8(name).ok().map(str::to_string))
        .collect()
}

/// Finds a library in the way of the dynamic linker, which skips files of other machines.
fn find_library(name: &str, folders: &Folders) -> Option<(PathBuf, Vec<u8>)> {
    let system = [
        "/lib/x86_64-linux-gnu",
        "/usr/lib/x86_64-linux-gnu",
        "/lib/aarch64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu",
        "/lib64",
        "/usr/lib64",
        "/lib",
        "/usr/lib",
        "/usr/local/lib",
    ];
    let variable = std::env::var_os("LD_LIBRARY_PATH").filter(|value| !value.is_empty());
    let mut paths = Vec::new();
    if name.contains('/') {
        paths.push(PathBuf::from(name));
    } else {
        // An object with RUNPATH has no RPATH and inherits none.
        let before = if folders.own.is_empty() { folders.inherited.as_slice() } else { &[] };
        paths.extend(before.iter().map(|folder| folder.join(name)));
        paths.extend(variable.iter().flat_map(std::env::split_paths).map(|folder| folder.join(name)));
        paths.extend(folders.own.iter().map(|folder| folder.join(name)));
        paths.extend(system.iter().map(|folder| Path::new(folder).join(name)));
    }
    paths.into_iter().filter(|path| path.is_file()).find_map(|path| {
        let bytes = read(&path).ok()?;
        let file = ElfFile64::<Endianness>::parse(&*bytes).ok()?;
        (file.elf_header().e_machine(file.endian()) == machine()).then_some(())?;
        Some((path, bytes))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_are_found_behind_env_and_its_options() {
        assert_eq!(interpreter_of(b"#!/bin/sh -e\nexit\n").as_deref(), Some("/bin/sh"));
        assert_eq!(interpreter_of(b"#! /usr/bin/env -S A=1 python3 -u\n").as_deref(), Some("python3"));
        assert_eq!(interpreter_of(b"#!/usr/bin/env python3").as_deref(), Some("python3"));
        for not_a_script in [&b"#!"[..], b"#!\n", b"", b"\x7fELF", b"#!\xff\xfe\n", b"#!/usr/bin/env\n"] {
            assert_eq!(interpreter_of(not_a_script), None);
        }
    }

    #[test]
    fn damaged_programs_are_refused_or_judged_without_a_panic() {
        let whole = std::fs::read(std::env::current_exe().expect("a test program")).expect("readable");
        let dir = tempfile::tempdir().expect("a temporary folder");
        let path = dir.path().join("damaged");
        let mut random: u64 = 1;
        for round in 0..200 {
            let mut bytes = whole[..whole.len().min(64 << 10)].to_vec();
            for _ in 0..round % 40 + 1 {
                random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let at = (random >> 33) as usize % bytes.len().min(4096);
                bytes[at] = (random >> 20) as u8;
            }
            std::fs::write(&path, &bytes).expect("written");
            let _ = inspect(&path);
        }
    }
}
