//! Finds the kind of memory of an address.

use super::{Fixed, KernelMap, Memory, physical_of};

/// The addresses at which the kernel maps all memory (without randomisation, with four levels of page tables).
const DIRECT_MAP: std::ops::Range<u64> = 0xffff_8880_0000_0000..0xffff_c880_0000_0000;
const VMALLOC: std::ops::Range<u64> = 0xffff_c900_0000_0000..0xffff_e900_0000_0000;
const PAGE_STRUCTS: std::ops::Range<u64> = 0xffff_ea00_0000_0000..0xffff_eb00_0000_0000;
const ENTRY_AREA: std::ops::Range<u64> = 0xffff_fe00_0000_0000..0xffff_fe80_0000_0000;
const IMAGE: std::ops::Range<u64> = 0xffff_ffff_8000_0000..0xffff_ffff_a000_0000;
const MODULES: std::ops::Range<u64> = 0xffff_ffff_a000_0000..0xffff_ffff_ff00_0000;
const PAGE_SHIFT: u32 = 12;
/// Flag in `page.mapping` of an anonymous page.
const MAPPING_ANONYMOUS: u64 = 1;
const LONGEST_NAME: u64 = 48;
/// Maximum size of an object in a slab.
const LARGEST_OBJECT: u32 = 1 << 17;

/// A slab cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    /// Address of its `struct kmem_cache`.
    pub address: u64,
    /// Its name.
    pub name: String,
    /// Distance from one object to the next in bytes.
    pub size: u32,
    /// Bytes of an object.
    pub object_size: u32,
}

/// The contents of a page of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The place is not in a slab.
    Fixed(Fixed),
    /// Objects of the cache with this address; the page has this index in the slab.
    Slab {
        /// Address of the `struct kmem_cache`.
        cache: u64,
        /// Index of the page in the slab.
        page: u16,
    },
}

/// Reads the kernel's descriptions of pages.
#[derive(Debug, Clone)]
pub struct Places {
    map: KernelMap,
    /// Physical addresses of the 2 MiB pieces of the descriptions, once looked up.
    descriptions: Vec<Option<u64>>,
    per_cpu: std::ops::Range<u64>,
}

impl Places {
    /// No page has been looked up yet.
    pub fn new(map: KernelMap) -> Places {
        let pieces = ((map.memory_bytes >> PAGE_SHIFT) * map.page_bytes).div_ceil(1 << 21);
        Places { map, descriptions: vec![None; pieces as usize], per_cpu: 0..0 }
    }

    /// Reads the addresses of per-CPU variables.
    pub fn look_for_per_cpu(&mut self, memory: &impl Memory) {
        let read =
            |variable: u64| if IMAGE.contains(&variable) { memory.word((variable - IMAGE.start) & !7) } else { None };
        let unit = |word: u64| if self.map.per_cpu_bytes & 4 != 0 { word >> 32 } else { word & 0xffff_ffff };
        if let (Some(base), Some(bytes)) = (read(self.map.per_cpu_base), read(self.map.per_cpu_bytes)) {
            self.per_cpu = base..base.saturating_add(unit(bytes));
        }
    }

    /// The first address of per-CPU variables.
    pub fn per_cpu_start(&self) -> u64 {
        self.per_cpu.start
    }

    /// The kind of an address outside the map of all memory. `is_stack` is called for addresses that may be on a
    /// stack.
    #[inline]
    pub fn fixed(&self, address: u64, is_stack: impl FnOnce() -> bool) -> Fixed {
        match address {
            _ if address >> 63 == 0 => Fixed::User,
            _ if VMALLOC.contains(&address) => match () {
                _ if is_stack() => Fixed::Stack,
                _ if self.per_cpu.contains(&address) => Fixed::PerCpu,
                _ => Fixed::Vmalloc,
            },
            _ if IMAGE.contains(&address) => Fixed::Variable,
            _ if PAGE_STRUCTS.contains(&address) => Fixed::PageStruct,
            _ if ENTRY_AREA.contains(&address) => Fixed::Stack,
            _ if MODULES.contains(&address) => Fixed::Module,
            _ => Fixed::Unknown,
        }
    }

