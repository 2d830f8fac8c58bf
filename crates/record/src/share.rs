use serde::{Deserialize, Serialize};

/// One of several equal parts, or `parts` neighbouring ones: a machine that counts as two has two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LoadShare {
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

impl Default for LoadShare {
    fn default() -> Self {
        LoadShare::WHOLE
    }
}

impl LoadShare {
    /// The whole load.
    pub const WHOLE: LoadShare = LoadShare::one(0, 1);

    /// One of `of` equal parts.
    pub const fn one(index: u32, of: u32) -> LoadShare {
        LoadShare { index, of, parts: 1 }
    }

    /// Whether this is the whole.
    pub fn is_whole(&self) -> bool {
        *self == LoadShare::WHOLE
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
    pub fn within(self, outer: LoadShare) -> LoadShare {
        debug_assert!(self.parts == 1, "threads are equal");
        LoadShare { index: outer.index + outer.of * self.index, of: outer.of * self.of, parts: outer.parts }
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
    pub fn by_weight(weights: &[u32]) -> Vec<LoadShare> {
        let of = weights.iter().sum();
        let ends = weights.iter().scan(0, |end, weight| {
            *end += weight;
            Some(*end)
        });
        ends.zip(weights).map(|(end, parts)| LoadShare { index: end - parts, of, parts: *parts }).collect()
    }
}
