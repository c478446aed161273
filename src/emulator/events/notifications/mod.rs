//! Who is told of what happens, and why (Document 2, Notification thread, Reasons, Thread
//! subscription).
//!
//! What is done to a user itself (it is mentioned, assigned, asked) is told with a reason of its
//! own. Whatever else happens is told with the reason that the user has for following the thread:
//! how it last took part, else the reason kept so far, else that it watches the repository.

pub mod mentions;

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Timestamp;
use crate::emulator::world::notifications::participation::{Key, NamedUsers};
use crate::emulator::world::notifications::thread::Subscription;
use crate::emulator::world::{
    Issue, Owner, Reason, Repository, Thread, ThreadState, Topic, Visibility, World,
};

/// When there are more threads, the oldest ones are forgotten.
const THREADS_MAX: usize = 200_000;

/// Something done about an issue or pull.
#[derive(Clone, Copy, Debug)]
struct Activity {
    repository: u64,
    number: u64,
    actor: u64,
    comment: Option<u64>,
    audience: Audience,
}

/// Whom a happening concerns, beside those it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    /// Everyone who watches the repository or takes part in the thread.
    All,
    /// Nobody else.
    NamedOnly,
}

/// An issue or pull was opened or changed. Opening, closing and reopening are told to everybody
/// concerned; any other change only to those whom it newly names. (Which changes are told is not
/// shown.)
pub fn issue_changed(
    world: &mut World,
    now: Timestamp,
    repository: u64,
    number: u64,
    actor: u64,
    action: &str,
) {
    let Some(issue) = issue_of(world, repository, number) else { return };
    let text = format!("{} {}", issue.title, issue.body.as_deref().unwrap_or(""));
    let named = NamedUsers {
        assignees: issue.assignees.iter().copied().collect(),
        mentions: mentions::find(world, &text),
    };
    let before = world.participation.named.remove(&(repository, number)).unwrap_or_default();
    let mut direct = BTreeMap::new();
    direct.extend(
        named
            .mentions
            .of_teams
            .difference(&before.mentions.of_teams)
            .map(|user| (*user, Reason::TeamMention)),
    );
    direct
        .extend(named.assignees.difference(&before.assignees).map(|user| (*user, Reason::Assign)));
    direct.extend(
        named
            .mentions
            .users
            .difference(&before.mentions.users)
            .map(|user| (*user, Reason::Mention)),
    );
    if named != NamedUsers::default() {
        world.participation.named.insert((repository, number), named);
    }
    let audience = if matches!(action, "opened" | "closed" | "reopened") {
        Audience::All
    } else {
        Audience::NamedOnly
    };
    if matches!(action, "closed" | "reopened") {
        // "state_change (you changed the thread state)": of that the next notification tells.
        took_part(world, (actor, repository, Topic::Numbered(number)), Reason::StateChange);
    }
    notify_all(
        world,
        now,
        Activity { repository, number, actor, comment: None, audience },
        &direct,
    );
}

/// Somebody commented, which is a way to take part.
pub fn commented(
    world: &mut World,
    now: Timestamp,
    repository: u64,
    number: u64,
    actor: u64,
    text: &str,
    id: u64,
) {
    let named = mentions::find(world, text);
    let mut direct: BTreeMap<u64, Reason> =
        named.of_teams.into_iter().map(|user| (user, Reason::TeamMention)).collect();
    direct.extend(named.users.into_iter().map(|user| (user, Reason::Mention)));
    let key = (actor, repository, Topic::Numbered(number));
    // Who created the thread stays its author whatever it says there.
    if issue_of(world, repository, number).is_some_and(|issue| issue.author != actor) {
        took_part(world, key, Reason::Comment);
    }
    subscribe_by_reply(world, now, key);
    notify_all(
        world,
        now,
        Activity { repository, number, actor, comment: Some(id), audience: Audience::All },
        &direct,
    );
}

/// Somebody is asked to review a pull.
pub fn review_requested(
    world: &mut World,
    now: Timestamp,
    repository: u64,
    number: u64,
    actor: u64,
    requested: &BTreeSet<u64>,
) {
    let direct = requested.iter().map(|user| (*user, Reason::ReviewRequested)).collect();
    notify_all(
        world,
        now,
        Activity { repository, number, actor, comment: None, audience: Audience::NamedOnly },
        &direct,
    );
}

