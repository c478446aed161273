//! What can be asked: one file for each kind of resource, each with its routes and the functions that answer them.

pub mod attention;
pub mod branches;
pub mod comments;
pub mod commits;
pub mod compare;
pub mod contents;
pub mod creation;
pub mod deliveries;
pub mod directory;
pub mod gists;
pub mod git;
pub mod hooks;
pub mod invitations;
pub mod issues;
pub mod labels;
pub mod metadata;
pub mod notifications;
pub mod people;
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
pub mod upkeep;
pub mod users;

use super::route::Route;

/// Every route there is.
pub fn all() -> impl Iterator<Item = &'static Route> {
    [
        service::ROUTES,
        users::ROUTES,
        repositories::ROUTES,
        contents::ROUTES,
        issues::ROUTES,
        comments::ROUTES,
        labels::ROUTES,
        pulls::ROUTES,
        releases::ROUTES,
        search::ROUTES,
        notifications::ROUTES,
        subscriptions::ROUTES,
        hooks::ROUTES,
        deliveries::ROUTES,
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
    .flatten()
}
