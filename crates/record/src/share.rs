//! The part of a load that belongs to one of several engine threads, replayers or machines.

use serde::{Deserialize, Serialize};

/// One of several equal parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Share {
    /// This part, from 0; less than `of`.
    pub index: u32,
    /// Number of parts, at least 1.
    pub of: u32,
}

impl Default for Share {
    fn default() -> Self {
        Share::WHOLE
    }
}

impl Share {
    /// The whole.
    pub const WHOLE: Share = Share { index: 0, of: 1 };

    /// Whether this is the whole.
    pub fn is_whole(&self) -> bool {
        *self == Share::WHOLE
    }

    /// This part of `outer`, as a part of what `outer` is a part of: a thread's share of its machine's share. The inner
    /// parts hold the keys of the outer one between them, however many there are in each of the others.
    pub fn within(self, outer: Share) -> Share {
        Share { index: outer.index + outer.of * self.index, of: outer.of * self.of }
    }

    /// This part of `total` things: equal parts, the first ones larger by one if the total does not divide. The parts
    /// add up to the total.
    pub fn part(self, total: u64) -> u64 {
        let (index, of) = (u64::from(self.index), u64::from(self.of.max(1)));
        total / of + u64::from(index < total % of)
    }

    /// Whether this part holds the thing with this key. Every key belongs to exactly one part; of the keys below a
    /// total, as many as [`part`](Self::part) gives.
    pub fn holds(self, key: u64) -> bool {
        key % u64::from(self.of.max(1)) == u64::from(self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_are_nearly_equal_and_add_up_to_the_total(total in any::<u64>(), of in 1u32..2000) {
            let parts: Vec<u64> = (0..of).map(|index| Share { index, of }.part(total)).collect();
            prop_assert_eq!(parts.iter().map(|part| u128::from(*part)).sum::<u128>(), u128::from(total));
            prop_assert!(parts.is_sorted_by(|one, next| one >= next) && parts[0] - parts[parts.len() - 1] <= 1);
        }

        #[test]
        fn each_key_is_in_one_part_and_a_part_holds_as_many_as_fall_to_it(total in 0u64..3000, of in 1u32..50) {
            let held: Vec<u64> = (0..of)
                .map(|index| (0..total).filter(|key| Share { index, of }.holds(*key)).count() as u64)
                .collect();
            let parts: Vec<u64> = (0..of).map(|index| Share { index, of }.part(total)).collect();
            prop_assert_eq!(held, parts);
        }

        #[test]
        fn parts_of_parts_hold_the_keys_of_their_part_alone(
            key in any::<u64>(), inner in prop::collection::vec(1u32..20, 1..50)
        ) {
            let of = inner.len() as u32;
            let mut owners = 0;
            for (index, threads) in inner.into_iter().enumerate() {
                let outer = Share { index: index as u32, of };
                for thread in 0..threads {
                    let share = Share { index: thread, of: threads }.within(outer);
                    prop_assert!(!share.holds(key) || outer.holds(key));
                    owners += u32::from(share.holds(key));
                }
            }
            prop_assert_eq!(owners, 1);
        }

        #[test]
        fn any_key_has_one_owner(key in any::<u64>(), of in 1u32..2000) {
            prop_assert_eq!((0..of).filter(|index| Share { index: *index, of }.holds(key)).count(), 1);
        }
    }
}
