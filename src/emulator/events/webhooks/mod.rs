//! Webhook events: every route that changes data raises one, and each subscribed webhook gets a
//! delivery (SPECIFICATION, "Events").
//!
//! Handlers call [`publish`], code without a call [`publish_in`]. The upstream does not document
//! the catalogue of events, actions and payloads; the names are the running service's. `events`
//! notifies users.

pub mod organizations;
pub mod repositories;

use std::sync::Arc;

use serde_json::{Value, json};

use super::delivery::queue;
use crate::clock::Timestamp;
use crate::emulator::accounts::{AccountId, Caller};
use crate::emulator::http::Urls;
use crate::emulator::render::{Renderer, extend, node_id};
use crate::emulator::routing::Call;
use crate::emulator::world::notifications::feed::{self, Event};
use crate::emulator::world::{
    Attempt, Delivery, Hook, HookKey, Owner, Receipt, Repository, World, guid,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventScope {
    Repository(u64),
    Organization(u64),
}

#[derive(Clone, Copy, Debug)]
pub struct EventContext<'a> {
    pub urls: &'a Urls,
    pub now: Timestamp,
    pub scope: EventScope,
    pub actor: u64,
}

/// An event and its action, such as `issues` and `opened`.
#[derive(Clone, Copy, Debug)]
pub struct WebhookEvent<'a> {
    pub name: &'a str,
    /// `None` for events without actions, such as `push`.
    pub action: Option<&'a str>,
}

impl<'a> WebhookEvent<'a> {
    pub fn new(name: &'a str, action: &'a str) -> Self {
        Self { name, action: Some(action) }
    }
}

impl<'a> EventContext<'a> {
    /// The scope is the repository of the route, else its organisation.
    pub fn of(call: &Call<'a>) -> Self {
        let scope = if call.repository == 0 {
            EventScope::Organization(call.organization)
        } else {
            EventScope::Repository(call.repository)
        };
        Self { urls: call.urls, now: call.now, scope, actor: call.actor() }
    }
}

