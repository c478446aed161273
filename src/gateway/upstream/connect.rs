//! New connections to the upstream: addresses, TCP, and TLS with rustls on the framework's crates.
//! A failure names its cause, in the system's words where it is the system's.
//!
//! The framework's own connector reports a handshake only as failed, and ends the process where the
//! certificate authorities cannot be loaded (src/gateway/README.md, "The framework"). Left out:
//! reuse (`idle`), the order of attempts (`race`), the request to a proxy (`tunnel`), and the
//! certificates to trust (`trust`).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use pingora::tls::TlsConnector;
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;
use rustls::{AlertDescription, CertificateError, ClientConfig, Error as TlsError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::clock::timer_now;
use crate::config::{CaFile, CaRoots, HttpUrl, Proxy, Upstream, UpstreamUrl};
use crate::gateway::upstream::race::{Failed, ordered, race};
use crate::gateway::upstream::resolve::{Records, Resolver};
use crate::gateway::upstream::trust::Trust;
use crate::gateway::upstream::tunnel;

/// Most names of a certificate that a message lists.
const NAMES_SHOWN: usize = 5;
/// Most addresses that a message lists.
const FAILURES_SHOWN: usize = 4;

/// The bytes of a connection, encrypted or not.
pub trait Wire: AsyncRead + AsyncWrite + Send + Sync + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin> Wire for T {}

pub type Stream = Box<dyn Wire>;

/// Opens connections, each within a timeout for names, TCP and TLS together.
pub struct Connector {
    tls: TlsConnector,
    /// For proxies that speak TLS themselves.
    proxy_tls: TlsConnector,
    resolver: Arc<Resolver>,
    peer: Peer,
    timeout: Duration,
}

/// A service of the upstream.
pub struct Target {
    url: UpstreamUrl,
    proxy: Option<Arc<Proxy>>,
    /// The address of the latest connection, until its name is asked about again.
    last: Mutex<Option<(Records, IpAddr)>>,
}

/// A new connection.
pub struct Opened {
    pub stream: Stream,
    /// The address at its other end.
    pub peer: IpAddr,
    /// The addresses of the name at that time.
    pub records: Records,
}

impl Target {
    pub fn new(url: UpstreamUrl, proxy: Option<Arc<Proxy>>) -> Self {
        Self { url, proxy, last: Mutex::default() }
    }

    pub fn url(&self) -> &UpstreamUrl {
        &self.url
    }

    /// The name to connect to.
    pub fn host(&self) -> &str {
        self.next().host()
    }

    /// The address of the next hop.
    fn next(&self) -> &HttpUrl {
        self.proxy.as_ref().map_or(&self.url, |proxy| proxy.url())
    }

    /// Says that a request's time was over before there was a connection for it.
    pub fn overdue(&self) -> String {
        self.by_proxy("none when the request's time was over".to_owned())
    }

    fn by_proxy(&self, problem: String) -> String {
        match &self.proxy {
            Some(proxy) => format!("by the proxy {proxy}: {problem}"),
            None => problem,
        }
    }

    fn addresses(&self, records: &Records) -> Vec<SocketAddr> {
        let last = self.last.lock().clone();
        let last = last.filter(|(of, _)| Arc::ptr_eq(&of.addresses, &records.addresses));
        let ordered = ordered(&records.addresses, last.map(|(_, last)| last));
        ordered.into_iter().map(|address| SocketAddr::new(address, self.next().port())).collect()
    }
}

impl Connector {
    pub fn new(config: &Upstream, resolver: Arc<Resolver>) -> Self {
        // Once for the process, before the builder looks for it.
        pingora::tls::install_default_crypto_provider();
        let trust = Arc::new(Trust::new(config));
        let trusting = || {
            let builder = ClientConfig::builder().dangerous();
            builder.with_custom_certificate_verifier(Arc::clone(&trust) as _)
        };
        let connector = |mut tls: ClientConfig| {
            tls.alpn_protocols = vec![b"http/1.1".to_vec()];
            TlsConnector::from(Arc::new(tls))
        };
        // The proxy is none of those that the certificate is for.
        let certificate = config.client_certificate.as_ref();
        let tls = match certificate.and_then(|files| files.loaded.as_ref()) {
            Some(loaded) => {
                let single = SingleCertAndKey::from(Arc::clone(&loaded.certified));
                trusting().with_client_cert_resolver(Arc::new(single))
            }
            None => trusting().with_no_client_auth(),
        };
        Self {
            tls: connector(tls),
            proxy_tls: connector(trusting().with_no_client_auth()),
            resolver,
            peer: Peer::Upstream,
            timeout: config.connect_timeout,
        }
    }

    /// Opens connections to the issuers of clients' tokens, within this time.
    pub fn to_issuers(
        ca_file: Option<&CaFile>,
        resolver: Arc<Resolver>,
        timeout: Duration,
    ) -> Self {
        pingora::tls::install_default_crypto_provider();
        let mut tls = ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Trust::of(ca_file, CaRoots::File)))
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let tls = TlsConnector::from(Arc::new(tls));
        Self { proxy_tls: tls.clone(), tls, resolver, peer: Peer::KeyServer, timeout }
    }

    pub fn resolver(&self) -> &Arc<Resolver> {
        &self.resolver
    }

    /// Connects to a service, by its proxy if it has one. An error is the cause, for each address.
    pub async fn open(&self, to: &Target) -> Result<Opened, String> {
        self.open_next(to).await.map_err(|problem| to.by_proxy(problem))
    }

    /// Connects to one of the addresses of the next hop. If there is no connection to any, the
    /// name is asked about again, and new addresses are tried.
    async fn open_next(&self, to: &Target) -> Result<Opened, String> {
        let deadline = timer_now() + self.timeout;
        let mut records = self.lookup(to.host(), deadline).await?;
        let mut addresses = to.addresses(&records);
        let mut failed = Vec::new();
        loop {
            if let Some((stream, peer)) = self.open_any(to, addresses, deadline, &mut failed).await
            {
                *to.last.lock() = Some((records.clone(), peer));
                return Ok(Opened { stream, peer, records });
            }
            self.resolver.recheck(to.host());
            match self.lookup(to.host(), deadline).await {
                Ok(newer) if timer_now() < deadline => records = newer,
                _ => break,
            }
            addresses = to.addresses(&records);
            addresses.retain(|address| failed.iter().all(|(tried, _)| tried != address));
            if addresses.is_empty() {
                break;
            }
        }
        Err(listed(&failed))
    }

    async fn lookup(&self, host: &str, deadline: Instant) -> Result<Records, String> {
        let found = timeout_at(deadline, self.resolver.lookup(host)).await;
        found.unwrap_or_else(|_| Err(format!("the name {host} was not resolved in time")))
    }

    /// Connects to the first address that answers by TCP. If its TLS fails, the others are tried.
    async fn open_any(
        &self,
        to: &Target,
        mut addresses: Vec<SocketAddr>,
        deadline: Instant,
        failed: &mut Vec<Failed>,
    ) -> Option<(Stream, IpAddr)> {
        while !addresses.is_empty() {
            let racing = addresses.clone();
            let Ok(won) = timeout_at(deadline, race(racing, failed, connect_tcp)).await else {
                addresses.retain(|address| failed.iter().all(|(tried, _)| tried != address));
                failed.extend(addresses.into_iter().map(|late| (late, "timed out".to_owned())));
                return None;
            };
            let won = won?;
            addresses = won.left;
            // An address that is silent in TLS must leave time for the others.
            let left = deadline.saturating_duration_since(timer_now());
            let until = if addresses.is_empty() { deadline } else { deadline - left / 2 };
            let problem = match timeout_at(until, self.prepare(to, won.connection)).await {
                Ok(Ok(stream)) => return Some((stream, won.address.ip())),
                Ok(Err(problem)) => problem,
                Err(_) if to.proxy.is_some() => "no tunnel in time".to_owned(),
                Err(_) => "TLS: timed out".to_owned(),
            };
            failed.push((won.address, problem));
        }
        None
    }

    /// Makes a connection to the upstream of one to the next hop.
    async fn prepare(&self, to: &Target, tcp: TcpStream) -> Result<Stream, String> {
        let Some(proxy) = &to.proxy else {
            return if to.url.is_tls() {
                secure(&self.tls, self.peer, to.url.host(), tcp).await
            } else {
                Ok(Box::new(tcp))
            };
        };
        let mut stream: Stream = if proxy.url().is_tls() {
            secure(&self.proxy_tls, Peer::Proxy, proxy.url().host(), tcp).await?
        } else {
            Box::new(tcp)
        };
        tunnel::open(&mut stream, proxy, &to.url).await?;
        if to.url.is_tls() {
            secure(&self.tls, self.peer, to.url.host(), stream).await
        } else {
            Ok(stream)
        }
    }
}

