//! Sends one request, to learn what answers before any load; if it is not an HTTP server, reports that in one sentence.

use crate::LoadError;
use crate::check::check;
use crate::framing::{AtEnd, Framing, HTTP_2, HeadCache, Malformed, parse_head};
use crate::request::Requests;
use crate::tls::{TlsSetting, words};
use record::{LoadPlan, Outside};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// The beginning of a response kept for messages and for `Location` and `Server`.
const KEPT_BYTES: usize = 64 * 1024 + 1024;

/// Whether a status sends the client elsewhere. 304 does not: it is the success of a conditional request.
pub fn is_redirect(status: u16) -> bool {
    (300..400).contains(&status) && status != 304
}

/// The server's answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResponse {
    /// The address that answered.
    pub address: SocketAddr,
    /// Status code of the final response.
    pub status: u16,
    /// How the end of the body is marked: `content-length`, `chunked`, `until close`, or `no body`.
    pub framing: &'static str,
    /// Status line, fields and framing (chunk sizes), interim responses included.
    pub header_bytes: u64,
    /// Body without framing.
    pub body_bytes: u64,
    /// Whether the server keeps the connection.
    pub is_keep_alive: bool,
    /// The `Server` field, printable. Untrusted text.
    pub server: Option<Outside>,
    /// The `Location` field, printable. Untrusted text.
    pub location: Option<Outside>,
    /// Time to establish the connection.
    pub connect_ns: u64,
    /// Time from the request to the last byte.
    pub service_ns: u64,
    /// Whether the body says that this is the TLS port.
    is_tls_complaint: bool,
}

impl ProbeResponse {
    /// A sentence if the answer is complete HTTP but probably not what was meant to be measured: an error, a redirect.
    pub fn complaint(&self) -> Option<String> {
        let address = self.address;
        match (self.status, &self.location) {
            (400, _) if self.is_tls_complaint => Some(LoadError::Tls(address).to_string()),
            (status, Some(location)) if is_redirect(status) => Some(format!(
                "{address} redirects (status {}) to {location}: the load would measure the redirect; give that URL instead",
                self.status
            )),
            (200..=399, _) => None,
            (status, _) => Some(format!(
                "{address} answers with status {status}: the load would measure its error path; check path, host and headers"
            )),
        }
    }
}

/// Sends the plan's first request once to each address in turn until one accepts the connection. `timeout` bounds
/// connecting and answering each. An error is one sentence: closed port, not HTTP, TLS, body ends early, no answer.
pub fn probe(plan: &LoadPlan, timeout: Duration) -> Result<ProbeResponse, LoadError> {
    check(plan)?;
    let mut first_error = None;
    for address in &plan.addresses {
        match connect(*address, timeout) {
            Ok((stream, connect_ns)) => {
                let stream = secured(plan, *address, stream, timeout)?;
                return exchange(plan, *address, stream, connect_ns, timeout);
            }
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    Err(first_error.unwrap_or_else(|| LoadError::Plan("there is no server address".into())))
}

/// Makes one connection, with its TLS handshake where the plan has TLS, and sends nothing: a closed port or a bad
/// certificate is reported before any load is made, and leaves no line in the server's log.
pub fn connect_once(plan: &LoadPlan, timeout: Duration) -> Result<(), LoadError> {
    let mut first_error = None;
    for address in &plan.addresses {
        match connect(*address, timeout).and_then(|(stream, _)| secured(plan, *address, stream, timeout)) {
            Ok(_) => return Ok(()),
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    first_error.map_or(Ok(()), Err)
}

/// A connection to read from and write to, and its socket for the timeouts.
struct Exchange {
    stream: Box<dyn ReadWrite>,
    socket: TcpStream,
}

trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

/// The connection as the plan's clients use it: after the handshake, where there is TLS.
fn secured(
    plan: &LoadPlan,
    address: SocketAddr,
    mut stream: TcpStream,
    timeout: Duration,
) -> Result<Exchange, LoadError> {
    let network = |cause| LoadError::Network { address, cause };
    let socket = stream.try_clone().map_err(network)?;
    let Some(setting) = TlsSetting::of(&plan.clients)? else {
        return Ok(Exchange { stream: Box::new(stream), socket });
    };
    let refused = |error: &rustls::Error| LoadError::Handshake { address, why: words(error) };
    let mut session = setting.connection().map_err(|error| refused(&error))?;
    stream.set_read_timeout(Some(timeout)).map_err(network)?;
    stream.set_write_timeout(Some(timeout)).map_err(network)?;
    while session.is_handshaking() {
        match session.complete_io(&mut stream) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(LoadError::NoResponse { address, how: "closed the connection during the TLS handshake" });
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(LoadError::ResponseTimeout { address, received: 0, after_ms: timeout.as_millis() as u64 });
            }
            Err(error) => {
                let tls = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).map(refused);
                return Err(tls.unwrap_or_else(|| network(error)));
            }
        }
    }
    Ok(Exchange { stream: Box::new(rustls::StreamOwned::new(session, stream)), socket })
}

fn connect(address: SocketAddr, timeout: Duration) -> Result<(TcpStream, u64), LoadError> {
    let begun = Instant::now();
    match TcpStream::connect_timeout(&address, timeout) {
        Ok(stream) => Ok((stream, begun.elapsed().as_nanos() as u64)),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Err(LoadError::Refused(address)),
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            Err(LoadError::ConnectTimeout { address, after_ms: timeout.as_millis() as u64 })
        }
        Err(cause) => Err(LoadError::Network { address, cause }),
    }
}

