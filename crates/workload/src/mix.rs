//! Size mixes: documents with sizes and access probabilities.
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
mod surge;
mod webstone;

pub use classes::MixClasses;
pub use fit::{Interval, SizeFit};
pub use gather::LogDocuments;
pub use hybrid::{HybridSizes, dealt};
pub use popularity::{ZipfFit, zipf};
pub use surge::SurgeParameters;

use crate::{WorkloadError, wrong};

/// Names that [`Mix::named`] takes.
pub const NAMES: &[&str] = &["webstone", "surge"];

/// One document of a mix.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Path (and query) to request, beginning with `/`.
    pub url: String,
    /// Size of the body.
    pub bytes: u64,
    /// Share of all requests.
    pub probability: f64,
}

/// Documents whose probabilities add up to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Mix {
    /// Name of the mix in results.
    pub name: String,
    /// The documents. Not empty.
    pub documents: Vec<Document>,
    /// Boundaries for results by size.
    pub classes: MixClasses,
}

impl Mix {
    /// Returns the mix of this name, with its published parameters.
    pub fn named(name: &str) -> Result<Mix, WorkloadError> {
        match name {
            "webstone" => Ok(Mix::webstone()),
            "surge" => Mix::surge(&SurgeParameters::default()),
            _ => {
                let name: String = name.escape_debug().take(40).collect();
                Err(wrong(format!("unknown size mix '{name}': use webstone or surge, or fit one to an access log")))
            }
        }
    }
}