    /// The current contents of the page at a physical address that was reached through the map of all memory.
    pub fn page(&mut self, memory: &impl Memory, physical: u64) -> Found {
        if self.per_cpu.contains(&(DIRECT_MAP.start + physical)) {
            return Found::Fixed(Fixed::PerCpu);
        }
        self.slab_or_other(memory, physical >> PAGE_SHIFT).unwrap_or(Found::Fixed(Fixed::Unknown))
    }

    fn slab_or_other(&mut self, memory: &impl Memory, number: u64) -> Option<Found> {
        let map = self.map;
        let own = self.description(memory, number)?;
        let head = memory.word(own + map.page_head)?;
        // A page after the first of a compound page points to the first one's description.
        let (first, place) = match head & 1 {
            0 => (number, own),
            _ => {
                let first = (head - 1).checked_sub(PAGE_STRUCTS.start)? / map.page_bytes;
                (first, self.description(memory, first)?)
            }
        };
        if memory.word(place + map.page_flags)? & map.slab_flag != 0 {
            let cache = memory.word(place + map.slab_cache)?;
            return Some(Found::Slab { cache, page: u16::try_from(number.checked_sub(first)?).ok()? });
        }
        let mapping = memory.word(place + map.page_mapping)?;
        Some(Found::Fixed(match mapping {
            0 => Fixed::Page,
            _ if mapping & MAPPING_ANONYMOUS != 0 => Fixed::Anonymous,
            // Pages that do not belong to a file use this word differently. Address spaces of files are slab objects,
            // in the map of all memory.
            _ if DIRECT_MAP.contains(&mapping) => Fixed::PageCache,
            _ => Fixed::Page,
        }))
    }

    /// Physical address of a page's description.
    fn description(&mut self, memory: &impl Memory, number: u64) -> Option<u64> {
        let offset = number * self.map.page_bytes;
        let piece = self.descriptions.get_mut((offset >> 21) as usize)?;
        let start = match piece {
            Some(start) => *start,
            None => {
                *piece.insert(physical_of(memory, self.map.page_tables, PAGE_STRUCTS.start + (offset & !0x1f_ffff))?)
            }
        };
        Some(start + (offset & 0x1f_ffff))
    }

