//! What is known of a block of translated code, in one line of this machine's cache: what a block needs is not in the cache when it
//! begins, as the guest's own code and the emulator's pass through it, and waiting for it was a third of a block's time.

use crate::attribution::{End, Role};
use crate::exchange::Account;

/// More lines of code than this, or lines that do not follow each other, are kept elsewhere.
const MOST_IN_A_ROW: usize = u8::MAX as usize - 1;
const ELSEWHERE: u8 = u8::MAX;

/// A block of translated code and what it did since it was last settled with its account.
#[repr(align(64))]
pub struct Block {
    /// The block that came after this one the last time.
    pub next: *const Block,
    /// Its page as the ITLB sees it.
    pub page: u64,
    /// How often it ran.
    pub runs: u64,
    /// Loads and stores.
    pub reads: u64,
    pub writes: u64,
    pub function: u32,
    /// The account used last.
    pub account: u32,
    /// The number of its first line of code, or where in [`Scattered`] its lines are.
    first_line: u32,
    pub instructions: u16,
    lines: u8,
    /// The row that `account` is for.
    pub row: u8,
    pub role: Role,
    pub end: End,
    pub is_kernel: bool,
    /// It begins at its function's first instruction.
    pub is_first: bool,
    /// It is one repeated string instruction, executed once an element.
    pub is_repeat: bool,
}

const _: () = assert!(size_of::<Block>() == 64);

/// Lines of code of the few blocks that cross into another page.
#[derive(Default)]
pub struct Scattered(Vec<Box<[u64]>>);

/// Where a block's code lies: the numbers of its lines.
pub struct CodeLines {
    first: u32,
    count: u8,
}

impl Scattered {
    /// Keeps the numbers of a block's lines.
    pub fn keep(&mut self, lines: Vec<u64>) -> CodeLines {
        let is_row = lines.windows(2).all(|pair| pair[1] == pair[0] + 1) && lines.len() <= MOST_IN_A_ROW;
        match (lines.first().map(|first| u32::try_from(*first)), lines.last().map(|last| u32::try_from(*last))) {
            (None, _) => CodeLines { first: 0, count: 0 },
            (Some(Ok(first)), Some(Ok(_))) if is_row => CodeLines { first, count: lines.len() as u8 },
            _ => {
                self.0.push(lines.into_boxed_slice());
                CodeLines { first: self.0.len() as u32 - 1, count: ELSEWHERE }
            }
        }
    }
}

impl Block {
    /// A block that never ran. No account is for the row with the highest number, so the first execution looks its account up.
    pub fn new(function: u32, role: Role, end: End, instructions: u16, code: CodeLines, page: u64) -> Block {
        Block {
            next: std::ptr::null(),
            page,
            runs: 0,
            reads: 0,
            writes: 0,
            function,
            account: 0,
            first_line: code.first,
            instructions,
            lines: code.count,
            row: u8::MAX,
            role,
            end,
            is_kernel: false,
            is_first: false,
            is_repeat: false,
        }
    }

    /// For each line of its code, in order.
    #[inline(always)]
    pub fn each_line(&self, scattered: &Scattered, mut fetch: impl FnMut(u64)) {
        if self.lines != ELSEWHERE {
            for line in 0..u64::from(self.lines) {
                fetch(u64::from(self.first_line) + line);
            }
        } else if let Some(lines) = scattered.0.get(self.first_line as usize) {
            lines.iter().for_each(|line| fetch(*line));
        }
    }

    /// Moves what it counted to its account.
    pub fn settle(&mut self, account: &mut Account) {
        account.instructions += self.runs * u64::from(self.instructions);
        account.reads += self.reads;
        account.writes += self.writes;
        self.forget();
    }

    /// What it counted is gone.
    pub fn forget(&mut self) {
        (self.runs, self.reads, self.writes) = (0, 0, 0);
    }
}

/// Begins to bring a block into this machine's cache; any address will do.
#[inline(always)]
pub fn bring(block: *const Block) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which faults at no address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(block.cast(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = block;
}
