//! The fields of a structure, including those of nested structures.

use super::Btf;

/// A field that is not itself a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name, after the names of the structures that contain it, separated by dots.
    pub name: String,
    /// Offset in bytes from the object's beginning.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
}

const DEEPEST: usize = 16;
const MOST_FIELDS: usize = 20_000;

/// Fields in ascending order of offset. For a union, those of the member with the most fields.
pub fn fields_of(btf: &Btf, structure: &str) -> Vec<Field> {
    let Some(number) = btf.structure(structure) else { return Vec::new() };
    let mut fields = Vec::new();
    walk(btf, number, "", 0, DEEPEST, &mut fields);
    fields.sort_by_key(|field| field.offset);
    fields
}

fn walk(btf: &Btf, number: u32, path: &str, start: u64, deepest: usize, fields: &mut Vec<Field>) {
    let mut of_each = btf.members(number).into_iter().map(|member| {
        let offset = start + member.bit_offset / 8;
        let name = match (path.is_empty(), member.name.is_empty()) {
            (_, true) => path.to_string(),
            (true, _) => member.name.clone(),
            (false, _) => format!("{path}.{}", member.name),
        };
        let mut inner = Vec::new();
        match btf.aggregate(member.type_id).filter(|_| deepest > 0) {
            Some(aggregate) => walk(btf, aggregate, &name, offset, deepest - 1, &mut inner),
            None => {
                let bytes = match member.bits {
                    0 => btf.size(member.type_id).unwrap_or(0),
                    bits => (member.bit_offset % 8 + bits).div_ceil(8),
                };
                if bytes > 0 {
                    inner.push(Field { name, offset, bytes });
                }
            }
        }
        inner
    });
    if btf.is_union(number) {
        // Of equal ones the first, which the kernel's authors named first.
        let chosen = of_each.reduce(|best, next| if next.len() > best.len() { next } else { best });
        fields.extend(chosen.unwrap_or_default());
    } else {
        for inner in of_each.by_ref() {
            fields.extend(inner);
            if fields.len() > MOST_FIELDS {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::btf::tests::Writer;
    use super::*;

    #[test]
    fn fields_of_inner_structures_have_their_own_offsets() {
        let mut writer = Writer::new();
        let (int, pointer) = (writer.int(4), writer.pointer());
        let pair = writer.aggregate("", false, 8, &[("daddr", int, 0), ("saddr", int, 4)]);
        let long = writer.int(8);
        let address = writer.aggregate("", true, 8, &[("pair", long, 0), ("", pair, 0)]);
        let common = writer.aggregate("common", false, 16, &[("", address, 0), ("next", pointer, 8)]);
        writer.aggregate("sock", false, 32, &[("sk", common, 8), ("flags", int, 24)]);
        let fields = fields_of(&Btf::parse(writer.bytes()).unwrap(), "sock");
        let told: Vec<(&str, u64, u64)> =
            fields.iter().map(|field| (field.name.as_str(), field.offset, field.bytes)).collect();
        assert_eq!(told, [("sk.daddr", 8, 4), ("sk.saddr", 12, 4), ("sk.next", 16, 8), ("flags", 24, 4)]);
    }

    #[test]
    fn a_structure_within_itself_ends() {
        let mut writer = Writer::new();
        writer.aggregate("x", false, 8, &[("a", 1, 0), ("b", 1, 0)]);
        assert!(fields_of(&Btf::parse(writer.bytes()).unwrap(), "x").len() <= 2 * MOST_FIELDS);
        assert!(fields_of(&Btf::parse(writer.bytes()).unwrap(), "y").is_empty());
    }
}
