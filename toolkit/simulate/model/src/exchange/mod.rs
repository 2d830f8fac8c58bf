//! Messages between the command and the plugin: lines of text in two files.

mod answer;
mod order;

pub use answer::{Account, Answer};
pub use order::{Objects, Order, Symbol};

/// Rows after those of the table, whose number is in the order: one for helpers without a caller, one for user code.
pub const EXTRA_ROWS: u8 = 2;

/// Marks that the measured program executes.
pub mod mark {
    /// From here on all accesses go through the model, so that its caches fill.
    pub const MODEL: u16 = 1;
    /// Counting begins.
    pub const BEGIN: u16 = 2;
    /// Counting ends, and the answer is written.
    pub const END: u16 = 3;
    /// The executing thread, and threads that it creates, belong to the server.
    pub const SERVER: u16 = 4;
    /// The executing thread belongs to the client.
    pub const CLIENT: u16 = 5;
    /// The thread that receives next from a link belongs to the server.
    pub const SERVER_RECEIVES: u16 = 6;
    /// The thread that receives next from a link belongs to the client.
    pub const CLIENT_RECEIVES: u16 = 7;
    /// The receiving threads are known, and no more are learnt.
    pub const RECEIVERS_KNOWN: u16 = 8;
}
