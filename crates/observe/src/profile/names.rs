//! Names addresses: those of the kernel by the kernel itself, those of the server by blazesym from its executables and
//! libraries, or /tmp/perf-PID.map of just-in-time compilers.

use crate::bpf::types::names::KernelName;
use crate::bpf::{self, Refusal};
use crate::go_file::GoFile;
use crate::maps::{self, Mapping};
use crate::memory::Memory;
use crate::processes::living_thread;
use blazesym::Pid;
use blazesym::symbolize::source::{Process, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use libbpf_rs::{Object, ProgramInput};
use record::PlainText;
use record::profile::{COMPILED, Frame};
use std::collections::{HashMap, HashSet};

/// Maximum length of a name, because C++ names may be pages long.
const MAX_NAME_CHARS: usize = 200;
/// Addresses that the kernel names at once: `NAMED_AT_ONCE` of `bpf/names.h`.
const NAMED_AT_ONCE: usize = 64;

/// Names of addresses, each looked up once.
#[derive(Debug)]
pub struct SymbolNames<'o> {
    object: Option<&'o Object>,
    kernel: HashMap<u64, Frame>,
    user: HashMap<(u32, u64), Option<Frame>>,
    symbolizer: Symbolizer,
}

impl<'o> SymbolNames<'o> {
    /// Uses the program of `bpf/names.h` in `object`; without one, functions of the kernel stay unknown.
    pub fn new(object: Option<&'o Object>) -> Self {
        SymbolNames { object, kernel: HashMap::new(), user: HashMap::new(), symbolizer: Symbolizer::new() }
    }

    /// Names a kernel stack, innermost first.
    pub fn kernel_stack(&mut self, addresses: &[u64]) -> Vec<Frame> {
        // 0 would end the program's list.
        let is_new = |address: &u64| *address != 0 && !self.kernel.contains_key(address);
        let mut new: Vec<u64> = places(addresses).filter(is_new).collect();
        new.sort_unstable();
        new.dedup();
        for some in new.chunks(NAMED_AT_ONCE) {
            let named = self.object.and_then(|object| named(object, some).ok()).unwrap_or_default();
            self.kernel.extend(named.iter().map(|one| (one.address, kernel_frame(one))));
        }
        let frame = |address: u64| self.kernel.get(&address).cloned();
        places(addresses).map(|address| frame(address).unwrap_or_else(|| unknown(true))).collect()
    }

    /// Looks up the names in a process's user stacks, while it lives.
    pub fn learn_user(&mut self, pid: u32, stacks: &[&Vec<u64>]) {
        let mut addresses: Vec<u64> = stacks.iter().flat_map(|stack| places(stack)).collect();
        addresses.sort_unstable();
        addresses.dedup();
        addresses.retain(|address| !self.user.contains_key(&(pid, *address)));
        let living = living_thread(pid);
        let source = Source::Process(Process::new(Pid::from(living)));
        let mappings = maps::of_process(living).unwrap_or_default();
        let memory = Memory::of(living);
        let first: HashSet<u64> = stacks.iter().filter_map(|stack| stack.first().copied()).collect();
        // An ended process has no map, so its frames stay unknown.
        let found = self.symbolizer.symbolize(&source, Input::AbsAddr(&addresses)).unwrap_or_default();
        let mut found = found.into_iter();
        // Go's table is read only for an address that has no symbol.
        let mut go = None;
        for address in addresses {
            // Without frame pointers, the next word on the stack may be any address.
            let is_data = mappings.iter().any(|one| !one.is_executable && one.addresses.contains(&address));
            let is_code = !is_data && (first.contains(&address) || is_after_call(memory, address + 1));
            let frame = match found.next() {
                _ if !is_code => None,
                Some(Symbolized::Sym(symbol)) => Some(Frame {
                    function: clean(&symbol.name),
                    module: symbol.module.and_then(|path| Some(clean(path.to_string_lossy().rsplit('/').next()?))),
                    is_kernel: false,
                }),
                // The address is between the symbols of a stripped file: it has Go's table, or the file's name is used.
                _ => file_at(&mappings, address).map(|file| {
                    if is_of_memory(file) {
                        return Frame { function: COMPILED.into(), module: None, is_kernel: false };
                    }
                    let go = go.get_or_insert_with(|| GoFile::open(living).and_then(|program| program.functions()));
                    let name = go.as_ref().and_then(|functions| functions.name(address));
                    let module = name.is_some().then(|| clean(file));
                    let function =
                        name.map_or_else(|| format!("[{}]", clean(file)).as_str().into(), |name| clean(&name));
                    Frame { function, module, is_kernel: false }
                }),
            };
            self.user.insert((pid, address), frame);
        }
    }

