//! Memberships of an organisation, for its owners and for the person. The upstream documents the
//! routes without their shapes.

use http::StatusCode;

use super::{READ, WRITE_AS_OWNER, named_user};
use crate::emulator::accounts::Level;
use crate::emulator::auth::access::organization_of_path;
use crate::emulator::events::webhooks::organizations::{Memberships, publish_membership_changes};
use crate::emulator::http::{ApiError, Fields, Reply};
use crate::emulator::render::Renderer;
use crate::emulator::render::team::MembershipState;
use crate::emulator::resources::teams::joining::{self, Left, Request};
use crate::emulator::resources::teams::{organization, organization_mut};
use crate::emulator::routing::{Call, MembersNeed, Need, Outcome, Route, USUAL, pagination};
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
    let invitation = organization.pending_invitation(user)?;
    Some((
        if invitation.role == InvitationRole::Admin { "admin" } else { "member" },
        MembershipState::Pending,
    ))
}

fn shown(call: &Call<'_>, organization: &Organization, user: u64) -> Outcome {
    let (role, state) = membership_of(organization, user).ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(Renderer::of(call).organization_membership(organization, user, role, state)))
}

fn get(call: &mut Call<'_>) -> Outcome {
    shown(call, organization(call)?, named_user(call)?)
}

/// Sets a member's role at once, or invites anyone else with it.
fn put(call: &mut Call<'_>) -> Outcome {
    let user = named_user(call)?;
    let mut fields = Fields::parse("Membership", call.body)?;
    let given = fields.string("role");
    let role = match given.as_deref() {
        None => None,
        Some("member") => Some(InvitationRole::DirectMember),
        Some("admin") => Some(InvitationRole::Admin),
        Some(_) => {
            fields.invalid("role", "role must be member or admin");
            None
        }
    };
    fields.check()?;
    let organization = organization_mut(call)?;
    if organization.members.contains(&user) {
        set_role(organization, user, role)?;
    } else if let Some(id) = organization.pending_invitation(user).map(|invitation| invitation.id) {
        if let Some(invitation) = organization.people.invitations.get_mut(&id) {
            invitation.role = role.unwrap_or(invitation.role);
            invitation.purpose = Purpose::Organization;
        }
    } else {
        let request = Request {
            organization: organization.id,
            invitee: Invitee::User(user),
            role: role.unwrap_or(InvitationRole::DirectMember),
            teams: std::collections::BTreeMap::new(),
            purpose: Purpose::Organization,
            actor: call.actor(),
        };
        joining::invite(call.world, call.now, request)?;
    }
    shown(call, self::organization(call)?, user)
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
    let user = named_user(call)?;
    let now = call.now;
    let before = Memberships::of(call.world, call.organization, user);
    let organization = organization_mut(call)?;
    if let Some(id) = organization.pending_invitation(user).map(|invitation| invitation.id) {
        organization.people.invitations.remove(&id);
        return Ok(Reply::empty(StatusCode::NO_CONTENT));
    }
    match joining::leave_organization(organization, now, user)? {
        Left::Yes => {
            publish_membership_changes(call, call.organization, user, &before);
            Ok(Reply::empty(StatusCode::NO_CONTENT))
        }
        Left::No => Err(ApiError::NotFound),
    }
}

fn me(call: &Call<'_>) -> Result<u64, ApiError> {
    call.caller.user().ok_or(ApiError::RequiresAuthentication)
}

fn list_own(call: &mut Call<'_>) -> Outcome {
    let me = me(call)?;
    let wanted = match call.query.get("state") {
        None | Some("") => None,
        Some("active") => Some(MembershipState::Active),
        Some("pending") => Some(MembershipState::Pending),
        Some(_) => {
            return Err(ApiError::invalid(
                "Membership",
                "state",
                "state must be active or pending",
            ));
        }
    };
    let all = call.world.organizations.values().filter_map(|organization| {
        let (role, state) = membership_of(organization, me)?;
        Some((organization, role, state))
    });
    let mine = all.filter(|(.., state)| wanted.is_none_or(|wanted| wanted == *state)).collect();
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, mine, |(organization, role, state)| {
        renderer.organization_membership(organization, me, role, state)
    }))
}

fn get_own(call: &mut Call<'_>) -> Outcome {
    shown(call, organization_of_path(call)?, me(call)?)
}

/// Accepts an invitation by `{"state": "active"}`, the only possible change.
fn accept(call: &mut Call<'_>) -> Outcome {
    let me = me(call)?;
    let id = organization_of_path(call)?.id;
    membership_of(organization_of_path(call)?, me).ok_or(ApiError::NotFound)?;
    let mut fields = Fields::parse("Membership", call.body)?;
    if fields.required_string("state") != "active"
        && fields.value("state").is_some_and(serde_json::Value::is_string)
    {
        fields.invalid("state", "state must be active");
    }
    fields.check()?;
    // A repeated acceptance changes nothing.
    let before = Memberships::of(call.world, id, me);
    joining::accept(call.world, call.now, id, me);
    publish_membership_changes(call, id, me, &before);
    shown(call, organization_of_path(call)?, me)
}
