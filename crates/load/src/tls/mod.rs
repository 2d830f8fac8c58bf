//! TLS of the client: settings, sessions, and words for its errors.

mod verify;

use crate::error::{LoadError, refuse_if, wrong};
use record::protocol::Protocol;
use record::{Latency, LoadPlan, TlsPlan};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
pub use verify::{Verifier, is_about_the_issuer};

const SESSIONS_KEPT: usize = 256;
pub(crate) const RAW_BYTES: usize = 64 * 1024;

/// Bytes of a request that are encrypted before the socket takes them.
const BUFFERED_BYTES: usize = 256 * 1024;

#[derive(Debug, Clone)]
pub(crate) struct TlsSetting {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    has_resumption: bool,
}

impl TlsSetting {
    pub(crate) fn from_plan(plan: &LoadPlan) -> Result<Option<Self>, LoadError> {
        let of_protocol: &[&[u8]] = match plan.protocol {
            Protocol::Http => &[b"http/1.1"],
            Protocol::Http2(_) | Protocol::Grpc(_) => &[b"h2"],
            _ => &[],
        };
        plan.clients.tls.as_ref().map(|tls| setting(tls, of_protocol)).transpose()
    }

    pub(crate) fn connection(&self) -> Result<ClientConnection, rustls::Error> {
        let mut connection = ClientConnection::new(self.config.clone(), self.name.clone())?;
        // Limits the bytes that the session holds for the socket; the caller keeps the rest of a request.
        connection.set_buffer_limit(Some(BUFFERED_BYTES));
        Ok(connection)
    }

    /// A setting with its own session store, so that threads share no lock.
    fn for_thread(&self) -> Self {
        let mut config = (*self.config).clone();
        config.resumption = resumption(self.has_resumption);
        TlsSetting { config: Arc::new(config), ..self.clone() }
    }
}

fn resumption(has_resumption: bool) -> Resumption {
    if has_resumption { Resumption::in_memory_sessions(SESSIONS_KEPT) } else { Resumption::disabled() }
}

fn setting(plan: &TlsPlan, protocols: &[&[u8]]) -> Result<TlsSetting, LoadError> {
    let name = ServerName::try_from(plan.server_name.clone())
        .map_err(|_| wrong(format!("{:?} cannot be the name in a certificate", plan.server_name)))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(format!("TLS cannot be set up: {error}")))?;
    let trusted = if plan.is_insecure {
        None
    } else {
        let (roots, given) = roots(plan)?;
        let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .map_err(|error| wrong(format!("the authorities cannot be used: {error}")))?;
        Some((authorities, given))
    };
    let verifier = Arc::new(Verifier { provider, trusted });
    let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    config.resumption = resumption(plan.has_resumption);
    Ok(TlsSetting { config: Arc::new(config), name, has_resumption: plan.has_resumption })
}

