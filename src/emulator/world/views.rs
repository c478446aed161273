//! Teams, enterprises and tokens as the control plane and the command line show them, with all the
//! data that a test needs to choose a case.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json};

use super::World;
use super::organizations::membership::{Invitation, Invitee, ORGANIZATION_ROLES};
use super::organizations::people::Organization;
use super::organizations::teams::{Team, TeamRole};
use crate::api::TokenKind;
use crate::emulator::accounts::{AccountId, Permissions, Token, kind_name};

impl World {
    fn logins<'a>(&self, users: impl IntoIterator<Item = &'a u64>) -> Vec<&str> {
        users.into_iter().map(|id| self.login(*id)).collect()
    }

    pub fn team_views(&self, organization: &Organization) -> Vec<Value> {
        organization.teams.values().map(|team| self.team_view(team)).collect()
    }

    fn team_view(&self, team: &Team) -> Value {
        let maintainers = team.people.iter().filter(|(_, role)| **role == TeamRole::Maintainer);
        json!({
            "id": team.id,
            "slug": team.slug,
            "name": team.name,
            "parent": team.parent,
            "privacy": team.privacy.into_str(),
            "maintainers": self.logins(maintainers.map(|(user, _)| user)),
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
            let organizations = ids.iter().filter_map(|id| self.organizations.get(id));
            organizations.map(|organization| organization.login.as_str()).collect()
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

    pub fn token_views(&self) -> Vec<TokenView> {
        let apps = self.oauth_apps.iter().map(|app| TokenView {
            token: format!("{}:{}", app.client_id, app.client_secret),
            account: self.account_name(AccountId::OauthApp(app.id)),
            kind: kind_name(TokenKind::Basic),
            user: None,
            scopes: Vec::new(),
            permissions: BTreeMap::new(),
            note: "the OAuth app itself, by Basic",
        });
        self.tokens.iter().map(|token| self.token_view(token)).chain(apps).collect()
    }

    fn token_view(&self, token: &Token) -> TokenView {
        let permissions = match &token.permissions {
            Permissions::NotApplicable => BTreeMap::new(),
            Permissions::All => BTreeMap::from([("*", "admin")]),
            Permissions::Only(granted) => {
                granted.iter().map(|(name, level)| (*name, level.into_str())).collect()
            }
        };
        TokenView {
            token: token.value.clone(),
            account: self.account_name(self.payer(token)),
            kind: kind_name(token.kind),
            user: token.user.map(|user| self.login(user).to_owned()),
            scopes: token.scopes.clone(),
            permissions,
            note: token.note,
        }
    }
}

/// A token as `/_emulator/world` shows it, with its secret, which is made up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenView {
    /// The secret, to be sent as `Authorization: Bearer`; for an OAuth app
    /// `CLIENT_ID:CLIENT_SECRET`.
    pub token: String,
    /// The name of the account that pays.
    pub account: String,
    /// `classic`, `fine-grained`, `oauth`, `app-user`, `installation`, `workflow` or `basic`.
    pub kind: &'static str,
    /// The login of its user.
    pub user: Option<String>,
    /// OAuth scopes, of classic and OAuth tokens.
    pub scopes: Vec<&'static str>,
    /// Name to `read` or `write`; `*` stands for every permission.
    pub permissions: BTreeMap<&'static str, &'static str>,
    /// The purpose of the token.
    pub note: &'static str,
}

pub fn role_views() -> Vec<Value> {
    ORGANIZATION_ROLES.iter().map(|(id, name)| json!({ "id": id, "name": name })).collect()
}
