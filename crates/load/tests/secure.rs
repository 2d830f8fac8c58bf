//! TLS with servers that end it before TCP, refuse clients, or read slowly.

use crate::servers::*;
use record::protocol::{Http2Plan, Protocol, RedisPlan};
use record::{Arrival, LoadPlan, TlsPlan};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::mem::ManuallyDrop;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{FromRawFd, RawFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PEM: &[u8] = include_bytes!("self_signed.pem");

type Secure = StreamOwned<ServerConnection, TcpStream>;

/// Serves each connection with `handle`, which reads and writes above TLS. `wants_certificate`: demands a client
/// certificate.
pub fn serve_secure(wants_certificate: bool, handle: impl Fn(Secure) + Send + Sync + 'static) -> Server {
    let provider = Arc::new(ring::default_provider());
    let certificate = CertificateDer::from_pem_slice(PEM).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("it can be trusted");
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let builder =
        ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().expect("ring has them");
    let builder = if wants_certificate {
        builder.with_client_cert_verifier(verifier.build().expect("there is a root"))
    } else {
        builder.with_no_client_auth()
    };
    let key = PrivateKeyDer::from_pem_slice(PEM).expect("a key");
    let config = Arc::new(builder.with_single_cert(vec![certificate], key).expect("they belong together"));
    serve(move |stream| {
        let _ = stream.set_nodelay(true);
        handle(StreamOwned::new(ServerConnection::new(config.clone()).expect("a session"), stream));
    })
}

pub fn secured(plan: LoadPlan) -> LoadPlan {
    let tls = TlsPlan {
        server_name: "localhost".into(),
        ca_file: None,
        ca_pem: Vec::new(),
        has_resumption: false,
        is_insecure: true,
    };
    LoadPlan { clients: record::ClientPlan { tls: Some(tls), ..plan.clients.clone() }, ..plan }
}

/// Answers one request and ends TLS after this time. TCP stays open until the client has ended TLS, too, as in
/// asyncio.
fn ending_tls(answer: &'static [u8], after: Duration) -> Server {
    serve_secure(false, move |mut stream| {
        if read_request(&mut stream).is_none() {
            return;
        }
        let _ = stream.conn.writer().write_all(answer);
        if !after.is_zero() {
            let _ = stream.flush();
            std::thread::sleep(after);
        }
        stream.conn.send_close_notify();
        let _ = stream.flush();
        while let Ok(1..) = stream.read(&mut [0; 64]) {}
    })
}

/// Whether the socket of this process that is connected to this address sends small segments at once.
fn sends_at_once(address: SocketAddr) -> Option<bool> {
    let open = std::fs::read_dir("/proc/self/fd").expect("our own descriptors").flatten();
    let mut descriptors = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    descriptors.find_map(|fd: RawFd| {
        // SAFETY: the stream is never dropped, so its owner keeps the descriptor; calls on a closed one are errors.
        let stream = ManuallyDrop::new(unsafe { TcpStream::from_raw_fd(fd) });
        stream.peer_addr().ok().filter(|peer| *peer == address)?;
        stream.nodelay().ok()
    })
}

#[test]
fn a_request_does_not_wait_until_the_end_of_the_handshake_is_acknowledged() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    // It sends nothing between the handshake and the answer.
    let server = serve_secure(false, move |mut stream| {
        while read_request(&mut stream).is_some() {
            notes.lock().unwrap().push(sends_at_once(stream.sock.local_addr().unwrap()));
            if stream.write_all(SMALL).and_then(|()| stream.flush()).is_err() {
                return;
            }
        }
    });
    run(&secured(LoadPlan { connections: 1, ..plan(server.address) }));
    let seen = seen.lock().unwrap();
    assert!(!seen.is_empty() && seen.iter().all(|at_once| *at_once == Some(true)), "{seen:?}");
}

#[test]
fn a_connection_that_the_server_closed_over_tls_is_not_reused() {
    for after in [Duration::ZERO, Duration::from_millis(20)] {
        let server = ending_tls(SMALL, after);
        let mut plan = secured(open(server.address, 10.0, Arrival::Constant));
        (plan.connections, plan.duration_ns) = (2, 500 * MS);
        let outcomes = run(&plan).counts.outcomes;
        assert_eq!((outcomes.ok, outcomes.sent), (5, 5), "{after:?}: {outcomes:?}");
        assert!(outcomes.connects > 2, "{after:?}: {outcomes:?}");
    }
    // The response and the end of TLS come in one read: the closed loop sends no further request.
    let server = ending_tls(SMALL, Duration::ZERO);
    let outcomes = run(&secured(plan(server.address))).counts.outcomes;
    assert!(outcomes.ok > 2 && outcomes.ok == outcomes.sent, "{outcomes:?}");
}

#[test]
fn the_end_of_tls_ends_a_body_without_length_and_an_announced_close() {
    for answer in [&b"HTTP/1.0 200 OK\r\n\r\nhello"[..], SMALL_CLOSE] {
        let server = ending_tls(answer, Duration::from_millis(1));
        let result = run(&LoadPlan { duration_ns: 800 * MS, ..secured(plan(server.address)) });
        let outcomes = result.counts.outcomes;
        assert!(outcomes.ok > 8 && outcomes.ok == outcomes.sent, "{outcomes:?}");
        assert_eq!((result.counts.body_bytes, result.counts.closes_awaited), (5 * outcomes.ok, 0), "{outcomes:?}");
    }
}

