//! TLS of the gateway's own listeners: the handshake, the choice of a certificate, the certificates
//! of clients, and the renewal of all.
//!
//! HTTP/2 is offered by ALPN. A session is resumed by a ticket. The files are read every other
//! second, and by that also after a symbolic link was exchanged. Files of no use leave in force
//! what is, and hold up no other ones.

mod resumption;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use pingora::listeners::tls::Acceptor;
use pingora::protocols::l4::stream::Stream as Plain;
use pingora::protocols::{Ssl as _, Stream};
use rustls::client::verify_server_name;
use rustls::crypto::ring::{Ticketer, default_provider};
use rustls::pki_types::ServerName;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoClientAuth, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig, version};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};

use self::resumption::Sessions;
use crate::clock::{Clock, Timestamp};
use crate::config::{CaFile, Certificate, ClientAuth, Listen, ServerTls, load_certificate};
use crate::gateway::certificates::{CertificateProblem, InForce};
use crate::gateway::reload::Current;
use crate::gateway::request::certified::CertificateNames;

/// Pause between two looks at the files. Chosen here: a renewal is in force within five seconds.
const CHECK_PAUSE: Duration = Duration::from_secs(2);

/// The problem of a certificate that ends with the handshake, or in the gateway's clock alone.
const ENDED: &str = "the client's certificate is refused: it has ended";

/// The key of a listener with TLS in the config, and its settings there.
#[derive(Clone, Copy)]
pub struct Place {
    /// The key, such as `listen.https`.
    pub key: &'static str,
    /// Finds the settings.
    settings: fn(&Listen) -> Option<&ServerTls>,
    /// Offered to clients, the preferred one first (RFC 7301).
    protocols: &'static [&'static [u8]],
}

/// `listen.https`.
pub const HTTPS: Place = Place {
    key: "listen.https",
    settings: |listen| listen.https.as_ref().map(|https| &https.tls),
    protocols: &[b"h2", b"http/1.1"],
};
/// `listen.admin_tls`.
pub const ADMIN: Place = Place {
    key: "listen.admin_tls",
    settings: |listen| listen.admin_tls.as_ref(),
    protocols: &[b"http/1.1"],
};

/// The TLS side of a listener.
pub struct Tls {
    place: Place,
    clock: Clock,
    acceptor: ArcSwap<Acceptor>,
}

/// The content of the files, and the way to use it.
#[derive(Clone, PartialEq)]
struct Loaded {
    certificates: Vec<(PathBuf, Arc<Certificate>)>,
    client_ca: Option<CaFile>,
    client_auth: ClientAuth,
}

impl Tls {
    /// Begins with the files as the config has read them; `None` if the config has no TLS here.
    pub fn new(place: Place, current: &Current) -> io::Result<Option<Arc<Self>>> {
        let gateway = current.gateway();
        let Some(settings) = (place.settings)(&gateway.env.config.listen) else { return Ok(None) };
        let loaded = Loaded::of(settings);
        let clock = gateway.env.clock.clone();
        let acceptor = loaded.acceptor(place, &clock)?;
        gateway.env.certificates.put(place.key, loaded.certificates);
        Ok(Some(Arc::new(Self { place, clock, acceptor: ArcSwap::from_pointee(acceptor) })))
    }

    /// Makes the handshake of a client. Fails with the problem if it is not made within this time,
    /// or with a certificate that has ended by this one.
    pub async fn accept(
        &self,
        stream: Stream,
        within: Duration,
        now: Timestamp,
    ) -> Result<(Stream, Option<CertificateNames>), String> {
        let Ok(plain) = stream.into_any().downcast::<Plain>() else {
            return Err("not a socket".into());
        };
        let acceptor = self.acceptor.load_full();
        match timeout(within, acceptor.tls_handshake(*plain)).await {
            Ok(Ok(stream)) => {
                let presented = stream.get_ssl().and_then(|tls| tls.peer_certificate_der());
                let names = presented.map(CertificateNames::of);
                if names.as_ref().is_some_and(|names| names.until() <= now) {
                    return Err(ENDED.into());
                }
                Ok((Box::new(stream), names))
            }
            Ok(Err(error)) => Err(problem_of(&error.to_string())),
            Err(_) => Err("it took too long".into()),
        }
    }

