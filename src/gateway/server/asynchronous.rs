//! The HTTP side of queued writes: `Prefer: respond-async`, `Idempotency-Key` and the status
//! resource (SPECIFICATION, "Asynchronous writes"; RFC 7240).
//!
//! `queue/` runs such a write. A write with a key and a waiting client uses the same queue, so
//! that a repetition finds it even after a crash. `credentials` detects requests that must not
//! be stored.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use ring::digest::{Context, SHA256};

use crate::api::GraphqlRequest;
use crate::config::digest;
use crate::decision::{ClientId, WriteSpacing};
use crate::gateway::address::{Root, Service};
use crate::gateway::counted::Counted;
use crate::gateway::dispatch::progress::Happened;
use crate::gateway::dispatch::{job::Job, route::Route};
use crate::gateway::environment::Environment;
use crate::gateway::error::GatewayError;
use crate::gateway::http::headers::{self, Repeated};
use crate::gateway::request::validate::ValidRequest;
use crate::gateway::response::reply::{Reply, ReplyBody};
use crate::gateway::server::request::{ClientRequest, Request, Stop};
use crate::gateway::server::{
    classify::OWN_WRITES, credentials::carries_credential, handler::Handler,
};
use crate::gateway::session::Session;
use crate::gateway::upstream::outgoing::OutgoingBody;
use crate::gateway::url_rewrite::map::Origin;
use crate::gateway::write::queue::{
    Accepted, New, NotAccepted, NotChanged, PATIENCE, SyncWaiter, WriteGroup,
};
use crate::gateway::write::writes::{SyncWait, not_readable};
use crate::telemetry::CacheOutcome;
use crate::writes::record::{Address, Key, Shape};
use crate::writes::{Write, WriteId};

/// The longest `Idempotency-Key`. Chosen here: several times a UUID, as other services allow.
const KEY_BYTES_MAX: usize = 255;
/// RFC 7240 §3.
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

pub(super) struct Terms {
    is_async: bool,
    /// The digest of its `Idempotency-Key`.
    pub(super) key: Option<[u8; 32]>,
}

impl Handler {
    /// Reads the terms; `None` for an ordinary write. A key that cannot be honoured is an error,
    /// because ignoring it would be unsafe. A preference may be ignored (RFC 7240 §2).
    pub(super) fn terms(
        request: &Request,
        from: &ClientRequest,
        route: &Route,
        graphql: Option<&GraphqlRequest>,
    ) -> Result<Option<Terms>, GatewayError> {
        if route.spacing == WriteSpacing::None && !route.endpoint.carries_credential {
            return Ok(None);
        }
        let key = idempotency_key(&request.headers)?;
        // No credential is stored, neither the client's own nor one that the upstream issues.
        let (path, query) = (&from.valid.path, from.valid.query.as_deref());
        let is_kept = request.identity.client_credential.is_none()
            && !graphql.is_some_and(|graphql| graphql.carries_credential)
            && !carries_credential(route.endpoint, path, &request.headers, query);
        if key.is_some() && !is_kept {
            return Err(GatewayError::BadKey(
                "an Idempotency-Key cannot be used where a credential is brought or made",
            ));
        }
        let is_async = is_kept && headers::prefers_async(&request.headers);
        Ok((is_async || key.is_some()).then_some(Terms { is_async, key }))
    }

