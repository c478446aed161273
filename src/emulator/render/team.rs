//! Teams, memberships and invitations. The upstream does not document the fields of a team; these
//! are the ones that published clients read.

use serde_json::{Value, json};
use strum::IntoStaticStr;

use super::{Renderer, address_of, extended, node_id};
use crate::emulator::http::{SITE, iso, segment};
use crate::emulator::world::{
    Enterprise, EnterpriseTeam, Invitation, Invitee, Organization, RepositoryRole, Team, TeamRole,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum MembershipState {
    Active,
    Pending,
}

impl Renderer<'_> {
    /// Returns a team's permanent address by ids.
    fn team_url(&self, organization: &Organization, team: u64) -> String {
        format!("{}/organizations/{}/team/{team}", self.urls.api, organization.id)
    }

    pub fn team(&self, organization: &Organization, team: &Team) -> Value {
        let parent = team.parent.and_then(|id| organization.teams.get(&id));
        let parent = parent.map(|parent| self.team_alone(organization, parent));
        extended(self.team_alone(organization, team), json!({ "parent": parent }))
    }

    /// Renders a team by its id, whichever organisation it is of.
    pub fn team_of_organization(&self, id: u64) -> Option<Value> {
        let mut organizations = self.world.organizations.values();
        let organization = organizations.find(|one| one.teams.contains_key(&id))?;
        Some(self.team(organization, organization.teams.get(&id)?))
    }

    fn team_alone(&self, organization: &Organization, team: &Team) -> Value {
        let own = json!({
            "name": team.name,
            "description": team.description,
            "privacy": team.privacy.into_str(),
            "permission": team.permission.into_str(),
        });
        extended(self.team_of(organization, team.id, &team.slug, "organization"), own)
    }

    fn team_of(&self, organization: &Organization, id: u64, slug: &str, kind: &str) -> Value {
        let url = self.team_url(organization, id);
        json!({
            "id": id,
            "node_id": node_id("Team", id),
            "url": url,
            "html_url": format!("{SITE}/orgs/{}/teams/{}", segment(&organization.login), segment(slug)),
            "slug": slug,
            "members_url": format!("{url}/members{{/member}}"),
            "repositories_url": format!("{url}/repos"),
            "type": kind,
        })
    }

    /// With counts, times and its organisation.
    pub fn full_team(&self, organization: &Organization, team: &Team) -> Value {
        let more = json!({
            "members_count": organization.everyone_in_team(team).len(),
            "repos_count": organization.team_repositories(team.id).len(),
            "created_at": iso(team.created_at),
            "updated_at": iso(team.updated_at),
            "organization": self.organization(organization),
        });
        extended(self.team(organization, team), more)
    }

    /// For an organisation that it is assigned to.
    pub fn assigned_team(&self, organization: &Organization, team: &EnterpriseTeam) -> Value {
        let own = json!({
            "name": team.name,
            "description": team.description,
            "privacy": "closed",
            "permission": RepositoryRole::Pull.into_str(),
            "parent": null,
        });
        extended(self.team_of(organization, team.id, &team.slug, "enterprise"), own)
    }

    pub fn enterprise_team(&self, enterprise: &Enterprise, team: &EnterpriseTeam) -> Value {
        let path =
            format!("/enterprises/{}/teams/{}", segment(&enterprise.slug), segment(&team.slug));
        let url = format!("{}{path}", self.urls.api);
        json!({
            "id": team.id,
            "node_id": node_id("EnterpriseTeam", team.id),
            "url": url,
            "html_url": format!("{SITE}{path}"),
            "members_url": format!("{url}/memberships"),
            "name": team.name,
            "slug": team.slug,
            "description": team.description,
            "created_at": iso(team.created_at),
            "updated_at": iso(team.updated_at),
        })
    }

    pub fn team_membership(
        &self,
        organization: &Organization,
        team: u64,
        user: u64,
        role: TeamRole,
        state: MembershipState,
    ) -> Value {
        json!({
            "url": format!("{}/memberships/{}", self.team_url(organization, team), segment(self.world.login(user))),
            "role": role.into_str(),
            "state": state.into_str(),
        })
    }

    /// The login is null without an account; empty strings mean no failure.
    pub fn invitation(&self, organization: &Organization, invitation: &Invitation) -> Value {
        let (login, email) = match &invitation.invitee {
            Invitee::User(user) => {
                let login = self.world.login(*user);
                (Some(login), address_of(login))
            }
            Invitee::Address(address) => (None, address.clone()),
        };
        let failure = invitation.failure.as_ref();
        json!({
            "id": invitation.id,
            "login": login,
            "node_id": node_id("OrganizationInvitation", invitation.id),
            "email": email,
            "role": invitation.role.into_str(),
            "created_at": iso(invitation.created_at),
            "failed_at": failure.map_or_else(String::new, |failure| iso(failure.at)),
            "failed_reason": failure.map_or("", |failure| &failure.reason),
            "inviter": self.user_summary(invitation.inviter),
            "team_count": invitation.teams.len(),
            "invitation_teams_url": format!("{}/invitations/{}/teams", self.organization_url(organization), invitation.id),
            // The values are undocumented; here a person or app sends every invitation.
            "invitation_source": "member",
        })
    }

    /// The shape is undocumented.
    pub fn organization_membership(
        &self,
        organization: &Organization,
        user: u64,
        role: &str,
        state: MembershipState,
    ) -> Value {
        let url = self.organization_url(organization);
        json!({
            "url": format!("{url}/memberships/{}", segment(self.world.login(user))),
            "state": state.into_str(),
            "role": role,
            "organization_url": url,
            "organization": self.organization_summary(organization),
            "user": self.user_summary(user),
        })
    }
}
