use super::lines::LogLines;
use super::rejected::excerpt;
use super::template::Template;
use super::w3c::W3c;
use super::{Entry, LogFormat, RawFields, RejectReason, Rejected, SizeMeaning, clf, client, escape};
use crate::{BYTE_ORDER_MARK, WorkloadError, wrong};
use flate2::bufread::MultiGzDecoder;
use memchr::memmem;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

/// Length of a log's beginning that decides its format.
const START_BYTES: u64 = 64 * 1024;

/// Counts so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Lines of every kind.
    pub lines: u64,
    /// Bytes, after decompression.
    pub bytes: u64,
    /// Lines that became entries.
    pub entries: u64,
    /// Lines that could not be read.
    pub rejected: Rejected,
}

impl fmt::Display for LogCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lines, {} requests, {} not readable", self.lines, self.entries, self.rejected.total())
    }
}

/// A log being read. See [the module](super).
pub struct TraceReader {
    name: String,
    lines: LogLines,
    is_gzip: bool,
    format: LogFormat,
    parser: Parser,
    /// Space for targets that contain escapes, have a separately logged query, or are whole URLs.
    scratch: Vec<u8>,
    directives: Vec<u8>,
    counts: LogCounts,
}

enum Parser {
    Clf { has_host: bool, last: clf::LastTime },
    W3c(W3c),
    Template(Box<Template>),
}

/// Place of a parsed field in the line buffer. It does not borrow the buffer, so that the loop can continue after a
/// rejected line.
#[derive(Clone, Copy)]
struct TextSpan {
    start: usize,
    end: usize,
}

impl TextSpan {
    #[inline]
    fn find(part: &[u8], whole: &[u8]) -> TextSpan {
        let start = (part.as_ptr() as usize).wrapping_sub(whole.as_ptr() as usize);
        if part.is_empty() { TextSpan { start: 0, end: 0 } } else { TextSpan { start, end: start + part.len() } }
    }

    #[inline]
    fn get(self, whole: &[u8]) -> &[u8] {
        &whole[self.start..self.end]
    }
}

impl TraceReader {
    /// Opens a log file, plain or gzip.
    pub fn open(path: &Path, format: &LogFormat) -> Result<Self, WorkloadError> {
        let name = path.display().to_string();
        let fail = |cause| read_error(&name, false, 0, cause);
        let file = File::open(path).map_err(fail)?;
        if file.metadata().map_err(fail)?.is_dir() {
            return Err(wrong(format!("{name} is a directory: name one log file")));
        }
        Self::from_reader(name, Box::new(file), format)
    }

