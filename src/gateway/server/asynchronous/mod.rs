//! Writes that are accepted instead of waited for, and those with an `Idempotency-Key`: what
//! clients say about them, and what they are told (CONTRACT §3; RFC 7240).
//!
//! What becomes of such a write is decided in `queue/`; here it is put into HTTP. A write with a
//! key whose client waits goes through the same queue, so that a repetition finds it, also after a
//! crash. What must not be kept is told in [`credentials`]; the JSON of the status resource is in
//! [`told`].

mod credentials;
mod told;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use pingora::protocols::http::ServerSession;
use ring::digest::{Context, SHA256};

use crate::api::{GraphqlRequest, OperationKey};
use crate::clock::Timestamp;
use crate::config::digest;
use crate::decision::access::permitted;
use crate::decision::permissions::Asked;
use crate::decision::{AccountId, WriteSpacing};
use crate::telemetry::CacheOutcome;
use crate::writes::record::{Address, Key, Shape};
use crate::writes::{StoreError, Write, WriteId, WriteState};

use crate::gateway::Gateway;
use crate::gateway::address::{Root, Service};
use crate::gateway::counted::Counted;
use crate::gateway::dispatch::job::Job;
use crate::gateway::dispatch::route::Route;
use crate::gateway::error::Refused;
use crate::gateway::http::headers;
use crate::gateway::request::clients::{Client, Clients};
use crate::gateway::request::validate::{BodyFraming, Intake};
use crate::gateway::response::reply::{Reply, ReplyBody};
use crate::gateway::server::interims::gone;
use crate::gateway::server::request::Request;
use crate::gateway::server::session::Door;
use crate::gateway::server::stages::Stop;
use crate::gateway::upstream::fetch::OutgoingBody;
use crate::gateway::url_rewrite::map::Origin;
use crate::gateway::write::queue::{
    Accepted, Asker, Class, Journal, New, NotAccepted, NotChanged, PATIENCE, Queue, Repetition,
    Watched,
};
use credentials::carries_credential;

/// The status resource, as metrics name it.
pub(super) const OWN_WRITE: &str = "/_weir/writes/{id}";
const OWN_WRITES: &str = "/_weir/writes/";
/// How long an `Idempotency-Key` may be. Ours: several times a UUID, as other services have it.
const KEY_BYTES_MAX: usize = 255;
/// The header of RFC 7240 §3.
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// What a client says about how a write is to be taken.
pub(super) struct Terms {
    is_async: bool,
    /// The digest of its `Idempotency-Key`.
    pub(super) key: Option<[u8; 32]>,
}

/// Why a write is not tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotRetried {
    /// The queue does not take it.
    NotChanged(NotChanged),
    /// The config has no place for it any more; with the reason.
    NotAllowed(String),
}

impl From<NotChanged> for NotRetried {
    fn from(why: NotChanged) -> Self {
        Self::NotChanged(why)
    }
}

/// Counts as one who waits for a write, until it is dropped.
struct Attending<'q> {
    queue: &'q Arc<Queue>,
    id: WriteId,
    watched: Option<Arc<Watched>>,
}

impl Drop for Attending<'_> {
    fn drop(&mut self) {
        self.queue.left(self.id);
    }
}

impl Terms {
    /// `None`: like any other. What cannot be taken on a client's terms is refused where it would
    /// be unsafe to overlook them; a preference may be overlooked (RFC 7240 §2).
    pub(super) fn of(
        request: &Request,
        route: &Route,
        query: Option<&str>,
        clients: &Clients,
    ) -> Result<Option<Self>, Refused> {
        if route.spacing == WriteSpacing::None {
            return Ok(None);
        }
        let key = idempotency_key(&request.asked)?;
        // Nothing of a credential is kept: neither one that a client brings, nor one that the
        // upstream makes.
        let is_kept = request.brought.is_none()
            && !carries_credential(route.endpoint, &request.asked, query, clients);
        if key.is_some() && !is_kept {
            return Err(Refused::BadKey(
                "an Idempotency-Key cannot be used where a credential is brought or made",
            ));
        }
        let is_async = is_kept && headers::prefers_async(&request.asked);
        Ok((is_async || key.is_some()).then_some(Self { is_async, key }))
    }
}

