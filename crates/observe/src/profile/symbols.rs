//! The kernel's functions by address, from /proc/kallsyms.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

/// Maximum symbols; the largest kernels list 300,000 with all modules.
const MAX_SYMBOLS: usize = 2_000_000;
const MAX_LINE_BYTES: u64 = 1024;
const LONGEST_FUNCTION_BYTES: u64 = 1 << 20;
/// Symbols that mark the ends of sections, not functions.
const END_MARKS: [&str; 4] = ["_etext", "_einittext", "__end_rodata", "_end"];

/// A function's name and its module (`None` for built-in code).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFunction {
    /// Name in the kernel's list, including the compiler's suffixes.
    pub name: String,
    pub module: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SymbolsError {
    /// All addresses are 0.
    #[error(
        "the kernel hides its symbols (kernel.kptr_restrict = {restrict}), so no sample can be given a layer: run as \
         root with 'sysctl kernel.kptr_restrict=1', or with CAP_SYSLOG"
    )]
    Hidden { restrict: String },
    #[error("cannot read /proc/kallsyms ({0}): the kernel needs CONFIG_KALLSYMS for layers")]
    Unreadable(io::Error),
}

#[derive(Debug, Default)]
pub struct KernelSymbols {
    addresses: Vec<u64>,
    functions: Vec<KernelFunction>,
}

impl KernelSymbols {
    pub fn read() -> Result<Self, SymbolsError> {
        let file = File::open("/proc/kallsyms").map_err(SymbolsError::Unreadable)?;
        let restrict =
            || std::fs::read_to_string("/proc/sys/kernel/kptr_restrict").unwrap_or_else(|_| "unknown".into());
        Self::parse(BufReader::new(file))
            .map_err(SymbolsError::Unreadable)?
            .ok_or_else(|| SymbolsError::Hidden { restrict: restrict().trim().to_string() })
    }

    /// Reads kallsyms: `ADDRESS TYPE NAME [MODULE]`. Of several names for an address, the first is kept.
    /// `None`: all addresses are hidden.
    fn parse(mut text: impl BufRead) -> io::Result<Option<Self>> {
        let mut found: Vec<(u64, KernelFunction)> = Vec::new();
        let mut hidden = 0u64;
        let mut line = Vec::new();
        loop {
            line.clear();
            if Read::take(&mut text, MAX_LINE_BYTES).read_until(b'\n', &mut line)? == 0 || found.len() >= MAX_SYMBOLS {
                break;
            }
            match parse_line(&line) {
                Some((0, _)) => hidden += 1,
                Some(symbol) => found.push(symbol),
                None => {}
            }
        }
        if found.is_empty() {
            return if hidden > 0 {
                Ok(None)
            } else {
                Err(io::Error::new(io::ErrorKind::InvalidData, "it lists no function"))
            };
        }
        found.sort_by_key(|(address, _)| *address);
        found.dedup_by_key(|(address, _)| *address);
        let (addresses, functions) = found.into_iter().unzip();
        Ok(Some(KernelSymbols { addresses, functions }))
    }

    /// The function that contains `address`. `None` below the first function, and for generated code after the
    /// kernel's own code and outside of modules.
    pub fn at(&self, address: u64) -> Option<&KernelFunction> {
        let after = self.addresses.partition_point(|start| *start <= address);
        let index = after.checked_sub(1)?;
        let function = self.functions.get(index)?;
        // Sizes are not listed, but no function is this long.
        let is_beyond =
            address - self.addresses[index] > LONGEST_FUNCTION_BYTES || END_MARKS.contains(&function.name.as_str());
        (!is_beyond).then_some(function)
    }

    /// The address of a function of the kernel itself.
    pub fn address_of(&self, name: &str) -> Option<u64> {
        let is_it = |function: &KernelFunction| function.module.is_none() && function.name == name;
        self.functions.iter().position(is_it).map(|index| self.addresses[index])
    }

    pub fn iter(&self) -> impl Iterator<Item = &KernelFunction> {
        self.functions.iter()
    }
}

/// Parses a line if it is a function, except the padding that precedes functions on some kernels.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "ffffffff81000000 T _stext\nffffffff81000010 t __pfx_tcp_ack\nffffffff81000020 t tcp_ack\n\
        ffffffff81000020 t aliased\nffffffffc0000000 t veth_xmit\t[veth]\nffffffff82000000 D some_data\nnonsense\n";

    #[test]
    fn an_address_inside_a_function_finds_it() {
        let symbols = KernelSymbols::parse(TEXT.as_bytes()).unwrap().unwrap();
        assert_eq!(symbols.at(0xffff_ffff_8100_0025).unwrap().name, "tcp_ack");
        assert_eq!(symbols.at(0xffff_ffff_c000_0001).unwrap().module.as_deref(), Some("veth"));
        assert!(symbols.at(5).is_none());
        assert!(symbols.at(0xffff_ffff_c800_0000).is_none(), "generated code after the last module");
    }

    #[test]
    fn hidden_addresses_are_distinguished_from_an_empty_file() {
        let hidden = "0000000000000000 T _stext\n0000000000000000 t tcp_ack\n";
        assert!(KernelSymbols::parse(hidden.as_bytes()).unwrap().is_none());
        assert!(KernelSymbols::parse("".as_bytes()).is_err());
        let sentence = SymbolsError::Hidden { restrict: "2".into() }.to_string();
        assert!(sentence.contains("kptr_restrict = 2") && sentence.contains("CAP_SYSLOG"), "{sentence}");
    }

    proptest! {
        #[test]
        fn no_text_panics_the_reader(text in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = KernelSymbols::parse(text.as_slice());
        }
    }
}
