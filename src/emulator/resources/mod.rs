//! What can be asked: one file for each kind of resource, each with its routes and the functions
//! that answer them.

pub mod app_hook;
pub mod apps;
pub mod attention;
pub mod branches;
pub mod comments;
pub mod commits;
pub mod compare;
pub mod contents;
pub mod creation;
pub mod deliveries;
pub mod directory;
pub mod enterprises;
pub mod feeds;
pub mod gists;
pub mod git;
pub mod hook_config;
pub mod hooks;
pub mod installation_tokens;
pub mod invitations;
pub mod issue_fields;
pub mod issues;
pub mod labels;
pub mod lfs;
pub mod metadata;
pub mod migrations;
pub mod notifications;
pub mod oauth_tokens;
pub mod organizations;
pub mod people;
pub mod properties;
pub mod proposals;
pub mod protection;
pub mod pulls;
pub mod reference;
pub mod refs;
pub mod releases;
pub mod repositories;
pub mod search;
pub mod service;
pub mod statuses;
pub mod subscriptions;
pub mod teams;
pub mod threads;
pub mod upkeep;
pub mod users;

use super::route::Route;

/// The routes about people and their teams, in organisations and enterprises.
pub const PEOPLE: &[&[Route]] = &[
    teams::catalogue::ROUTES,
    teams::roster::ROUTES,
    teams::memberships::ROUTES,
    teams::legacy_members::ROUTES,
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

/// Every route there is.
pub fn all() -> impl Iterator<Item = &'static Route> {
    [
        service::ROUTES,
        users::ROUTES,
        feeds::ROUTES,
        repositories::ROUTES,
        contents::ROUTES,
        commits::ROUTES,
        refs::ROUTES,
        issues::ROUTES,
        comments::ROUTES,
        labels::ROUTES,
        pulls::ROUTES,
        releases::ROUTES,
        search::ROUTES,
        notifications::ROUTES,
        subscriptions::ROUTES,
        properties::ROUTES,
        properties::VALUES,
        issue_fields::ROUTES,
        hooks::ROUTES,
        deliveries::ROUTES,
        apps::ROUTES,
        installation_tokens::ROUTES,
        oauth_tokens::ROUTES,
        lfs::ROUTES,
        app_hook::ROUTES,
        migrations::ROUTES,
        attention::ROUTES,
        branches::ROUTES,
        commits::ROUTES,
        compare::ROUTES,
        directory::ROUTES,
        gists::ROUTES,
        git::ROUTES,
        metadata::ROUTES,
        people::ROUTES,
        protection::ROUTES,
        reference::ROUTES,
        refs::ROUTES,
        statuses::ROUTES,
        creation::ROUTES,
        invitations::ROUTES,
        upkeep::ROUTES,
        proposals::ROUTES,
    ]
    .into_iter()
    .chain(PEOPLE.iter().copied())
    .flatten()
}
