//! A change in a repository is described once, as a [`Change`]. Its entries in the history of an
//! issue, its notifications, its feed events and its webhook deliveries follow from it.

use serde_json::Value;

use super::history;
use super::notifications::{self, Notice};
use super::webhooks::{EventContext, EventScope, WebhookEvent, publish_in};
use crate::emulator::render::Renderer;
use crate::emulator::world::{Detail, World};

#[derive(Debug)]
pub struct Change<'a> {
    /// The webhook event, which the feeds show too; `None` where the service has none.
    pub event: Option<WebhookEvent<'a>>,
    /// The entries in the history of the issue or pull request of this number.
    pub history: Option<(u64, Vec<(&'static str, Detail)>)>,
    pub notice: Notice<'a>,
}

impl<'a> Change<'a> {
    /// A change without notifications and outside of all issues.
    pub fn of(event: WebhookEvent<'a>) -> Self {
        Self { event: Some(event), ..Self::without_event() }
    }

    pub fn without_event() -> Self {
        Self { event: None, history: None, notice: Notice::Nobody }
    }

    pub fn notifying(self, notice: Notice<'a>) -> Self {
        Self { notice, ..self }
    }

    pub fn noted(self, number: u64, entries: Vec<(&'static str, Detail)>) -> Self {
        Self { history: Some((number, entries)), ..self }
    }
}

/// `objects` builds the members of the payload, as in [`publish_in`].
pub fn record(
    world: &mut World,
    context: EventContext<'_>,
    change: Change<'_>,
    objects: impl FnOnce(&Renderer<'_>) -> Value,
) {
    let Change { event, history, notice } = change;
    let EventContext { now, actor, .. } = context;
    if let EventScope::Repository(repository) = context.scope {
        if let Some((number, entries)) = history {
            for entry in entries {
                history::note(world, now, (repository, number), actor, entry);
            }
        }
        notifications::raise(world, now, repository, actor, notice);
    }
    if let Some(event) = event {
        publish_in(world, context, event, objects);
    }
}