/// `objects` builds the members beside action, repository, organization and sender. It only runs
/// when a webhook or a feed needs them.
pub fn publish(
    call: &mut Call<'_>,
    event: WebhookEvent<'_>,
    objects: impl FnOnce(&Renderer<'_>) -> Value,
) {
    publish_in(call.world, EventContext::of(call), event, objects);
}

/// Publishes an event in another scope than that of the route.
pub fn publish_at(
    call: &mut Call<'_>,
    scope: EventScope,
    event: WebhookEvent<'_>,
    objects: impl FnOnce(&Renderer<'_>) -> Value,
) {
    publish_in(call.world, EventContext { scope, ..EventContext::of(call) }, event, objects);
}

/// Delivers to the webhooks of the organisation and of its apps, and to the feeds. Returns the
/// number of deliveries.
pub fn publish_in(
    world: &mut World,
    context: EventContext<'_>,
    event: WebhookEvent<'_>,
    objects: impl FnOnce(&Renderer<'_>) -> Value,
) -> usize {
    let organization = organization_of(world, context.scope);
    let audience = organization
        .map_or_else(Vec::new, |organization| audience(world, organization, event.name));
    let is_in_feeds =
        matches!(context.scope, EventScope::Repository(_)) && feed::kind(event.name).is_some();
    if matches!(event.name, "repository" | "organization" | "member") {
        world.feed.shifted_at = Some(context.now);
    }
    if audience.is_empty() && !is_in_feeds {
        return 0;
    }
    // Payloads are rendered without a token, because the receiver has none.
    let tokenless = Caller { account: AccountId::User(context.actor), token: None };
    let renderer = Renderer { world, urls: context.urls, caller: &tokenless };
    let objects = objects(&renderer);
    let payload =
        (!audience.is_empty()).then(|| payload(&renderer, context, event, organization, &objects));
    note(world, context, event, objects);
    let Some(mut payload) = payload else { return 0 };
    let plain: Arc<str> = payload.to_string().into();
    let repository = if let EventScope::Repository(id) = context.scope { Some(id) } else { None };
    for (hook_key, installation) in &audience {
        let installation = *installation;
        let text = installation.map_or_else(
            || Arc::clone(&plain),
            |id| {
                payload = with_installation(payload.take(), id);
                payload.to_string().into()
            },
        );
        let event_payload = EventPayload { repository, installation, payload: text };
        deliver(world, context.now, *hook_key, event, event_payload);
    }
    audience.len()
}

/// Renders the payload of an event that is not raised, for deliveries of the past.
pub fn past_payload(
    world: &World,
    context: EventContext<'_>,
    event: WebhookEvent<'_>,
    objects: impl FnOnce(&Renderer<'_>) -> Value,
) -> Value {
    let tokenless = Caller { account: AccountId::User(context.actor), token: None };
    let renderer = Renderer { world, urls: context.urls, caller: &tokenless };
    let organization = organization_of(world, context.scope);
    payload(&renderer, context, event, organization, &objects(&renderer))
}

/// Adds the installation of the app that receives the payload.
pub fn with_installation(mut payload: Value, id: u64) -> Value {
    extend(
        &mut payload,
        json!({ "installation": { "id": id, "node_id": node_id("IntegrationInstallation", id) } }),
    );
    payload
}

/// Adds an event in a repository to the feeds, if they have a type for it.
fn note(world: &mut World, context: EventContext<'_>, event: WebhookEvent<'_>, objects: Value) {
    let (EventScope::Repository(repository), Some(kind)) = (context.scope, feed::kind(event.name))
    else {
        return;
    };
    let mut payload = event.action.map_or_else(|| json!({}), |action| json!({ "action": action }));
    extend(&mut payload, objects);
    let (actor, created_at, payload) = (context.actor, context.now, payload.to_string().into());
    world.feed.note(Event { id: 0, kind, actor, repository, payload, created_at });
}

#[derive(Debug)]
pub struct EventPayload {
    pub repository: Option<u64>,
    pub installation: Option<u64>,
    /// A serialized JSON object.
    pub payload: Arc<str>,
}

pub fn deliver(
    world: &mut World,
    now: Timestamp,
    hook_key: HookKey,
    event: WebhookEvent<'_>,
    event_payload: EventPayload,
) {
    let id = world.next_id();
    let Some(hook) = world.hook_mut(hook_key) else { return };
    hook.deliveries.append(Delivery {
        id,
        guid: guid(id),
        at: now,
        attempt: Attempt::First,
        event: event.name.into(),
        action: event.action.map(Into::into),
        repository: event_payload.repository,
        installation: event_payload.installation,
        payload: event_payload.payload,
        posted: None,
        receipt: Receipt::Pending,
    });
    queue::queue(world, hook_key);
}

/// Repositories of users have neither an organisation nor an installed app.
fn organization_of(world: &World, scope: EventScope) -> Option<u64> {
    match scope {
        EventScope::Organization(id) => Some(id),
        EventScope::Repository(id) => match world.repositories.get(&id)?.owner {
            Owner::Organization(id) => Some(id),
            Owner::User(_) => None,
        },
    }
}

/// Lists the subscribed webhooks; those of apps come with their installation.
fn audience(world: &World, organization: u64, event: &str) -> Vec<(HookKey, Option<u64>)> {
    let wants = |hook: &&Hook| hook.wants(event);
    let organizations = world.organizations.get(&organization).into_iter();
    let own = organizations.flat_map(|organization| organization.hooks.values());
    let own = own.filter(wants).map(|hook| (hook.hook_key(), None));
    let of_apps = world.apps.iter().filter_map(|app| {
        let (installation, _) = app.installations.iter().find(|(_, on)| *on == organization)?;
        let hook = world.app_hooks.get(&app.id).filter(wants)?;
        Some((hook.hook_key(), Some(*installation)))
    });
    own.chain(of_apps).collect()
}

fn payload(
    renderer: &Renderer<'_>,
    context: EventContext<'_>,
    event: WebhookEvent<'_>,
    organization: Option<u64>,
    objects: &Value,
) -> Value {
    let world = renderer.world;
    let mut payload = event.action.map_or_else(|| json!({}), |action| json!({ "action": action }));
    if let EventScope::Repository(id) = context.scope {
        let repository = world.repositories.get(&id);
        let repository = repository.map(|found| repository_of_payload(renderer, found));
        extend(&mut payload, json!({ "repository": repository }));
    }
    if let Some(organization) = organization.and_then(|id| world.organizations.get(&id)) {
        let organization = renderer.organization_summary(organization);
        extend(&mut payload, json!({ "organization": organization }));
    }
    extend(&mut payload, json!({ "sender": renderer.user_summary(context.actor) }));
    extend(&mut payload, objects.clone());
    payload
}

/// A receiver gets neither a secret nor a user's permissions.
pub fn repository_of_payload(renderer: &Renderer<'_>, repository: &Repository) -> Value {
    let mut value = renderer.repository(repository);
    if let Value::Object(members) = &mut value {
        members.remove("temp_clone_token");
        members.remove("permissions");
    }
    value
}
