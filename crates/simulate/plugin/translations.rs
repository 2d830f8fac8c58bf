//! Physical addresses of the guest's virtual ones, and the pages of its TLBs.

use crate::qemu;

/// Where the kernel maps all memory (`page_offset_base` without randomisation, four levels of page tables).
pub const DIRECT_MAP: std::ops::Range<u64> = 0xffff_8880_0000_0000..0xffff_c880_0000_0000;
/// Where the kernel's image lies; physical address 0 is at its start.
const IMAGE: std::ops::Range<u64> = 0xffff_ffff_8000_0000..0xffff_ffff_a000_0000;
const PAGE_SHIFT: u32 = 12;
const ENTRIES: usize = 1024;
/// The bits of a page's number by which addresses differ; above them lies the generation.
const PAGE_BITS: u32 = 36;

/// A page as the TLBs see it: the kernel's image and its map of all memory are mapped by pages of 2 MiB.
#[inline(always)]
pub fn tlb_page(address: u64) -> u64 {
    let within = address & 0xffff_ffff_ffff;
    if DIRECT_MAP.contains(&address) || IMAGE.contains(&address) {
        ((within >> 21) | 1 << 40) << PAGE_SHIFT
    } else {
        within
    }
}

/// The physical address of code in the kernel's image.
#[inline(always)]
pub fn image_offset(address: u64) -> Option<u64> {
    IMAGE.contains(&address).then(|| address - IMAGE.start)
}

/// Physical pages of virtual ones, so that QEMU is seldom asked.
pub struct SoftTlb {
    /// Page and generation, and the physical page.
    entries: Vec<(u64, u64)>,
    /// Entries of an older one are gone.
    generation: u64,
}

impl SoftTlb {
    pub fn new() -> SoftTlb {
        // Generation 0 is nobody's.
        SoftTlb { entries: vec![(0, 0); ENTRIES], generation: 1 }
    }

    /// All translations may be other ones now.
    pub fn forget(&mut self) {
        self.generation += 1;
        if self.generation >> (u64::BITS - PAGE_BITS) != 0 {
            *self = SoftTlb::new();
        }
    }

    /// The physical address; `None` for device memory. Call it only within the callback of the access.
    #[inline(always)]
    pub fn physical(&mut self, info: qemu::AccessInfo, address: u64) -> Option<u64> {
        if DIRECT_MAP.contains(&address) {
            return Some(address - DIRECT_MAP.start);
        }
        if let Some(physical) = image_offset(address) {
            return Some(physical);
        }
        let page = address >> PAGE_SHIFT & ((1 << PAGE_BITS) - 1);
        let tag = page | self.generation << PAGE_BITS;
        let index = (page ^ page >> 24) as usize % ENTRIES;
        let known = self.entries[index];
        let physical = if known.0 == tag { known.1 } else { self.ask(info, address, index, tag)? };
        Some(physical << PAGE_SHIFT | address & ((1 << PAGE_SHIFT) - 1))
    }

    #[cold]
    #[inline(never)]
    fn ask(&mut self, info: qemu::AccessInfo, address: u64, index: usize, tag: u64) -> Option<u64> {
        // SAFETY: QEMU allows the question within a memory callback; the answer is valid until it returns.
        let found = unsafe {
            let place = qemu::qemu_plugin_get_hwaddr(info, address);
            if place.is_null() || qemu::qemu_plugin_hwaddr_is_io(place) {
                return None;
            }
            qemu::qemu_plugin_hwaddr_phys_addr(place)
        };
        self.entries[index] = (tag, found >> PAGE_SHIFT);
        Some(found >> PAGE_SHIFT)
    }
}
