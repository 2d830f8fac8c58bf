//! Physical addresses of the guest's virtual ones.

use crate::pages::{DIRECT_MAP, PAGE_SHIFT, image_offset, tlb_page};
use crate::qemu;

const ENTRIES: usize = 1024;
/// The bits of a page number by which addresses differ. The generation is above them.
const PAGE_BITS: u32 = 36;
const NUMBER: u64 = (1 << PAGE_BITS) - 1;

/// A page of memory.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub struct Page {
    /// Its virtual number and the generation.
    tag: u64,
    /// Its physical address.
    start: u64,
    /// The page as seen by the DTLB.
    pub in_tlb: u64,
}

impl Page {
    /// The physical address of a virtual one on this page.
    #[inline(always)]
    pub fn physical(&self, address: u64) -> u64 {
        self.start | address & ((1 << PAGE_SHIFT) - 1)
    }
}

/// Physical pages of virtual ones, so that QEMU is seldom asked, and only the page of an address must be known.
pub struct SoftTlb {
    pages: Box<[Page; ENTRIES]>,
    /// Pages of an older generation are invalid.
    generation: u64,
}

impl SoftTlb {
    pub fn new() -> SoftTlb {
        // Generation 0 is unused.
        SoftTlb { pages: Box::new([Page { tag: 0, start: 0, in_tlb: 0 }; ENTRIES]), generation: 1 }
    }

    /// All translations may have changed.
    pub fn forget(&mut self) {
        self.generation += 1;
        if self.generation >> (u64::BITS - PAGE_BITS) != 0 {
            *self = SoftTlb::new();
        }
    }

    #[inline(always)]
    fn tag_of(&self, address: u64) -> u64 {
        address >> PAGE_SHIFT & NUMBER | self.generation << PAGE_BITS
    }

    /// The page of an address, if it was requested before.
    #[inline(always)]
    pub fn known(&self, address: u64) -> Option<&Page> {
        let tag = self.tag_of(address);
        let page = &self.pages[slot_of(tag)];
        (page.tag == tag).then_some(page)
    }

    /// The page of an address; `None` for device memory. Call it only within the callback of the access.
    pub fn page(&mut self, info: qemu::AccessInfo, address: u64) -> Option<Page> {
        match self.known(address) {
            Some(page) => Some(*page),
            None => self.find(info, address, self.tag_of(address)),
        }
    }

    /// The pages of the first and the last byte of an access, like [`SoftTlb::page`]. QEMU reports an access over two
    /// pages once, and both are in its TLB then.
    pub fn pages(&mut self, info: qemu::AccessInfo, address: u64, last: u64) -> Option<(Page, Option<Page>)> {
        let first = self.page(info, address)?;
        let is_one = address >> PAGE_SHIFT == last >> PAGE_SHIFT;
        Some((first, if is_one { Some(first) } else { self.page(info, last) }))
    }

    #[cold]
    #[inline(never)]
    fn find(&mut self, info: qemu::AccessInfo, address: u64, tag: u64) -> Option<Page> {
        let physical = match image_offset(address) {
            Some(offset) => offset,
            None if DIRECT_MAP.contains(&address) => address - DIRECT_MAP.start,
            None => ask(info, address)?,
        };
        let page = Page { tag, start: physical >> PAGE_SHIFT << PAGE_SHIFT, in_tlb: tlb_page(address) };
        self.pages[slot_of(tag)] = page;
        Some(page)
    }
}

/// Where the page with this tag is kept, in any generation.
#[inline(always)]
fn slot_of(tag: u64) -> usize {
    let number = tag & NUMBER;
    (number ^ number >> 24) as usize % ENTRIES
}

fn ask(info: qemu::AccessInfo, address: u64) -> Option<u64> {
    // SAFETY: QEMU allows the call within a memory callback; the answer is valid until the callback returns.
    unsafe {
        let place = qemu::qemu_plugin_get_hwaddr(info, address);
        if place.is_null() || qemu::qemu_plugin_hwaddr_is_io(place) {
            return None;
        }
        Some(qemu::qemu_plugin_hwaddr_phys_addr(place))
    }
}
