//! Notifications: their recipients and reasons (SPECIFICATION, "Notifications").
//!
//! An event about the user itself (mention, assignment, review request) has its own reason. Any
//! other event has the user's reason to follow the thread: the last participation, else the stored
//! reason, else watching.

pub mod mentions;

use std::collections::{BTreeMap, BTreeSet};

use super::history;
use crate::clock::Timestamp;
use crate::emulator::http::hex;
use crate::emulator::world::notifications::thread::Subscription;
use crate::emulator::world::notifications::thread::{CommentKey, Key, NamedUsers};
use crate::emulator::world::{
    Comment, Detail, Issue, Owner, Reason, Repository, Thread, ThreadState, Topic, Visibility,
    World,
};

/// The most threads; beyond it the oldest are dropped.
const THREADS_MAX: usize = 200_000;

#[derive(Clone, Copy, Debug)]
struct Activity {
    repository: u64,
    topic: Topic,
    actor: u64,
    comment: Option<CommentKey>,
    audience: Audience,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Audience {
    All,
    NamedOnly,
}

/// The users that a change concerns, and their reasons.
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    Nobody,
    /// An issue or pull request changed. Opening, closing and reopening notify everyone concerned;
    /// other changes notify newly named users only. The upstream does not document which notify.
    Issue {
        number: u64,
        action: &'a str,
    },
    /// A new comment or review.
    Comment {
        topic: Topic,
        text: &'a str,
        comment: Option<CommentKey>,
    },
    /// A text before and after its edit, which notifies newly mentioned users only.
    Edit {
        topic: Topic,
        texts: (&'a str, &'a str),
        comment: Option<CommentKey>,
    },
    ReviewRequest {
        number: u64,
        users: &'a BTreeSet<u64>,
    },
    /// The user accepted an invitation to the repository.
    Joined {
        invitation: u64,
        user: u64,
    },
    /// A workflow run of the actor ended.
    RunEnded {
        run: u64,
    },
}

pub fn raise(world: &mut World, now: Timestamp, repository: u64, actor: u64, notice: Notice<'_>) {
    let named_only = |topic, comment| {
        let audience = Audience::NamedOnly;
        Activity { repository, topic, actor, comment, audience }
    };
    match notice {
        Notice::Nobody => {}
        Notice::Issue { number, action } => {
            issue_changed(world, now, repository, number, actor, action);
        }
        Notice::Comment { topic, text, comment } => {
            let audience = Audience::All;
            let activity = Activity { repository, topic, actor, comment, audience };
            commented(world, now, activity, text);
        }
        Notice::Edit { topic, texts: (before, after), comment } => {
            let (had, has) = (mentions::find(world, before), mentions::find(world, after));
            let mut direct = BTreeMap::new();
            add_reason(&mut direct, &has.of_teams, &had.of_teams, Reason::TeamMention);
            add_reason(&mut direct, &has.users, &had.users, Reason::Mention);
            notify_all(world, now, named_only(topic, comment), &direct);
        }
        Notice::ReviewRequest { number, users } => {
            let direct = users.iter().map(|user| (*user, Reason::ReviewRequested)).collect();
            notify_all(world, now, named_only(Topic::Numbered(number), None), &direct);
        }
        Notice::Joined { invitation, user } => {
            let (topic, reason) = (Topic::Invitation(invitation), Reason::Invitation);
            let (cause, comment) = (Cause::Activity, None);
            notify(world, now, &Notification { user, repository, topic, reason, cause, comment });
        }
        Notice::RunEnded { run } => {
            let (user, topic, reason) = (actor, Topic::Run(run), Reason::CiActivity);
            let (cause, comment) = (Cause::Activity, None);
            notify(world, now, &Notification { user, repository, topic, reason, cause, comment });
        }
    }
}

/// Gives a reason to the users that were not named before. The last reason of a user counts.
fn add_reason(
    direct: &mut BTreeMap<u64, Reason>,
    users: &BTreeSet<u64>,
    known: &BTreeSet<u64>,
    reason: Reason,
) {
    direct.extend(users.difference(known).map(|user| (*user, reason)));
}

