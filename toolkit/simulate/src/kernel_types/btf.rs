//! The kernel's type information, BTF (`Documentation/bpf/btf.rst`). No maintained library under a permissive licence
//! reads it without a BPF loader (btf-rs is LGPL), and only sizes, members and enumerators are needed here.

/// Why type information cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the kernel's type information cannot be read: {0}")]
pub struct BtfError(&'static str);

const MAGIC: u16 = 0xeb9f;
/// Maximum depth of chains of typedefs and modifiers, and of nested structures.
const DEEPEST: usize = 32;
/// Maximum number of types; no kernel has more.
const MOST_TYPES: usize = 4_000_000;

mod kind {
    pub const INT: u32 = 1;
    pub const PTR: u32 = 2;
    pub const ARRAY: u32 = 3;
    pub const STRUCT: u32 = 4;
    pub const UNION: u32 = 5;
    pub const ENUM: u32 = 6;
    pub const TYPEDEF: u32 = 8;
    pub const VOLATILE: u32 = 9;
    pub const CONST: u32 = 10;
    pub const RESTRICT: u32 = 11;
    pub const FUNC_PROTO: u32 = 13;
    pub const VAR: u32 = 14;
    pub const DATASEC: u32 = 15;
    pub const FLOAT: u32 = 16;
    pub const DECL_TAG: u32 = 17;
    pub const TYPE_TAG: u32 = 18;
    pub const ENUM64: u32 = 19;
}

/// A type's header, and the offset of the data after it.
#[derive(Debug, Clone, Copy)]
struct Type {
    name: u32,
    info: u32,
    size_or_type: u32,
    rest: usize,
}

impl Type {
    fn kind(self) -> u32 {
        self.info >> 24 & 31
    }

    fn count(self) -> usize {
        (self.info & 0xffff) as usize
    }

    fn is_aggregate(self) -> bool {
        matches!(self.kind(), kind::STRUCT | kind::UNION)
    }
}

/// Types by number.
#[derive(Debug, Clone)]
pub struct Btf {
    bytes: Vec<u8>,
    types: Vec<Type>,
    strings: std::ops::Range<usize>,
}

/// A member of a structure or union.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name; empty for an anonymous structure or union.
    pub name: String,
    /// Offset from the beginning in bits.
    pub bit_offset: u64,
    /// Number of its type.
    pub type_id: u32,
    /// Number of bits of a bit field.
    pub bits: u64,
}

impl Btf {
    /// Reads `/sys/kernel/btf/vmlinux`.
    pub fn parse(bytes: Vec<u8>) -> Result<Btf, BtfError> {
        let word = |at: usize| read_u32(&bytes, at);
        let short = BtfError("it ends too early");
        if bytes.len() < 24 || u16::from_le_bytes([bytes[0], bytes[1]]) != MAGIC {
            return Err(BtfError("it has a wrong beginning"));
        }
        let header = word(4).ok_or(short.clone())? as usize;
        let part = |offset: usize, length: usize| -> Option<std::ops::Range<usize>> {
            let start = header.checked_add(word(offset)? as usize)?;
            let end = start.checked_add(word(length)? as usize)?;
            (end <= bytes.len()).then_some(start..end)
        };
        let (types_at, strings) = part(8, 12).zip(part(16, 20)).ok_or(short.clone())?;
        // Type 0 is void.
        let mut types = vec![Type { name: 0, info: 0, size_or_type: 0, rest: 0 }];
        let mut at = types_at.start;
        while at < types_at.end {
            let field = |index: usize| word(at + 4 * index).ok_or(short.clone());
            let one = Type { name: field(0)?, info: field(1)?, size_or_type: field(2)?, rest: at + 12 };
            let rest = match one.kind() {
                kind::INT | kind::VAR | kind::DECL_TAG => 4,
                kind::ARRAY => 12,
                kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => 12 * one.count(),
                kind::ENUM | kind::FUNC_PROTO => 8 * one.count(),
                kind::PTR | 7..=12 | kind::FLOAT | kind::TYPE_TAG => 0,
                _ => return Err(BtfError("it has an unknown kind of type")),
            };
            at += 12 + rest;
            if at > types_at.end || types.len() >= MOST_TYPES {
                return Err(short);
            }
            types.push(one);
        }
        Ok(Btf { bytes, types, strings })
    }

    fn word(&self, at: usize) -> u32 {
        read_u32(&self.bytes, at).unwrap_or(0)
    }

