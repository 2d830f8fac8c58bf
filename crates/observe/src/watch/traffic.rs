//! Identifies the protocol on the port by the first bytes of a few reads.
//!
//! The watch counts a request when the direction of a connection changes, which is right only for HTTP/1. The
//! protocol decides whether the counts are those of requests, so a few reads between two readings are examined once,
//! in this process's memory. Only the resulting counts are kept, never the bytes. The bytes come from the server's
//! clients: any bytes give a result, in linear time.

use record::doubt::{Doubt, DoubtKind};
use record::watch::Traffic;

/// Maximum bytes kept of a read, as in `bpf/watch.h`.
pub const LOOK_BYTES: usize = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadContent {
    Http1 {
        /// Number of requests whose first line is in the read.
        requests: u32,
        has_body: bool,
        /// Whether one of them waits for an interim response.
        expects: bool,
        /// Whether one of them requests a WebSocket.
        is_websocket: bool,
    },
    Redis {
        /// Number of commands that begin in the read.
        commands: u32,
    },
    Memcached {
        /// Number of commands that begin in the read.
        commands: u32,
    },
    Http2 {
        /// Number of streams that begin in the read.
        streams: u32,
    },
    Tls,
    /// None of these.
    Other,
}

/// Adds a read of `bytes` bytes that begins with `head`; `None` if it could not be read.
pub fn add(traffic: &mut Traffic, head: Option<&[u8]>, bytes: u32) {
    traffic.looked_into += 1;
    let Some(head) = head else {
        traffic.hidden += 1;
        return;
    };
    let content = content(head);
    traffic.requests += whole(content.requests(), head.len().min(LOOK_BYTES), bytes as usize);
    if let ReadContent::Http1 { has_body, expects, is_websocket, .. } = content {
        traffic.uploads += u64::from(has_body);
        traffic.expecting += u64::from(expects);
        traffic.websockets += u64::from(is_websocket);
    }
    *match content {
        ReadContent::Http2 { .. } => &mut traffic.http2,
        ReadContent::Tls => &mut traffic.tls,
        ReadContent::Other => &mut traffic.other,
        several if several.requests() > 1 => &mut traffic.pipelined,
        ReadContent::Http1 { .. } => &mut traffic.http1,
        ReadContent::Redis { .. } => &mut traffic.redis,
        ReadContent::Memcached { .. } => &mut traffic.memcached,
    } += 1;
}

impl ReadContent {
    /// Requests, commands or streams that begin in the read.
    fn requests(self) -> u32 {
        match self {
            ReadContent::Http1 { requests, .. } => requests,
            ReadContent::Redis { commands } | ReadContent::Memcached { commands } => commands,
            ReadContent::Http2 { streams } => streams,
            ReadContent::Tls | ReadContent::Other => 0,
        }
    }
}

/// Estimates the number in a whole read from the number in its first bytes, where the last one is cut in the middle
/// on average.
fn whole(found: u32, kept: usize, bytes: usize) -> u64 {
    if kept == 0 || bytes <= kept || found < 2 {
        return u64::from(found);
    }
    ((f64::from(found) - 0.5) * bytes as f64 / kept as f64).round() as u64
}

/// Doubts that explain the counts of requests on this port if they are not those of requests.
pub fn doubts(traffic: &Traffic) -> Vec<Doubt> {
    let of = |count: u64| format!("{count} of {} examined reads", traffic.looked_into);
    let about = traffic.requests_per_read().map(|each| format!(", about {each:.1} each")).unwrap_or_default();
    let streams = format!(
        "each change of direction counts as a request, because streams are not distinguished{about}; bytes and CPU \
         time are \
         exact: take requests from the server's log"
    );
    let pipelined = format!(
        "requests that arrive in one read count as one{about}; bytes and CPU time are exact: take requests from the \
         server's log"
    );
    let cases = [
        (traffic.http2, "HTTP/2 is spoken here", streams.as_str()),
        (traffic.pipelined, "requests are pipelined here", pipelined.as_str()),
        (
            traffic.expecting,
            "uploads wait for permission here (Expect: 100-continue)",
            "each counts as two requests: subtract one for each interim response",
        ),
        (
            traffic.websockets,
            "WebSockets are opened here",
            "each of their changes of direction counts as a request: watch a port without them for requests",
        ),
        (
            traffic.tls,
            "TLS is spoken here",
            "bytes are those on the wire, the flights of a handshake count as one or two small requests, and HTTP/2 \
             streams inside are not visible: compare with the server's log",
        ),
        (
            if traffic.other * 2 > traffic.looked_into { traffic.other } else { 0 },
            "the protocol is not known",
            "each change of direction counts as a request: take requests from the server's log",
        ),
    ];
    cases
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, what, remedy)| DoubtKind::NotSplit.note(format!("{what} ({})", of(count)), remedy))
        .collect()
}

