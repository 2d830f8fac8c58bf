//! Header compression of HTTP/2 (RFC 7541): reads the fields of responses and writes those of requests.
//!
//! Only a few response fields matter. The reader keeps only the length of all others, which the dynamic table needs.
//! So it copies nothing, and its memory is bounded by the table's entries, whatever a block expands to.

use super::{Malformed, huffman};
use crate::framing::{Parts, TYPE_BYTES, is_identity};
use std::collections::VecDeque;

/// The initial size of the dynamic table, which we keep.
pub const TABLE_BYTES: u32 = 4096;
/// Overhead of an entry in the size of the dynamic table.
pub(super) const ENTRY_BYTES: u32 = 32;

/// Name lengths of the static entries, from entry 1 on.
#[rustfmt::skip]
static STATIC_NAMES: [u8; 61] = [
    10, 7, 7, 5, 5, 7, 7, 7, 7, 7, 7, 7, 7, 7, 14, 15, 15, 13, 6, 27,
    3, 5, 13, 13, 19, 16, 16, 14, 16, 13, 12, 6, 4, 4, 6, 7, 4, 4, 8, 17,
    13, 8, 19, 13, 4, 8, 12, 18, 19, 5, 7, 7, 11, 6, 10, 25, 17, 10, 4, 3,
    16,
];
/// Values of `:status` in the static table, from [`FIRST_STATUS`] on.
static STATIC_STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
const FIRST_STATUS: usize = 8;
const NAMES: [(usize, usize); 6] = [(7, 5), (8, 6), (11, 8), (12, 9), (14, 10), (16, 11)];

const WRONG_INDEX: Malformed = Malformed("a header field breaks the rules of HPACK (an entry that no table has)");
const CUT_SHORT: Malformed = Malformed("a header field breaks the rules of HPACK (it is cut short)");
const WRONG_NUMBER: Malformed = Malformed("a header field breaks the rules of HPACK (a number of more than 28 bits)");
const WRONG_SIZE: Malformed = Malformed("a header field breaks the rules of HPACK (a larger table than was offered)");
const WRONG_STATUS: Malformed = Malformed("the response has a status that is not a number of three digits");

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Name {
    #[default]
    Other,
    Status,
    Location,
    GrpcStatus,
    GrpcMessage,
    ContentType,
    ContentEncoding,
    ContentLength,
}

fn static_name(index: usize) -> Name {
    match index {
        8..=14 => Name::Status,
        26 => Name::ContentEncoding,
        28 => Name::ContentLength,
        31 => Name::ContentType,
        46 => Name::Location,
        _ => Name::Other,
    }
}

#[derive(Debug, Clone, Copy)]
struct TableEntry {
    bytes: u32,
    name_bytes: u32,
    name: Name,
    /// A status or length; for content-encoding, 1 if it differs from identity.
    number: u64,
    parts: Parts,
}

/// Fields of a response.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct HeaderFields {
    /// Status; 0 if there is none.
    pub status: u16,
    /// Present if [`Reader::keeps_location`].
    pub location: Option<Box<[u8]>>,
    pub(super) grpc_status: Option<u16>,
    pub(super) grpc_message: Option<Box<[u8]>>,
    /// Parts of the body, if [`Reader::reads_content_type`].
    pub parts: Parts,
    /// A `content-length`.
    pub length: Option<u64>,
    /// `content-length` is not a number, or occurs more than once.
    pub is_length_wrong: bool,
    is_encoded: bool,
}

/// Marks a `content-length` that is not one decimal number.
const NO_LENGTH: u64 = u64::MAX;

impl HeaderFields {
    #[inline]
    fn set(&mut self, name: Name, number: u64, parts: Parts) {
        match name {
            Name::ContentType => self.parts = parts,
            Name::ContentEncoding => self.is_encoded |= number != 0,
            Name::ContentLength => {
                self.is_length_wrong |= number == NO_LENGTH || self.length.is_some();
                self.length = Some(number);
            }
            // A status has three digits.
            Name::Status => self.status = number as u16,
            Name::GrpcStatus => self.grpc_status = Some(number as u16),
            _ => {}
        }
    }
}

/// Reads the blocks of a connection.
#[derive(Debug)]
pub struct Reader {
    entries: VecDeque<TableEntry>,
    bytes: u32,
    limit: u32,
    /// Whether to keep `location`.
    pub keeps_location: bool,
    /// Whether to read the type and coding of the body.
    pub reads_content_type: bool,
}

