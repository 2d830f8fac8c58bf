//! Finds the layer that an instruction works for.
//!
//! A function names a row of the table or works for its caller ([`Role`]), by the rule of `record::layers`. The
//! caller is known from a shadow stack ([`Stacks`]) that follows the kernel's calls and returns by the addresses at
//! which they store and load the return address, so neither a register nor a frame pointer is read, and interrupt
//! stacks and context switches need no special case.

mod charge;
mod decode;
mod sides;
mod stacks;

pub use charge::{Charge, End, Role};
pub use decode::{Kind, MARK_BASE, Touch, kind_of, touch_of};
pub use sides::{Side, Sides, Watched, is_of_entry};
pub use stacks::{Cursor, Stacks, block_of};
