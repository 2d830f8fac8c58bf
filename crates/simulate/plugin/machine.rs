//! What the plugin knows of the guest, and what it does at a block and at an access.

use crate::attribution::{Charge, End, Role, Side, Sides, Stacks};
use crate::cache::{Hierarchy, Misses};
use crate::exchange::{Account, Answer, Order, mark};
use crate::objects::{PhysicalMemory, Places, Tally};
use crate::qemu;
use std::collections::HashMap;

/// Where the kernel maps all memory (`page_offset_base` without randomisation, four levels of page tables).
const DIRECT_MAP: std::ops::Range<u64> = 0xffff_8880_0000_0000..0xffff_c880_0000_0000;
/// Where the kernel's image lies; physical address 0 is at its start.
const IMAGE: std::ops::Range<u64> = 0xffff_ffff_8000_0000..0xffff_ffff_a000_0000;
const PAGE_SHIFT: u32 = 12;
const SOFT_TLB: usize = 4096;
/// No access is larger: an instruction that moves more makes several.
const MOST_BYTES: u64 = 16;

/// A block of translated code.
pub struct Block {
    pub function: u32,
    pub role: Role,
    pub is_kernel: bool,
    /// It begins at its function's first instruction.
    pub is_first: bool,
    /// It is one repeated string instruction, executed once an element.
    pub is_repeat: bool,
    pub end: End,
    pub instructions: u64,
    /// Physical addresses of its instruction lines.
    pub lines: Box<[u64]>,
    /// Its page as the ITLB sees it.
    pub page: u64,
    /// The account used last, and the row it is for.
    pub account: (u8, usize),
}

/// Physical pages of virtual ones, so that QEMU is seldom asked.
struct SoftTlb(Vec<(u64, u64)>);

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
    by_function_and_row: HashMap<(u32, u8), usize>,
    stacks: Stacks,
    sides: Sides,
    charge: Charge,
    account: usize,
    last_block: *const Block,
    translations: SoftTlb,
    line_shift: u32,
}

/// A page as the TLBs see it: the kernel's image and its map of all memory are mapped by pages of 2 MiB.
pub fn tlb_page(address: u64) -> u64 {
    let within = address & 0xffff_ffff_ffff;
    if DIRECT_MAP.contains(&address) || IMAGE.contains(&address) {
        ((within >> 21) | 1 << 40) << PAGE_SHIFT
    } else {
        within
    }
}

/// The physical address of code in the kernel's image.
pub fn image_offset(address: u64) -> Option<u64> {
    IMAGE.contains(&address).then(|| address - IMAGE.start)
}

impl SoftTlb {
    fn new() -> SoftTlb {
        SoftTlb(vec![(u64::MAX, 0); SOFT_TLB])
    }

    /// The physical address; `None` for device memory. Call it only within the callback of the access.
    #[inline]
    fn physical(&mut self, info: qemu::AccessInfo, address: u64) -> Option<u64> {
        if DIRECT_MAP.contains(&address) {
            return Some(address - DIRECT_MAP.start);
        }
        if let Some(physical) = image_offset(address) {
            return Some(physical);
        }
        let page = address >> PAGE_SHIFT;
        let entry = &mut self.0[(page ^ page >> 24) as usize % SOFT_TLB];
        if entry.0 != page {
            // SAFETY: QEMU allows the question within a memory callback; the answer is valid until it returns.
            let found = unsafe {
                let place = qemu::qemu_plugin_get_hwaddr(info, address);
                if place.is_null() || qemu::qemu_plugin_hwaddr_is_io(place) {
                    return None;
                }
                qemu::qemu_plugin_hwaddr_phys_addr(place)
            };
            *entry = (page, found >> PAGE_SHIFT);
        }
        Some(entry.1 << PAGE_SHIFT | address & ((1 << PAGE_SHIFT) - 1))
    }
}

