//! Log formats given as the server's format string: nginx's `log_format` or Apache's `LogFormat`.
//!
//! A format is a sequence of fields and the literal text between them. A field ends where the next literal begins; a
//! quoted field ends at the first quote that is not escaped; a time has a known length. The colons inside an address
//! are no literals of the format.

use super::escape::closing_quote;
use super::pattern::{PartialTime, TimePattern};
use super::{RawFields, RejectReason, SizeMeaning, clf, client, instant};
use memchr::{memchr, memmem};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Field {
    Skip,
    Client,
    /// Addresses that proxies forwarded. The first one is the client; without any, the other address is.
    Forwarded,
    ClfTime,
    IsoTime,
    /// Whole Unix time in units of this many nanoseconds. A fraction is another field.
    EpochTime(u64),
    /// Unix time in seconds with its fraction.
    EpochSeconds,
    PatternTime(TimePattern),
    /// Digits below the second. The last one is worth this many nanoseconds.
    Fraction(u64),
    Request,
    Method,
    /// The target with its query.
    Target,
    /// The target without its query.
    Path,
    Query,
    Status,
    Bytes(SizeMeaning),
}

impl Field {
    fn is_time(&self) -> bool {
        use Field::{ClfTime, EpochSeconds, EpochTime, IsoTime, PatternTime};
        matches!(self, ClfTime | IsoTime | EpochTime(_) | EpochSeconds | PatternTime(_))
    }
}

#[derive(Debug, Clone)]
pub(super) struct Template {
    start: Vec<u8>,
    fields: Vec<(Field, Literal)>,
    pub(super) size_meaning: SizeMeaning,
}

#[derive(Debug, Clone)]
struct Literal {
    text: Vec<u8>,
    finder: memmem::Finder<'static>,
    is_quoted: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TemplatePiece {
    Literal(String),
    Field(Field),
}

impl Template {
    /// Builds the parser. The error names the missing field that requests need.
    pub(super) fn new(pieces: Vec<TemplatePiece>) -> Result<Self, String> {
        let mut start = Vec::new();
        let mut fields: Vec<(Field, Literal)> = Vec::new();
        let mut literals: Vec<Vec<u8>> = vec![Vec::new()];
        let mut kinds = Vec::new();
        for piece in pieces {
            match piece {
                TemplatePiece::Literal(text) => {
                    literals.last_mut().expect("never empty").extend_from_slice(text.as_bytes())
                }
                // Apache's %U%q is the target in two adjacent fields without a separator.
                TemplatePiece::Field(Field::Query)
                    if kinds.last() == Some(&Field::Path) && literals.last().is_some_and(Vec::is_empty) =>
                {
                    *kinds.last_mut().expect("just seen") = Field::Target;
                }
                TemplatePiece::Field(field) => {
                    kinds.push(field);
                    literals.push(Vec::new());
                }
            }
        }
        let mut literals = literals.into_iter();
        if let Some(first) = literals.next() {
            start = first;
        }
        let last = kinds.len().saturating_sub(1);
        for (position, (kind, text)) in kinds.into_iter().zip(literals).enumerate() {
            let knows_its_length = kind.is_time() || matches!(kind, Field::Fraction(_));
            if text.is_empty() && position != last && !knows_its_length {
                return Err(
                    "two fields of the log format touch: without text between them they cannot be separated".into()
                );
            }
            let before = fields.last().map_or(start.as_slice(), |(_, literal)| literal.text.as_slice());
            let is_quoted = before.ends_with(b"\"") && text.starts_with(b"\"");
            let finder = memmem::Finder::new(&text).into_owned();
            fields.push((kind, Literal { text, finder, is_quoted }));
        }
        let has = |wanted: &dyn Fn(&Field) -> bool| fields.iter().any(|(field, _)| wanted(field));
        if !has(&|field| matches!(field, Field::Client | Field::Forwarded)) {
            return Err("the log format has no client address ($remote_addr or %h), which replay groups by".into());
        }
        if !has(&Field::is_time) {
            return Err("the log format has no time ($time_local, $time_iso8601, $msec or %t)".into());
        }
        if !has(&|field| matches!(field, Field::Request | Field::Target | Field::Path)) {
            return Err("the log format has no request ($request, $request_uri, %r or %U)".into());
        }
        let sizes = fields.iter().filter_map(|(field, _)| match field {
            Field::Bytes(meaning) => Some(*meaning),
            _ => None,
        });
        let size_meaning = sizes.fold(SizeMeaning::Absent, |best, next| match (best, next) {
            (SizeMeaning::Body, _) | (_, SizeMeaning::Body) => SizeMeaning::Body,
            _ => next,
        });
        Ok(Template { start, fields, size_meaning })
    }