    /// Reads a log from any stream; `name` is used in messages.
    pub fn from_reader(
        name: String,
        mut source: Box<dyn Read + Send>,
        format: &LogFormat,
    ) -> Result<Self, WorkloadError> {
        let mut magic = Vec::with_capacity(6);
        if let Err(cause) = source.by_ref().take(6).read_to_end(&mut magic) {
            return Err(read_error(&name, false, 0, cause));
        }
        let is_gzip = magic.starts_with(&[0x1f, 0x8b]);
        if let Some(with) = other_compression(&magic) {
            return Err(wrong(format!(
                "{name} is compressed with {with}, which is not read: decompress it first, or use gzip"
            )));
        }
        let source = io::Cursor::new(magic).chain(source);
        let mut source: Box<dyn Read + Send> = if is_gzip {
            // A rotated log is often a file of several gzip members.
            Box::new(MultiGzDecoder::new(BufReader::with_capacity(128 * 1024, source)))
        } else {
            Box::new(source)
        };
        let mut bytes = Vec::new();
        if let Err(cause) = source.by_ref().take(START_BYTES).read_to_end(&mut bytes) {
            return Err(read_error(&name, is_gzip, 0, cause));
        }
        let start = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&bytes);
        let empty = || wrong(format!("{name} is empty: there are no requests to replay"));
        if start.is_empty() {
            return Err(empty());
        }
        if let Some(offset) = memchr::memchr(0, start) {
            return Err(wrong(format!("{name} is not a text log: it has a NUL byte at offset {offset}")));
        }
        let format = match format {
            LogFormat::Auto => match LogFormat::recognise(start) {
                Some(format) => format,
                None if start.trim_ascii().is_empty() => return Err(empty()),
                None => {
                    let first =
                        start.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).find(|line| !line.is_empty());
                    return Err(wrong(format!(
                        "{name} has no known log format: no line of its beginning is Apache common or combined, nginx \
                         combined, or W3C extended; name the format (common, combined, vhost, w3c) or give the \
                         server's own format string; it starts with: {}",
                        excerpt(first.unwrap_or_default())
                    )));
                }
            },
            chosen => chosen.clone(),
        };
        let parser = match (&format, format.template().map_err(wrong)?) {
            (_, Some(template)) => Parser::Template(Box::new(template)),
            (LogFormat::W3c, None) => Parser::W3c(W3c::default()),
            (chosen, None) => {
                Parser::Clf { has_host: *chosen == LogFormat::VhostCombined, last: clf::LastTime::default() }
            }
        };
        let lines = LogLines::new(Box::new(io::Cursor::new(start.to_vec()).chain(source)));
        Ok(TraceReader {
            name,
            lines,
            is_gzip,
            format,
            parser,
            scratch: Vec::new(),
            directives: Vec::new(),
            counts: LogCounts::default(),
        })
    }

    /// The format in use, given or recognised.
    pub fn format(&self) -> &LogFormat {
        &self.format
    }

    /// Meaning of this log's size field.
    pub fn size_meaning(&self) -> SizeMeaning {
        match &self.parser {
            Parser::Clf { .. } => SizeMeaning::Body,
            Parser::W3c(parser) => parser.size_meaning(),
            Parser::Template(template) => template.size_meaning,
        }
    }

    /// Counts so far, with the rejected lines.
    pub fn counts(&self) -> &LogCounts {
        &self.counts
    }

    /// The log's name for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next request; `None` at the end of the log. Lines that cannot be read are counted and skipped.
    #[inline]
    pub fn next_entry(&mut self) -> Result<Option<Entry<'_>>, WorkloadError> {
        let (address, method, target, raw) = loop {
            match self.lines.next_line() {
                Ok(Some(true)) => {}
                Ok(Some(false)) => {
                    self.counts.rejected.add(self.lines.line, RejectReason::TooLong, b"");
                    continue;
                }
                Ok(None) => return self.finish(),
                Err(cause) => {
                    return Err(read_error(&self.name, self.is_gzip, self.lines.line, cause));
                }
            }
            let line = &self.lines.text[..];
            let parsed = match &mut self.parser {
                Parser::Clf { has_host, last } => clf::parse(line, *has_host, last),
                Parser::W3c(parser) if line.starts_with(b"#") => {
                    parser.directive(line);
                    continue;
                }
                Parser::W3c(parser) => parser.parse(line),
                Parser::Template(template) => template.parse(line),
            };
            let reason = match parsed {
                Ok(raw) => match target_of(&raw, !matches!(self.parser, Parser::W3c(_)), &mut self.scratch) {
                    Ok(place) => {
                        let target = match place {
                            TargetPlace::Line => Ok(TextSpan::find(raw.target, line)),
                            TargetPlace::Scratch { host_len } => Err(host_len),
                        };
                        let method = TextSpan::find(raw.method, line);
                        let numbers = (raw.time_ns, raw.resolution_ns, raw.status, raw.bytes);
                        break (TextSpan::find(client::address(raw.client), line), method, target, numbers);
                    }
                    Err(reason) => reason,
                },
                Err(_) if line.trim_ascii().is_empty() => continue,
                Err(reason) => reason,
            };
            self.counts.rejected.add(self.lines.line, reason, line);
        };
        self.counts.entries += 1;
        if let Parser::W3c(parser) = &mut self.parser {
            parser.take_directives(&mut self.directives);
        }
        let line = &self.lines.text[..];
        let (time_ns, resolution_ns, status, bytes) = raw;
        let (host, target) = match target {
            Ok(span) => (&b""[..], span.get(line)),
            Err(host_len) => self.scratch.split_at(host_len),
        };
        self.counts.lines = self.lines.line;
        self.counts.bytes = self.lines.bytes;
        Ok(Some(Entry {
            line: self.lines.line,
            client: address.get(line),
            time_ns,
            resolution_ns,
            method: if method.end == 0 { b"GET" } else { method.get(line) },
            host,
            target,
            status,
            bytes,
            text: line,
            directives: &self.directives,
        }))
    }

    #[cold]
    fn finish(&mut self) -> Result<Option<Entry<'_>>, WorkloadError> {
        self.counts.lines = self.lines.line;
        self.counts.bytes = self.lines.bytes;
        if self.counts.entries == 0 {
            return Err(wrong(format!(
                "{}: not one of {} lines could be read as {}; the first: {}",
                self.name,
                self.counts.lines,
                self.format,
                self.counts.rejected.examples().first().map_or("it is blank".into(), ToString::to_string)
            )));
        }
        Ok(None)
    }
}

