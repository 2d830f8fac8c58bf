pub(super) const HEAD_BYTES: usize = 9;
/// Maximum payload that a server may send: the initial SETTINGS_MAX_FRAME_SIZE, which we do not change.
pub(super) const MAX_PAYLOAD_BYTES: u32 = 16_384;

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PUSH_PROMISE: u8 = 5;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const END_STREAM: u8 = 1;
pub(super) const ACK: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;
pub(super) const PADDED: u8 = 8;
pub(super) const PRIORITY: u8 = 0x20;

pub(super) const PROTOCOL_ERROR: u32 = 1;
pub(super) const CANCEL: u32 = 8;
pub(crate) const REFUSED_STREAM: u32 = 7;

const ERRORS: [&str; 14] = [
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
];

pub(crate) fn error_name(code: u32) -> &'static str {
    ERRORS.get(code as usize).copied().unwrap_or("an unknown error code")
}

#[derive(Debug, Clone, Copy)]
pub(super) struct FrameHead {
    pub(super) length: u32,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHead {
    #[inline]
    pub(super) fn read(bytes: &[u8]) -> Option<FrameHead> {
        let [a, b, c, kind, flags, stream @ ..] = bytes.first_chunk::<HEAD_BYTES>()?;
        Some(FrameHead {
            length: u32::from_be_bytes([0, *a, *b, *c]),
            kind: *kind,
            flags: *flags,
            // The first bit is reserved.
            stream: u32::from_be_bytes(*stream) & 0x7fff_ffff,
        })
    }

    #[inline]
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    #[inline]
    pub(super) fn bytes(&self) -> [u8; HEAD_BYTES] {
        let [_, a, b, c] = self.length.to_be_bytes();
        let [e, f, g, h] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, e, f, g, h]
    }

    #[inline]
    pub(super) fn put(kind: u8, flags: u8, stream: u32, length: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&FrameHead { length: length as u32, kind, flags, stream }.bytes());
    }
}

pub(super) fn put_number(kind: u8, stream: u32, number: u32, out: &mut Vec<u8>) {
    FrameHead::put(kind, 0, stream, 4, out);
    out.extend_from_slice(&number.to_be_bytes());
}