/// Methods of RFC 9110, and PATCH (RFC 5789), with the following space.
const METHODS: [&[u8]; 9] =
    [b"GET ", b"POST ", b"HEAD ", b"PUT ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"CONNECT ", b"TRACE "];
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";
const PREFACE_BYTES: usize = 24;
const HEADERS: u8 = 1;
/// The first bytes of version 2 of the PROXY protocol; the length is at offset 14.
pub const PROXY_2: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// Classifies the first bytes of a read that began a request.
pub fn content(head: &[u8]) -> ReadContent {
    let head = behind_proxy_line(&head[..head.len().min(LOOK_BYTES)]);
    if is_beginning_of(head, PREFACE) {
        let frames = head.get(PREFACE_BYTES..).unwrap_or_default();
        return ReadContent::Http2 { streams: streams(frames).unwrap_or(0) };
    }
    if METHODS.iter().any(|method| is_beginning_of(head, method)) {
        return requests(head);
    }
    match head {
        // Content type 20 to 23 and version 3.x (RFC 8446, section 5.1); a server may read only these bytes at first.
        [20..=23, 3, 0..=4, ..] => ReadContent::Tls,
        [b'*', b'1'..=b'9', ..] => {
            commands(head).map_or(ReadContent::Other, |commands| ReadContent::Redis { commands })
        }
        _ => {
            let of_memcached = || memcached(head).map(|commands| ReadContent::Memcached { commands });
            streams(head)
                .map(|streams| ReadContent::Http2 { streams })
                .or_else(of_memcached)
                .unwrap_or(ReadContent::Other)
        }
    }
}

/// Whether `head` begins with `token`, or is the beginning of it.
fn is_beginning_of(head: &[u8], token: &[u8]) -> bool {
    let common = head.len().min(token.len());
    common >= 3 && head[..common] == token[..common]
}

/// The bytes after the line that a proxy sends before the first request (HAProxy's send-proxy).
fn behind_proxy_line(head: &[u8]) -> &[u8] {
    if head.starts_with(b"PROXY ") {
        let end = head.iter().take(108).position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        return &head[end..];
    }
    match head {
        [prefix @ .., _] if prefix.starts_with(PROXY_2) && head.len() >= 16 => {
            let length = 16 + usize::from(u16::from_be_bytes([head[14], head[15]]));
            head.get(length..).unwrap_or_default()
        }
        _ => head,
    }
}

fn requests(head: &[u8]) -> ReadContent {
    let (mut requests, mut has_body, mut expects, mut is_websocket) = (0, false, false, false);
    let mut rest = head;
    while METHODS.iter().any(|method| rest.starts_with(method)) {
        requests += 1;
        let end = rest.windows(4).position(|window| window == b"\r\n\r\n");
        let fields = &rest[..end.unwrap_or(rest.len())];
        let mut body_bytes = Some(0);
        for line in fields.split(|byte| *byte == b'\n').skip(1) {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            if name.eq_ignore_ascii_case(b"content-length") {
                body_bytes = std::str::from_utf8(value).ok().and_then(|text| text.parse::<usize>().ok());
            } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
                body_bytes = None;
            } else if name.eq_ignore_ascii_case(b"expect") {
                expects |= value.eq_ignore_ascii_case(b"100-continue");
            } else if name.eq_ignore_ascii_case(b"upgrade") {
                is_websocket |= value.eq_ignore_ascii_case(b"websocket");
            }
        }
        has_body |= body_bytes != Some(0);
        // The end of the body is known only if its length is given.
        let (Some(end), Some(body_bytes)) = (end, body_bytes) else { break };
        rest = rest.get((end + 4).saturating_add(body_bytes)..).unwrap_or_default();
    }
    // The read has less than a method, so one request begins.
    ReadContent::Http1 { requests: requests.max(1), has_body, expects, is_websocket }
}

