//! The header blocks of requests, made once before the load. Fields shared by all requests enter the connection's
//! dynamic table with its first request; later requests refer to them.

use super::hpack::{ENTRY_BYTES, FieldForm, TABLE_BYTES, put_field, put_integer, put_kept};
use record::TraceId;
use std::sync::Arc;

#[derive(Debug, Default)]
struct SharedFields {
    before: Vec<u8>,
    after: Vec<u8>,
}

/// The requests of a plan.
#[derive(Debug)]
pub struct RequestBlocks {
    plain: SharedFields,
    first: SharedFields,
    later: SharedFields,
    table_bytes: u32,
    paths: Vec<Box<[u8]>>,
    trace: Vec<u8>,
    pub(super) body: Arc<[u8]>,
    pub(super) is_head: bool,
}

/// The state of the server's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableState {
    /// An empty table of at most this size. The first block announces a size other than the initial one.
    Fresh(u32),
    /// The table has the shared fields.
    Kept,
    /// The server has shrunk the table; the next block confirms this.
    Shrunk(u32),
    /// The table does not have the shared fields.
    Unused,
}

impl TableState {
    /// The server sets the size of the table. Once shrunk, it is not used again.
    pub fn limit(&mut self, limit: u32) {
        *self = match *self {
            TableState::Fresh(before) => TableState::Fresh(before.min(limit)),
            TableState::Shrunk(before) => TableState::Shrunk(before.min(limit)),
            TableState::Kept | TableState::Unused if limit < TABLE_BYTES => TableState::Shrunk(limit),
            same => same,
        }
    }
    /// Appends the table sizes that the next block must announce. Afterwards the table is used only if it has the
    /// shared fields.
    fn confirm(&mut self, out: &mut Vec<u8>) {
        match *self {
            TableState::Kept | TableState::Unused => return,
            TableState::Fresh(limit) if limit >= TABLE_BYTES => {}
            TableState::Fresh(limit) | TableState::Shrunk(limit) => put_integer(out, 0x20, 5, limit as usize),
        }
        *self = TableState::Unused;
    }
}

impl Default for TableState {
    fn default() -> Self {
        TableState::Fresh(TABLE_BYTES)
    }
}

