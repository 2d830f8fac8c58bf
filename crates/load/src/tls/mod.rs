//! TLS below HTTP, by rustls: the configuration of a plan, and the sessions of one engine thread. The engine's sockets stay
//! what they are; a session turns bytes into bytes.

mod verify;

use crate::LoadError;
use record::{ClientPlan, Latency, TlsPlan};
use rustls::client::Resumption;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use std::sync::Arc;

/// Sessions kept for resumption by each thread.
const SESSIONS_KEPT: usize = 256;
/// Bytes taken off a socket in one read.
pub(crate) const RAW_BYTES: usize = 64 * 1024;

/// What every connection of a plan shares.
#[derive(Debug, Clone)]
pub(crate) struct TlsSetting {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    has_resumption: bool,
}

impl TlsSetting {
    /// `None` for a plan without TLS.
    pub(crate) fn of(clients: &ClientPlan) -> Result<Option<Self>, LoadError> {
        clients.tls.as_ref().map(setting).transpose()
    }

    pub(crate) fn connection(&self) -> Result<ClientConnection, rustls::Error> {
        let mut connection = ClientConnection::new(self.config.clone(), self.name.clone())?;
        // Requests are as long as they are; what the socket does not take waits here.
        connection.set_buffer_limit(None);
        Ok(connection)
    }

    /// The same with a session store of its own, so that threads share no lock.
    fn for_thread(&self) -> Self {
        let mut config = (*self.config).clone();
        config.resumption = resumption(self.has_resumption);
        TlsSetting { config: Arc::new(config), ..self.clone() }
    }
}

fn resumption(has_resumption: bool) -> Resumption {
    if has_resumption { Resumption::in_memory_sessions(SESSIONS_KEPT) } else { Resumption::disabled() }
}

fn setting(plan: &TlsPlan) -> Result<TlsSetting, LoadError> {
    let wrong = |text: String| LoadError::Plan(text);
    let name = ServerName::try_from(plan.server_name.clone())
        .map_err(|_| wrong(format!("{:?} is not a name that a certificate can be for", plan.server_name)))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(format!("TLS cannot be set up: {error}")))?;
    let mut config = if plan.is_insecure {
        let unchecked = Arc::new(verify::Unchecked::new(provider));
        builder.dangerous().with_custom_certificate_verifier(unchecked).with_no_client_auth()
    } else {
        builder.with_root_certificates(roots(plan)?).with_no_client_auth()
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = resumption(plan.has_resumption);
    Ok(TlsSetting { config: Arc::new(config), name, has_resumption: plan.has_resumption })
}

fn roots(plan: &TlsPlan) -> Result<RootCertStore, LoadError> {
    let mut roots = RootCertStore::empty();
    match &plan.ca_file {
        Some(path) => {
            let unreadable = |why: String| {
                LoadError::Plan(format!("--tls-ca {}: {why}; give a PEM file with CERTIFICATE blocks", path.display()))
            };
            let found = CertificateDer::pem_file_iter(path).map_err(|error| unreadable(error.to_string()))?;
            for certificate in found {
                let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
                roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(unreadable("it holds no certificate".into()));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err(LoadError::Plan(
                    "this system has no list of certificate authorities: give one with --tls-ca FILE, or pass --tls-insecure"
                        .into(),
                ));
            }
        }
    }
    Ok(roots)
}

/// A TLS error as the middle of a sentence, with what to do about the common ones.
pub(crate) fn words(error: &rustls::Error) -> String {
    use rustls::{CertificateError as Bad, Error};
    match error {
        Error::InvalidCertificate(bad) => match bad {
            Bad::UnknownIssuer | Bad::BadSignature => {
                "its certificate is not signed by an authority known here: give the authority with --tls-ca FILE, or pass --tls-insecure".into()
            }
            Bad::NotValidForName | Bad::NotValidForNameContext { .. } => {
                "its certificate is for another name: use the name in the URL, or pass --tls-insecure".into()
            }
            Bad::Expired | Bad::ExpiredContext { .. } => {
                "its certificate has expired: renew it, or pass --tls-insecure".into()
            }
            Bad::NotValidYet | Bad::NotValidYetContext { .. } => {
                "its certificate is not valid yet: check both clocks, or pass --tls-insecure".into()
            }
            other => format!("its certificate is refused ({other}): replace it, or pass --tls-insecure"),
        },
        Error::InvalidMessage(_) => "what it sends is not TLS: does this port speak plain http?".into(),
        Error::NoApplicationProtocol | Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol) => {
            "it does not offer http/1.1 (ALPN)".into()
        }
        Error::AlertReceived(alert) => format!("it refused the handshake (alert {alert:?})"),
        other => format!("the handshake failed ({other})"),
    }
}

/// The sessions of one thread, and what they came to.
pub(crate) struct Sessions {
    pub(crate) setting: TlsSetting,
    /// One a slot; absent while the slot has no socket.
    pub(crate) of_slot: Vec<Option<Box<ClientConnection>>>,
    /// When the handshake under way began.
    pub(crate) began_ns: Vec<u64>,
    pub(crate) raw: Box<[u8]>,
    pub(crate) times: Latency,
    pub(crate) completed_in_window: u64,
    pub(crate) resumed: u64,
    pub(crate) failed: u64,
    pub(crate) example: Option<String>,
}

impl Sessions {
    pub(crate) fn new(setting: &TlsSetting, connections: usize) -> Box<Self> {
        Box::new(Sessions {
            setting: setting.for_thread(),
            of_slot: (0..connections).map(|_| None).collect(),
            began_ns: vec![0; connections],
            raw: vec![0; RAW_BYTES].into(),
            times: Latency::new(),
            completed_in_window: 0,
            resumed: 0,
            failed: 0,
            example: None,
        })
    }

    /// What the result keeps.
    pub(crate) fn tally(&self) -> TlsTally {
        TlsTally {
            times: self.times.clone(),
            completed_in_window: self.completed_in_window,
            resumed: self.resumed,
            failed: self.failed,
            example: self.example.clone(),
        }
    }
}

/// Handshakes of a run.
#[derive(Debug, Clone, Default)]
pub struct TlsTally {
    /// From the established TCP connection to the end of the handshake, of all connections of the run.
    pub times: Latency,
    /// Handshakes that ended inside the window.
    pub completed_in_window: u64,
    /// Handshakes that resumed an earlier session, of all of the run.
    pub resumed: u64,
    /// Handshakes that failed.
    pub failed: u64,
    /// Why one of them failed.
    pub example: Option<String>,
}

impl TlsTally {
    pub(crate) fn merge(&mut self, other: TlsTally) {
        self.times.merge(&other.times);
        self.completed_in_window += other.completed_in_window;
        self.resumed += other.resumed;
        self.failed += other.failed;
        self.example = self.example.take().or(other.example);
    }
}