/// Counts Redis commands: arrays of strings with their lengths
/// (<https://redis.io/docs/latest/develop/reference/protocol-spec/>), of which the last may be cut. `None` if it is
/// something else.
fn commands(head: &[u8]) -> Option<u32> {
    /// Parses a number after its sign; also returns the bytes after its line. `Err` if it is not a number, `Ok(None)`
    /// if it is cut.
    fn number(rest: &[u8], sign: u8) -> Result<Option<(usize, &[u8])>, ()> {
        let Some((first, rest)) = rest.split_first() else { return Ok(None) };
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let end = &rest[digits..];
        if *first != sign || digits > 10 || !(end.starts_with(b"\r\n") || b"\r\n".starts_with(end)) {
            return Err(());
        }
        let value = std::str::from_utf8(&rest[..digits]).ok().and_then(|text| text.parse().ok());
        match end.get(2..) {
            Some(rest) => Ok(Some((value.ok_or(())?, rest))),
            None => Ok(None),
        }
    }
    let (mut rest, mut commands) = (head, 0);
    while !rest.is_empty() {
        commands += 1;
        let Some((strings, after)) = number(rest, b'*').ok()? else { return Some(commands) };
        rest = after;
        for _ in 0..strings {
            let Some((length, after)) = number(rest, b'$').ok()? else { return Some(commands) };
            let end = length.checked_add(2)?;
            match after.get(..end) {
                Some(string) if string.ends_with(b"\r\n") => rest = &after[end..],
                Some(_) => return None,
                None => return Some(commands),
            }
        }
    }
    Some(commands)
}

/// Counts commands of memcached's text protocol, of which the last may be cut; `None` if it is something else.
fn memcached(head: &[u8]) -> Option<u32> {
    const STORES: [&[u8]; 7] = [b"set", b"add", b"replace", b"append", b"prepend", b"cas", b"ms"];
    const OTHERS: [&[u8]; 12] =
        [b"get", b"gets", b"gat", b"gats", b"delete", b"incr", b"decr", b"touch", b"mg", b"md", b"ma", b"mn"];
    let (mut rest, mut commands) = (head, 0);
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n');
        let mut words = rest[..end.unwrap_or(rest.len())].trim_ascii_end().split(|byte| *byte == b' ');
        let name = words.next()?;
        let stores = STORES.contains(&name);
        if !stores && !OTHERS.contains(&name) {
            return (end.is_none() && commands > 0).then_some(commands + 1);
        }
        commands += 1;
        let Some(end) = end else { break };
        rest = &rest[end + 1..];
        if stores {
            let length = words.nth(if name == b"ms" { 1 } else { 3 })?;
            let length: usize = std::str::from_utf8(length).ok()?.parse().ok()?;
            rest = rest.get(length.checked_add(2)?..).unwrap_or_default();
        }
    }
    (commands > 0).then_some(commands)
}

/// Counts the streams that begin, if these may be frames of HTTP/2 (RFC 9113, section 6) from the first byte to the
/// last.
fn streams(head: &[u8]) -> Option<u32> {
    let mut rest = head;
    let (mut whole, mut streams) = (0, 0);
    while let [a, b, c, kind, _, stream @ ..] = rest {
        let Some(stream) = stream.first_chunk::<4>() else { break };
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        let stream = u32::from_be_bytes(*stream);
        let is_sound = match kind {
            // DATA, HEADERS, PRIORITY, RST_STREAM and CONTINUATION belong to a stream of the client.
            0 | 1 | 9 => stream % 2 == 1 && length <= 1 << 14,
            2 => stream % 2 == 1 && length == 5,
            3 => stream % 2 == 1 && length == 4,
            4 => stream == 0 && length % 6 == 0 && length <= 600,
            6 => stream == 0 && length == 8,
            7 => stream == 0 && (8..1 << 14).contains(&length),
            8 => stream < 1 << 31 && length == 4,
            _ => false,
        };
        if !is_sound {
            return None;
        }
        whole += 1;
        streams += u32::from(*kind == HEADERS);
        rest = rest.get(9 + length..).unwrap_or_default();
    }
    (whole > 0).then_some(streams)
}
