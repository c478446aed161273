//! The webhook sender: POSTs the emulator's deliveries over the network and reports the results.
//!
//! The emulator decides content, receiver, order and signature; this module only sets the time-out.
//! Each delivery uses a connection of its own. It follows no redirect and repeats nothing, because
//! the upstream does not retry (SPECIFICATION, "Webhooks in practice").

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::TokioExecutor;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme,
    WantsVerifier,
};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;

use super::queue::Outgoing;
use crate::clock::Clock;
use crate::emulator::world::{ANSWER_BYTES_MAX, Certificate, Failure, OutgoingId, Receipt};

/// The time in which a receiver must answer (SPECIFICATION, "Webhooks in practice").
const TIME_OUT: Duration = Duration::from_secs(10);
/// Reserved for documentation and tests (RFC 2606, RFC 6761). Never resolved, because the seed
/// world's webhooks point there and must not cause DNS traffic.
const RESERVED_NAMES: [&str; 6] =
    ["example", "example.com", "example.net", "example.org", "invalid", "test"];

type Http = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Sends deliveries to their receivers.
#[derive(Debug, Default)]
pub struct WebhookSender {
    /// Instead of [`TIME_OUT`].
    time_out: Option<Duration>,
    /// Trusted instead of the machine's certificates.
    trusted: Vec<CertificateDer<'static>>,
    /// Built on first use, because reading the machine's certificates is slow.
    verifying: OnceLock<Option<Http>>,
    trusting: OnceLock<Option<Http>>,
}

impl WebhookSender {
    /// Waits this long for a receiver instead of 10 s, from the connection to the end of the
    /// response.
    #[must_use]
    pub fn with_time_out(self, time_out: Duration) -> Self {
        Self { time_out: Some(time_out), ..self }
    }

    /// Trusts only receivers with this certificate (DER), or with one that it signed.
    #[must_use]
    pub fn with_trusted(mut self, certificate: Vec<u8>) -> Self {
        self.trusted.push(certificate.into());
        self
    }

    async fn carry(&self, outgoing: Outgoing) -> (OutgoingId, Receipt) {
        // Measures the receiver in real time, however fast the emulator's clock runs.
        let stopwatch = Clock::system();
        let begun = stopwatch.now();
        let exchange = self.exchange(outgoing.request, outgoing.certificate);
        let sent = tokio::time::timeout(self.time_out.unwrap_or(TIME_OUT), exchange).await;
        let duration = stopwatch.now().since(begun);
        let receipt = match sent.unwrap_or(Err(Failure::TimedOut)) {
            Ok((parts, payload)) => {
                Receipt::answered(parts.status, &parts.headers, &payload, duration)
            }
            Err(failure) => Receipt::Failed { failure, duration },
        };
        (outgoing.id, receipt)
    }

    async fn exchange(
        &self,
        request: Request<Bytes>,
        certificate: Certificate,
    ) -> Result<(http::response::Parts, Bytes), Failure> {
        if request.uri().host().is_none_or(is_reserved) {
            return Err(Failure::Unresolved);
        }
        let client = self.client(certificate).ok_or(Failure::Unreachable)?;
        let response =
            client.request(request.map(Full::new)).await.map_err(|error| failure(&error))?;
        let (parts, mut body) = response.into_parts();
        let mut payload = BytesMut::new();
        // A truncated response still counts. An oversized one is not read to its end.
        while let Some(Ok(frame)) = body.frame().await {
            payload.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
            if payload.len() >= ANSWER_BYTES_MAX {
                break;
            }
        }
        Ok((parts, payload.freeze()))
    }

    fn client(&self, certificate: Certificate) -> Option<&Http> {
        let made = match certificate {
            Certificate::Verified => {
                self.verifying.get_or_init(|| verifying(&self.trusted).map(client))
            }
            Certificate::Any => self.trusting.get_or_init(|| trusting().map(client)),
        };
        made.as_ref()
    }
}

