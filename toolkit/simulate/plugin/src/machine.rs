//! The plugin's knowledge of the guest, and its actions at a block and at an access.

use crate::access_info::InfoBits;
use crate::attribution::{Charge, End, Role, Side, Sides, Stacks};
use crate::block::{Block, Code, Word};
use crate::cache::{Hierarchy, Misses};
use crate::exchange::{Answer, Order, mark};
use crate::functions::{Functions, UNKNOWN};
use crate::objects::{PhysicalMemory, Places, Tally};
use crate::pages::{DIRECT_MAP, PAGE_SHIFT, image_offset};
use crate::qemu;
use crate::translations::{Page, SoftTlb};

pub struct Machine {
    pub id: qemu::PluginId,
    pub order: Order,
    pub caches: Option<Hierarchy>,
    /// Where the guest's memory is in QEMU, once it is known.
    memory_base: Option<u64>,
    tally: Option<Tally>,
    /// Instructions of the server's end so far.
    now: u64,
    /// Instructions of the client's end since the mark `BEGIN`.
    client_instructions: u64,
    answer: String,
    functions: Functions,
    stacks: Stacks,
    sides: Sides,
    charge: Charge,
    /// The block that began last.
    last_block: Word,
    /// Whether it is a further execution of a repeated string instruction, whose element, if it has one, accesses
    /// memory.
    is_element_due: bool,
    end: End,
    /// The function of the server's block that began last, which is charged with reads and writes.
    counted: u32,
    translations: SoftTlb,
    info: InfoBits,
    line_shift: u32,
    code_line_shift: u32,
    has_objects: bool,
    /// The current action at an access.
    attention: Attention,
    /// The last fetched page and line of the kernel's image by number. Fetching them again changes nothing.
    fetched: (u64, u64),
}

/// The action for an access of the guest.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attention {
    /// No action, because the access belongs to the client, which stands for another machine, or there are no caches.
    None,
    /// The access is counted and goes through the caches.
    Caches,
    /// Further actions.
    All,
}

/// Number of bytes by which a push or pop moves the stack pointer.
pub const STACK_BYTES: u64 = 8;
/// No line and no page of code.
const NOTHING: u64 = u64::MAX;
/// Pages of the kernel's image have 2 MiB.
const IMAGE_PAGE_SHIFT: u32 = 21;

impl Machine {
    pub fn new(id: qemu::PluginId, order: Order, answer: String) -> Machine {
        let caches = order.caches.as_ref().map(Hierarchy::new);
        let charge = Charge::new(order.unattributed());
        let mut machine = Machine {
            id,
            line_shift: caches.as_ref().map_or(6, |caches| caches.l1_line_shifts().1),
            code_line_shift: caches.as_ref().map_or(6, |caches| caches.l1_line_shifts().0),
            has_objects: order.objects.is_some(),
            caches,
            memory_base: None,
            tally: order.objects.as_ref().map(|objects| {
                Tally::new(Places::new(objects.map), objects.map.memory_bytes, objects.packings.clone())
            }),
            now: 0,
            client_instructions: 0,
            answer,
            functions: Functions::new(&order),
            stacks: Stacks::default(),
            charge,
            last_block: Word::NONE,
            is_element_due: false,
            end: End::default(),
            counted: UNKNOWN,
            translations: SoftTlb::new(),
            info: InfoBits::learn(),
            sides: Sides::new(order.watched),
            order,
            attention: Attention::None,
            fetched: (NOTHING, NOTHING),
        };
        machine.attend();
        // No code has run, so there is no caller.
        machine.functions.charge(UNKNOWN, machine.order.unattributed(), 0);
        machine
    }

    /// Whether the function at a place of the table creates threads.
    pub fn makes_threads(&self, function: u32) -> bool {
        function != UNKNOWN && self.functions.number(function) == self.order.watched.fork
    }

    /// The L1I lines of an instruction at an address and its physical address. Outside the kernel's image, its bytes
    /// beyond the page are left out; the next instruction shows where they are.
    pub fn code_lines(&self, address: u64, physical: u64, bytes: u64) -> std::ops::RangeInclusive<u64> {
        let end = physical + bytes - 1;
        let last = if image_offset(address).is_some() { end } else { end.min(physical | ((1 << PAGE_SHIFT) - 1)) };
        physical >> self.code_line_shift..=last >> self.code_line_shift
    }