    /// Makes the handshake over any transport, such as a borrowed socket.
    pub async fn accept_over<T: AsyncRead + AsyncWrite + Unpin>(
        &self,
        transport: T,
        now: Timestamp,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Unpin + use<T>> {
        let acceptor = self.acceptor.load_full();
        let stream = acceptor.acceptor.accept(transport).await?;
        let presented = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        if presented.is_some_and(|presented| CertificateNames::of(presented).until() <= now) {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, ENDED));
        }
        Ok(stream)
    }

    /// Reads the files again and again.
    pub async fn renew(self: Arc<Self>, current: Arc<Current>) {
        let key = self.place.key;
        let mut in_force = None;
        let (mut known, mut problems): (Vec<String>, _) = (Vec::new(), None);
        loop {
            let env = Arc::clone(&current.gateway().env);
            let settings = (self.place.settings)(&env.config.listen).cloned();
            let reading = settings.map(|settings| {
                let before = in_force.get_or_insert_with(|| Loaded::of(&settings)).clone();
                tokio::task::spawn_blocking(move || before.read_again(&settings))
            });
            if let Some(reading) = reading
                && let Ok((loaded, mut faults)) = reading.await
            {
                match self.replace(loaded, &mut in_force, &env.certificates) {
                    Ok(true) => tracing::info!(
                        "TLS of {key} was renewed: new handshakes have the present certificates and authorities"
                    ),
                    Ok(false) => {}
                    Err(fault) => faults.push(fault),
                }
                // Once for each fault.
                for fault in faults.iter().filter(|fault| !known.contains(fault)) {
                    tracing::warn!(fault, "a certificate of {key} cannot be renewed");
                }
                known = faults;
            }
            // Once a day: the text has the days that are left.
            let found = env.certificates.problems(key, env.clock.now());
            if problems.as_ref() != Some(&found) {
                for problem in &found {
                    warn_of(key, problem);
                }
                problems = Some(found);
            }
            sleep(CHECK_PAUSE).await;
        }
    }

    /// Puts other files in force. Returns false if they have the same content.
    fn replace(
        &self,
        loaded: Loaded,
        in_force: &mut Option<Loaded>,
        shown: &InForce,
    ) -> Result<bool, String> {
        if in_force.as_ref() == Some(&loaded) {
            return Ok(false);
        }
        // With new sessions: an old one vouches for a client's certificate under the old rules.
        let acceptor = loaded.acceptor(self.place, &self.clock);
        let acceptor = acceptor.map_err(|error| error.to_string())?;
        self.acceptor.store(Arc::new(acceptor));
        shown.put(self.place.key, loaded.certificates.clone());
        *in_force = Some(loaded);
        Ok(true)
    }
}

fn warn_of(key: &str, problem: &CertificateProblem) {
    match problem {
        CertificateProblem::Refused(problem) => {
            tracing::error!(problem, "clients refuse a certificate of {key}");
        }
        CertificateProblem::EndsSoon(problem) => {
            tracing::warn!(problem, "a certificate of {key} must be renewed");
        }
    }
}

impl Loaded {
    /// The files as the config has read them.
    fn of(settings: &ServerTls) -> Self {
        let certificates = settings.certificates.iter();
        Self {
            certificates: certificates
                .filter_map(|files| Some((files.cert.clone(), Arc::clone(files.loaded.as_ref()?))))
                .collect(),
            client_ca: settings.client_ca.clone(),
            client_auth: settings.client_auth,
        }
    }

    /// The files as they are now, and the faults of those that leave in force what is.
    fn read_again(&self, settings: &ServerTls) -> (Self, Vec<String>) {
        let (mut certificates, mut faults) = (Vec::new(), Vec::new());
        for files in &settings.certificates {
            match load_certificate(&files.cert, &files.key) {
                Ok(loaded) => certificates.push((files.cert.clone(), Arc::new(loaded))),
                Err(fault) => {
                    faults.push(fault.to_string());
                    let before = self.certificates.iter().find(|(path, _)| *path == files.cert);
                    let of_config = || Some((files.cert.clone(), files.loaded.clone()?));
                    certificates.extend(before.cloned().or_else(of_config));
                }
            }
        }
        let client_ca = settings.client_ca.as_ref().map(|of_config| {
            of_config.read_again().unwrap_or_else(|fault| {
                faults.push(fault);
                let before = self.client_ca.as_ref();
                before.filter(|file| file.path() == of_config.path()).unwrap_or(of_config).clone()
            })
        });
        (Self { certificates, client_ca, client_auth: settings.client_auth }, faults)
    }