/// Sends the emulator's deliveries until stopped, then drops those under way.
///
/// `take` returns the deliveries due now and `settle` takes their results; `wake` signals new ones.
/// The future of `due` ends when time alone may have raised others.
pub async fn run<Due: Future<Output = ()>>(
    sender: WebhookSender,
    (take, due): (impl Fn() -> Vec<Outgoing>, impl Fn() -> Due),
    settle: impl Fn(OutgoingId, Receipt),
    wake: Arc<Notify>,
    mut stop: watch::Receiver<()>,
) {
    let sender = Arc::new(sender);
    let mut under_way = JoinSet::new();
    let mut names = HashMap::new();
    loop {
        for outgoing in take() {
            let sender = Arc::clone(&sender);
            let id = outgoing.id;
            let carried = under_way.spawn(async move { sender.carry(outgoing).await });
            names.insert(carried.id(), id);
        }
        tokio::select! {
            _ = stop.changed() => return,
            () = wake.notified() => {}
            () = due() => {}
            Some(ended) = under_way.join_next_with_id() => match ended {
                Ok((task, (id, receipt))) => {
                    names.remove(&task);
                    settle(id, receipt);
                }
                // A panicked task reports nothing, and its webhook would wait for ever.
                Err(broken) => {
                    let failed = Receipt::Failed { failure: Failure::Unreachable, duration: Duration::ZERO };
                    names.remove(&broken.id()).into_iter().for_each(|id| settle(id, failed.clone()));
                }
            },
        }
    }
}

fn is_reserved(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    RESERVED_NAMES.iter().any(|name| {
        host.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    })
}

/// One connection for each delivery, and no automatic retry by the client.
fn client(tls: ClientConfig) -> Http {
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build();
    Client::builder(TokioExecutor::new())
        .http1_title_case_headers(true)
        .pool_max_idle_per_host(0)
        .retry_canceled_requests(false)
        .build(connector)
}

/// `insecure_ssl` 0: trusts the machine's certificates, unless others are given.
fn verifying(trusted: &[CertificateDer<'static>]) -> Option<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(trusted.iter().cloned());
    let native = if trusted.is_empty() { tls()?.with_native_roots().ok() } else { None };
    // Without certificates on the machine, no receiver is trusted and every delivery fails.
    let config = match native {
        Some(config) => config,
        None => tls()?.with_root_certificates(roots),
    };
    Some(config.with_no_client_auth())
}

/// `insecure_ssl` 1.
fn trusting() -> Option<ClientConfig> {
    let any = Arc::new(AnyCertificate(ring::default_provider()));
    Some(tls()?.dangerous().with_custom_certificate_verifier(any).with_no_client_auth())
}

/// The provider is explicit, so that a default set elsewhere in the process has no influence.
fn tls() -> Option<ConfigBuilder<ClientConfig, WantsVerifier>> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .ok()
}

#[derive(Debug)]
struct AnyCertificate(CryptoProvider);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Returns the first cause in the error chain that explains the failure.
fn failure(error: &ClientError) -> Failure {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(known) = known(error) {
            return known;
        }
        // `io::Error::source` skips the inner error, so look inside first.
        let carried = error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
            .map(|carried| carried as &(dyn Error + 'static));
        next = carried.or_else(|| error.source());
    }
    Failure::Unreachable
}

fn known(error: &(dyn Error + 'static)) -> Option<Failure> {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        let certificate = matches!(
            error,
            rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented
        );
        return Some(if certificate { Failure::Certificate } else { Failure::Garbled });
    }
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        if error.is_parse() {
            return Some(Failure::Garbled);
        }
        return error.is_incomplete_message().then_some(Failure::Closed);
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return match error.kind() {
            io::ErrorKind::ConnectionRefused => Some(Failure::Refused),
            io::ErrorKind::TimedOut => Some(Failure::TimedOut),
            io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof => Some(Failure::Closed),
            _ => None,
        };
    }
    // The connector's error for this case has no public type.
    error.to_string().starts_with("dns error").then_some(Failure::Unresolved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_under_reserved_names_are_recognized() {
        for host in
            ["receiver.example.com", "example.com", "EXAMPLE.ORG.", "nowhere.invalid", "a.test"]
        {
            assert!(is_reserved(host), "{host}");
        }
        for host in ["localhost", "127.0.0.1", "myexample.com", "example.com.de", "contest"] {
            assert!(!is_reserved(host), "{host}");
        }
    }
}