    /// A block's word for its callback.
    pub fn word(&self, block: Block<'_>) -> Word {
        Word::new(block, self.code_line_shift)
    }

    /// The table place of the function at a kernel address, its role, whether it begins there, and whether sides are
    /// learnt from it.
    pub fn function_at(&mut self, address: u64) -> (u32, Role, bool, bool) {
        let after = self.order.symbols.partition_point(|symbol| symbol.address <= address);
        let Some(symbol) = after.checked_sub(1).map(|index| self.order.symbols[index]) else {
            return (UNKNOWN, Role::Helps, false, false);
        };
        let number = after as u32;
        let is_watched = self.order.watched.has(number);
        (self.functions.place(number), symbol.role, symbol.address == address, is_watched)
    }

    /// Where the guest's memory is in QEMU, if it is known.
    pub fn memory_base(&self) -> Option<u64> {
        self.memory_base
    }

    /// Address of the guest's physical address 0.
    pub fn set_memory_base(&mut self, base: u64) {
        self.memory_base = Some(base);
        if let (Some(tally), Some(objects)) = (&mut self.tally, &self.order.objects) {
            // SAFETY: QEMU maps the memory of a "pc" machine contiguously below the hole for devices, which begins at
            // 3 GiB and is never reached (`--memory`), until it ends. This is called from QEMU's own callbacks.
            tally.set_memory(unsafe { PhysicalMemory::new(base, objects.map.memory_bytes) });
        }
    }

    /// Whether the block that began last ends this way, and its end has not come yet.
    #[inline(always)]
    pub fn end_is(&self, end: End) -> bool {
        self.end == end
    }

    /// Call it at the end of the block.
    #[inline(always)]
    pub fn end_came(&mut self) {
        self.end = End::Jump;
    }

    /// A block begins.
    ///
    /// # Safety
    /// The word must come from [`Machine::word`].
    #[inline(always)]
    pub unsafe fn enter(&mut self, word: Word) {
        if word.is_packed() {
            self.last_block = word;
            self.enter_block(&word.unpacked(self.code_line_shift));
        } else {
            self.enter_recorded(word);
        }
    }

    #[inline(never)]
    fn enter_recorded(&mut self, word: Word) {
        let before = std::mem::replace(&mut self.last_block, word);
        // SAFETY: a caller of `enter` promises it.
        let block = unsafe { word.recorded() };
        // SAFETY: as before.
        let is_further = || !before.is_packed() && unsafe { before.recorded() }.repeats_at == block.repeats_at;
        self.is_element_due = block.is_repeat && is_further();
        if !self.is_element_due {
            self.enter_block(block);
        }
    }

    /// A block that is one repeated string instruction accesses memory. Up to QEMU 9 the last execution has no
    /// element.
    #[inline(always)]
    pub fn element_came(&mut self) {
        if self.last_block.is_repeat() && std::mem::take(&mut self.is_element_due) && self.sides.side() == Side::Server
        {
            self.functions.count_repeat(self.counted);
        }
    }

    #[inline(always)]
    fn enter_block(&mut self, block: &Block<'static>) {
        self.end = block.end;
        let row = if block.is_kernel {
            let nobody = self.order.unattributed();
            let row =
                self.charge.enter(&mut self.stacks, block.function, block.role, block.is_first, block.end, nobody);
            if block.is_watched || self.sides.is_forking() {
                self.enter_watched(block.function, block.is_first);
            }
            row
        } else {
            let user = self.order.user();
            self.charge.enter_user(user);
            user
        };
        if self.sides.side() == Side::Client {
            self.client_instructions += u64::from(block.instructions);
            return;
        }
        self.counted = block.function;
        self.functions.charge(block.function, row, block.instructions);
        self.now += u64::from(block.instructions);
        if let Some(caches) = &mut self.caches {
            match block.code {
                Code::Row(first, count) => {
                    // All of it is on one page.
                    let page = first >> (IMAGE_PAGE_SHIFT - self.code_line_shift);
                    if page != self.fetched.0 {
                        caches.translate_fetch(block.page, self.functions.caches(block.function));
                    }
                    let is_next = first == self.fetched.1;
                    let next = first + u64::from(count);
                    for line in first + u64::from(is_next)..next {
                        if !caches.is_latest_code(line) {
                            caches.fetch(line, self.functions.caches(block.function));
                        }
                    }
                    self.fetched = (page, next - 1);
                }
                Code::Lines(lines) => {
                    let counts = self.functions.caches(block.function);
                    caches.translate_fetch(block.page, counts);
                    lines.iter().for_each(|line| caches.fetch(*line, counts));
                    self.fetched = (NOTHING, NOTHING);
                }
            }
        }
    }