#[test]
fn a_connection_closed_or_reset_during_the_handshake_is_a_tls_failure() {
    for is_reset in [false, true] {
        let server = serve(move |mut stream| {
            let _ = stream.read(&mut [0; 4096]);
            if is_reset {
                reset(stream);
            }
        });
        let result = run(&secured(plan(server.address)));
        let (outcomes, tls) = (result.counts.outcomes, result.tls.expect("it is over TLS"));
        assert!(outcomes.sent > 0 && outcomes.tls_failed == outcomes.sent, "{outcomes:?}");
        let why = "it closed the connection during the handshake: does it limit connections?";
        assert_eq!(tls.example.as_deref(), Some(why), "reset: {is_reset}");
    }
}

#[test]
fn a_required_client_certificate_is_reported_before_any_load() {
    let server = serve_secure(true, |mut stream| while read_request(&mut stream).is_some() {});
    let patience = Duration::from_secs(5);
    for protocol in [
        Protocol::Http,
        Protocol::Http2(Http2Plan::default()),
        Protocol::Redis(RedisPlan::default()),
        Protocol::Connect,
    ] {
        let mut plan = secured(LoadPlan { protocol, ..plan(server.address) });
        if !plan.protocol.is_http() {
            plan.targets.clear();
        }
        if plan.protocol == Protocol::Connect {
            plan.requests_per_connection = 1;
        }
        for found in [load::probe(&plan, patience).map(drop), load::connect_once(&plan, patience)] {
            let why = found.expect_err("it is refused").to_string();
            assert!(why.contains("it requires a client certificate"), "{:?}: {why}", plan.protocol);
        }
    }
}

#[test]
fn the_check_does_not_wait_if_no_client_certificate_is_required() {
    let server = serve_secure(false, |mut stream| while read_request(&mut stream).is_some() {});
    load::connect_once(&secured(plan(server.address)), Duration::from_secs(5)).expect("it takes the client");
}

#[test]
fn a_request_body_is_sent_over_tls_as_fast_as_the_server_reads() {
    const BODY: usize = 64 << 20;
    let server = serve_secure(false, |mut stream| {
        let _ = stream.read(&mut [0; 64]);
        std::thread::sleep(Duration::from_secs(3));
    });
    let mut plan = secured(plan(server.address));
    (plan.connections, plan.duration_ns, plan.timeout_ns) = (1, 100 * MS, 200 * MS);
    (plan.method, plan.body) = ("POST".into(), vec![b'b'; BODY]);
    let counts = run(&plan).counts;
    // The socket buffers hold these bytes.
    assert!(counts.sent_bytes > 0 && counts.sent_bytes < BODY as u64 / 2, "{}", counts.sent_bytes);
}

#[test]
fn a_large_request_body_arrives_completely_over_tls() {
    let requests = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = requests.clone();
    let server = serve_secure(false, move |mut stream| {
        while let Some(request) = read_request(&mut stream) {
            assert!(request.ends_with(&[b'b'; 3 << 20]), "{}", request.len());
            counted.fetch_add(1, Ordering::SeqCst);
            let _ = stream.write_all(SMALL);
        }
    });
    let mut plan = secured(plan(server.address));
    (plan.method, plan.body, plan.timeout_ns) = ("POST".into(), vec![b'b'; 3 << 20], 60_000 * MS);
    let result = run(&plan);
    let outcomes = result.counts.outcomes;
    assert!(outcomes.ok > 0 && outcomes.ok + outcomes.unfinished == outcomes.sent, "{outcomes:?}");
    assert_eq!(requests.load(Ordering::SeqCst), outcomes.ok);
    if outcomes.unfinished == 0 {
        assert!(result.counts.sent_bytes > outcomes.ok * (3 << 20));
    }
}

#[test]
fn interim_responses_do_not_stop_a_body_that_is_still_being_sent() {
    const BODY: usize = 12 << 20;
    let server = serve_secure(false, |mut stream| {
        let mut buffer = vec![0; 64 << 10];
        let (mut left, mut said) = (usize::MAX, 0);
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            if left == usize::MAX {
                let head = buffer.windows(4).position(|end| end == b"\r\n\r\n").expect("the head in the first read");
                left = head + 4 + BODY;
            }
            left -= count;
            if left == 0 {
                let _ = stream.write_all(SMALL_CLOSE);
                return;
            }
            if said < (BODY - left.min(BODY)) >> 18 {
                said += 1;
                let _ = stream.write_all(b"HTTP/1.1 102 Processing\r\n\r\n");
            }
        }
    });
    let mut plan = secured(plan(server.address));
    (plan.method, plan.body, plan.connections) = ("POST".into(), vec![b'b'; BODY], 1);
    (plan.duration_ns, plan.timeout_ns) = (1_000 * MS, 60_000 * MS);
    let outcomes = run(&plan).counts.outcomes;
    assert_eq!(outcomes.ok + outcomes.unfinished, outcomes.sent, "{outcomes:?}");
    assert!(outcomes.ok > 0, "{outcomes:?}");
}

#[test]
fn closing_before_the_body_is_read_ends_the_request() {
    let server = serve_secure(false, |mut stream| {
        let _ = stream.read(&mut [0; 64]);
        let _ = stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        std::thread::sleep(Duration::from_millis(1));
    });
    let mut plan = secured(plan(server.address));
    (plan.method, plan.body) = ("POST".into(), vec![b'b'; 16 << 20]);
    let outcomes = run(&plan).counts.outcomes;
    // The server's reset may lose the response.
    assert!(outcomes.sent > 1 && outcomes.timed_out == 0, "{outcomes:?}");
    assert_eq!(outcomes.non_2xx + outcomes.reset + outcomes.unfinished, outcomes.sent, "{outcomes:?}");
}