/// The other end of a handshake.
#[derive(Clone, Copy)]
enum Peer {
    Upstream,
    Proxy,
    /// Of an issuer of tokens.
    KeyServer,
}

impl Peer {
    const fn name(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::Proxy => "proxy",
            Self::KeyServer => "key server",
        }
    }

    /// The setting of the certificates to trust.
    const fn ca_file(self) -> &'static str {
        match self {
            Self::Upstream | Self::Proxy => "upstream.ca_file",
            Self::KeyServer => "issuers[].ca_file",
        }
    }
}

async fn secure<S: Wire + 'static>(
    tls: &TlsConnector,
    peer: Peer,
    host: &str,
    stream: S,
) -> Result<Stream, String> {
    let name = ServerName::try_from(host.to_owned())
        .map_err(|_| format!("no certificate can be for the name {host}"))?;
    match tls.connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(format!("TLS: {}", handshake_problem(&error, peer, host))),
    }
}

async fn connect_tcp(address: SocketAddr) -> Result<TcpStream, String> {
    let tcp = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
    tcp.set_nodelay(true).map_err(|error| error.to_string())?;
    Ok(tcp)
}

/// The failures of all addresses in one text.
fn listed(failed: &[Failed]) -> String {
    let shown = failed.iter().take(FAILURES_SHOWN);
    let mut text: Vec<_> =
        shown.map(|(address, problem)| format!("{address}: {problem}")).collect();
    if failed.len() > FAILURES_SHOWN {
        text.push(format!("and {} more", failed.len() - FAILURES_SHOWN));
    }
    text.join("; ")
}

