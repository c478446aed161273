//! A certificate of the gateway itself, with its key: read with the config, so that `weir check`
//! finds its faults. A gateway that runs reads it again when its files change: those of listeners
//! in `gateway/server/tls/mod.rs`, the one for the upstream with the secrets.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use x509_parser::certificate::X509Certificate;
use x509_parser::error::X509Error;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Version;

use crate::config::input::document::Secrets;
use crate::config::input::reader::{Entry, Reader};
use crate::config::input::regular_file;
use crate::config::input::secret_file::{self, Refused};
use crate::config::printer::{inline, text};

/// Largest file accepted. A chain has some 5 KiB.
const BYTES_MAX: usize = 256 * 1024;

const CHAIN: &str = "a file of certificates in PEM form: -----BEGIN CERTIFICATE-----";
const KEY: &str = "a file with the certificate's key in PEM form: -----BEGIN PRIVATE KEY-----";

/// The files of a certificate and its key.
#[derive(Clone, Debug)]
pub struct CertificateFiles {
    /// Certificate chain in PEM form, the gateway's own first.
    pub cert: PathBuf,
    /// Its private key in PEM form.
    pub key: PathBuf,
    /// Their content; `None` if the config was read without secrets.
    pub loaded: Option<Arc<Certificate>>,
}

/// A certificate chain, its key, and its validity.
pub struct Certificate {
    /// The chain and the key for handshakes.
    pub certified: Arc<CertifiedKey>,
    /// Seconds since the epoch at which all certificates of the chain are valid.
    pub valid_from: i64,
    /// Seconds since the epoch at which the first of them ends.
    pub valid_until: i64,
    /// The one that ends first is not the server's or client's own.
    pub is_issuer_first: bool,
    /// A fault of the chain that clients may stumble over.
    pub chain_problem: Option<String>,
    /// The reason why clients refuse it as that of a server.
    pub server_problem: Option<&'static str>,
    /// The reason why servers refuse it as that of a client.
    pub client_problem: Option<&'static str>,
}

impl fmt::Debug for Certificate {
    /// Leaves out the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate")
            .field("valid_from", &self.valid_from)
            .field("valid_until", &self.valid_until)
            .finish_non_exhaustive()
    }
}

impl PartialEq for Certificate {
    /// Compares the chains: a new key comes with a new certificate.
    fn eq(&self, other: &Self) -> bool {
        self.certified.cert == other.certified.cert
    }
}

impl CertificateFiles {
    /// Reads the keys `cert` and `key` of a table.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let files = Self::named(reader)?;
        if reader.secrets() != Secrets::Resolved {
            return Some(files);
        }
        let loaded =
            reader.load("cert", &files.cert, || load(&files.cert, &files.key).map(Arc::new));
        match loaded {
            Ok(loaded) => Some(Self { loaded: Some(loaded), ..files }),
            Err(CertificateFault::Chain(problem)) => reader.refuse("cert", problem, CHAIN),
            Err(CertificateFault::Key(problem)) => reader.refuse("key", problem, KEY),
        }
    }

    /// The same for a certificate that is read again with the secrets of the config, when one of
    /// its files changes.
    pub(crate) fn read_as_secret(reader: &mut Reader<'_>) -> Option<Self> {
        let files = Self::named(reader)?;
        if reader.secrets() == Secrets::Presumed {
            return Some(files);
        }
        let Self { cert, key, .. } = &files;
        let refused = |fault: CertificateFault| match fault {
            CertificateFault::Chain(problem) => (problem, CHAIN.to_owned()),
            CertificateFault::Key(problem) => (problem, KEY.to_owned()),
        };
        let chain = |text: &str| chain_of(cert, text.as_bytes()).map_err(refused);
        let chain = from_file(&reader.entry("cert")?, cert, CHAIN, chain)?;
        let pair =
            |text: &str| with_key(cert, chain.clone(), key, text.as_bytes()).map_err(refused);
        let loaded = from_file(&reader.entry("key")?, key, KEY, pair)?;
        Some(Self { loaded: Some(Arc::new(loaded)), ..files })
    }

    /// The files by their names. Without secrets nothing more is read.
    fn named(reader: &mut Reader<'_>) -> Option<Self> {
        let cert: Option<PathBuf> = reader.required("cert");
        let key: Option<PathBuf> = reader.required("key");
        let (cert, key) = (cert?, key?);
        if reader.secrets() == Secrets::Presumed {
            reader.leave_out("cert", format!("file {}", cert.display()));
            reader.leave_out("key", format!("file {}", key.display()));
        }
        Some(Self { cert, key, loaded: None })
    }

    pub(crate) fn printed(&self) -> String {
        inline(&[("cert", text(self.cert.display())), ("key", text(self.key.display()))])
    }
}

