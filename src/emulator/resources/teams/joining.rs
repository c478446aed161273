//! Joining and leaving an organisation and its teams (SPECIFICATION, "Team membership").
//!
//! A pending membership is an invitation that can still be accepted. The callers check the access
//! rights.

use std::collections::BTreeMap;

use super::Authority;
use crate::clock::Timestamp;
use crate::emulator::http::ApiError;
use crate::emulator::render::team::MembershipState;
use crate::emulator::world::{
    Invitation, InvitationFailure, InvitationRole, Invitee, Organization, Owner, Purpose, TeamRole,
    World,
};

#[derive(Clone, Copy, Debug)]
pub struct Placement {
    pub organization: u64,
    pub team: u64,
    pub user: u64,
    /// `None` keeps the current role; a new person becomes a member. The default is undocumented.
    pub role: Option<TeamRole>,
    pub actor: u64,
    pub authority: Authority,
}

#[derive(Clone, Debug)]
pub struct Request {
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
        Owner::Organization(_) => Err(ApiError::invalid(
            "TeamMember",
            "username",
            "an organization cannot be a member of a team",
        )),
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

/// Adds a member of the organisation to a team at once, anyone else by an invitation.
pub fn put_in_team(
    world: &mut World,
    now: Timestamp,
    placement: &Placement,
) -> Result<(), ApiError> {
    let Placement { organization, team, user, role, actor, authority } = *placement;
    let of = world.organizations.get_mut(&organization).ok_or(ApiError::NotFound)?;
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
    let teams = BTreeMap::from([(team, role.unwrap_or(TeamRole::Member))]);
    let (invitee, role) = (Invitee::User(user), InvitationRole::DirectMember);
    invite(
        world,
        now,
        Request { organization, invitee, role, teams, purpose: Purpose::Teams, actor },
    )
    .map(|_| ())
}

/// Creates an invitation and returns its id. No e-mail is sent.
pub fn invite(world: &mut World, now: Timestamp, request: Request) -> Result<u64, ApiError> {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    Yes,
    No,
}

/// Removes a person from a team, or the team from the invitation.
pub fn leave_team(organization: &mut Organization, now: Timestamp, team: u64, user: u64) -> Left {
    if let Some(team) = organization.teams.get_mut(&team)
        && team.people.remove(&user).is_some()
    {
        team.updated_at = now;
        return Left::Yes;
    }
    let Some(invitation) = pending_mut(organization, user) else { return Left::No };
    let left = if invitation.teams.remove(&team).is_some() { Left::Yes } else { Left::No };
    withdraw_empty(organization);
    left
}

pub fn withdraw_empty(organization: &mut Organization) {
    organization.people.invitations.retain(|_, invitation| {
        let has_failed = invitation.failure.is_some();
        has_failed || invitation.purpose == Purpose::Organization || !invitation.teams.is_empty()
    });
}

/// Removes a member from the organisation and all its teams; the account remains.
pub fn leave_organization(
    organization: &mut Organization,
    now: Timestamp,
    user: u64,
) -> Result<Left, ApiError> {
    if organization.is_last_owner(user) {
        return Err(ApiError::invalid(
            "Organization",
            "username",
            "the last owner cannot leave the organization",
        ));
    }
    if !organization.members.remove(&user) {
        return Ok(Left::No);
    }
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
    Ok(Left::Yes)
}

fn pending_mut(organization: &mut Organization, user: u64) -> Option<&mut Invitation> {
    organization.people.invitations.values_mut().find(|invitation| invitation.is_pending_for(user))
}
