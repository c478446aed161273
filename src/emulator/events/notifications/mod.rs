//! Notifications: their recipients and reasons (SPECIFICATION, "Notifications").
//!
//! An event about the user itself (mention, assignment, review request) has its own reason. Any
//! other event has the user's reason to follow the thread: the last participation, else the stored
//! reason, else watching.

pub mod mentions;

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Timestamp;
use crate::emulator::world::notifications::thread::Subscription;
use crate::emulator::world::notifications::thread::{Key, NamedUsers};
use crate::emulator::world::{
    Comment, Issue, Owner, Reason, Repository, Thread, ThreadState, Topic, Visibility, World,
};

/// The most threads; beyond it the oldest are dropped.
const THREADS_MAX: usize = 200_000;

#[derive(Clone, Copy, Debug)]
struct Activity {
    repository: u64,
    number: u64,
    actor: u64,
    comment: Option<u64>,
    audience: Audience,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    All,
    NamedOnly,
}

/// Opening, closing and reopening notify everyone concerned; other changes notify newly mentioned
/// users only. The upstream does not document which changes notify.
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
    // The last reason of a user counts.
    for (users, known, reason) in [
        (&named.mentions.of_teams, &before.mentions.of_teams, Reason::TeamMention),
        (&named.assignees, &before.assignees, Reason::Assign),
        (&named.mentions.users, &before.mentions.users, Reason::Mention),
    ] {
        direct.extend(users.difference(known).map(|user| (*user, reason)));
    }
    if named != NamedUsers::default() {
        world.participation.named.insert((repository, number), named);
    }
    let audience = match action {
        "opened" | "closed" | "reopened" => Audience::All,
        _ => Audience::NamedOnly,
    };
    if matches!(action, "closed" | "reopened") {
        // The next notification has this reason.
        took_part(world, (actor, repository, Topic::Numbered(number)), Reason::StateChange);
    }
    let activity = Activity { repository, number, actor, comment: None, audience };
    notify_all(world, now, activity, &direct);
}

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
    // The author keeps that reason, whatever it comments.
    if issue_of(world, repository, number).is_some_and(|issue| issue.author != actor) {
        took_part(world, key, Reason::Comment);
    }
    subscribe_by_reply(world, now, key);
    let (comment, audience) = (Some(id), Audience::All);
    notify_all(world, now, Activity { repository, number, actor, comment, audience }, &direct);
}

pub fn review_requested(
    world: &mut World,
    now: Timestamp,
    repository: u64,
    number: u64,
    actor: u64,
    requested: &BTreeSet<u64>,
) {
    let direct = requested.iter().map(|user| (*user, Reason::ReviewRequested)).collect();
    let (comment, audience) = (None, Audience::NamedOnly);
    notify_all(world, now, Activity { repository, number, actor, comment, audience }, &direct);
}

/// Records a participation, which is the reason of the next notification.
pub fn took_part(world: &mut World, key: Key, how: Reason) {
    world.participation.took_part.insert(key, how);
}

/// A comment unmutes a thread; an ignored thread stays ignored (SPECIFICATION, "Notifications").
fn subscribe_by_reply(world: &mut World, now: Timestamp, key: Key) {
    let thread = world.thread_of.get(&key).and_then(|id| world.threads.get_mut(id));
    let is_open =
        |thread: &&mut Thread| matches!(thread.subscription, None | Some(Subscription::Muted));
    let Some(thread) = thread.filter(is_open) else { return };
    thread.subscription = Some(Subscription::Subscribed { since: now, reason: Reason::Comment });
    thread.changed_at = now;
    world.inbox_changed.insert(key.0, now);
}

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
        // The reason `mention` is permanent (SPECIFICATION, "Notifications").
        let own = direct.get(&user).copied();
        let reason = own.filter(|_| current_reason != Reason::Mention).unwrap_or(current_reason);
        let cause = if own == Some(Reason::Mention) { Cause::Mention } else { Cause::Activity };
        notify(world, now, &Notification { user, repository, topic, reason, cause, comment });
    }
}

fn issue_of(world: &World, repository: u64, number: u64) -> Option<&Issue> {
    world.repositories.get(&repository)?.issues.get(&number)
}

fn thread_of(world: &World, key: Key) -> Option<&Thread> {
    world.threads.get(world.thread_of.get(&key)?)
}

fn comments_of<'r>(
    repository: &'r Repository,
    issue: &'r Issue,
) -> impl DoubleEndedIterator<Item = &'r Comment> {
    issue.comments.iter().filter_map(|id| repository.comments.get(id))
}

/// Watchers, participants, users with another reason so far, author, assignees and commenters.
fn followers(world: &World, repository: u64, number: u64) -> BTreeSet<u64> {
    let follows = |user: u64| {
        let key = (user, repository, Topic::Numbered(number));
        thread_of(world, key).is_some_and(|thread| {
            thread.reason != Reason::Subscribed
                || matches!(thread.subscription, Some(Subscription::Subscribed { .. }))
        }) || world.participation.took_part.contains_key(&key)
    };
    let mut followers: BTreeSet<u64> = world
        .users
        .values()
        .filter(|user| user.watching.contains(&repository) || follows(user.id))
        .map(|user| user.id)
        .collect();
    let Some(repository) = world.repositories.get(&repository) else { return followers };
    if let Some(issue) = repository.issues.get(&number) {
        followers.insert(issue.author);
        followers.extend(&issue.assignees);
        followers.extend(comments_of(repository, issue).map(|comment| comment.author));
    }
    followers
}

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

/// For events not about the user itself: the stored reason, until a notification has another
/// (SPECIFICATION, "Notifications").
fn current_reason(world: &World, key: Key) -> Reason {
    let kept = thread_of(world, key).map(|thread| thread.reason);
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
        Some((repository, issue))
            if comments_of(repository, issue).any(|comment| comment.author == user) =>
        {
            Reason::Comment
        }
        _ => Reason::Subscribed,
    }
}

fn replied_at(world: &World, (user, repository, topic): Key) -> Option<Timestamp> {
    let repository = world.repositories.get(&repository)?;
    let issue = repository.issues.get(&topic.number()?)?;
    let reply = comments_of(repository, issue).rfind(|comment| comment.author == user)?;
    Some(reply.created_at)
}

/// The cause of this notification, whatever the thread's permanent reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Mention,
    Activity,
}

#[derive(Clone, Copy, Debug)]
pub struct Notification {
    pub user: u64,
    pub repository: u64,
    pub topic: Topic,
    pub reason: Reason,
    pub cause: Cause,
    pub comment: Option<u64>,
}

/// Leaves an ignored thread unchanged, and a muted one without a mention. A thread marked as done
/// returns to the inbox. Only participation creates a subscription.
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
        // A muted thread still notifies watchers of the repository.
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
        // The user may have participated before the thread existed.
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
