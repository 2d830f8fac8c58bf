//! Decides which certificates are accepted. `--tls ca=FILE`: the given certificates and those that they signed.
//! `--tls insecure`: all; handshake signatures are still checked, so that they cost as much.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use std::sync::Arc;

/// Verifies the server's certificate.
#[derive(Debug)]
pub struct Verifier {
    /// Algorithms of the client.
    pub provider: Arc<CryptoProvider>,
    /// The authorities, and the certificates that need none; `None` accepts every certificate.
    pub trusted: Option<(Arc<WebPkiServerVerifier>, Vec<CertificateDer<'static>>)>,
}

/// Whether the certificate's only fault is that it is an authority's (the default of self-signed ones), or that its
/// issuer is unknown. The library checks the dates first, so they are valid.
pub fn is_about_the_issuer(error: &Error) -> bool {
    match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer) => true,
        Error::InvalidCertificate(CertificateError::Other(other)) => {
            matches!(other.0.downcast_ref::<webpki::Error>(), Some(webpki::Error::CaUsedAsEndEntity))
        }
        _ => false,
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        server: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some((authorities, given)) = &self.trusted else { return Ok(ServerCertVerified::assertion()) };
        match authorities.verify_server_cert(server, intermediates, name, ocsp_response, now) {
            // The server presents a certificate that the user trusts, so it needs no issuer.
            Err(error) if is_about_the_issuer(&error) && given.iter().any(|one| one == server) => {
                verify_server_name(&ParsedCertificate::try_from(server)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
