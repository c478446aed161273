//! Notification threads: lists with their filters, reading, done (Document 2, Notifications and its state machine).

use http::{HeaderName, StatusCode};
use serde_json::{Value, json};

use super::subscriptions::Subscription;
use crate::clock::Timestamp;
use crate::emulator::access::{NOTIFICATION_SCOPES, Need};
use crate::emulator::call::Call;
use crate::emulator::fault::{Code, Fault};
use crate::emulator::fields::Fields;
use crate::emulator::pagination::{self, Caps, NOTIFICATIONS, USUAL};
use crate::emulator::render::Renderer;
use crate::emulator::reply::Reply;
use crate::emulator::route::{Outcome, Route, Verb};
use crate::emulator::timestamps::{iso, parse_http_date, parse_iso};
use crate::emulator::world::World;

/// Document 2: "only classic personal access tokens; scope `notifications` or `repo`".
pub const CLASSIC: Need = Need::Classic(NOTIFICATION_SCOPES);

pub const ROUTES: &[Route] = &[
    Route::new(Verb::Get, "/notifications", CLASSIC, list),
    Route::new(Verb::Put, "/notifications", CLASSIC, mark_all_read),
    Route::new(Verb::Get, "/notifications/threads/{thread_id}", CLASSIC, get),
    Route::new(Verb::Patch, "/notifications/threads/{thread_id}", CLASSIC, mark_read),
    Route::new(Verb::Delete, "/notifications/threads/{thread_id}", CLASSIC, mark_done),
    Route::new(Verb::Get, "/repos/{owner}/{repo}/notifications", Need::RepositoryNotifications, list_of_repository),
];

/// Why a user is told of a thread (Document 2, Reasons).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    ApprovalRequested,
    Assign,
    Author,
    CiActivity,
    Comment,
    Invitation,
    Manual,
    MemberFeatureRequested,
    Mention,
    ReviewRequested,
    StateChange,
    Subscribed,
    TeamMention,
}

impl Reason {
    pub const ALL: [Self; 13] = [
        Self::ApprovalRequested,
        Self::Assign,
        Self::Author,
        Self::CiActivity,
        Self::Comment,
        Self::Invitation,
        Self::Manual,
        Self::MemberFeatureRequested,
        Self::Mention,
        Self::ReviewRequested,
        Self::StateChange,
        Self::Subscribed,
        Self::TeamMention,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::ApprovalRequested => "approval_requested",
            Self::Assign => "assign",
            Self::Author => "author",
            Self::CiActivity => "ci_activity",
            Self::Comment => "comment",
            Self::Invitation => "invitation",
            Self::Manual => "manual",
            Self::MemberFeatureRequested => "member_feature_requested",
            Self::Mention => "mention",
            Self::ReviewRequested => "review_requested",
            Self::StateChange => "state_change",
            Self::Subscribed => "subscribed",
            Self::TeamMention => "team_mention",
        }
    }

    /// Whether the user itself is asked or took part, which `participating=true` filters by. Which reasons that is is not shown: all
    /// but those that come from watching or from machines.
    pub fn is_participating(self) -> bool {
        !matches!(self, Self::Subscribed | Self::CiActivity | Self::MemberFeatureRequested)
    }
}

/// A user's view of an issue or pull that it is told about.
#[derive(Debug)]
pub struct Thread {
    pub id: u64,
    pub user: u64,
    pub repository: u64,
    /// The issue or pull.
    pub number: u64,
    pub reason: Reason,
    pub state: ThreadState,
    pub updated_at: Timestamp,
    pub last_read_at: Option<Timestamp>,
    /// Any change at all, reading included; what `Last-Modified` tells.
    pub changed_at: Timestamp,
    pub latest_comment: Option<u64>,
    pub subscription: Option<Subscription>,
}

/// Document 2, States and transitions: Notification thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadState {
    Unread,
    Read,
    Done,
}

fn my_thread<'a>(call: &'a Call<'_>) -> Result<&'a Thread, Fault> {
    let id = call.params.id("thread_id")?;
    call.world.threads.get(&id).filter(|thread| Some(thread.user) == call.caller.user()).ok_or(Fault::NotFound)
}

