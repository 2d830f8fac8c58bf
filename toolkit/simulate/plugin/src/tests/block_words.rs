//! Tests the words in which the plugin passes blocks of code to the emulator, without an emulator.

use crate::attribution::{End, Role};
use crate::block::{Block, Code, Word};
use crate::pages::tlb_page;
use proptest::prelude::*;

/// Where the kernel's image begins.
const IMAGE: u64 = 0xffff_ffff_8000_0000;
const LINE_SHIFT: u32 = 6;

fn lines_of(block: &Block<'_>) -> Vec<u64> {
    match block.code {
        Code::Row(first, count) => (first..first + u64::from(count)).collect(),
        Code::Lines(lines) => lines.into(),
    }
}

/// Checks that the block is read back unchanged; returns whether it needed no memory.
fn survives(block: Block<'_>) -> bool {
    let word = Word::new(block, LINE_SHIFT);
    // SAFETY: a word of `Word::new` that is not packed.
    let back = if word.is_packed() { word.unpacked(LINE_SHIFT) } else { unsafe { *word.recorded() } };
    assert_eq!(lines_of(&back), lines_of(&block));
    assert_eq!(Block { code: Code::Row(0, 0), ..back }, Block { code: Code::Row(0, 0), ..block });
    assert_eq!(word.is_repeat(), block.is_repeat);
    word.is_packed()
}

/// A block of the kernel's image whose code begins in this line.
fn of_image(lines: &[u64]) -> Block<'_> {
    let page = tlb_page(IMAGE.wrapping_add(lines[0] << LINE_SHIFT));
    Block {
        function: 7,
        role: Role::Names(3),
        instructions: 5,
        end: End::Call,
        is_first: true,
        is_watched: false,
        is_kernel: true,
        is_repeat: false,
        repeats_at: 0,
        page,
        code: Code::Lines(lines),
    }
}

#[test]
fn code_of_the_kernels_image_needs_no_memory() {
    assert!(survives(of_image(&[0x4_0001])));
    assert!(survives(of_image(&[0x4_0001, 0x4_0002])));
    assert!(survives(Block { role: Role::Helps, ..of_image(&[1]) }));
    assert!(survives(Block { role: Role::Names(30), ..of_image(&[1]) }));
    assert!(survives(Block { is_first: false, is_watched: true, end: End::InterruptReturn, ..of_image(&[1]) }));
}

#[test]
fn large_blocks_are_kept_elsewhere() {
    let row: Vec<u64> = (100..140).collect();
    assert!(!survives(of_image(&row)), "too many lines");
    assert!(!survives(of_image(&[63, 1000])), "lines that do not follow each other");
    assert!(!survives(Block { role: Role::Names(31), ..of_image(&[1]) }), "too many rows");
    assert!(!survives(Block { instructions: 128, ..of_image(&[1]) }), "too many instructions");
    assert!(!survives(Block { function: 1 << 18, ..of_image(&[1]) }), "too many functions");
    assert!(!survives(of_image(&[1 << 26])), "beyond the image");
    assert!(!survives(Block { page: tlb_page(0xffff_ffff_c000_0000), ..of_image(&[1]) }), "a module's");
    assert!(!survives(Block { is_kernel: false, page: 0x40_0000, ..of_image(&[1]) }), "user code");
    assert!(!survives(Block { is_repeat: true, ..of_image(&[1]) }), "two in one line would be one word");
}

proptest! {
    #[test]
    fn any_block_is_read_back_unchanged(
        first in any::<u64>().prop_map(|line| line >> 7), count in 0_u64..40, gap in 0_u64..2, function in any::<u32>(),
        instructions in any::<u16>(), role in proptest::option::of(0_u8..40), end in 0_usize..4,
        flags in any::<[bool; 5]>(), is_of_image in any::<bool>(),
    ) {
        let first = first >> if is_of_image { 40 } else { 0 };
        let lines: Vec<u64> = (0..count).map(|index| first + index + index / 3 * gap).collect();
        let at = lines.first().copied().unwrap_or(0) << LINE_SHIFT;
        survives(Block {
            function: function >> 8,
            role: role.map_or(Role::Helps, Role::Names),
            instructions,
            end: [End::Call, End::Return, End::InterruptReturn, End::Jump][end],
            is_first: flags[0],
            is_watched: flags[1],
            is_kernel: flags[2],
            is_repeat: flags[3],
            repeats_at: u64::from(flags[4]),
            page: if is_of_image { tlb_page(IMAGE.wrapping_add(at)) } else { at },
            code: Code::Lines(&lines),
        });
    }
}