enum TargetPlace {
    Line,
    /// In the scratch space, after a scheme and host of this length.
    Scratch {
        host_len: usize,
    },
}

/// Checks the target. A target that cannot be used as logged is rewritten in `scratch`.
#[inline]
fn target_of(raw: &RawFields<'_>, has_escapes: bool, scratch: &mut Vec<u8>) -> Result<TargetPlace, RejectReason> {
    if raw.query.is_empty() && raw.target.starts_with(b"/") && escape::is_plain(raw.target) {
        return Ok(TargetPlace::Line);
    }
    scratch.clear();
    let query_mark: &[u8] = if raw.query.is_empty() { b"" } else { b"?" };
    for part in [raw.target, query_mark, raw.query] {
        if has_escapes { escape::undo(part, scratch) } else { scratch.extend_from_slice(part) }
    }
    if !escape::is_sendable(scratch) {
        return Err(RejectReason::Target);
    }
    let host_len = host_length(scratch);
    // RFC 9112, 3.2: the path that a client sends for a URL without one.
    match scratch.get(host_len) {
        Some(b'/') => {}
        None if host_len > 0 && raw.method == b"OPTIONS" => scratch.push(b'*'),
        _ if host_len > 0 => scratch.insert(host_len, b'/'),
        _ => {}
    }
    Ok(TargetPlace::Scratch { host_len })
}

/// Length of scheme and host, if `target` is a whole URL.
fn host_length(target: &[u8]) -> usize {
    let is_scheme = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_alphabetic);
    let Some(colon) = memmem::find(target, b"://").filter(|colon| is_scheme(&target[..*colon])) else { return 0 };
    let host = &target[colon + 3..];
    colon + 3 + host.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#')).unwrap_or(host.len())
}

fn other_compression(magic: &[u8]) -> Option<&'static str> {
    const KNOWN: [(&[u8], &str); 4] = [
        (b"BZh", "bzip2"),
        (&[0xfd, b'7', b'z', b'X', b'Z', 0], "xz"),
        (&[0x28, 0xb5, 0x2f, 0xfd], "zstd"),
        (b"PK\x03\x04", "zip"),
    ];
    KNOWN.iter().find(|(start, _)| magic.starts_with(start)).map(|(_, name)| *name)
}

fn read_error(name: &str, is_gzip: bool, line: u64, cause: io::Error) -> WorkloadError {
    let is_damage =
        matches!(cause.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof);
    let after = if line == 0 { String::new() } else { format!(" after line {line}") };
    wrong(if is_gzip && is_damage {
        format!("{name}: the gzip data is damaged or cut off{after}: {cause}; copy the log again (gzip -t tests it)")
    } else {
        format!("{name}: the log cannot be read{after}: {cause}")
    })
}
