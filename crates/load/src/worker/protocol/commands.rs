//! Commands of stores and the keys in them.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Zipf};
use record::LoadShare;
use record::protocol::Keyspace;

/// Draws keys, and reads or writes.
pub struct KeyDraws {
    rng: ChaCha8Rng,
    keys: u64,
    zipf: Option<Zipf<f64>>,
    /// A random number of 32 bits below this is a read.
    reads_below: u64,
    pub(super) value: Box<[u8]>,
}

impl KeyDraws {
    /// Draws of one thread's share.
    pub fn new(keyspace: &Keyspace, seed: u64, share: LoadShare) -> Self {
        // Independent of the random numbers of schedule and targets.
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(2 << 32 | u64::from(share.index));
        let is_skewed = keyspace.zipf_exponent > 0.0;
        KeyDraws {
            rng,
            keys: keyspace.keys.max(1),
            // `check` has verified the distribution.
            zipf: is_skewed.then(|| Zipf::new(keyspace.keys as f64, keyspace.zipf_exponent).ok()).flatten(),
            reads_below: (keyspace.read_ratio * 2f64.powi(32)).round() as u64,
            value: vec![b'x'; keyspace.value_bytes as usize].into(),
        }
    }

    /// With Zipf's law, 0 is the most frequent key.
    #[inline]
    pub fn key(&mut self) -> u64 {
        match &self.zipf {
            None => self.rng.random_range(0..self.keys),
            // Ranks begin with 1.
            Some(zipf) => (zipf.sample(&mut self.rng) as u64).clamp(1, self.keys) - 1,
        }
    }

    #[inline]
    pub(super) fn is_read(&mut self) -> bool {
        u64::from(self.rng.next_u32()) < self.reads_below
    }
}

#[inline]
pub(super) fn put_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

enum WordPiece {
    Text(Box<[u8]>),
    Key,
    Value,
}

/// A word of a command, with its placeholders.
pub struct Word(Vec<WordPiece>);

impl Word {
    /// Parses a word with the placeholders `{key}` and `{value}`.
    pub fn parse(text: &str) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let place = [("{key}", WordPiece::Key), ("{value}", WordPiece::Value)]
                .into_iter()
                .filter_map(|(name, piece)| Some((rest.find(name)?, name.len(), piece)))
                .min_by_key(|(at, _, _)| *at);
            let Some((at, length, piece)) = place else {
                pieces.push(WordPiece::Text(rest.as_bytes().into()));
                break;
            };
            if at > 0 {
                pieces.push(WordPiece::Text(rest.as_bytes()[..at].into()));
            }
            pieces.push(piece);
            rest = &rest[at + length..];
        }
        Word(pieces)
    }

    /// Appends the word.
    #[inline]
    pub fn put(&self, draws: &mut KeyDraws, out: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                WordPiece::Text(text) => out.extend_from_slice(text),
                WordPiece::Key => put_number(out, draws.key()),
                WordPiece::Value => out.extend_from_slice(&draws.value),
            }
        }
    }
}