impl Machine {
    pub fn new(id: qemu::PluginId, order: Order, answer: String) -> Machine {
        let caches = order.caches.as_ref().map(Hierarchy::new);
        let charge = Charge::new(order.unattributed());
        let mut machine = Machine {
            id,
            line_shift: caches.as_ref().map_or(6, |caches| caches.l1_line_shifts().1),
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
            account: 0,
            last_block: std::ptr::null(),
            translations: SoftTlb::new(),
            sides: Sides::new(order.watched),
            order,
        };
        machine.account = machine.account_of(0, machine.order.unattributed());
        machine
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

    fn account_of(&mut self, function: u32, row: u8) -> usize {
        let accounts = &mut self.accounts;
        *self.by_function_and_row.entry((function, row)).or_insert_with(|| {
            accounts.push(Account { function, row, ..Account::default() });
            accounts.len() - 1
        })
    }

    /// A block begins.
    #[inline]
    pub fn enter(&mut self, block: &mut Block) {
        if block.is_repeat && std::ptr::eq(self.last_block, block) {
            if self.sides.side() == Side::Server {
                self.accounts[self.account].repeats += 1;
            }
            return;
        }
        self.last_block = block;
        let row = if block.is_kernel {
            let nobody = self.order.unattributed();
            self.charge.enter(&mut self.stacks, block.function, block.role, block.is_first, block.end, nobody)
        } else {
            let user = self.order.user();
            self.charge.enter_user(user);
            user
        };
        if block.is_kernel {
            let frame = if block.is_first { self.stacks.top_slot(&self.charge.cursor) } else { None };
            self.sides.enter(block.function, block.is_first, frame);
        }
        if self.sides.side() == Side::Client {
            self.client_instructions += block.instructions;
            return;
        }
        if block.account.0 != row {
            block.account = (row, self.account_of(block.function, row));
        }
        self.account = block.account.1;
        self.now += block.instructions;
        let account = &mut self.accounts[self.account];
        account.instructions += block.instructions;
        if let Some(caches) = &mut self.caches {
            caches.translate_fetch(block.page, &mut account.caches);
            for line in &*block.lines {
                caches.fetch(*line, &mut account.caches);
            }
        }
    }

    /// Memory is read or written.
    #[inline]
    pub fn access(&mut self, info: qemu::AccessInfo, address: u64, is_store: bool) {
        if is_store {
            self.sides.store(address);
        }
        let Some(caches) = &mut self.caches else { return };
        // The client's accesses touch no cache of the server's: it stands for another machine.
        if self.sides.side() == Side::Client {
            return;
        }
        let account = &mut self.accounts[self.account];
        if is_store {
            account.writes += 1;
        } else {
            account.reads += 1;
        }
        let Some(physical) = self.translations.physical(info, address) else {
            if let Some(tally) = &mut self.tally {
                tally.count(tally.device_spot(), is_store);
            }
            return;
        };
        caches.translate_data(tlb_page(address), &mut account.caches);
        let is_mapped_all = DIRECT_MAP.contains(&address);
        let spot = self.tally.as_mut().map(|tally| match is_mapped_all {
            true => tally.spot(physical, self.now),
            false => tally.spot_elsewhere(address, physical, || self.stacks.has(address)),
        });
        let seen = spot.map_or(physical, |spot| spot.physical);
        let misses = caches.data(seen, is_store, &mut account.caches);
        let mut further = Misses::default();
        // Only what begins near a line's end can reach into the next.
        if (seen + MOST_BYTES - 1) >> self.line_shift != seen >> self.line_shift {
            // SAFETY: a plain function of the packed information.
            let last = seen + (1 << unsafe { qemu::qemu_plugin_mem_size_shift(info) }) - 1;
            if last >> self.line_shift != seen >> self.line_shift {
                further = caches.data(last, is_store, &mut account.caches);
            }
        }
        if let (Some(tally), Some(mut spot)) = (&mut self.tally, spot) {
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
        self.translations = SoftTlb::new();
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
