//! The stage that classifies a request: its client, its route and its permission.

use std::sync::Arc;

use http::{Method, StatusCode};

use crate::clock::Timestamp;
use crate::decision::access::permitted;
use crate::gateway::address::Service;
use crate::gateway::cache::{lookup::CacheLookup, store::Entry};
use crate::gateway::error::{GatewayError, Unknown};
use crate::gateway::http::headers;
use crate::gateway::request::{
    clients::Client, misplaced_key::misplaced_key, oidc::issuer::Issuer, validate::ValidRequest,
};
use crate::gateway::response::local_pages::{public_page, rate_limit};
use crate::gateway::response::reply::Reply;
use crate::gateway::server::handler::Handler;
use crate::gateway::server::request::{Classification, ClientRequest, Request, RoutedRequest};
use crate::telemetry::{CacheOutcome, spans};
use crate::writes::WriteId;

/// The status resource of an accepted write, as metrics name it.
const OWN_WRITE: &str = "/_weir/writes/{id}";
/// The address of the status resources, before the write's identifier.
pub(super) const OWN_WRITES: &str = "/_weir/writes/";
pub(super) const WEBHOOKS_PATH: &str = "/_weir/webhooks";

fn own_write_id(valid: &ValidRequest) -> Option<WriteId> {
    let id = valid.path.strip_prefix(OWN_WRITES)?;
    let is_served = matches!(valid.method, Method::GET | Method::HEAD | Method::DELETE);
    is_served.then(|| id.parse().ok()).flatten()
}

impl Handler {
    /// Runs the stages that need no waiting: client, route and access.
    pub(super) fn classify(
        &self,
        request: &mut Request,
        valid: ValidRequest,
    ) -> Result<Classification, GatewayError> {
        let gateway = &self.gateway;
        request.origin = gateway.downstream.origin(self.scheme, &valid);
        if self.is_too_late(&valid) {
            return Err(GatewayError::Draining);
        }
        self.awaited.end();
        // Preflight needs no key.
        if valid.method == Method::OPTIONS {
            let reply =
                Reply { headers: headers::preflight(), ..Reply::empty(StatusCode::NO_CONTENT) };
            return Ok(Classification::made(reply));
        }
        if let Some(page) =
            (valid.service == Service::Weir).then(|| public_page(&valid.path)).flatten()
        {
            return Ok(Classification::made(page));
        }
        if valid.service == Service::Weir
            && valid.method == Method::POST
            && valid.path == WEBHOOKS_PATH
        {
            return Ok(Classification::Delivery(Box::new(valid)));
        }
        let client = self.identify(request, &valid)?;
        if valid.service == Service::Weir {
            let id = own_write_id(&valid).ok_or(GatewayError::NoSuchResource)?;
            request.outcome.endpoint = OWN_WRITE;
            return Ok(Classification::OwnWrite(Box::new(ClientRequest { valid, client }), id));
        }
        if !permitted(&client.allow, valid.method_for_rules(), &valid.path) {
            let denied = GatewayError::NotAllowed;
            if !gateway.env.config.shadow.access {
                return Err(denied);
            }
            gateway.env.metrics.shadowed(Some(&client.name), denied.reason(), true);
            request.outcome.shadowed = Some(denied.reason());
        }
        let is_read = matches!(valid.method, Method::GET | Method::HEAD);
        // Beside a certificate as beside `X-Weir-Key`, `Authorization` is the client's own.
        let by_key = self.certified_at(request.arrival.at).is_none();
        request.identity.client_credential =
            gateway.router.client_credential(&client, &request.headers, is_read, by_key)?;
        let client_credential = request.identity.client_credential.as_deref();
        if is_read && valid.path == "/rate_limit" {
            request.outcome.endpoint = "/rate_limit";
            let accounts = gateway.router.view_for(&client, client_credential, true);
            return Ok(Classification::made(rate_limit(
                &gateway.dispatcher,
                client.index,
                &accounts,
            )));
        }
        // The schema is a read like any other.
        if valid.service == Service::Graphql && !valid.is_schema() {
            return Ok(Classification::Graphql(Box::new(ClientRequest { valid, client })));
        }
        let classified = gateway.router.classify(&valid);
        request.outcome.endpoint = &classified.endpoint.template;
        let route = gateway.router.route(classified, &valid, &client, client_credential)?;
        request.routed(&route);
        let routed = Box::new(RoutedRequest { from: ClientRequest { valid, client }, route });
        Ok(if is_read { Classification::Read(routed) } else { Classification::Write(routed) })
    }

    /// True if a drain takes no such request any more. A read changes nothing, so that a successor
    /// has no need to know of it.
    fn is_too_late(&self, valid: &ValidRequest) -> bool {
        let active = &self.gateway.env.active;
        let is_read = valid.service == Service::Rest && valid.method.is_safe();
        active.refuses() && !(is_read && active.is_handed_over())
    }

    /// Identifies the client, and rejects a key outside of its place, known client or not.
    fn identify(
        &self,
        request: &mut Request,
        valid: &ValidRequest,
    ) -> Result<Arc<Client>, GatewayError> {
        let (clients, now) = (self.gateway.router.clients(), request.arrival.at);
        let identified = match &request.identity.known {
            Some(known) if known.identified.holds(now) => Ok(Arc::clone(&known.identified.client)),
            _ => {
                let identified = clients.identify(&request.headers, self.certified_at(now), now);
                let is_ambiguous =
                    || self.names.as_ref().is_some_and(|names| clients.are_named_by(names));
                let identified = identified.map_err(|unknown| match unknown {
                    Unknown::NoKey if is_ambiguous() => Unknown::AmbiguousCertificate,
                    other => other,
                });
                identified.map(|identified| {
                    let client = Arc::clone(&identified.client);
                    request.identity.identified = Some(identified);
                    client
                })
            }
        };
        if let Ok(client) = &identified {
            self.slot.know();
            request.outcome.client = Some(Arc::clone(&client.name));
            request.identity.client = Some(Arc::clone(client));
        }
        let unchecked = request.identity.known.is_none().then_some(&*request.headers);
        if let Some(position) = misplaced_key(clients, unchecked, valid) {
            return Err(GatewayError::MisplacedKey(position));
        }
        identified.map_err(GatewayError::Unauthenticated)
    }

    /// The issuer of a request's token, if a fetch of its keys may change the result.
    pub(super) fn issuer_to_ask(
        &self,
        request: &Request,
        classified: &Result<Classification, GatewayError>,
    ) -> Option<Arc<Issuer>> {
        let Err(GatewayError::Unauthenticated(unknown)) = classified else { return None };
        let is_without_key = matches!(unknown, Unknown::IssuerUnavailable | Unknown::WrongSigner);
        let clients = self.gateway.router.clients();
        is_without_key.then(|| clients.issuer_of(&request.headers)).flatten()
    }

    /// Looks up a stored answer that may be served, or else returns the lookup for the fetch.
    pub(super) fn stored(
        &self,
        request: &mut Request,
        RoutedRequest { from, route }: &RoutedRequest,
        now: Timestamp,
    ) -> Result<Arc<Entry>, CacheLookup> {
        let _lookup = spans::cache_span(&request.span).entered();
        let sent = request.to_upstream(&self.gateway.env);
        let entry = self.gateway.cache.fresh(route, &from.valid, &request.headers, sent, now)?;
        request.outcome.cache = CacheOutcome::Hit;
        Ok(entry)
    }
}
