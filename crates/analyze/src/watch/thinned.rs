//! A list of bounded length for any number of readings.

/// Keeps every reading until there are too many, then every second one, every fourth, and so on.
#[derive(Debug, Clone, Default)]
pub(super) struct Thinned<T> {
    pub kept: Vec<T>,
    /// One of 2^`halvings` readings is kept.
    halvings: u32,
    offered: u64,
}

impl<T> Thinned<T> {
    /// Returns the reading if it was not kept.
    pub fn push(&mut self, reading: T, most: usize) -> Option<T> {
        let is_kept = self.offered.is_multiple_of(1 << self.halvings);
        self.offered += 1;
        if !is_kept {
            return Some(reading);
        }
        self.kept.push(reading);
        if self.kept.len() > most {
            let mut at = 0;
            self.kept.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.halvings += 1;
        }
        None
    }
}
