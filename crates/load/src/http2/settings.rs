use super::Malformed;
use super::frame::{FrameHead, SETTINGS, WINDOW_UPDATE, put_number};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;
const MAX_FRAME_SIZE: u16 = 5;

/// Window of the connection and of each stream, so large that the server never waits.
pub(super) const WINDOW_BYTES: u32 = 1 << 30;
pub(super) const INITIAL_WINDOW_BYTES: u32 = 65_535;
pub(super) const MAX_WINDOW_BYTES: i64 = (1 << 31) - 1;

#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) streams: u32,
    pub(super) window_bytes: u32,
    pub(super) frame_bytes: u32,
    /// Size of the table for our requests, if the last SETTINGS frame had it.
    pub(super) table_bytes: Option<u32>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            streams: u32::MAX,
            window_bytes: INITIAL_WINDOW_BYTES,
            frame_bytes: super::frame::MAX_PAYLOAD_BYTES,
            table_bytes: None,
        }
    }
}

impl Settings {
    pub(super) fn take(&mut self, payload: &[u8]) -> Result<(), Malformed> {
        let wrong = Err(Malformed("an HTTP/2 SETTINGS frame has a value that is not allowed"));
        self.table_bytes = None;
        let (settings, []) = payload.as_chunks::<6>() else {
            return Err(Malformed("an HTTP/2 SETTINGS frame has a length that is not a multiple of 6"));
        };
        for [a, b, value @ ..] in settings {
            let value = u32::from_be_bytes(*value);
            match u16::from_be_bytes([*a, *b]) {
                HEADER_TABLE_SIZE => self.table_bytes = Some(self.table_bytes.unwrap_or(u32::MAX).min(value)),
                ENABLE_PUSH if value != 0 => return wrong,
                MAX_CONCURRENT_STREAMS => self.streams = value,
                INITIAL_WINDOW_SIZE if i64::from(value) > MAX_WINDOW_BYTES => return wrong,
                INITIAL_WINDOW_SIZE => self.window_bytes = value,
                MAX_FRAME_SIZE if !(1 << 14..1 << 24).contains(&value) => return wrong,
                MAX_FRAME_SIZE => self.frame_bytes = value,
                _ => {}
            }
        }
        Ok(())
    }
}

pub(super) fn put_opening(out: &mut Vec<u8>) {
    out.extend_from_slice(PREFACE);
    let settings = [(ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, WINDOW_BYTES)];
    FrameHead::put(SETTINGS, 0, 0, 6 * settings.len(), out);
    for (name, value) in settings {
        out.extend_from_slice(&name.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
    put_number(WINDOW_UPDATE, 0, WINDOW_BYTES - INITIAL_WINDOW_BYTES, out);
}
