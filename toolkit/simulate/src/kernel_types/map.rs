//! Makes the map from an address to an object from the kernel's types and variables.

use super::{Btf, Variables};
use crate::objects::KernelMap;

/// Address of the kernel's image, at physical address 0.
const IMAGE: u64 = 0xffff_ffff_8000_0000;

/// The map, or the data that is missing for it.
pub fn kernel_map(btf: &Btf, variables: &Variables, memory_bytes: u64) -> Result<KernelMap, String> {
    let offset = |structure: &str, member: &str| {
        btf.offset(structure, member).ok_or(format!("this kernel's types have no {structure}.{member}"))
    };
    let address = |name: &str| {
        variables.address(name).ok_or(format!(
            "this kernel does not list the address of its variable \
        {name}"
        ))
    };
    let flag = btf
        .enumerator("pageflags", "PG_slab")
        .filter(|bit| *bit < 64)
        .ok_or("this kernel does not mark pages of slabs by PG_slab")?;
    let page = btf.structure("page").ok_or("this kernel's types have no page")?;
    // Before Linux 5.17 the first page of a slab described it.
    let slab = if btf.structure("slab").is_some() { "slab" } else { "page" };
    Ok(KernelMap {
        memory_bytes,
        page_tables: address("init_top_pgt")?.wrapping_sub(IMAGE),
        page_bytes: btf.size(page).unwrap_or(64),
        page_flags: offset("page", "flags")?,
        slab_flag: 1 << flag,
        page_mapping: offset("page", "mapping")?,
        page_head: offset("page", "compound_head")?,
        slab_cache: offset(slab, "slab_cache")?,
        cache_size: offset("kmem_cache", "size")?,
        cache_object_size: offset("kmem_cache", "object_size")?,
        cache_name: offset("kmem_cache", "name")?,
        per_cpu_base: variables.address("pcpu_base_addr").unwrap_or(0),
        per_cpu_bytes: variables.address("pcpu_unit_size").unwrap_or(0),
    })
}
