//! `POST /_emulator/events`: webhook events and notifications that a test triggers.
//!
//! The README lists the types and their members; `event_members` refuses all others.
//! [`notification_triggers`] has the types that only notify.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::{
    ControlResult, JsonReply, event_members, notification_triggers, refusal, unprocessable,
};
use crate::clock::Timestamp;
use crate::emulator::accounts::AccountId;
use crate::emulator::events::changes;
use crate::emulator::events::pushes;
use crate::emulator::events::webhooks::{EventContext, EventScope, WebhookEvent, publish_in};
use crate::emulator::http::{ApiError, Fields, Urls};
use crate::emulator::resources::teams::joining;
use crate::emulator::state::State;
use crate::emulator::world::git::objects::is_path;
use crate::emulator::world::{Detail, Edit, HistoryFull, Issue, World};

/// Longer than any event's name.
const NAME_BYTES_MAX: usize = 100;

pub fn respond(state: &mut State, urls: &Urls, now: Timestamp, body: &[u8]) -> ControlResult {
    let mut fields = Fields::parse("Event", body).map_err(refusal)?;
    let kind = fields.value("type").and_then(Value::as_str).unwrap_or("").to_owned();
    event_members::check(&kind, &mut fields).map_err(refusal)?;
    let trigger = WebhookTrigger { urls, now, fields };
    match kind.as_str() {
        "push" => webhook_reply(push(&mut state.world, trigger)),
        "pull_request_opened" => webhook_reply(open_pull(&mut state.world, trigger)),
        "custom" => webhook_reply(custom(&mut state.world, trigger)),
        "invitation_accepted" => invitation(state, trigger, |world, now, organization, user, _| {
            joining::accept(world, now, organization, user)
        }),
        "invitation_failed" => invitation(state, trigger, joining::fail),
        kind => match notification_triggers::KINDS.into_iter().find(|known| *known == kind) {
            Some(kind) => notification_triggers::respond(state, now, kind, trigger.fields),
            None => issue_event(state, trigger),
        },
    }
}

fn webhook_reply(done: Result<Value, ApiError>) -> ControlResult {
    match done {
        Ok(value) => Ok((StatusCode::CREATED, value)),
        Err(ApiError::Invalid(errors)) => {
            let messages: Vec<String> = errors.into_iter().map(|error| error.message).collect();
            unprocessable(&messages.join("; "))
        }
        Err(_) => unprocessable("there is no such branch"),
    }
}

fn created(id: u64) -> JsonReply {
    (StatusCode::CREATED, json!({ "id": id }))
}

fn issue_event(state: &mut State, trigger: WebhookTrigger<'_>) -> ControlResult {
    let WebhookTrigger { urls, now, mut fields } = trigger;
    let kind = fields.required_string("type");
    let full_name = fields.required_string("repository");
    let number = fields.nullable_integer("number").value().unwrap_or(1);
    let actor = fields.string("actor").unwrap_or_else(|| "ben".to_owned());
    let text = fields.string("text").unwrap_or_else(|| "Something happened".to_owned());
    let mentioned = fields.string("user").unwrap_or_else(|| "ada".to_owned());
    fields.check().map_err(refusal)?;
    let world = &mut state.world;
    let repository = repository_of(world, &full_name);
    let actor = world.user_by_login(&actor).map(|user| user.id);
    let (Some(repository), Some(actor)) = (repository, actor) else {
        return unprocessable("there is no such repository or actor");
    };
    if world.user_by_login(&mentioned).is_none() {
        return unprocessable("there is no such user");
    }
    let happened = match kind.as_str() {
        "issue_opened" => changes::open_issue(world, urls, now, repository, actor, text),
        "comment" => changes::comment(world, urls, now, repository, number, actor, &text),
        "mention" => {
            let text = format!("@{mentioned} {text}");
            changes::comment(world, urls, now, repository, number, actor, &text)
        }
        // The members of no other type were accepted.
        _ => None,
    };
    let Some(id) = happened else { return unprocessable("there is no such issue") };
    state.secondary.note_web_action(now, AccountId::User(actor), &state.limits);
    Ok(created(id))
}

fn invitation(
    state: &mut State,
    trigger: WebhookTrigger<'_>,
    happens: fn(&mut World, Timestamp, u64, u64, String) -> Option<u64>,
) -> ControlResult {
    let WebhookTrigger { now, mut fields, .. } = trigger;
    let (organization, user) =
        (fields.required_string("organization"), fields.required_string("user"));
    let text = fields.string("text").unwrap_or_else(|| "The invitation expired".to_owned());
    if fields.check().is_err() || text.chars().count() > 1_000 {
        return unprocessable("organization and user are required strings, text is a short one");
    }
    let world = &mut state.world;
    let organization = world.organization_by_login(&organization).map(|found| found.id);
    let user = world.user_by_login(&user).map(|user| user.id);
    let invitation = organization
        .zip(user)
        .and_then(|(organization, user)| happens(world, now, organization, user, text));
    match invitation {
        Some(id) => Ok(created(id)),
        None => unprocessable("there is no pending invitation of that user to that organization"),
    }
}

