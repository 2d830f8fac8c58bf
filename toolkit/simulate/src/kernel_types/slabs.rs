//! Finds the structure of the objects in a slab cache.

use super::Btf;

const TABLE: &str = include_str!("../../data/slab_types.txt");

/// The structure, if the kernel's types have it and it fits into an object.
pub fn type_of_cache(btf: &Btf, cache: &str, object_size: u32) -> Option<String> {
    let structure = structure_of(cache);
    let bytes = btf.size(btf.structure(structure)?)?;
    (bytes <= u64::from(object_size)).then(|| structure.to_string())
}

/// The table's entry, or the cache's own name.
fn structure_of(cache: &str) -> &str {
    let known = TABLE.lines().filter_map(|line| line.split_once(' ')).find(|(name, _)| *name == cache);
    known.map_or(cache, |(_, structure)| structure)
}

/// Whether the kernel's types have a structure with this name, or the structure of a slab cache with this name.
pub fn is_structure_or_cache(btf: &Btf, name: &str) -> bool {
    btf.structure(name).or_else(|| btf.structure(structure_of(name))).is_some()
}

#[cfg(test)]
mod tests {
    use super::super::btf::tests::Writer;
    use super::*;

    #[test]
    fn a_cache_has_the_structure_of_the_table_or_of_its_name_where_it_fits() {
        let mut writer = Writer::new();
        let int = writer.int(4);
        writer.aggregate("tcp_sock", false, 2400, &[("a", int, 0)]);
        writer.aggregate("dentry", false, 192, &[("a", int, 0)]);
        let btf = Btf::parse(writer.bytes()).unwrap();
        assert_eq!(type_of_cache(&btf, "TCP", 2400).as_deref(), Some("tcp_sock"));
        assert_eq!(type_of_cache(&btf, "TCP", 2399), None);
        assert_eq!(type_of_cache(&btf, "dentry", 192).as_deref(), Some("dentry"));
        assert_eq!(type_of_cache(&btf, "kmalloc-1k", 1024), None);
        assert_eq!(type_of_cache(&btf, "#", 1024), None);
        let known =
            ["tcp_sock", "TCP", "dentry", "UDP", "no_such_struct"].map(|name| is_structure_or_cache(&btf, name));
        assert_eq!(known, [true, true, true, false, false]);
    }

    #[test]
    fn the_table_has_two_words_per_line() {
        for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            assert_eq!(line.split(' ').filter(|word| !word.is_empty()).count(), 2, "{line}");
        }
    }
}
