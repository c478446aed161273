//! `listen.https`: the address for TLS, and the certificates of the gateway.
//!
//! A certificate and its key are read with the config, so that `weir check` finds their faults. The
//! gateway reads them again when their files change (`gateway/server/tls.rs`).

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use crate::config::input::document::Secrets;
use crate::config::input::reader::{Entry, Reader};
use crate::config::input::regular_file;
use crate::config::printer::{Printer, inline, list, text};

/// Largest file accepted. A chain has some 5 KiB.
const BYTES_MAX: usize = 256 * 1024;

/// The TLS listener.
#[derive(Clone, Debug)]
pub struct Https {
    /// Its address.
    pub address: SocketAddr,
    /// Its certificates; never empty. The first is for clients whose name none has.
    pub certificates: Vec<CertificateFiles>,
}

/// The files of a certificate and its key.
#[derive(Clone)]
pub struct CertificateFiles {
    /// Certificate chain in PEM form, the gateway's own first.
    pub cert: PathBuf,
    /// Its private key in PEM form.
    pub key: PathBuf,
    /// Their content; `None` if the config was read without secrets.
    pub loaded: Option<Arc<CertifiedKey>>,
}

impl Https {
    pub(crate) fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.table(|reader| {
            let address = reader.required("address");
            let certificates = if reader.is_set("certificates") {
                for name in ["cert", "key"] {
                    let problem = "not beside certificates, which names the files of each";
                    if let Some(entry) = reader.entry(name) {
                        return entry.refuse(problem, "cert and key, or certificates");
                    }
                }
                reader.all_entries("certificates", CertificateFiles::read)
            } else {
                CertificateFiles::read(reader).map(|files| vec![files])
            };
            let (address, certificates) = (address?, certificates?);
            if certificates.is_empty() {
                return reader.refuse("certificates", "empty", "at least one certificate");
            }
            Some(Self { address, certificates })
        })
    }

    pub(crate) fn print(&self, printer: &mut Printer) {
        let files = |files: &CertificateFiles| {
            inline(&[("cert", text(files.cert.display())), ("key", text(files.key.display()))])
        };
        let certificates = list(self.certificates.iter().map(files));
        let https = [("address", text(self.address)), ("certificates", certificates)];
        printer.set("https", inline(&https));
    }
}

impl CertificateFiles {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let cert: Option<PathBuf> = reader.required("cert");
        let key: Option<PathBuf> = reader.required("key");
        let (cert, key) = (cert?, key?);
        if reader.secrets() == Secrets::Presumed {
            return Some(Self { cert, key, loaded: None });
        }
        match load(&cert, &key) {
            Ok(loaded) => Some(Self { cert, key, loaded: Some(Arc::new(loaded)) }),
            Err(CertificateFault::Chain(problem)) => reader.refuse("cert", problem, CHAIN),
            Err(CertificateFault::Key(problem)) => reader.refuse("key", problem, KEY),
        }
    }
}

impl fmt::Debug for CertificateFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateFiles")
            .field("cert", &self.cert)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// A pair of files that is of no use, with the problem of one of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateFault {
    /// The file of the certificate chain.
    #[error("{0}")]
    Chain(String),
    /// The file of the key.
    #[error("{0}")]
    Key(String),
}

const CHAIN: &str = "a file of certificates in PEM form: -----BEGIN CERTIFICATE-----";
const KEY: &str = "a file with the certificate's key in PEM form: -----BEGIN PRIVATE KEY-----";

/// Reads a certificate chain and its key.
pub fn load(cert: &Path, key: &Path) -> Result<CertifiedKey, CertificateFault> {
    let of = |path: &Path, problem: &str| format!("{}: {problem}", path.display());
    let unreadable = |path: &Path, problem: String| format!("{} {problem}", path.display());
    let pem = regular_file(cert, BYTES_MAX)
        .map_err(|problem| CertificateFault::Chain(unreadable(cert, problem)))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain
        .map_err(|_| CertificateFault::Chain(of(cert, "a certificate is damaged or cut off")))?;
    if chain.is_empty() {
        return Err(CertificateFault::Chain(of(cert, "it has no certificate")));
    }
    let pem = regular_file(key, BYTES_MAX)
        .map_err(|problem| CertificateFault::Key(unreadable(key, problem)))?;
    let private = PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
        CertificateFault::Key(of(key, "it has no private key that is not encrypted"))
    })?;
    CertifiedKey::from_der(chain, private, &default_provider()).map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => CertificateFault::Key(of(
            key,
            &format!("it does not belong to the certificate of {}", cert.display()),
        )),
        Error::InvalidCertificate(_) => {
            CertificateFault::Chain(of(cert, "its first certificate is damaged"))
        }
        _ => CertificateFault::Key(of(key, "a kind of key that is not supported")),
    })
}
