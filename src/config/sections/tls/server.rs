//! TLS of a listener: its certificates, and the certificates that it asks its clients for.

use super::ca_file::CaFile;
use super::certificate::CertificateFiles;
use crate::config::input::reader::{Choice, Reader};
use crate::config::printer::{list, text};

/// Certificates of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ClientAuth {
    /// A client may have none. One that it has must be good.
    #[default]
    Optional,
    /// The handshake of a client without a good one fails.
    Required,
}

impl Choice for ClientAuth {
    const ALL: &'static [(&'static str, Self)] =
        &[("optional", Self::Optional), ("required", Self::Required)];
}

/// The TLS settings of a listener.
#[derive(Clone, Debug)]
pub struct ServerTls {
    /// Its certificates; never empty. The first is for clients whose name none has.
    pub certificates: Vec<CertificateFiles>,
    /// Authorities of the clients' certificates; `None`: clients are asked for none.
    pub client_ca: Option<CaFile>,
    /// The need of a client's certificate; without meaning if `client_ca` is `None`.
    pub client_auth: ClientAuth,
}

impl ServerTls {
    /// Reads the keys of a table, among keys of others.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let certificates = if reader.is_set("certificates") {
            let problem = "not beside certificates, which names the files of each";
            let [cert, key] = ["cert", "key"].map(|name| reader.entry(name));
            let own = cert.into_iter().chain(key);
            let refused =
                own.map(|entry| entry.refuse::<()>(problem, "cert and key, or certificates"));
            let is_alone = refused.count() == 0;
            let all = reader.all_entries("certificates", CertificateFiles::read);
            all.filter(|_| is_alone)
        } else {
            CertificateFiles::read(reader).map(|files| vec![files])
        };
        let client_ca = reader.optional("client_ca");
        let client_auth = reader.or("client_auth", ClientAuth::default());
        if reader.is_set("client_auth") && !reader.is_set("client_ca") {
            let accepted = "client_ca, a file with the authorities of the clients' certificates";
            return reader.refuse("client_auth", "there is no client_ca", accepted);
        }
        let certificates = certificates?;
        if certificates.is_empty() {
            return reader.refuse("certificates", "empty", "at least one certificate");
        }
        Some(Self { certificates, client_ca, client_auth })
    }

    /// The keys of the settings as TOML.
    pub(crate) fn printed(&self) -> Vec<(&'static str, String)> {
        let certificates = list(self.certificates.iter().map(CertificateFiles::printed));
        let mut fields = vec![("certificates", certificates)];
        if let Some(client_ca) = &self.client_ca {
            fields.push(("client_ca", text(client_ca.path().display())));
            fields.push(("client_auth", text(self.client_auth.name())));
        }
        fields
    }

    /// True if a client without a certificate is refused.
    pub fn requires_clients(&self) -> bool {
        self.client_ca.is_some() && self.client_auth == ClientAuth::Required
    }
}
