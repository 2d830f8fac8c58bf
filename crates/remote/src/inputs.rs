//! Files that plans name and workers read: a rate series or a log. The driver sends them in pieces, with a bounded
//! number unconfirmed.

use crate::protocol::InputPiece;
use load::Supply;
use record::Share;
use record::workload::ReplayResult;

/// How a file is divided between workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handing {
    /// The plans name no file.
    Nothing,
    /// Every worker gets the whole.
    Alike,
    /// A worker gets what falls to its part of the load.
    ByPart,
}

/// The driver's side.
pub trait InputFiles {
    /// How the file is divided.
    fn handing(&self) -> Handing;

    /// Reads the file for these shares of it. `give` gets the index of a share and its next piece; the last piece of
    /// each says what the file is. Ends with the first error, a sentence.
    fn hand_out(
        &mut self,
        shares: &[Share],
        give: &mut dyn FnMut(u32, InputPiece) -> Result<(), String>,
    ) -> Result<(), String>;

    /// Adds to the sum of the parts' results what only the whole log knows.
    fn account(&self, replay: &mut ReplayResult);
}

/// The worker's side.
pub trait InputStore {
    /// Keeps the next piece; the piece after a last one begins another file. The error is a sentence.
    fn keep(&mut self, piece: InputPiece) -> Result<(), String>;

    /// The file that was received last.
    fn supply(&self) -> &dyn Supply;
}
