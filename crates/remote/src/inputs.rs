//! Files that plans name and workers read: a rate series or a log. The driver sends them in pieces, of which a
//! limited number may be unconfirmed.

use crate::protocol::InputPiece;
use load::Supply;
use record::LoadShare;
use record::workload::ReplayResult;

/// Which part of a file each worker gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileParts {
    /// Plans name no file.
    Nothing,
    /// Every worker gets the whole file.
    Alike,
    /// A worker gets the part that belongs to its share of the load.
    ByPart,
}

/// The driver's side.
pub trait InputFiles {
    /// Which part of the file each worker gets.
    fn file_parts(&self) -> FileParts;

    /// Reads the parts of the file for these shares. `give` gets the index of a share and its next piece; the last
    /// piece of each part says which kind of file it is. Ends with the first error, a sentence.
    fn give_parts(
        &mut self,
        shares: &[LoadShare],
        give: &mut dyn FnMut(u32, InputPiece) -> Result<(), String>,
    ) -> Result<(), String>;

    /// Adds the figures of the whole log to the sum of the workers' results.
    fn account(&self, replay: &mut ReplayResult);
}

/// The worker's side.
pub trait InputStore {
    /// Keeps the next piece. The piece after a last one begins another file. The error is a sentence.
    fn keep(&mut self, piece: InputPiece) -> Result<(), String>;

    /// The file that was received last.
    fn supply(&self) -> &dyn Supply;
}
