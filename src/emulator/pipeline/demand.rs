//! The demand of a request: its route and its weight for the limits.

use bytes::Bytes;
use http::{Method, Request};

use crate::emulator::auth::access;
use crate::emulator::http::{ApiArea, Canonical};
use crate::emulator::limits::secondary::{Style, Weight};
use crate::emulator::limits::{Content, Resource, TokenRequest};
use crate::emulator::routing::{Charge, Need, Params, Route, Verb};
use crate::emulator::state::State;
use crate::emulator::{generic, graphql, resources};

pub struct Demand {
    pub target: Target,
    pub endpoint: String,
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

    pub fn demand(&self, request: &Request<Bytes>, canonical: Canonical<'_>, path: &str) -> Demand {
        let verb = Verb::of(request.method());
        let points =
            if verb == Some(Verb::Get) || request.method() == Method::OPTIONS { 1 } else { 5 };
        let weight = |endpoint: String, points, style, content| {
            // Some point costs are undisclosed (SPECIFICATION, "Secondary rate limits").
            let points = self
                .limits
                .of_endpoint("points", &endpoint)
                .map_or(points, |own| u32::try_from(own).unwrap_or(u32::MAX));
            Weight { endpoint, points, style, content, tokens: TokenRequest::No, cpu_micros: 0 }
        };
        let rest = |target, endpoint: String, resource, charge, content| Demand {
            weight: weight(endpoint.clone(), points, Style::Rest, content),
            target,
            endpoint,
            resource,
            charge,
        };
        if request.method() == Method::OPTIONS {
            return rest(
                Target::Options,
                "OPTIONS *".to_owned(),
                Resource::CORE,
                Charge::Free,
                Content::None,
            );
        }
        if canonical.area == ApiArea::Graphql && self.replayer.is_none() {
            let plan = graphql::Plan::of(request.body());
            let weight =
                weight("POST /graphql".to_owned(), plan.points, Style::Graphql, plan.content);
            return Demand {
                endpoint: weight.endpoint.clone(),
                resource: Resource::GRAPHQL,
                charge: Charge::Cost(plan.cost),
                target: Target::Graphql(Box::new(plan)),
                weight,
            };
        }
        if let Some(replayer) = &self.replayer {
            let resource = replayer.resource(request, canonical);
            let charge = if canonical.path == "/rate_limit" { Charge::Free } else { Charge::One };
            return rest(
                Target::Recorded,
                replayer.endpoint(request, canonical),
                resource,
                charge,
                Content::None,
            );
        }
        let names_it = |(route, _): &(&Route, Params)| {
            !generic::has_a_closer_route(
                self.options.dialect,
                request.method(),
                path,
                route.template,
            )
        };
        if let Some((route, params)) =
            verb.and_then(|verb| resources::find(verb, path)).filter(names_it)
        {
            let endpoint = format!("{} {}", route.verb.name(), route.template);
            let mut demand = rest(
                Target::Route(route, params),
                endpoint,
                route.resource,
                route.charge,
                route.content,
            );
            demand.weight.tokens = route.tokens;
            if route.resource == Resource::LFS {
                demand.weight.style = Style::Transfer;
            }
            return demand;
        }
        if let Some(found) = generic::find(self.options.dialect, request.method(), path) {
            let facts = found.facts;
            let endpoint = format!("{} {}", facts.endpoint.method, facts.endpoint.template);
            let mut demand =
                rest(Target::Listed(found), endpoint, facts.resource, facts.charge, facts.content);
            if self.limits.of_endpoint("points", &demand.endpoint).is_none() {
                demand.weight.points = facts.endpoint.points;
            }
            return demand;
        }
        // Unknown methods share one endpoint, so that inventing methods gains no extra limit.
        let endpoint = format!("{} (unknown)", verb.map_or("OTHER", Verb::name));
        rest(Target::Unknown, endpoint, Resource::CORE, Charge::One, Content::None)
    }
}
