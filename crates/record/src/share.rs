use serde::{Deserialize, Serialize};

/// One of several equal parts, or `parts` neighbouring ones: a machine that counts as two has two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Share {
    /// Number of the first part, from 0; less than `of`.
    pub index: u32,
    /// Total number of parts, at least 1.
    pub of: u32,
    /// Number of neighbouring parts from `index` on.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub parts: u32,
}

fn one() -> u32 {
    1
}

fn is_one(parts: &u32) -> bool {
    *parts == 1
}

impl Default for Share {
    fn default() -> Self {
        Share::WHOLE
    }
}

impl Share {
    /// The whole load.
    pub const WHOLE: Share = Share::one(0, 1);

    /// One of `of` equal parts.
    pub const fn one(index: u32, of: u32) -> Share {
        Share { index, of, parts: 1 }
    }

    /// Whether this is the whole.
    pub fn is_whole(&self) -> bool {
        *self == Share::WHOLE
    }

    /// Whether the numbers describe existing parts.
    pub fn exists(&self) -> bool {
        self.parts > 0 && self.index.checked_add(self.parts).is_some_and(|end| end <= self.of)
    }

    /// The fraction of the whole.
    pub fn fraction(self) -> f64 {
        f64::from(self.parts) / f64::from(self.of.max(1))
    }

    /// This part of `outer`, as a part of the whole: e.g. a thread's share of its machine's share. The inner parts
    /// together have exactly the keys of the outer one.
    pub fn within(self, outer: Share) -> Share {
        debug_assert!(self.parts == 1, "threads are equal");
        Share { index: outer.index + outer.of * self.index, of: outer.of * self.of, parts: outer.parts }
    }

    /// This part of `total` things: equal parts, of which the first ones are larger by one if the total does not
    /// divide evenly. The parts add up to the total.
    pub fn part(self, total: u64) -> u64 {
        let (index, of, parts) = (u64::from(self.index), u64::from(self.of.max(1)), u64::from(self.parts));
        total / of * parts + (total % of).saturating_sub(index).min(parts)
    }

    /// Whether the thing with this key belongs to this part. Every key belongs to exactly one part, and below a total
    /// there are as many keys as [`part`](Self::part) returns.
    pub fn holds(self, key: u64) -> bool {
        let place = key % u64::from(self.of.max(1));
        (u64::from(self.index)..u64::from(self.index) + u64::from(self.parts)).contains(&place)
    }

    /// Parts in proportion to weights of at least 1, in order.
    pub fn by_weight(weights: &[u32]) -> Vec<Share> {
        let of = weights.iter().sum();
        let ends = weights.iter().scan(0, |end, weight| {
            *end += weight;
            Some(*end)
        });
        ends.zip(weights).map(|(end, parts)| Share { index: end - parts, of, parts: *parts }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn unequal_shares_and_their_threads_add_up_and_contain_each_key_once(
            total in 0u64..3000, machines in prop::collection::vec((1u32..9, 1u32..5), 1..9)
        ) {
            let weights: Vec<u32> = machines.iter().map(|(weight, _)| *weight).collect();
            let shares = Share::by_weight(&weights);
            prop_assert!(shares.iter().all(Share::exists));
            prop_assert!((shares.iter().map(|share| share.fraction()).sum::<f64>() - 1.0).abs() < 1e-9);
            let mut owners = vec![0; total as usize];
            for (share, (_, threads)) in shares.iter().zip(&machines) {
                let held = (0..total).filter(|key| share.holds(*key)).count() as u64;
                prop_assert_eq!(held, share.part(total));
                let threads = (0..*threads).map(|thread| Share::one(thread, *threads).within(*share));
                for thread in threads {
                    prop_assert!(thread.exists());
                    let keys: Vec<u64> = (0..total).filter(|key| thread.holds(*key)).collect();
                    prop_assert!(keys.iter().all(|key| share.holds(*key)));
                    keys.iter().for_each(|key| owners[*key as usize] += 1);
                }
            }
            prop_assert!(owners.iter().all(|owners| *owners == 1));
        }

        #[test]
        fn shares_are_nearly_equal_and_add_up_to_the_total(total in any::<u64>(), of in 1u32..2000) {
            let parts: Vec<u64> = (0..of).map(|index| Share::one(index, of).part(total)).collect();
            prop_assert_eq!(parts.iter().map(|part| u128::from(*part)).sum::<u128>(), u128::from(total));
            prop_assert!(parts.is_sorted_by(|one, next| one >= next) && parts[0] - parts[parts.len() - 1] <= 1);
        }
    }
}
