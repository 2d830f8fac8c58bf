//! The charging rule: decides which row each block of code is charged to.

use super::{Cursor, Stacks};

/// The role of a function in the layer table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It names this row of the table.
    Names(u8),
    /// It works for its caller, because it is a helper or the table does not list it.
    Helps,
}

/// How a block of code ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum End {
    /// With a call.
    Call,
    /// With a return.
    Return,
    /// With a return from an interrupt.
    InterruptReturn,
    /// With a jump, or by continuing.
    #[default]
    Jump,
}

impl End {
    /// The end with this number in the order above.
    #[inline(always)]
    pub fn of_number(number: u8) -> End {
        match number {
            0 => End::Call,
            1 => End::Return,
            2 => End::InterruptReturn,
            _ => End::Jump,
        }
    }
}

/// The state of a processor.
#[derive(Debug, Clone, Copy, Default)]
pub struct Charge {
    /// The kernel stack in use.
    pub cursor: Cursor,
    row: u8,
    function: u32,
    end: End,
}

impl Charge {
    /// No code has run yet; `unattributed` is charged.
    pub fn new(unattributed: u8) -> Charge {
        Charge { row: unattributed, ..Charge::default() }
    }

    /// The row that is charged now.
    #[inline(always)]
    pub fn row(&self) -> u8 {
        self.row
    }

    /// The row for a block of `function`, which may begin at the function's first instruction and ends as `end`.
    ///
    /// A helper that was called, or returned into, is charged to the caller of the innermost open call. A helper that
    /// was jumped to (a tail call) is charged to the current row, and so are its callees.
    #[inline(always)]
    pub fn enter(
        &mut self,
        stacks: &mut Stacks,
        function: u32,
        role: Role,
        is_first: bool,
        end: End,
        unattributed: u8,
    ) -> u8 {
        self.row = match role {
            Role::Names(row) => row,
            Role::Helps if self.end == End::Jump && function == self.function => self.row,
            Role::Helps if self.end == End::Jump && is_first && self.row != unattributed => {
                stacks.set_top(&mut self.cursor, self.row);
                self.row
            }
            Role::Helps => self.cursor.top().unwrap_or(unattributed),
        };
        self.function = function;
        self.end = end;
        self.row
    }

    /// User code runs: only interrupts can be open in the kernel.
    #[inline]
    pub fn enter_user(&mut self, user: u8) {
        self.row = user;
        self.function = u32::MAX;
        // The next kernel code is an entry, and not a tail call of the user code.
        self.end = End::InterruptReturn;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: u8 = 1;
    const IP: u8 = 2;
    const NONE: u8 = 9;
    const STACK: u64 = 0xffff_c900_0000_4000;

    struct Guest {
        stacks: Stacks,
        charge: Charge,
    }

    impl Guest {
        fn new() -> Guest {
            Guest { stacks: Stacks::default(), charge: Charge::new(NONE) }
        }

        fn block(&mut self, function: u32, role: Role, is_first: bool, end: End) -> u8 {
            self.charge.enter(&mut self.stacks, function, role, is_first, end, NONE)
        }

        fn call(&mut self, slot: u64) {
            let row = self.charge.row();
            self.stacks.push(&mut self.charge.cursor, STACK - slot, row);
        }

        fn ret(&mut self, slot: u64) {
            self.stacks.pop(&mut self.charge.cursor, STACK - slot);
        }
    }

    #[test]
    fn a_helper_is_charged_to_its_caller_at_any_depth() {
        let mut guest = Guest::new();
        assert_eq!(guest.block(1, Role::Names(TCP), true, End::Call), TCP);
        guest.call(8);
        assert_eq!(guest.block(2, Role::Helps, true, End::Call), TCP);
        guest.call(16);
        assert_eq!(guest.block(3, Role::Helps, true, End::Return), TCP);
        guest.ret(16);
        assert_eq!(guest.block(2, Role::Helps, false, End::Call), TCP);
        guest.call(16);
        assert_eq!(guest.block(4, Role::Names(IP), true, End::Call), IP);
        guest.call(24);
        assert_eq!(guest.block(3, Role::Helps, true, End::Return), IP, "the same helper, for another layer");
        guest.ret(24);
        assert_eq!(guest.block(4, Role::Names(IP), false, End::Return), IP);
        guest.ret(16);
        assert_eq!(guest.block(2, Role::Helps, false, End::Return), TCP);
    }

    #[test]
    fn a_tail_call_is_charged_to_the_original_caller() {
        let mut guest = Guest::new();
        guest.block(1, Role::Names(IP), true, End::Call);
        guest.call(8);
        guest.block(2, Role::Names(TCP), true, End::Jump);
        assert_eq!(guest.block(3, Role::Helps, true, End::Call), TCP, "TCP jumped to it");
        guest.call(16);
        guest.block(4, Role::Helps, true, End::Return);
        guest.ret(16);
        assert_eq!(guest.block(3, Role::Helps, false, End::Return), TCP, "and it still works for TCP");
    }

    #[test]
    fn an_interrupt_leaves_no_trace() {
        let mut guest = Guest::new();
        guest.block(1, Role::Names(TCP), true, End::Call);
        guest.call(8);
        guest.block(2, Role::Helps, true, End::Jump);
        // The entry of the interrupt names its row; the interrupt pushes below and returns.
        assert_eq!(guest.block(7, Role::Names(5), true, End::Call), 5);
        guest.call(256);
        guest.block(8, Role::Helps, true, End::InterruptReturn);
        guest.ret(200);
        assert_eq!(guest.block(2, Role::Helps, false, End::Return), TCP);
    }

    #[test]
    fn without_a_caller_no_function_is_charged() {
        let mut guest = Guest::new();
        guest.charge.enter_user(6);
        assert_eq!(guest.charge.row(), 6);
        assert_eq!(guest.block(2, Role::Helps, true, End::Jump), NONE);
    }
}
