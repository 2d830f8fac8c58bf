//! Kinds of memory that are not slab objects.

/// Kinds of memory that are distinguished by address or by the flags of their page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Fixed {
    /// Any other memory.
    Unknown,
    /// User-mode addresses, regardless of which code accesses them.
    User,
    /// Stacks of threads, of interrupts and of entry code.
    Stack,
    /// Variables of the kernel's image.
    Variable,
    /// Per-CPU variables, in the first chunk.
    PerCpu,
    /// Descriptions of pages (`struct page`).
    PageStruct,
    /// Memory of loadable modules.
    Module,
    /// Memory mapped by vmalloc that is not a stack.
    Vmalloc,
    /// Pages of files.
    PageCache,
    /// Anonymous pages, reached by the kernel's map of all memory.
    Anonymous,
    /// Other pages: payload of packets, large buffers, page tables.
    Page,
    /// Registers of devices.
    Device,
}

/// All kinds; the index in this list is the number.
pub const FIXED: [Fixed; 12] = [
    Fixed::Unknown,
    Fixed::User,
    Fixed::Stack,
    Fixed::Variable,
    Fixed::PerCpu,
    Fixed::PageStruct,
    Fixed::Module,
    Fixed::Vmalloc,
    Fixed::PageCache,
    Fixed::Anonymous,
    Fixed::Page,
    Fixed::Device,
];

impl Fixed {
    /// Name of the kind.
    pub fn words(self) -> &'static str {
        match self {
            Fixed::Unknown => "unattributed",
            Fixed::User => "user memory",
            Fixed::Stack => "kernel stacks",
            Fixed::Variable => "kernel variables",
            Fixed::PerCpu => "per-CPU variables",
            Fixed::PageStruct => "page descriptions",
            Fixed::Module => "modules' variables",
            Fixed::Vmalloc => "vmalloc",
            Fixed::PageCache => "page cache",
            Fixed::Anonymous => "anonymous pages",
            Fixed::Page => "other pages",
            Fixed::Device => "devices",
        }
    }
}
