//! Joining and leaving an organisation and its teams (SPECIFICATION, "Team membership").
//!
//! A pending membership is an invitation that can still be accepted. The callers check the access
//! rights.

use std::collections::BTreeMap;

use super::Authority;
use crate::clock::Timestamp;
use crate::emulator::events::webhooks::organizations::change_memberships;
use crate::emulator::http::{ApiError, Reply};
use crate::emulator::render::team::MembershipState;
use crate::emulator::routing::{Call, Outcome};
use crate::emulator::world::{
    Invitation, InvitationFailure, InvitationRole, Invitee, Organization, Owner, Purpose, TeamRole,
    World,
};

#[derive(Clone, Debug)]
pub struct InvitationRequest {
    pub organization: u64,
    pub invitee: Invitee,
    pub role: InvitationRole,
    pub teams: BTreeMap<u64, TeamRole>,
    pub purpose: Purpose,
    pub actor: u64,
}

/// Returns the user in a path; an organisation's login is a 422 (SPECIFICATION, "Team membership").
pub fn addable_user(world: &World, login: &str) -> Result<u64, ApiError> {
    match world.owner(login).ok_or(ApiError::NotFound)? {
        Owner::User(id) => Ok(id),
        Owner::Organization(_) => {
            let message = "an organization cannot be a member of a team";
            Err(ApiError::invalid("TeamMember", "username", message))
        }
    }
}

/// Returns the visible role and the state of the membership; `None` without one.
pub fn team_membership(
    organization: &Organization,
    team: u64,
    user: u64,
) -> Option<(TeamRole, MembershipState)> {
    let held = organization.teams.get(&team).and_then(|team| team.people.get(&user));
    let active = held.map(|role| (organization.shown_role(user, *role), MembershipState::Active));
    let promised =
        || organization.pending_invitation(user).and_then(|invitation| invitation.teams.get(&team));
    active.or_else(|| promised().map(|role| (*role, MembershipState::Pending)))
}

/// Adds a member of the organisation to a team at once, anyone else by an invitation. No role
/// keeps the current one; a new person becomes a member. The default is undocumented.
pub fn put_in_team(
    call: &mut Call<'_>,
    team: u64,
    user: u64,
    role: Option<TeamRole>,
    authority: Authority,
) -> Result<(), ApiError> {
    change_memberships(call, call.organization, user, |call| {
        join_or_invite(call, team, user, role, authority)
    })
}

fn join_or_invite(
    call: &mut Call<'_>,
    team: u64,
    user: u64,
    role: Option<TeamRole>,
    authority: Authority,
) -> Result<(), ApiError> {
    let (now, actor) = (call.now, call.actor());
    let of = call.organization_mut()?;
    if of.members.contains(&user) {
        let team = of.teams.get_mut(&team).ok_or(ApiError::NotFound)?;
        let held = team.people.get(&user).copied();
        team.people.insert(user, role.or(held).unwrap_or(TeamRole::Member));
        team.updated_at = now;
        return Ok(());
    }
    // Only an organisation owner may add a non-member.
    if authority != Authority::Owner {
        return Err(ApiError::Forbidden(
            "Only an organization owner can invite someone who is not a member of the organization.",
        ));
    }
    if let Some(invitation) = pending_mut(of, user) {
        let promised = invitation.teams.get(&team).copied();
        invitation.teams.insert(team, role.or(promised).unwrap_or(TeamRole::Member));
        return Ok(());
    }
    let request = InvitationRequest {
        organization: of.id,
        invitee: Invitee::User(user),
        role: InvitationRole::DirectMember,
        teams: BTreeMap::from([(team, role.unwrap_or(TeamRole::Member))]),
        purpose: Purpose::Teams,
        actor,
    };
    invite(call.world, now, request).map(|_| ())
}

