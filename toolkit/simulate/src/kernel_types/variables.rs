//! The kernel's variables, from the guest's own `/proc/kallsyms`.

/// Variables in ascending order of address; per-CPU variables by their offset in a processor's part.
#[derive(Debug, Clone, Default)]
pub struct Variables {
    /// Address and name.
    image: Vec<(u64, String)>,
    per_cpu: Vec<(u64, String)>,
}

/// Maximum number of lines; no kernel has more.
const MOST: usize = 2_000_000;
/// Maximum size of the static per-CPU variables; those of a kernel need less.
const MOST_PER_CPU: u64 = 1 << 20;

impl Variables {
    /// Reads `kallsyms`: address, kind and name on each line.
    pub fn parse(kallsyms: &str) -> Variables {
        let mut variables = Variables::default();
        for line in kallsyms.lines().take(MOST) {
            let mut words = line.split_whitespace();
            let (Some(address), Some(kind), Some(name)) = (words.next(), words.next(), words.next()) else { continue };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            if matches!(kind, "t" | "T" | "w" | "W") && address >> 63 != 0 || name.starts_with("__per_cpu_") {
                continue;
            }
            match address {
                _ if address >> 63 != 0 => variables.image.push((address, name.into())),
                ..MOST_PER_CPU => variables.per_cpu.push((address, name.into())),
                _ => {}
            }
        }
        variables.image.sort();
        variables.per_cpu.sort();
        variables
    }

    /// The address of a variable in the image.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.image.iter().find(|(_, known)| known == name).map(|(address, _)| *address)
    }

    /// The offset of a per-CPU variable within a processor's part.
    pub fn per_cpu(&self, name: &str) -> Option<u64> {
        self.per_cpu.iter().find(|(_, known)| known == name).map(|(offset, _)| *offset)
    }

    /// The variable at an address, or the last one before it. A line of 64 bytes may hold others.
    pub fn at(&self, address: u64) -> Option<&str> {
        let list = if address >> 63 != 0 { &self.image } else { &self.per_cpu };
        // A variable that begins within the line describes it better than one that ends in it.
        let within = list.partition_point(|(start, _)| *start < address);
        let begins = list.get(within).filter(|(start, _)| *start < address + 64);
        let before = list[..within].last().filter(|(start, _)| address - start < MOST_PER_CPU);
        begins.or(before).map(|(_, name)| name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_found_by_name_and_by_line() {
        let text = "ffffffff81000000 T _text\nffffffff82000000 D init_top_pgt\nffffffff82001010 b counter\n\
            ffffffff82001050 B other\n0000000000000000 A fixed_percpu_data\n0000000000020a00 A runqueues\nnot a line\n";
        let variables = Variables::parse(text);
        assert_eq!(variables.address("init_top_pgt"), Some(0xffff_ffff_8200_0000));
        assert_eq!(variables.address("_text"), None, "a function is no variable");
        assert_eq!(variables.at(0xffff_ffff_8200_1000), Some("counter"));
        assert_eq!(variables.at(0xffff_ffff_8200_1040), Some("other"));
        assert_eq!(variables.at(0xffff_ffff_8200_1080), Some("other"));
        assert_eq!(variables.at(0x20a40), Some("runqueues"));
        assert_eq!((variables.per_cpu("runqueues"), variables.per_cpu("counter")), (Some(0x20a00), None));
        assert_eq!(Variables::default().at(64), None);
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "\\PC{0,200}", address in proptest::prelude::any::<u64>()) {
            Variables::parse(&text).at(address & !63);
        }
    }
}