impl Door {
    /// Gives a write to the queue, and answers with where it stands or, to a client that waits,
    /// with what came of it.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of one request, as the stages before have found them"
    )]
    pub(super) async fn hand_over(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        client: &Client,
        intake: &Intake,
        route: &Route,
        job: Job,
        terms: Terms,
    ) -> Result<Reply, Stop> {
        request.outcome.cache = CacheOutcome::Bypass;
        let gateway = &self.gateway;
        let deadline = if terms.is_async { gateway.clock.now() + PATIENCE } else { job.deadline };
        let write = gateway.kept_write(client, intake, route, &job, &terms);
        let class = Class {
            client: client.index,
            content: route.content,
            resource: route.endpoint.resource.clone(),
        };
        let Job { memory, view, .. } = job;
        let asker = (!terms.is_async).then(|| {
            let waits = gateway.waiting.get(client.index as usize).map(Counted::new);
            Box::new(Asker::new(
                request.effort.clone(),
                request.span.clone(),
                request.interims.clone(),
                waits,
            ))
        });
        let new = New { write, class, lane: route.lane.clone(), deadline, memory, asker };
        let accepted = gateway.queue.accept(&gateway.turns, new).await;
        let Accepted { id, watched, effort } = accepted.map_err(|refused| match refused {
            NotAccepted::KeyTaken => Refused::KeyTaken,
            NotAccepted::Full => gateway.queue_full(&view, route.endpoint.resource.clone()),
            NotAccepted::Store(fault) => fault.into(),
        })?;
        if terms.is_async {
            let mut reply = gateway.standing_reply(id, &request.origin).await?;
            reply.status = StatusCode::ACCEPTED;
            return Ok(reply
                .with(LOCATION, format!("{OWN_WRITES}{id}"))
                .with(PREFERENCE_APPLIED, HeaderValue::from_static("respond-async")));
        }
        // Whoever asked first: all who wait for it are told what it costs.
        request.effort = effort.unwrap_or_default();
        let attending = Attending { queue: &gateway.queue, id, watched };
        let attended = gateway.attended(attending, route, &view, deadline, &request.origin);
        let reply = self
            .while_there(session, &request.origin, request.interims.clone(), attended)
            .await
            .ok_or(Stop::ClientGone)??;
        // A write has one account that may carry it; also one that was carried out before this
        // request.
        if let [account] = *route.candidates {
            request.effort.answered_by(account);
        }
        Ok(reply)
    }

    /// Where a client's own write stands, after a while if it likes; or its cancellation.
    pub(super) async fn own_write(
        &self,
        session: &mut ServerSession,
        request: &mut Request,
        client: &Client,
        intake: &Intake,
        id: WriteId,
    ) -> Result<Reply, Stop> {
        self.whole_body(
            session,
            request,
            intake,
            crate::gateway::server::stages::IDLE_BODY_BYTES_MAX,
        )
        .await?;
        let gateway = &self.gateway;
        // Others' writes are as if they were not.
        if gateway.queue.standing(id).is_none_or(|standing| standing.client != client.index) {
            return Err(Refused::NoSuchResource.into());
        }
        if intake.method == Method::DELETE {
            return match gateway.queue.cancel(id, "its client").await {
                Ok(()) => Ok(Reply::empty(StatusCode::NO_CONTENT)),
                Err(NotChanged::State(state)) => Err(Refused::NotQueued(state).into()),
                Err(NotChanged::NoSuchWrite | NotChanged::Full) => {
                    Err(Refused::NoSuchResource.into())
                }
                Err(NotChanged::Store(fault)) => Err(not_readable(fault).into()),
            };
        }
        if let Some(wait) = headers::prefer_wait(&request.asked) {
            let until = request.arrived + wait.min(client.max_wait);
            tokio::select! {
                () = gateway.queue.ended(id) => {}
                () = gateway.wait_until(until) => {}
                // Nothing begins any more that could end it.
                () = gateway.active.drain_begun() => {}
                () = gone(session) => return Err(Stop::ClientGone),
            }
        }
        Ok(gateway.standing_reply(id, &request.origin).await?)
    }
}

