//! What can be asked: one file for each kind of resource, each with its routes and the functions that answer them.

pub mod comments;
pub mod contents;
pub mod deliveries;
pub mod hooks;
pub mod issues;
pub mod labels;
pub mod migrations;
pub mod notifications;
pub mod pulls;
pub mod releases;
pub mod repositories;
pub mod search;
pub mod service;
pub mod subscriptions;
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
        migrations::ROUTES,
    ]
    .into_iter()
    .flatten()
}