fn from_file<T>(
    entry: &Entry<'_>,
    path: &Path,
    accepted: &str,
    accept: impl Fn(&str) -> Result<T, Refused>,
) -> Option<T> {
    let read = secret_file::read(entry.document, &entry.path, path.to_owned(), accepted, accept);
    read.map_or_else(|(problem, accepted)| entry.refuse(problem, accepted), Some)
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

/// Reads a certificate chain and its key.
pub fn load(cert: &Path, key: &Path) -> Result<Certificate, CertificateFault> {
    let unreadable = |path: &Path, problem: String| format!("{} {problem}", path.display());
    let pem = regular_file(cert, BYTES_MAX)
        .map_err(|problem| CertificateFault::Chain(unreadable(cert, problem)))?;
    let chain = chain_of(cert, &pem)?;
    let pem = regular_file(key, BYTES_MAX)
        .map_err(|problem| CertificateFault::Key(unreadable(key, problem)))?;
    with_key(cert, chain, key, &pem)
}

fn of(path: &Path, problem: &str) -> String {
    format!("{}: {problem}", path.display())
}

/// The certificates in the content of this file.
fn chain_of(cert: &Path, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateFault> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain
        .map_err(|_| CertificateFault::Chain(of(cert, "a certificate is damaged or cut off")))?;
    if chain.is_empty() {
        return Err(CertificateFault::Chain(of(cert, "it has no certificate")));
    }
    Ok(chain)
}

/// The chain of a file with the key in the content of another.
fn with_key(
    cert: &Path,
    chain: Vec<CertificateDer<'static>>,
    key: &Path,
    pem: &[u8],
) -> Result<Certificate, CertificateFault> {
    let private = PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
        CertificateFault::Key(of(key, "it has no private key that is not encrypted"))
    })?;
    let damaged = |place: &str| CertificateFault::Chain(of(cert, &format!("its {place} damaged")));
    let facts = facts_of(&chain).ok_or_else(|| damaged("first or a later certificate is"))?;
    let certified = CertifiedKey::from_der(chain, private, &default_provider());
    let certified = certified.map_err(|error| match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => CertificateFault::Key(of(
            key,
            &format!("it does not belong to the certificate of {}", cert.display()),
        )),
        Error::InvalidCertificate(_) if facts.is_old => CertificateFault::Chain(of(
            cert,
            "its first certificate has another version of X.509 than 3, which TLS clients refuse",
        )),
        Error::InvalidCertificate(_) => damaged("first certificate is"),
        _ => CertificateFault::Key(of(key, "a kind of key that is not supported")),
    })?;
    Ok(Certificate {
        certified: Arc::new(certified),
        valid_from: facts.valid_from,
        valid_until: facts.valid_until,
        is_issuer_first: facts.is_issuer_first,
        chain_problem: facts.chain_problem,
        server_problem: facts.server_problem,
        client_problem: facts.client_problem,
    })
}

/// The facts of a chain, as in [`Certificate`].
struct Facts {
    valid_from: i64,
    valid_until: i64,
    is_issuer_first: bool,
    chain_problem: Option<String>,
    server_problem: Option<&'static str>,
    client_problem: Option<&'static str>,
    /// The first certificate has another version than 3.
    is_old: bool,
}

/// Returns the facts of a chain; `None` if a certificate cannot be read. The authority itself, in
/// some files, is of no use to clients and does not count.
fn facts_of(chain: &[CertificateDer<'_>]) -> Option<Facts> {
    let parsed: Option<Vec<_>> = chain
        .iter()
        .map(|der| X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate))
        .collect();
    let parsed = parsed?;
    let first = parsed.first()?;
    let (own, is_old) = (first.validity(), first.version() != X509Version::V3);
    let issuers = parsed.iter().skip(1);
    let issuers = issuers.filter(|certificate| certificate.issuer() != certificate.subject());
    let (mut valid_from, mut valid_until) = (own.not_before.timestamp(), own.not_after.timestamp());
    for issuer in issuers {
        valid_from = valid_from.max(issuer.validity().not_before.timestamp());
        valid_until = valid_until.min(issuer.validity().not_after.timestamp());
    }
    let broken = parsed.windows(2).position(|pair| !is_issued_by(&pair[0], &pair[1]));
    let chain_problem = broken.map(|index| {
        format!(
            "certificate {} of the file was not issued by the next one: clients may not find an authority",
            index + 1
        )
    });
    let is_issuer_first = valid_until < own.not_after.timestamp();
    let (server_problem, client_problem) = unfitness(first);
    Some(Facts {
        valid_from,
        valid_until,
        is_issuer_first,
        chain_problem,
        server_problem,
        client_problem,
        is_old,
    })
}

/// The reasons why a certificate is of no use to a server and to a client (RFC 5280 §4.2.1.12, RFC
/// 9525 §6.3).
fn unfitness(certificate: &X509Certificate<'_>) -> (Option<&'static str>, Option<&'static str>) {
    let usage = certificate.extended_key_usage().ok().flatten();
    let is_server = usage.as_ref().is_none_or(|usage| usage.value.server_auth || usage.value.any);
    let is_client = usage.as_ref().is_none_or(|usage| usage.value.client_auth || usage.value.any);
    let has_names = certificate
        .subject_alternative_name()
        .is_ok_and(|names| names.is_some_and(|names| !names.value.general_names.is_empty()));
    let server = if !is_server {
        Some("its extended key usage is not that of a server: clients refuse it")
    } else if !has_names {
        Some("it has no subject alternative name: most clients refuse it")
    } else {
        None
    };
    let client = "its extended key usage is not that of a client: servers refuse it";
    (server, (!is_client).then_some(client))
}

fn is_issued_by(certificate: &X509Certificate<'_>, issuer: &X509Certificate<'_>) -> bool {
    certificate.issuer() == issuer.subject()
        && match certificate.verify_signature(Some(issuer.public_key())) {
            // An algorithm that is unknown here says nothing.
            Ok(()) | Err(X509Error::SignatureUnsupportedAlgorithm) => true,
            Err(_) => false,
        }
}