impl Gateway {
    /// The write that a request of the gateway's own is about.
    pub(super) fn own_write(intake: &Intake) -> Option<WriteId> {
        let id = intake.path.strip_prefix(OWN_WRITES)?;
        matches!(intake.method, Method::GET | Method::HEAD | Method::DELETE)
            .then(|| id.parse().ok())
            .flatten()
    }

    /// What is kept of a request. Its name comes later.
    fn kept_write(
        &self,
        client: &Client,
        intake: &Intake,
        route: &Route,
        job: &Job,
        terms: &Terms,
    ) -> Write {
        let body = match &job.body {
            OutgoingBody::Whole(body) => body.clone(),
            OutgoingBody::Absent | OutgoingBody::Streamed(_) => Bytes::new(),
        };
        let headers = HeaderMap::clone(&job.headers);
        let account = route
            .candidates
            .first()
            .map_or_else(|| "".into(), |account| Arc::clone(self.shared_name(*account)));
        Write {
            id: WriteId { number: 0, salt: 0 },
            client: Arc::clone(&client.name),
            account,
            method: intake.method.clone(),
            address: match intake.service {
                Service::Graphql => Address::Graphql,
                Service::Uploads => Address::Uploads,
                Service::Rest | Service::Weir => Address::Rest,
            },
            shape: if intake.root == Root::V3 { Shape::V3 } else { Shape::Plain },
            path: intake.path.clone(),
            query: intake.query.clone(),
            headers,
            key: terms.key.map(|name| Key { name, meaning: meaning(intake, &body) }),
            body,
            accepted: self.clock.now(),
        }
    }

    /// What came of a write that somebody waits for.
    async fn attended(
        &self,
        attending: Attending<'_>,
        route: &Route,
        view: &Arc<[AccountId]>,
        deadline: Timestamp,
        origin: &Origin,
    ) -> Result<Reply, Refused> {
        let id = attending.id;
        let ended = self.queue.attend(id, attending.watched.as_deref());
        tokio::pin!(ended);
        let refused = tokio::select! {
            biased;
            refused = &mut ended => refused,
            () = self.wait_until(deadline) => {
                if self.queue.standing(id).is_some_and(|standing| standing.state == WriteState::Queued) {
                    let resource = route.endpoint.resource.clone();
                    return Err(self.turn_did_not_come(view, resource, route.spacing, self.queue.ahead(id)));
                }
                // It is on its way.
                ended.await
            }
        };
        if let Some(refused) = refused {
            return Err(refused);
        }
        let Some(progress) = self.queue.outcome(id).await.map_err(not_readable)? else {
            return Err(Refused::NotReadable);
        };
        match (progress.state, progress.response, progress.reason) {
            (WriteState::Done | WriteState::Failed, Some(response), _) => {
                Ok(self.reply_from_kept(*response, origin))
            }
            (WriteState::Unknown, ..) => Err(Refused::OutcomeUnknown),
            (_, _, Some(reason)) => Err(Refused::Ended(reason)),
            _ => Err(Refused::OutcomeUnknown),
        }
    }

    /// A queued write as something to send.
    pub fn queued_job(
        &self,
        write: &Write,
        deadline: Timestamp,
        journal: Arc<Journal>,
    ) -> Result<(Job, Option<OperationKey>), Refused> {
        let asked = (write.address == Address::Graphql).then(|| {
            GraphqlRequest::read(&write.method, write.query.as_deref(), &write.headers, &write.body)
        });
        let (route, client) = self.queued_route(write, asked.as_ref())?;
        let is_bodiless = matches!(write.method, Method::GET | Method::HEAD);
        let job = Job {
            endpoint: route.endpoint,
            service: service_of(write.address),
            method: write.method.clone(),
            target: write.target(),
            headers: Arc::new(write.headers.clone()),
            body: if is_bodiless {
                OutgoingBody::Absent
            } else {
                OutgoingBody::Whole(write.body.clone())
            },
            client,
            cost: route.cost,
            points: route.points,
            content: route.content,
            spacing: route.spacing,
            candidates: Arc::clone(&route.candidates),
            asked: Asked::of(route.endpoint, &write.path),
            deadline,
            hold_max: self.hold_max(),
            view: Arc::clone(&route.view),
            span: tracing::Span::none(),
            memory: None,
            brought: None,
            journal: Some(journal),
            interims: None,
        };
        Ok((job, asked.and_then(|asked| asked.priced)))
    }

