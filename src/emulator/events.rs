//! What happens in the world when somebody does something: threads change, webhooks have something to deliver.
//!
//! Deliveries are recorded as not sent; sending them is left out so far.

use std::collections::BTreeSet;

use serde_json::json;

use super::accounts::{AccountId, Caller};
use super::render::Renderer;
use super::resources::deliveries;
use super::resources::notifications::{Reason, Thread, ThreadState};
use super::resources::subscriptions::Subscription;
use super::urls::Urls;
use super::world::{Comment, Issue, Owner, Visibility, World};
use crate::clock::Timestamp;

/// An issue was opened or changed: its watchers and those it names are told, and the organisation's webhooks.
pub fn issue_changed(world: &mut World, urls: &Urls, now: Timestamp, repository: u64, number: u64, actor: u64, action: &'static str) {
    let Some(issue) = world.repositories.get(&repository).and_then(|repository| repository.issues.get(&number)) else { return };
    let text = format!("{} {}", issue.title, issue.body.as_deref().unwrap_or(""));
    tell(world, now, repository, number, actor, &text, None);
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
    tell(world, now, repository, number, author, body, Some(id));
    deliver(world, urls, now, repository, number, author, "issue_comment", "created");
    Some(id)
}

/// Tells everyone concerned but the actor, who from now on takes part.
fn tell(world: &mut World, now: Timestamp, repository: u64, number: u64, actor: u64, text: &str, comment: Option<u64>) {
    let mentioned = mentioned(world, text);
    let commenters = commenters(world, repository, number);
    for user in concerned(world, repository, number, &mentioned, &commenters) {
        if user == actor || !may_see(world, user, repository) {
            continue;
        }
        let reason = reason(world, repository, number, user, &mentioned, &commenters);
        let cause = if mentioned.contains(&user) { Cause::Mention } else { Cause::Activity };
        tell_one(world, now, &Notice { user, repository, number, reason, cause, comment });
    }
    if let Some(id) = world.thread_of.get(&(actor, repository, number)).copied()
        && let Some(thread) = world.threads.get_mut(&id)
        && !matches!(thread.subscription, Some(Subscription::Ignored { .. }))
    {
        thread.subscription = Some(Subscription::Subscribed { since: now });
    }
}

/// Logins after an @.
fn mentioned(world: &World, text: &str) -> BTreeSet<u64> {
    let is_login = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let names = text.split('@').skip(1).map(|rest| rest.split(|c| !is_login(c)).next().unwrap_or(""));
    names.filter_map(|name| world.user_by_login(name)).map(|user| user.id).collect()
}

/// Who has commented. Gathered once for each event: an issue may have thousands of comments.
fn commenters(world: &World, repository: u64, number: u64) -> BTreeSet<u64> {
    let Some(repository) = world.repositories.get(&repository) else { return BTreeSet::new() };
    let comments = repository.issues.get(&number).map_or(&[][..], |issue| &issue.comments);
    comments.iter().filter_map(|id| repository.comments.get(id)).map(|comment| comment.author).collect()
}

fn concerned(world: &World, repository: u64, number: u64, mentioned: &BTreeSet<u64>, commenters: &BTreeSet<u64>) -> BTreeSet<u64> {
    let is_subscribed = |user: u64| {
        let thread = world.thread_of.get(&(user, repository, number)).and_then(|id| world.threads.get(id));
        thread.is_some_and(|thread| matches!(thread.subscription, Some(Subscription::Subscribed { .. })))
    };
    let told = world.users.values().filter(|user| user.watching.contains(&repository) || is_subscribed(user.id)).map(|user| user.id);
    let mut concerned: BTreeSet<u64> = told.chain(mentioned.iter().copied()).collect();
    if let Some(issue) = world.repositories.get(&repository).and_then(|repository| repository.issues.get(&number)) {
        concerned.insert(issue.author);
        concerned.extend(&issue.assignees);
        concerned.extend(commenters);
    }
    concerned
}

fn may_see(world: &World, user: u64, repository: u64) -> bool {
    let Some(repository) = world.repositories.get(&repository) else { return false };
    let belongs = match repository.owner {
        Owner::User(owner) => owner == user,
        Owner::Organization(id) => world.organizations.get(&id).is_some_and(|organization| organization.members.contains(&user)),
    };
    repository.visibility == Visibility::Public || belongs || repository.collaborators.contains(&user)
}

/// "After a mention it stays mention even if you are never mentioned again" (Document 2).
fn reason(world: &World, repository: u64, number: u64, user: u64, mentioned: &BTreeSet<u64>, commenters: &BTreeSet<u64>) -> Reason {
    let known = world.thread_of.get(&(user, repository, number)).and_then(|id| world.threads.get(id));
    if mentioned.contains(&user) || known.is_some_and(|thread| thread.reason == Reason::Mention) {
        return Reason::Mention;
    }
    let repository = world.repositories.get(&repository);
    match repository.and_then(|repository| repository.issues.get(&number)) {
        Some(issue) if issue.assignees.contains(&user) => Reason::Assign,
        Some(issue) if issue.author == user => Reason::Author,
        Some(_) if commenters.contains(&user) => Reason::Comment,
        _ => Reason::Subscribed,
    }
}

fn new_thread(world: &mut World, now: Timestamp, user: u64, repository: u64, number: u64, reason: Reason) -> u64 {
    let id = world.next_id();
    world.thread_of.insert((user, repository, number), id);
    let thread = Thread {
        id,
        user,
        repository,
        number,
        reason,
        state: ThreadState::Unread,
        updated_at: now,
        last_read_at: None,
        changed_at: now,
        latest_comment: None,
        subscription: None,
    };
    world.threads.insert(id, thread);
    id
}

/// Why somebody is told now, whatever the thread's lasting reason is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Mention,
    Activity,
}

/// What one user is to be told.
#[derive(Clone, Copy, Debug)]
pub struct Notice {
    pub user: u64,
    pub repository: u64,
    pub number: u64,
    pub reason: Reason,
    pub cause: Cause,
    pub comment: Option<u64>,
}

/// One user is told; the thread's id. An ignored thread stays as it is; a muted one too, unless the user is mentioned.
pub fn tell_one(world: &mut World, now: Timestamp, notice: &Notice) -> u64 {
    let Notice { user, repository, number, reason, cause, comment } = *notice;
    let known = world.thread_of.get(&(user, repository, number)).copied();
    let id = known.unwrap_or_else(|| new_thread(world, now, user, repository, number, reason));
    let watches = world.users.get(&user).is_some_and(|user| user.watching.contains(&repository));
    let Some(thread) = world.threads.get_mut(&id) else { return id };
    let silent = match thread.subscription {
        Some(Subscription::Ignored { .. }) => true,
        // "Equivalent to ignoring when the repository is not watched; watched repository still notifies."
        Some(Subscription::Muted) => cause != Cause::Mention && !watches,
        Some(Subscription::Subscribed { .. }) | None => false,
    };
    if silent {
        return id;
    }
    if reason != Reason::Subscribed && !matches!(thread.subscription, Some(Subscription::Subscribed { .. })) {
        thread.subscription = Some(Subscription::Subscribed { since: now });
    }
    thread.reason = reason;
    thread.state = ThreadState::Unread;
    thread.updated_at = now;
    thread.changed_at = now;
    thread.latest_comment = comment.or(thread.latest_comment);
    world.inbox_changed.insert(user, now);
    id
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
