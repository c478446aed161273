//! How people belong to an organisation beside its lists of members and owners: invitations, who is
//! public, organisation roles of teams, and what teams may do in repositories. Data and look-ups;
//! how people come and go is in `resources/organizations/joining.rs`.

use std::collections::{BTreeMap, BTreeSet};

use super::people::Organization;
use super::teams::{RepositoryRole, TeamRole};
use crate::clock::Timestamp;

/// Roles that an organisation can give, by their ids. The documents name these two (Document 2,
/// Custom properties) and no ids.
pub const ORGANIZATION_ROLES: [(u64, &str); 2] = [(601, DEFINITIONS_MANAGER), (602, VALUES_EDITOR)];

/// What an organisation knows of people and teams beyond who they are.
#[derive(Debug, Default)]
pub struct People {
    /// Pending and failed ones, by id. An accepted one is gone.
    pub invitations: BTreeMap<u64, Invitation>,
    /// Members who show that they are.
    pub public: BTreeSet<u64>,
    /// Organisation roles given to teams.
    pub team_roles: BTreeMap<&'static str, BTreeSet<u64>>,
    /// What teams may do in repositories: by repository, then by team.
    pub grants: BTreeMap<u64, BTreeMap<u64, RepositoryRole>>,
}

/// Somebody is asked to join (Document 2, Team invitation).
#[derive(Debug)]
pub struct Invitation {
    pub id: u64,
    pub invitee: Invitee,
    pub role: InvitationRole,
    /// The teams that the person will be in, and as what.
    pub teams: BTreeMap<u64, TeamRole>,
    pub purpose: Purpose,
    pub inviter: u64,
    pub created_at: Timestamp,
    pub failure: Option<InvitationFailure>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invitee {
    User(u64),
    /// Somebody without an account.
    Address(String),
}

/// What an invitation was sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Organization,
    /// A membership of a team; without any team left there is nothing to accept.
    Teams,
}

/// Why an invitation cannot be accepted any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvitationFailure {
    pub at: Timestamp,
    pub reason: String,
}

/// "One of `direct_member`, `admin`, `billing_manager`, `hiring_manager`, `reinstate`" (Document 2,
/// Team invitation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvitationRole {
    DirectMember,
    Admin,
    BillingManager,
    HiringManager,
    Reinstate,
}

impl InvitationRole {
    pub const ALL: [Self; 5] = [
        Self::DirectMember,
        Self::Admin,
        Self::BillingManager,
        Self::HiringManager,
        Self::Reinstate,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::DirectMember => "direct_member",
            Self::Admin => "admin",
            Self::BillingManager => "billing_manager",
            Self::HiringManager => "hiring_manager",
            Self::Reinstate => "reinstate",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

impl Organization {
    /// The invitation that the user can still accept.
    pub fn pending_invitation(&self, user: u64) -> Option<&Invitation> {
        self.people.invitations.values().find(|invitation| invitation.is_pending_for(user))
    }

    /// Whether the user is in a team that has this organisation role; people of child teams are.
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

/// The fine-grained roles that allow what only administrators may otherwise.
pub const DEFINITIONS_MANAGER: &str = "custom_properties_org_definitions_manager";

pub const VALUES_EDITOR: &str = "custom_properties_org_values_editor";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::routing::OrganizationRole;
    use crate::emulator::seed;
    use crate::emulator::seed::options::Options;

    #[test]
    fn a_role_that_a_team_has_is_its_peoples() {
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
