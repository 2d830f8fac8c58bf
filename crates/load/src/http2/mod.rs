//! The client's side of HTTP/2 (RFC 9113), without I/O: requests are put into a buffer, and the server's bytes are
//! read frame by frame. Responses are counted, not kept. Splitting the bytes differently never changes the result.

mod frame;
pub mod hpack;
pub mod huffman;
pub mod messages;
mod requests;
mod session;
mod settings;
mod streams;

pub use crate::framing::{Consumed, Malformed};
pub(crate) use frame::{REFUSED_STREAM, error_name};
pub use requests::{LogRequestWriter, RequestBlocks, TableState};
pub use session::{Http2Session, StreamEnd};
pub(crate) use streams::places;
