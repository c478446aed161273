//! TLS of the gateway's own listener: the handshake, the choice of a certificate, and its renewal.
//!
//! HTTP/2 is offered by ALPN. A session is resumed by a ticket. The files of the certificates are
//! read every other second, and by that also after a symbolic link was exchanged. Files of no use
//! leave the certificates in force.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use pingora::listeners::tls::Acceptor;
use pingora::protocols::Stream;
use pingora::protocols::l4::stream::Stream as Plain;
use rustls::client::verify_server_name;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::ServerName;
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version};
use tokio::time::{sleep, timeout};

use crate::config::{CertificateFault, CertificateFiles, Https, load_certificate};
use crate::gateway::reload::Current;

/// Offered to clients, the preferred one first (RFC 7301).
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];
/// Pause between two looks at the files. Chosen here: a renewal is in force within five seconds.
const CHECK_PAUSE: Duration = Duration::from_secs(2);

/// The TLS side of a listener.
pub struct Tls {
    acceptor: Acceptor,
    certificates: Arc<Certificates>,
}

impl Tls {
    /// Begins with the certificates of the config.
    pub fn new(https: &Https) -> io::Result<Self> {
        let loaded = https.certificates.iter().filter_map(|files| files.loaded.clone());
        let certificates = Arc::new(Certificates(ArcSwap::from_pointee(loaded.collect())));
        let failed = |error: rustls::Error| io::Error::other(format!("TLS cannot start: {error}"));
        let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map_err(failed)?;
        let mut config =
            builder.with_no_client_auth().with_cert_resolver(Arc::clone(&certificates) as _);
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).into();
        config.ticketer = Ticketer::new().map_err(failed)?;
        Ok(Self { acceptor: Acceptor::from_server_config(Arc::new(config)), certificates })
    }

    /// Makes the handshake. Fails with the problem if it is not made within this time.
    pub async fn accept(&self, stream: Stream, within: Duration) -> Result<Stream, String> {
        let Ok(plain) = stream.into_any().downcast::<Plain>() else {
            return Err("not a socket".into());
        };
        match timeout(within, self.acceptor.tls_handshake(*plain)).await {
            Ok(Ok(stream)) => Ok(Box::new(stream)),
            Ok(Err(error)) => Err(problem_of(&error.to_string())),
            Err(_) => Err("it took too long".into()),
        }
    }

    /// Reads the files of the certificates again and again.
    pub async fn renew(self: Arc<Self>, current: Arc<Current>) {
        let mut problem = None;
        loop {
            sleep(CHECK_PAUSE).await;
            let Some(https) = current.gateway().env.config.listen.https.clone() else { continue };
            let read = tokio::task::spawn_blocking(move || load_all(&https.certificates)).await;
            match read {
                Ok(Ok(loaded)) => {
                    problem = None;
                    if self.certificates.replace(loaded) {
                        tracing::info!("a certificate of listen.https was renewed");
                    }
                }
                // Once for each problem.
                Ok(Err(fault)) if problem.as_ref() != Some(&fault) => {
                    tracing::warn!(%fault, "a certificate of listen.https cannot be renewed");
                    problem = Some(fault);
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }
}

/// The cause of a failed handshake in an operator's words. The framework keeps only the text of it.
fn problem_of(error: &str) -> String {
    let (_, cause) = error.rsplit_once("error: ").unwrap_or_default();
    let begins = |with: &str| cause.starts_with(with);
    if begins("received corrupt message") {
        "the client does not speak TLS".into()
    } else if begins("tls handshake eof") {
        "the client closed the connection during the handshake".into()
    } else if begins("peer is incompatible") {
        "the client offers no version or cipher of TLS 1.2 or 1.3 that is known here".into()
    } else if begins("peer doesn't support any known protocol") {
        "the client offers no HTTP by ALPN".into()
    } else if let Some(alert) = cause.strip_prefix("received fatal alert: ") {
        format!("the client ended the handshake with the alert {alert}")
    } else if cause.is_empty() {
        error.into()
    } else {
        cause.into()
    }
}

fn load_all(files: &[CertificateFiles]) -> Result<Vec<Arc<CertifiedKey>>, CertificateFault> {
    files.iter().map(|files| load_certificate(&files.cert, &files.key).map(Arc::new)).collect()
}

/// The certificates in force.
#[derive(Debug)]
struct Certificates(ArcSwap<Vec<Arc<CertifiedKey>>>);

impl Certificates {
    /// Puts other certificates in force. Returns false if they are the same.
    fn replace(&self, by: Vec<Arc<CertifiedKey>>) -> bool {
        let chains = |of: &[Arc<CertifiedKey>]| -> Vec<_> {
            of.iter().map(|certified| certified.cert.clone()).collect()
        };
        let is_new = chains(&self.0.load()) != chains(&by);
        if is_new {
            self.0.store(Arc::new(by));
        }
        is_new
    }
}

impl ResolvesServerCert for Certificates {
    /// The first certificate with the client's name, else the first of all.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certificates = self.0.load();
        let name = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let has_name = |certified: &&Arc<CertifiedKey>| {
            let parsed = certified.cert.first().map(ParsedCertificate::try_from);
            let (Some(Ok(parsed)), Some(name)) = (parsed, &name) else { return false };
            verify_server_name(&parsed, name).is_ok()
        };
        certificates.iter().find(has_name).or_else(|| certificates.first()).cloned()
    }
}
