//! What happens in the world when somebody does something: people are told ([`super::notices`]), webhooks have something to deliver.
//!
//! Deliveries are recorded as not sent; sending them is left out so far.

use serde_json::json;

use super::accounts::{AccountId, Caller};
use super::notices;
use super::render::Renderer;
use super::resources::deliveries;
use super::urls::Urls;
use super::world::{Comment, Issue, Owner, World};
use crate::clock::Timestamp;

/// An issue was opened or changed: its watchers and those it names are told, and the organisation's webhooks.
pub fn issue_changed(world: &mut World, urls: &Urls, now: Timestamp, repository: u64, number: u64, actor: u64, action: &'static str) {
    notices::issue_changed(world, now, repository, number, actor, action);
    deliver(world, urls, now, repository, number, actor, "issues", action);
}

/// Opens an issue; its number, or `None` when there is no such repository.
pub fn open_issue(world: &mut World, urls: &Urls, now: Timestamp, repository: u64, author: u64, title: String) -> Option<u64> {
    let id = world.next_id();
    let found = world.repositories.get_mut(&repository)?;
    let number = found.issues.keys().next_back().copied().unwrap_or(0) + 1;
    found.issues.insert(number, Issue::new(id, number, title, author, now));
    found.updated_at = now;
    issue_changed(world, urls, now, repository, number, author, "opened");
    Some(number)
}

/// Adds a comment; its id, or `None` when there is no such issue.
pub fn comment(world: &mut World, urls: &Urls, now: Timestamp, repository: u64, number: u64, author: u64, body: &str) -> Option<u64> {
    let id = world.next_id();
    let found = world.repositories.get_mut(&repository)?;
    let issue = found.issues.get_mut(&number)?;
    issue.comments.push(id);
    issue.updated_at = now;
    found.comments.insert(id, Comment { id, issue: number, author, body: body.to_owned(), created_at: now, updated_at: now });
    notices::commented(world, now, repository, number, author, body, id);
    deliver(world, urls, now, repository, number, author, "issue_comment", "created");
    Some(id)
}

#[expect(clippy::too_many_arguments, reason = "an event is all of these, and they are of different types where it matters")]
fn deliver(
    world: &mut World,
    urls: &Urls,
    now: Timestamp,
    repository: u64,
    number: u64,
    actor: u64,
    event: &'static str,
    action: &'static str,
) {
    let Some(found) = world.repositories.get(&repository) else { return };
    let Owner::Organization(organization) = found.owner else { return };
    let wanted = |hook: &&super::resources::hooks::Hook| hook.wants(event);
    let hooks: Vec<u64> = world
        .organizations
        .get(&organization)
        .into_iter()
        .flat_map(|organization| organization.hooks.values())
        .filter(wanted)
        .map(|hook| hook.id)
        .collect();
    let Some(issue) = found.issues.get(&number).filter(|_| !hooks.is_empty()) else { return };
    // Deliveries are made for the receiver, who has no token of ours.
    let nobody = Caller { account: AccountId::User(actor), token: None };
    let renderer = Renderer { world, urls, caller: &nobody };
    let payload = json!({
        "action": action,
        "issue": renderer.issue(found, issue),
        "repository": renderer.repository(found),
        "sender": renderer.user_summary(actor),
    });
    for hook in hooks {
        deliveries::record(
            world,
            now,
            organization,
            hook,
            deliveries::Occasion { event, action: Some(action), repository: Some(repository), payload: payload.clone() },
        );
    }
}
