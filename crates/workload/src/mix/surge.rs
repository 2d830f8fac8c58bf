//! A mix like SURGE's (Barford & Crovella, Generating Representative Web Workloads for Network and Server Performance
//! Evaluation, SIGMETRICS 1998): its file sizes and popularity. SURGE's embedded references, temporal locality and
//! OFF times are not part of a mix.

use super::hybrid::dealt;
use super::{Document, HybridSizes, Mix, MixClasses, zipf};
use crate::{WorkloadError, wrong};

/// Parameters of the mix; the defaults are those commonly quoted for SURGE (not compared with the paper's own table).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SurgeParameters {
    /// File sizes. Default: body mu 9.357 and sigma 1.318, tail from 133,000 bytes with alpha 1.1, 7 % of the files.
    pub sizes: HybridSizes,
    /// Number of files. Default 2,000, as in SURGE's experiments.
    pub files: usize,
    /// Zipf's exponent of the popularity. Default 1.
    pub zipf_exponent: f64,
    /// Size of the largest file. The tail has no finite mean, so it must end somewhere. Default 100 MiB, which 2,000
    /// files do not reach.
    pub largest_bytes: u64,
}

impl Default for SurgeParameters {
    fn default() -> Self {
        SurgeParameters {
            sizes: HybridSizes {
                body_mu: 9.357,
                body_sigma: 1.318,
                tail_from_bytes: 133_000.0,
                tail_alpha: 1.1,
                tail_ratio: 0.07,
            },
            files: 2000,
            zipf_exponent: 1.0,
            largest_bytes: 100 << 20,
        }
    }
}

impl Mix {
    /// Makes files with a lognormal body and a Pareto tail, requested by Zipf's law. Size and popularity are
    /// unrelated.
    pub fn surge(parameters: &SurgeParameters) -> Result<Mix, WorkloadError> {
        Mix::of_distribution("surge", parameters)
    }

    pub(super) fn of_distribution(name: &'static str, parameters: &SurgeParameters) -> Result<Mix, WorkloadError> {
        let SurgeParameters { sizes, files, zipf_exponent, largest_bytes } = *parameters;
        let is_sane = sizes.body_mu.is_finite()
            && (1e-6..100.0).contains(&sizes.body_sigma)
            && sizes.tail_from_bytes >= 1.0
            && sizes.tail_alpha > 0.0
            && (0.0..=1.0).contains(&sizes.tail_ratio)
            && (0.0..100.0).contains(&zipf_exponent);
        if !is_sane {
            return Err(wrong(format!(
                "invalid size distribution: body mu {} sigma {}, tail from {} bytes alpha {} share {}, Zipf {}",
                sizes.body_mu,
                sizes.body_sigma,
                sizes.tail_from_bytes,
                sizes.tail_alpha,
                sizes.tail_ratio,
                zipf_exponent
            )));
        }
        if !(1..=10_000_000).contains(&files) {
            return Err(wrong(format!("a mix cannot have {files} files: use 1 to 10,000,000")));
        }
        let ascending = sizes.sizes(files, largest_bytes);
        let probabilities = zipf(files, zipf_exponent);
        let documents = dealt(files)
            .into_iter()
            .zip(probabilities)
            .enumerate()
            .map(|(rank, (size, probability))| {
                // A directory holds 1,000 files, so that 10,000,000 files stay browsable.
                let url = format!("/{name}/{:04}/{:07}.dat", rank / 1000, rank + 1);
                Document { url, bytes: ascending[size], probability }
            })
            .collect();
        Ok(Mix { name: name.into(), documents, classes: MixClasses::default() })
    }
}
