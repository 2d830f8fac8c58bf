//! What is known of a block of translated code. QEMU hands 64 bits to the callback of a block, and for nearly all
//! blocks they are the whole of it: between two executions of a block so much of the guest's and the emulator's own
//! code and data passes through this machine's caches that a record in memory would have to be waited for each time.

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
    /// It begins at its function's first instruction.
    pub is_first: bool,
    /// Of a function by which sides are learnt.
    pub is_watched: bool,
    pub is_kernel: bool,
    /// It is one repeated string instruction, executed once an element.
    pub is_repeat: bool,
    /// The address of the repeated string instruction in which it ends, of which further elements are a block of their
    /// own; 0: none.
    pub repeats_at: u64,
    /// Its page as the ITLB sees it.
    pub page: u64,
    pub code: Code<'a>,
}

/// The lines of a block's code, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code<'a> {
    /// The first, and how many follow each other.
    Row(u64, u8),
    /// Each of them.
    Lines(&'a [u64]),
}

/// All that is known of a block: itself in bits, or the address of a record of it, whose lowest bits say so. Records
/// are for blocks that do not fit: of user code, of a module, of a repeated string instruction or before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Word(pub u64);

/// The block is in the word's own bits.
const PACKED: u64 = 1;
/// It is recorded, and one repeated string instruction.
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
/// Of a role: the caller's; others are rows.
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
    /// Before any block.
    pub const NONE: Word = Word(PACKED);

    /// Of a block with its lines, each of which is `1 << line_shift` bytes long.
    pub fn new(block: Block<'_>, line_shift: u32) -> Word {
        let Code::Lines(lines) = block.code else { unreachable!("whoever makes a block names its lines") };
        Word::packed(block, lines, line_shift).unwrap_or_else(|| {
            // Never freed, as QEMU does not say when it drops a block.
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

    /// Whether the block is in the word's own bits.
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
    /// The word is of [`Word::new`] and not packed.
    #[inline(always)]
    pub unsafe fn recorded(self) -> &'static Block<'static> {
        // SAFETY: as promised; records are never freed and never changed.
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