    fn get(&self, number: u32) -> Option<Type> {
        self.types.get(number as usize).copied()
    }

    fn name_at(&self, offset: u32) -> &str {
        let start = self.strings.start.saturating_add(offset as usize);
        let bytes = self.bytes.get(start..self.strings.end).unwrap_or_default();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        std::str::from_utf8(&bytes[..end]).unwrap_or("?")
    }

    /// The number of the structure or union with this name.
    pub fn structure(&self, name: &str) -> Option<u32> {
        let found = self
            .types
            .iter()
            .position(|one| one.is_aggregate() && one.size_or_type > 0 && self.name_at(one.name) == name);
        found.map(|number| number as u32)
    }

    /// The structure or union after typedefs and modifiers; `None` for any other type.
    pub fn aggregate(&self, number: u32) -> Option<u32> {
        let number = self.bare(number)?;
        self.get(number)?.is_aggregate().then_some(number)
    }

    /// Whether it is a union.
    pub fn is_union(&self, number: u32) -> bool {
        self.get(number).is_some_and(|one| one.kind() == kind::UNION)
    }

    fn bare(&self, mut number: u32) -> Option<u32> {
        for _ in 0..DEEPEST {
            let one = self.get(number)?;
            match one.kind() {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    number = one.size_or_type;
                }
                _ => return Some(number),
            }
        }
        None
    }

    /// Bytes of a type.
    pub fn size(&self, number: u32) -> Option<u64> {
        let (mut number, mut times) = (number, 1_u64);
        for _ in 0..DEEPEST {
            number = self.bare(number)?;
            let one = self.get(number)?;
            match one.kind() {
                kind::PTR => return times.checked_mul(8),
                kind::INT | kind::STRUCT | kind::UNION | kind::ENUM | kind::ENUM64 | kind::FLOAT => {
                    return times.checked_mul(one.size_or_type.into());
                }
                kind::ARRAY => {
                    times = times.checked_mul(self.word(one.rest + 8).into())?;
                    number = self.word(one.rest);
                }
                _ => return None,
            }
        }
        None
    }

    /// Members of a structure or union.
    pub fn members(&self, number: u32) -> Vec<Member> {
        let Some(one) = self.get(number).filter(|one| one.is_aggregate()) else { return Vec::new() };
        let has_bit_fields = one.info >> 31 != 0;
        let member = |index: usize| {
            let at = one.rest + 12 * index;
            let (name, type_id, offset) = (self.word(at), self.word(at + 4), self.word(at + 8));
            let (bits, bit_offset) = if has_bit_fields { (offset >> 24, offset & 0xff_ffff) } else { (0, offset) };
            Member { name: self.name_at(name).into(), bit_offset: bit_offset.into(), type_id, bits: bits.into() }
        };
        (0..one.count()).map(member).collect()
    }

    /// Offset in bytes from a structure's beginning to a member with this name, which may be within anonymous
    /// members.
    pub fn offset(&self, structure: &str, member: &str) -> Option<u64> {
        self.offset_in(self.structure(structure)?, member, DEEPEST)
    }

    fn offset_in(&self, number: u32, name: &str, deepest: usize) -> Option<u64> {
        for member in self.members(number) {
            if member.name == name {
                return Some(member.bit_offset / 8);
            }
            if member.name.is_empty()
                && deepest > 0
                && let Some(inner) = self.aggregate(member.type_id)
                && let Some(offset) = self.offset_in(inner, name, deepest - 1)
            {
                return Some(member.bit_offset / 8 + offset);
            }
        }
        None
    }

    /// The value of an enumerator in the enumeration with this name.
    pub fn enumerator(&self, enumeration: &str, name: &str) -> Option<u32> {
        let one = self.types.iter().find(|one| one.kind() == kind::ENUM && self.name_at(one.name) == enumeration)?;
        let at = (0..one.count()).map(|index| one.rest + 8 * index).find(|at| self.name_at(self.word(*at)) == name)?;
        Some(self.word(at + 4))
    }
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(four.try_into().ok()?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Writes type information for tests.
    pub struct Writer {
        types: Vec<u8>,
        strings: Vec<u8>,
        count: u32,
    }

    impl Writer {
        pub fn new() -> Writer {
            Writer { types: Vec::new(), strings: vec![0], count: 0 }
        }

        fn string(&mut self, text: &str) -> u32 {
            let at = self.strings.len() as u32;
            self.strings.extend(text.bytes().chain([0]));
            if text.is_empty() { 0 } else { at }
        }

        fn put(&mut self, words: &[u32]) -> u32 {
            words.iter().for_each(|word| self.types.extend(word.to_le_bytes()));
            self.count += 1;
            self.count
        }

        pub fn int(&mut self, bytes: u32) -> u32 {
            self.put(&[0, kind::INT << 24, bytes, 0])
        }

        pub fn pointer(&mut self) -> u32 {
            self.put(&[0, kind::PTR << 24, 0])
        }

        pub fn typedef(&mut self, of: u32) -> u32 {
            self.put(&[0, kind::TYPEDEF << 24, of])
        }

        pub fn array(&mut self, of: u32, count: u32) -> u32 {
            self.put(&[0, kind::ARRAY << 24, 0, of, 0, count])
        }

        pub fn enumeration(&mut self, name: &str, values: &[(&str, u32)]) -> u32 {
            let mut words = vec![self.string(name), kind::ENUM << 24 | values.len() as u32, 4];
            for (name, value) in values {
                words.extend([self.string(name), *value]);
            }
            self.put(&words)
        }

        /// Members: name, type, offset in bytes.
        pub fn aggregate(&mut self, name: &str, is_union: bool, bytes: u32, members: &[(&str, u32, u32)]) -> u32 {
            let kind = if is_union { kind::UNION } else { kind::STRUCT };
            let mut words = vec![self.string(name), kind << 24 | members.len() as u32, bytes];
            for (name, type_id, offset) in members {
                words.extend([self.string(name), *type_id, offset * 8]);
            }
            self.put(&words)
        }

        pub fn bytes(&self) -> Vec<u8> {
            let mut out = MAGIC.to_le_bytes().to_vec();
            out.extend([1, 0]);
            let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
            [24, 0, types, types, strings].iter().for_each(|word: &u32| out.extend(word.to_le_bytes()));
            out.extend(&self.types);
            out.extend(&self.strings);
            out
        }
    }

    #[test]
    fn sizes_and_offsets_are_found_through_typedefs_arrays_and_anonymous_members() {
        let mut writer = Writer::new();
        let int = writer.int(4);
        let pointer = writer.pointer();
        let word = writer.typedef(int);
        let four = writer.array(word, 4);
        let inner = writer.aggregate("", true, 16, &[("a", int, 0), ("b", four, 0)]);
        writer.aggregate("outer", false, 32, &[("p", pointer, 0), ("", inner, 8), ("end", int, 24)]);
        writer.enumeration("flags", &[("first", 3), ("second", 9)]);
        let btf = Btf::parse(writer.bytes()).unwrap();
        assert_eq!((btf.size(four), btf.size(pointer), btf.size(0)), (Some(16), Some(8), None));
        assert_eq!(btf.offset("outer", "b"), Some(8));
        assert_eq!(btf.offset("outer", "end"), Some(24));
        assert_eq!((btf.offset("outer", "c"), btf.offset("other", "a")), (None, None));
        assert_eq!((btf.enumerator("flags", "second"), btf.enumerator("flags", "x")), (Some(9), None));
    }

    #[test]
    fn invalid_type_information_is_refused() {
        assert!(Btf::parse(Vec::new()).is_err());
        assert!(Btf::parse(vec![0; 100]).is_err());
        let mut writer = Writer::new();
        writer.int(4);
        let whole = writer.bytes();
        for length in 0..whole.len() {
            assert!(Btf::parse(whole[..length].to_vec()).is_err(), "{length}");
        }
    }

    #[test]
    fn a_type_that_contains_itself_ends() {
        let mut writer = Writer::new();
        writer.typedef(1);
        writer.array(2, 2);
        let btf = Btf::parse(writer.bytes()).unwrap();
        assert_eq!((btf.size(1), btf.size(2)), (None, None));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(mut bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let header = Writer::new().bytes();
            for (byte, wanted) in bytes.iter_mut().zip(&header[..12]) {
                *byte = *wanted;
            }
            if let Ok(btf) = Btf::parse(bytes) {
                for number in 0..20 {
                    let _ = (btf.size(number), btf.members(number), btf.aggregate(number));
                }
                let _ = (btf.offset("", "x"), btf.enumerator("", "x"));
            }
        }
    }
}