    /// Chooses the action at accesses, whenever the side changes or a thread is created.
    fn attend(&mut self) {
        self.attention = match (self.sides.is_forking(), self.sides.side(), &self.caches) {
            (true, ..) => Attention::All,
            (_, Side::Client, _) | (.., None) => Attention::None,
            _ if self.has_objects || !self.info.is_plain() => Attention::All,
            _ => Attention::Caches,
        };
    }

    /// A block of a function by which sides are learnt, or the next block after one.
    #[inline(never)]
    fn enter_watched(&mut self, function: u32, is_first: bool) {
        let number = self.functions.number(function);
        let is_asked = is_first && number == self.order.watched.transmit;
        let frame = if is_asked { self.stacks.top_slot(&self.charge.cursor) } else { None };
        self.sides.enter(number, is_first, frame);
        self.attend();
    }

    /// Memory is read or written.
    #[inline(always)]
    pub fn access(&mut self, info: qemu::AccessInfo, address: u64) {
        match self.attention {
            Attention::None => {}
            Attention::Caches => self.access_caches(info, address),
            Attention::All => self.access_slowly(info, address),
        }
    }

    /// The block has this many pushes, of which the last stores to `address`, or pops, of which the last loads from
    /// there.
    #[inline(always)]
    pub fn access_run(&mut self, info: qemu::AccessInfo, address: u64, count: u64, is_store: bool) {
        if self.attention == Attention::None {
            return;
        }
        for left in (0..count).rev() {
            let before = left * STACK_BYTES;
            let address = if is_store { address.wrapping_add(before) } else { address.wrapping_sub(before) };
            self.access(info, address);
        }
    }

    /// The fast path for the last used line and page, which changes no cache.
    #[inline(always)]
    fn access_caches(&mut self, info: qemu::AccessInfo, address: u64) {
        let (Some(caches), Some(page)) = (&mut self.caches, self.translations.known(address)) else {
            return self.access_slowly(info, address);
        };
        let physical = page.physical(address);
        let plain = self.info.plain(info);
        let is_of_one_line = (physical ^ (physical + plain.bytes - 1)) >> self.line_shift == 0;
        if !is_of_one_line || !caches.is_latest_page(page.in_tlb) {
            return self.access_slowly(info, address);
        }
        self.functions.count_access(self.counted, plain.is_store);
        if !caches.is_latest_data(physical, plain.is_store) {
            caches.data(physical, plain.is_store, self.functions.caches(self.counted));
        }
    }

    #[inline(never)]
    fn access_slowly(&mut self, info: qemu::AccessInfo, address: u64) {
        let is_store = self.is_store(info);
        if self.sides.is_forking() && is_store {
            self.sides.store(address);
        }
        let Some(caches) = &mut self.caches else { return };
        if self.sides.side() == Side::Client {
            return;
        }
        self.functions.count_access(self.counted, is_store);
        let last = address.wrapping_add(self.info.bytes(info) - 1);
        let pages = self.translations.pages(info, address, last);
        if self.has_objects {
            self.access_object(address, last, pages, is_store);
            return;
        }
        let Some((page, last_page)) = pages else { return };
        let counts = self.functions.caches(self.counted);
        let physical = page.physical(address);
        caches.translate_data(page.in_tlb, counts);
        caches.data(physical, is_store, counts);
        let Some(last_page) = last_page else { return };
        let physical_last = last_page.physical(last);
        caches.translate_data(last_page.in_tlb, counts);
        if physical_last >> self.line_shift != physical >> self.line_shift {
            caches.data(physical_last, is_store, counts);
        }
    }

