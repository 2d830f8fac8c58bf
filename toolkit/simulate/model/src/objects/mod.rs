//! Finds the kernel object that an access touches.
//!
//! The kernel takes its objects from slab caches, one for each kind (the guest is started with `slab_nomerge`), and
//! describes every page of memory by a `struct page`. So an address leads to its page, the page to its cache, and the
//! cache's object size to the offset within the object. All of this is read from the guest's memory at the time of
//! the access ([`Places`]), with offsets from the kernel's own type information (BTF) ([`KernelMap`]). No register is
//! read and no allocation followed.

mod kinds;
mod map;
mod memory;
mod places;
mod tally;

pub use kinds::{FIXED, Fixed};
pub use map::KernelMap;
pub use memory::{Memory, PhysicalMemory, physical_of};
pub use places::{Cache, Found, Places};
pub use tally::{DISTANCES, ObjectCounts, Packing, Tally, WORD_BYTES, Word};
