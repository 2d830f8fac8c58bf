//! Access to the guest's memory in the emulator.

/// Reads memory by physical address.
pub trait Memory {
    /// Eight bytes; `None` beyond the end of the memory.
    fn word(&self, physical: u64) -> Option<u64>;

    /// Four bytes.
    fn half_word(&self, physical: u64) -> Option<u32> {
        let word = self.word(physical & !7)?;
        Some((word >> (8 * (physical & 4))) as u32)
    }

    /// Bytes up to a zero, at most `most`, as text without spaces.
    fn text(&self, physical: u64, most: u64) -> String {
        let byte = |at: u64| self.word(at & !7).map_or(0, |word| (word >> (8 * (at & 7))) as u8);
        let bytes = (physical..physical.saturating_add(most)).map(byte).take_while(|byte| *byte != 0);
        bytes.map(|byte| if byte.is_ascii_graphic() { char::from(byte) } else { '_' }).collect()
    }
}

/// Memory of this process that holds the guest's memory contiguously.
#[derive(Debug, Clone, Copy)]
pub struct PhysicalMemory {
    base: u64,
    bytes: u64,
}

impl PhysicalMemory {
    /// The guest's memory of `bytes` bytes at the address `base` of this process.
    ///
    /// # Safety
    /// It must stay readable as long as this value is used.
    pub unsafe fn new(base: u64, bytes: u64) -> PhysicalMemory {
        PhysicalMemory { base, bytes }
    }
}

impl Memory for PhysicalMemory {
    #[inline]
    fn word(&self, physical: u64) -> Option<u64> {
        if !physical.is_multiple_of(8) || physical >= self.bytes {
            return None;
        }
        // SAFETY: the address is within the memory promised to `new`, and aligned, because the memory begins at a
        // page. The guest writes it in the same thread, between the emulator's callbacks.
        Some(unsafe { std::ptr::read_volatile((self.base + physical) as *const u64) })
    }
}

/// Bits of a page table entry.
const PRESENT: u64 = 1;
const LARGE: u64 = 1 << 7;
const FRAME: u64 = 0x000f_ffff_ffff_f000;

/// The physical address of a virtual one, by four levels of page tables whose first is at the physical address
/// `tables`.
pub fn physical_of(memory: &impl Memory, tables: u64, address: u64) -> Option<u64> {
    let mut table = tables;
    for shift in [39, 30, 21, 12] {
        let entry = memory.word((table & FRAME) + 8 * (address >> shift & 511))?;
        if entry & PRESENT == 0 {
            return None;
        }
        let within = (1_u64 << shift) - 1;
        if shift == 12 || (shift < 39 && entry & LARGE != 0) {
            return Some(entry & FRAME & !within | address & within);
        }
        table = entry;
    }
    None
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Memory whose words are written one by one; other words are 0.
    #[derive(Default)]
    pub struct Written(pub HashMap<u64, u64>);

    impl Memory for Written {
        fn word(&self, physical: u64) -> Option<u64> {
            assert!(physical.is_multiple_of(8), "{physical:#x} is not aligned");
            (physical < 1 << 30).then(|| self.0.get(&physical).copied().unwrap_or(0))
        }
    }

    #[test]
    fn page_tables_are_walked_to_small_and_large_pages() {
        let mut memory = Written::default();
        let address = 0xffff_ea00_0123_4567_u64;
        let at = |shift: u32| 8 * (address >> shift & 511);
        memory.0.insert(0x1000 + at(39), 0x2000 | PRESENT);
        memory.0.insert(0x2000 + at(30), 0x3000 | PRESENT);
        memory.0.insert(0x3000 + at(21), 0x80_0000 | PRESENT | LARGE);
        assert_eq!(physical_of(&memory, 0x1000, address), Some(0x80_0000 + (address & 0x1f_ffff)));
        memory.0.insert(0x3000 + at(21), 0x4000 | PRESENT);
        assert_eq!(physical_of(&memory, 0x1000, address), None, "the last entry is not present");
        memory.0.insert(0x4000 + at(12), 0x5000 | PRESENT);
        assert_eq!(physical_of(&memory, 0x1000, address), Some(0x5567));
        assert_eq!(physical_of(&memory, 0x1000, 0), None);
    }

    #[test]
    fn text_ends_at_a_zero_byte_and_contains_no_space() {
        let mut memory = Written::default();
        memory.0.insert(8, u64::from_le_bytes(*b"a b\x01cdef"));
        memory.0.insert(16, u64::from_le_bytes(*b"gh\0xxxxx"));
        assert_eq!(memory.text(8, 64), "a_b_cdefgh");
        assert_eq!(memory.text(9, 3), "_b_");
        assert_eq!(memory.half_word(12), Some(u32::from_le_bytes(*b"cdef")));
    }

    #[test]
    fn nothing_is_read_beyond_the_memory() {
        let words = [1_u64, 2, 3];
        // SAFETY: the array lives until the end of the test.
        let memory = unsafe { PhysicalMemory::new(words.as_ptr() as u64, 24) };
        assert_eq!((memory.word(16), memory.word(24), memory.word(4)), (Some(3), None, None));
    }
}
