//! What the plugin knows of the guest, and what it does at a block and at an access.

use crate::access_info::InfoBits;
use crate::attribution::{Charge, End, Role, Side, Sides, Stacks};
use crate::block::{Block, CodeLines, Scattered, bring};
use crate::cache::{Hierarchy, Misses};
use crate::exchange::{Account, Answer, Order, mark};
use crate::objects::{PhysicalMemory, Places, Tally};
use crate::qemu;
use crate::translations::{DIRECT_MAP, SoftTlb, tlb_page};
use std::collections::HashMap;

/// No access is larger: an instruction that moves more makes several.
const MOST_BYTES: u64 = 16;

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
    by_function_and_row: HashMap<(u32, u8), u32>,
    /// All blocks that were translated: they are never freed, as QEMU does not say when it drops one.
    blocks: Vec<*mut Block>,
    scattered: Scattered,
    stacks: Stacks,
    sides: Sides,
    charge: Charge,
    /// The block that began last.
    last_block: *mut Block,
    /// The server's block that began last: what is read and written is its doing.
    counted: *mut Block,
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
            by_function_and_row: HashMap::new(),
            stacks: Stacks::default(),
            charge,
            blocks: Vec::new(),
            scattered: Scattered::default(),
            last_block: std::ptr::null_mut(),
            counted: std::ptr::null_mut(),
            translations: SoftTlb::new(),
            info: InfoBits::learn(),
            sides: Sides::new(order.watched),
            order,
        };
        // Before anything ran: it has no caller.
        let nothing = machine.scattered.keep(Vec::new());
        let mut before = Block::new(0, Role::Helps, End::default(), 0, nothing, 0);
        before.row = machine.order.unattributed();
        before.account = machine.account_of(0, before.row);
        machine.counted = machine.keep(before);
        machine.last_block = machine.counted;
        machine
    }

    /// Keeps a block for good.
    pub fn keep(&mut self, block: Block) -> *mut Block {
        let place = Box::into_raw(Box::new(block));
        self.blocks.push(place);
        place
    }

    /// Keeps where a block's code lies: the addresses of its lines.
    pub fn keep_lines(&mut self, lines: &[u64]) -> CodeLines {
        self.scattered.keep(lines.iter().map(|line| line >> self.code_line_shift).collect())
    }

    /// Index in the symbols plus 1 of the function at a kernel address, its role, and whether it begins there.
    pub fn function_at(&self, address: u64) -> (u32, Role, bool) {
        let after = self.order.symbols.partition_point(|symbol| symbol.address <= address);
        match after.checked_sub(1).map(|index| self.order.symbols[index]) {
            Some(symbol) => (after as u32, symbol.role, symbol.address == address),
            None => (0, Role::Helps, false),
        }
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

    fn account_of(&mut self, function: u32, row: u8) -> u32 {
        let accounts = &mut self.accounts;
        *self.by_function_and_row.entry((function, row)).or_insert_with(|| {
            accounts.push(Account { function, row, ..Account::default() });
            accounts.len() as u32 - 1
        })
    }

    /// A helper works for another row than the last time.
    #[inline(never)]
    fn charge_to(&mut self, block: &mut Block, row: u8) {
        if block.row != u8::MAX {
            block.settle(&mut self.accounts[block.account as usize]);
        }
        block.account = self.account_of(block.function, row);
        block.row = row;
    }

    /// How the block ends that began last.
    #[inline(always)]
    pub fn end(&self) -> End {
        // SAFETY: a block that `keep` kept; no other reference to it lives.
        unsafe { (*self.last_block).end }
    }

    /// A block begins.
    ///
    /// # Safety
    /// It is one that [`Machine::keep`] kept, and nothing else refers to it.
    #[inline(always)]
    pub unsafe fn enter(&mut self, place: *mut Block) {
        // SAFETY: as promised; blocks are never freed, and only one reference to a block lives at once.
        let block = unsafe { &mut *place };
        bring(block.next);
        if block.is_repeat && std::ptr::eq(self.last_block, place) {
            if self.sides.side() == Side::Server {
                // SAFETY: as above.
                let account = unsafe { (*self.counted).account };
                self.accounts[account as usize].repeats += 1;
            }
            return;
        }
        if self.last_block != place {
            // SAFETY: as above; it is another block.
            let last = unsafe { &mut *self.last_block };
            if !std::ptr::eq(last.next, place) {
                last.next = place;
            }
        }
        self.last_block = place;
        let row = if block.is_kernel {
            let nobody = self.order.unattributed();
            self.charge.enter(&mut self.stacks, block.function, block.role, block.is_first, block.end, nobody)
        } else {
            let user = self.order.user();
            self.charge.enter_user(user);
            user
        };
        if block.is_kernel {
            let is_asked = block.is_first && block.function == self.order.watched.transmit;
            let frame = if is_asked { self.stacks.top_slot(&self.charge.cursor) } else { None };
            self.sides.enter(block.function, block.is_first, frame);
        }
        if self.sides.side() == Side::Client {
            self.client_instructions += u64::from(block.instructions);
            return;
        }
        if block.row != row {
            self.charge_to(block, row);
        }
        self.counted = place;
        self.now += u64::from(block.instructions);
        block.runs += 1;
        if let Some(caches) = &mut self.caches {
            let counts = &mut self.accounts[block.account as usize].caches;
            caches.translate_fetch(block.page, counts);
            block.each_line(&self.scattered, |line| caches.fetch(line << self.code_line_shift, counts));
        }
    }

    /// Memory is read or written.
    #[inline(always)]
    pub fn access(&mut self, info: qemu::AccessInfo, address: u64, is_store: bool) {
        if is_store {
            self.sides.store(address);
        }
        let Some(caches) = &mut self.caches else { return };
        // The client's accesses touch no cache of the server's: it stands for another machine.
        if self.sides.side() == Side::Client {
            return;
        }
        // SAFETY: a block that `keep` kept; no other reference to it lives.
        let block = unsafe { &mut *self.counted };
        match is_store {
            true => block.writes += 1,
            false => block.reads += 1,
        }
        let physical = self.translations.physical(info, address);
        if self.has_objects {
            self.access_object(info, address, physical, is_store);
            return;
        }
        let Some(physical) = physical else { return };
        let counts = &mut self.accounts[block.account as usize].caches;
        caches.translate_data(tlb_page(address), counts);
        caches.data(physical, is_store, counts);
        // Only what begins near a line's end can reach into the next.
        if (physical + MOST_BYTES - 1) >> self.line_shift != physical >> self.line_shift {
            let last = physical + self.info.bytes(info) - 1;
            if last >> self.line_shift != physical >> self.line_shift {
                caches.data(last, is_store, counts);
            }
        }
    }

    /// The same, counted by kernel object too, which says where the caches see it.
    #[inline(never)]
    fn access_object(&mut self, info: qemu::AccessInfo, address: u64, physical: Option<u64>, is_store: bool) {
        let (Some(caches), Some(tally)) = (&mut self.caches, &mut self.tally) else { return };
        // SAFETY: a block that `keep` kept; no other reference to it lives.
        let account = unsafe { (*self.counted).account };
        let counts = &mut self.accounts[account as usize].caches;
        let Some(physical) = physical else {
            tally.count(tally.device_spot(), is_store);
            return;
        };
        caches.translate_data(tlb_page(address), counts);
        let is_mapped_all = DIRECT_MAP.contains(&address);
        let mut spot = match is_mapped_all {
            true => tally.spot(physical, self.now),
            false => tally.spot_elsewhere(address, physical, || self.stacks.has(address)),
        };
        let seen = spot.physical;
        let misses = caches.data(seen, is_store, counts);
        let mut further = Misses::default();
        if (seen + MOST_BYTES - 1) >> self.line_shift != seen >> self.line_shift {
            let last = seen + self.info.bytes(info) - 1;
            if last >> self.line_shift != seen >> self.line_shift {
                further = caches.data(last, is_store, counts);
            }
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

    /// Gives each block to `what`, with its account.
    fn each_block(&mut self, what: impl Fn(&mut Block, &mut Account)) {
        for place in &self.blocks {
            // SAFETY: a block that `keep` kept; no other reference to it lives.
            let block = unsafe { &mut **place };
            // A block that never ran has no account.
            if block.row != u8::MAX {
                what(block, &mut self.accounts[block.account as usize]);
            }
        }
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
                self.each_block(|block, _| block.forget());
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
                self.each_block(Block::settle);
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
