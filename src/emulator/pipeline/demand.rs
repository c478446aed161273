//! The demand of a request: its route and its weight for the limits.

use bytes::Bytes;
use http::{Method, Request};

use super::arrival::Incoming;
use crate::emulator::auth::access;
use crate::emulator::http::{ApiArea, Canonical};
use crate::emulator::limits::secondary::{Style, Weight};
use crate::emulator::limits::{Content, Resource, TokenRequest};
use crate::emulator::routing::{Charge, Need, Params, Route, Verb};
use crate::emulator::state::State;
use crate::emulator::{generic, graphql, resources};

pub struct Demand {
    pub target: Target,
    pub resource: Resource,
    pub charge: Charge,
    pub weight: Weight,
}

pub enum Target {
    Route(&'static Route, Params),
    Graphql(Box<graphql::Plan>),
    /// A route that only the endpoint table has.
    Listed(generic::RouteMatch),
    /// A CORS preflight, which never has a credential.
    Options,
    Unknown,
    Recorded,
}

impl Target {
    pub fn accepted(&self) -> (String, String) {
        match self {
            Self::Route(route, _) => {
                (route.need.accepted_permissions(), route.need.accepted_scopes())
            }
            Self::Listed(found) => {
                (found.facts.accepted_permissions.clone(), found.facts.accepted_scopes.clone())
            }
            _ => (Need::Nothing.accepted_permissions(), Need::Nothing.accepted_scopes()),
        }
    }
}

impl State {
    /// `/repositories/{id}/…` is `/repos/{owner}/{repo}/…` of the repository with that id.
    pub fn routed_path(&self, canonical: Canonical<'_>) -> String {
        let by_id = || {
            let rest = canonical.path.strip_prefix("/repositories/")?;
            let (id, rest) =
                rest.split_once('/').map_or((rest, ""), |(id, _)| (id, &rest[id.len()..]));
            let repository = self.world.repositories.get(&id.parse().ok()?)?;
            Some(format!("{}{rest}", access::path_of(&self.world, repository)))
        };
        let by_number = || generic::named_path(&self.world, self.options.dialect, canonical.path);
        by_id().or_else(by_number).unwrap_or_else(|| canonical.path.to_owned())
    }

    pub fn demand(&self, incoming: &Incoming<'_>, path: &str) -> Demand {
        let Incoming { request, canonical, .. } = *incoming;
        let mut demand = if request.method() == Method::OPTIONS {
            let charge = Charge::Free;
            Demand { charge, ..Demand::rest(Target::Options, "OPTIONS *".to_owned(), request) }
        } else if let Some(replayer) = &self.replayer {
            let endpoint = replayer.endpoint(request, canonical);
            let charge = if canonical.path == "/rate_limit" { Charge::Free } else { Charge::One };
            let resource = replayer.resource(request, canonical);
            Demand { resource, charge, ..Demand::rest(Target::Recorded, endpoint, request) }
        } else if canonical.area == ApiArea::Graphql {
            Demand::graphql(graphql::Plan::of(request.body()), request)
        } else {
            self.routed(request, path)
        };
        // Some point costs are undisclosed (SPECIFICATION, "Secondary rate limits").
        if let Some(own) = self.limits.of_endpoint("points", &demand.weight.endpoint) {
            demand.weight.points = u32::try_from(own).unwrap_or(u32::MAX);
        }
        demand
    }

    fn routed(&self, request: &Request<Bytes>, path: &str) -> Demand {
        let (dialect, method, verb) =
            (self.options.dialect, request.method(), Verb::of(request.method()));
        let route = verb.and_then(|verb| resources::find(verb, path)).filter(|(route, _)| {
            !generic::has_a_closer_route(dialect, method, path, route.template)
        });
        if let Some((route, params)) = route {
            let endpoint = format!("{} {}", route.verb.name(), route.template);
            let mut demand = Demand::rest(Target::Route(route, params), endpoint, request);
            (demand.resource, demand.charge) = (route.resource, route.charge);
            (demand.weight.content, demand.weight.tokens) = (route.content, route.tokens);
            if route.resource == Resource::LFS {
                demand.weight.style = Style::Transfer;
            }
            return demand;
        }
        if let Some(found) = generic::find(dialect, method, path) {
            let facts = found.facts;
            let endpoint = format!("{} {}", facts.endpoint.method, facts.endpoint.template);
            let mut demand = Demand::rest(Target::Listed(found), endpoint, request);
            (demand.resource, demand.charge) = (facts.resource, facts.charge);
            (demand.weight.content, demand.weight.points) = (facts.content, facts.endpoint.points);
            return demand;
        }
        // Unknown methods share one endpoint, so that inventing methods gains no extra limit.
        let endpoint = format!("{} (unknown)", verb.map_or("OTHER", Verb::name));
        Demand::rest(Target::Unknown, endpoint, request)
    }
}

impl Demand {
    /// One unit of `core`, with the documented points of the method.
    fn rest(target: Target, endpoint: String, request: &Request<Bytes>) -> Self {
        let is_cheap = matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        let weight = Weight {
            endpoint,
            points: if is_cheap { 1 } else { 5 },
            style: Style::Rest,
            content: Content::None,
            tokens: TokenRequest::No,
            cpu_micros: 0,
        };
        Self { target, resource: Resource::CORE, charge: Charge::One, weight }
    }

    fn graphql(plan: graphql::Plan, request: &Request<Bytes>) -> Self {
        let (points, content, charge) = (plan.points, plan.content, Charge::Cost(plan.cost));
        let target = Target::Graphql(Box::new(plan));
        let rest = Self::rest(target, "POST /graphql".to_owned(), request);
        let weight = Weight { points, content, style: Style::Graphql, ..rest.weight };
        Self { resource: Resource::GRAPHQL, charge, weight, ..rest }
    }
}