    async fn status_reply(&self, id: WriteId, origin: &Origin) -> Result<Reply, GatewayError> {
        let listed = self.gateway.writes.queue().look_up(id).await.map_err(not_readable)?;
        let listed = listed.ok_or(GatewayError::NoSuchResource)?;
        let mut reply = Reply::empty(StatusCode::OK)
            .with(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"))
            .with(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if !listed.progress.state.is_final() {
            let wait = listed.progress.not_before.since(self.gateway.env.clock.now()).as_secs();
            reply = reply.with(RETRY_AFTER, wait.clamp(1, 60));
        }
        let status = self.gateway.responder.write_status(listed, Some(origin));
        reply.body = ReplyBody::Enclosed(Box::new(status));
        Ok(reply)
    }

    /// Queues a write. Answers with its status resource, or with its result to a client that waits.
    pub(super) async fn enqueue(
        &self,
        session: &mut Session,
        request: &mut Request,
        from: &ClientRequest,
        job: Job,
        terms: Terms,
    ) -> Result<Reply, Stop> {
        request.outcome.cache = CacheOutcome::Bypass;
        let gateway = &self.gateway;
        if terms.is_async && gateway.env.is_draining() && !gateway.writes.queue().is_durable() {
            return Err(GatewayError::Draining.into());
        }
        let entered = gateway.writes.queue().enter();
        let entered = self.while_connected(session, request, entered).await;
        let _using = entered.ok_or(Stop::ClientGone)??;
        let deadline =
            if terms.is_async { gateway.env.clock.now() + PATIENCE } else { job.deadline };
        let write = kept_write(&gateway.env, from, &job, &terms);
        let breaker = Arc::clone(gateway.dispatcher.breaker(&job));
        let Job { client, memory, route, .. } = job;
        let resource = route.endpoint.resource.clone();
        let group = WriteGroup { client, content: route.content, resource };
        let waiter = (!terms.is_async).then(|| {
            let waits = gateway.dispatcher.waiting().get(client as usize).map(Counted::new);
            Box::new(SyncWaiter {
                request_progress: request.progress.clone(),
                span: Some(request.span.clone()),
                interims: request.interims.clone(),
                waits,
                is_held: false,
            })
        });
        let admissions = gateway.dispatcher.admissions();
        let turn = admissions.next_turn(&route.candidates, route.spacing);
        let may_go = turn <= gateway.env.clock.now();
        let lane = route.lane.clone();
        let new = New { write, group, lane, may_go, deadline, memory, waiter };
        let accepted = gateway.writes.queue().accept(gateway.writes.turns(), new).await;
        let Accepted { id, watched, request_progress } =
            accepted.map_err(|not_accepted| match not_accepted {
                NotAccepted::KeyTaken => GatewayError::KeyTaken,
                NotAccepted::Full => gateway.dispatcher.queue_full(
                    ClientId(client),
                    &route.view,
                    route.endpoint.resource.clone(),
                ),
                NotAccepted::Store(fault) => fault.into(),
            })?;
        if terms.is_async {
            request.progress.note(gateway.env.clock.moment(), Happened::Queued(id));
            let mut reply = self.status_reply(id, &request.origin).await?;
            reply.status = StatusCode::ACCEPTED;
            return Ok(reply
                .with(LOCATION, format!("{OWN_WRITES}{id}"))
                .with(PREFERENCE_APPLIED, HeaderValue::from_static("respond-async")));
        }
        // All waiters report the progress of the first request.
        request.progress = request_progress.unwrap_or_default();
        let wait = SyncWait { queue: gateway.writes.queue(), id, watched };
        let outcome = gateway.writes.wait_for_outcome(wait, client, &breaker, &route, deadline);
        let kept =
            self.while_connected(session, request, outcome).await.ok_or(Stop::ClientGone)??;
        // A write has exactly one account, even if it was executed before this request.
        if let [account] = *route.candidates {
            request.progress.answered_by(account);
        }
        Ok(gateway.responder.reply_from_kept(kept, &request.origin))
    }

    /// Answers the status of a client's own write, after an optional wait, or cancels the write.
    pub(super) async fn own_write(
        &self,
        session: &mut Session,
        request: &mut Request,
        ClientRequest { valid, client }: &ClientRequest,
        id: WriteId,
    ) -> Result<Reply, Stop> {
        self.discard_body(session, request, valid).await?;
        let (env, queue) = (&self.gateway.env, self.gateway.writes.queue());
        let entered = self.while_connected(session, request, queue.enter()).await;
        let _using = entered.ok_or(Stop::ClientGone)??;
        // Another client's write must look as if it did not exist.
        let is_own = if let Some(status) = queue.write_status(id) {
            status.client == client.index
        } else {
            let found = queue.look_up(id).await.map_err(not_readable)?;
            found.is_some_and(|found| found.write.client == client.name)
        };
        if !is_own {
            return Err(GatewayError::NoSuchResource.into());
        }
        if valid.method == Method::DELETE {
            return match queue.cancel(id, "its client").await {
                Ok(()) => Ok(Reply::empty(StatusCode::NO_CONTENT)),
                Err(NotChanged::State(state)) => Err(GatewayError::NotQueued(state).into()),
                Err(NotChanged::NoSuchWrite | NotChanged::Full) => {
                    Err(GatewayError::NoSuchResource.into())
                }
                Err(NotChanged::Store(fault)) => Err(not_readable(fault).into()),
            };
        }
        if let Some(wait) = headers::prefer_wait(&request.headers) {
            let until = request.arrival.at + wait.min(client.max_wait);
            tokio::select! {
                () = queue.ended(id) => {}
                () = env.wait_until(until) => {}
                // During a drain no write begins, so none can end.
                () = env.active.drain_begun() => {}
                () = session.left() => return Err(Stop::ClientGone),
            }
        }
        Ok(self.status_reply(id, &request.origin).await?)
    }
}

fn kept_write(
    env: &Environment,
    ClientRequest { valid, client }: &ClientRequest,
    job: &Job,
    terms: &Terms,
) -> Write {
    let body = match &job.request.body {
        OutgoingBody::Whole(body) => body.clone(),
        OutgoingBody::Absent | OutgoingBody::Streamed(_) => Bytes::new(),
    };
    let account = job.route.candidates.first();
    Write {
        id: WriteId { number: 0, salt: 0 },
        client: Arc::clone(&client.name),
        account: account.map_or_else(|| "".into(), |account| Arc::clone(env.shared_name(*account))),
        method: valid.method.clone(),
        address: match valid.service {
            Service::Graphql => Address::Graphql,
            Service::Uploads => Address::Uploads,
            Service::Rest | Service::Weir => Address::Rest,
        },
        shape: if valid.root == Root::V3 { Shape::V3 } else { Shape::Plain },
        path: valid.path.clone(),
        query: valid.query.clone(),
        headers: HeaderMap::clone(&job.request.headers),
        key: terms.key.map(|name| Key { name, meaning: meaning(valid, &body) }),
        body,
        accepted: env.clock.now(),
    }
}

fn idempotency_key(request_headers: &HeaderMap) -> Result<Option<[u8; 32]>, GatewayError> {
    let key = headers::only_value(request_headers, "idempotency-key")
        .map_err(|Repeated| GatewayError::BadKey("there is more than one Idempotency-Key"))?;
    let Some(key) = key.map(HeaderValue::as_bytes) else { return Ok(None) };
    if key.is_empty()
        || key.len() > KEY_BYTES_MAX
        || !key.iter().all(|byte| (b' '..=b'~').contains(byte))
    {
        return Err(GatewayError::BadKey(
            "an Idempotency-Key has 1 to 255 printable ASCII characters",
        ));
    }
    Ok(Some(digest(key)))
}

/// The digest that a repeated `Idempotency-Key` must match: method, path and body.
fn meaning(valid: &ValidRequest, body: &[u8]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    // Neither contains a zero byte.
    for part in
        [valid.method.as_str(), "\0", service_name(valid.service), "\0", &valid.target(), "\0"]
    {
        context.update(part.as_bytes());
    }
    context.update(body);
    let mut meaning = [0; 32];
    meaning.copy_from_slice(context.finish().as_ref());
    meaning
}

fn service_name(service: Service) -> &'static str {
    match service {
        Service::Rest | Service::Weir => "rest",
        Service::Graphql => "graphql",
        Service::Uploads => "uploads",
    }
}
