//! Teams, memberships and invitations. The upstream does not document the fields of a team; these
//! are the ones that published clients read.

use serde_json::{Value, json};

use super::{Renderer, address_of, extend, node_id};
use crate::emulator::http::{SITE, iso, segment};
use crate::emulator::world::{
    Enterprise, EnterpriseTeam, Invitation, Invitee, Organization, RepositoryRole, Team, TeamRole,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipState {
    Active,
    Pending,
}

impl MembershipState {
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Pending => "pending",
        }
    }
}

impl Renderer<'_> {
    /// Returns a team's permanent address by ids.
    fn team_url(&self, organization: &Organization, team: u64) -> String {
        format!("{}/organizations/{}/team/{team}", self.urls.api, organization.id)
    }

    fn organization_url(&self, organization: &Organization) -> String {
        format!("{}/orgs/{}", self.urls.api, segment(&organization.login))
    }

    pub fn team(&self, organization: &Organization, team: &Team) -> Value {
        let mut value = self.team_alone(organization, team);
        let parent = team.parent.and_then(|id| organization.teams.get(&id));
        extend(
            &mut value,
            json!({ "parent": parent.map(|parent| self.team_alone(organization, parent)) }),
        );
        value
    }

    fn team_alone(&self, organization: &Organization, team: &Team) -> Value {
        let mut value = self.team_of(organization, team.id, &team.slug, "organization");
        extend(
            &mut value,
            json!({
                "name": team.name,
                "description": team.description,
                "privacy": team.privacy.name(),
                "permission": team.permission.name(),
            }),
        );
        value
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
    pub fn whole_team(&self, organization: &Organization, team: &Team) -> Value {
        let mut value = self.team(organization, team);
        extend(
            &mut value,
            json!({
                "members_count": organization.everyone_in_team(team).len(),
                "repos_count": organization.team_repositories(team.id).len(),
                "created_at": iso(team.created_at),
                "updated_at": iso(team.updated_at),
                "organization": self.organization(organization),
            }),
        );
        value
    }

    /// For an organisation that it is assigned to.
    pub fn assigned_team(&self, organization: &Organization, team: &EnterpriseTeam) -> Value {
        let mut value = self.team_of(organization, team.id, &team.slug, "enterprise");
        extend(
            &mut value,
            json!({
                "name": team.name,
                "description": team.description,
                "privacy": "closed",
                "permission": RepositoryRole::Pull.name(),
                "parent": null,
            }),
        );
        value
    }

    pub fn enterprise_team(&self, enterprise: &Enterprise, team: &EnterpriseTeam) -> Value {
        let url = format!(
            "{}/enterprises/{}/teams/{}",
            self.urls.api,
            segment(&enterprise.slug),
            segment(&team.slug)
        );
        json!({
            "id": team.id,
            "node_id": node_id("EnterpriseTeam", team.id),
            "url": url,
            "html_url": format!("{SITE}/enterprises/{}/teams/{}", segment(&enterprise.slug), segment(&team.slug)),
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
            "role": role.name(),
            "state": state.name(),
        })
    }

    /// The login is null without an account; empty strings mean no failure.
    pub fn invitation(&self, organization: &Organization, invitation: &Invitation) -> Value {
        let (login, email) = match &invitation.invitee {
            Invitee::User(user) => {
                (Some(self.world.login(*user)), address_of(self.world.login(*user)))
            }
            Invitee::Address(address) => (None, address.clone()),
        };
        let failure = invitation.failure.as_ref();
        json!({
            "id": invitation.id,
            "login": login,
            "node_id": node_id("OrganizationInvitation", invitation.id),
            "email": email,
            "role": invitation.role.name(),
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
            "state": state.name(),
            "role": role,
            "organization_url": url,
            "organization": self.organization_summary(organization),
            "user": self.user_summary(user),
        })
    }
}
