//! Adds the counts of several threads, workers or points, and subtracts earlier ones.

use crate::Latency;
use std::collections::BTreeMap;

/// For serde: whether a count need not be written.
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Counts that can be added in any order.
pub trait Summand {
    /// Adds other counts.
    fn add(&mut self, other: &Self);
}

/// Counts that grow.
pub trait Growing {
    /// Growth of the counts; 0 for a count that shrank.
    fn since(&self, earlier: &Self) -> Self;
}

impl Growing for u64 {
    fn since(&self, earlier: &u64) -> u64 {
        self.saturating_sub(*earlier)
    }
}

impl Growing for i64 {
    fn since(&self, earlier: &i64) -> i64 {
        self.saturating_sub(*earlier).max(0)
    }
}

impl<T: Growing, const N: usize> Growing for [T; N] {
    fn since(&self, earlier: &[T; N]) -> [T; N] {
        std::array::from_fn(|at| self[at].since(&earlier[at]))
    }
}

impl<T: Summand, const N: usize> Summand for [T; N] {
    fn add(&mut self, other: &[T; N]) {
        self.iter_mut().zip(other).for_each(|(mine, theirs)| mine.add(theirs));
    }
}

impl Summand for u64 {
    // Counts may come from an untrusted file: they saturate instead of overflowing.
    fn add(&mut self, other: &u64) {
        *self = self.saturating_add(*other);
    }
}

impl Summand for i64 {
    fn add(&mut self, other: &i64) {
        *self = self.saturating_add(*other);
    }
}

impl Summand for Latency {
    fn add(&mut self, other: &Latency) {
        self.merge(other);
    }
}

impl<K: Ord + Copy> Summand for BTreeMap<K, u64> {
    fn add(&mut self, other: &BTreeMap<K, u64>) {
        for (key, count) in other {
            self.entry(*key).or_default().add(count);
        }
    }
}

impl<T: Summand + Default> Summand for Option<T> {
    fn add(&mut self, other: &Option<T>) {
        if let Some(other) = other {
            self.get_or_insert_default().add(other);
        }
    }
}

impl<T: Summand + Default + Clone> Summand for Vec<T> {
    fn add(&mut self, other: &Vec<T>) {
        self.resize(self.len().max(other.len()), T::default());
        self.iter_mut().zip(other).for_each(|(mine, theirs)| mine.add(theirs));
    }
}

/// `adds_up!(Type { fields })` gives a type its `add`, field by field. A field that is not listed does not compile.
#[macro_export]
macro_rules! adds_up {
    ($type:ident { $($field:ident),+ $(,)? }) => {
        impl $type {
            /// Adds the counts of another thread, worker or point.
            pub fn add(&mut self, other: &$type) {
                let $type { $($field),+ } = other;
                $($crate::sum::Summand::add(&mut self.$field, $field);)+
            }
        }

        impl $crate::sum::Summand for $type {
            fn add(&mut self, other: &$type) {
                $type::add(self, other);
            }
        }
    };
}

/// As [`adds_up!`], and also gives the type its `since`: the growth after an earlier reading.
#[macro_export]
macro_rules! grows {
    ($type:ident { $($field:ident),+ $(,)? }) => {
        $crate::adds_up!($type { $($field),+ });

        impl $type {
            /// Growth of the counts since `earlier`; 0 for a count that shrank.
            pub fn since(&self, earlier: &$type) -> $type {
                $type { $($field: $crate::sum::Growing::since(&self.$field, &earlier.$field)),+ }
            }
        }

        impl $crate::sum::Growing for $type {
            fn since(&self, earlier: &$type) -> $type {
                $type::since(self, earlier)
            }
        }
    };
}
