//! Pending and failed invitations to an organisation. Only the team invitation's shape is
//! documented (SPECIFICATION, "Team membership"); it is used here too.

use std::collections::BTreeMap;

use http::StatusCode;
use serde_json::Value;

use super::{READ_AS_OWNER, WRITE_AS_OWNER};
use crate::emulator::http::{ApiError, Code, Fields, Reply};
use crate::emulator::render::address_of;
use crate::emulator::resources::teams::joining::{self, InvitationRequest};
use crate::emulator::routing::{Call, Outcome, Route};
use crate::emulator::world::{
    Invitation, InvitationRole, Invitee, Organization, Purpose, TeamRole, User, World,
};

/// The longest e-mail address (RFC 5321, section 4.5.3.1.3, without its brackets).
const ADDRESS_CHARS_MAX: usize = 254;

pub const ROUTES: &[Route] = &[
    Route::get("/orgs/{org}/invitations", READ_AS_OWNER, list_pending),
    Route::post("/orgs/{org}/invitations", WRITE_AS_OWNER, create).content(),
    Route::delete("/orgs/{org}/invitations/{invitation_id}", WRITE_AS_OWNER, cancel),
    Route::get("/orgs/{org}/invitations/{invitation_id}/teams", READ_AS_OWNER, teams),
    Route::get("/orgs/{org}/failed_invitations", READ_AS_OWNER, list_failed),
];

fn list_pending(call: &mut Call<'_>) -> Outcome {
    let named = |name: &str| match name {
        "all" => Some(None),
        name => name.parse::<InvitationRole>().ok().map(Some),
    };
    let message = "role must be a role of invitations or all";
    let wanted = call.choice("OrganizationInvitation", "role", named, message)?.flatten();
    list(call, |invitation| {
        invitation.failure.is_none() && wanted.is_none_or(|wanted| wanted == invitation.role)
    })
}

fn list_failed(call: &mut Call<'_>) -> Outcome {
    list(call, |invitation| invitation.failure.is_some())
}

fn list(call: &Call<'_>, is_wanted: impl Fn(&Invitation) -> bool) -> Outcome {
    let organization = call.organization()?;
    let shown = organization.people.invitations.values();
    let shown = shown.filter(|invitation| is_wanted(invitation));
    call.page(shown, |renderer, invitation| renderer.invitation(organization, invitation))
}

fn named<'a>(call: &'a Call<'_>) -> Result<&'a Invitation, ApiError> {
    let id = call.params.id("invitation_id")?;
    call.organization()?.people.invitations.get(&id).ok_or(ApiError::NotFound)
}

fn cancel(call: &mut Call<'_>) -> Outcome {
    let id = named(call)?.id;
    call.organization_mut()?.people.invitations.remove(&id);
    Ok(Reply::no_content())
}

fn teams(call: &mut Call<'_>) -> Outcome {
    let organization = call.organization()?;
    let teams = named(call)?.teams.keys().filter_map(|id| organization.teams.get(id));
    call.page(teams, |renderer, team| renderer.team(organization, team))
}

fn create(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("OrganizationInvitation", call.body)?;
    let organization = call.organization()?;
    let invitee = invitee(&mut fields, call.world, organization);
    let message = "role must be direct_member, admin, billing_manager, hiring_manager or reinstate";
    let role = fields.choice("role", |name| name.parse::<InvitationRole>().ok(), message);
    let teams = team_ids(&mut fields, organization);
    fields.check()?;
    let request = InvitationRequest {
        organization: call.organization,
        invitee: invitee.ok_or(ApiError::NotFound)?,
        role: role.unwrap_or(InvitationRole::DirectMember),
        teams,
        purpose: Purpose::Organization,
        actor: call.actor(),
    };
    let id = joining::invite(call.world, call.now, request)?;
    let organization = call.organization()?;
    let invitation = organization.people.invitations.get(&id).ok_or(ApiError::NotFound)?;
    Ok(Reply::json(StatusCode::CREATED, call.renderer().invitation(organization, invitation)))
}

/// Neither a member nor invited yet. An account's address means that account.
fn invitee(fields: &mut Fields, world: &World, organization: &Organization) -> Option<Invitee> {
    let id = fields.nullable_integer("invitee_id").value();
    let address = fields.nullable_string("email").value();
    let (field, invitee) = match (id, address) {
        (Some(id), _) if world.users.contains_key(&id) => ("invitee_id", Invitee::User(id)),
        (Some(_), _) => {
            fields.invalid("invitee_id", "invitee_id is not the id of a user");
            return None;
        }
        (None, Some(address)) if is_address(&address) => {
            let has_it = |user: &&User| address_of(&user.login).eq_ignore_ascii_case(&address);
            let account = world.users.values().find(has_it);
            ("email", account.map_or(Invitee::Address(address), |user| Invitee::User(user.id)))
        }
        (None, Some(_)) => {
            fields.invalid("email", "email is not an e-mail address");
            return None;
        }
        (None, None) => {
            // A wrong type has its own error already; a second one is harmless.
            fields.reject("invitee_id", Code::MissingField, "invitee_id or email is required");
            return None;
        }
    };
    if matches!(&invitee, Invitee::User(user) if organization.members.contains(user)) {
        fields.invalid(field, "the user is already a member of the organization");
    }
    let is_same = |other: &Invitation| other.failure.is_none() && other.invitee == invitee;
    if organization.people.invitations.values().any(is_same) {
        let message = "the user is already invited to the organization";
        fields.reject(field, Code::AlreadyExists, message);
    }
    Some(invitee)
}

fn is_address(text: &str) -> bool {
    let is_split =
        |(name, host): (&str, &str)| !name.is_empty() && !host.is_empty() && !host.contains('@');
    text.split_once('@').is_some_and(is_split)
        && text.chars().count() <= ADDRESS_CHARS_MAX
        && !text.chars().any(|c| c.is_whitespace() || c.is_control())
}

fn team_ids(fields: &mut Fields, organization: &Organization) -> BTreeMap<u64, TeamRole> {
    let mut teams = BTreeMap::new();
    let items = match fields.value("team_ids") {
        None | Some(Value::Null) => return teams,
        Some(Value::Array(items)) => items.clone(),
        Some(_) => Vec::from([Value::Null]),
    };
    for item in items {
        let team = item.as_u64().and_then(|id| organization.teams.get(&id));
        let Some(team) = team.filter(|team| !team.synchronised) else {
            let message =
                "team_ids must be ids of teams of the organization that are not synchronized";
            fields.invalid("team_ids", message);
            break;
        };
        teams.insert(team.id, TeamRole::Member);
    }
    teams
}
