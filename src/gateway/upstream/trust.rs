//! The certificates that an upstream may present: those of authorities, of the system or of
//! `upstream.ca_file`, and any certificate that the file itself contains.

use std::sync::Arc;

use pingora::tls::load_native_certs;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::SingleCertAndKey;
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    crypto::ring::default_provider,
};

use crate::config::{CaFile, CaRoots, CertificateFiles, Upstream};

/// Verifies the certificate of an upstream.
#[derive(Debug)]
pub struct Trust {
    /// `None` without any authority: then nothing is trusted.
    authorities: Option<Arc<WebPkiServerVerifier>>,
    listed: Vec<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl Trust {
    /// Trusts the certificates of the file, and the authorities of the system without a file or
    /// beside it.
    pub fn new(config: &Upstream) -> Self {
        Self::of(config.ca_file.as_ref(), config.ca_roots)
    }

    /// Trusts by a file and the need of the system's authorities beside it.
    pub fn of(file: Option<&CaFile>, roots: CaRoots) -> Self {
        let provider = Arc::new(default_provider());
        let listed = file.map_or_else(Vec::new, |file| file.certificates().to_vec());
        let has_system = file.is_none() || roots == CaRoots::FileAndSystem;
        let mut roots = if has_system { system_authorities() } else { RootCertStore::empty() };
        roots.add_parsable_certificates(listed.clone());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        // Fails only without any authority.
        Self { authorities: verifier.build().ok(), listed, provider }
    }
}

/// Returns the settings of TLS to a service beside the upstream, such as a collector: it is trusted
/// by the file, or by the authorities of the system without one.
pub fn client_tls(
    ca_file: Option<&CaFile>,
    certificate: Option<&CertificateFiles>,
) -> ClientConfig {
    pingora::tls::install_default_crypto_provider();
    let trusting = ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trust::of(ca_file, CaRoots::File)));
    match certificate.and_then(|files| files.loaded.as_ref()) {
        Some(loaded) => {
            let single = SingleCertAndKey::from(Arc::clone(&loaded.certified));
            trusting.with_client_cert_resolver(Arc::new(single))
        }
        None => trusting.with_no_client_auth(),
    }
}

/// Certificates that nothing can be verified with are left out: one of them in the system's bundle
/// must not make the others unusable.
fn system_authorities() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(load_native_certs().unwrap_or_default());
    roots
}

/// The problem of an upstream by TLS on a system without certificate authorities, if it is one:
/// every connection would fail.
pub fn missing_authorities(config: &Upstream) -> Option<&'static str> {
    let by_tls = [&config.url, &config.graphql_url, &config.uploads_url];
    let needs_system = config.ca_file.is_none() && by_tls.iter().any(|url| url.is_tls());
    (needs_system && system_authorities().is_empty()).then_some(
        "this system has no certificate authorities, so no certificate of the upstream is trusted: install its bundle (ca-certificates), or set upstream.ca_file",
    )
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authorities) = &self.authorities else {
            return Err(CertificateError::UnknownIssuer.into());
        };
        match authorities.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            // A self-signed certificate of `openssl req -x509` is one of an authority, which may
            // not stand for a server, and another one's issuer may not be listed. A certificate
            // that the operator lists may stand for itself; its dates were checked before that, and
            // its name is checked here.
            Err(Error::InvalidCertificate(
                CertificateError::Other(_) | CertificateError::UnknownIssuer,
            )) if self.listed.iter().any(|listed| listed == certificate) => {
                verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
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
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
