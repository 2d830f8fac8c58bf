//! Finds the end for which the guest's only CPU works: the server or its client.
//!
//! Work is separated by the kernel stack on which it runs, because each thread has its own. A thread that executes a
//! mark names its end; a thread that it makes (`copy_thread` writes to the new stack) is on the same end; and packets
//! received from a link are handled by a separate thread (threaded NAPI), which is learnt from one datagram. All
//! other work, such as timers and the scheduler's idle thread, belongs to the server; but packets that the path's
//! delay line sends are the client's, because it is at the client's end.

use super::stacks::block_of;
use std::collections::HashMap;

/// An end of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Side {
    /// The server's end, which is counted.
    #[default]
    Server,
    /// The client's end, which is not counted, because it stands for another machine.
    Client,
}

/// Numbers of the kernel functions from which ends are learnt; 0 if the kernel has no function with that name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Watched {
    /// Creates a thread: `copy_thread`.
    pub fork: u32,
    /// Receives packets from a link: `veth_poll`.
    pub receive: u32,
    /// Sends packets that a queueing discipline held back: `net_tx_action`.
    pub transmit: u32,
}

impl Watched {
    /// Whether a function is one of them.
    pub fn has(&self, function: u32) -> bool {
        function != 0 && [self.fork, self.receive, self.transmit].contains(&function)
    }
}

/// The side of each stack.
#[derive(Debug, Default)]
pub struct Sides {
    watched: Watched,
    by_block: HashMap<u64, Side>,
    /// The side of the next thread that enters the kernel.
    announced: Option<Side>,
    /// The side of the next thread that receives from a link.
    taught: Option<Side>,
    is_forking: bool,
    /// The stack on which the delay line sends, and the address of its frame.
    transmitting: Option<(u64, u64)>,
    current: Option<u64>,
    side: Side,
}

/// Whether an address is in the area of entry code (`CPU_ENTRY_AREA`), which holds stacks that belong to the CPU
/// instead of a thread, and the descriptors of segments.
pub fn is_of_entry(address: u64) -> bool {
    ENTRY_BLOCKS.contains(&block_of(address))
}

const ENTRY_BLOCKS: std::ops::Range<u64> = block_of_const(0xffff_fe00_0000_0000)..block_of_const(0xffff_fe80_0000_0000);

const fn block_of_const(address: u64) -> u64 {
    address >> 14
}

impl Sides {
    /// Nothing is known yet.
    pub fn new(watched: Watched) -> Sides {
        Sides { watched, ..Sides::default() }
    }

    /// The end that the CPU works for now.
    #[inline(always)]
    pub fn side(&self) -> Side {
        self.side
    }

    /// Whether a thread is being created, so that a store may go to its stack.
    #[inline(always)]
    pub fn is_forking(&self) -> bool {
        self.is_forking
    }

    /// The thread that now runs in user mode is on this side.
    pub fn announce(&mut self, side: Side) {
        self.announced = Some(side);
    }

    /// The next thread that receives from a link is on this side.
    pub fn teach(&mut self, side: Option<Side>) {
        self.taught = side;
    }

    /// A call stores its return address. Returns whether the work may belong to the other end from now on.
    #[inline]
    pub fn call(&mut self, address: u64) -> bool {
        let block = block_of(address);
        if self.announced.is_some() && !ENTRY_BLOCKS.contains(&block) {
            self.by_block.extend(self.announced.take().map(|side| (block, side)));
            self.current = None;
        }
        self.on_stack(block)
    }

    /// A return loads its address. Returns whether the work may belong to the other end from now on.
    #[inline]
    pub fn ret(&mut self, address: u64) -> bool {
        let block = block_of(address);
        if self.transmitting.is_some_and(|(on, from)| on == block && address >= from) {
            self.transmitting = None;
            self.current = None;
        }
        self.on_stack(block)
    }

    #[inline(always)]
    fn on_stack(&mut self, block: u64) -> bool {
        self.current != Some(block) && self.change_stack(block)
    }