/// The caller's thread that the path names, to be changed; the change is noted.
pub fn change_my_thread<'a>(call: &'a mut Call<'_>) -> Result<&'a mut Thread, Fault> {
    let id = my_thread(call)?.id;
    let now = call.now;
    let thread = call.world.threads.get_mut(&id).ok_or(Fault::NotFound)?;
    thread.changed_at = now;
    call.world.inbox_changed.insert(thread.user, now);
    Ok(thread)
}

fn list(call: &mut Call<'_>) -> Outcome {
    list_within(call, NOTIFICATIONS, |_| true)
}

fn list_of_repository(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository;
    list_within(call, USUAL, |thread| thread.repository == repository)
}

fn list_within(call: &mut Call<'_>, caps: Caps, within: impl Fn(&Thread) -> bool) -> Outcome {
    let me = call.caller.user().ok_or(Fault::RequiresAuthentication)?;
    let (all, participating) = (flag(call, "all")?, flag(call, "participating")?);
    let (since, before) = (moment(call, "since")?, moment(call, "before")?);
    let is_asked = |thread: &&Thread| {
        within(thread)
            && thread.state != ThreadState::Done
            && (all == Flag::Yes || thread.state == ThreadState::Unread)
            && (participating == Flag::No || thread.reason.is_participating())
            && since.is_none_or(|since| thread.updated_at >= since)
            && before.is_none_or(|before| thread.updated_at < before)
    };
    let mut threads: Vec<&Thread> = call.world.threads_of(me).filter(is_asked).collect();
    threads.sort_by_key(|thread| (std::cmp::Reverse(thread.updated_at), std::cmp::Reverse(thread.id)));
    // A thread shows its repository whole, which changes too.
    let repositories = threads.iter().filter_map(|thread| call.world.repositories.get(&thread.repository));
    let changed_at = repositories.map(|repository| repository.updated_at).chain(call.world.inbox_changed.get(&me).copied()).max();
    let mut reply = pagination::page(call, caps, threads, |thread| render(call, thread));
    reply.changed_at = changed_at;
    Ok(poll_interval(call, reply))
}

