//! The plugin's file, patched with the interface version that this QEMU accepts.

use super::qemu::Interface;
use crate::SimulateError;
use crate::parts;
use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSection, ObjectSymbol};

const VERSION: &str = "qemu_plugin_version";

/// The plugin for a QEMU with this `interface`. QEMU reads the number from the file before it runs any of the code.
pub(super) fn for_interface(interface: Interface) -> Result<Vec<u8>, SimulateError> {
    let path = parts::find(parts::PLUGIN)?;
    let bytes = std::fs::read(&path).map_err(SimulateError::system(format!("cannot read {}", path.display())))?;
    declaring(bytes, interface)
}

fn declaring(mut bytes: Vec<u8>, interface: Interface) -> Result<Vec<u8>, SimulateError> {
    let place =
        place_of_version(&bytes).ok_or_else(|| SimulateError::Impossible(format!("the plugin has no {VERSION}")))?;
    bytes[place..place + 4].copy_from_slice(&interface.0.to_le_bytes());
    Ok(bytes)
}

fn place_of_version(bytes: &[u8]) -> Option<usize> {
    let file = ElfFile64::<Endianness>::parse(bytes).ok()?;
    let symbol = file.dynamic_symbols().find(|symbol| symbol.name() == Ok(VERSION))?;
    let section = file.section_by_index(symbol.section_index()?).ok()?;
    let (start, size) = section.file_range()?;
    let within = symbol.address().checked_sub(section.address())?;
    (within + 4 <= size).then_some((start + within) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_version_changes() {
        let plugin = std::fs::read(parts::find(parts::PLUGIN).unwrap()).unwrap();
        let old = declaring(plugin.clone(), Interface(1)).unwrap();
        let new = declaring(plugin.clone(), Interface(3)).unwrap();
        assert_eq!(old, plugin);
        let place = place_of_version(&old).unwrap();
        assert_eq!((old[place], new[place]), (1, 3));
        let differing = old.iter().zip(&new).filter(|(old, new)| old != new).count();
        assert_eq!((differing, old.len()), (1, new.len()));
        assert_eq!(place_of_version(b"no program"), None);
    }
}
