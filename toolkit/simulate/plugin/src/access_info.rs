//! The bits of QEMU's description of an access. QEMU is asked once for each bit, and they are then read without a
//! call. Their places differ between versions, and a call for each access would cost more than the cache model's
//! answer.

use crate::qemu::{self, AccessInfo};

/// Bit positions of the direction and the size.
#[derive(Default, Clone, Copy)]
pub struct InfoBits {
    bits: Bits,
    /// QEMU's answers are these bits. Where they are not, QEMU is asked each time.
    is_plain: bool,
}

#[derive(Default, Clone, Copy)]
struct Bits {
    store: u32,
    size_at: u32,
    size_mask: u32,
}

/// An access's direction and size.
#[derive(Clone, Copy)]
pub struct Plain {
    pub is_store: bool,
    pub bytes: u64,
}

fn queried_is_store(info: AccessInfo) -> bool {
    // SAFETY: a plain function of its argument.
    unsafe { qemu::qemu_plugin_mem_is_store(info) }
}

fn queried_size_shift(info: AccessInfo) -> u32 {
    // SAFETY: a plain function of its argument.
    unsafe { qemu::qemu_plugin_mem_size_shift(info) }
}

impl InfoBits {
    /// Asks QEMU for each bit.
    pub fn learn() -> InfoBits {
        let bits = bits(queried_is_store, queried_size_shift);
        InfoBits { bits: bits.unwrap_or_default(), is_plain: bits.is_some() }
    }

    /// Whether QEMU need not be asked.
    pub fn is_plain(self) -> bool {
        self.is_plain
    }

    /// Direction and size, if they are plain.
    #[inline(always)]
    pub fn plain(self, info: AccessInfo) -> Plain {
        let Bits { store, size_at, size_mask } = self.bits;
        Plain { is_store: info & store != 0, bytes: 1 << (info >> size_at & size_mask) }
    }

    /// Whether the access is a store.
    #[inline(always)]
    pub fn is_store(self, info: AccessInfo) -> bool {
        if self.is_plain { self.plain(info).is_store } else { queried_is_store(info) }
    }

    /// Bytes of the access.
    pub fn bytes(self, info: AccessInfo) -> u64 {
        if self.is_plain { self.plain(info).bytes } else { 1 << queried_size_shift(info) }
    }
}

fn bits(is_store: impl Fn(AccessInfo) -> bool, size_shift: impl Fn(AccessInfo) -> u32) -> Option<Bits> {
    let each = |bit: u32| 1_u32 << bit;
    let store = (0..32).map(each).filter(|bit| is_store(*bit)).fold(0, |all, bit| all | bit);
    let size_at = (0..32).find(|bit| size_shift(each(*bit)) == 1)?;
    let size_mask = (0..32).map(|bit| size_shift(each(bit))).fold(0, |all, value| all | value);
    let bits = Bits { store, size_at, size_mask };
    // A result with other bits set is refused.
    let is_so = |info: u32| is_store(info) == (info & store != 0) && size_shift(info) == info >> size_at & size_mask;
    let samples = (0..32).map(each).chain((0..4096).map(|n: u32| n.wrapping_mul(0x9E37_79B9))).chain([0, u32::MAX]);
    (store != 0 && size_mask <= 15 && samples.into_iter().all(is_so)).then_some(bits)
}
