//! Teams and enterprises as the control plane shows them, with all the data that a test needs to
//! choose a case.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::World;
use super::organizations::membership::{Invitation, Invitee, ORGANIZATION_ROLES};
use super::organizations::people::Organization;
use super::organizations::teams::{Team, TeamRole};

impl World {
    fn logins<'a>(&self, users: impl IntoIterator<Item = &'a u64>) -> Vec<&str> {
        users.into_iter().map(|id| self.login(*id)).collect()
    }

    pub fn team_views(&self, organization: &Organization) -> Vec<Value> {
        organization.teams.values().map(|team| self.team_view(team)).collect()
    }

    fn team_view(&self, team: &Team) -> Value {
        let maintainers: BTreeSet<u64> = team
            .people
            .iter()
            .filter(|(_, role)| **role == TeamRole::Maintainer)
            .map(|(user, _)| *user)
            .collect();
        json!({
            "id": team.id,
            "slug": team.slug,
            "name": team.name,
            "parent": team.parent,
            "privacy": team.privacy.into_str(),
            "maintainers": self.logins(&maintainers),
            "members": self.logins(team.people.keys()),
            "synchronised": team.synchronised,
        })
    }

    /// Lists the invitations of an organisation, failed ones too.
    pub fn invitation_views(&self, organization: &Organization) -> Vec<Value> {
        let view = |invitation: &Invitation| {
            let invitee = match &invitation.invitee {
                Invitee::User(user) => self.login(*user),
                Invitee::Address(address) => address,
            };
            let teams: Vec<u64> = invitation.teams.keys().copied().collect();
            json!({ "id": invitation.id, "invitee": invitee, "teams": teams, "failed": invitation.failure.is_some() })
        };
        organization.people.invitations.values().map(view).collect()
    }

    pub fn enterprise_views(&self) -> Vec<Value> {
        let logins_of = |ids: &BTreeSet<u64>| -> Vec<&str> {
            ids.iter()
                .filter_map(|id| self.organizations.get(id))
                .map(|organization| organization.login.as_str())
                .collect()
        };
        let enterprises = self.enterprises.values().map(|enterprise| {
            let teams = enterprise.teams.values().map(|team| {
                json!({
                    "id": team.id,
                    "slug": team.slug,
                    "name": team.name,
                    "members": self.logins(&team.members),
                    "organizations": logins_of(&team.organizations),
                })
            });
            json!({
                "id": enterprise.id,
                "slug": enterprise.slug,
                "name": enterprise.name,
                "owners": self.logins(&enterprise.owners),
                "organizations": logins_of(&enterprise.organizations),
                "teams": teams.collect::<Vec<_>>(),
            })
        });
        enterprises.collect()
    }
}

pub fn role_views() -> Vec<Value> {
    ORGANIZATION_ROLES.iter().map(|(id, name)| json!({ "id": id, "name": name })).collect()
}