impl RequestBlocks {
    /// `headers`: without `host`; names may have capitals.
    pub fn new<'p>(
        method: &str,
        scheme: &str,
        authority: &str,
        headers: &[(String, String)],
        paths: impl Iterator<Item = &'p str>,
        body: impl Into<Arc<[u8]>>,
    ) -> Self {
        let body = body.into();
        let paths: Vec<&str> = paths.collect();
        let mut requests = RequestBlocks {
            plain: SharedFields::default(),
            first: SharedFields::default(),
            later: SharedFields::default(),
            table_bytes: 0,
            paths: Vec::new(),
            trace: Vec::new(),
            body,
            is_head: method == "HEAD",
        };
        // For each field in the table, whether it precedes the path.
        let mut kept = Vec::new();
        requests.share(":method", method, &mut kept);
        requests.share(":scheme", scheme, &mut kept);
        requests.share(":authority", authority, &mut kept);
        match paths.as_slice() {
            [path] => requests.share(":path", path, &mut kept),
            paths => {
                let field = |path: &&str| {
                    let mut field = Vec::new();
                    put_field(&mut field, FieldForm::Plain, b":path", path.as_bytes());
                    field.into()
                };
                requests.paths = paths.iter().map(field).collect();
            }
        }
        for (name, value) in headers {
            requests.share(&name.to_ascii_lowercase(), value.trim(), &mut kept);
        }
        if !requests.body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
            requests.share("content-length", &requests.body.len().to_string(), &mut kept);
        }
        let count = kept.len();
        for (number, is_pseudo) in kept.into_iter().enumerate() {
            let later = if is_pseudo { &mut requests.later.before } else { &mut requests.later.after };
            put_kept(later, count - 1 - number);
        }
        requests
    }

    fn share(&mut self, name: &str, value: &str, kept: &mut Vec<bool>) {
        let is_pseudo = name.starts_with(':');
        let part = |shared: &mut SharedFields, form: FieldForm| {
            let out = if is_pseudo { &mut shared.before } else { &mut shared.after };
            put_field(out, form, name.as_bytes(), value.as_bytes());
        };
        let bytes = ENTRY_BYTES + (name.len() + value.len()) as u32;
        part(&mut self.plain, FieldForm::Plain);
        if self.table_bytes + bytes > TABLE_BYTES {
            part(&mut self.first, FieldForm::Plain);
            part(&mut self.later, FieldForm::Plain);
            return;
        }
        self.table_bytes += bytes;
        part(&mut self.first, FieldForm::Kept);
        kept.push(is_pseudo);
    }

    /// Appends the block of a request of the plan.
    #[inline]
    pub fn put(&self, target: usize, coding: &mut TableState, out: &mut Vec<u8>) {
        let before = *coding;
        coding.confirm(out);
        let shared = match before {
            TableState::Kept => &self.later,
            TableState::Fresh(limit) if self.table_bytes <= limit => {
                *coding = TableState::Kept;
                &self.first
            }
            _ => &self.plain,
        };
        out.extend_from_slice(&shared.before);
        if let Some(path) = self.paths.get(target) {
            out.extend_from_slice(path);
        }
        out.extend_from_slice(&shared.after);
        out.extend_from_slice(&self.trace);
    }

    /// Appends the block of a request of a log.
    #[inline]
    pub fn put_block(&self, block: &[u8], coding: &mut TableState, out: &mut Vec<u8>) {
        coding.confirm(out);
        out.extend_from_slice(block);
        out.extend_from_slice(&self.trace);
    }

    /// Gives the next requests this trace id.
    pub fn trace(&mut self, id: TraceId) {
        if self.trace.is_empty() {
            // A literal without indexing, with a new name; neither string is compressed.
            self.trace.extend([0, TraceId::FIELD.len() as u8]);
            self.trace.extend(TraceId::FIELD.as_bytes());
            self.trace.push(TraceId::PARENT_BYTES as u8);
            self.trace.extend([0; TraceId::PARENT_BYTES]);
        }
        let from = self.trace.len() - TraceId::PARENT_BYTES;
        if let Ok(value) = (&mut self.trace[from..]).try_into() {
            id.write_parent(value);
        }
    }
}

/// Writes requests whose method and path are not known before, e.g. those of a log. They use no table, so each can be
/// sent on any connection.
#[derive(Debug)]
pub struct LogRequestWriter {
    before: Vec<u8>,
    after: Vec<u8>,
}

impl LogRequestWriter {
    /// Header fields without `host`; names may have capitals.
    pub fn new(scheme: &str, authority: &str, headers: &[(String, String)]) -> Self {
        let mut writer = LogRequestWriter { before: Vec::new(), after: Vec::new() };
        put_field(&mut writer.before, FieldForm::Plain, b":scheme", scheme.as_bytes());
        put_field(&mut writer.before, FieldForm::Plain, b":authority", authority.as_bytes());
        for (name, value) in headers {
            let name = name.to_ascii_lowercase();
            put_field(&mut writer.after, FieldForm::Plain, name.as_bytes(), value.trim().as_bytes());
        }
        writer
    }

    /// The block of a request, for [`Http2Session::put_block`](super::Http2Session::put_block).
    pub fn block(&self, method: &[u8], path: &[u8], has_length: bool) -> Box<[u8]> {
        let mut block = Vec::with_capacity(self.before.len() + self.after.len() + path.len() + 40);
        put_field(&mut block, FieldForm::Plain, b":method", method);
        block.extend_from_slice(&self.before);
        put_field(&mut block, FieldForm::Plain, b":path", path);
        block.extend_from_slice(&self.after);
        if has_length {
            put_field(&mut block, FieldForm::Plain, b"content-length", b"0");
        }
        block.into()
    }
}