/// Document 1: "`X-Poll-Interval` (seconds) states how often polling is allowed".
fn poll_interval(call: &Call<'_>, reply: Reply) -> Reply {
    reply.with(HeaderName::from_static("x-poll-interval"), &call.limits.get("poll.interval").to_string())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flag {
    Yes,
    No,
}

fn flag(call: &Call<'_>, name: &str) -> Result<Flag, Fault> {
    match call.query.get(name) {
        None | Some("false" | "0" | "") => Ok(Flag::No),
        Some("true" | "1") => Ok(Flag::Yes),
        Some(_) => Err(Fault::field("Notification", name, Code::Invalid, format!("{name} must be true or false"))),
    }
}

fn moment(call: &Call<'_>, name: &str) -> Result<Option<Timestamp>, Fault> {
    let read = |text| {
        parse_iso(text).ok_or_else(|| Fault::field("Notification", name, Code::Invalid, format!("{name} is not an ISO 8601 timestamp")))
    };
    call.query.get(name).map(read).transpose()
}

fn get(call: &mut Call<'_>) -> Outcome {
    let thread = my_thread(call)?;
    let repository = call.world.repositories.get(&thread.repository).ok_or(Fault::NotFound)?;
    let changed_at = thread.changed_at.max(repository.updated_at);
    Ok(poll_interval(call, Reply::ok(render(call, thread)).changed_at(changed_at)))
}

/// 205; 304 for a caller that asks conditionally and changes nothing. (When a write answers 304 is not shown.)
fn mark_read(call: &mut Call<'_>) -> Outcome {
    let thread = my_thread(call)?;
    if thread.state == ThreadState::Read && is_unchanged_since(call, thread.changed_at) {
        return Ok(Reply::empty(StatusCode::NOT_MODIFIED));
    }
    let now = call.now;
    read(change_my_thread(call)?, now, now);
    Ok(Reply::empty(StatusCode::RESET_CONTENT))
}

/// Whether the caller sent `If-Modified-Since` and nothing was changed after that.
pub fn is_unchanged_since(call: &Call<'_>, changed_at: Timestamp) -> bool {
    let since = call.headers.get(http::header::IF_MODIFIED_SINCE).and_then(|value| value.to_str().ok()).and_then(parse_http_date);
    since.is_some_and(|since| changed_at.as_secs() <= since.as_secs())
}

fn mark_done(call: &mut Call<'_>) -> Outcome {
    change_my_thread(call)?.state = ThreadState::Done;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn read(thread: &mut Thread, up_to: Timestamp, now: Timestamp) {
    if thread.state == ThreadState::Unread {
        thread.state = ThreadState::Read;
    }
    thread.last_read_at = Some(up_to);
    thread.changed_at = now;
}

/// `last_read_at` omitted marks all; `read: false` is accepted and marks nothing, as nothing else would make sense of it.
fn mark_all_read(call: &mut Call<'_>) -> Outcome {
    let me = call.caller.user().ok_or(Fault::RequiresAuthentication)?;
    let mut fields = Fields::parse("Notification", call.body)?;
    let wants_read = fields.boolean("read").unwrap_or(true);
    let given = fields.string("last_read_at");
    let up_to = given.as_deref().map_or(Some(call.now), parse_iso);
    if up_to.is_none() {
        fields.reject("last_read_at", Code::Invalid, "last_read_at is not an ISO 8601 timestamp");
    }
    fields.check()?;
    let up_to = up_to.unwrap_or(call.now);
    let concerned = call.world.threads_of(me).filter(|thread| is_unread_before(thread, me, up_to)).count();
    let inbox_changed = call.world.inbox_changed.get(&me).copied().unwrap_or(Timestamp::EPOCH);
    if !wants_read {
        return Ok(Reply::empty(StatusCode::RESET_CONTENT));
    }
    if concerned == 0 && is_unchanged_since(call, inbox_changed) {
        return Ok(Reply::empty(StatusCode::NOT_MODIFIED));
    }
    if concerned as u64 > call.limits.get("notifications.background-above") {
        let due = call.now + call.limits.duration("notifications.background");
        call.world.background_reads.push((due, me, up_to));
        return Ok(Reply::json(StatusCode::ACCEPTED, json!({ "message": "Marking as read continues in the background" })));
    }
    let now = call.now;
    mark_read_before(call.world, me, up_to, now);
    Ok(Reply::empty(StatusCode::RESET_CONTENT))
}

/// "`updated_at` at or before `last_read_at`"; later updates stay unread.
fn is_unread_before(thread: &Thread, user: u64, up_to: Timestamp) -> bool {
    thread.user == user && thread.state == ThreadState::Unread && thread.updated_at <= up_to
}

fn mark_read_before(world: &mut World, user: u64, up_to: Timestamp, now: Timestamp) {
    world.threads.values_mut().filter(|thread| is_unread_before(thread, user, up_to)).for_each(|thread| read(thread, up_to, now));
    world.inbox_changed.insert(user, now);
}

/// Does what was promised with a 202 and is due.
pub fn finish_background_reads(world: &mut World, now: Timestamp) {
    let due: Vec<_> = world.background_reads.iter().filter(|(due, ..)| *due <= now).copied().collect();
    if !due.is_empty() {
        world.background_reads.retain(|(due, ..)| *due > now);
        for (at, user, up_to) in due {
            mark_read_before(world, user, up_to, at);
        }
    }
}

/// Document 2, Notification thread.
fn render(call: &Call<'_>, thread: &Thread) -> Value {
    let renderer = Renderer::of(call);
    let url = format!("{}/notifications/threads/{}", call.urls.api, thread.id);
    let repository = call.world.repositories.get(&thread.repository);
    json!({
        "id": thread.id.to_string(),
        "repository": repository.map(|repository| renderer.repository(repository)),
        "subject": subject(call, thread),
        "reason": thread.reason.name(),
        "unread": thread.state == ThreadState::Unread,
        "updated_at": iso(thread.updated_at),
        "last_read_at": thread.last_read_at.map(iso),
        "url": url,
        "subscription_url": format!("{url}/subscription"),
    })
}

fn subject(call: &Call<'_>, thread: &Thread) -> Value {
    let Some(repository) = call.world.repositories.get(&thread.repository) else { return Value::Null };
    let Some(issue) = repository.issues.get(&thread.number) else { return Value::Null };
    let base = Renderer::of(call).repository_url(repository);
    let (collection, kind) = if issue.pull_from.is_some() { ("pulls", "PullRequest") } else { ("issues", "Issue") };
    let url = format!("{base}/{collection}/{}", issue.number);
    let latest = thread.latest_comment.map_or_else(|| url.clone(), |id| format!("{base}/issues/comments/{id}"));
    json!({ "title": issue.title, "url": url, "latest_comment_url": latest, "type": kind })
}