impl Default for Reader {
    fn default() -> Self {
        Reader {
            entries: VecDeque::new(),
            bytes: 0,
            limit: TABLE_BYTES,
            keeps_location: false,
            reads_content_type: false,
        }
    }
}

#[derive(Clone, Copy)]
struct Text<'b> {
    bytes: &'b [u8],
    is_coded: bool,
}

impl Text<'_> {
    fn decode(&self, take: impl FnMut(u8)) -> Result<usize, Malformed> {
        if self.is_coded {
            huffman::decode(self.bytes, take)
        } else {
            self.bytes.iter().copied().for_each(take);
            Ok(self.bytes.len())
        }
    }

    fn length(&self) -> Result<u32, Malformed> {
        self.decode(|_| {}).map(|length| length as u32)
    }

    fn to_vec(self) -> Result<Vec<u8>, Malformed> {
        let mut text = Vec::new();
        self.decode(|byte| text.push(byte))?;
        Ok(text)
    }

    fn name(&self) -> Result<Name, Malformed> {
        let is_as_long =
            |(plain, coded): &(usize, usize)| self.bytes.len() == if self.is_coded { *coded } else { *plain };
        if !NAMES.iter().any(is_as_long) {
            return Ok(Name::Other);
        }
        Ok(match self.to_vec()?.as_slice() {
            b":status" => Name::Status,
            b"location" => Name::Location,
            b"grpc-status" => Name::GrpcStatus,
            b"grpc-message" => Name::GrpcMessage,
            b"content-type" => Name::ContentType,
            b"content-encoding" => Name::ContentEncoding,
            b"content-length" => Name::ContentLength,
            _ => Name::Other,
        })
    }

    fn status(&self) -> Result<u64, Malformed> {
        self.number().ok_or(WRONG_STATUS).and_then(|(status, digits)| match digits {
            3 if status >= 100 => Ok(status),
            _ => Err(WRONG_STATUS),
        })
    }

    fn begin<'b>(&self, begin: &'b mut [u8; TYPE_BYTES]) -> Result<&'b [u8], Malformed> {
        let mut length = 0;
        self.decode(|byte| {
            if let Some(place) = begin.get_mut(length) {
                *place = byte;
            }
            length += 1;
        })?;
        Ok(&begin[..length.min(TYPE_BYTES)])
    }

    fn number(&self) -> Option<(u64, usize)> {
        let mut number = Some(0u64);
        let digits = self.decode(|byte| {
            let before = number.filter(|_| byte.is_ascii_digit());
            number = before.and_then(|before| before.checked_mul(10)?.checked_add(u64::from(byte & 15)));
        });
        number.zip(digits.ok().filter(|digits| *digits > 0))
    }
}

impl Reader {
    /// Size of the dynamic table in bytes, as the standard counts them, and in entries.
    pub fn table_size(&self) -> (u32, usize) {
        (self.bytes, self.entries.len())
    }