fn handshake_problem(error: &io::Error, peer: Peer, host: &str) -> String {
    let of = peer.name();
    match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
        Some(TlsError::InvalidCertificate(fault)) => certificate_problem(fault, peer, host),
        Some(TlsError::InvalidMessage(_)) => {
            format!("the answer is not TLS; does the {of} speak plain HTTP on this port?")
        }
        Some(
            TlsError::AlertReceived(AlertDescription::ProtocolVersion)
            | TlsError::PeerIncompatible(_),
        ) => format!("the {of} offers no version or cipher of TLS 1.2 or 1.3 that is known here"),
        Some(TlsError::AlertReceived(alert)) if certificate_alert(*alert).is_some() => {
            certificate_alert(*alert).unwrap_or_default()
        }
        Some(TlsError::AlertReceived(alert)) => {
            format!("the {of} ended the handshake with the alert {alert:?}")
        }
        Some(other) => other.to_string(),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            format!("the {of} closed the connection during the handshake")
        }
        None => error.to_string(),
    }
}

/// The message of an error by which the other end refuses the certificate of the gateway. In TLS
/// 1.3 it comes after the handshake is over here, and before a request is read there.
pub fn refused_certificate(error: &io::Error) -> Option<String> {
    match error.get_ref()?.downcast_ref::<TlsError>()? {
        TlsError::AlertReceived(alert) => certificate_alert(*alert),
        _ => None,
    }
}

/// The meaning of an alert about a client's certificate (RFC 8446 §6.2).
fn certificate_alert(alert: AlertDescription) -> Option<String> {
    match alert {
        AlertDescription::CertificateRequired => Some(
            "TLS: the upstream demands a client certificate: upstream.client_certificate names it"
                .to_owned(),
        ),
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnknownCA
        | AlertDescription::AccessDenied => Some(format!(
            "TLS: the upstream refuses the client certificate, or misses one \
             (upstream.client_certificate): it sent the alert {alert:?}"
        )),
        _ => None,
    }
}

fn certificate_problem(fault: &CertificateError, peer: Peer, host: &str) -> String {
    let (of, ca_file) = (peer.name(), peer.ca_file());
    match fault {
        CertificateError::UnknownIssuer => {
            format!("the issuer of the {of}'s certificate is unknown; {ca_file} can name it")
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the {of}'s certificate has expired, or the clock of this machine is wrong")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!(
                "the {of}'s certificate is not valid yet, or the clock of this machine is wrong"
            )
        }
        CertificateError::NotValidForName => {
            format!("the {of}'s certificate is not for the name {host}")
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            // Written like `DnsName("example.com")` and `IpAddress(192.0.2.1)`.
            let bare = |name: &String| {
                let inside = name.split_once('(').map_or(name.as_str(), |(_, inside)| inside);
                inside.trim_end_matches(')').trim_matches('"').to_owned()
            };
            let names: Vec<_> = presented.iter().take(NAMES_SHOWN).map(bare).collect();
            let names = names.join(", ");
            format!("the {of}'s certificate is not for the name {host}, but for {names}")
        }
        CertificateError::BadSignature => {
            format!("the {of}'s certificate is not signed by the issuer that it names")
        }
        CertificateError::BadEncoding => format!("the {of}'s certificate is damaged"),
        // A certificate that its owner has signed, and that no authority vouches for.
        CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
            format!(
                "the {of}'s certificate is signed by its owner, so its issuer is unknown; \
                 upstream.ca_file can name it"
            )
        }
        other => format!("the {of}'s certificate is refused: {other}"),
    }
}
