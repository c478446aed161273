//! Memberships of an organisation, for its owners and for the person. The upstream documents the
//! routes without their shapes.

use std::collections::BTreeMap;

use super::{READ, WRITE_AS_OWNER};
use crate::emulator::accounts::Level;
use crate::emulator::auth::access::organization_of_path;
use crate::emulator::events::webhooks::organizations::change_memberships;
use crate::emulator::http::{ApiError, Fields, Reply};
use crate::emulator::render::team::MembershipState;
use crate::emulator::resources::teams::joining::{self, InvitationRequest};
use crate::emulator::routing::{Call, MembersNeed, Need, Outcome, Route};
use crate::emulator::world::{InvitationRole, Invitee, Organization, Purpose};

const OWN_READ: Need = Need::Members(MembersNeed::Own(Level::Read));
const OWN_WRITE: Need = Need::Members(MembersNeed::Own(Level::Write));

pub const ROUTES: &[Route] = &[
    Route::get("/orgs/{org}/memberships/{username}", READ, get),
    Route::put("/orgs/{org}/memberships/{username}", WRITE_AS_OWNER, put),
    Route::delete("/orgs/{org}/memberships/{username}", WRITE_AS_OWNER, delete),
    Route::get("/user/memberships/orgs", OWN_READ, list_own),
    Route::get("/user/memberships/orgs/{org}", OWN_READ, get_own),
    Route::patch("/user/memberships/orgs/{org}", OWN_WRITE, accept),
];

fn membership_of(
    organization: &Organization,
    user: u64,
) -> Option<(&'static str, MembershipState)> {
    if organization.owners.contains(&user) {
        return Some(("admin", MembershipState::Active));
    }
    if organization.members.contains(&user) {
        return Some(("member", MembershipState::Active));
    }
    let is_admin = organization.pending_invitation(user)?.role == InvitationRole::Admin;
    Some((if is_admin { "admin" } else { "member" }, MembershipState::Pending))
}

fn shown(call: &Call<'_>, organization: &Organization, user: u64) -> Outcome {
    let (role, state) = membership_of(organization, user).ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(call.renderer().organization_membership(organization, user, role, state)))
}

fn get(call: &mut Call<'_>) -> Outcome {
    shown(call, call.organization()?, call.user("username")?.id)
}

/// Sets a member's role at once, or invites anyone else with it.
fn put(call: &mut Call<'_>) -> Outcome {
    let user = call.user("username")?.id;
    let mut fields = Fields::parse("Membership", call.body)?;
    let named = |name: &str| match name {
        "member" => Some(InvitationRole::DirectMember),
        "admin" => Some(InvitationRole::Admin),
        _ => None,
    };
    let role = fields.choice("role", named, "role must be member or admin");
    fields.check()?;
    let organization = call.organization_mut()?;
    if organization.members.contains(&user) {
        set_role(organization, user, role)?;
    } else if let Some(id) = organization.pending_invitation(user).map(|invitation| invitation.id) {
        if let Some(invitation) = organization.people.invitations.get_mut(&id) {
            invitation.role = role.unwrap_or(invitation.role);
            invitation.purpose = Purpose::Organization;
        }
    } else {
        let request = InvitationRequest {
            organization: organization.id,
            invitee: Invitee::User(user),
            role: role.unwrap_or(InvitationRole::DirectMember),
            teams: BTreeMap::new(),
            purpose: Purpose::Organization,
            actor: call.actor(),
        };
        joining::invite(call.world, call.now, request)?;
    }
    shown(call, call.organization()?, user)
}

fn set_role(
    organization: &mut Organization,
    user: u64,
    role: Option<InvitationRole>,
) -> Result<(), ApiError> {
    match role {
        Some(InvitationRole::Admin) => {
            organization.owners.insert(user);
        }
        Some(_) if organization.is_last_owner(user) => {
            return Err(ApiError::invalid("Membership", "role", "the last owner must stay one"));
        }
        Some(_) => {
            organization.owners.remove(&user);
        }
        None => {}
    }
    Ok(())
}

/// Ends a membership, or withdraws the invitation to it.
fn delete(call: &mut Call<'_>) -> Outcome {
    let user = call.user("username")?.id;
    let organization = call.organization_mut()?;
    if let Some(id) = organization.pending_invitation(user).map(|invitation| invitation.id) {
        organization.people.invitations.remove(&id);
    } else {
        joining::leave_organization(call, user)?;
    }
    Ok(Reply::no_content())
}

fn list_own(call: &mut Call<'_>) -> Outcome {
    let me = call.me()?;
    let states = [MembershipState::Active, MembershipState::Pending];
    let named = |name: &str| states.into_iter().find(|state| state.into_str() == name);
    let message = "state must be active or pending";
    let wanted = call.choice("Membership", "state", named, message)?;
    let all = call.world.organizations.values().filter_map(|organization| {
        let (role, state) = membership_of(organization, me)?;
        Some((organization, role, state))
    });
    let mine = all.filter(|(.., state)| wanted.is_none_or(|wanted| wanted == *state));
    call.page(mine, |renderer, (organization, role, state)| {
        renderer.organization_membership(organization, me, role, state)
    })
}

fn get_own(call: &mut Call<'_>) -> Outcome {
    shown(call, organization_of_path(call)?, call.me()?)
}

/// Accepts an invitation by `{"state": "active"}`, the only possible change.
fn accept(call: &mut Call<'_>) -> Outcome {
    let me = call.me()?;
    let organization = organization_of_path(call)?;
    membership_of(organization, me).ok_or(ApiError::NotFound)?;
    let id = organization.id;
    let mut fields = Fields::parse("Membership", call.body)?;
    if fields.required_string("state") != "active"
        && fields.value("state").is_some_and(serde_json::Value::is_string)
    {
        fields.invalid("state", "state must be active");
    }
    fields.check()?;
    // A repeated acceptance changes nothing.
    change_memberships(call, id, me, |call| {
        joining::accept(call.world, call.now, id, me);
        Ok(())
    })?;
    shown(call, organization_of_path(call)?, me)
}
