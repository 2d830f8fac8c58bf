//! Addresses of the guest's kernel, as Linux lays them out on x86-64.

/// Where the kernel maps all memory (`page_offset_base` without randomisation, with four levels of page tables).
pub const DIRECT_MAP: std::ops::Range<u64> = 0xffff_8880_0000_0000..0xffff_c880_0000_0000;
/// Where the kernel's image is; physical address 0 is at its start.
const IMAGE: std::ops::Range<u64> = 0xffff_ffff_8000_0000..0xffff_ffff_a000_0000;
/// Pages have 4 KiB.
pub const PAGE_SHIFT: u32 = 12;

/// A page as seen by the TLBs: the kernel's image and its map of all memory use pages of 2 MiB.
#[inline(always)]
pub fn tlb_page(address: u64) -> u64 {
    let within = address & 0xffff_ffff_ffff;
    if DIRECT_MAP.contains(&address) || IMAGE.contains(&address) { large_page(within) } else { within }
}

/// The physical address of code in the kernel's image.
#[inline(always)]
pub fn image_offset(address: u64) -> Option<u64> {
    IMAGE.contains(&address).then(|| address - IMAGE.start)
}

/// The page of the kernel's image with this physical address, like [`tlb_page`].
#[inline(always)]
pub fn image_page(physical: u64) -> u64 {
    large_page(IMAGE.start.wrapping_add(physical) & 0xffff_ffff_ffff)
}

/// A page of 2 MiB, distinguished from all small ones.
#[inline(always)]
fn large_page(within: u64) -> u64 {
    (within >> 21 | 1 << 40) << PAGE_SHIFT
}
