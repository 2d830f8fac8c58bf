use super::{Mix, MixError};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::Distribution;
use rand_distr::weighted::WeightedAliasIndex;
use record::Share;

/// Draws documents independently, each in O(1) (Walker's alias method in Vose's version).
#[derive(Debug, Clone)]
pub struct MixSampler {
    table: WeightedAliasIndex<f64>,
    rng: Box<ChaCha8Rng>,
}

impl MixSampler {
    /// Makes a sampler of `mix`. The same seed and share give the same draws; shares draw independently of each
    /// other.
    pub fn new(mix: &Mix, seed: u64, share: Share) -> Result<Self, MixError> {
        if mix.documents.is_empty() {
            return Err(MixError::Empty);
        }
        let weights = mix.documents.iter().map(|document| document.probability).collect();
        let table = WeightedAliasIndex::new(weights)
            .map_err(|error| MixError::Parameter(format!("the probabilities of the mix are unusable: {error}")))?;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(u64::from(share.index));
        Ok(MixSampler { table, rng: Box::new(rng) })
    }

    /// Index into [`Mix::documents`] of the next request.
    #[inline]
    pub fn draw(&mut self) -> usize {
        self.table.sample(&mut self.rng)
    }
}

impl Iterator for MixSampler {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        Some(self.draw())
    }
}