    fn acceptor(&self, place: Place, clock: &Clock) -> io::Result<Acceptor> {
        let failed = |error: rustls::Error| io::Error::other(format!("TLS cannot start: {error}"));
        let certificates = self.certificates.iter();
        let certified =
            certificates.map(|(_, certificate)| Arc::clone(&certificate.certified)).collect();
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&version::TLS13, &version::TLS12])
            .map_err(failed)?
            .with_client_cert_verifier(self.verifier()?)
            .with_cert_resolver(Arc::new(ByName(certified)));
        config.alpn_protocols = place.protocols.iter().map(|name| name.to_vec()).collect();
        let sessions = Sessions::new(Ticketer::new().map_err(failed)?, clock.clone());
        config.session_storage = Arc::clone(&sessions) as _;
        config.ticketer = sessions;
        Ok(Acceptor::from_server_config(Arc::new(config)))
    }

    /// The check of clients' certificates.
    fn verifier(&self) -> io::Result<Arc<dyn ClientCertVerifier>> {
        let Some(client_ca) = &self.client_ca else { return Ok(Arc::new(NoClientAuth)) };
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(client_ca.certificates().iter().cloned());
        let verifier = WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::new(default_provider()),
        );
        let verifier = match self.client_auth {
            ClientAuth::Optional => verifier.allow_unauthenticated(),
            ClientAuth::Required => verifier,
        };
        let built = verifier.build();
        built.map(|verifier| verifier as _).map_err(|error| {
            let path = client_ca.path().display();
            io::Error::other(format!("{path}: no client can be checked: {error}"))
        })
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
    } else if begins("peer sent no certificates") {
        "the client has no certificate, which client_auth requires".into()
    } else if let Some(problem) = cause.strip_prefix("invalid peer certificate: ") {
        format!("the client's certificate is refused: {problem}")
    } else if let Some(alert) = cause.strip_prefix("received fatal alert: ") {
        format!("the client ended the handshake with the alert {alert}")
    } else if cause.is_empty() {
        error.into()
    } else {
        cause.into()
    }
}

/// Chooses among certificates by the name that a client asks for.
#[derive(Debug)]
struct ByName(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for ByName {
    /// The first certificate with the client's name, else the first of all: of those whose key the
    /// client can check, if there are such.
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let has_name = |certified: &&Arc<CertifiedKey>| {
            let parsed = certified.cert.first().map(ParsedCertificate::try_from);
            let (Some(Ok(parsed)), Some(name)) = (parsed, &name) else { return false };
            verify_server_name(&parsed, name).is_ok()
        };
        let schemes = hello.signature_schemes();
        let can_check =
            |certified: &&Arc<CertifiedKey>| certified.key.choose_scheme(schemes).is_some();
        let mut checkable = self.0.iter().filter(can_check);
        checkable
            .clone()
            .find(has_name)
            .or_else(|| checkable.next())
            .or_else(|| self.0.first())
            .cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::CertificateFiles;

    #[test]
    fn a_pair_of_no_use_holds_up_no_other_one() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/certificates");
        let folder = tempfile::tempdir().unwrap();
        let put = |fixture: &str, name: &str| {
            std::fs::copy(fixtures.join(fixture), folder.path().join(name)).unwrap();
        };
        put("server.pem", "one.pem");
        put("server.pem", "two.pem");
        let files = ["one.pem", "two.pem"].map(|name| {
            let path = folder.path().join(name);
            let loaded = Some(Arc::new(load_certificate(&path, &path).unwrap()));
            CertificateFiles { cert: path.clone(), key: path, loaded }
        });
        let settings = ServerTls {
            certificates: files.to_vec(),
            client_ca: None,
            client_auth: ClientAuth::Optional,
        };
        let before = Loaded::of(&settings);
        std::fs::remove_file(folder.path().join("one.pem")).unwrap();
        put("other_name.pem", "two.pem");
        let (after, faults) = before.read_again(&settings);
        assert_eq!(faults.len(), 1, "{faults:?}");
        let [(_, one), (_, two)] = after.certificates.as_slice() else { panic!("two pairs") };
        assert!(*one == before.certificates[0].1 && *two != before.certificates[1].1);
    }
}
