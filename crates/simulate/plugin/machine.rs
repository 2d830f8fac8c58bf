//! What the plugin knows of the guest, and what it does at a block and at an access.

use crate::access_info::InfoBits;
use crate::attribution::{Charge, End, Side, Sides, Stacks};
use crate::block::{Block, Word};
use crate::cache::{Hierarchy, Misses};
use crate::exchange::{Account, Answer, Order, mark};
use crate::functions::{Functions, UNKNOWN};
use crate::objects::{PhysicalMemory, Places, Tally};
use crate::pages::DIRECT_MAP;
use crate::qemu;
use crate::translations::{Page, SoftTlb};

pub struct Machine {
    pub id: qemu::PluginId,
    pub order: Order,
    pub caches: Option<Hierarchy>,
    /// Where the guest's memory lies in QEMU, once it is known.
    memory_base: Option<u64>,
    tally: Option<Tally>,
    /// Instructions of the server's end up to now.
    now: u64,
    /// Instructions of the client's end since the mark `BEGIN`.
    client_instructions: u64,
    answer: String,
    accounts: Vec<Account>,
    functions: Functions,
    stacks: Stacks,
    sides: Sides,
    charge: Charge,
    /// The block that began last.
    last_block: Word,
    end: End,
    /// The account of the server's block that began last: what is read and written is its doing.
    counted: usize,
    translations: SoftTlb,
    info: InfoBits,
    line_shift: u32,
    code_line_shift: u32,
    has_objects: bool,
}

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
            accounts: Vec::new(),
            functions: Functions::new(&order),
            stacks: Stacks::default(),
            charge,
            last_block: Word(0),
            end: End::default(),
            counted: 0,
            translations: SoftTlb::new(),
            info: InfoBits::learn(),
            sides: Sides::new(order.watched),
            order,
        };
        // Before anything ran: it has no caller.
        machine.counted = machine.functions.account(&mut machine.accounts, UNKNOWN, machine.order.unattributed());
        machine
    }

    /// Whether the function at a place of the table makes threads.
    pub fn makes_threads(&self, function: u32) -> bool {
        function != UNKNOWN && self.functions.number(function) == self.order.watched.fork
    }

    /// The lines of L1I between two physical addresses.
    pub fn code_lines(&self, first: u64, last: u64) -> std::ops::RangeInclusive<u64> {
        first >> self.code_line_shift..=last >> self.code_line_shift
    }

    /// A block's word, for its callback.
    pub fn word(&self, block: Block<'_>) -> Word {
        Word::new(block, self.code_line_shift)
    }

    /// The place in the table of the function at a kernel address, whether it begins there, and whether sides are learnt by it.
    pub fn function_at(&mut self, address: u64) -> (u32, bool, bool) {
        let after = self.order.symbols.partition_point(|symbol| symbol.address <= address);
        let Some(symbol) = after.checked_sub(1).map(|index| self.order.symbols[index]) else {
            return (UNKNOWN, false, false);
        };
        let number = after as u32;
        let is_watched = self.order.watched.has(number);
        (self.functions.place(number, symbol.role), symbol.address == address, is_watched)
    }

    /// Where the guest's memory lies in QEMU, if it is known.
    pub fn memory_base(&self) -> Option<u64> {
        self.memory_base
    }

    /// The guest's physical address 0 lies there.
    pub fn set_memory_base(&mut self, base: u64) {
        self.memory_base = Some(base);
        if let (Some(tally), Some(objects)) = (&mut self.tally, &self.order.objects) {
            // SAFETY: QEMU maps the memory of a machine of the kind "pc" in one piece below the hole for devices, which
            // begins at 3 GiB and is never reached (`--memory`), until it ends; this is called from its own callbacks.
            tally.set_memory(unsafe { PhysicalMemory::new(base, objects.map.memory_bytes) });
        }
    }

    /// How the block ends that began last.
    #[inline(always)]
    pub fn end(&self) -> End {
        self.end
    }

    /// A block begins.
    ///
    /// # Safety
    /// The word is of [`Machine::word`].
    #[inline(always)]
    pub unsafe fn enter(&mut self, word: Word) {
        // SAFETY: as promised.
        let block = unsafe { word.block(self.code_line_shift) };
        if block.is_repeat && self.last_block == word {
            if self.sides.side() == Side::Server {
                self.accounts[self.counted].repeats += 1;
            }
            return;
        }
        (self.last_block, self.end) = (word, block.end);
        let row = if block.is_kernel {
            let nobody = self.order.unattributed();
            let role = self.functions.role(block.function);
            let row = self.charge.enter(&mut self.stacks, block.function, role, block.is_first, block.end, nobody);
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
        self.counted = self.functions.account(&mut self.accounts, block.function, row);
        self.now += u64::from(block.instructions);
        let account = &mut self.accounts[self.counted];
        account.instructions += u64::from(block.instructions);
        if let Some(caches) = &mut self.caches {
            caches.translate_fetch(block.page, &mut account.caches);
            block.code.each_line(|line| caches.fetch(line << self.code_line_shift, &mut account.caches));
        }
    }

    /// A block of a function by which sides are learnt, or the next after one.
    #[inline(never)]
    fn enter_watched(&mut self, function: u32, is_first: bool) {
        let number = self.functions.number(function);
        let is_asked = is_first && number == self.order.watched.transmit;
        let frame = if is_asked { self.stacks.top_slot(&self.charge.cursor) } else { None };
        self.sides.enter(number, is_first, frame);
    }

    /// Memory is read or written.
    #[inline(always)]
    pub fn access(&mut self, info: qemu::AccessInfo, address: u64, is_store: bool) {
        if self.sides.is_forking() && is_store {
            self.sides.store(address);
        }
        let Some(caches) = &mut self.caches else { return };
        // The client's accesses touch no cache of the server's: it stands for another machine.
        if self.sides.side() == Side::Client {
            return;
        }
        let account = &mut self.accounts[self.counted];
        account.count_access(is_store);
        let page = self.translations.page(info, address);
        if self.has_objects {
            self.access_object(info, address, page, is_store);
            return;
        }
        let Some(page) = page else { return };
        let physical = page.physical(address);
        caches.translate_data(page.in_tlb, &mut account.caches);
        caches.data(physical, is_store, &mut account.caches);
        let last = physical + self.info.bytes(info) - 1;
        if last >> self.line_shift != physical >> self.line_shift {
            caches.data(last, is_store, &mut account.caches);
        }
    }

    /// The same, counted by kernel object too, which says where the caches see it.
    #[inline(never)]
    fn access_object(&mut self, info: qemu::AccessInfo, address: u64, page: Option<Page>, is_store: bool) {
        let (Some(caches), Some(tally)) = (&mut self.caches, &mut self.tally) else { return };
        let counts = &mut self.accounts[self.counted].caches;
        let Some(page) = page else {
            tally.count(tally.device_spot(), is_store);
            return;
        };
        let physical = page.physical(address);
        caches.translate_data(page.in_tlb, counts);
        let is_mapped_all = DIRECT_MAP.contains(&address);
        let mut spot = match is_mapped_all {
            true => tally.spot(physical, self.now),
            false => tally.spot_elsewhere(address, physical, || self.stacks.has(address)),
        };
        let seen = spot.physical;
        let misses = caches.data(seen, is_store, counts);
        let mut further = Misses::default();
        let last = seen + self.info.bytes(info) - 1;
        if last >> self.line_shift != seen >> self.line_shift {
            further = caches.data(last, is_store, counts);
        }
        if is_mapped_all && misses.of_l2(0) {
            spot = tally.look_again(spot, physical, self.now);
        }
        tally.count(spot, is_store);
        for missed in [misses, further] {
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
        self.sides.call(address);
        let row = self.charge.row();
        self.stacks.push(&mut self.charge.cursor, address, row);
    }

    #[inline]
    pub fn ret(&mut self, address: u64) {
        self.sides.ret(address);
        self.stacks.pop(&mut self.charge.cursor, address);
    }

    /// All translations may be other ones now.
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
                for account in &mut self.accounts {
                    *account = Account { function: account.function, row: account.row, ..Account::default() };
                }
                if let Some(caches) = &mut self.caches {
                    caches.restart_curve();
                }
                if let Some(tally) = &mut self.tally {
                    tally.restart();
                }
            }
            mark::END => {
                let accounts = self.accounts.iter().filter(|account| account.instructions + account.repeats > 0);
                let sizes: Vec<u64> = (10..=28).flat_map(|power| [1_u64 << power, 3 << (power - 1)]).collect();
                let line = 1 << self.line_shift;
                let curve = self.caches.as_ref().and_then(Hierarchy::curve).and_then(|curve| curve.curve(&sizes, line));
                let answer = Answer {
                    accounts: accounts.copied().collect(),
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
