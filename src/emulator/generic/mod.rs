//! All other routes of the endpoint table: those that no file under `resources` handles.
//!
//! The table classifies such a request (`crate::api::Table`), its facts admit the caller (`rule`,
//! `admission`), and a generic stored resource answers (`answers`). The upstream does not document
//! the shapes of these routes (SPECIFICATION, "Route inventory"). A path or method outside the
//! table is a 404.

mod address;
mod admission;
mod alias;
mod answers;
mod bodies;
mod effects;
mod family;
mod filters;
pub mod models;
mod parents;
mod rule;
mod seeds;
mod settings;
mod shape;

use std::sync::LazyLock;

use http::Method;

use self::rule::Rule;
use self::shape::{Shape, Wrapping};
use crate::api::{Dialect, Endpoint, Table};
use crate::emulator::http::segment;
use crate::emulator::limits::{Content, Resource};
use crate::emulator::routing::{Call, Caps, Charge, Outcome, Params};
use crate::emulator::world::World;

pub use self::seeds::{add_run, items, settle};

const METHODS: [Method; 5] =
    [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

#[derive(Debug)]
pub struct Facts {
    pub endpoint: &'static Endpoint,
    /// The same route in the neutral names, which the lists of this module use.
    template: &'static str,
    rule: Rule,
    shape: Shape,
    wrapping: Wrapping,
    /// The parameter of the items of a list or of a family's prefix; empty without item routes.
    item_param: &'static str,
    pub resource: Resource,
    pub charge: Charge,
    pub content: Content,
    pub accepted_permissions: String,
    pub accepted_scopes: String,
}

#[derive(Debug)]
pub struct RouteMatch {
    pub facts: &'static Facts,
    pub params: Params,
    /// The undocumented segments of a family's path, as sent.
    rest: String,
}

static SERVICE: LazyLock<Vec<Facts>> = LazyLock::new(|| facts(Dialect::Service));
static GITHUB: LazyLock<Vec<Facts>> = LazyLock::new(|| facts(Dialect::Github));

fn facts(dialect: Dialect) -> Vec<Facts> {
    let neutral = Table::embedded(Dialect::Service);
    let methods = shape::methods(neutral);
    let of = |endpoint: &'static Endpoint| {
        Facts::of(endpoint, neutral.endpoint(endpoint.id), dialect, &methods)
    };
    Table::embedded(dialect).endpoints().iter().map(of).collect()
}

impl Facts {
    fn of(
        endpoint: &'static Endpoint,
        neutral: &'static Endpoint,
        dialect: Dialect,
        methods: &shape::Methods<'_>,
    ) -> Self {
        let rule = Rule::of(neutral, dialect);
        Self {
            endpoint,
            template: &neutral.template,
            shape: shape::shape(neutral, methods),
            wrapping: shape::wrapping(&neutral.template),
            item_param: item_param(
                neutral.template.strip_suffix("/{*rest}").unwrap_or(&neutral.template),
            ),
            // A resource without a named limit counts as `core`.
            resource: Resource::named(endpoint.resource.as_str()).unwrap_or(Resource::CORE),
            charge: if endpoint.primary_cost == 0 { Charge::Free } else { Charge::One },
            content: if endpoint.content_generating { Content::Generating } else { Content::None },
            accepted_permissions: rule.accepted_permissions(),
            accepted_scopes: rule.accepted_scopes(),
            rule,
        }
    }

    fn caps(&self) -> Caps {
        let size = |size: u32| usize::try_from(size).unwrap_or(usize::MAX);
        Caps {
            default: size(self.endpoint.per_page_default),
            max: size(self.endpoint.per_page_max),
        }
    }
}

fn item_param(template: &str) -> &'static str {
    // The table lists the variables of an organisation without their own routes.
    if template.ends_with("/variables") {
        return "name";
    }
    let below = |endpoint: &'static Endpoint| {
        endpoint.template.strip_prefix(template)?.strip_prefix("/{")?.strip_suffix('}')
    };
    let plain = |param: &&str| !param.contains(['/', '*']);
    Table::embedded(Dialect::Service).endpoints().iter().filter_map(below).find(plain).unwrap_or("")
}