    /// The route of a queued write by the config in force, and its client's place in it.
    pub fn queued_route(
        &self,
        write: &Write,
        graphql: Option<&GraphqlRequest>,
    ) -> Result<(Route, u32), Refused> {
        let gone = |what: String| {
            Refused::NoToken(format!("since it was accepted, {what} the gateway's config"))
        };
        let client = self
            .clients
            .named(&write.client)
            .ok_or_else(|| gone(format!("the client {} was taken out of", write.client)))?;
        let own = client.account.map(|account| self.account_name(account));
        if own != Some(&*write.account) {
            return Err(gone(format!(
                "the client {} writes for {} no more by",
                write.client, write.account
            )));
        }
        if !permitted(&client.allow, &write.method, &write.path) {
            return Err(Refused::NotAllowed);
        }
        let intake = Intake {
            method: write.method.clone(),
            root: if write.shape == Shape::V3 { Root::V3 } else { Root::Plain },
            service: service_of(write.address),
            path: write.path.clone(),
            query: write.query.clone(),
            host: String::new(),
            body: BodyFraming::None,
        };
        let route = match (write.address, graphql) {
            (Address::Graphql, Some(asked)) => self.graphql_route(client, asked, None)?,
            (Address::Graphql, None) => {
                self.graphql_route(client, &GraphqlRequest::UNCLEAR, None)?
            }
            _ => self.route(self.classify(&intake), &intake, client, None)?,
        };
        Ok((route, client.index))
    }

    /// Tries a write again that has ended without being done (CONTRACT §5): where and for whom the
    /// config in force says.
    pub async fn retry_write(&self, id: WriteId, repetition: Repetition) -> Result<(), NotRetried> {
        let listed = self
            .queue
            .look_up(id)
            .await
            .map_err(NotChanged::Store)?
            .ok_or(NotChanged::NoSuchWrite)?;
        let (route, _) = self
            .queued_route(&listed.write, None)
            .map_err(|refused| NotRetried::NotAllowed(refused.as_reason().message))?;
        Ok(self.queue.retry(&self.turns, &route.lane, id, repetition).await?)
    }

    /// The status resource.
    async fn standing_reply(&self, id: WriteId, origin: &Origin) -> Result<Reply, Refused> {
        let listed =
            self.queue.look_up(id).await.map_err(not_readable)?.ok_or(Refused::NoSuchResource)?;
        let again = (!listed.progress.state.is_final()).then(|| {
            let wait = listed.progress.not_before.since(self.clock.now()).as_secs();
            HeaderValue::from(wait.clamp(1, 60))
        });
        let mut reply = Reply::empty(StatusCode::OK);
        reply
            .headers
            .insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
        reply.headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        reply.headers.extend(again.map(|again| (RETRY_AFTER, again)));
        reply.body = ReplyBody::Whole(self.told(listed, Some(origin)));
        Ok(reply)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "what `map_err` hands over")]
fn not_readable(fault: StoreError) -> Refused {
    tracing::error!(error = %fault, "what became of a write cannot be told");
    Refused::NotReadable
}

fn service_of(address: Address) -> Service {
    match address {
        Address::Rest => Service::Rest,
        Address::Graphql => Service::Graphql,
        Address::Uploads => Service::Uploads,
    }
}

/// The digest of the client's `Idempotency-Key`.
fn idempotency_key(asked: &HeaderMap) -> Result<Option<[u8; 32]>, Refused> {
    let mut values = asked.get_all("idempotency-key").iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(Refused::BadKey("there is more than one Idempotency-Key"));
    }
    let key = value.as_bytes();
    if key.is_empty()
        || key.len() > KEY_BYTES_MAX
        || !key.iter().all(|byte| (b' '..=b'~').contains(byte))
    {
        return Err(Refused::BadKey("an Idempotency-Key has 1 to 255 printable ASCII characters"));
    }
    Ok(Some(digest(key)))
}

/// What an `Idempotency-Key` is compared by: method, path and body.
fn meaning(intake: &Intake, body: &[u8]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    // Neither has a zero in it.
    for part in
        [intake.method.as_str(), "\0", service_name(intake.service), "\0", &intake.target(), "\0"]
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
