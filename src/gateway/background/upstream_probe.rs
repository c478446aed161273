//! The probes of the circuit breakers: requests of the gateway itself, without a credential.
//!
//! Any answer proves that the upstream lives, a refusal included. `decision/breaker` decides
//! when a probe is due and what follows from it.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Method};
use tokio::task::JoinHandle;

use crate::decision::breaker::{Heard, Next, Outage, Target};
use crate::gateway::dispatch::breaker::CircuitBreaker;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::http::headers;
use crate::gateway::upstream::fetch::{FetchError, Reuse, UpstreamRequest};
use crate::gateway::upstream::outgoing::{OutgoingBody, OutgoingRequest};

/// The bytes of an answer that are read. Ours: several times the answer of the service.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The path of a probe. Other services than REST answer it too, if only with an error. The state of
/// the budgets costs none of them (SPECIFICATION, "Budget headers").
const fn path_of(target: Target) -> &'static str {
    match target {
        Target::Free => "/rate_limit",
        Target::Root => "/",
    }
}

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
            Next::Probe(patience, target) => {
                let clock = dispatcher.env().timeouts.clone();
                // A later answer would be none for a request either.
                let timeout = dispatcher.env().config.upstream.response_timeout;
                let began = clock.now();
                let mut probing =
                    tokio::spawn(probe(dispatcher, Arc::clone(&breaker), target, timeout));
                tokio::select! {
                    heard = &mut probing => {
                        let heard = heard.unwrap_or(Heard::Neutral);
                        breaker.probed(target, heard, clock.now().since(began));
                        continue;
                    }
                    () = clock.reach(began + patience) => {}
                }
                breaker.probed(target, Heard::Nothing(Outage::Silent), patience);
                // One at a time waits on: an upstream that has become slow is not down.
                if patient.as_ref().is_some_and(|patient| !patient.is_finished()) {
                    probing.abort();
                    continue;
                }
                let breaker = Arc::clone(&breaker);
                patient = Some(tokio::spawn(async move {
                    if let Ok(Heard::Answer) = probing.await {
                        breaker.probed(target, Heard::Answer, clock.now().since(began));
                    }
                }));
            }
        }
    }
}

/// Sends one probe on a new connection, and returns its end.
async fn probe(
    dispatcher: Arc<Dispatcher>,
    breaker: Arc<CircuitBreaker>,
    target: Target,
    timeout: Duration,
) -> Heard {
    let env = dispatcher.env();
    let mut headers = HeaderMap::new();
    headers::complete(&mut headers, env.config.upstream.dialect);
    let request = OutgoingRequest {
        service: breaker.service,
        method: Method::GET,
        target: path_of(target).into(),
        headers: Arc::new(headers),
        body: OutgoingBody::Absent,
    };
    let request = UpstreamRequest { request: &request, added: HeaderMap::new(), interims: None };
    let answered = async {
        let exchange = dispatcher.upstream().send(&request, Reuse::Never, || Ok(())).await?;
        exchange.collect(ANSWER_BYTES_MAX, None).await.map(drop)
    };
    let answered = tokio::select! {
        answered = answered => answered,
        () = env.timeouts.reach(env.timeouts.now() + timeout) => Err(FetchError::Timeout),
    };
    match answered {
        Ok(()) | Err(FetchError::Undecodable(_)) => Heard::Answer,
        Err(FetchError::Connect(_)) => Heard::Nothing(Outage::Unreachable),
        Err(_) => Heard::Nothing(Outage::Silent),
    }
}
