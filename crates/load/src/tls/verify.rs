//! Decides which certificates are accepted. `--tls ca=FILE`: the given certificates and those that they signed.
//! `--tls insecure`: all; handshake signatures are still checked, so that they cost as much.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct Verifier {
    pub(super) provider: Arc<CryptoProvider>,
    /// The authorities, and the certificates that need none; `None` accepts every certificate.
    pub(super) trusted: Option<(Arc<WebPkiServerVerifier>, Vec<CertificateDer<'static>>)>,
}

/// Whether the certificate's only fault is that it is an authority's (the default of self-signed ones), or that its
/// issuer is unknown. The library checks the dates first, so they are valid.
fn is_about_the_issuer(error: &Error) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::RootCertStore;
    use rustls::pki_types::pem::PemObject;
    use std::time::Duration;

    /// Made by `openssl req -x509 -addext subjectAltName=DNS:localhost -days 36500`, valid from November 2026 on. The
    /// key belongs to test servers.
    const SELF_SIGNED: &[u8] = include_bytes!("self_signed.pem");

    fn judged(is_given: bool, name: &'static str, years: u64) -> Result<ServerCertVerified, Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let certificate = CertificateDer::from_pem_slice(SELF_SIGNED).expect("it is a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).expect("it can be trusted");
        let authorities = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let given = if is_given { vec![certificate.clone()] } else { Vec::new() };
        let trusted = Some((authorities.build().expect("there is a root"), given));
        let verifier = Verifier { provider, trusted };
        let now = UnixTime::since_unix_epoch(Duration::from_secs(years * 31_557_600));
        verifier.verify_server_cert(&certificate, &[], &ServerName::try_from(name).expect("a name"), &[], now)
    }

    #[test]
    fn a_trusted_self_signed_certificate_is_accepted_for_its_name_and_time() {
        assert!(judged(true, "localhost", 80).is_ok());
        let refused = |is_given, name, years| judged(is_given, name, years).expect_err("it is refused");
        assert!(is_about_the_issuer(&refused(false, "localhost", 80)), "not given: an authority is no server");
        let words = |error: &Error| crate::tls::error_text(error);
        assert!(words(&refused(true, "example.test", 80)).contains("another name"));
        assert!(words(&refused(true, "localhost", 200)).contains("expired"));
        assert!(words(&refused(true, "localhost", 20)).contains("not valid yet"));
    }
}
