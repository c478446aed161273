//! Compares the hand-written routes with the endpoint table, two independent readings of the
//! upstream's documentation: shared facts must agree.

use std::collections::BTreeSet;

use http::Method;

use crate::api::{Endpoint, Table};
use crate::emulator::auth::endpoint_permissions::{Grant, sets};
use crate::emulator::limits::{Content, Resource};
use crate::emulator::resources;
use crate::emulator::routing::{Charge, Need, Route};
use crate::emulator::tests::*;

/// Method, route, the deliberate difference, and its reason.
const EXCEPTIONS: &[(&str, &str, &str, &str)] = &[
    ("PUT", "/teams/{team_id}/repos/{owner}/{repo}", "permission", CLOSING_DOWN),
    ("DELETE", "/teams/{team_id}/repos/{owner}/{repo}", "permission", CLOSING_DOWN),
];
const CLOSING_DOWN: &str = "the permission matrix lists it under Members alone; it does what its replacement does, which takes the repository's administration too";

fn listed(route: &Route) -> &'static Endpoint {
    let word = |segment: &str| if segment.starts_with('{') { "4711" } else { segment }.to_owned();
    let path: Vec<String> = route.template.split('/').map(word).collect();
    let method: Method = route.verb.name().parse().expect("a method");
    let path: &'static str = Box::leak(path.join("/").into_boxed_str());
    Table::embedded(Dialect::Service).classify(&method, path).endpoint
}

fn required_permissions(need: Need) -> Option<String> {
    let header = need.accepted_permissions();
    (!header.is_empty() && header != "allows_permissionless_access=true").then_some(header)
}

/// Parses a header's grants, without the implied reading of repositories.
fn grants(header: &str) -> BTreeSet<String> {
    header.split(',').filter(|grant| *grant != "metadata=read").map(str::to_owned).collect()
}

fn differences(route: &Route, endpoint: &Endpoint) -> Vec<&'static str> {
    let sets = sets(endpoint, Dialect::Service);
    let written: BTreeSet<BTreeSet<String>> = sets
        .iter()
        .map(|set| grants(&set.iter().map(Grant::header).collect::<Vec<_>>().join(",")))
        .collect();
    let scopes: BTreeSet<&str> = endpoint.scopes.iter().map(String::as_str).collect();
    let accepted = route.need.accepted_scopes();
    let accepted: BTreeSet<&str> = accepted.split(", ").filter(|scope| !scope.is_empty()).collect();
    let takes_only_classic = endpoint.tokens.accepts(crate::api::TokenKind::FineGrained)
        == Some(false)
        && endpoint.tokens.accepts_app_jwt() != Some(true);
    let takes_only_jwt = endpoint.tokens.accepts_app_jwt() == Some(true);
    let resource = Resource::named(endpoint.resource.as_str()).unwrap_or(Resource::CORE);
    [
        ("content", (route.content == Content::Generating) != endpoint.content_generating),
        ("resource", route.resource != resource),
        ("charge", (route.charge == Charge::Free) != (endpoint.primary_cost == 0)),
        (
            "permission",
            endpoint.permission.is_some()
                && !takes_only_classic
                && !required_permissions(route.need)
                    .is_some_and(|header| written.contains(&grants(&header))),
        ),
        ("scopes", !scopes.is_empty() && scopes != accepted),
        (
            "classic only",
            takes_only_classic && accepted.is_empty() && route.need != Need::ClassicCredential,
        ),
        ("app only", takes_only_jwt != (route.need == Need::App)),
    ]
    .into_iter()
    .filter_map(|(what, differs)| differs.then_some(what))
    .collect()
}

#[test]
fn hand_written_routes_agree_with_the_table() {
    let known = resources::all()
        .map(|route| (route, listed(route)))
        .filter(|(_, endpoint)| !endpoint.generic);
    let differing = |(route, endpoint): (&'static Route, &Endpoint)| {
        differences(route, endpoint)
            .into_iter()
            .map(|what| (route.verb.name(), route.template, what))
            .collect::<Vec<_>>()
    };
    let found: BTreeSet<_> = known.flat_map(differing).collect();
    let excepted: BTreeSet<_> =
        EXCEPTIONS.iter().map(|(method, template, what, _)| (*method, *template, *what)).collect();
    let surprising: Vec<_> = found.difference(&excepted).collect();
    assert!(surprising.is_empty(), "{surprising:#?}");
    let needless: Vec<_> = excepted.difference(&found).collect();
    assert!(needless.is_empty(), "no longer different: {needless:#?}");
}