    pub(super) fn parse<'a>(&self, line: &'a [u8]) -> Result<RawFields<'a>, RejectReason> {
        let mut rest = line.strip_prefix(self.start.as_slice()).ok_or(RejectReason::Layout)?;
        let (mut client, mut method, mut target, mut query): (&[u8], &[u8], &[u8], &[u8]) = (b"", b"", b"", b"");
        let (mut time, mut status, mut bytes) = (PartialTime::default(), None, None);
        for (position, (field, literal)) in self.fields.iter().enumerate() {
            if let Some(length) = read_time(field, rest, &mut time)? {
                rest = rest[length..].strip_prefix(literal.text.as_slice()).ok_or(RejectReason::Layout)?;
                continue;
            }
            let (value, after) = match self.address_length(position, rest) {
                Some(length) => (&rest[..length], &rest[length + 1..]),
                None => literal.split(rest).ok_or(RejectReason::Layout)?,
            };
            rest = after;
            let is_missing = value == b"-" || value.is_empty();
            match field {
                Field::Client if client.is_empty() && !is_missing => client = value,
                Field::Forwarded if !is_missing => client = client::first_forwarded(value).unwrap_or(client),
                Field::Request => (method, target) = clf::request_line(value)?,
                Field::Method if !is_missing => method = value,
                Field::Target | Field::Path if !is_missing && target.is_empty() => target = value,
                Field::Query if !is_missing => query = value,
                Field::Status if !is_missing => status = Some(clf::status(value)?),
                Field::Bytes(meaning) if *meaning == self.size_meaning => bytes = Some(clf::bytes(value)?),
                _ => {}
            }
        }
        let (time_ns, resolution_ns) = time.resolve().ok_or(RejectReason::Time)?;
        // A query that the target already contains is not added again.
        if memchr(b'?', target).is_some() {
            query = b"";
        }
        let query = query.strip_prefix(b"?").unwrap_or(query);
        RawFields { client, time_ns, resolution_ns, method, target, query, status, bytes }.checked()
    }

    /// Length of an address at the beginning of `text` that is followed by a colon, as in
    /// `$remote_addr:$remote_port`.
    fn address_length(&self, position: usize, text: &[u8]) -> Option<usize> {
        let from = &self.fields[position..];
        let (Field::Client, true) = (&from[0].0, from[0].1.is_colon()) else { return None };
        let of_address = |(index, (field, literal)): &(usize, &(Field, Literal))| {
            literal.is_colon() && (*index == 0 || !field.is_time())
        };
        let colons = from.iter().enumerate().take_while(of_address).count();
        let next = from.iter().find(|(_, literal)| !literal.is_colon()).map(|(_, literal)| literal);
        let end = match next {
            Some(next) if !next.text.is_empty() => next.finder.find(text)?,
            _ => text.len(),
        };
        client::length_before(&text[..end], colons)
    }
}

impl Literal {
    fn is_colon(&self) -> bool {
        self.text == b":"
    }

    fn split<'a>(&self, text: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        if self.text.is_empty() {
            return Some((text, b""));
        }
        if !self.is_quoted {
            let end = self.finder.find(text)?;
            return Some((&text[..end], &text[end + self.text.len()..]));
        }
        let mut from = 0;
        loop {
            let quote = closing_quote(text, from)?;
            if let Some(after) = text[quote..].strip_prefix(self.text.as_slice()) {
                return Some((&text[..quote], after));
            }
            from = quote + 1;
        }
    }
}

/// Reads a time field at the beginning of `text`; `None` when the field is not a time.
fn read_time(field: &Field, text: &[u8], time: &mut PartialTime) -> Result<Option<usize>, RejectReason> {
    let parsed = match field {
        Field::ClfTime => instant::clf(text),
        Field::IsoTime => instant::iso(text),
        Field::EpochTime(unit_ns) => instant::epoch(text, *unit_ns),
        Field::EpochSeconds => instant::epoch_seconds(text),
        Field::PatternTime(pattern) => return pattern.read(text, time).map(Some).ok_or(RejectReason::Time),
        Field::Fraction(resolution_ns) => {
            let (fraction_ns, _, length) = instant::fraction(text).ok_or(RejectReason::Time)?;
            time.set_fraction(fraction_ns, *resolution_ns);
            return Ok(Some(length));
        }
        _ => return Ok(None),
    };
    let (time_ns, resolution_ns, length) = parsed.ok_or(RejectReason::Time)?;
    time.set_whole(time_ns, resolution_ns);
    Ok(Some(length))
}
