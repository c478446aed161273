//! New connections to the upstream: TCP, and TLS with rustls on the framework's crates. A failure
//! names its cause, in the system's words where it is the system's.
//!
//! The framework's own connector reports a handshake only as failed, and ends the process where the
//! certificate authorities cannot be loaded (src/gateway/README.md, "The framework"). Left out:
//! reuse (`idle`), and the certificates to trust (`trust`).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use pingora::tls::TlsConnector;
use rustls::pki_types::ServerName;
use rustls::{AlertDescription, CertificateError, ClientConfig, Error as TlsError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::{Upstream, UpstreamUrl};
use crate::gateway::upstream::trust::Trust;

/// Most names of a certificate that a message lists.
const NAMES_SHOWN: usize = 5;

/// The bytes of a connection, encrypted or not.
pub trait Wire: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Wire for T {}

pub type Stream = Box<dyn Wire>;

/// Opens connections, each within a timeout for TCP and TLS together.
pub struct Connector {
    tls: TlsConnector,
    timeout: Duration,
}

impl Connector {
    pub fn new(config: &Upstream) -> Self {
        // Once for the process, before the builder looks for it.
        pingora::tls::install_default_crypto_provider();
        let mut tls = ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Trust::new(config.ca_file.as_ref())))
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self { tls: TlsConnector::from(Arc::new(tls)), timeout: config.connect_timeout }
    }

    /// Connects to one address of the host of `url`. An error is the cause.
    pub async fn open(&self, url: &UpstreamUrl, address: SocketAddr) -> Result<Stream, String> {
        let opened = timeout(self.timeout, self.open_untimed(url, address)).await;
        opened.unwrap_or_else(|_| Err("timed out".into()))
    }

    async fn open_untimed(&self, url: &UpstreamUrl, address: SocketAddr) -> Result<Stream, String> {
        let tcp = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        tcp.set_nodelay(true).map_err(|error| error.to_string())?;
        if !url.is_tls() {
            return Ok(Box::new(tcp));
        }
        let name = ServerName::try_from(url.host().to_owned())
            .map_err(|_| format!("no certificate can be for the name {}", url.host()))?;
        match self.tls.connect(name, tcp).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(error) => Err(format!("TLS: {}", handshake_problem(&error, url.host()))),
        }
    }
}

fn handshake_problem(error: &io::Error, host: &str) -> String {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
        Some(TlsError::InvalidCertificate(fault)) => certificate_problem(fault, host),
        Some(TlsError::InvalidMessage(_)) => {
            "the answer is not TLS; does the upstream speak plain HTTP on this port?".into()
        }
        Some(
            TlsError::AlertReceived(AlertDescription::ProtocolVersion)
            | TlsError::PeerIncompatible(_),
        ) => "the upstream offers no version or cipher of TLS 1.2 or 1.3 that is known here".into(),
        Some(TlsError::AlertReceived(alert)) => {
            format!("the upstream ended the handshake with the alert {alert:?}")
        }
        Some(other) => other.to_string(),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the upstream closed the connection during the handshake".into()
        }
        None => error.to_string(),
    }
}

fn certificate_problem(fault: &CertificateError, host: &str) -> String {
    match fault {
        CertificateError::UnknownIssuer => {
            "the issuer of the upstream's certificate is unknown; upstream.ca_file can name it"
                .into()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the upstream's certificate has expired, or the clock of this machine is wrong".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the upstream's certificate is not valid yet, or the clock of this machine is wrong"
                .into()
        }
        CertificateError::NotValidForName => {
            format!("the upstream's certificate is not for the name {host}")
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            // Written like `DnsName("example.com")` and `IpAddress(192.0.2.1)`.
            let bare = |name: &String| {
                let inside = name.split_once('(').map_or(name.as_str(), |(_, inside)| inside);
                inside.trim_end_matches(')').trim_matches('"').to_owned()
            };
            let names: Vec<_> = presented.iter().take(NAMES_SHOWN).map(bare).collect();
            let names = names.join(", ");
            format!("the upstream's certificate is not for the name {host}, but for {names}")
        }
        CertificateError::BadSignature => {
            "the upstream's certificate is not signed by the issuer that it names".into()
        }
        CertificateError::BadEncoding => "the upstream's certificate is damaged".into(),
        // A certificate that its owner has signed, and that no authority vouches for.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            "the upstream's certificate is signed by its owner, so its issuer is unknown; \
             upstream.ca_file can name it"
                .into()
        }
        other => format!("the upstream's certificate is refused: {other}"),
    }
}
