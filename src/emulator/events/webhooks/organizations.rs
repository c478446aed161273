//! Webhook events about an organisation's people, teams, repositories and properties. The upstream
//! does not document their payloads; they follow the running service.

use serde_json::{Value, json};

use super::{EventScope, WebhookEvent, publish, publish_at};
use crate::emulator::http::ApiError;
use crate::emulator::render::Renderer;
use crate::emulator::render::team::MembershipState;
use crate::emulator::routing::Call;
use crate::emulator::world::{Organization, World};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memberships {
    role: Option<&'static str>,
    teams: Vec<u64>,
}

impl Memberships {
    pub fn of(world: &World, organization: u64, user: u64) -> Self {
        let Some(organization) = world.organizations.get(&organization) else {
            return Self::default();
        };
        let role = if organization.owners.contains(&user) { "admin" } else { "member" };
        let teams = organization.teams.values().filter(|team| team.people.contains_key(&user));
        Self {
            role: organization.members.contains(&user).then_some(role),
            teams: teams.map(|team| team.id).collect(),
        }
    }
}

pub fn publish_membership_changes(
    call: &mut Call<'_>,
    organization: u64,
    user: u64,
    before: &Memberships,
) {
    let after = Memberships::of(call.world, organization, user);
    let scope = EventScope::Organization(organization);
    let mut of_organization = |action, role| {
        publish_at(call, scope, WebhookEvent::new("organization", action), |renderer| {
            let state = MembershipState::Active;
            let membership = |found| renderer.organization_membership(found, user, role, state);
            json!({ "membership": renderer.world.organizations.get(&organization).map(membership) })
        });
    };
    match (before.role, after.role) {
        (None, Some(role)) => of_organization("member_added", role),
        (Some(role), None) => of_organization("member_removed", role),
        _ => {}
    }
    let changes = [("removed", before, &after), ("added", &after, before)];
    for (action, these, others) in changes {
        for team in these.teams.iter().copied().filter(|team| !others.teams.contains(team)) {
            publish_at(call, scope, WebhookEvent::new("membership", action), |renderer| {
                let team = team_of(renderer, organization, team);
                json!({ "scope": "team", "member": renderer.user_summary(user), "team": team })
            });
        }
    }
}

/// Makes a change of a person's memberships and publishes its events.
pub fn change_memberships(
    call: &mut Call<'_>,
    organization: u64,
    user: u64,
    change: impl FnOnce(&mut Call<'_>) -> Result<(), ApiError>,
) -> Result<(), ApiError> {
    let before = Memberships::of(call.world, organization, user);
    change(call)?;
    publish_membership_changes(call, organization, user, &before);
    Ok(())
}

fn team_of(renderer: &Renderer<'_>, organization: u64, team: u64) -> Option<Value> {
    let organization = renderer.world.organizations.get(&organization)?;
    Some(renderer.team(organization, organization.teams.get(&team)?))
}

pub fn shown_team(call: &Call<'_>, organization: &Organization, team: u64) -> Value {
    organization
        .teams
        .get(&team)
        .map_or(Value::Null, |team| Renderer::of(call).team(organization, team))
}

/// Raises an event about a team with this current or former form.
pub fn team(call: &mut Call<'_>, action: &str, team: &Value) {
    publish(call, WebhookEvent::new("team", action), |_| json!({ "team": team }));
}

pub fn team_edited(call: &mut Call<'_>, before: &Value, after: &Value) {
    let names = ["name", "description", "privacy", "permission"];
    let differ = names.into_iter().filter(|name| before[*name] != after[*name]);
    let changes: Value =
        differ.map(|name| (name.to_owned(), json!({ "from": before[name] }))).collect();
    let event = WebhookEvent::new("team", "edited");
    publish(call, event, |_| json!({ "changes": changes, "team": after }));
}

/// Raises an event about a new repository, or one about to be deleted.
pub fn repository(call: &mut Call<'_>, action: &str, id: u64) {
    let event = WebhookEvent::new("repository", action);
    publish_at(call, EventScope::Repository(id), event, |_| json!({}));
}

pub fn property(call: &mut Call<'_>, action: &str, definition: &Value) {
    let event = WebhookEvent::new("custom_property", action);
    publish(call, event, |_| json!({ "definition": definition }));
}

pub fn property_values(call: &mut Call<'_>, repository: u64, before: &Value, after: &Value) {
    let event = WebhookEvent::new("custom_property_values", "updated");
    publish_at(
        call,
        EventScope::Repository(repository),
        event,
        |_| json!({ "old_property_values": before, "new_property_values": after }),
    );
}
