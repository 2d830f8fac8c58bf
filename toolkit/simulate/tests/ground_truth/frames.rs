//! Finds the caller in the stack itself, with the tables of the kernel's own unwinder (ORC,
//! `arch/x86/kernel/unwind_orc.c`). objtool made them from the kernel's code; they tell for each instruction where
//! its frame's return address is.

use crate::gdb::{Gdb, Registers};
use simulate::SimulateError;
use simulate::kernel_types::{Btf, Variables};

/// `arch/x86/include/asm/orc_types.h` of Linux 6.1. Other versions order the bits differently.
pub const KERNEL: &str = "6.1.";
const ENTRY_BYTES: usize = 6;
const TYPE_CALL: u16 = 0;
const TYPE_REGISTERS: u16 = 1;
const TYPE_INTERRUPT_FRAME: u16 = 2;
/// Maximum number of modules; no guest loads more.
const MOST_MODULES: usize = 100;

/// `struct orc_entry`.
#[derive(Debug, Clone, Copy)]
struct Entry {
    sp_offset: i16,
    bp_offset: i16,
    flags: u16,
}

impl Entry {
    fn sp_register(self) -> u16 {
        self.flags & 15
    }

    fn bp_register(self) -> u16 {
        self.flags >> 4 & 15
    }

    fn kind(self) -> u16 {
        self.flags >> 8 & 3
    }
}

/// `ORC_REG_*`.
mod register {
    pub const PREVIOUS_SP: u16 = 1;
    pub const DX: u16 = 2;
    pub const DI: u16 = 3;
    pub const BP: u16 = 4;
    pub const SP: u16 = 5;
    pub const R10: u16 = 6;
    pub const R13: u16 = 7;
    pub const BP_INDIRECT: u16 = 8;
    pub const SP_INDIRECT: u16 = 9;
}

/// A frame, with its instruction and the registers that the unwinder knows.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    pub ip: u64,
    sp: u64,
    bp: u64,
    registers: Option<Registers>,
    /// Whether it was interrupted there or runs there. Otherwise it called.
    is_exact: bool,
    /// The start of the frame below: the address above its return address.
    pub canonical: u64,
}

impl Frame {
    /// The running frame.
    pub fn innermost(registers: Registers) -> Frame {
        let (ip, sp, bp) = (registers.ip(), registers.sp(), registers.get(Registers::BP));
        Frame { ip, sp, bp, registers: Some(registers), is_exact: true, canonical: 0 }
    }

    /// An address within the function, because a call may be its last instruction.
    pub fn within(&self) -> u64 {
        if self.is_exact { self.ip } else { self.ip.wrapping_sub(1) }
    }
}

/// All tables in ascending order of address.
pub struct Frames(Vec<(u64, Entry)>);

fn missing(what: &str) -> SimulateError {
    SimulateError::Guest(format!("the guest's kernel does not show its {what}"))
}

impl Frames {
    /// Reads the tables of the kernel and of its modules.
    pub fn read(gdb: &mut Gdb, variables: &Variables, types: &Btf) -> Result<Frames, SimulateError> {
        let mut all = Vec::new();
        let variable = |name: &str| variables.address(name).ok_or_else(|| missing(name));
        let places = variable("__start_orc_unwind_ip")?;
        let count = (variable("__stop_orc_unwind_ip")? - places) / 4;
        table(&mut all, gdb, places, variable("__start_orc_unwind")?, count)?;
        let field = |structure: &str, name: &str| types.offset(structure, name).ok_or_else(|| missing(name));
        let (list, arch) = (field("module", "list")?, field("module", "arch")?);
        let part = |name: &str| field("mod_arch_specific", name).map(|offset| arch + offset);
        let (count_at, ips_at, entries_at) = (part("num_orcs")?, part("orc_unwind_ip")?, part("orc_unwind")?);
        let head = variable("modules")?;
        let mut next = head;
        for _ in 0..MOST_MODULES {
            next = gdb.word(next)?.ok_or_else(|| missing("modules"))?;
            if next == head {
                break;
            }
            let mut word = |at: u64| gdb.word(next - list + at)?.ok_or_else(|| missing("module"));
            let (count, ips, entries) = (word(count_at)? & 0xffff_ffff, word(ips_at)?, word(entries_at)?);
            table(&mut all, gdb, ips, entries, count)?;
        }
        all.sort_by_key(|(address, _)| *address);
        Ok(Frames(all))
    }