/// Notes how somebody took part; its next notification says so.
pub fn took_part(world: &mut World, key: Key, how: Reason) {
    world.participation.took_part.insert(key, how);
}

/// "Muted until the user comments." Who ignores a thread goes on ignoring it: "all notifications
/// from the thread blocked".
fn subscribe_by_reply(world: &mut World, now: Timestamp, key: Key) {
    let thread = world.thread_of.get(&key).and_then(|id| world.threads.get_mut(id));
    let Some(thread) =
        thread.filter(|thread| matches!(thread.subscription, None | Some(Subscription::Muted)))
    else {
        return;
    };
    thread.subscription = Some(Subscription::Subscribed { since: now, reason: Reason::Comment });
    thread.changed_at = now;
    world.inbox_changed.insert(key.0, now);
}

/// Tells everyone concerned but the actor.
fn notify_all(
    world: &mut World,
    now: Timestamp,
    activity: Activity,
    direct: &BTreeMap<u64, Reason>,
) {
    let Activity { repository, number, actor, comment, audience } = activity;
    let mut users: BTreeSet<u64> = direct.keys().copied().collect();
    if audience == Audience::All {
        users.extend(followers(world, repository, number));
    }
    for user in users {
        if user == actor || !may_see(world, user, repository) {
            continue;
        }
        let topic = Topic::Numbered(number);
        let current_reason = current_reason(world, (user, repository, topic));
        // "After a mention it stays mention even if you are never mentioned again."
        let reason = direct
            .get(&user)
            .copied()
            .filter(|_| current_reason != Reason::Mention)
            .unwrap_or(current_reason);
        let cause = if direct.get(&user) == Some(&Reason::Mention) {
            Cause::Mention
        } else {
            Cause::Activity
        };
        notify(world, now, &Notification { user, repository, topic, reason, cause, comment });
    }
}

fn issue_of(world: &World, repository: u64, number: u64) -> Option<&Issue> {
    world.repositories.get(&repository)?.issues.get(&number)
}

/// Watchers, whoever was told before for another reason than watching or took part since, the
/// author, assignees and commenters.
fn followers(world: &World, repository: u64, number: u64) -> BTreeSet<u64> {
    let follows = |user: u64| {
        let key = (user, repository, Topic::Numbered(number));
        let thread = world.thread_of.get(&key).and_then(|id| world.threads.get(id));
        let subscribed =
            |thread: &Thread| matches!(thread.subscription, Some(Subscription::Subscribed { .. }));
        thread.is_some_and(|thread| thread.reason != Reason::Subscribed || subscribed(thread))
            || world.participation.took_part.contains_key(&key)
    };
    let notified = world
        .users
        .values()
        .filter(|user| user.watching.contains(&repository) || follows(user.id))
        .map(|user| user.id);
    let mut followers: BTreeSet<u64> = notified.collect();
    let Some(repository) = world.repositories.get(&repository) else { return followers };
    if let Some(issue) = repository.issues.get(&number) {
        followers.insert(issue.author);
        followers.extend(&issue.assignees);
        followers.extend(
            issue
                .comments
                .iter()
                .filter_map(|id| repository.comments.get(id))
                .map(|comment| comment.author),
        );
    }
    followers
}

/// Whether a user can see the repository at all.
pub fn may_see(world: &World, user: u64, repository: u64) -> bool {
    let Some(repository) = world.repositories.get(&repository) else { return false };
    let belongs = match repository.owner {
        Owner::User(owner) => owner == user,
        Owner::Organization(id) => world
            .organizations
            .get(&id)
            .is_some_and(|organization| organization.members.contains(&user)),
    };
    repository.visibility == Visibility::Public
        || belongs
        || repository.collaborators.contains(&user)
}

