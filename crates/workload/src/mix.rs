//! Size mixes: documents with sizes and access probabilities, and a sampler that follows them.
//!
//! | mix | sizes | popularity | source |
//! |---|---|---|---|
//! | `webstone` | 24 HTML, 29 images, 20 sounds, 4 videos | as tabled | Webmonitor (Almeida et al., 1996), Table 1 |
//! | `surge` | lognormal body, Pareto tail | Zipf | SURGE (Barford & Crovella, 1998) |
//! | fitted | lognormal body, Pareto tail, by maximum likelihood | Zipf, fitted | an access log |
//! | URL list | the server's | equal, with a static and a dynamic share | the caller |

mod classes;
mod fit;
mod gather;
mod hybrid;
mod popularity;
mod sample;
mod surge;
mod webstone;

pub use classes::SizeClasses;
pub use fit::{Interval, SizeFit};
pub use gather::LogDocuments;
pub use hybrid::HybridSizes;
pub use popularity::{ZipfFit, zipf};
pub use sample::MixSampler;
pub use surge::SurgeParameters;

/// Names that [`Mix::named`] takes.
pub const NAMES: &[&str] = &["webstone", "surge"];

/// One document of a mix.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Path (and query) to request, beginning with `/`.
    pub url: String,
    /// Size of the body; `None` if only the server knows it (URL lists).
    pub bytes: Option<u64>,
    /// Share of all requests.
    pub probability: f64,
    /// The row of the mix that it belongs to: `html`, `video`, `tail`, `dynamic`, ...
    pub item: &'static str,
}

/// Documents whose probabilities add up to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Mix {
    /// Name of the mix in results.
    pub name: String,
    /// The documents. Not empty.
    pub documents: Vec<Document>,
    /// Boundaries for results by size.
    pub classes: SizeClasses,
}

/// A mix that cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MixError {
    /// No such mix.
    #[error("there is no size mix '{0}': use webstone or surge, or fit one to an access log")]
    Unknown(String),
    /// No documents.
    #[error("the mix has no documents: give at least one URL")]
    Empty,
    /// A parameter out of its range.
    #[error("{0}")]
    Parameter(String),
    /// Too few sizes for a fit.
    #[error("{found} documents with a size are too few to fit a mix: at least {needed} are needed")]
    TooFew {
        /// Sizes found.
        found: usize,
        /// Sizes needed.
        needed: usize,
    },
}

impl Mix {
    /// The mix of this name, with its published parameters.
    pub fn named(name: &str) -> Result<Mix, MixError> {
        match name {
            "webstone" => Ok(Mix::webstone()),
            "surge" => Mix::surge(&SurgeParameters::default()),
            _ => Err(MixError::Unknown(name.escape_debug().take(40).collect())),
        }
    }

    /// A mix over URLs of a server whose sizes are not known: all static ones share `1 - dynamic_ratio` of the requests
    /// equally, all dynamic ones `dynamic_ratio` (SPECweb99's default is 0.3).
    pub fn of_urls(statics: &[String], dynamics: &[String], dynamic_ratio: f64) -> Result<Mix, MixError> {
        let each = 1.0 / statics.len().max(1) as f64;
        let documents = statics
            .iter()
            .map(|url| Document { url: url.clone(), bytes: None, probability: each, item: "static" })
            .collect();
        let mix = Mix { name: "urls".into(), documents, classes: SizeClasses::default() };
        mix.with_dynamic(dynamics, dynamic_ratio)
    }

    /// The same mix with a share of its requests given to dynamic URLs, equally among them.
    pub fn with_dynamic(mut self, dynamics: &[String], dynamic_ratio: f64) -> Result<Mix, MixError> {
        if !(0.0..=1.0).contains(&dynamic_ratio) {
            return Err(MixError::Parameter(format!(
                "a dynamic share of {dynamic_ratio} makes no sense: give a number from 0 to 1, such as 0.3"
            )));
        }
        if self.documents.is_empty() && dynamics.is_empty() {
            return Err(MixError::Empty);
        }
        if dynamics.is_empty() && dynamic_ratio > 0.0 {
            return Err(MixError::Parameter("a dynamic share was asked for, but no dynamic URL was given".into()));
        }
        if self.documents.is_empty() && dynamic_ratio < 1.0 {
            return Err(MixError::Parameter("a static share was asked for, but no static URL was given".into()));
        }
        for document in &mut self.documents {
            document.probability *= 1.0 - dynamic_ratio;
        }
        let each = dynamic_ratio / dynamics.len().max(1) as f64;
        self.documents.extend(dynamics.iter().map(|url| Document {
            url: url.clone(),
            bytes: None,
            probability: each,
            item: "dynamic",
        }));
        Ok(self)
    }

    /// Bytes of all documents together.
    pub fn total_bytes(&self) -> u64 {
        self.documents.iter().filter_map(|document| document.bytes).sum()
    }
}
