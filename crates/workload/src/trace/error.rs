/// Why a log cannot be opened, recognised or read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// Opening or reading failed.
    #[error("{name}: the log cannot be read{}: {cause}", after(*.line))]
    Read {
        /// The log.
        name: String,
        /// Lines that were read before the error.
        line: u64,
        /// The system's error.
        cause: std::io::Error,
    },
    /// Compressed data is cut off or damaged.
    #[error("{name}: the gzip data is damaged or cut off{}: {cause}; copy the log again (gzip -t tests \
             it)", after(*.line))]
    Gzip {
        /// The log.
        name: String,
        /// Lines that were read before the error.
        line: u64,
        /// The decoder's error.
        cause: std::io::Error,
    },
    /// The path is a directory.
    #[error("{0} is a directory: name one log file")]
    Directory(String),
    /// The log is empty.
    #[error("{0} is empty: there are no requests to replay")]
    Empty(String),
    /// The log is not text.
    #[error("{name} is not a text log: it has a NUL byte at offset {offset}")]
    Binary {
        /// The log.
        name: String,
        /// Offset of the first byte that is not text.
        offset: usize,
    },
    /// The log has an unsupported compression.
    #[error("{name} is compressed with {with}, which is not read: decompress it first, or use gzip")]
    Compression {
        /// The log.
        name: String,
        /// Name of the compression.
        with: &'static str,
    },
    /// No known format fits the first lines.
    #[error(
        "{name} has no known log format: no line of its beginning is Apache common or combined, nginx combined, or W3C \
         extended; name the format (common, combined, vhost, w3c) or give the server's own format string; it starts \
         with: {start}"
    )]
    Unrecognised {
        /// The log.
        name: String,
        /// First line of the log, made printable.
        start: String,
    },
    /// Not one line follows the chosen format.
    #[error("{name}: not one of {lines} lines could be read as {format}; the first: {first}")]
    NothingReadable {
        /// The log.
        name: String,
        /// Lines read.
        lines: u64,
        /// The format.
        format: String,
        /// The first rejected line with its reason.
        first: String,
    },
    /// A format name or format string is not valid.
    #[error("{0}")]
    Format(String),
}

fn after(line: u64) -> String {
    if line == 0 { String::new() } else { format!(" after line {line}") }
}