    /// Reads a cache's description; `None` if it cannot be one.
    pub fn cache(&self, memory: &impl Memory, address: u64) -> Option<Cache> {
        let physical = |address: u64| match address {
            _ if DIRECT_MAP.contains(&address) => Some(address - DIRECT_MAP.start),
            _ if IMAGE.contains(&address) => Some(address - IMAGE.start),
            _ => None,
        };
        let place = physical(address)?;
        let size = memory.half_word(place + self.map.cache_size)?;
        let object_size = memory.half_word(place + self.map.cache_object_size)?;
        let name = memory.word(place + self.map.cache_name)?;
        let name = memory.text(physical(name)?, LONGEST_NAME);
        let is_possible = (8..=LARGEST_OBJECT).contains(&size) && (1..=size).contains(&object_size) && !name.is_empty();
        is_possible.then_some(Cache { address, name, size, object_size })
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::tests::Written;
    use super::*;

    const MAP: KernelMap = KernelMap {
        memory_bytes: 64 << 20,
        page_tables: 0x1000,
        page_bytes: 64,
        page_flags: 0,
        slab_flag: 1 << 9,
        page_mapping: 24,
        page_head: 8,
        slab_cache: 8,
        cache_size: 24,
        cache_object_size: 28,
        cache_name: 96,
        per_cpu_base: IMAGE.start + 0x10,
        per_cpu_bytes: IMAGE.start + 0x1c,
    };
    const CACHE: u64 = DIRECT_MAP.start + 0x9000;

    /// Pages 7 and 8 are a slab, 9 belongs to a file, 10 is anonymous, and 11 is unused.
    fn memory() -> Written {
        let mut memory = Written::default();
        let mut put = |at: u64, word: u64| memory.0.insert(at, word);
        put(0x1000 + 8 * (PAGE_STRUCTS.start >> 39 & 511), 0x2001);
        put(0x2000 + 8 * (PAGE_STRUCTS.start >> 30 & 511), 0x3001);
        put(0x3000 + 8 * (PAGE_STRUCTS.start >> 21 & 511), 0x20_0081);
        let description = |page: u64| 0x20_0000 + 64 * page;
        put(description(7), MAP.slab_flag);
        put(description(7) + 8, CACHE);
        put(description(8) + 8, PAGE_STRUCTS.start + 64 * 7 + 1);
        put(description(9) + 24, DIRECT_MAP.start + 0x100);
        put(description(10) + 24, DIRECT_MAP.start + 0x101);
        put(0x9000 + 24, 2432 | 2400 << 32);
        put(0x9000 + 96, DIRECT_MAP.start + 0xa000);
        put(0xa000, u64::from_le_bytes(*b"TCP\0\0\0\0\0"));
        put(0x10, DIRECT_MAP.start + 0x30_0000);
        put(0x18, 0x8000 << 32);
        memory
    }

    #[test]
    fn a_page_leads_to_its_cache() {
        let (memory, mut places) = (memory(), Places::new(MAP));
        assert_eq!(places.page(&memory, 0x7010), Found::Slab { cache: CACHE, page: 0 });
        assert_eq!(places.page(&memory, 0x8010), Found::Slab { cache: CACHE, page: 1 });
        assert_eq!(places.page(&memory, 0x9010), Found::Fixed(Fixed::PageCache));
        assert_eq!(places.page(&memory, 0xa010), Found::Fixed(Fixed::Anonymous));
        assert_eq!(places.page(&memory, 0xb010), Found::Fixed(Fixed::Page));
        assert_eq!(places.page(&memory, 1 << 40), Found::Fixed(Fixed::Unknown));
        let cache = places.cache(&memory, CACHE).unwrap();
        assert_eq!((cache.name.as_str(), cache.size, cache.object_size), ("TCP", 2432, 2400));
        assert_eq!(places.cache(&memory, DIRECT_MAP.start + 0xb000), None);
        assert_eq!(places.cache(&memory, 12), None);
    }

    #[test]
    fn an_address_outside_the_map_is_named_by_its_value() {
        let (memory, mut places) = (memory(), Places::new(MAP));
        let fixed = |places: &Places, address: u64| places.fixed(address, || address == VMALLOC.start);
        assert_eq!(fixed(&places, 0x7fff_0000_0000), Fixed::User);
        assert_eq!(fixed(&places, VMALLOC.start), Fixed::Stack);
        assert_eq!(fixed(&places, VMALLOC.start + 8), Fixed::Vmalloc);
        assert_eq!(fixed(&places, IMAGE.start + 8), Fixed::Variable);
        assert_eq!(fixed(&places, MODULES.start + 8), Fixed::Module);
        assert_eq!(fixed(&places, PAGE_STRUCTS.start), Fixed::PageStruct);
        assert_eq!(fixed(&places, ENTRY_AREA.start), Fixed::Stack);
        assert_eq!(fixed(&places, 0xffff_8000_0000_0000), Fixed::Unknown);
        assert_eq!(places.page(&memory, 0x30_0100), Found::Fixed(Fixed::Page));
        places.look_for_per_cpu(&memory);
        assert_eq!(places.page(&memory, 0x30_0100), Found::Fixed(Fixed::PerCpu));
        assert_eq!(places.per_cpu_start(), DIRECT_MAP.start + 0x30_0000);
    }
}
