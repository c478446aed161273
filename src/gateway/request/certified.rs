//! The names in a client's certificate, by which the config knows the client.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::clock::Timestamp;

/// Most names of a certificate that are looked up. Chosen here: certificates of clients have one or
/// a few.
const NAMES_MAX: usize = 64;

/// The subject alternative names of a certificate that the handshake has verified (RFC 5280
/// §4.2.1.6): URIs, DNS names in lower case, e-mail addresses and IP addresses.
#[derive(Clone, Debug)]
pub struct CertificateNames {
    names: Arc<[Box<str>]>,
    until: Timestamp,
}

impl CertificateNames {
    /// Reads the names; none if the certificate has no readable ones.
    pub fn of(der: &[u8]) -> Self {
        let parsed = X509Certificate::from_der(der).ok().map(|(_, certificate)| certificate);
        let names = parsed.as_ref().and_then(|certificate| {
            let names = certificate.subject_alternative_name().ok()??;
            let names = names.value.general_names.iter().filter_map(text_of);
            Some(names.take(NAMES_MAX).map(String::into_boxed_str).collect())
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
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(AsRef::as_ref)
    }
}

fn text_of(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::URI(uri) => Some((*uri).to_owned()),
        GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
        GeneralName::RFC822Name(address) => Some((*address).to_owned()),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(|bytes| Ipv4Addr::from(bytes).to_string());
            v4.or_else(|_| {
                <[u8; 16]>::try_from(*bytes).map(|bytes| Ipv6Addr::from(bytes).to_string())
            })
            .ok()
        }
        _ => None,
    }
}
