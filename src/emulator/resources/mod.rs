//! What can be asked: one file for each kind of resource, each with its routes and the functions that answer them.

pub mod app_hook;
pub mod comments;
pub mod commits;
pub mod contents;
pub mod deliveries;
pub mod hook_config;
pub mod hooks;
pub mod issues;
pub mod labels;
pub mod notifications;
pub mod pulls;
pub mod refs;
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
        hooks::ROUTES,
        deliveries::ROUTES,
        app_hook::ROUTES,
    ]
    .into_iter()
    .flatten()
}
