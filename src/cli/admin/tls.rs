//! TLS of the commands to an admin listener: the certificates that they trust, and their own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme, version};
use tokio_rustls::TlsConnector;

use crate::config::{CaFile, CaRoots, ServerTls};
use crate::gateway::upstream::trust::Trust;

/// Files about TLS that a command names.
#[derive(Args, Clone, Debug, Default)]
pub struct AdminTlsArguments {
    /// Certificate authorities in PEM form that the admin listener's certificate comes from
    /// [default: the system's, and the certificates that the config's `admin_tls` names]
    #[arg(long = "admin-ca", value_name = "FILE")]
    authorities: Option<PathBuf>,
    /// The operator's own certificate in PEM form, for an admin listener that asks for one
    #[arg(long = "admin-cert", value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,
    /// The key of that certificate in PEM form
    #[arg(long = "admin-key", value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
}

impl AdminTlsArguments {
    /// True if a file is named.
    pub fn are_given(&self) -> bool {
        self.authorities.is_some() || self.cert.is_some()
    }

    /// True if the operator has a certificate.
    pub fn has_certificate(&self) -> bool {
        self.cert.is_some()
    }

    /// Returns the connector for an admin listener with these settings in the config.
    pub fn connector(&self, settings: Option<&ServerTls>) -> Result<TlsConnector, String> {
        let authorities = self.authorities.as_deref().map(CaFile::load).transpose()?;
        let served = settings.into_iter().flat_map(|settings| &settings.certificates);
        // One that cannot be read is not the one that is served.
        let served = served
            .filter_map(|files| CertificateDer::pem_file_iter(&files.cert).ok()?.next()?.ok());
        let served = served.collect();
        let verifier = Verifier { trust: Trust::of(authorities.as_ref(), CaRoots::File), served };
        let failed = |error: Error| error.to_string();
        let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map_err(failed)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let (chain, key) = own_certificate(cert, key)?;
                builder.with_client_auth_cert(chain, key).map_err(failed)?
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(TlsConnector::from(Arc::new(config)))
    }
}

fn own_certificate(
    cert: &Path,
    key: &Path,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect);
    let chain = chain.map_err(|error| format!("{}: {error}", cert.display()))?;
    let key_der = PrivateKeyDer::from_pem_file(key);
    Ok((chain, key_der.map_err(|error| format!("{}: {error}", key.display()))?))
}

/// Trusts the very certificate that the config names, under any name, and what authorities vouch
/// for.
#[derive(Debug)]
struct Verifier {
    trust: Trust,
    served: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // The operator's config and the listener have the same file. The address may be loopback,
        // which no certificate names.
        if self.served.iter().any(|served| served == certificate) {
            return Ok(ServerCertVerified::assertion());
        }
        self.trust.verify_server_cert(certificate, intermediates, name, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trust.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.trust.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trust.supported_verify_schemes()
    }
}
