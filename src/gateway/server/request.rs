//! A request between its head and its answer, on the fast path as in a session. Left out:
//! everything that waits, and the bytes of a connection.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use http::header::{USER_AGENT, VIA};
use http::{HeaderMap, HeaderValue, Method, Uri, Version};

use crate::api::Endpoint;
use crate::clock::{Moment, Timestamp};
use crate::decision::{AccountId, Mode};
use crate::gateway::active::ActiveGuard;
use crate::gateway::address::decode_unreserved;
use crate::gateway::assembly::Gateway;
use crate::gateway::cache::lookup::ReadAnswer;
use crate::gateway::dispatch::progress::{CancelOutcome, RequestProgress};
use crate::gateway::dispatch::{job::ClientCredential, route::Route};
use crate::gateway::environment::Environment;
use crate::gateway::error::GatewayError;
use crate::gateway::http::headers::{self, Passing};
use crate::gateway::http::interim::Interims;
use crate::gateway::random;
use crate::gateway::request::{
    clients::{Client, Identified},
    forwarded,
    validate::ValidRequest,
};
use crate::gateway::response::{form::Form, render::Content, reply::Reply};
use crate::gateway::server::header_memo;
use crate::gateway::url_rewrite::map::Origin;
use crate::telemetry::spans::{self, ClientCall, TraceSpan};
use crate::telemetry::{MethodName, Outcome};
use crate::writes::WriteId;

/// The facts about a request that its connection tells.
#[derive(Clone, Copy)]
pub(super) struct Transport {
    /// `http` or `https`.
    pub(super) scheme: &'static str,
    pub(super) version: Version,
    /// The address of the other end, or the one that the PROXY protocol names; `None` on a Unix
    /// socket.
    pub(super) client_address: Option<IpAddr>,
}

/// A request and the results of its stages; becomes its outcome, also if a task drops it.
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) headers: Arc<HeaderMap>,
    pub(super) origin: Origin,
    pub(super) arrival: Arrival,
    pub(super) outcome: Outcome,
    pub(super) progress: RequestProgress,
    pub(super) span: TraceSpan,
    pub(super) body: Body,
    pub(super) interims: Option<Arc<Interims>>,
    /// The `X-Request-Id` of the client, or a generated one.
    pub(super) id: HeaderValue,
    pub(super) identity: Identity,
    pub(super) routed: Option<Routed>,
}

/// The arrival of a request. It obliges the gateway to record an outcome.
pub(super) struct Arrival {
    pub(super) at: Timestamp,
    /// The same, to measure the duration of the request.
    pub(super) moment: Moment,
    pub(super) env: Arc<Environment>,
    pub(super) is_recorded: bool,
    /// Goes where the request goes, so that a drain waits for every stage.
    _active: ActiveGuard,
}

impl Arrival {
    fn now(env: &Arc<Environment>) -> Self {
        Self {
            at: env.clock.now(),
            moment: env.clock.moment(),
            env: Arc::clone(env),
            is_recorded: false,
            _active: env.active.enter(),
        }
    }
}

/// The facts that a request's headers alone decide: its client, a credential of the client's own,
/// and the headers that go upstream.
#[derive(Default)]
pub(super) struct Identity {
    pub(super) client: Option<Arc<Client>>,
    /// The client with the end of its credential, unless `known` has it.
    pub(super) identified: Option<Identified>,
    /// Set if the connection's previous request had the same header lines.
    pub(super) known: Option<Arc<header_memo::KnownHeaders>>,
    /// The headers that go upstream, where `known` does not have them.
    to_upstream: OnceLock<Arc<HeaderMap>>,
    /// The client's own upstream credential; in use, it keeps its dynamic account.
    pub(super) client_credential: Option<Arc<ClientCredential>>,
}

/// The parts of a request's route that its answer depends on.
pub(super) struct Routed {
    pub(super) endpoint: &'static Endpoint,
    /// The accounts whose budget the client sees.
    pub(super) view: Arc<[AccountId]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// There is none, or it was read, or it broke off.
    Settled,
    /// The request was answered before its body was read.
    Unread,
}

/// A valid request and its client.
pub(super) struct ClientRequest {
    pub(super) valid: ValidRequest,
    pub(super) client: Arc<Client>,
}

/// A request that its client may send, and its route.
pub(super) struct RoutedRequest {
    pub(super) from: ClientRequest,
    pub(super) route: Route,
}

pub(super) enum Classification {
    /// The answer is known already.
    Answered(Box<Content>),
    /// A webhook delivery, which carries no client key.
    Delivery(Box<ValidRequest>),
    Read(Box<RoutedRequest>),
    Write(Box<RoutedRequest>),
    /// GraphQL: the route depends on the body.
    Graphql(Box<ClientRequest>),
    /// The status or cancellation of an accepted write.
    OwnWrite(Box<ClientRequest>, WriteId),
}

