//! The kernel's list of its functions, /proc/kallsyms. Printing all of it takes the kernel 40 ms, so it is read only
//! up to what is wanted; the kernel names single addresses itself ([`super::names`]).

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

const PATH: &str = "/proc/kallsyms";
/// Maximum lines; the largest kernels list 300,000 with all modules.
const MAX_LINES: usize = 2_000_000;
const MAX_LINE_BYTES: u64 = 1024;

/// A function's name and its module (`None` for built-in code).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFunction {
    /// Name in the kernel's list, including the compiler's suffixes.
    pub name: String,
    pub module: Option<String>,
}

/// All functions of the kernel and its modules.
pub fn functions() -> io::Result<Vec<KernelFunction>> {
    let all = parse(BufReader::new(File::open(PATH)?))?;
    if all.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it lists no function"));
    }
    Ok(all)
}

pub fn parse(text: impl BufRead) -> io::Result<Vec<KernelFunction>> {
    let mut all = Vec::new();
    first(text, |line| {
        all.extend(parse_line(line).map(|(_, function)| function));
        None::<()>
    })?;
    Ok(all)
}

/// The address of a function of the kernel itself. `None` if there is none, or addresses are hidden.
pub fn address_of(name: &str) -> Option<u64> {
    address_in(BufReader::new(File::open(PATH).ok()?), name)
}

pub fn address_in(text: impl BufRead, name: &str) -> Option<u64> {
    let is_it = |function: &KernelFunction| function.module.is_none() && function.name == name;
    let found = first(text, |line| {
        let may_be = line.trim_ascii_end().ends_with(name.as_bytes());
        may_be.then(|| parse_line(line)).flatten().filter(|(_, function)| is_it(function))
    });
    found.ok()?.map(|(address, _)| address).filter(|address| *address != 0)
}

/// The first value that `take` returns for a line.
fn first<T>(mut text: impl BufRead, mut take: impl FnMut(&[u8]) -> Option<T>) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    for _ in 0..MAX_LINES {
        line.clear();
        if Read::take(&mut text, MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let taken = take(&line);
        if taken.is_some() {
            return Ok(taken);
        }
    }
    Ok(None)
}

/// Parses a line, `ADDRESS TYPE NAME [MODULE]`, if it is a function, except the padding that precedes functions on
/// some kernels.
fn parse_line(line: &[u8]) -> Option<(u64, KernelFunction)> {
    // The second word shows that most lines are data; skip them early.
    let (address, rest) = line.split_at_checked(line.iter().position(|byte| *byte == b' ')?)?;
    let [b' ', b't' | b'T' | b'w' | b'W', b' ', name @ ..] = rest else { return None };
    if name.starts_with(b"__pfx_") || name.starts_with(b"__cfi_") {
        return None;
    }
    let address = u64::from_str_radix(std::str::from_utf8(address).ok()?, 16).ok()?;
    let name = std::str::from_utf8(name.trim_ascii()).ok().filter(|name| !name.is_empty())?;
    let (name, module) = name.split_once('\t').map_or((name, None), |(name, module)| (name, Some(module)));
    let module = module.map(|module| module.trim_matches(['[', ']']).to_string());
    Some((address, KernelFunction { name: name.to_string(), module }))
}
