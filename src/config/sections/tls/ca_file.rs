//! `upstream.ca_file`: certificates in PEM form, read with the config, so that `weir check` finds
//! their faults and nothing is left to fail at a start.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;
use x509_parser::x509::X509Version;

use crate::config::input::document::Secrets;
use crate::config::input::loaded_file;
use crate::config::input::reader::{Choice, Entry, Read};
use crate::config::input::regular_file;

/// Largest file accepted. The bundles of public authorities have some 250 KiB.
const BYTES_MAX: usize = 2 * 1024 * 1024;

/// The certificates to trust instead of the system's, or besides them ([`CaRoots`]).
#[derive(Clone, PartialEq, Eq)]
pub struct CaFile {
    path: PathBuf,
    certificates: Arc<[CertificateDer<'static>]>,
}

impl CaFile {
    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file again.
    pub fn read_again(&self) -> Result<Self, String> {
        Self::load(&self.path)
    }

    /// Reads a file of certificates.
    pub fn load(path: &Path) -> Result<Self, String> {
        let pem = regular_file(path, BYTES_MAX)
            .map_err(|problem| format!("{} {problem}", path.display()))?;
        let certificates =
            certificates(&pem).map_err(|problem| format!("{}: {problem}", path.display()))?;
        Ok(Self { path: path.to_owned(), certificates: certificates.into() })
    }

    /// The numbers of the certificates that belong to no authority, from 1 on (RFC 5280 §4.2.1.9).
    /// Those of older versions do not say whether they do.
    pub fn end_entities(&self) -> impl Iterator<Item = usize> {
        let parsed = self.certificates.iter().map(|der| X509Certificate::from_der(der));
        (1..).zip(parsed).filter_map(|(number, parsed)| {
            let (_, certificate) = parsed.ok()?;
            (certificate.version() == X509Version::V3 && !certificate.is_ca()).then_some(number)
        })
    }

    /// Its certificates; never empty, unless the config was read without secrets.
    pub fn certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }
}

/// The certificates to trust where there is a file of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaRoots {
    /// Those of the file alone.
    #[default]
    File,
    /// The authorities of the system too.
    FileAndSystem,
}

impl Choice for CaRoots {
    const ALL: &'static [(&'static str, Self)] =
        &[("file", Self::File), ("file-and-system", Self::FileAndSystem)];
}

impl fmt::Debug for CaFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CaFile").field(&self.path).finish()
    }
}

impl Read for CaFile {
    fn accepted() -> String {
        "a file of certificates in PEM form: -----BEGIN CERTIFICATE-----".to_owned()
    }

    fn read(entry: &Entry<'_>) -> Option<Self> {
        let path = PathBuf::read(entry)?;
        // The file belongs to the machine of the gateway, like its secrets.
        if entry.document.secrets != Secrets::Resolved && !path.exists() {
            entry.document.leave_out(&entry.path, format!("file {}", path.display()));
            return Some(Self { path, certificates: Arc::default() });
        }
        let loaded = loaded_file::load(entry.document, &entry.path, &path, || Self::load(&path));
        loaded.map_or_else(|problem| entry.refuse(problem, Self::accepted()), Some)
    }
}

/// Reads the certificates of a PEM text; other entries are skipped. A certificate that nothing can
/// be verified with is a fault, because the operator relies on it.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let mut roots = RootCertStore::empty();
    let mut certificates = Vec::new();
    for found in CertificateDer::pem_slice_iter(pem) {
        let number = certificates.len() + 1;
        let damaged = || format!("certificate {number} of the file is damaged");
        let certificate = found.map_err(|fault| match fault {
            pem::Error::MissingSectionEnd { .. } => {
                format!("certificate {number} of the file is cut off: it has no -----END line")
            }
            _ => damaged(),
        })?;
        roots.add(certificate.clone()).map_err(|_| damaged())?;
        certificates.push(certificate);
    }
    if certificates.is_empty() { Err("it has no certificate".to_owned()) } else { Ok(certificates) }
}
