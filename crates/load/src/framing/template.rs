//! The fast path for heads. Servers repeat their heads, and [`parse_head`](super::parse_head) is a pure function, so
//! a head equal to the last one of its target has the same meaning. A changed `Date` costs one parse per second.

use super::head::{Head, parse_head};
use super::{Malformed, head};

/// Longer heads are always parsed: comparing them saves little and costs cache.
const MAX_KEPT_BYTES: usize = 4096;
/// Number of targets with a kept head of their own; further targets share them.
const SLOTS: usize = 64;

#[derive(Debug, Clone)]
struct KeptHead {
    bytes: Vec<u8>,
    head: Head,
}

/// The last head of each target, with its meaning. Each thread has one cache of at most 64 heads of 4 KiB.
#[derive(Debug)]
pub struct HeadCache {
    is_head_request: bool,
    /// Separate slot for responses to HEAD, if other requests use another method.
    head_slot: Option<usize>,
    kept: Vec<Option<KeptHead>>,
}

impl HeadCache {
    /// A cache for responses to `targets` different requests of one method.
    pub fn new(is_head_request: bool, targets: usize) -> Self {
        let slots = targets.clamp(1, SLOTS);
        HeadCache { is_head_request, head_slot: None, kept: (0..slots).map(|_| None).collect() }
    }

    /// A cache for responses to all methods: HEAD in slot 1, the others in slot 0.
    pub fn for_both() -> Self {
        HeadCache { is_head_request: false, head_slot: Some(1), kept: vec![None, None] }
    }

    #[inline]
    pub(super) fn matching(&self, slot: usize, bytes: &[u8]) -> Option<Head> {
        let kept = self.kept[if slot < self.kept.len() { slot } else { slot % self.kept.len() }].as_ref()?;
        // The kept bytes end with their only empty line, so a match is a whole head.
        (bytes.len() >= kept.bytes.len() && bytes[..kept.bytes.len()] == kept.bytes[..]).then_some(kept.head)
    }

    pub(super) fn parse(&mut self, slot: usize, bytes: &[u8]) -> Result<Head, Malformed> {
        let index = slot % self.kept.len();
        let head: Head = parse_head(bytes, self.is_head_request || self.head_slot == Some(index))?;
        if bytes.len() <= MAX_KEPT_BYTES {
            debug_assert_eq!(head::find_end(bytes, 0), Some(bytes.len()));
            match &mut self.kept[index] {
                Some(kept) => {
                    kept.bytes.clear();
                    kept.bytes.extend_from_slice(bytes);
                    kept.head = head;
                }
                empty => *empty = Some(KeptHead { bytes: bytes.to_vec(), head }),
            }
        }
        Ok(head)
    }
}
