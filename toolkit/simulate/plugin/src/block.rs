//! A description of a block of translated code. QEMU passes 64 bits to the callback of a block, which suffice for
//! nearly all blocks. A record in memory would be slow: between two executions of a block, so much code and data of
//! the guest and the emulator passes through this machine's caches that each access to the record would miss.

use crate::attribution::{End, Role};
use crate::pages::image_page;

/// A block of translated code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block<'a> {
    /// Its function's place in the plugin's table.
    pub function: u32,
    /// The function's layer in the layer table.
    pub role: Role,
    pub instructions: u16,
    pub end: End,
    /// Whether it begins at its function's first instruction.
    pub is_first: bool,
    /// Whether its function is one by which sides are learnt.
    pub is_watched: bool,
    pub is_kernel: bool,
    /// Whether it is one repeated string instruction, executed once per element.
    pub is_repeat: bool,
    /// Address of the repeated string instruction in which it ends, whose further elements are a separate block; 0
    /// without one.
    pub repeats_at: u64,
    /// Its page as seen by the ITLB.
    pub page: u64,
    pub code: Code<'a>,
}

/// The lines of a block's code by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code<'a> {
    /// The first line, and how many follow it contiguously.
    Row(u64, u8),
    /// Each line.
    Lines(&'a [u64]),
}

/// The description of a block: bits, or the address of a record, distinguished by the lowest bits. Records are for
/// blocks that do not fit: user code, modules, and repeated string instructions with the block before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word(pub u64);

/// The block is described by the word's own bits.
const PACKED: u64 = 1;
/// The block is recorded, and is one repeated string instruction.
const REPEAT: u64 = 2;
const MARKS: u64 = PACKED | REPEAT;
const _: () = assert!(align_of::<Block<'_>>() > MARKS as usize);

/// Widths of a word's fields from the lowest bit on, after the bit that distinguishes it from an address.
const END_BITS: u32 = 2;
const FLAG_BITS: u32 = 2;
const ROLE_BITS: u32 = 5;
const INSTRUCTION_BITS: u32 = 7;
const COUNT_BITS: u32 = 3;
const LINE_BITS: u32 = 26;
const FUNCTION_BITS: u32 = 18;
const _: () =
    assert!(1 + END_BITS + FLAG_BITS + ROLE_BITS + INSTRUCTION_BITS + COUNT_BITS + LINE_BITS + FUNCTION_BITS == 64);
/// The role of a caller; others are rows.
const HELPS: u8 = (1 << ROLE_BITS) - 1;

/// Appends fields to a word, the lowest first.
struct Packer(u64, u32);

impl Packer {
    fn put(&mut self, value: u64, bits: u32) -> bool {
        self.0 |= value << self.1;
        self.1 += bits;
        value >> bits == 0
    }
}

impl Word {
    /// The word before any block.
    pub const NONE: Word = Word(PACKED);

    /// The word of a block with its lines, each of which has `1 << line_shift` bytes.
    pub fn new(block: Block<'_>, line_shift: u32) -> Word {
        let Code::Lines(lines) = block.code else { unreachable!("the maker of a block names its lines") };
        Word::packed(block, lines, line_shift).unwrap_or_else(|| {
            // It is never freed, because QEMU does not report when it drops a block.
            let code = Code::Lines(Box::leak(lines.into()));
            let record: &Block<'static> = Box::leak(Box::new(Block { code, ..block }));
            Word(std::ptr::from_ref(record) as u64 | if block.is_repeat { REPEAT } else { 0 })
        })
    }

    fn packed(block: Block<'_>, lines: &[u64], line_shift: u32) -> Option<Word> {
        let is_row = lines.windows(2).all(|pair| pair[1] == pair[0] + 1);
        let first = lines.first().copied().unwrap_or(0);
        let is_of_image = lines.is_empty() || image_page(first << line_shift) == block.page;
        if !is_row || !is_of_image || !block.is_kernel || block.is_repeat || block.repeats_at != 0 {
            return None;
        }
        let role = match block.role {
            Role::Helps => HELPS,
            Role::Names(HELPS) => return None,
            Role::Names(row) => row,
        };
        let mut packer = Packer(PACKED, 1);
        let fits = [
            packer.put(block.end as u64, END_BITS),
            packer.put(u64::from(block.is_first) | u64::from(block.is_watched) << 1, FLAG_BITS),
            packer.put(u64::from(role), ROLE_BITS),
            packer.put(u64::from(block.instructions), INSTRUCTION_BITS),
            packer.put(lines.len() as u64, COUNT_BITS),
            packer.put(first, LINE_BITS),
            packer.put(u64::from(block.function), FUNCTION_BITS),
        ];
        fits.iter().all(|fits| *fits).then_some(Word(packer.0))
    }

    /// Whether the word's own bits describe the block.
    #[inline(always)]
    pub fn is_packed(self) -> bool {
        self.0 & PACKED != 0
    }

    /// Whether the block is one repeated string instruction.
    #[inline(always)]
    pub fn is_repeat(self) -> bool {
        self.0 & MARKS == REPEAT
    }

    /// The block that is recorded elsewhere.
    ///
    /// # Safety
    /// The word must come from [`Word::new`] and must not be packed.
    #[inline(always)]
    pub unsafe fn recorded(self) -> &'static Block<'static> {
        // SAFETY: as the caller promises; records are never freed and never changed.
        unsafe { &*((self.0 & !MARKS) as *const Block<'static>) }
    }

    /// The block of a packed word.
    #[inline(always)]
    pub fn unpacked(self, line_shift: u32) -> Block<'static> {
        let mut word = self.0 >> 1;
        let mut take = |bits: u32| {
            let value = word & ((1 << bits) - 1);
            word >>= bits;
            value
        };
        let end = End::of_number(take(END_BITS) as u8);
        let flags = take(FLAG_BITS);
        let role = match take(ROLE_BITS) as u8 {
            HELPS => Role::Helps,
            row => Role::Names(row),
        };
        let instructions = take(INSTRUCTION_BITS) as u16;
        let count = take(COUNT_BITS) as u8;
        let first = take(LINE_BITS);
        Block {
            function: take(FUNCTION_BITS) as u32,
            role,
            instructions,
            end,
            is_first: flags & 1 != 0,
            is_watched: flags & 2 != 0,
            is_kernel: true,
            is_repeat: false,
            repeats_at: 0,
            page: image_page(first << line_shift),
            code: Code::Row(first, count),
        }
    }
}