    /// Bytes allocated for the table.
    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<TableEntry>()
    }

    /// Reads a block.
    pub fn read(&mut self, block: &[u8]) -> Result<HeaderFields, Malformed> {
        let mut fields = HeaderFields::default();
        let mut rest = block;
        while let Some(&first) = rest.first() {
            if first & 0x80 != 0 {
                let index = integer(&mut rest, 7)?;
                let (name, number, parts) = self.indexed(index)?;
                fields.set(name, number, parts);
            } else if first & 0xc0 == 0x40 {
                let entry = self.literal(&mut rest, 6, &mut fields)?;
                self.insert(entry);
            } else if first & 0xe0 == 0x20 {
                let limit = integer(&mut rest, 5)?;
                if limit > TABLE_BYTES as usize {
                    return Err(WRONG_SIZE);
                }
                self.limit = limit as u32;
                self.evict(0);
            } else {
                self.literal(&mut rest, 4, &mut fields)?;
            }
        }
        if fields.is_encoded {
            // Part boundaries are not visible in a compressed body.
            fields.parts = Parts::Reads;
        }
        Ok(fields)
    }

    fn indexed(&self, index: usize) -> Result<(Name, u64, Parts), Malformed> {
        if index == 0 {
            return Err(WRONG_INDEX);
        }
        if index > STATIC_NAMES.len() {
            let entry = self.entries.get(index - STATIC_NAMES.len() - 1).ok_or(WRONG_INDEX)?;
            return Ok((entry.name, entry.number, entry.parts));
        }
        let name = static_name(index);
        let number = match name {
            Name::ContentLength => NO_LENGTH,
            Name::Status => u64::from(STATIC_STATUSES[index - FIRST_STATUS]),
            _ => 0,
        };
        Ok((name, number, Parts::Reads))
    }

    fn literal(&self, rest: &mut &[u8], prefix: u32, fields: &mut HeaderFields) -> Result<TableEntry, Malformed> {
        let is_kept = prefix == 6 && self.limit >= ENTRY_BYTES;
        let (name, name_bytes) = match integer(rest, prefix)? {
            0 => {
                let text = string(rest)?;
                (text.name()?, if is_kept { text.length()? } else { 0 })
            }
            index if index <= STATIC_NAMES.len() => (static_name(index), u32::from(STATIC_NAMES[index - 1])),
            index => {
                let entry = self.entries.get(index - STATIC_NAMES.len() - 1).ok_or(WRONG_INDEX)?;
                (entry.name, entry.name_bytes)
            }
        };
        let value = string(rest)?;
        let (mut number, mut parts) = (0, Parts::Reads);
        match name {
            Name::Other => {}
            Name::Status => number = value.status()?,
            // A code that is not a number counts as an unknown error.
            Name::GrpcStatus => {
                number =
                    value.number().filter(|(_, digits)| *digits <= 3).map_or(u64::from(u16::MAX), |(code, _)| code);
            }
            Name::ContentLength => number = value.number().map_or(NO_LENGTH, |(length, _)| length),
            Name::GrpcMessage => fields.grpc_message = Some(value.to_vec()?.into()),
            Name::Location if self.keeps_location => fields.location = Some(value.to_vec()?.into()),
            Name::ContentType if self.reads_content_type => parts = Parts::of_type(value.begin(&mut [0; TYPE_BYTES])?),
            Name::ContentEncoding if self.reads_content_type => {
                number = u64::from(!is_identity(value.begin(&mut [0; TYPE_BYTES])?));
            }
            Name::Location | Name::ContentType | Name::ContentEncoding => {}
        }
        fields.set(name, number, parts);
        let bytes = if is_kept { ENTRY_BYTES + name_bytes + value.length()? } else { ENTRY_BYTES };
        Ok(TableEntry { bytes, name_bytes, name, number, parts })
    }

    fn insert(&mut self, entry: TableEntry) {
        self.evict(entry.bytes);
        // An entry larger than the table empties the table.
        if entry.bytes <= self.limit {
            self.bytes += entry.bytes;
            self.entries.push_front(entry);
        }
    }

    fn evict(&mut self, bytes: u32) {
        while self.bytes + bytes > self.limit {
            let Some(oldest) = self.entries.pop_back() else { return };
            self.bytes -= oldest.bytes;
        }
    }
}

fn integer(rest: &mut &[u8], prefix: u32) -> Result<usize, Malformed> {
    let (first, mut after) = rest.split_first().ok_or(CUT_SHORT)?;
    let most = (1 << prefix) - 1;
    let mut value = usize::from(*first) & most;
    if value == most {
        for shift in [0, 7, 14, 21, 28] {
            let (byte, next) = after.split_first().ok_or(CUT_SHORT)?;
            after = next;
            if shift == 28 {
                return Err(WRONG_NUMBER);
            }
            value += usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *rest = after;
    Ok(value)
}

fn string<'b>(rest: &mut &'b [u8]) -> Result<Text<'b>, Malformed> {
    let is_coded = rest.first().is_some_and(|first| first & 0x80 != 0);
    let length = integer(rest, 7)?;
    let (bytes, after) = rest.split_at_checked(length).ok_or(CUT_SHORT)?;
    *rest = after;
    Ok(Text { bytes, is_coded })
}

pub(super) fn put_integer(out: &mut Vec<u8>, bits: u8, prefix: u32, value: usize) {
    let most = (1 << prefix) - 1;
    if value < most {
        out.push(bits | value as u8);
        return;
    }
    out.push(bits | most as u8);
    let mut rest = value - most;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    put_integer(out, 0, 7, text.len());
    out.extend_from_slice(text);
}

/// How a field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldForm {
    /// The field stays out of the table.
    Plain,
    /// The field enters the table.
    Kept,
}

/// Fully indexed static fields are written by the caller.
pub fn put_field(out: &mut Vec<u8>, form: FieldForm, name: &[u8], value: &[u8]) {
    out.push(if form == FieldForm::Kept { 0x40 } else { 0 });
    put_string(out, name);
    put_string(out, value);
}

/// Appends a reference to a dynamic entry; `ago` entries were added after it.
pub(super) fn put_kept(out: &mut Vec<u8>, ago: usize) {
    put_integer(out, 0x80, 7, STATIC_NAMES.len() + 1 + ago);
}
