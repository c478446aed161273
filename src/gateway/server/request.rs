//! A request between its head and its answer: what is found out about it without waiting, what
//! every answer carries, and the one place where it is concluded.
//!
//! Both ways to a client go through here, the framework's sessions (`service.rs`) and the hits that
//! are answered before one is made (`hit.rs`), so that there is one set of rules. Left out:
//! whatever waits, and bytes on a connection.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::api::{Dialect, Endpoint, ResourceName};
use crate::clock::Timestamp;
use crate::decision::AccountId;
use crate::decision::access::permitted;
use crate::telemetry::{CacheOutcome, LogText, MethodName, Outcome, log, spans};
use crate::writes::WriteId;

use crate::gateway::Gateway;
use crate::gateway::address::{Service, decode_unreserved};
use crate::gateway::cache::lookup::Sought;
use crate::gateway::cache::store::Entry;
use crate::gateway::dispatch::client_credential::Brought;
use crate::gateway::dispatch::progress::Effort;
use crate::gateway::dispatch::route::Route;
use crate::gateway::error::Refused;
use crate::gateway::http::headers;
use crate::gateway::http::interim::Interims;
use crate::gateway::random;
use crate::gateway::request::clients::Client;
use crate::gateway::request::validate::Intake;
use crate::gateway::response::budget_headers::RateView;
use crate::gateway::response::error::render_error;
use crate::gateway::response::form::Form;
use crate::gateway::response::gateway_headers::Added;
use crate::gateway::response::gateway_headers::add_gateway_headers;
use crate::gateway::response::local_pages::{public_page, rate_limit};
use crate::gateway::response::reply::Reply;
use crate::gateway::server::asynchronous::OWN_WRITE;
use crate::gateway::server::asynchronous::own_write_id;
use crate::gateway::server::deliveries::is_delivery;
use crate::gateway::server::header_memo;
use crate::gateway::server::session::Door;
use crate::gateway::url_rewrite::map::Origin;

/// A request as its stages learn about it; becomes its outcome.
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) asked: Arc<HeaderMap>,
    pub(super) origin: Origin,
    pub(super) arrived: Timestamp,
    pub(super) outcome: Outcome,
    pub(super) effort: Effort,
    pub(super) client: Option<Arc<Client>>,
    /// What is known of its header lines, where the connection has said them before.
    pub(super) known: Option<Arc<header_memo::Known>>,
    /// The client's own upstream credential; what of it is under way keeps its place in the books.
    pub(super) brought: Option<Arc<Brought>>,
    pub(super) span: tracing::Span,
    pub(super) body: Body,
    /// What is to be passed on before its answer.
    pub(super) interims: Option<Arc<Interims>>,
    /// The `X-Request-Id`, kept or made.
    id: HeaderValue,
    endpoint: Option<&'static Endpoint>,
    /// Whose budget the client is told about.
    view: Option<Arc<[AccountId]>>,
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
    pub(super) intake: Intake,
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
pub(super) enum Sorted {
    /// The gateway answers it from what it knows.
    Answered(Box<Reply>),
    /// The upstream's own, which has no key.
    Delivery(Box<Intake>),
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
            effort: Effort::default(),
            client: None,
            known: None,
            brought: None,
            span,
            body: Body::Settled,
            interims: None,
            id,
            endpoint: None,
            view: None,
        }
    }

    /// Its route is known.
    pub(super) fn routed(&mut self, route: &Route) {
        self.outcome.endpoint = &route.endpoint.template;
        self.endpoint = Some(route.endpoint);
        self.view = Some(Arc::clone(&route.view));
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
        self.known
            .as_ref()
            .map_or_else(make, |known| Arc::clone(known.to_upstream.get_or_init(make)))
    }

    /// How its answer is to look.
    pub(super) fn form(&self) -> Form<'_> {
        Form { method: &self.method, asked: &self.asked, origin: &self.origin }
    }
}

