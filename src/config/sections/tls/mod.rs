//! TLS: `listen.https`, the settings of any listener, and the files of certificates.

mod ca_file;
mod certificate;
mod server;

use std::net::SocketAddr;

use crate::config::input::reader::Entry;
use crate::config::printer::{Printer, inline, text};

pub use ca_file::{CaFile, CaRoots};
pub use certificate::{Certificate, CertificateFault, CertificateFiles, load as load_certificate};
pub use server::{ClientAuth, ServerTls};

/// The listener for TLS.
#[derive(Clone, Debug)]
pub struct Https {
    /// Its address.
    pub address: SocketAddr,
    /// Its certificates, and those of its clients.
    pub tls: ServerTls,
}

impl Https {
    pub(crate) fn read(entry: &Entry<'_>) -> Option<Self> {
        entry.table(|reader| {
            let address = reader.required("address");
            let tls = ServerTls::read(reader);
            Some(Self { address: address?, tls: tls? })
        })
    }

    pub(crate) fn print(&self, printer: &mut Printer) {
        let mut https = vec![("address", text(self.address))];
        https.extend(self.tls.printed());
        printer.set("https", inline(&https));
    }
}
