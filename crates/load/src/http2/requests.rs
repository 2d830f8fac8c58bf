//! The header blocks of requests, made once before the load. The fields that all requests share are put into the
//! connection's dynamic table with its first request, and referred to afterwards.

use super::hpack::{ENTRY_BYTES, Form, TABLE_BYTES, put_field, put_integer, put_kept};
use std::sync::Arc;

/// The shared fields in one form: what precedes the path, and what follows it.
#[derive(Debug, Default)]
struct Shared {
    before: Vec<u8>,
    after: Vec<u8>,
}

/// The requests of a plan.
#[derive(Debug)]
pub struct Requests {
    /// Written out.
    plain: Shared,
    /// Written out and put into the dynamic table.
    first: Shared,
    /// References to the table.
    later: Shared,
    /// What the references need of the table.
    table_bytes: u32,
    /// The field of each target's path; empty where all requests have the same.
    paths: Vec<Box<[u8]>>,
    pub(super) body: Arc<[u8]>,
}

/// The state of the table that the server keeps for our requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    /// Empty, of so many bytes at most. A size other than the initial one is announced with the first block.
    Fresh(u32),
    /// Has the shared fields.
    Kept,
    /// The server has made it smaller, which the next block confirms.
    Shrunk(u32),
    /// Not used.
    Unused,
}

impl Coding {
    /// The server sets the size of the table. One that grows again is not used again.
    pub(super) fn limit(&mut self, limit: u32) {
        *self = match *self {
            Coding::Fresh(before) => Coding::Fresh(before.min(limit)),
            Coding::Shrunk(before) => Coding::Shrunk(before.min(limit)),
            Coding::Kept | Coding::Unused if limit < TABLE_BYTES => Coding::Shrunk(limit),
            same => same,
        }
    }
}

impl Default for Coding {
    fn default() -> Self {
        Coding::Fresh(TABLE_BYTES)
    }
}

impl Requests {
    /// `headers` without `host`; their names in any case.
    pub fn new<'p>(
        method: &str,
        scheme: &str,
        authority: &str,
        headers: &[(String, String)],
        paths: impl Iterator<Item = &'p str>,
        body: &[u8],
    ) -> Self {
        let paths: Vec<&str> = paths.collect();
        let mut requests = Requests {
            plain: Shared::default(),
            first: Shared::default(),
            later: Shared::default(),
            table_bytes: 0,
            paths: Vec::new(),
            body: body.into(),
        };
        // Of each field in the table: whether it precedes the path.
        let mut kept = Vec::new();
        requests.share(":method", method, &mut kept);
        requests.share(":scheme", scheme, &mut kept);
        requests.share(":authority", authority, &mut kept);
        match paths.as_slice() {
            [path] => requests.share(":path", path, &mut kept),
            paths => {
                let field = |path: &&str| {
                    let mut field = Vec::new();
                    put_field(&mut field, Form::Plain, b":path", path.as_bytes());
                    field.into()
                };
                requests.paths = paths.iter().map(field).collect();
            }
        }
        for (name, value) in headers {
            requests.share(&name.to_ascii_lowercase(), value.trim(), &mut kept);
        }
        if !body.is_empty() || matches!(method, "POST" | "PUT" | "PATCH") {
            requests.share("content-length", &body.len().to_string(), &mut kept);
        }
        let count = kept.len();
        for (number, is_pseudo) in kept.into_iter().enumerate() {
            let later = if is_pseudo { &mut requests.later.before } else { &mut requests.later.after };
            put_kept(later, count - 1 - number);
        }
        requests
    }

    /// Adds a field that all requests have.
    fn share(&mut self, name: &str, value: &str, kept: &mut Vec<bool>) {
        let is_pseudo = name.starts_with(':');
        let part = |shared: &mut Shared, form: Form| {
            let out = if is_pseudo { &mut shared.before } else { &mut shared.after };
            put_field(out, form, name.as_bytes(), value.as_bytes());
        };
        let bytes = ENTRY_BYTES + (name.len() + value.len()) as u32;
        part(&mut self.plain, Form::Plain);
        if self.table_bytes + bytes > TABLE_BYTES {
            part(&mut self.first, Form::Plain);
            part(&mut self.later, Form::Plain);
            return;
        }
        self.table_bytes += bytes;
        part(&mut self.first, Form::Kept);
        kept.push(is_pseudo);
    }

    /// Appends the block of a target's request.
    #[inline]
    pub(super) fn put(&self, target: usize, coding: &mut Coding, out: &mut Vec<u8>) {
        let shared = match *coding {
            Coding::Kept => &self.later,
            Coding::Unused => &self.plain,
            Coding::Shrunk(limit) => {
                put_integer(out, 0x20, 5, limit as usize);
                *coding = Coding::Unused;
                &self.plain
            }
            Coding::Fresh(limit) => {
                if limit < TABLE_BYTES {
                    put_integer(out, 0x20, 5, limit as usize);
                }
                let fits = self.table_bytes <= limit;
                *coding = if fits { Coding::Kept } else { Coding::Unused };
                if fits { &self.first } else { &self.plain }
            }
        };
        out.extend_from_slice(&shared.before);
        if let Some(path) = self.paths.get(target) {
            out.extend_from_slice(path);
        }
        out.extend_from_slice(&shared.after);
    }
}
