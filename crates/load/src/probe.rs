use crate::check::check;
use crate::error::{LoadError, wrong};
use crate::framing::{AtEnd, Framing, HTTP_2, HeadCache, Malformed, parse_head};
use crate::http2::{Http2Session, StreamEnd, error_name};
use crate::replies::Reply;
use crate::request::Requests;
use crate::tls::{TlsSetting, error_text};
use crate::worker::protocol::{Memcached, OrderedProtocol, Redis, Tcp, grpc_status};
use record::protocol::{ANSWER, Protocol};
use record::{LoadPlan, LoadShare, PlainText};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Bytes kept from the beginning of a response, for messages and `Location`.
const KEPT_BYTES: usize = 64 * 1024 + 1024;
const VERDICT: Duration = Duration::from_millis(100);

/// Whether a status redirects the client. 304 does not; it answers a conditional request.
pub fn is_redirect(status: u16) -> bool {
    (300..400).contains(&status) && status != 304
}

/// The server's answer to one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResponse {
    /// Status code of the final response.
    pub status: u16,
    /// The `Location` field, printable. Untrusted text.
    pub location: Option<PlainText>,
    /// The error message of a server of a protocol other than HTTP, printable. Untrusted text.
    pub error: Option<PlainText>,
}

/// Sends the plan's first request once, to the first address that accepts the connection. `timeout` limits connecting
/// and the response separately. Errors are sentences: closed port, not HTTP, TLS, body ends early, no response.
pub fn probe(plan: &LoadPlan, timeout: Duration) -> Result<ProbeResponse, LoadError> {
    let answer = first_connection(plan, timeout, true)?;
    Ok(answer.expect("a request has an answer or an error"))
}

/// Makes one connection as clients do, and sends no request. So a closed port, a bad certificate or a wrong password
/// is reported before any load, without a line in the log of an HTTP server.
pub fn connect_once(plan: &LoadPlan, timeout: Duration) -> Result<(), LoadError> {
    first_connection(plan, timeout, false).map(drop)
}

/// [`connect_once`] with the plan's timeout, for protocols whose opening has more than a connect.
pub fn check_opening(plan: &LoadPlan) -> Result<(), LoadError> {
    if plan.clients.tls.is_none() && plan.protocol.is_http_1() {
        return Ok(());
    }
    connect_once(plan, Duration::from_nanos(plan.connect_timeout_ns))
}

fn first_connection(plan: &LoadPlan, timeout: Duration, asks: bool) -> Result<Option<ProbeResponse>, LoadError> {
    check(plan)?;
    let mut first_error = None;
    for address in &plan.addresses {
        match connect(*address, timeout) {
            Ok(stream) => {
                let to = To { plan, address: *address, timeout, asks };
                let stream = secured(&to, stream)?;
                let (seed, alone) = (plan.seed, LoadShare::one(0, 1));
                return match &plan.protocol {
                    Protocol::Http if asks => http1(&to, stream).map(Some),
                    Protocol::Http => Ok(None),
                    Protocol::Http2(_) | Protocol::Grpc(_) => http2(&to, stream),
                    Protocol::Redis(redis) => ordered(Redis::new(redis, seed, alone), &to, stream),
                    Protocol::Memcached(memcached) => ordered(Memcached::new(memcached, seed, alone), &to, stream),
                    Protocol::Tcp(tcp) => ordered(Tcp::new(tcp), &to, stream),
                    Protocol::Connect => {
                        Ok(asks.then_some(ProbeResponse { status: ANSWER, location: None, error: None }))
                    }
                };
            }
            Err(error) => {
                first_error.get_or_insert(error);
            }
        }
    }
    Err(first_error.expect("the check refuses a plan without addresses"))
}

struct To<'a> {
    plan: &'a LoadPlan,
    address: SocketAddr,
    timeout: Duration,
    asks: bool,
}

struct ProbeConnection {
    stream: Box<dyn ReadWrite>,
    socket: TcpStream,
    address: SocketAddr,
    begun: Instant,
    timeout: Duration,
    received: u64,
    /// The error of sending. A server may answer and close before it has read the whole request, so its answer is
    /// read first.
    sent: io::Result<()>,
}

enum Bytes {
    Some(usize),
    /// The peer closed the connection; over TLS perhaps without close_notify.
    Closed,
    Reset,
}

