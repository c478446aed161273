//! Webhook events that a test triggers (`POST /_emulator/events`): a push, a pull request, and any
//! event with a custom payload.
//!
//! `{"type": "push", "repository": "acme/widgets", "actor": "ben", "branch": "main", "path":
//! "notes.md", "text": "…"}`, `{"type": "pull_request_opened", "repository": "acme/widgets",
//! "actor": "ben", "branch": "topic", "text": "…"}`, `{"type": "custom", "event": "deployment",
//! "action": "created", "repository": "acme/widgets", "payload": {…}}`, where `organization` may
//! replace `repository`. Only `type`, `event` and the place are required.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::clock::Timestamp;
use crate::emulator::events::changes;
use crate::emulator::events::webhooks::{
    EventContext, EventScope, WebhookEvent, publish_in, pushes,
};
use crate::emulator::http::{ApiError, Fields, Urls};
use crate::emulator::world::git::objects::is_path;
use crate::emulator::world::{Edit, Issue, World};

type Answer = (StatusCode, Value);

/// Longer than any event's name.
const NAME_BYTES_MAX: usize = 100;

struct Prompt<'a> {
    urls: &'a Urls,
    now: Timestamp,
    fields: Fields,
}

/// Triggers the event; `None` for an unknown type.
pub fn respond(world: &mut World, urls: &Urls, now: Timestamp, body: &[u8]) -> Option<Answer> {
    let fields = Fields::parse("Event", body).ok()?;
    let kind = fields.value("type").and_then(Value::as_str)?.to_owned();
    let prompt = Prompt { urls, now, fields };
    let done = match kind.as_str() {
        "push" => push(world, prompt),
        "pull_request_opened" => open_pull(world, prompt),
        "custom" => custom(world, prompt),
        _ => return None,
    };
    Some(match done {
        Ok(value) => (StatusCode::CREATED, value),
        Err(ApiError::Invalid(faults)) => {
            let messages: Vec<String> = faults.into_iter().map(|fault| fault.message).collect();
            (StatusCode::UNPROCESSABLE_ENTITY, json!({ "message": messages.join("; ") }))
        }
        Err(_) => {
            (StatusCode::UNPROCESSABLE_ENTITY, json!({ "message": "there is no such branch" }))
        }
    })
}

fn push(world: &mut World, mut prompt: Prompt<'_>) -> Result<Value, ApiError> {
    let scope = prompt.repository(world);
    let actor = prompt.actor(world);
    let text = prompt.text();
    let path = prompt.fields.string("path").unwrap_or_else(|| "notes.md".to_owned());
    let branch = prompt.fields.string("branch");
    if !is_path(&path) {
        prompt.fields.invalid("path", "path contains a malformed component");
    }
    prompt.fields.check()?;
    let context = EventContext {
        urls: prompt.urls,
        now: prompt.now,
        scope: EventScope::Repository(scope),
        actor,
    };
    let repository = world.repositories.get(&scope).ok_or(ApiError::NotFound)?;
    let branch = branch.unwrap_or_else(|| repository.default_branch.clone());
    let was = world
        .history(repository)
        .head(&branch)
        .and_then(|head| head.files.get(&path).cloned())
        .unwrap_or_default();
    // Appends, so that every push changes the file, even with an equal text.
    let new_text = Bytes::from([&was[..], text.as_bytes(), b"\n"].concat());
    let commit =
        pushes::commit(world, context, &branch, text, Edit { path, content: Some(new_text) })
            .map_err(full)?;
    Ok(json!({ "id": commit.ok_or(ApiError::NotFound)?.sha }))
}

fn full(_: crate::emulator::world::HistoryFull) -> ApiError {
    ApiError::invalid("Event", "repository", "the repository holds too much already")
}

fn open_pull(world: &mut World, mut prompt: Prompt<'_>) -> Result<Value, ApiError> {
    let scope = prompt.repository(world);
    let actor = prompt.actor(world);
    let title = prompt.text();
    let branch = prompt.fields.string("branch").unwrap_or_else(|| "topic".to_owned());
    prompt.fields.check()?;
    let id = world.next_id();
    let repository = world.repositories.get_mut(&scope).ok_or(ApiError::NotFound)?;
    ApiError::unless_spammed("PullRequest", repository.issues.len())?;
    let number = repository.issues.keys().next_back().copied().unwrap_or(0) + 1;
    let pull =
        Issue { pull_from: Some(branch), ..Issue::new(id, number, title, actor, prompt.now) };
    repository.issues.insert(number, pull);
    repository.updated_at = prompt.now;
    changes::issue_changed(world, prompt.urls, prompt.now, scope, number, actor, "opened");
    Ok(json!({ "id": number }))
}

/// The members of `payload` join the usual ones and override equal names.
fn custom(world: &mut World, mut prompt: Prompt<'_>) -> Result<Value, ApiError> {
    let event = prompt.fields.required_string("event");
    let action = prompt.fields.string("action");
    for (field, name) in [("event", Some(&event)), ("action", action.as_ref())] {
        // It becomes a header value.
        if name.is_some_and(|name| {
            name.len() > NAME_BYTES_MAX || !name.bytes().all(|byte| byte.is_ascii_graphic())
        }) {
            prompt.fields.invalid(field, format!("{field} must be a short word"));
        }
    }
    let scope = match prompt.fields.string("organization") {
        Some(login) => EventScope::Organization(
            prompt.found("organization", world.organization_by_login(&login).map(|found| found.id)),
        ),
        None => EventScope::Repository(prompt.repository(world)),
    };
    let actor = prompt.actor(world);
    let payload = prompt.fields.value("payload").cloned().unwrap_or_else(|| json!({}));
    if !payload.is_object() {
        prompt.fields.invalid("payload", "payload is not an object");
    }
    prompt.fields.check()?;
    let context = EventContext { urls: prompt.urls, now: prompt.now, scope, actor };
    let deliveries = publish_in(
        world,
        context,
        WebhookEvent { name: &event, action: action.as_deref() },
        |_| payload,
    );
    Ok(json!({ "deliveries": deliveries }))
}

impl Prompt<'_> {
    fn repository(&mut self, world: &World) -> u64 {
        let full_name = self.fields.required_string("repository");
        let found =
            full_name.split_once('/').and_then(|(owner, name)| world.repository_named(owner, name));
        self.found("repository", found.map(|repository| repository.id))
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