    /// The same, counted by kernel object as well, which gives the address that the caches see.
    #[inline(never)]
    fn access_object(&mut self, address: u64, last: u64, pages: Option<(Page, Option<Page>)>, is_store: bool) {
        let (Some(caches), Some(tally)) = (&mut self.caches, &mut self.tally) else { return };
        let counts = self.functions.caches(self.counted);
        let Some((page, last_page)) = pages else {
            tally.count(tally.device_spot(), is_store);
            return;
        };
        let physical = page.physical(address);
        caches.translate_data(page.in_tlb, counts);
        let is_mapped_all = DIRECT_MAP.contains(&address);
        let mut spot = if is_mapped_all {
            tally.spot(physical, self.now)
        } else {
            tally.spot_elsewhere(address, physical, || self.stacks.has(address))
        };
        let seen = spot.physical;
        let misses = caches.data(seen, is_store, counts);
        let mut further = Misses::default();
        if let Some(last_page) = last_page {
            caches.translate_data(last_page.in_tlb, counts);
            // Where another layout has moved the object's words, the last one has moved equally.
            let seen_last = last_page.physical(last).wrapping_add(seen.wrapping_sub(physical));
            if seen_last >> self.line_shift != seen >> self.line_shift {
                further = caches.data(seen_last, is_store, counts);
            }
        }
        if is_mapped_all && misses.of_l2(0) {
            spot = tally.look_again(spot, physical, self.now);
        }
        tally.count(spot, is_store);
        for (address, missed) in [(address, misses), (last, further)] {
            if missed.any() {
                tally.miss(spot, address, missed, self.now);
            }
        }
    }

    /// Whether an access is a store.
    #[inline(always)]
    pub fn is_store(&self, info: qemu::AccessInfo) -> bool {
        self.info.is_store(info)
    }

    #[inline]
    pub fn call(&mut self, address: u64) {
        if self.sides.call(address) {
            self.attend();
        }
        let row = self.charge.row();
        self.stacks.push(&mut self.charge.cursor, address, row);
    }

    #[inline]
    pub fn ret(&mut self, address: u64) {
        if self.sides.ret(address) {
            self.attend();
        }
        self.stacks.pop(&mut self.charge.cursor, address);
    }

    /// All translations may have changed.
    pub fn forget_translations(&mut self) {
        self.translations.forget();
    }

    /// The guest executed a mark.
    pub fn mark(&mut self, number: u16) {
        match number {
            mark::SERVER => self.sides.announce(Side::Server),
            mark::CLIENT => self.sides.announce(Side::Client),
            mark::SERVER_RECEIVES => self.sides.teach(Some(Side::Server)),
            mark::CLIENT_RECEIVES => self.sides.teach(Some(Side::Client)),
            mark::RECEIVERS_KNOWN => self.sides.teach(None),
            mark::BEGIN => {
                self.client_instructions = 0;
                self.functions.restart();
                if let Some(caches) = &mut self.caches {
                    caches.restart_curve();
                }
                if let Some(tally) = &mut self.tally {
                    tally.restart();
                }
            }
            mark::END => {
                let sizes: Vec<u64> = (10..=28).flat_map(|power| [1_u64 << power, 3 << (power - 1)]).collect();
                let line = 1 << self.line_shift;
                let curve = self.caches.as_ref().and_then(Hierarchy::curve).and_then(|curve| curve.curve(&sizes, line));
                let answer = Answer {
                    accounts: self.functions.accounts(),
                    client_instructions: self.client_instructions,
                    curve: curve.map(|curve| (curve.accesses, curve.points)),
                    objects: self.tally.as_ref().map(Tally::counts).unwrap_or_default(),
                };
                if let Err(why) = std::fs::write(&self.answer, answer.to_text()) {
                    eprintln!("straingauge plugin: the answer cannot be written: {why}");
                }
            }
            _ => {}
        }
    }
}
