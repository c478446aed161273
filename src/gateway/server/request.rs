//! A request between its head and its answer: what is found out about it without waiting, what
//! every answer carries, and the one place where it is concluded.
//!
//! Both ways to a client go through here, the framework's sessions (`service.rs`) and the hits that
//! are answered before one is made (`hit.rs`), so that there is one set of rules. Left out:
//! whatever waits, and bytes on a connection.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method};

use crate::api::{Dialect, Endpoint};
use crate::clock::Timestamp;
use crate::decision::AccountId;
use crate::telemetry::{MethodName, Outcome, spans};
use crate::writes::WriteId;

use crate::gateway::address::decode_unreserved;
use crate::gateway::assembly::Gateway;
use crate::gateway::dispatch::client_credential::ClientCredential;
use crate::gateway::dispatch::progress::RequestProgress;
use crate::gateway::dispatch::route::Route;
use crate::gateway::error::GatewayError;
use crate::gateway::http::headers;
use crate::gateway::http::interim::Interims;
use crate::gateway::random;
use crate::gateway::request::clients::Client;
use crate::gateway::request::validate::ValidRequest;
use crate::gateway::response::form::Form;
use crate::gateway::response::render::Content;
use crate::gateway::server::header_memo;
use crate::gateway::url_rewrite::map::Origin;

/// A request as its stages learn about it; becomes its outcome.
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) asked: Arc<HeaderMap>,
    pub(super) origin: Origin,
    pub(super) arrived: Timestamp,
    pub(super) outcome: Outcome,
    pub(super) progress: RequestProgress,
    pub(super) span: tracing::Span,
    pub(super) body: Body,
    /// What is to be passed on before its answer.
    pub(super) interims: Option<Arc<Interims>>,
    /// The `X-Request-Id`, kept or made.
    pub(super) id: HeaderValue,
    pub(super) identity: Identity,
    pub(super) routed: Option<Routed>,
}

/// Whose request it is.
#[derive(Default)]
pub(super) struct Identity {
    pub(super) client: Option<Arc<Client>>,
    /// What is known of its header lines, where the connection has said them before.
    pub(super) known: Option<Arc<header_memo::KnownHeaders>>,
    /// The client's own upstream credential; what of it is under way keeps its place in the books.
    pub(super) client_credential: Option<Arc<ClientCredential>>,
}

/// The route of a request, as far as its answer tells of it.
pub(super) struct Routed {
    pub(super) endpoint: &'static Endpoint,
    /// The accounts whose budget the client is told about.
    pub(super) view: Arc<[AccountId]>,
}

/// What has become of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// There is none, or it was read, or it broke off.
    Settled,
    /// A well-formed request was answered without it.
    Unread,
}

/// A request that is well-formed and allowed.
pub(super) struct Allowed {
    pub(super) valid: ValidRequest,
    pub(super) client: Arc<Client>,
    pub(super) task: Task,
}

/// What an allowed request is.
pub(super) enum Task {
    /// GraphQL, whose route depends on its body.
    Graphql,
    /// A GET or HEAD.
    Read(Route),
    /// Anything else.
    Write(Route),
    /// A look at a write that was accepted, or its cancellation.
    Own(WriteId),
}

/// What is known of a request before anything is waited for.
pub(super) enum Classification {
    /// The gateway answers it from what it knows.
    Answered(Box<Content>),
    /// The upstream's own, which has no key.
    Delivery(Box<ValidRequest>),
    /// It is to be carried out.
    Allowed(Box<Allowed>),
}

impl Request {
    /// A request of which only the head is known.
    pub(super) fn new(
        gateway: &Gateway,
        method: Method,
        path: &str,
        asked: Arc<HeaderMap>,
    ) -> Self {
        let id = headers::request_id(&asked).cloned().unwrap_or_else(random::request_id);
        // Decoded first: an encoded key must look like one to what keeps keys out of the log.
        let outcome =
            Outcome::new(&method, &decode_unreserved(path), id.to_str().unwrap_or_default());
        let span = spans::server_span(
            &asked,
            MethodName::from(&method),
            gateway.downstream.server_address(),
        );
        let origin = gateway.downstream.unknown_origin();
        Self {
            method,
            asked,
            origin,
            arrived: gateway.env.clock.now(),
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

    /// Its route is known.
    pub(super) fn routed(&mut self, route: &Route) {
        self.outcome.endpoint = &route.endpoint.template;
        self.routed = Some(Routed { endpoint: route.endpoint, view: Arc::clone(&route.view) });
    }

    /// Its header lines as they go upstream.
    pub(super) fn to_upstream(&self, dialect: Dialect) -> Arc<HeaderMap> {
        let make = || {
            let is_read = matches!(self.method, Method::GET | Method::HEAD);
            let mut headers = headers::to_upstream(&self.asked, is_read);
            headers::complete(&mut headers, dialect);
            if is_read {
                headers::spell_accept(&mut headers, dialect);
            }
            Arc::new(headers)
        };
        self.identity
            .known
            .as_ref()
            .map_or_else(make, |known| Arc::clone(known.to_upstream.get_or_init(make)))
    }

    /// How its answer is to look.
    pub(super) fn form(&self) -> Form<'_> {
        Form { method: &self.method, asked: &self.asked, origin: &self.origin }
    }
}

/// What was found out about a request before the framework's session had read it.
pub(super) struct Known {
    /// It has no body, and either nothing stored answers it or its answer is known.
    pub(super) request: Request,
    /// What became of it so far.
    pub(super) sorted: Result<Classification, GatewayError>,
}

/// Why a request ends without a reply.
pub(super) enum Stop {
    Error(GatewayError),
    ClientGone,
}

impl From<GatewayError> for Stop {
    fn from(refused: GatewayError) -> Self {
        Self::Error(refused)
    }
}