impl Door {
    /// The stages that wait for nothing: who asks, what for, and may they?
    pub(super) fn sort(&self, request: &mut Request, intake: Intake) -> Result<Sorted, Refused> {
        let gateway = &self.gateway;
        request.origin = gateway.downstream.origin(self.scheme, &intake);
        if gateway.env.is_draining() {
            return Err(Refused::Draining);
        }
        // What anyone may ask.
        if intake.method == Method::OPTIONS {
            let reply =
                Reply { headers: headers::preflight(), ..Reply::empty(StatusCode::NO_CONTENT) };
            return Ok(Sorted::Answered(Box::new(reply)));
        }
        if let Some(page) =
            (intake.service == Service::Weir).then(|| public_page(&intake.path)).flatten()
        {
            return Ok(Sorted::Answered(Box::new(page)));
        }
        if intake.service == Service::Weir && is_delivery(&intake) {
            return Ok(Sorted::Delivery(Box::new(intake)));
        }
        // Who asks, and may they?
        let client = match &request.known {
            Some(known) => Arc::clone(&known.client),
            None => Arc::clone(
                gateway
                    .router
                    .clients()
                    .identify(&request.asked)
                    .map_err(Refused::Unauthenticated)?,
            ),
        };
        request.outcome.client = Some(Arc::clone(&client.name));
        request.client = Some(Arc::clone(&client));
        if intake.service == Service::Weir {
            let id = own_write_id(&intake).ok_or(Refused::NoSuchResource)?;
            request.outcome.endpoint = OWN_WRITE;
            return Ok(Sorted::Allowed(Box::new(Allowed { intake, client, task: Task::Own(id) })));
        }
        if !permitted(&client.allow, &intake.method, &intake.path) {
            return Err(Refused::NotAllowed);
        }
        let is_read = matches!(intake.method, Method::GET | Method::HEAD);
        request.brought = gateway.router.brought(&client, &request.asked, is_read)?;
        let brought = request.brought.as_deref();
        if is_read && intake.path == "/rate_limit" {
            request.outcome.endpoint = "/rate_limit";
            return Ok(Sorted::Answered(Box::new(rate_limit(
                &gateway.dispatcher,
                &gateway.router.view_for(&client, brought, true),
            ))));
        }
        // Without a query, a GET is for the schema: a read like any other.
        let task = if intake.service == Service::Graphql
            && !(is_read && intake.query.as_deref().is_none_or(str::is_empty))
        {
            Task::Graphql
        } else {
            let classified = gateway.router.classify(&intake);
            request.outcome.endpoint = &classified.endpoint.template;
            let route = gateway.router.route(classified, &intake, &client, brought)?;
            request.routed(&route);
            if is_read { Task::Read(route) } else { Task::Write(route) }
        };
        Ok(Sorted::Allowed(Box::new(Allowed { intake, client, task })))
    }

    /// What answers a read that need not be asked of the upstream; else what there is to ask with.
    pub(super) fn stored(
        &self,
        request: &mut Request,
        intake: &Intake,
        route: &Route,
        now: Timestamp,
    ) -> Result<Arc<Entry>, Sought> {
        let _looking = spans::cache_span(&request.span).entered();
        let entry = self.gateway.cache.fresh(route.scope, intake, &request.asked, now)?;
        request.outcome.cache = CacheOutcome::Hit;
        Ok(entry)
    }

    /// The answer to a refusal.
    pub(super) fn refusal(&self, request: &mut Request, refused: &Refused) -> Reply {
        request.outcome.refusal = Some(refused.reason());
        if let Refused::Limited { limit, until, .. } = refused {
            request.effort.refused_somewhere(*limit, *until);
        }
        render_error(refused, &request.origin, self.gateway.env.clock.now())
    }

    /// What every answer carries beside its own.
    pub(super) fn dress(&self, request: &mut Request, reply: &mut Reply) {
        let mut added = self.added(request, self.gateway.env.clock.now());
        // A refusal carries its own.
        added.view =
            added.view.filter(|_| !reply.headers.contains_key(crate::api::headers::RATE_LIMIT));
        add_gateway_headers(&self.gateway.env, &mut reply.headers, &added);
        request.outcome.status = reply.status.as_u16();
    }

    /// What the gateway adds to a request's answer.
    pub(super) fn added<'r>(&self, request: &'r Request, now: Timestamp) -> Added<'r> {
        let figures = request.effort.figures(now);
        let view = request.client.as_ref().map(|client| {
            let booked = figures
                .resource
                .as_ref()
                .or_else(|| request.endpoint.map(|endpoint| &endpoint.resource));
            let resource = booked.cloned().unwrap_or(ResourceName::core());
            let accounts = request.view.as_ref().map_or_else(
                || self.gateway.router.view_for(client, request.brought.as_deref(), true),
                Arc::clone,
            );
            let (view, now) = self.gateway.dispatcher.admissions().view(&accounts, &resource);
            (RateView::served(&view, now), resource)
        });
        Added { cache: request.outcome.cache, figures, view, id: &request.id }
    }

    /// The one place where a request ends: log, metrics, span (DESIGN D11).
    pub(super) fn conclude(&self, mut request: Request, bytes_out: Option<u64>) {
        let now = self.gateway.env.clock.now();
        let figures = request.effort.figures(now);
        let outcome = &mut request.outcome;
        outcome.bytes_out = bytes_out.unwrap_or_default();
        outcome.total = now.since(request.arrived);
        outcome.upstream_attempts = figures.attempts;
        outcome.upstream = figures.upstream;
        outcome.queue = figures.queue;
        outcome.account =
            figures.account.map(|account| Arc::clone(self.gateway.env.shared_name(account)));
        outcome.held = figures.held.map(|hold| hold.for_log(&self.gateway.env));
        // A request that was refused or left while it waited was asked of no account, but of a
        // budget.
        let asked_of = || {
            outcome.held.as_ref().and(request.endpoint).map(|endpoint| endpoint.resource.clone())
        };
        outcome.resource =
            figures.resource.or_else(asked_of).map(|resource| resource.as_str().into());
        outcome.error = figures.error.as_deref().map(LogText::error);
        self.gateway.env.metrics.record(outcome);
        log::emit(outcome);
        spans::finish(&request.span, outcome);
    }
}