impl Classification {
    /// An answer that the gateway has made itself.
    pub(super) fn made(reply: Reply) -> Self {
        Self::Answered(Box::new(Content::Made(reply)))
    }
}

impl Request {
    pub(super) fn new(
        gateway: &Gateway,
        transport: Transport,
        method: Method,
        target: &Uri,
        headers: Arc<HeaderMap>,
    ) -> Self {
        let id = headers::request_id(&headers).cloned().unwrap_or_else(random::request_id);
        // Decoded first, because the log redacts keys by their spelling.
        let path = decode_unreserved(target.path());
        let mut outcome = Outcome::new(&method, &path, id.to_str().unwrap_or_default());
        let span = spans::server_span(&ClientCall {
            headers: &headers,
            method: MethodName::from(&method),
            scheme: transport.scheme,
            server_address: gateway.downstream.server_address(),
            query: target.query(),
        });
        let listen = &gateway.env.config.listen;
        outcome.client_address = match transport.client_address {
            // The PROXY protocol has named the client before.
            Some(peer) if !listen.proxy_protocol && !listen.trusted_proxies.is_empty() => {
                Some(forwarded::client(peer, &headers, &listen.trusted_proxies))
            }
            address => address,
        };
        outcome.version = transport.version;
        outcome.user_agent = headers.get(USER_AGENT).cloned();
        outcome.scheme = transport.scheme;
        outcome.trace = spans::trace(&span, &headers);
        let origin = gateway.downstream.unknown_origin();
        Self {
            method,
            headers,
            origin,
            arrival: Arrival::now(&gateway.env),
            outcome,
            progress: RequestProgress::default(),
            span,
            body: Body::Settled,
            interims: None,
            id,
            identity: Identity::default(),
            routed: None,
        }
    }

    pub(super) fn routed(&mut self, route: &Route) {
        self.outcome.endpoint = &route.endpoint.template;
        self.routed = Some(Routed { endpoint: route.endpoint, view: Arc::clone(&route.view) });
    }

    /// The headers that go upstream, made once. Cache key and `Vary` are evaluated on them too.
    pub(super) fn to_upstream(&self, env: &Environment) -> &Arc<HeaderMap> {
        let known = self.identity.known.as_ref().map(|known| &known.to_upstream);
        known.unwrap_or(&self.identity.to_upstream).get_or_init(|| {
            let dialect = env.config.upstream.dialect;
            let is_read = matches!(self.method, Method::GET | Method::HEAD);
            let passing = if is_read { Passing::Read(env.mode) } else { Passing::Write };
            let mut headers = headers::to_upstream(&self.headers, passing, dialect);
            headers::complete(&mut headers, dialect);
            if env.mode == Mode::Rfc9111 {
                headers.insert(VIA, headers::VIA_WEIR);
            }
            if is_read {
                headers::spell_accept(&mut headers, dialect);
            }
            Arc::new(headers)
        })
    }

    /// Adopts the progress and the result of a read's fetch; no result: the client has left.
    pub(super) fn fetched(
        &mut self,
        progress: RequestProgress,
        answered: Option<Result<ReadAnswer, GatewayError>>,
    ) -> Result<ReadAnswer, Stop> {
        self.progress = progress;
        let answered = answered.ok_or(Stop::ClientGone)??;
        self.outcome.cache = answered.outcome();
        Ok(answered)
    }

    /// Ends the wait for an answer with the drain. Returns the error for the client. A request that
    /// is not on its way is not sent any more, and one that can change nothing may be repeated.
    pub(super) fn cut_short(&self) -> GatewayError {
        let is_on_wire = self.progress.cancel() == CancelOutcome::OnWire;
        let may_have_run = is_on_wire || self.progress.was_sent();
        if may_have_run && !self.method.is_safe() {
            GatewayError::MayBeKept
        } else {
            GatewayError::Draining
        }
    }

    /// Marks an answer that the gateway broke off.
    pub(super) fn cut_off(&mut self, reason: &'static str) {
        self.outcome.refusal = Some(reason);
    }

    pub(super) fn form(&self) -> Form<'_> {
        Form { method: &self.method, headers: &self.headers, origin: &self.origin }
    }
}

/// The result of the fast path for a request that needs a framework session.
pub(super) struct Known {
    /// Has no body. Either its answer is known already, or no stored answer serves it.
    pub(super) request: Request,
    pub(super) classified: Result<Classification, GatewayError>,
}

/// The reason why a request ends without a reply.
pub(super) enum Stop {
    Error(GatewayError),
    ClientGone,
}

impl From<GatewayError> for Stop {
    fn from(error: GatewayError) -> Self {
        Self::Error(error)
    }
}
