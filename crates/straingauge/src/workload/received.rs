//! Files of a workload that a worker receives from its driver.

use super::supply::{LogFile, WorkloadFiles};
use load::Supply;
use remote::{InputKind, InputPiece, InputStore};
use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use workload::arrival::RateSeries;

/// Maximum compressed bytes of a file that a worker keeps.
const MOST_BYTES: u64 = 64 << 30;

/// A file that arrives in pieces, and the last complete one. Both are unnamed, so they end with this process.
#[derive(Default)]
pub struct Received {
    arriving: Option<File>,
    arrived_bytes: u64,
    supplied: WorkloadFiles,
    kept: Option<File>,
}

impl InputStore for Received {
    fn keep(&mut self, piece: InputPiece) -> Result<(), String> {
        let folder = std::env::temp_dir();
        let cannot = |error: std::io::Error| {
            format!("the driver's file cannot be kept in {} (TMPDIR): {error}", folder.display())
        };
        let mut file = match self.arriving.take() {
            Some(file) => file,
            None => {
                self.arrived_bytes = 0;
                tempfile::tempfile().map_err(cannot)?
            }
        };
        self.arrived_bytes += piece.gzip.len() as u64;
        if self.arrived_bytes > MOST_BYTES {
            return Err(format!("the driver's file is larger than {} GiB compressed", MOST_BYTES >> 30));
        }
        file.write_all(&piece.gzip).map_err(cannot)?;
        match piece.whole {
            None => self.arriving = Some(file),
            Some(kind) => self.supplied = self.supply_of(file, kind)?,
        }
        Ok(())
    }

    fn supply(&self) -> &dyn Supply {
        &self.supplied
    }
}

impl Received {
    fn supply_of(&mut self, mut file: File, kind: InputKind) -> Result<WorkloadFiles, String> {
        match kind {
            InputKind::Series { interval_ns } => {
                file.rewind().map_err(|error| error.to_string())?;
                let series = RateSeries::from_reader("the rate series", file, interval_ns)?;
                Ok(WorkloadFiles { series: Some(series), ..WorkloadFiles::default() })
            }
            InputKind::Log { format, has_body_sizes, origin_ns, round_ns } => {
                let format = format.parse().map_err(|error| {
                    format!(
                        "the worker does not know the log's format: \
                    {error}"
                    )
                })?;
                // Each engine thread opens the file itself.
                let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
                self.kept = Some(file);
                let is_empty = self.arrived_bytes == 0;
                let origin_ns = Some(origin_ns);
                let log = LogFile { path, format, has_body_sizes, is_empty, origin_ns, round_ns, shape: None };
                Ok(WorkloadFiles { log: Some(log), ..WorkloadFiles::default() })
            }
        }
    }
}
