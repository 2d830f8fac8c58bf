use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, Zipf};
use record::LoadShare;
use record::protocol::Keyspace;

pub(super) struct KeyDraws {
    rng: ChaCha8Rng,
    keys: u64,
    zipf: Option<Zipf<f64>>,
    /// A random number of 32 bits below this is a read.
    reads_below: u64,
    pub(super) value: Box<[u8]>,
}

impl KeyDraws {
    pub(super) fn new(keyspace: &Keyspace, seed: u64, share: LoadShare) -> Self {
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
    pub(super) fn key(&mut self) -> u64 {
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

pub(super) struct Word(Vec<WordPiece>);

impl Word {
    /// Parses a word with the placeholders `{key}` and `{value}`.
    pub(super) fn parse(text: &str) -> Self {
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

    #[inline]
    pub(super) fn put(&self, draws: &mut KeyDraws, out: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                WordPiece::Text(text) => out.extend_from_slice(text),
                WordPiece::Key => put_number(out, draws.key()),
                WordPiece::Value => out.extend_from_slice(&draws.value),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(keyspace: &Keyspace) -> KeyDraws {
        KeyDraws::new(keyspace, 1, LoadShare::one(0, 1))
    }

    #[test]
    fn a_word_has_a_key_and_a_value_where_its_template_says_so() {
        let mut draws = draws(&Keyspace { keys: 1, value_bytes: 3, ..Keyspace::default() });
        for (template, word) in
            [("GET", "GET"), ("key:{key}", "key:0"), ("{key}{value}-{key}", "0xxx-0"), ("{kex}", "{kex}"), ("", "")]
        {
            let mut out = Vec::new();
            Word::parse(template).put(&mut draws, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), word);
        }
    }

    #[test]
    fn keys_are_drawn_from_the_whole_space_and_by_zipfs_law() {
        let keyspace = Keyspace { keys: 50, ..Keyspace::default() };
        let count = |zipf_exponent| {
            let mut draws = draws(&Keyspace { zipf_exponent, ..keyspace.clone() });
            let mut counts = [0u32; 50];
            (0..20_000).for_each(|_| counts[draws.key() as usize] += 1);
            counts
        };
        let alike = count(0.0);
        assert!(alike.iter().all(|count| (250..550).contains(count)), "{alike:?}");
        let skewed = count(1.0);
        // The first has 1/H(50) = 22 % of the draws, twice as many as the second.
        assert!((4_100..4_800).contains(&skewed[0]) && (2_000..2_500).contains(&skewed[1]), "{skewed:?}");
    }
}