/// The reason that a user has for following a thread when nothing is done to the user itself: "kept
/// per thread and replaced only when a later notification carries a different reason".
fn current_reason(world: &World, key: Key) -> Reason {
    let kept =
        world.thread_of.get(&key).and_then(|id| world.threads.get(id)).map(|thread| thread.reason);
    if kept == Some(Reason::Mention) {
        return Reason::Mention;
    }
    if let Some(how) = world.participation.took_part.get(&key) {
        return *how;
    }
    if let Some(kept) = kept.filter(|kept| *kept != Reason::Subscribed) {
        return kept;
    }
    let (user, repository, topic) = key;
    let repository = world.repositories.get(&repository);
    let issue = repository
        .zip(topic.number())
        .and_then(|(repository, number)| Some((repository, repository.issues.get(&number)?)));
    match issue {
        Some((_, issue)) if issue.assignees.contains(&user) => Reason::Assign,
        Some((_, issue)) if issue.author == user => Reason::Author,
        Some((repository, issue)) if has_commented(repository, issue, user) => Reason::Comment,
        _ => Reason::Subscribed,
    }
}

/// When a user last replied.
fn replied_at(world: &World, (user, repository, topic): Key) -> Option<Timestamp> {
    let repository = world.repositories.get(&repository)?;
    let comments = repository.issues.get(&topic.number()?)?.comments.iter().rev();
    comments
        .filter_map(|id| repository.comments.get(id))
        .find(|comment| comment.author == user)
        .map(|comment| comment.created_at)
}

fn has_commented(repository: &Repository, issue: &Issue, user: u64) -> bool {
    issue
        .comments
        .iter()
        .filter_map(|id| repository.comments.get(id))
        .any(|comment| comment.author == user)
}

/// Why somebody is told now, whatever the thread's lasting reason is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Mention,
    Activity,
}

/// What one user is to be told.
#[derive(Clone, Copy, Debug)]
pub struct Notification {
    pub user: u64,
    pub repository: u64,
    pub topic: Topic,
    pub reason: Reason,
    pub cause: Cause,
    pub comment: Option<u64>,
}

/// One user is told; the thread's id. An ignored thread stays as it is; a muted one too, unless the
/// user is mentioned. A thread that was done is back in the inbox. "Subscriptions are created only
/// when the user participates (replies, is @mentioned or subscribes manually)."
pub fn notify(world: &mut World, now: Timestamp, notice: &Notification) -> u64 {
    let Notification { user, repository, topic, reason, cause, comment } = *notice;
    let key = (user, repository, topic);
    let known = world.thread_of.get(&key).copied();
    let id = known.unwrap_or_else(|| new_thread(world, now, notice));
    let watches = world.users.get(&user).is_some_and(|user| user.watching.contains(&repository));
    let replied_at = replied_at(world, key);
    let Some(thread) = world.threads.get_mut(&id) else { return id };
    let silent = match thread.subscription {
        Some(Subscription::Ignored { .. }) => true,
        // "Equivalent to ignoring when the repository is not watched; watched repository still
        // notifies."
        Some(Subscription::Muted) => cause != Cause::Mention && !watches,
        Some(Subscription::Subscribed { .. }) | None => false,
    };
    if silent {
        return id;
    }
    if cause == Cause::Mention {
        if !matches!(thread.subscription, Some(Subscription::Subscribed { .. })) {
            thread.subscription =
                Some(Subscription::Subscribed { since: now, reason: Reason::Mention });
        }
    } else if thread.subscription.is_none() {
        // It may have taken part before there was a thread to tell of it.
        let took_part = matches!(reason, Reason::Mention | Reason::Comment | Reason::Manual)
            .then_some((now, reason));
        let first = replied_at.map(|at| (at, Reason::Comment)).or(took_part);
        thread.subscription =
            first.map(|(since, reason)| Subscription::Subscribed { since, reason });
    }
    thread.reason = reason;
    thread.state = ThreadState::Unread;
    thread.updated_at = now;
    thread.changed_at = now;
    thread.latest_comment = comment.or(thread.latest_comment);
    world.inbox_changed.insert(user, now);
    world.participation.took_part.remove(&key);
    id
}

fn new_thread(world: &mut World, now: Timestamp, notice: &Notification) -> u64 {
    let Notification { user, repository, topic, reason, .. } = *notice;
    if world.threads.len() >= THREADS_MAX
        && let Some((_, oldest)) = world.threads.pop_first()
    {
        world.thread_of.remove(&(oldest.user, oldest.repository, oldest.topic));
        world.inbox_changed.insert(oldest.user, now);
    }
    let id = world.next_id();
    world.thread_of.insert((user, repository, topic), id);
    let thread = Thread {
        id,
        user,
        repository,
        topic,
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