fn push(world: &mut World, mut trigger: WebhookTrigger<'_>) -> Result<Value, ApiError> {
    let id = trigger.repository(world);
    let actor = trigger.actor(world);
    let text = trigger.text();
    let path = trigger.fields.string("path").unwrap_or_else(|| "notes.md".to_owned());
    let branch = trigger.fields.string("branch");
    if !is_path(&path) {
        trigger.fields.invalid("path", "path contains a malformed component");
    }
    trigger.fields.check()?;
    let scope = EventScope::Repository(id);
    let context = EventContext { urls: trigger.urls, now: trigger.now, scope, actor };
    let repository = world.repositories.get(&id).ok_or(ApiError::NotFound)?;
    let branch = branch.unwrap_or_else(|| repository.default_branch.clone());
    let was = world
        .history(repository)
        .head(&branch)
        .and_then(|head| head.files.get(&path).cloned())
        .unwrap_or_default();
    // Appends, so that every push changes the file, even with an equal text.
    let longer = Bytes::from([&was[..], text.as_bytes(), b"\n"].concat());
    let commit =
        pushes::commit(world, context, &branch, text, Edit { path, content: Some(longer) });
    let full = |_: HistoryFull| {
        ApiError::invalid("Event", "repository", "the repository holds too much already")
    };
    Ok(json!({ "id": commit.map_err(full)?.ok_or(ApiError::NotFound)?.sha }))
}

fn open_pull(world: &mut World, mut trigger: WebhookTrigger<'_>) -> Result<Value, ApiError> {
    let scope = trigger.repository(world);
    let actor = trigger.actor(world);
    let title = trigger.text();
    let branch = trigger.fields.string("branch").unwrap_or_else(|| "topic".to_owned());
    trigger.fields.check()?;
    let id = world.next_id();
    let repository = world.repositories.get_mut(&scope).ok_or(ApiError::NotFound)?;
    ApiError::unless_spammed("PullRequest", repository.issues.len())?;
    let number = repository.issues.keys().next_back().copied().unwrap_or(0) + 1;
    let pull =
        Issue { pull_from: Some(branch), ..Issue::new(id, number, title, actor, trigger.now) };
    repository.issues.insert(number, pull);
    repository.updated_at = trigger.now;
    let opened = ("opened", Detail::None);
    changes::issue_changed(world, trigger.urls, trigger.now, scope, number, actor, opened);
    Ok(json!({ "id": number }))
}

/// The members of `payload` join the usual ones and override equal names.
fn custom(world: &mut World, mut trigger: WebhookTrigger<'_>) -> Result<Value, ApiError> {
    let event = trigger.fields.required_string("event");
    let action = trigger.fields.string("action");
    for (field, name) in [("event", Some(&event)), ("action", action.as_ref())] {
        // It becomes a header value.
        if name.is_some_and(|name| {
            name.len() > NAME_BYTES_MAX || !name.bytes().all(|byte| byte.is_ascii_graphic())
        }) {
            trigger.fields.invalid(field, format!("{field} must be a short word"));
        }
    }
    let scope = match trigger.fields.string("organization") {
        Some(login) => {
            let id = world.organization_by_login(&login).map(|found| found.id);
            EventScope::Organization(trigger.found("organization", id))
        }
        None => EventScope::Repository(trigger.repository(world)),
    };
    let actor = trigger.actor(world);
    let payload = trigger.fields.value("payload").cloned().unwrap_or_else(|| json!({}));
    if !payload.is_object() {
        trigger.fields.invalid("payload", "payload is not an object");
    }
    trigger.fields.check()?;
    let context = EventContext { urls: trigger.urls, now: trigger.now, scope, actor };
    let event = WebhookEvent { name: &event, action: action.as_deref() };
    Ok(json!({ "deliveries": publish_in(world, context, event, |_| payload) }))
}

struct WebhookTrigger<'a> {
    urls: &'a Urls,
    now: Timestamp,
    fields: Fields,
}

impl WebhookTrigger<'_> {
    fn repository(&mut self, world: &World) -> u64 {
        let full_name = self.fields.required_string("repository");
        self.found("repository", repository_of(world, &full_name))
    }

    fn actor(&mut self, world: &World) -> u64 {
        let login = self.fields.string("actor").unwrap_or_else(|| "ben".to_owned());
        self.found("actor", world.user_by_login(&login).map(|user| user.id))
    }

    fn text(&mut self) -> String {
        self.fields.string("text").unwrap_or_else(|| "Something happened".to_owned())
    }

    /// Returns the id that a field names; records an error without one.
    fn found(&mut self, field: &str, id: Option<u64>) -> u64 {
        if id.is_none() {
            self.fields.invalid(field, format!("there is no such {field}"));
        }
        id.unwrap_or(0)
    }
}

pub(super) fn repository_of(world: &World, full_name: &str) -> Option<u64> {
    let (owner, name) = full_name.split_once('/')?;
    world.repository_named(owner, name).map(|repository| repository.id)
}
