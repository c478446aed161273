//! Notification threads: filtered lists, marking as read and done (SPECIFICATION, "Notifications").

pub mod subscriptions;

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use http::{StatusCode, header};
use serde_json::{Value, json};

use crate::clock::Timestamp;
use crate::emulator::http::timestamps::parse_iso;
use crate::emulator::http::{ApiError, Code, FieldError, Fields, Reply, hex, iso, parse_http_date};
use crate::emulator::render::Renderer;
use crate::emulator::routing::need::NOTIFICATION_SCOPES;
use crate::emulator::routing::pagination::{self, NOTIFICATIONS};
use crate::emulator::routing::{Call, Caps, Need, Outcome, Route, USUAL, polling};
use crate::emulator::world::notifications::thread::{BackgroundRead, CommentKey, CommitKey};
use crate::emulator::world::{Reason, Repository, Thread, ThreadState, Topic, World};

/// Only classic tokens with the scope `notifications` or `repo`.
pub const CLASSIC: Need = Need::Classic(NOTIFICATION_SCOPES);

pub const ROUTES: &[Route] = &[
    Route::get("/notifications", CLASSIC, list),
    Route::put("/notifications", CLASSIC, mark_all_read),
    Route::get("/notifications/threads/{thread_id}", CLASSIC, get),
    Route::patch("/notifications/threads/{thread_id}", CLASSIC, mark_read),
    Route::delete("/notifications/threads/{thread_id}", CLASSIC, mark_done),
    Route::get(
        "/repos/{owner}/{repo}/notifications",
        Need::RepositoryNotifications,
        list_of_repository,
    ),
    Route::put(
        "/repos/{owner}/{repo}/notifications",
        Need::RepositoryNotifications,
        mark_repository_read,
    ),
];

/// Finds the caller's thread in the path; a repository out of the token's reach hides it.
pub fn my_thread<'a>(call: &'a Call<'_>) -> Result<&'a Thread, ApiError> {
    let thread = call.world.threads.get(&call.params.id("thread_id")?);
    let mine = thread.filter(|thread| Some(thread.user) == call.caller.user());
    mine.filter(|thread| is_visible(call, thread)).ok_or(ApiError::NotFound)
}

/// A private repository takes the scope `repo`, and a user who still has access.
fn is_visible(call: &Call<'_>, thread: &Thread) -> bool {
    let repository = call.world.repositories.get(&thread.repository);
    repository.is_some_and(|repository| call.sees(repository))
}

/// Records the change.
pub fn change_my_thread<'a>(call: &'a mut Call<'_>) -> Result<&'a mut Thread, ApiError> {
    let (id, now) = (my_thread(call)?.id, call.now);
    let thread = call.world.threads.get_mut(&id).ok_or(ApiError::NotFound)?;
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
    let me = call.me()?;
    let filter = Filter::read(call)?;
    let is_wanted =
        |thread: &&Thread| within(thread) && filter.accepts(thread) && is_visible(call, thread);
    let mut threads: Vec<&Thread> = call.world.threads_of(me).filter(is_wanted).collect();
    threads.sort_by_key(|thread| Reverse((thread.updated_at, thread.id)));
    // A thread shows its whole repository. One that is hidden now may have been visible before.
    let renderer = call.renderer();
    let mine = call.world.threads_of(me).filter(|thread| within(thread));
    let repositories: BTreeSet<u64> = mine.map(|thread| thread.repository).collect();
    let repositories = repositories.iter().filter_map(|id| call.world.repositories.get(id));
    // An inbox that was always empty is as old as its owner.
    let inbox_changed = call.world.inbox_changed.get(&me).copied();
    let inbox_changed =
        inbox_changed.or_else(|| call.world.users.get(&me).map(|user| user.created_at));
    let changed = repositories.map(|repository| renderer.repository_changed_at(repository));
    let changed_at = changed.chain(inbox_changed).max();
    let mut reply = pagination::page(call, caps, threads, |thread| render(call, thread));
    reply.changed_at = changed_at;
    Ok(polling::paced(call, reply))
}

#[derive(Debug)]
struct Filter {
    states: &'static [ThreadState],
    participating: Option<bool>,
    since: Option<Timestamp>,
    before: Option<Timestamp>,
}

impl Filter {
    fn read(call: &Call<'_>) -> Result<Self, ApiError> {
        let mut faults = Vec::new();
        let all = flag(call, "all", &mut faults);
        let participating = flag(call, "participating", &mut faults);
        let since = moment(call, "since", &mut faults);
        let before = moment(call, "before", &mut faults);
        if !faults.is_empty() {
            return Err(ApiError::Invalid(faults));
        }
        // `all` adds read threads; threads marked as done are in no inbox.
        let states: &[ThreadState] = if all == Some(true) {
            &[ThreadState::Unread, ThreadState::Read]
        } else {
            &[ThreadState::Unread]
        };
        Ok(Self { states, participating, since, before })
    }