impl ProbeConnection {
    fn new(stream: Box<dyn ReadWrite>, socket: TcpStream, to: &To<'_>) -> Result<Self, LoadError> {
        let To { address, timeout, .. } = *to;
        socket.set_write_timeout(Some(timeout)).map_err(|cause| unreachable(address, &cause))?;
        Ok(ProbeConnection { stream, socket, address, begun: Instant::now(), timeout, received: 0, sent: Ok(()) })
    }

    fn send(&mut self, bytes: &[u8]) {
        self.sent = self.stream.write_all(bytes).and_then(|()| self.stream.flush());
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<Bytes, LoadError> {
        loop {
            let left = self.timeout.saturating_sub(self.begun.elapsed());
            let read = if left.is_zero() {
                Err(ErrorKind::TimedOut.into())
            } else {
                self.socket.set_read_timeout(Some(left)).and_then(|()| self.stream.read(buffer))
            };
            return match read {
                Ok(0) => Ok(Bytes::Closed),
                Ok(count) => {
                    self.received += count as u64;
                    Ok(Bytes::Some(count))
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => continue,
                    ErrorKind::UnexpectedEof => Ok(Bytes::Closed),
                    ErrorKind::ConnectionReset => Ok(Bytes::Reset),
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                        Err(no_response_in_time(self.address, self.received, self.timeout))
                    }
                    _ => Err(broken(self.address, std::mem::replace(&mut self.sent, Ok(())), error)),
                },
            };
        }
    }
}

trait ReadWrite: Read + Write {}

impl<T: Read + Write> ReadWrite for T {}

fn secured(to: &To<'_>, mut stream: TcpStream) -> Result<ProbeConnection, LoadError> {
    let To { plan, address, timeout, asks } = *to;
    let network = |cause| unreachable(address, &cause);
    let socket = stream.try_clone().map_err(network)?;
    let Some(setting) = TlsSetting::from_plan(plan)? else {
        return ProbeConnection::new(Box::new(stream), socket, to);
    };
    let refused = |error| no_handshake(address, &error);
    let mut session = setting.connection().map_err(refused)?;
    stream.set_read_timeout(Some(timeout)).map_err(network)?;
    stream.set_write_timeout(Some(timeout)).map_err(network)?;
    let begun = Instant::now();
    while session.is_handshaking() {
        match session.complete_io(&mut stream) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(no_response(address, "closed the connection during the TLS handshake"));
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Err(no_response_in_time(address, 0, timeout));
            }
            Err(error) => return Err(broken(address, Ok(()), error)),
        }
    }
    let is_later = session.protocol_version() == Some(rustls::ProtocolVersion::TLSv1_3);
    if is_later && (!asks || plan.protocol == Protocol::Connect) {
        // After the handshake, a server may still demand a client certificate; others send tickets or nothing.
        let timeout = (2 * begun.elapsed()).max(VERDICT).min(timeout);
        stream.set_read_timeout(Some(timeout)).map_err(network)?;
        if session.read_tls(&mut stream).is_ok() {
            session.process_new_packets().map_err(refused)?;
        }
    }
    ProbeConnection::new(Box::new(rustls::StreamOwned::new(session, stream)), socket, to)
}

fn broken(address: SocketAddr, sent: io::Result<()>, error: io::Error) -> LoadError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => no_handshake(address, error),
        None => unreachable(address, &sent.err().unwrap_or(error)),
    }
}

fn no_handshake(address: SocketAddr, error: &rustls::Error) -> LoadError {
    wrong(format!("no TLS connection to {address}: {}", error_text(error)))
}

fn unreachable(address: SocketAddr, cause: &io::Error) -> LoadError {
    wrong(format!("{address} cannot be reached: {cause}"))
}

fn no_response(address: SocketAddr, how: &str) -> LoadError {
    wrong(format!("{address} {how} without sending a response: does this port speak HTTP?"))
}

fn no_response_in_time(address: SocketAddr, received: u64, timeout: Duration) -> LoadError {
    wrong(format!(
        "{address} accepted the connection but sent {received} bytes and no complete response within {} ms: the server \
         may be overloaded, or expect another protocol",
        timeout.as_millis()
    ))
}