/// Creates an invitation and returns its id. No e-mail is sent.
pub fn invite(
    world: &mut World,
    now: Timestamp,
    request: InvitationRequest,
) -> Result<u64, ApiError> {
    let id = world.next_id();
    let organization =
        world.organizations.get_mut(&request.organization).ok_or(ApiError::NotFound)?;
    ApiError::unless_spammed("Invitation", organization.people.invitations.len())?;
    let invitation = Invitation {
        id,
        invitee: request.invitee,
        role: request.role,
        teams: request.teams,
        purpose: request.purpose,
        inviter: request.actor,
        created_at: now,
        failure: None,
    };
    organization.people.invitations.insert(id, invitation);
    Ok(id)
}

/// Returns the invitation's id; `None` without a pending one.
pub fn accept(world: &mut World, now: Timestamp, organization: u64, user: u64) -> Option<u64> {
    let organization = world.organizations.get_mut(&organization)?;
    let id = organization.pending_invitation(user)?.id;
    let invitation = organization.people.invitations.remove(&id)?;
    organization.members.insert(user);
    // Billing and hiring managers become plain members; the difference is undocumented.
    if invitation.role == InvitationRole::Admin {
        organization.owners.insert(user);
    }
    for (team, role) in invitation.teams {
        if let Some(team) = organization.teams.get_mut(&team).filter(|team| !team.synchronised) {
            team.people.insert(user, role);
            team.updated_at = now;
        }
    }
    Some(id)
}

/// Returns the invitation's id; `None` without a pending one.
pub fn fail(
    world: &mut World,
    now: Timestamp,
    organization: u64,
    user: u64,
    reason: String,
) -> Option<u64> {
    let invitation = pending_mut(world.organizations.get_mut(&organization)?, user)?;
    invitation.failure = Some(InvitationFailure { at: now, reason });
    Some(invitation.id)
}

/// Removes a person from a team, or the team from the invitation; 404 without a membership.
pub fn leave_team(call: &mut Call<'_>, team: u64, user: u64) -> Outcome {
    let now = call.now;
    change_memberships(call, call.organization, user, |call| {
        let organization = call.organization_mut()?;
        if let Some(team) = organization.teams.get_mut(&team)
            && team.people.remove(&user).is_some()
        {
            team.updated_at = now;
            return Ok(());
        }
        let invitation = pending_mut(organization, user).ok_or(ApiError::NotFound)?;
        let was_invited = invitation.teams.remove(&team).is_some();
        withdraw_empty(organization);
        ApiError::not_found_unless(was_invited)
    })?;
    Ok(Reply::no_content())
}

pub fn withdraw_empty(organization: &mut Organization) {
    organization.people.invitations.retain(|_, invitation| {
        let has_failed = invitation.failure.is_some();
        has_failed || invitation.purpose == Purpose::Organization || !invitation.teams.is_empty()
    });
}

/// Removes a member from the organisation and all its teams; 404 for others. The account remains.
pub fn leave_organization(call: &mut Call<'_>, user: u64) -> Result<(), ApiError> {
    change_memberships(call, call.organization, user, |call| {
        let now = call.now;
        remove_member(call.organization_mut()?, now, user)
    })
}

fn remove_member(
    organization: &mut Organization,
    now: Timestamp,
    user: u64,
) -> Result<(), ApiError> {
    if organization.is_last_owner(user) {
        let message = "the last owner cannot leave the organization";
        return Err(ApiError::invalid("Organization", "username", message));
    }
    ApiError::not_found_unless(organization.members.remove(&user))?;
    organization.owners.remove(&user);
    organization.people.public.remove(&user);
    organization.roles.values_mut().for_each(|users| {
        users.remove(&user);
    });
    for team in organization.teams.values_mut() {
        if team.people.remove(&user).is_some() {
            team.updated_at = now;
        }
    }
    Ok(())
}

fn pending_mut(organization: &mut Organization, user: u64) -> Option<&mut Invitation> {
    organization.people.invitations.values_mut().find(|invitation| invitation.is_pending_for(user))
}
