//! The probes of the circuit breakers: a free request of the gateway itself, without a credential.
//!
//! Any answer proves that the upstream lives, a refusal included. `decision/breaker.rs` decides
//! when a probe is due and what follows from it.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use tokio::task::JoinHandle;

use crate::decision::breaker::{Heard, Next, Outage};
use crate::gateway::dispatch::breaker::CircuitBreaker;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::http::headers;
use crate::gateway::upstream::fetch::{FetchError, Reuse, UpstreamRequest};
use crate::gateway::upstream::outgoing::{OutgoingBody, OutgoingRequest};

/// The request that costs no budget (SPECIFICATION, "Budget headers"). Other services than REST
/// answer it too, if only with an error.
const TARGET: &str = "/rate_limit";
/// The bytes of an answer that are read. Ours: several times the answer of the service.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Probes for one breaker, under the current config, while the gateway lives.
pub async fn keep_probing(
    breaker: Arc<CircuitBreaker>,
    current: impl Fn() -> Option<Arc<Dispatcher>> + Send,
) {
    let mut patient: Option<JoinHandle<()>> = None;
    loop {
        let Some(dispatcher) = current() else { return };
        match breaker.next() {
            Next::Idle => {
                drop(dispatcher);
                breaker.stirred().await;
            }
            Next::At(at) => {
                let clock = dispatcher.env().timeouts.clone();
                drop(dispatcher);
                tokio::select! {
                    () = clock.reach(at) => {}
                    () = breaker.stirred() => {}
                }
            }
            Next::Probe(patience) => {
                if breaker.wants_patient_probe()
                    && patient.as_ref().is_none_or(JoinHandle::is_finished)
                {
                    let (breaker, dispatcher) = (Arc::clone(&breaker), Arc::clone(&dispatcher));
                    let patience = dispatcher.env().config.upstream.response_timeout;
                    patient = Some(tokio::spawn(async move {
                        probe(&dispatcher, &breaker, patience).await;
                    }));
                }
                probe(&dispatcher, &breaker, patience).await;
            }
        }
    }
}

/// Sends one probe on a new connection, and reports its end.
async fn probe(dispatcher: &Dispatcher, breaker: &CircuitBreaker, patience: Duration) {
    let env = dispatcher.env();
    // A later answer would be none for a request either.
    let patience = patience.min(env.config.upstream.response_timeout);
    let mut headers = HeaderMap::new();
    headers::complete(&mut headers, env.config.upstream.dialect);
    let request = OutgoingRequest {
        service: breaker.service,
        method: Method::GET,
        target: TARGET.into(),
        headers: Arc::new(headers),
        body: OutgoingBody::Absent,
    };
    let request = UpstreamRequest { request: &request, added: HeaderMap::new(), interims: None };
    let answered = async {
        let exchange = dispatcher.upstream().send(&request, Reuse::Never, || true).await?;
        exchange.collect(ANSWER_BYTES_MAX, None).await.map(drop)
    };
    let answered = tokio::select! {
        answered = answered => answered,
        () = env.timeouts.reach(env.timeouts.now() + patience) => Err(FetchError::Timeout),
    };
    breaker.probed(match answered {
        Ok(()) | Err(FetchError::Undecodable(_)) => Heard::Answer,
        Err(FetchError::Connect(_)) => Heard::Nothing(Outage::Unreachable),
        Err(_) => Heard::Nothing(Outage::Silent),
    });
}
