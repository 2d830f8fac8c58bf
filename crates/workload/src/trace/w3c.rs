//! Reads W3C extended log format (IIS, CloudFront and others). A `#Fields:` directive names the columns, and may
//! change within the file.
//!
//! Times are UTC, as in the format's draft (Hallam-Baker & Behlendorf, Extended Log File Format, 1996).

use super::{RawFields, RejectReason, SizeMeaning, clf, instant};
use memchr::memchr;

/// Columns beyond this many are skipped.
const COLUMNS: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Other,
    Date,
    Time,
    Client,
    Method,
    Uri,
    Stem,
    Query,
    Status,
    Bytes,
}

#[derive(Debug, Clone, Default)]
pub(super) struct W3c {
    columns: Vec<Column>,
    /// Midnight of `#Date:`, for files whose lines have only a time of day.
    date_ns: Option<i64>,
    fields: Vec<u8>,
    date: Vec<u8>,
    has_changed: bool,
}

impl W3c {
    pub(super) fn size_meaning(&self) -> SizeMeaning {
        // The columns are unknown before the first directive. Files of this format have a size by default.
        if self.columns.is_empty() || self.columns.contains(&Column::Bytes) {
            SizeMeaning::HeaderAndBody
        } else {
            SizeMeaning::Absent
        }
    }

    pub(super) fn directive(&mut self, line: &[u8]) {
        if let Some(names) = strip_word(line, b"#fields:") {
            self.columns.clear();
            let names = names.split(u8::is_ascii_whitespace).filter(|name| !name.is_empty());
            self.columns.extend(names.take(COLUMNS).map(column));
            (self.fields, self.has_changed) = (line.to_vec(), true);
        } else if let Some(date) = strip_word(line, b"#date:") {
            self.date_ns = instant::date(date.trim_ascii_start());
            (self.date, self.has_changed) = (line.to_vec(), true);
        }
    }

    /// Writes the directives in force into `lines` if they changed since the last call.
    pub(super) fn take_directives(&mut self, lines: &mut Vec<u8>) {
        lines.clear();
        if std::mem::take(&mut self.has_changed) {
            for line in [&self.fields, &self.date].into_iter().filter(|line| !line.is_empty()) {
                lines.extend_from_slice(line);
                lines.push(b'\n');
            }
        }
    }

    pub(super) fn parse<'a>(&self, line: &'a [u8]) -> Result<RawFields<'a>, RejectReason> {
        let (mut client, mut method, mut target, mut query): (&[u8], &[u8], &[u8], &[u8]) = (b"", b"", b"", b"");
        let (mut date_ns, mut time, mut status, mut bytes) = (self.date_ns, None, None, None);
        let separator = if memchr(b'\t', line).is_some() { b'\t' } else { b' ' };
        let mut rest = Some(line);
        for column in &self.columns {
            let Some(text) = rest else { return Err(RejectReason::Layout) };
            let (value, after) = split_value(text, separator)?;
            rest = after;
            let is_missing = value == b"-";
            match column {
                Column::Other => {}
                Column::Date => date_ns = Some(instant::date(value).ok_or(RejectReason::Time)?),
                Column::Time => time = Some(instant::time_of_day(value).ok_or(RejectReason::Time)?),
                Column::Client if !is_missing => client = value,
                Column::Method if !is_missing => method = value,
                Column::Uri | Column::Stem if !is_missing && target.is_empty() => target = value,
                Column::Query if !is_missing => query = value,
                Column::Status if !is_missing => status = Some(clf::status(value)?),
                Column::Bytes if !is_missing => bytes = Some(clf::bytes(value)?),
                _ => {}
            }
        }
        let (date_ns, (within_ns, resolution_ns, _)) = date_ns.zip(time).ok_or(RejectReason::Time)?;
        let time_ns = date_ns + within_ns;
        RawFields { client, time_ns, resolution_ns, method, target, query, status, bytes }.checked()
    }
}

pub(super) fn has_fields(start: &[u8]) -> bool {
    start.split(|byte| *byte == b'\n').any(|line| strip_word(line, b"#fields:").is_some())
}

fn strip_word<'a>(line: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = line.split_at_checked(word.len())?;
    head.eq_ignore_ascii_case(word).then_some(rest)
}

fn column(name: &[u8]) -> Column {
    match name.to_ascii_lowercase().as_slice() {
        b"date" => Column::Date,
        b"time" => Column::Time,
        b"c-ip" | b"c-dns" => Column::Client,
        b"cs-method" => Column::Method,
        b"cs-uri" => Column::Uri,
        b"cs-uri-stem" => Column::Stem,
        b"cs-uri-query" => Column::Query,
        b"sc-status" => Column::Status,
        b"sc-bytes" => Column::Bytes,
        _ => Column::Other,
    }
}

/// Returns a value and the text after its separator. A quoted value may contain separators, and doubles its inner
/// quotes.
fn split_value(text: &[u8], separator: u8) -> Result<(&[u8], Option<&[u8]>), RejectReason> {
    if let Some(quoted) = text.strip_prefix(b"\"") {
        let mut at = 0;
        loop {
            let quote = at + memchr(b'"', quoted.get(at..).ok_or(RejectReason::Layout)?).ok_or(RejectReason::Layout)?;
            match quoted.get(quote + 1) {
                Some(b'"') => at = quote + 2,
                None => return Ok((&quoted[..quote], None)),
                Some(next) if *next == separator => return Ok((&quoted[..quote], Some(&quoted[quote + 2..]))),
                Some(_) => return Err(RejectReason::Layout),
            }
        }
    }
    Ok(match memchr(separator, text) {
        Some(end) => (&text[..end], Some(&text[end + 1..])),
        None => (text, None),
    })
}
