//! Membership in an organisation beside its lists of members and owners: invitations, publicity,
//! organisation roles and repository rights of teams. Data and look-ups only;
//! `resources/organizations/invitations.rs` changes memberships.

use std::collections::{BTreeMap, BTreeSet};

use strum::{EnumString, IntoStaticStr};

use super::people::Organization;
use super::teams::{RepositoryRole, TeamRole};
use crate::clock::Timestamp;

/// The documented roles (SPECIFICATION, "Custom properties"); their ids are undocumented.
pub const ORGANIZATION_ROLES: [(u64, &str); 2] = [(601, DEFINITIONS_MANAGER), (602, VALUES_EDITOR)];

#[derive(Debug, Default)]
pub struct People {
    /// Pending and failed ones, by id. An accepted one is deleted.
    pub invitations: BTreeMap<u64, Invitation>,
    /// Members with a public membership.
    pub public: BTreeSet<u64>,
    pub team_roles: BTreeMap<&'static str, BTreeSet<u64>>,
    /// Repository rights of teams: by repository, then by team.
    pub grants: BTreeMap<u64, BTreeMap<u64, RepositoryRole>>,
}

#[derive(Debug)]
pub struct Invitation {
    pub id: u64,
    pub invitee: Invitee,
    pub role: InvitationRole,
    /// The teams to join, with the role in each.
    pub teams: BTreeMap<u64, TeamRole>,
    pub purpose: Purpose,
    pub inviter: u64,
    pub created_at: Timestamp,
    pub failure: Option<InvitationFailure>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invitee {
    User(u64),
    /// A person without an account.
    Address(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Organization,
    /// Membership of teams; without any remaining team it cannot be accepted.
    Teams,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvitationFailure {
    pub at: Timestamp,
    pub reason: String,
}

/// The documented roles of an invitation (SPECIFICATION, "Team membership").
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum InvitationRole {
    DirectMember,
    Admin,
    BillingManager,
    HiringManager,
    Reinstate,
}

impl Organization {
    /// Returns the invitation that the user can still accept.
    pub fn pending_invitation(&self, user: u64) -> Option<&Invitation> {
        self.people.invitations.values().find(|invitation| invitation.is_pending_for(user))
    }

    /// Returns true when the user is in a team with this organisation role, child teams included.
    pub fn has_role_by_team(&self, user: u64, role: &str) -> bool {
        let teams = self.people.team_roles.get(role).into_iter().flatten();
        teams
            .filter_map(|id| self.teams.get(id))
            .any(|team| self.everyone_in_team(team).contains_key(&user))
    }

    pub fn is_last_owner(&self, user: u64) -> bool {
        self.owners.len() == 1 && self.owners.contains(&user)
    }
}

impl Invitation {
    pub fn is_pending_for(&self, user: u64) -> bool {
        self.failure.is_none() && self.invitee == Invitee::User(user)
    }
}

/// Fine-grained roles with rights of administrators.
pub const DEFINITIONS_MANAGER: &str = "custom_properties_org_definitions_manager";

pub const VALUES_EDITOR: &str = "custom_properties_org_values_editor";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::routing::OrganizationRole;
    use crate::emulator::seed;
    use crate::emulator::seed::options::Options;

    #[test]
    fn a_role_of_a_team_holds_for_members_of_nested_teams() {
        let mut world = seed::world(&Options::default(), Timestamp::from_secs(1_800_000_000));
        let acme = world
            .organizations
            .values_mut()
            .find(|organization| organization.login == "acme")
            .expect("it is in the seed");
        let (_, role) = ORGANIZATION_ROLES[0];
        let build_bot = 111;
        assert!(!acme.has_role(build_bot, OrganizationRole::OwnerOr(role)));
        acme.people.team_roles.entry(role).or_default().insert(401);
        assert!(
            acme.has_role(build_bot, OrganizationRole::OwnerOr(role)),
            "platform-core is nested in platform"
        );
        assert!(!acme.has_role(build_bot, OrganizationRole::OwnerOr(ORGANIZATION_ROLES[1].1)));
    }
}