    /// Names a user stack, innermost first. Without frame pointers only the first frame is certain: the stack ends at
    /// an address outside all functions.
    pub fn user_stack(&self, pid: u32, addresses: &[u64]) -> Vec<Frame> {
        let known = |address: u64| self.user.get(&(pid, address)).cloned().flatten();
        let mut frames = Vec::new();
        let mut places = places(addresses);
        frames.extend(places.next().map(|first| known(first).unwrap_or_else(|| unknown(false))));
        frames.extend(places.map_while(known));
        frames
    }
}

/// Lets the kernel name up to [`NAMED_AT_ONCE`] addresses.
fn named(object: &Object, addresses: &[u64]) -> Result<Vec<KernelName>, Refusal> {
    let mut named = [KernelName::default(); NAMED_AT_ONCE];
    named.iter_mut().zip(addresses).for_each(|(one, address)| one.address = *address);
    bpf::set_variable(object, ".bss.named", &named)?;
    bpf::program(object, "name_addresses")?.test_run(ProgramInput::default())?;
    let mut named = bpf::variables(object, ".bss.named")?;
    named.truncate(addresses.len());
    Ok(named)
}

fn kernel_frame(named: &KernelName) -> Frame {
    let bytes: Vec<u8> = named.name.iter().map(|byte| *byte as u8).take_while(|byte| *byte != 0).collect();
    let text = String::from_utf8_lossy(&bytes);
    let (function, module) = match text.split_once(" [") {
        Some((function, module)) => (function, Some(clean(module.trim_end_matches(']')))),
        // The kernel knows its functions and its BPF programs, so this is other code compiled at run time.
        None if text.starts_with("0x") => ("bpf_jit_code", None),
        None => (&*text, None),
    };
    Frame { function: clean(function), module, is_kernel: true }
}

fn unknown(is_kernel: bool) -> Frame {
    Frame { function: "[unknown]".into(), module: None, is_kernel }
}

/// The addresses of a stack's frames, innermost first. All others are return addresses, which may be after the end of
/// a function whose last call never returns, so the preceding byte is used.
fn places(stack: &[u64]) -> impl Iterator<Item = u64> {
    stack.iter().enumerate().map(|(index, address)| if index == 0 { *address } else { address.saturating_sub(1) })
}

/// Whether the instruction before a return address is a call. If the code cannot be read, it may be one.
fn is_after_call(memory: Memory, return_address: u64) -> bool {
    const LONGEST: usize = 8;
    let Some(start) = return_address.checked_sub(LONGEST as u64) else { return false };
    let code = memory.read(&[(start, LONGEST)]).pop().unwrap_or_default();
    code.first_chunk().is_none_or(|code| ends_in_call(*code))
}

/// Whether these bytes of code end in a call: `e8` with four bytes, or `ff /2` with its operand (Intel's Software
/// Developer's Manual, volume 2, CALL).
#[cfg(target_arch = "x86_64")]
pub fn ends_in_call(code: [u8; 8]) -> bool {
    let is_indirect = |bytes: usize| code[8 - bytes] == 0xff && code[9 - bytes] >> 3 & 7 == 2;
    code[3] == 0xe8 || [2, 3, 4, 6, 7].into_iter().any(is_indirect)
}

/// Whether these bytes of code end in a call: BL, BLR, or BLR with pointer authentication (Arm Architecture Reference
/// Manual, C6.2).
#[cfg(target_arch = "aarch64")]
pub fn ends_in_call(code: [u8; 8]) -> bool {
    let word = u32::from_le_bytes([code[4], code[5], code[6], code[7]]);
    word >> 26 == 0b100101 || word & 0xffff_fc1f == 0xd63f_0000 || word & 0xfeff_f800 == 0xd63f_0800
}

fn file_at(mappings: &[Mapping], address: u64) -> Option<&str> {
    let found = mappings.iter().find(|mapping| mapping.is_executable && mapping.addresses.contains(&address))?;
    Some(found.file_name().trim_matches(['[', ']']))
}

/// Whether code is in memory of no file: anonymous memory, also with a name, or that of memfd_create(2).
fn is_of_memory(file: &str) -> bool {
    file.is_empty() || file.starts_with("anon:") || file.starts_with("memfd:") || file == "zero (deleted)"
}

fn clean(name: &str) -> PlainText {
    let clean = PlainText::new(name.trim(), MAX_NAME_CHARS);
    if clean.is_empty() { "[unknown]".into() } else { clean }
}