fn connect(address: SocketAddr, timeout: Duration) -> Result<TcpStream, LoadError> {
    TcpStream::connect_timeout(&address, timeout).map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused => {
            wrong(format!("nothing listens on {address} (connection refused): is the server running on this port?"))
        }
        ErrorKind::TimedOut => wrong(format!(
            "{address} did not accept a connection within {} ms: is the address right, or does a firewall block it?",
            timeout.as_millis()
        )),
        _ => unreachable(address, &error),
    })
}

fn http1(to: &To<'_>, mut exchange: ProbeConnection) -> Result<ProbeResponse, LoadError> {
    let To { plan, address, .. } = *to;
    let requests = Requests::new(&LoadPlan { traceparent: false, ..plan.clone() });
    exchange.send(requests.targets[0].bytes(plan.requests_per_connection == 1));
    let mut framing = Framing::new();
    let mut heads = HeadCache::new(requests.is_head, 1);
    let mut start: Vec<u8> = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = exchange.read(&mut buffer)?;
        let received = exchange.received;
        let Bytes::Some(count) = read else {
            let is_reset = matches!(read, Bytes::Reset);
            return match framing.at_end() {
                AtEnd::Complete if !is_reset => Ok(response(&framing, &start, requests.is_head)),
                AtEnd::Nothing => {
                    Err(no_response(address, if is_reset { "reset the connection" } else { "closed the connection" }))
                }
                _ => Err(wrong(format!(
                    "{address} closed the connection before the response was complete ({received} bytes received): the \
                     body ends early"
                ))),
            };
        };
        let keep = count.min(KEPT_BYTES - start.len());
        start.extend_from_slice(&buffer[..keep]);
        match framing.feed(&mut heads, 0, &buffer[..count]) {
            Ok(consumed) if consumed.is_complete && consumed.used < count => {
                return Err(not_http(address, Malformed("more bytes came than the response announced"), &start));
            }
            Ok(consumed) if consumed.is_complete => return Ok(response(&framing, &start, requests.is_head)),
            Ok(_) => {}
            Err(malformed) => return Err(not_http(address, malformed, &start)),
        }
    }
}

fn ordered<K: OrderedProtocol>(
    mut protocol: K,
    to: &To<'_>,
    mut exchange: ProbeConnection,
) -> Result<Option<ProbeResponse>, LoadError> {
    let To { plan, address, asks, .. } = *to;
    let foreign = |why: String| wrong(format!("{address}: {why}"));
    let mut out = Vec::new();
    let opening = protocol.open(&mut out);
    let target = if asks { protocol.put(&mut out) } else { 0 };
    exchange.send(&out);
    let mut reply = K::Reply::default();
    let mut replies = 0;
    let mut buffer = vec![0; 64 * 1024];
    if !asks && opening == 0 {
        return Ok(None);
    }
    loop {
        let Bytes::Some(count) = exchange.read(&mut buffer)? else {
            return Err(foreign(format!(
                "the server closed the connection after {} bytes, without a whole reply: does this port speak the \
                 protocol of {}?",
                exchange.received,
                plan.protocol.scheme()
            )));
        };
        let mut at = 0;
        while at < count {
            let is_opening = replies < opening;
            let target = if is_opening { 0 } else { target };
            let consumed =
                protocol.feed(&mut reply, target, &buffer[at..count]).map_err(|why| foreign(why.0.into()))?;
            at += consumed.used;
            if !consumed.is_complete {
                continue;
            }
            let status = reply.status();
            let error = (!(200..400).contains(&status)).then(|| PlainText::of_bytes(reply.error(), 200));
            match error {
                Some(error) if is_opening => {
                    return Err(foreign(format!(
                        "the server refused the opening of the connection: '{error}'; check the user, the password and \
                         the database in the URL"
                    )));
                }
                error if !is_opening => return Ok(Some(ProbeResponse { status, location: None, error })),
                _ => {}
            }
            replies += 1;
            if !asks && replies == opening {
                return Ok(None);
            }
            reply.reset();
        }
    }
}