pub fn find(dialect: Dialect, method: &Method, path: &str) -> Option<RouteMatch> {
    let method = if method == Method::HEAD { &Method::GET } else { method };
    // A trailing slash is a 404 (SPECIFICATION, "Conditional requests in practice").
    if !METHODS.contains(method) || (path.len() > 1 && path.ends_with('/')) {
        return None;
    }
    let table = Table::embedded(dialect);
    let classified = table.classify(method, path);
    let endpoint = classified.endpoint;
    // A path that is listed with other methods is no unlisted part of a family.
    let is_listed = |method| {
        let endpoint = table.classify(method, path).endpoint;
        !endpoint.generic && !endpoint.family
    };
    if endpoint.generic || (endpoint.family && METHODS.iter().any(is_listed)) {
        return None;
    }
    let facts = match dialect {
        Dialect::Service => &*SERVICE,
        Dialect::Github => &*GITHUB,
    };
    let depth = endpoint.template.split('/').count() - 1;
    let rest = if endpoint.family { path.splitn(depth + 1, '/').nth(depth) } else { None };
    Some(RouteMatch {
        facts: facts.get(endpoint.id.index())?,
        params: Params::decoded(classified.params.iter()),
        rest: rest.unwrap_or("").to_owned(),
    })
}

/// True for `pulls/comments`, which is not the pull request numbered `comments`.
pub fn has_a_closer_route(dialect: Dialect, method: &Method, path: &str, template: &str) -> bool {
    let listed = Table::embedded(dialect).classify(method, path).endpoint;
    let is_parameter = |segment: &str| segment.starts_with('{');
    let mut pairs = template.split('/').zip(listed.template.split('/'));
    !listed.generic
        && !listed.family
        && pairs.any(|(own, listed)| is_parameter(own) && !is_parameter(listed))
}

/// True for a method and template of the endpoint table.
pub fn has_endpoint(dialect: Dialect, method: &str, template: &str) -> bool {
    let mut endpoints = Table::embedded(dialect).endpoints().iter();
    endpoints.any(|endpoint| endpoint.method == *method && endpoint.template == template)
}

pub fn answer(call: &mut Call<'_>, found: RouteMatch) -> Outcome {
    call.params = found.params;
    admission::admit(call, &found.facts.rule)?;
    let mut address = address::of(call, found.facts.template, &found.rest, &found.facts.rule)?;
    family::recognise(found.facts, &mut address);
    parents::require(call, found.facts, &address)?;
    match models::of(found.facts) {
        Some(write) => write(call, &address),
        None => answers::answer(call, found.facts, &address),
    }
}

/// Resolves `/organizations/{id}/…` and `/user/{id}/…` as the running service does.
pub fn named_path(world: &World, dialect: Dialect, path: &str) -> Option<String> {
    let beyond = path.strip_prefix("/organizations/").or_else(|| path.strip_prefix("/user/"))?;
    let (id, rest) = first_segment(beyond);
    let id: u64 = id.parse().ok()?;
    let params = METHODS.iter().find_map(|method| {
        let found = Table::embedded(dialect).classify(method, path);
        (!found.endpoint.generic).then_some(found.params)
    })?;
    if params.get("account_id").is_some() {
        let login = segment(&world.users.get(&id)?.login);
        return Some(format!("/users/{login}{rest}"));
    }
    params.get("organization_id")?;
    let organization = world.organizations.get(&id)?;
    let login = segment(&organization.login);
    let Some((team, rest)) = rest.strip_prefix("/team/").map(first_segment) else {
        return Some(format!("/orgs/{login}{rest}"));
    };
    let team = organization.teams.get(&team.parse().ok()?)?;
    Some(format!("/orgs/{login}/teams/{}{rest}", segment(&team.slug)))
}

/// Splits a path after its first segment; the segment comes without its slash.
fn first_segment(path: &str) -> (&str, &str) {
    path.find('/').map_or((path, ""), |at| path.split_at(at))
}
