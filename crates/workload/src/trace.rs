//! Reads access logs as a stream of requests: Apache common and combined (with or without a leading virtual host),
//! nginx (its default is combined), any log format in nginx's or Apache's notation, and W3C extended; plain or gzip.
//!
//! ```no_run
//! # fn main() -> Result<(), workload::WorkloadError> {
//! use workload::trace::{LogFormat, TraceReader};
//! let mut reader = TraceReader::open("access.log.gz".as_ref(), &LogFormat::Auto)?;
//! while let Some(entry) = reader.next_entry()? {
//!     println!("{} {:?}", entry.time_ns, entry.bytes);
//! }
//! eprintln!("{}", reader.counts());
//! # Ok(())
//! # }
//! ```
//!
//! Memory is constant (a buffer and a few small tables) whatever the length of the log, and nothing is
//! allocated per line. A line that cannot be read is counted, kept as an example (a few of each kind), and skipped.

mod clf;
mod client;
pub mod escape;
mod format;
pub mod instant;
pub mod lines;
pub mod pattern;
mod reader;
mod rejected;
mod template;
mod w3c;

pub use clf::request_line;
pub(crate) use escape::hex_byte;
pub use format::LogFormat;
pub use reader::{LogCounts, TraceReader};
pub use rejected::{RejectReason, Rejected, RejectedLine};

/// One request of a log, borrowed from the reader until the next call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Line of the log, from 1.
    pub line: u64,
    /// Address or name of the client, without a port. Untrusted bytes.
    pub client: &'a [u8],
    /// Time of the request in nanoseconds since the Unix epoch. Apache logs the time of arrival; nginx and IIS log
    /// the time of the answer.
    pub time_ns: i64,
    /// Resolution of that time: 1 s for the usual formats, finer for `$msec`, `%{usec}t` or fractions.
    pub resolution_ns: u64,
    /// Request method: 1 to 32 token characters.
    pub method: &'a [u8],
    /// Scheme and host of a target that was logged as a whole URL, as proxies and load balancers log it; otherwise
    /// empty. Untrusted bytes.
    pub host: &'a [u8],
    /// Request target without scheme and host, and without the log's escapes. It is not empty and contains no space
    /// or control byte. Untrusted bytes.
    pub target: &'a [u8],
    /// Status of the answer, if the format has one.
    pub status: Option<u16>,
    /// Size of the answer, if the format has one. [`TraceReader::size_meaning`] says which bytes it counts.
    pub bytes: Option<u64>,
    /// The line as logged.
    pub text: &'a [u8],
    /// The directives in force, each with its line feed, if they changed since the previous entry. A reader of a part
    /// of the log needs them before this line.
    pub directives: &'a [u8],
}

/// Meaning of a log's size field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeMeaning {
    /// Bytes of the body (`%b`, `%B`, `$body_bytes_sent`).
    Body,
    /// Bytes of headers and body (`%O`, `$bytes_sent`, `sc-bytes`).
    HeaderAndBody,
    /// The format has no size.
    Absent,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct RawFields<'a> {
    client: &'a [u8],
    time_ns: i64,
    resolution_ns: u64,
    /// Empty if it is not logged; then it is GET.
    method: &'a [u8],
    target: &'a [u8],
    /// Query that is logged separately from the target (W3C, `$args`); empty if there is none.
    query: &'a [u8],
    status: Option<u16>,
    bytes: Option<u64>,
}

impl RawFields<'_> {
    /// Returns an error unless there is a client and a request.
    pub(crate) fn checked(self) -> Result<Self, RejectReason> {
        match self {
            RawFields { client: [], .. } => Err(RejectReason::Client),
            RawFields { target: [], .. } => Err(RejectReason::NoRequest),
            RawFields { method, .. } if !method.is_empty() && !clf::is_method(method) => Err(RejectReason::Request),
            whole => Ok(whole),
        }
    }
}

/// Unix time in seconds of a time such as `1998-04-30 21:30:00` or `1998-04-30T21:30:00Z`, with no text after it.
pub(crate) fn unix_second(text: &[u8]) -> Option<i64> {
    let (time_ns, _, length) = instant::iso(text)?;
    (length == text.len()).then_some(time_ns.div_euclid(1_000_000_000))
}