    fn accepts(&self, thread: &Thread) -> bool {
        self.states.contains(&thread.state)
            && (self.participating != Some(true) || thread.reason.is_participating())
            && self.since.is_none_or(|since| thread.updated_at >= since)
            && self.before.is_none_or(|before| thread.updated_at < before)
    }
}

fn wrong(name: &str, wanted: &str) -> FieldError {
    FieldError {
        resource: "Notification",
        field: name.to_owned(),
        code: Code::Invalid,
        message: format!("{name} is not {wanted}"),
    }
}

fn flag(call: &Call<'_>, name: &str, faults: &mut Vec<FieldError>) -> Option<bool> {
    match call.query.get(name)? {
        "true" | "1" => Some(true),
        "false" | "0" | "" => Some(false),
        _ => {
            faults.push(wrong(name, "true or false"));
            None
        }
    }
}

fn moment(call: &Call<'_>, name: &str, faults: &mut Vec<FieldError>) -> Option<Timestamp> {
    let moment = parse_iso(call.query.get(name)?);
    if moment.is_none() {
        faults.push(wrong(name, "an ISO 8601 timestamp"));
    }
    moment
}

fn get(call: &mut Call<'_>) -> Outcome {
    let thread = my_thread(call)?;
    let repository = call.world.repositories.get(&thread.repository).ok_or(ApiError::NotFound)?;
    let changed_at = thread.changed_at.max(call.renderer().repository_changed_at(repository));
    let reply = Reply::ok(render(call, thread)).changed_at(changed_at);
    Ok(polling::paced(call, reply))
}

/// 304 for a conditional request that changes nothing; the upstream does not document when.
fn mark_read(call: &mut Call<'_>) -> Outcome {
    let thread = my_thread(call)?;
    if thread.state != ThreadState::Unread && is_unchanged_since(call, thread.changed_at) {
        return Ok(Reply::empty(StatusCode::NOT_MODIFIED));
    }
    let now = call.now;
    read(change_my_thread(call)?, now, now);
    Ok(Reply::empty(StatusCode::RESET_CONTENT))
}

/// Only with `If-Modified-Since`.
pub fn is_unchanged_since(call: &Call<'_>, changed_at: Timestamp) -> bool {
    let since = call.header(header::IF_MODIFIED_SINCE).and_then(parse_http_date);
    since.is_some_and(|since| changed_at.as_secs() <= since.as_secs())
}

/// From read or unread; a thread that is done stays done.
fn mark_done(call: &mut Call<'_>) -> Outcome {
    if my_thread(call)?.state != ThreadState::Done {
        change_my_thread(call)?.state = ThreadState::Done;
    }
    Ok(Reply::no_content())
}

fn read(thread: &mut Thread, up_to: Timestamp, now: Timestamp) {
    if thread.state == ThreadState::Unread {
        thread.state = ThreadState::Read;
    }
    thread.last_read_at = thread.last_read_at.max(Some(up_to));
    thread.changed_at = now;
}

fn mark_all_read(call: &mut Call<'_>) -> Outcome {
    mark_within(call, |_| true)
}

/// Undocumented for one repository; it works like the route for all.
fn mark_repository_read(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository;
    mark_within(call, |thread| thread.repository == repository)
}

/// Without `last_read_at` it marks all; `read: false` is accepted and marks nothing.
fn mark_within(call: &mut Call<'_>, within: impl Fn(&Thread) -> bool) -> Outcome {
    let me = call.me()?;
    let mut fields = Fields::parse("Notification", call.body)?;
    let wants_read = fields.boolean("read").unwrap_or(true);
    let given = fields.string("last_read_at");
    let up_to = given.as_deref().map_or(Some(call.now), parse_iso);
    if up_to.is_none() {
        fields.invalid("last_read_at", "last_read_at is not an ISO 8601 timestamp");
    }
    fields.check()?;
    // A new request completes the user's earlier background read at once.
    finish_background_reads(call.world, call.now, |pending| pending.user == me);
    // A given time includes its whole second. A future time is cut to now: later updates stay
    // unread.
    let whole_second =
        |given: Timestamp| Timestamp::from_secs(given.as_secs()) + Duration::from_millis(999);
    let up_to = given.and(up_to).map_or(call.now, whole_second).min(call.now);
    let is_concerned =
        |thread: &&Thread| within(thread) && thread.is_unread_at(up_to) && is_visible(call, thread);
    let threads: Vec<u64> =
        call.world.threads_of(me).filter(is_concerned).map(|thread| thread.id).collect();
    let inbox_changed = call.world.inbox_changed.get(&me).copied().unwrap_or(Timestamp::EPOCH);
    if !wants_read {
        return Ok(Reply::empty(StatusCode::RESET_CONTENT));
    }
    if threads.is_empty() && is_unchanged_since(call, inbox_changed) {
        return Ok(Reply::empty(StatusCode::NOT_MODIFIED));
    }
    let now = call.now;
    let is_large = threads.len() as u64 > call.limits.get("notifications.background-above");
    if !is_large {
        BackgroundRead { due: now, user: me, up_to, threads }.finish(call.world, now);
        return Ok(Reply::empty(StatusCode::RESET_CONTENT));
    }
    let due = now + call.limits.duration("notifications.background");
    call.world.background_reads.push(BackgroundRead { due, user: me, up_to, threads });
    Ok(Reply::json(
        StatusCode::ACCEPTED,
        json!({ "message": "Marking as read continues in the background" }),
    ))
}