    fn entry(&self, address: u64) -> Option<Entry> {
        let after = self.0.partition_point(|(start, _)| *start <= address);
        after.checked_sub(1).map(|index| self.0[index].1)
    }

    /// The frame above; `None` where the kernel was entered, or where the tables end.
    pub fn caller(&self, frame: &Frame, gdb: &mut Gdb) -> Result<Option<Frame>, SimulateError> {
        let Some(entry) = self.entry(frame.within()) else { return Ok(None) };
        let of = |number: usize| frame.registers.map(|registers| registers.get(number));
        let moved = |base: u64, offset: i16| base.wrapping_add_signed(i64::from(offset));
        let canonical = match entry.sp_register() {
            register::SP => Some(moved(frame.sp, entry.sp_offset)),
            register::BP => Some(moved(frame.bp, entry.sp_offset)),
            register::SP_INDIRECT => gdb.word(frame.sp)?.map(|there| moved(there, entry.sp_offset)),
            register::BP_INDIRECT => gdb.word(moved(frame.bp, entry.sp_offset))?,
            register::R10 => of(Registers::R10),
            register::R13 => of(Registers::R13),
            register::DI => of(Registers::DI),
            register::DX => of(Registers::DX),
            // The kernel's entry, or code without frames.
            _ => None,
        };
        let Some(canonical) = canonical else { return Ok(None) };
        let bp = match entry.bp_register() {
            register::PREVIOUS_SP => gdb.word(moved(canonical, entry.bp_offset))?,
            register::BP => gdb.word(moved(frame.bp, entry.bp_offset))?,
            _ => Some(frame.bp),
        };
        let Some(bp) = bp else { return Ok(None) };
        match entry.kind() {
            TYPE_CALL => {
                let ip = gdb.word(canonical.wrapping_sub(8))?;
                Ok(ip.map(|ip| Frame { ip, sp: canonical, bp, registers: None, is_exact: false, canonical }))
            }
            TYPE_REGISTERS => interrupted(canonical, gdb),
            TYPE_INTERRUPT_FRAME => {
                let (ip, sp) = (gdb.word(canonical)?, gdb.word(canonical + 24)?);
                let frame = |(ip, sp)| Frame { ip, sp, bp, registers: None, is_exact: true, canonical };
                Ok(ip.zip(sp).map(frame))
            }
            _ => Ok(None),
        }
    }
}

/// The frame whose registers (`struct pt_regs`) an interrupt stored.
fn interrupted(at: u64, gdb: &mut Gdb) -> Result<Option<Frame>, SimulateError> {
    // r15 r14 r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di orig_ax ip cs flags sp ss, as gdb numbers them.
    const PLACES: [Option<usize>; 21] = {
        let mut places = [None; 21];
        let numbers = [15, 14, 13, 12, 6, 1, 11, 10, 9, 8, 0, 2, 3, 4, 5];
        let mut index = 0;
        while index < numbers.len() {
            places[index] = Some(numbers[index]);
            index += 1;
        }
        places[16] = Some(Registers::IP);
        places[19] = Some(Registers::SP);
        places
    };
    let mut all = [0; 17];
    for (index, number) in PLACES.iter().enumerate() {
        let Some(word) = gdb.word(at + 8 * index as u64)? else { return Ok(None) };
        if let Some(number) = number {
            all[*number] = word;
        }
    }
    Ok(Some(Frame { canonical: at, ..Frame::innermost(Registers::new(all)) }))
}

fn table(
    all: &mut Vec<(u64, Entry)>,
    gdb: &mut Gdb,
    places: u64,
    entries: u64,
    count: u64,
) -> Result<(), SimulateError> {
    let ips = gdb.read(places, 4 * count)?.ok_or_else(|| missing("table of frames"))?;
    let bytes = gdb.read(entries, ENTRY_BYTES as u64 * count)?.ok_or_else(|| missing("table of frames"))?;
    for (index, (ip, entry)) in ips.chunks_exact(4).zip(bytes.chunks_exact(ENTRY_BYTES)).enumerate() {
        let distance = i32::from_le_bytes([ip[0], ip[1], ip[2], ip[3]]);
        let address = places.wrapping_add(4 * index as u64).wrapping_add_signed(distance.into());
        let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
        all.push((address, Entry { sp_offset: half(0) as i16, bp_offset: half(2) as i16, flags: half(4) }));
    }
    Ok(())
}
