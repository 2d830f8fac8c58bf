//! A Go program in a process: its sections, and its own table of functions, which stripped programs have too
//! (runtime/symtab.go, cmd/link/internal/ld/pcln.go).

use crate::maps;
use crate::memory::{Memory, word};
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSegment};
use std::fs::File;
use std::ops::Range;

/// The first words of the table, from Go 1.18 and from 1.20 on, and the size of an address.
const VERSIONS: [u32; 2] = [0xffff_fff0, 0xffff_fff1];
const ADDRESS_BYTES: u8 = 8;
/// Words of the table's header: the number of functions, the offsets of their names and of their entries.
const COUNT: usize = 1;
const NAMES: usize = 4;
const ENTRIES: usize = 8;
/// Words of the description of a program (`moduledata`), which begins with the table's address, up to the address of
/// its code.
const TO_CODE: usize = 22;
const LONGEST_NAME: usize = 200;
/// Maximum bytes of variables that are searched.
const MOST_VARIABLES: u64 = 64 << 20;

#[derive(Debug)]
pub struct GoFile {
    memory: Memory,
    /// Name, address in the process, size.
    sections: Vec<(String, u64, u64)>,
}

impl GoFile {
    /// The program of a thread's process; none if it is not of Go.
    pub fn open(tid: u32) -> Option<GoFile> {
        let path = format!("/proc/{tid}/exe");
        let cache = ReadCache::new(File::open(&path).ok()?);
        let elf = object::File::parse(&cache).ok()?;
        elf.sections().find(|section| section.name().is_ok_and(is_table))?;
        let first = elf.segments().find(|segment| segment.file_range().0 == 0)?.address();
        let program = std::fs::read_link(&path).ok()?;
        let mappings = maps::of_process(tid).ok()?;
        let mapped = mappings.iter().find(|one| one.offset == 0 && program.as_os_str() == one.path.as_str())?;
        let moved = mapped.addresses.start.checked_sub(first)?;
        let sections = elf.sections().filter_map(|section| {
            Some((section.name().ok()?.to_string(), section.address().checked_add(moved)?, section.size()))
        });
        Some(GoFile { memory: Memory::of(tid), sections: sections.collect() })
    }

    /// Address and size of a section.
    fn section(&self, name: &str) -> Option<(u64, u64)> {
        self.sections.iter().find(|(of, ..)| of == name).map(|(_, address, bytes)| (*address, *bytes))
    }

    /// Address and words of a section.
    pub fn variables(&self, name: &str) -> Option<(u64, Vec<u64>)> {
        let (address, bytes) = self.section(name).filter(|(_, bytes)| *bytes <= MOST_VARIABLES)?;
        Some((address, self.memory.words(address, bytes as usize / 8)?))
    }

    /// The program's table of functions.
    pub fn functions(&self) -> Option<GoFunctions> {
        let (_, table, _) = self.sections.iter().find(|(name, ..)| is_table(name))?;
        let (start, bytes) = self.section(".text")?;
        let code = [".go.module", ".noptrdata", ".data"].into_iter().find_map(|name| {
            let (_, words) = self.variables(name)?;
            let module = words.iter().position(|word| word == table)?;
            words.get(module + TO_CODE).copied()
        })?;
        let end = start.checked_add(bytes)?;
        (start..end).contains(&code).then(|| GoFunctions::read(self.memory, *table, code..end))?
    }
}

fn is_table(name: &str) -> bool {
    name.ends_with(".gopclntab")
}

/// Addresses in the process.
#[derive(Debug)]
pub struct GoFunctions {
    memory: Memory,
    code: Range<u64>,
    count: u64,
    names: u64,
    /// For each function, by address: its offset in the code, and the offset of its description from here.
    entries: u64,
}

impl GoFunctions {
    /// Reads the table at this address, of functions in `code`.
    pub fn read(memory: Memory, table: u64, code: Range<u64>) -> Option<GoFunctions> {
        let header = memory.words(table, ENTRIES + 1)?;
        let first = header[0].to_le_bytes();
        let is_known = VERSIONS.contains(&u32::from_le_bytes(*first.first_chunk()?)) && first[7] == ADDRESS_BYTES;
        let (names, entries) = (table.wrapping_add(header[NAMES]), table.wrapping_add(header[ENTRIES]));
        is_known.then_some(GoFunctions { memory, code, count: header[COUNT], names, entries })
    }

    /// The name of the function at an address.
    pub fn name(&self, address: u64) -> Option<String> {
        let into = u32::try_from(address.checked_sub(self.code.start)?).ok().filter(|_| address < self.code.end)?;
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.entry(middle)?[0] <= into { low = middle + 1 } else { high = middle }
        }
        let [_, description] = self.entry(low.checked_sub(1)?)?;
        let [_, name] = self.pair(self.entries.checked_add(u64::from(description))?)?;
        let bytes = self.memory.read(&[(self.names.checked_add(u64::from(name))?, LONGEST_NAME)]).pop()?;
        let name = bytes.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
        Some(String::from_utf8_lossy(name).into_owned())
    }

    fn entry(&self, index: u64) -> Option<[u32; 2]> {
        self.pair(self.entries.checked_add(index.checked_mul(8)?)?)
    }

    fn pair(&self, at: u64) -> Option<[u32; 2]> {
        let bytes = word(&self.memory.read(&[(at, 8)]).pop()?, 0)?.to_ne_bytes();
        let [first, second] = *bytes.as_chunks::<4>().0 else { return None };
        Some([first, second].map(u32::from_ne_bytes))
    }
}
