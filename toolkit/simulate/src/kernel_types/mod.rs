//! The guest kernel's description of itself: its types (BTF), its variables, and the map from an address to an object.

mod btf;
mod fields;
mod map;
mod slabs;
mod variables;

pub use btf::{Btf, BtfError};
pub use fields::{Field, fields_of};
pub use map::kernel_map;
pub use slabs::{is_structure_or_cache, type_of_cache};
pub use variables::Variables;

#[cfg(test)]
pub(crate) use btf::tests as tests_writer;
