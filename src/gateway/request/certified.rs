//! The names in a client's certificate, by which the config knows the client.

use std::net::IpAddr;
use std::sync::Arc;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::clock::Timestamp;
use crate::config::CertificateName;

/// Most names of a certificate that are looked up. Chosen here: certificates of clients have one or
/// a few.
const NAMES_MAX: usize = 256;

/// The subject alternative names of a certificate that the handshake has verified (RFC 5280
/// §4.2.1.6): URIs, DNS names in lower case, e-mail addresses and IP addresses.
#[derive(Clone, Debug)]
pub struct CertificateNames {
    names: Arc<[CertificateName]>,
    until: Timestamp,
}

impl CertificateNames {
    /// Reads the names; none if the certificate has no readable ones.
    pub fn of(der: &[u8]) -> Self {
        let parsed = X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate);
        let names = parsed.as_ref().and_then(|certificate| {
            let names = certificate.subject_alternative_name().ok()??;
            let names = names.value.general_names.iter().filter_map(name_of);
            Some(names.take(NAMES_MAX).collect())
        });
        // RFC 5280 §4.1.2.5: the last second belongs to it.
        let until = parsed.and_then(|certificate| {
            let last = certificate.validity().not_after.timestamp();
            Some(Timestamp::from_secs(u64::try_from(last).ok()?.saturating_add(1)))
        });
        Self { names: names.unwrap_or_default(), until: until.unwrap_or(Timestamp::EPOCH) }
    }

    /// The first moment at which the certificate is not valid any more. A connection may outlast
    /// it.
    pub fn until(&self) -> Timestamp {
        self.until
    }

    /// The names in the certificate's order.
    pub fn iter(&self) -> impl Iterator<Item = &CertificateName> {
        self.names.iter()
    }
}

fn name_of(name: &GeneralName<'_>) -> Option<CertificateName> {
    match name {
        GeneralName::URI(uri) => Some(CertificateName::Uri((*uri).into())),
        GeneralName::DNSName(name) => Some(CertificateName::dns(name)),
        GeneralName::RFC822Name(address) => Some(CertificateName::Email((*address).into())),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(CertificateName::Ip)
        }
        _ => None,
    }
}