fn http2(to: &To<'_>, mut exchange: ProbeConnection) -> Result<Option<ProbeResponse>, LoadError> {
    let To { plan, address, asks, .. } = *to;
    let foreign = |why: String| wrong(format!("{address}: {why}"));
    let requests = crate::request::http_2(plan, &plan.body[..]);
    let mut session = Http2Session::<()>::default();
    session.keep_location();
    session.count_parts(!plan.protocol.has_status_codes());
    session.open(&requests, 1);
    let mut is_open = false;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        exchange.sent = Ok(());
        while exchange.sent.is_ok() && !session.out().is_empty() {
            exchange.send(session.out());
            session.all_sent();
        }
        let Bytes::Some(count) = exchange.read(&mut buffer)? else {
            return Err(foreign(format!(
                "the server closed the connection after {} bytes, without a whole response: does this port speak \
                 HTTP/2?",
                exchange.received
            )));
        };
        let mut at = 0;
        while at < count || session.has_more() {
            let consumed = session.feed(&buffer[at..count]).map_err(|why| foreign(why.0.into()))?;
            at += consumed.used;
            match (session.current(), session.ended()) {
                (Some(place), Some(StreamEnd::Response)) => {
                    return Ok(Some(http2_response(plan, &session, place)));
                }
                (_, Some(StreamEnd::Malformed(rule))) => return Err(foreign(rule.0.into())),
                (_, Some(StreamEnd::Reset(code))) => {
                    return Err(foreign(format!("the server reset the request's stream ({})", error_name(code))));
                }
                (_, Some(StreamEnd::GoneAway(code))) => {
                    return Err(foreign(format!(
                        "the server ended the connection before it processed the request (GOAWAY, {})",
                        error_name(code)
                    )));
                }
                _ => {}
            }
            if !is_open && consumed.is_complete {
                is_open = true;
                if !asks {
                    return Ok(None);
                }
                session.put(&requests, 0, ());
            }
        }
    }
}

fn http2_response(plan: &LoadPlan, session: &Http2Session<()>, place: usize) -> ProbeResponse {
    let location = session.location().map(|text| PlainText::of_bytes(text, 200));
    let of_http = session.status(place);
    if plan.protocol.has_status_codes() {
        return ProbeResponse { status: of_http, location, error: None };
    }
    let status = grpc_status(session, place);
    let words = match session.grpc_status(place) {
        None => format!("HTTP status {of_http} without a gRPC status"),
        Some(_) => plan.protocol.status_words(status).into_owned(),
    };
    let message = PlainText::of_bytes(session.grpc_message().unwrap_or_default(), 200);
    let words = if message.is_empty() { words } else { format!("{words}: {message}") };
    let error = (!(200..400).contains(&status)).then(|| PlainText::of_bytes(words.as_bytes(), 250));
    ProbeResponse { status, location, error }
}

fn not_http(address: SocketAddr, malformed: Malformed, start: &[u8]) -> LoadError {
    // A TLS record begins with its type, alert (21) or handshake (22), and major version 3.
    if matches!(start, [21 | 22, 3, ..]) {
        return wrong(format!(
            "{address} speaks TLS, but the URL begins with http: write https, or give the server's plain HTTP port"
        ));
    }
    let why = malformed.0;
    if malformed == HTTP_2 {
        return wrong(format!("{address}: {why}"));
    }
    wrong(format!("{address} does not answer in HTTP/1.x: {why}; it began with {}", printable(start, 40)))
}

fn printable(bytes: &[u8], limit: usize) -> String {
    let short: String =
        bytes.iter().take(limit).flat_map(|byte| std::ascii::escape_default(*byte)).map(char::from).collect();
    let more = if bytes.len() > limit { "..." } else { "" };
    format!("\"{short}{more}\"")
}

fn response(framing: &Framing, start: &[u8], is_head: bool) -> ProbeResponse {
    let location = final_head(start, is_head).and_then(|head| field(head, "location"));
    ProbeResponse { status: framing.status(), location, error: None }
}

fn final_head(start: &[u8], is_head: bool) -> Option<&[u8]> {
    let mut rest = start;
    loop {
        let end = crate::framing::head_end(rest)?;
        if !parse_head(&rest[..end], is_head).ok()?.is_interim() {
            return Some(&rest[..end]);
        }
        rest = &rest[end..];
    }
}

fn field(head: &[u8], name: &str) -> Option<PlainText> {
    const LIMIT: usize = 200;
    head.split(|byte| *byte == b'\n').find_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        line[..colon].eq_ignore_ascii_case(name.as_bytes()).then(|| PlainText::of_bytes(&line[colon + 1..], LIMIT))
    })
}
