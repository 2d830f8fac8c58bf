//! Addresses and offsets in the guest's kernel that the plugin reads.

/// Offsets in bytes and addresses, from the kernel's type information and its symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelMap {
    /// Bytes of the guest's memory, which is contiguous from physical address 0.
    pub memory_bytes: u64,
    /// Physical address of the kernel's page tables (`init_top_pgt`), of four levels.
    pub page_tables: u64,
    /// Bytes of a `struct page`.
    pub page_bytes: u64,
    /// `page.flags`.
    pub page_flags: u64,
    /// The flag of slabs (`PG_slab`), as a mask.
    pub slab_flag: u64,
    /// `page.mapping`.
    pub page_mapping: u64,
    /// `page.compound_head`.
    pub page_head: u64,
    /// `slab.slab_cache`; a `struct slab` is where the first `struct page` of its pages is.
    pub slab_cache: u64,
    /// `kmem_cache.size`, an `unsigned int`: the distance from one object to the next.
    pub cache_size: u64,
    /// `kmem_cache.object_size`, an `unsigned int`.
    pub cache_object_size: u64,
    /// `kmem_cache.name`.
    pub cache_name: u64,
    /// Address of the variable `pcpu_base_addr`, or 0.
    pub per_cpu_base: u64,
    /// Address of the variable `pcpu_unit_size`, or 0.
    pub per_cpu_bytes: u64,
}

impl KernelMap {
    fn numbers(&mut self) -> [&mut u64; 13] {
        [
            &mut self.memory_bytes,
            &mut self.page_tables,
            &mut self.page_bytes,
            &mut self.page_flags,
            &mut self.slab_flag,
            &mut self.page_mapping,
            &mut self.page_head,
            &mut self.slab_cache,
            &mut self.cache_size,
            &mut self.cache_object_size,
            &mut self.cache_name,
            &mut self.per_cpu_base,
            &mut self.per_cpu_bytes,
        ]
    }

    /// The map as words.
    pub fn to_text(mut self) -> String {
        self.numbers().map(|number| number.to_string()).join(" ")
    }

    /// Reads the text of [`KernelMap::to_text`].
    pub fn from_text(text: &str) -> Option<KernelMap> {
        let mut map = KernelMap::default();
        let mut words = text.split(' ');
        for number in map.numbers() {
            *number = words.next()?.parse().ok()?;
        }
        words.next().is_none().then_some(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_read_back_unchanged() {
        let mut map = KernelMap::default();
        map.numbers().into_iter().enumerate().for_each(|(index, number)| *number = index as u64 * 7);
        assert_eq!(KernelMap::from_text(&map.to_text()), Some(map));
        assert_eq!(KernelMap::from_text("1 2"), None);
        assert_eq!(KernelMap::from_text(&format!("{} 1", map.to_text())), None);
    }
}
