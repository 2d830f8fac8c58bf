use super::{Mix, SizeFit, SurgeParameters, ZipfFit};
use crate::trace::TraceReader;
use crate::{WorkloadError, stable_hash};
use std::collections::HashMap;

/// Maximum number of documents. Only this many are fitted of a log with more distinct targets, and the report says
/// so.
const DOCUMENTS_LIMIT: usize = 1 << 20;

/// Sizes and counts of the documents of a log, from its successful GETs (status 200, or a format without status).
#[derive(Debug, Clone, Default)]
pub struct LogDocuments {
    documents: HashMap<u64, LogDocument>,
    /// Successful GETs.
    pub requests: u64,
    /// Successful GETs for targets beyond the limit of 2^20 documents.
    pub left_out: u64,
}

#[derive(Debug, Clone)]
struct LogDocument {
    /// Largest seen size.
    bytes: u64,
    requests: u64,
}

impl LogDocuments {
    /// Reads a log to its end.
    pub fn read(reader: &mut TraceReader) -> Result<Self, WorkloadError> {
        let mut gathered = LogDocuments::default();
        while let Some(entry) = reader.next_entry()? {
            if entry.method != b"GET" || !matches!(entry.status, None | Some(200)) {
                continue;
            }
            let Some(bytes) = entry.bytes else { continue };
            gathered.add(stable_hash(entry.target), bytes);
        }
        Ok(gathered)
    }

    fn add(&mut self, target: u64, bytes: u64) {
        self.requests += 1;
        let is_full = self.documents.len() >= DOCUMENTS_LIMIT;
        match self.documents.get_mut(&target) {
            // Keeps the largest size, because a log shows only the sent bytes of a truncated answer.
            Some(document) => {
                document.bytes = bytes.max(document.bytes);
                document.requests += 1;
            }
            None if is_full => self.left_out += 1,
            None => {
                self.documents.insert(target, LogDocument { bytes, requests: 1 });
            }
        }
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// Fits a distribution to the sizes.
    pub fn size_fit(&self) -> Result<SizeFit, WorkloadError> {
        SizeFit::fit(self.documents.values().map(|document| document.bytes).collect())
    }

    /// Fits Zipf's law to the popularity; `None` with fewer than two documents.
    pub fn zipf_fit(&self) -> Option<ZipfFit> {
        ZipfFit::fit(self.documents.values().map(|document| document.requests).collect())
    }

    /// Makes a mix with as many documents as the log has and with the fitted sizes and popularity. No document is
    /// larger than the largest seen one.
    pub fn mix(&self) -> Result<Mix, WorkloadError> {
        let fit = self.size_fit()?;
        Mix::of_distribution(
            "fitted",
            &SurgeParameters {
                sizes: fit.sizes(),
                files: self.len(),
                zipf_exponent: self.zipf_fit().map_or(0.0, |zipf| zipf.exponent.value),
                largest_bytes: fit.largest_bytes,
            },
        )
    }
}
