//! Shadow stacks hold, for each open call, the address of its return address and the row that the caller worked for.

use std::collections::HashMap;

/// Kernel stacks of x86-64, including those of interrupts, are aligned blocks of this size (`THREAD_SIZE`).
const BLOCK_SHIFT: u32 = 14;
/// Maximum depth of calls that are followed. Helpers of deeper calls are charged like those of the deepest followed
/// call.
const DEEPEST: usize = 256;

/// All stacks of the guest's kernel. Tasks come and go and their blocks are reused, so the guest's memory bounds the
/// number of stacks.
#[derive(Debug, Default)]
pub struct Stacks {
    by_block: HashMap<u64, usize>,
    stacks: Vec<Vec<(u64, u8)>>,
}

/// The stack that a processor uses now.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cursor {
    current: Option<(u64, usize)>,
    /// The row of its innermost open call.
    top: Option<u8>,
}

impl Cursor {
    /// The row that the caller of the innermost open call worked for.
    #[inline(always)]
    pub fn top(&self) -> Option<u8> {
        self.top
    }
}

/// The memory block of an address, if it is on a stack.
#[inline(always)]
pub fn block_of(address: u64) -> u64 {
    address >> BLOCK_SHIFT
}

impl Stacks {
    /// The stack at an address, without the calls at or below the address.
    #[inline(always)]
    fn stack(&mut self, cursor: &mut Cursor, address: u64) -> &mut Vec<(u64, u8)> {
        let block = block_of(address);
        let index = match cursor.current {
            Some((current, index)) if current == block => index,
            _ => self.find(cursor, block),
        };
        let stack = &mut self.stacks[index];
        while stack.last().is_some_and(|(slot, _)| *slot <= address) {
            stack.pop();
        }
        stack
    }

    #[inline(never)]
    fn find(&mut self, cursor: &mut Cursor, block: u64) -> usize {
        let index = *self.by_block.entry(block).or_insert_with(|| {
            self.stacks.push(Vec::with_capacity(DEEPEST));
            self.stacks.len() - 1
        });
        cursor.current = Some((block, index));
        index
    }

    /// A call stores its return address at `address` while it works for `row`.
    #[inline]
    pub fn push(&mut self, cursor: &mut Cursor, address: u64, row: u8) {
        let stack = self.stack(cursor, address);
        if stack.len() < DEEPEST {
            stack.push((address, row));
        }
        cursor.top = stack.last().map(|(_, row)| *row);
    }

    /// A return loads its address from `address`, which ends this call and all deeper ones.
    #[inline]
    pub fn pop(&mut self, cursor: &mut Cursor, address: u64) {
        let stack = self.stack(cursor, address);
        cursor.top = stack.last().map(|(_, row)| *row);
    }

    /// Whether the stack at this address has had calls.
    pub fn has(&self, address: u64) -> bool {
        self.by_block.contains_key(&block_of(address))
    }

    /// Where the innermost open call stored its return address.
    #[inline]
    pub fn top_slot(&self, cursor: &Cursor) -> Option<u64> {
        cursor.current.and_then(|(_, index)| self.stacks[index].last()).map(|(slot, _)| *slot)
    }

    /// The innermost open call continues on behalf of `row`: its function jumped to another (a tail call).
    #[inline(never)]
    pub fn set_top(&mut self, cursor: &mut Cursor, row: u8) {
        if let Some((_, index)) = cursor.current
            && let Some(last) = self.stacks[index].last_mut()
        {
            last.1 = row;
            cursor.top = Some(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TASK: u64 = 0xffff_c900_0000_4000;
    const IRQ: u64 = 0xffff_c900_0010_4000;

    #[test]
    fn returns_remove_the_frames_of_calls() {
        let (mut stacks, mut cursor) = (Stacks::default(), Cursor::default());
        assert_eq!(cursor.top(), None);
        stacks.push(&mut cursor, TASK - 8, 1);
        stacks.push(&mut cursor, TASK - 64, 2);
        assert_eq!(cursor.top(), Some(2));
        stacks.pop(&mut cursor, TASK - 64);
        assert_eq!(cursor.top(), Some(1));
        stacks.pop(&mut cursor, TASK - 8);
        assert_eq!(cursor.top(), None);
    }

    #[test]
    fn frames_without_a_return_are_removed_when_their_stack_is_reused() {
        let (mut stacks, mut cursor) = (Stacks::default(), Cursor::default());
        for depth in 1..=5 {
            stacks.push(&mut cursor, TASK - depth * 64, depth as u8);
        }
        // A return from the second outermost call (an ended task, or a longjmp of the kernel).
        stacks.push(&mut cursor, TASK - 2 * 64, 9);
        assert_eq!(cursor.top(), Some(9));
        stacks.pop(&mut cursor, TASK - 2 * 64);
        assert_eq!(cursor.top(), Some(1));
    }

    #[test]
    fn each_stack_has_its_own_calls() {
        let (mut stacks, mut cursor) = (Stacks::default(), Cursor::default());
        stacks.push(&mut cursor, TASK - 8, 1);
        stacks.push(&mut cursor, IRQ - 8, 2);
        assert_eq!(cursor.top(), Some(2));
        stacks.pop(&mut cursor, TASK - 16);
        assert_eq!(cursor.top(), Some(1), "back on the task's stack, where nothing below was open");
    }

    #[test]
    fn depth_is_bounded() {
        let (mut stacks, mut cursor) = (Stacks::default(), Cursor::default());
        for depth in 1..=1000 {
            stacks.push(&mut cursor, TASK - depth * 8, 3);
        }
        assert_eq!(stacks.stacks[0].len(), DEEPEST);
        stacks.pop(&mut cursor, TASK - 8);
        assert_eq!(cursor.top(), None);
    }
}
