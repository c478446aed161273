//! Webhook events for a change of a repository; one change may be several events (edited, renamed,
//! archived, privatized, …).

use serde_json::{Value, json};

use super::{WebhookEvent, publish};
use crate::emulator::http::ApiError;
use crate::emulator::render::extend;
use crate::emulator::routing::Call;
use crate::emulator::world::{Repository, Visibility};

#[derive(Debug)]
pub struct Before {
    name: String,
    description: String,
    homepage: Option<String>,
    default_branch: String,
    visibility: Visibility,
    archived: bool,
}

impl Before {
    pub fn of(repository: &Repository) -> Self {
        Self {
            name: repository.name.clone(),
            description: repository.description.clone(),
            homepage: repository.homepage.clone(),
            default_branch: repository.default_branch.clone(),
            visibility: repository.visibility,
            archived: repository.features.get("archived").copied().unwrap_or(false),
        }
    }
}

pub fn publish_changes(call: &mut Call<'_>, before: &Before) -> Result<(), ApiError> {
    let after = Before::of(call.repository()?);
    let mut changes = json!({});
    let mut note = |name: &str, was: Value, is: Value| {
        if was != is {
            extend(&mut changes, json!({ name: { "from": was } }));
        }
    };
    note("description", json!(before.description), json!(after.description));
    note("homepage", json!(before.homepage), json!(after.homepage));
    note("default_branch", json!(before.default_branch), json!(after.default_branch));
    if changes != json!({}) {
        one(call, "edited", json!({ "changes": changes }));
    }
    if after.name != before.name {
        let changes = json!({ "repository": { "name": { "from": before.name } } });
        one(call, "renamed", json!({ "changes": changes }));
    }
    if after.archived != before.archived {
        one(call, if after.archived { "archived" } else { "unarchived" }, json!({}));
    }
    if after.visibility != before.visibility {
        let is_private = after.visibility == Visibility::Private;
        one(call, if is_private { "privatized" } else { "publicized" }, json!({}));
    }
    Ok(())
}

fn one(call: &mut Call<'_>, action: &str, more: Value) {
    publish(call, WebhookEvent::new("repository", action), |_| more);
}