fn issue_changed(
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
    let teams = (&named.mentions.of_teams, &before.mentions.of_teams);
    add_reason(&mut direct, teams.0, teams.1, Reason::TeamMention);
    add_reason(&mut direct, &named.assignees, &before.assignees, Reason::Assign);
    let users = (&named.mentions.users, &before.mentions.users);
    add_reason(&mut direct, users.0, users.1, Reason::Mention);
    if named != NamedUsers::default() {
        world.participation.named.insert((repository, number), named);
    }
    let audience = match action {
        "opened" | "closed" | "reopened" => Audience::All,
        _ => Audience::NamedOnly,
    };
    let topic = Topic::Numbered(number);
    if matches!(action, "closed" | "reopened") {
        // The next notification has this reason.
        took_part(world, (actor, repository, topic), Reason::StateChange);
    }
    notify_all(world, now, Activity { repository, topic, actor, comment: None, audience }, &direct);
}

fn commented(world: &mut World, now: Timestamp, activity: Activity, text: &str) {
    let Activity { repository, topic, actor, .. } = activity;
    let named = mentions::find(world, text);
    let mut direct = BTreeMap::new();
    add_reason(&mut direct, &named.of_teams, &BTreeSet::new(), Reason::TeamMention);
    add_reason(&mut direct, &named.users, &BTreeSet::new(), Reason::Mention);
    let key = (actor, repository, topic);
    // The author keeps that reason, whatever it comments.
    if author_of(world, repository, topic) != Some(actor) {
        took_part(world, key, Reason::Comment);
    }
    subscribe_by_reply(world, now, key);
    notify_all(world, now, activity, &direct);
}

/// Returns the author of an issue, pull request or commit.
fn author_of(world: &World, repository: u64, topic: Topic) -> Option<u64> {
    let found = world.repositories.get(&repository)?;
    match topic {
        Topic::Numbered(number) => found.issues.get(&number).map(|issue| issue.author),
        Topic::Commit(key) => {
            world.history(found).commit(&hex(&key)).map(|commit| commit.author.user)
        }
        Topic::Run(_) | Topic::Invitation(_) | Topic::FeatureRequest(_) => None,
    }
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
    let Activity { repository, topic, actor, comment, audience } = activity;
    let mut users: BTreeSet<u64> = direct.keys().copied().collect();
    if audience == Audience::All {
        users.extend(followers(world, repository, topic));
    }
    for user in users {
        if user == actor || !may_see(world, user, repository) {
            continue;
        }
        let current_reason = current_reason(world, (user, repository, topic));
        // The reason `mention` is permanent (SPECIFICATION, "Notifications").
        let own = direct.get(&user).copied();
        let reason = own.filter(|_| current_reason != Reason::Mention).unwrap_or(current_reason);
        let cause = if own == Some(Reason::Mention) { Cause::Mention } else { Cause::Activity };
        if cause == Cause::Mention {
            note_mention(world, now, (repository, topic), user);
        }
        notify(world, now, &Notification { user, repository, topic, reason, cause, comment });
    }
}

/// The history of an issue names the users that it mentions, as actors.
fn note_mention(world: &mut World, now: Timestamp, (repository, topic): (u64, Topic), user: u64) {
    let Some(number) = topic.number() else { return };
    for name in ["mentioned", "subscribed"] {
        history::note(world, now, (repository, number), user, (name, Detail::None));
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
fn followers(world: &World, repository: u64, topic: Topic) -> BTreeSet<u64> {
    let follows = |user: u64| {
        let key = (user, repository, topic);
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
    followers.extend(author_of(world, repository, topic));
    let Some(repository) = world.repositories.get(&repository) else { return followers };
    if let Some(issue) = topic.number().and_then(|number| repository.issues.get(&number)) {
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
        || repository.collaborators.contains_key(&user)
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
    if topic.number().is_none() && author_of(world, repository, topic) == Some(user) {
        return Reason::Author;
    }
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
    pub comment: Option<CommentKey>,
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
