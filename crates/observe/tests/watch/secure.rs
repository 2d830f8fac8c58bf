//! TLS: bytes on the wire are exact. The flights of the handshake count as requests, because only changes of
//! direction are visible.

use crate::client::Count;
use crate::rig::{Server, check_states, counted, counting, settle, watch};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;

/// Accepts the testbed's own certificate.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A connection that counts the bytes on the wire.
struct Wire {
    stream: TcpStream,
    count: Count,
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        self.count.bytes_received += read as u64;
        Ok(read)
    }
}

impl Write for Wire {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.stream.write(buffer)?;
        self.count.bytes_sent += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

type Secure = StreamOwned<ClientConnection, Wire>;

fn connect(port: u16, config: &Arc<ClientConfig>) -> Secure {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the server accepts");
    stream.set_nodelay(true).expect("TCP_NODELAY");
    stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).expect("a timeout");
    let name = ServerName::try_from("localhost").expect("a name");
    let session = ClientConnection::new(config.clone(), name).expect("a session");
    StreamOwned::new(session, Wire { stream, count: Count::default() })
}

fn get(connection: &mut Secure, path: &str, body: usize) {
    connection.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).expect("it leaves");
    let (mut text, mut chunk) = (Vec::new(), [0; 16384]);
    loop {
        if text.windows(4).position(|window| window == b"\r\n\r\n").is_some_and(|head| text.len() == head + 4 + body) {
            break;
        }
        let read = connection.read(&mut chunk).expect("a response");
        assert!(read > 0, "the server closed in the middle of a response");
        text.extend_from_slice(&chunk[..read]);
    }
    connection.sock.count.requests += 1;
}

#[test]
fn over_tls_wire_bytes_are_exact_and_handshakes_count_as_requests() {
    let test = "over_tls_wire_bytes_are_exact_and_handshakes_count_as_requests";
    const CONNECTIONS: u64 = 8;
    let Some(server) = Server::start(test, "nginx-tls") else { return };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = |version: &'static rustls::SupportedProtocolVersion| {
        Arc::new(
            ClientConfig::builder_with_provider(provider.clone())
                .with_protocol_versions(&[version])
                .expect("a version that the provider has")
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Unchecked(provider.clone())))
                .with_no_client_auth(),
        )
    };
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let Some(mut watcher) = watch(test, counting(server.port)) else { return };
        let config = config(version);
        let mut open: Vec<Secure> = (0..CONNECTIONS).map(|_| connect(server.port, &config)).collect();
        for connection in &mut open {
            for _ in 0..20 {
                get(connection, "/1k.bin", 1024);
                get(connection, "/100k.bin", 102_400);
            }
        }
        settle(&mut watcher);
        let mut count = Count::default();
        open.iter().for_each(|connection| count.add(connection.sock.count));
        let reading = watcher.read();
        let traffic = reading.traffic.expect("reads are examined");
        assert_eq!(traffic.tls, traffic.looked_into, "{traffic:?}");
        assert!(watcher.doubts().iter().any(|doubt| doubt.what.contains("TLS")), "{:?}", watcher.doubts());
        let seen = counted(&reading);
        let flights = seen.requests - count.requests;
        println!("{test}: {version:?}: {seen:?} against {count:?}: {flights} flights");
        assert_eq!((seen.bytes_sent, seen.bytes_received), (count.bytes_sent, count.bytes_received));
        // The client's last flight and its first request may come in one read.
        assert!((CONNECTIONS..=2 * CONNECTIONS).contains(&flights), "{flights} flights of {CONNECTIONS} connections");
        check_states(&mut watcher);
    }
}