fn exchange(
    plan: &LoadPlan,
    address: SocketAddr,
    exchange: Exchange,
    connect_ns: u64,
    timeout: Duration,
) -> Result<ProbeResponse, LoadError> {
    let network = |cause| LoadError::Network { address, cause };
    let Exchange { mut stream, socket } = exchange;
    let requests = Requests::new(plan);
    let request = requests.targets[0].bytes(plan.requests_per_connection == 1);
    let begun = Instant::now();
    socket.set_write_timeout(Some(timeout)).map_err(network)?;
    // A server may answer, and close, before it has read the whole request: read its answer first.
    let sent = stream.write_all(request);
    let mut framing = Framing::new();
    let mut heads = HeadCache::new(requests.is_head, 1);
    let mut start: Vec<u8> = Vec::new();
    let (mut received, mut body) = (0u64, 0u64);
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let left = timeout.saturating_sub(begun.elapsed());
        let silent = || LoadError::ResponseTimeout { address, received, after_ms: timeout.as_millis() as u64 };
        if left.is_zero() {
            return Err(silent());
        }
        socket.set_read_timeout(Some(left)).map_err(network)?;
        let count = match stream.read(&mut buffer) {
            Ok(0) => {
                return match framing.at_end() {
                    AtEnd::Complete => Ok(()),
                    AtEnd::Nothing => Err(LoadError::NoResponse { address, how: "closed the connection" }),
                    AtEnd::Truncated => Err(LoadError::Truncated { address, received }),
                }
                .map(|()| response(address, &framing, &start, received, body, connect_ns, begun, requests.is_head));
            }
            Ok(count) => count,
            // A TLS peer that ends without notice: the framing decides whether the response is complete.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return match framing.at_end() {
                    AtEnd::Complete => {
                        Ok(response(address, &framing, &start, received, body, connect_ns, begun, requests.is_head))
                    }
                    _ => Err(LoadError::Truncated { address, received }),
                };
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Err(silent()),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                return Err(if framing.has_started() {
                    LoadError::Truncated { address, received }
                } else {
                    LoadError::NoResponse { address, how: "reset the connection" }
                });
            }
            Err(cause) => return Err(network(sent.err().unwrap_or(cause))),
        };
        received += count as u64;
        let keep = count.min(KEPT_BYTES - start.len());
        start.extend_from_slice(&buffer[..keep]);
        match framing.feed(&mut heads, 0, &buffer[..count]) {
            Ok(fed) => {
                body += fed.body as u64;
                if fed.is_complete && fed.used < count {
                    return Err(not_http(address, Malformed("more bytes came than the response announced"), &start));
                }
                if fed.is_complete {
                    return Ok(response(
                        address,
                        &framing,
                        &start,
                        received,
                        body,
                        connect_ns,
                        begun,
                        requests.is_head,
                    ));
                }
            }
            Err(malformed) => return Err(not_http(address, malformed, &start)),
        }
    }
}

fn not_http(address: SocketAddr, malformed: Malformed, start: &[u8]) -> LoadError {
    // A TLS record: alert (21) or handshake (22), major version 3.
    if matches!(start, [21 | 22, 3, ..]) {
        return LoadError::Tls(address);
    }
    if malformed == HTTP_2 {
        return LoadError::Http2 { address, why: malformed.0 };
    }
    LoadError::NotHttp { address, why: malformed.0.into(), start: printable(start, 40) }
}

/// Outside bytes in a sentence: quoted, escaped, at most `limit` of them.
fn printable(bytes: &[u8], limit: usize) -> String {
    let short: String =
        bytes.iter().take(limit).flat_map(|byte| std::ascii::escape_default(*byte)).map(char::from).collect();
    let more = if bytes.len() > limit { "..." } else { "" };
    format!("\"{short}{more}\"")
}

#[expect(clippy::too_many_arguments, reason = "one call site in two places; a struct would only rename them")]
fn response(
    address: SocketAddr,
    framing: &Framing,
    start: &[u8],
    received: u64,
    body_bytes: u64,
    connect_ns: u64,
    begun: Instant,
    is_head: bool,
) -> ProbeResponse {
    let head = final_head(start, is_head);
    let field = |name| head.and_then(|(bytes, _)| field(bytes, name));
    ProbeResponse {
        address,
        status: framing.status(),
        framing: head.map_or("until close", |(_, kind)| kind),
        header_bytes: received - body_bytes,
        body_bytes,
        is_keep_alive: framing.is_keep_alive(),
        server: field("server"),
        location: field("location"),
        connect_ns,
        service_ns: begun.elapsed().as_nanos() as u64,
        is_tls_complaint: memchr::memmem::find(start, b"HTTPS port").is_some()
            || memchr::memmem::find(start, b"HTTP request to an HTTPS server").is_some(),
    }
}

/// The bytes of the final head and the name of its framing, after interim ones.
fn final_head(start: &[u8], is_head: bool) -> Option<(&[u8], &'static str)> {
    use crate::framing::BodyKind;
    let mut rest = start;
    loop {
        let end = crate::framing::head_end(rest)?;
        let head = parse_head(&rest[..end], is_head).ok()?;
        if head.is_interim() {
            rest = &rest[end..];
            continue;
        }
        let kind = match head.body {
            BodyKind::None => "no body",
            BodyKind::Fixed(_) => "content-length",
            BodyKind::Chunked => "chunked",
            BodyKind::UntilClose => "until close",
        };
        return Some((&rest[..end], kind));
    }
}

/// The first value of a field, made printable and short.
fn field(head: &[u8], name: &str) -> Option<Outside> {
    const LIMIT: usize = 200;
    head.split(|byte| *byte == b'\n').find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        line[..colon].eq_ignore_ascii_case(name.as_bytes()).then(|| Outside::of_bytes(&line[colon + 1..], LIMIT))
    })
}