    #[inline(never)]
    fn change_stack(&mut self, block: u64) -> bool {
        // On entry and exit a thread uses the CPU's stack.
        let is_threads = !ENTRY_BLOCKS.contains(&block);
        if is_threads {
            self.current = Some(block);
            self.side = match self.transmitting {
                Some((on, _)) if on == block => Side::Client,
                _ => self.by_block.get(&block).copied().unwrap_or_default(),
            };
        }
        is_threads
    }

    /// A block of a kernel function begins, with `is_first` at its first instruction. `frame` is the address of its
    /// return address.
    #[inline]
    pub fn enter(&mut self, function: u32, is_first: bool, frame: Option<u64>) {
        self.is_forking = function == self.watched.fork && function != 0;
        if !is_first || function == 0 {
            return;
        }
        let Some(block) = self.current else { return };
        if function == self.watched.receive
            && let Some(side) = self.taught
        {
            self.by_block.insert(block, side);
            self.side = side;
        }
        if function == self.watched.transmit
            && let Some(frame) = frame
        {
            self.transmitting = Some((block, frame));
            self.side = Side::Client;
        }
    }

    /// A store while a thread is created. If it goes to another stack, the thread of that stack is on this end.
    #[inline(always)]
    pub fn store(&mut self, address: u64) {
        if self.is_forking {
            self.inherit(address);
        }
    }

    fn inherit(&mut self, address: u64) {
        let block = block_of(address);
        // Stacks are in the area of vmalloc; the new thread's task structure is not.
        let is_stack = (0xffff_c900_0000_0000..0xffff_e900_0000_0000).contains(&address);
        if is_stack && self.current != Some(block) {
            self.by_block.insert(block, self.side);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u64 = 0xffff_c900_0000_4000;
    const B: u64 = 0xffff_c900_0010_4000;
    const IRQ: u64 = 0xffff_c900_0020_4000;

    fn sides() -> Sides {
        Sides::new(Watched { fork: 1, receive: 2, transmit: 3 })
    }

    #[test]
    fn a_thread_and_its_children_are_on_the_side_that_it_announced() {
        let mut sides = sides();
        sides.call(A - 8);
        assert_eq!(sides.side(), Side::Server, "who says nothing is the server");
        sides.announce(Side::Client);
        sides.call(0xffff_fe00_0000_1000);
        assert_eq!(sides.side(), Side::Server, "the entry's stack belongs to no side");
        sides.call(A - 8);
        assert_eq!(sides.side(), Side::Client);
        sides.call(0xffff_fe00_0000_1000);
        assert_eq!(sides.side(), Side::Client, "the thread goes on when it enters again");
        sides.enter(1, true, None);
        sides.store(A - 64);
        sides.store(B - 64);
        sides.enter(9, true, None);
        sides.store(IRQ - 64);
        sides.call(B - 8);
        assert_eq!(sides.side(), Side::Client, "its child");
        sides.call(IRQ - 8);
        assert_eq!(sides.side(), Side::Server, "no child: nothing was made when it was written");
        sides.ret(A - 8);
        assert_eq!(sides.side(), Side::Client);
    }

    #[test]
    fn the_receiving_side_is_learnt_once() {
        let mut sides = sides();
        sides.teach(Some(Side::Client));
        sides.call(A - 8);
        sides.enter(2, true, None);
        sides.teach(None);
        sides.call(B - 8);
        sides.enter(2, true, None);
        assert_eq!(sides.side(), Side::Server);
        sides.call(A - 8);
        assert_eq!(sides.side(), Side::Client);
    }

    #[test]
    fn packets_of_the_delay_line_belong_to_the_client_until_it_returns() {
        let mut sides = sides();
        sides.call(IRQ - 64);
        sides.enter(3, true, Some(IRQ - 64));
        assert_eq!(sides.side(), Side::Client);
        sides.call(IRQ - 128);
        sides.ret(IRQ - 128);
        assert_eq!(sides.side(), Side::Client);
        sides.ret(IRQ - 64);
        assert_eq!(sides.side(), Side::Server);
    }
}