impl BackgroundRead {
    /// Threads updated meanwhile stay unread.
    fn finish(&self, world: &mut World, at: Timestamp) {
        for id in &self.threads {
            let thread = world.threads.get_mut(id);
            if let Some(thread) = thread.filter(|thread| thread.is_unread_at(self.up_to)) {
                read(thread, self.up_to, at);
                world.inbox_changed.insert(self.user, at);
            }
        }
    }
}

pub fn finish_due_reads(world: &mut World, now: Timestamp) {
    finish_background_reads(world, now, |pending| pending.due <= now);
}

fn finish_background_reads(
    world: &mut World,
    now: Timestamp,
    chosen: impl Fn(&BackgroundRead) -> bool,
) {
    let chosen: Vec<_> = world.background_reads.extract_if(.., |pending| chosen(pending)).collect();
    for reads in chosen {
        reads.finish(world, reads.due.min(now));
    }
}

fn render(call: &Call<'_>, thread: &Thread) -> Value {
    let renderer = call.renderer();
    let url = format!("{}/notifications/threads/{}", call.urls.api, thread.id);
    let repository = call.world.repositories.get(&thread.repository);
    let joined_at =
        call.world.users.get(&thread.user).map_or(Timestamp::EPOCH, |user| user.created_at);
    json!({
        "id": thread.id.to_string(),
        "repository": repository.map(|repository| renderer.repository(repository)),
        "subject": repository.map(|repository| subject(renderer, repository, thread)),
        "reason": thread.reason.into_str(),
        "unread": thread.state == ThreadState::Unread,
        "updated_at": iso(thread.updated_at),
        // Never null: for a thread never read, the date when the user joined.
        "last_read_at": iso(thread.last_read_at.unwrap_or(joined_at)),
        "url": url,
        "subscription_url": format!("{url}/subscription"),
    })
}

/// Renders `{title, url, latest_comment_url, type}`, all of them strings. The upstream documents
/// only the type `Issue`; the others, and their titles, follow the running service where it has
/// them.
fn subject(renderer: Renderer<'_>, repository: &Repository, thread: &Thread) -> Value {
    let base = renderer.repository_url(repository);
    let full_name = renderer.world.full_name(repository);
    let (title, url, kind) = match thread.topic {
        Topic::Numbered(number) => return numbered(&base, repository, thread, number),
        Topic::Commit(key) => return commit(&renderer, repository, thread, key),
        Topic::Run(id) => {
            let is_waiting = thread.reason == Reason::ApprovalRequested;
            let what = if is_waiting { "is waiting for approval" } else { "completed" };
            (format!("CI workflow run {what}"), format!("{base}/actions/runs/{id}"), "CheckSuite")
        }
        Topic::Invitation(_) => {
            (format!("Invitation to {full_name}"), base, "RepositoryInvitation")
        }
        Topic::FeatureRequest(_) => {
            ("Members ask to enable a feature".to_owned(), base, "MemberFeatureRequest")
        }
    };
    json!({ "title": title, "url": url, "latest_comment_url": url, "type": kind })
}

/// Without a comment, the latest one is the issue itself. A deleted issue still has an address.
fn numbered(base: &str, repository: &Repository, thread: &Thread, number: u64) -> Value {
    let issue = repository.issues.get(&number);
    let is_pull = issue.is_some_and(|issue| issue.pull_from.is_some());
    let (collection, kind) = if is_pull { ("pulls", "PullRequest") } else { ("issues", "Issue") };
    let url = format!("{base}/{collection}/{number}");
    let latest = latest_comment(base, thread).unwrap_or_else(|| url.clone());
    json!({ "title": issue.map_or("", |issue| issue.title.as_str()), "url": url, "latest_comment_url": latest, "type": kind })
}

fn latest_comment(base: &str, thread: &Thread) -> Option<String> {
    Some(match thread.latest_comment? {
        CommentKey::Issue(id) => format!("{base}/issues/comments/{id}"),
        CommentKey::Review(id) => format!("{base}/pulls/comments/{id}"),
        CommentKey::Commit(id) => format!("{base}/comments/{id}"),
    })
}

fn commit(
    renderer: &Renderer<'_>,
    repository: &Repository,
    thread: &Thread,
    key: CommitKey,
) -> Value {
    let (base, sha) = (renderer.repository_url(repository), hex(&key));
    let history = renderer.world.history(repository);
    let message = history.commit(&sha).map_or("", |commit| commit.message.as_str());
    let url = format!("{base}/commits/{sha}");
    let latest = latest_comment(&base, thread).unwrap_or_else(|| url.clone());
    let title = message.lines().next().unwrap_or("");
    json!({ "title": title, "url": url, "latest_comment_url": latest, "type": "Commit" })
}
