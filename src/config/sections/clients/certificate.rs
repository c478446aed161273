//! The name in a client's certificate by which the config knows the client.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// A subject alternative name (RFC 5280 §4.2.1.6). Names of different kinds are never the same: an
/// authority may be limited to some of one kind, and free in the others (§4.2.1.10).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CertificateName {
    /// A URI, such as `spiffe://corp/ci`.
    Uri(Arc<str>),
    /// A DNS name in lower case.
    Dns(Arc<str>),
    /// An e-mail address.
    Email(Arc<str>),
    /// An IP address.
    Ip(IpAddr),
}

impl CertificateName {
    /// Determines the kind of a name by its form: an IP address is one, a colon makes a URI, and an
    /// at sign an e-mail address.
    pub fn parse(text: &str) -> Self {
        if let Ok(address) = text.parse() {
            Self::Ip(address)
        } else if text.contains(':') {
            Self::Uri(text.into())
        } else if text.contains('@') {
            Self::Email(text.into())
        } else {
            Self::dns(text)
        }
    }

    /// A DNS name in any case.
    pub fn dns(text: &str) -> Self {
        Self::Dns(text.to_ascii_lowercase().into())
    }
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uri(text) | Self::Dns(text) | Self::Email(text) => f.write_str(text),
            Self::Ip(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_a_name_is_its_kind() {
        for (text, name) in [
            ("spiffe://corp/ci", CertificateName::Uri("spiffe://corp/ci".into())),
            ("urn:corp:ci@1", CertificateName::Uri("urn:corp:ci@1".into())),
            ("CI.Corp", CertificateName::Dns("ci.corp".into())),
            ("bot@corp", CertificateName::Email("bot@corp".into())),
            ("10.0.0.1", CertificateName::Ip([10, 0, 0, 1].into())),
            ("2001:DB8:0::1", CertificateName::Ip("2001:db8::1".parse().unwrap())),
        ] {
            assert_eq!(CertificateName::parse(text), name);
        }
    }
}