fn roots(plan: &TlsPlan) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), LoadError> {
    let mut roots = RootCertStore::empty();
    let mut given = Vec::new();
    match &plan.ca_file {
        Some(path) => {
            let unreadable =
                |why: String| wrong(format!("--tls ca={path}: {why}; give a PEM file with CERTIFICATE blocks"));
            for certificate in CertificateDer::pem_slice_iter(&plan.ca_pem) {
                let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
                given.push(certificate.clone());
                roots.add(certificate).map_err(|_| unreadable("a certificate in it cannot be read".into()))?;
            }
            if roots.is_empty() {
                return Err(unreadable("it holds no certificate".into()));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            refuse_if(
                roots.is_empty(),
                "this system has no list of certificate authorities: name a file with --tls ca=FILE, or pass --tls \
                 insecure",
            )?;
        }
    }
    Ok((roots, given))
}

/// Describes a TLS error for the middle of a sentence, with the remedy and without the library's names.
pub fn error_text(error: &rustls::Error) -> String {
    use rustls::Error;
    match error {
        Error::InvalidCertificate(bad) => {
            let readable = !matches!(bad, rustls::CertificateError::BadEncoding) && !is_of_old_version(bad);
            let unchecked = if readable { ", or pass --tls insecure" } else { "" };
            format!("its certificate {}{unchecked}", certificate_words(bad))
        }
        Error::NoCertificatesPresented => "it presents no certificate: give it one".into(),
        Error::InvalidMessage(_) => "its data is not TLS: does this port speak plain http?".into(),
        Error::NoApplicationProtocol => OTHER_VERSION.into(),
        Error::AlertReceived(alert) => alert_words(*alert),
        Error::PeerIncompatible(_) => NOTHING_IN_COMMON.into(),
        Error::PeerMisbehaved(_) | Error::InappropriateMessage { .. } | Error::InappropriateHandshakeMessage { .. } => {
            "it breaks the rules of TLS: is this a TLS server?".into()
        }
        Error::DecryptError => "its data cannot be decrypted: does a device on the path change it?".into(),
        Error::PeerSentOversizedRecord => "it sends a longer record than TLS allows: is this a TLS server?".into(),
        // All other errors are the client's: its configuration, clock or randomness.
        _ => "the TLS handshake could not be made on this side".into(),
    }
}

const OTHER_VERSION: &str =
    "it offers only another HTTP version (ALPN): --http2 asks for HTTP/2, without it HTTP/1.1 is used";

const NOTHING_IN_COMMON: &str = "it has no TLS version, cipher or kind of key in common with straingauge, which \
                                 supports TLS 1.2 and 1.3 with RSA, ECDSA on P-256 and P-384 (not P-521), and Ed25519";

fn is_of_old_version(bad: &rustls::CertificateError) -> bool {
    matches!(bad, rustls::CertificateError::Other(other)
        if matches!(other.0.downcast_ref(), Some(webpki::Error::UnsupportedCertVersion)))
}

fn certificate_words(bad: &rustls::CertificateError) -> &'static str {
    use rustls::CertificateError as Bad;
    match bad {
        Bad::UnknownIssuer => {
            "is not signed by a known authority: pass the authority's certificate, or this one, with --tls ca=FILE"
        }
        Bad::BadSignature => {
            "is not signed by the known authority of that name: pass the one that signed it with --tls ca=FILE"
        }
        Bad::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            "has no subjectAltName, and the common name is ignored (RFC 9525): issue it with one"
        }
        Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
            "is for another name: use one of its names in \
        the URL"
        }
        Bad::Expired | Bad::ExpiredContext { .. } => "has expired: renew it",
        Bad::NotValidYet | Bad::NotValidYetContext { .. } => "is not valid yet: check both clocks",
        Bad::Revoked => "is revoked: replace it",
        Bad::InvalidPurpose | Bad::InvalidPurposeContext { .. } => "is not for servers: replace it",
        Bad::BadEncoding | Bad::UnhandledCriticalExtension => "cannot be read: replace it",
        Bad::UnsupportedSignatureAlgorithmContext { .. }
        | Bad::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => {
            "is signed by an unsupported kind of key (supported: RSA, ECDSA on P-256 and P-384, Ed25519): replace it"
        }
        Bad::Other(other) => match other.0.downcast_ref::<webpki::Error>() {
            Some(webpki::Error::CaUsedAsEndEntity) => {
                "is self-signed or an authority's, and not trusted: trust it with --tls ca=FILE"
            }
            Some(webpki::Error::UnsupportedCertVersion) => {
                "is not an X.509 version 3 certificate, often because it has no subjectAltName: issue it with one"
            }
            _ => "cannot be checked: replace it",
        },
        _ => "is refused: replace it",
    }
}

fn alert_words(alert: rustls::AlertDescription) -> String {
    use rustls::AlertDescription as Alert;
    match alert {
        Alert::NoApplicationProtocol => OTHER_VERSION.into(),
        Alert::CertificateRequired | Alert::BadCertificate | Alert::UnknownCA | Alert::AccessDenied => {
            "it requires a client certificate, which straingauge does not support: let it accept clients without one"
                .into()
        }
        Alert::ProtocolVersion | Alert::HandshakeFailure | Alert::InsufficientSecurity => NOTHING_IN_COMMON.into(),
        Alert::UnrecognisedName => "it has no certificate for this name: use another name of the server in the \
        URL"
        .into(),
        Alert::InternalError => "it had an internal error in the handshake: see its error log".into(),
        other => format!("it refused the handshake (TLS alert {}): see its error log", u8::from(other)),
    }
}

pub(crate) struct Sessions {
    pub(crate) setting: TlsSetting,
    pub(crate) of_slot: Vec<Option<Box<ClientConnection>>>,
    pub(crate) began_ns: Vec<u64>,
    pub(crate) raw: Box<[u8]>,
    pub(crate) tally: TlsTally,
}

impl Sessions {
    pub(crate) fn new(setting: &TlsSetting, connections: usize) -> Box<Self> {
        Box::new(Sessions {
            setting: setting.for_thread(),
            of_slot: (0..connections).map(|_| None).collect(),
            began_ns: vec![0; connections],
            raw: vec![0; RAW_BYTES].into(),
            tally: TlsTally::default(),
        })
    }
}

/// Counts and times of the handshakes of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TlsTally {
    /// Times from the established TCP connection to the end of the handshake, of all connections of the run.
    pub times: Latency,
    /// Handshakes that ended inside the window.
    pub completed_in_window: u64,
    /// Handshakes of the run that resumed an earlier session.
    pub resumed: u64,
    /// The error of one failed handshake.
    pub example: Option<String>,
}

pub(crate) fn add_handshakes(mine: &mut Option<TlsTally>, other: Option<TlsTally>) {
    match (mine, other) {
        (_, None) => {}
        (Some(mine), Some(other)) => {
            let TlsTally { times, completed_in_window, resumed, example } = other;
            mine.times.merge(&times);
            mine.completed_in_window = mine.completed_in_window.saturating_add(completed_in_window);
            mine.resumed = mine.resumed.saturating_add(resumed);
            mine.example = mine.example.take().or(example);
        }
        (mine, other) => *mine = other,
    }
}
