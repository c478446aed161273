//! The routes: one file for each kind of resource, with its handlers.

pub mod apps;
pub mod code;
pub mod enterprises;
pub mod issues;
pub mod notifications;
pub mod organizations;
pub mod properties;
pub mod repositories;
pub mod service;
pub mod teams;
pub mod users;
pub mod webhooks;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use self::apps::{app, app_hook, installation_tokens, oauth_tokens};
use self::code::{branches, commits, contents, git, lfs, protection, refs, statuses};
use self::issues::{
    comments, history, issue, issue_fields, labels, milestones, pull_requests, reviewers,
};
use self::notifications::subscriptions;
use self::repositories::{
    creation, feeds, invitations, metadata, people, releases, repository, stars_and_watches,
};
use self::service::{meta, reference, search};
use self::users::{directory, gists, migrations, user};
use self::webhooks::{deliveries, hooks};
use crate::emulator::routing::{Params, Route, Verb};

/// The routes about people and their teams, in organisations and enterprises.
pub const PEOPLE: &[&[Route]] = &[
    teams::catalogue::ROUTES,
    teams::roster::ROUTES,
    teams::memberships::ROUTES,
    teams::repositories::ROUTES,
    organizations::members::ROUTES,
    organizations::memberships::ROUTES,
    organizations::invitations::ROUTES,
    organizations::collaborators::ROUTES,
    organizations::roles::ROUTES,
    enterprises::teams::ROUTES,
    enterprises::organizations::ROUTES,
    enterprises::memberships::ROUTES,
];

pub fn all() -> impl Iterator<Item = &'static Route> {
    [
        meta::ROUTES,
        user::ROUTES,
        feeds::ROUTES,
        repository::ROUTES,
        contents::ROUTES,
        commits::ROUTES,
        refs::ROUTES,
        issue::ROUTES,
        comments::ROUTES,
        history::ROUTES,
        labels::ROUTES,
        milestones::ROUTES,
        pull_requests::ROUTES,
        reviewers::ROUTES,
        releases::ROUTES,
        search::ROUTES,
        notifications::ROUTES,
        subscriptions::ROUTES,
        properties::ROUTES,
        properties::VALUES,
        issue_fields::ROUTES,
        hooks::ROUTES,
        deliveries::ROUTES,
        app::ROUTES,
        installation_tokens::ROUTES,
        oauth_tokens::ROUTES,
        lfs::ROUTES,
        app_hook::ROUTES,
        migrations::ROUTES,
        stars_and_watches::ROUTES,
        branches::ROUTES,
        directory::ROUTES,
        gists::ROUTES,
        git::ROUTES,
        metadata::ROUTES,
        people::ROUTES,
        protection::ROUTES,
        reference::ROUTES,
        statuses::ROUTES,
        creation::ROUTES,
        invitations::ROUTES,
    ]
    .into_iter()
    .chain(PEOPLE.iter().copied())
    .flatten()
}

type Index = matchit::Router<BTreeMap<Verb, &'static Route>>;

static INDEX: OnceLock<Index> = OnceLock::new();

pub fn find(verb: Verb, path: &str) -> Option<(&'static Route, Params)> {
    let found = INDEX.get_or_init(index).at(path).ok()?;
    let route = found.value.get(&verb)?;
    Some((route, Params::decoded(found.params.iter())))
}

fn index() -> Index {
    let mut by_template: BTreeMap<&'static str, BTreeMap<Verb, &'static Route>> = BTreeMap::new();
    for route in all() {
        by_template.entry(route.template).or_default().insert(route.verb, route);
    }
    let mut index = Index::new();
    for (template, routes) in by_template {
        let inserted = index.insert(template, routes);
        debug_assert!(inserted.is_ok(), "{template} collides with another route");
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::accounts::Permissions;

    #[test]
    fn every_required_permission_can_be_granted() {
        for route in all() {
            if let Some((name, level)) = route.need.permission() {
                assert!(
                    Permissions::All.include(&BTreeMap::from([(name, level)])),
                    "{name} of {}",
                    route.template
                );
            }
        }
    }

    #[test]
    fn every_route_is_found_by_its_own_template() {
        for route in all() {
            let path = route.template.replace(['{', '}', '*'], "");
            let (found, _) = find(route.verb, &path)
                .unwrap_or_else(|| panic!("{} {}", route.verb.name(), route.template));
            assert_eq!(found.template, route.template);
        }
    }

    #[test]
    fn an_encoded_slash_in_a_segment_is_data() {
        let (_, params) = find(Verb::Get, "/repos/a%2Fb/c").expect("a route");
        assert_eq!(params.get("owner"), "a/b");
    }

    #[test]
    fn a_trailing_slash_is_not_found() {
        assert!(find(Verb::Get, "/user/").is_none());
        assert!(find(Verb::Get, "/repos/acme/widgets/").is_none());
    }
}
