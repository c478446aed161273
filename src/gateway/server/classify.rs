//! The stage that finds out what a request is, whose it is, and whether it is allowed.

use std::sync::Arc;

use http::{Method, StatusCode};

use crate::clock::Timestamp;
use crate::decision::access::permitted;
use crate::gateway::address::Service;
use crate::gateway::cache::{lookup::CacheLookup, store::Entry};
use crate::gateway::dispatch::route::Route;
use crate::gateway::error::GatewayError;
use crate::gateway::http::headers;
use crate::gateway::request::local_routes::{OWN_WRITE, is_delivery, own_write_id};
use crate::gateway::request::validate::ValidRequest;
use crate::gateway::response::local_pages::{public_page, rate_limit};
use crate::gateway::response::{render::Content, reply::Reply};
use crate::gateway::server::handler::Handler;
use crate::gateway::server::request::{Allowed, Classification, Request, Task};
use crate::telemetry::{CacheOutcome, spans};

impl Handler {
    /// Runs the stages that need no waiting: client, route and access.
    pub(super) fn classify(
        &self,
        request: &mut Request,
        valid: ValidRequest,
    ) -> Result<Classification, GatewayError> {
        let gateway = &self.gateway;
        request.origin = gateway.downstream.origin(self.scheme, &valid);
        if gateway.env.is_draining() {
            return Err(GatewayError::Draining);
        }
        // Preflight needs no key.
        if valid.method == Method::OPTIONS {
            let reply =
                Reply { headers: headers::preflight(), ..Reply::empty(StatusCode::NO_CONTENT) };
            return Ok(Classification::Answered(Box::new(Content::Made(reply))));
        }
        if let Some(page) =
            (valid.service == Service::Weir).then(|| public_page(&valid.path)).flatten()
        {
            return Ok(Classification::Answered(Box::new(Content::Made(page))));
        }
        if valid.service == Service::Weir && is_delivery(&valid) {
            return Ok(Classification::Delivery(Box::new(valid)));
        }
        let client = match &request.identity.known {
            Some(known) => Arc::clone(&known.client),
            None => Arc::clone(
                gateway
                    .router
                    .clients()
                    .identify(&request.asked)
                    .map_err(GatewayError::Unauthenticated)?,
            ),
        };
        request.outcome.client = Some(Arc::clone(&client.name));
        request.identity.client = Some(Arc::clone(&client));
        if valid.service == Service::Weir {
            let id = own_write_id(&valid).ok_or(GatewayError::NoSuchResource)?;
            request.outcome.endpoint = OWN_WRITE;
            return Ok(Classification::Allowed(Box::new(Allowed {
                valid,
                client,
                task: Task::Own(id),
            })));
        }
        if !permitted(&client.allow, &valid.method, &valid.path) {
            return Err(GatewayError::NotAllowed);
        }
        let is_read = matches!(valid.method, Method::GET | Method::HEAD);
        request.identity.client_credential =
            gateway.router.client_credential(&client, &request.asked, is_read)?;
        let client_credential = request.identity.client_credential.as_deref();
        if is_read && valid.path == "/rate_limit" {
            request.outcome.endpoint = "/rate_limit";
            return Ok(Classification::Answered(Box::new(Content::Made(rate_limit(
                &gateway.dispatcher,
                &gateway.router.view_for(&client, client_credential, true),
            )))));
        }
        // A GET without a query fetches the schema and is a read like any other.
        let task = if valid.service == Service::Graphql
            && !(is_read && valid.query.as_deref().is_none_or(str::is_empty))
        {
            Task::Graphql
        } else {
            let classified = gateway.router.classify(&valid);
            request.outcome.endpoint = &classified.endpoint.template;
            let route = gateway.router.route(classified, &valid, &client, client_credential)?;
            request.routed(&route);
            if is_read { Task::Read(route) } else { Task::Write(route) }
        };
        Ok(Classification::Allowed(Box::new(Allowed { valid, client, task })))
    }

    /// Looks up a stored answer that may be served, or else returns the lookup for the fetch.
    pub(super) fn stored(
        &self,
        request: &mut Request,
        valid: &ValidRequest,
        route: &Route,
        now: Timestamp,
    ) -> Result<Arc<Entry>, CacheLookup> {
        let _looking = spans::cache_span(&request.span).entered();
        let entry = self.gateway.cache.fresh(route.scope, valid, &request.asked, now)?;
        request.outcome.cache = CacheOutcome::Hit;
        Ok(entry)
    }
}
