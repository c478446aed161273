//! Apps, their installations and their owners' plans, which decide the payer and the size of a
//! budget. Data and look-ups only; the rules are in `reach` and `limits`.

use std::collections::BTreeSet;

use super::World;
use super::organizations::people::{App, Owner};
use crate::api::TokenKind;
use crate::emulator::accounts::{AccountId, Permissions, Token};
use crate::emulator::limits::settings::{Plan, Scale};

#[derive(Clone, Debug)]
pub struct InstallationGrant {
    pub permissions: Permissions,
    /// The chosen repositories; `None` for all of the organisation's, future ones included.
    pub repositories: Option<BTreeSet<u64>>,
}

/// The terms of an installation without an entry.
const EVERYTHING: &InstallationGrant =
    &InstallationGrant { permissions: Permissions::All, repositories: None };

impl World {
    pub fn app(&self, id: u64) -> Option<&App> {
        self.apps.iter().find(|app| app.id == id)
    }

    pub fn installation(&self, id: u64) -> Option<(&App, u64)> {
        self.apps.iter().find_map(|app| {
            let (_, organization) =
                app.installations.iter().find(|(installation, _)| *installation == id)?;
            Some((app, *organization))
        })
    }

    pub fn installation_on(&self, app: u64, organization: u64) -> Option<u64> {
        let installed = self.app(app)?.installations.iter().find(|(_, on)| *on == organization);
        installed.map(|(installation, _)| *installation)
    }

    pub fn installation_grant(&self, installation: u64) -> &InstallationGrant {
        self.installation_grants.get(&installation).unwrap_or(EVERYTHING)
    }

    /// An app of an enterprise-cloud organisation, acting for a member, has its own budget.
    /// Membership can change, so each request looks it up.
    pub fn payer(&self, token: &Token) -> AccountId {
        let app = match token.kind {
            TokenKind::AppUser => token.app,
            TokenKind::Oauth => token.oauth_app,
            _ => None,
        };
        let (Some(app), Some(user)) = (app, token.user) else { return token.account };
        let owner = self.owner_of_app(app).filter(|owner| self.is_on_enterprise_cloud(*owner));
        match owner {
            Some(Owner::Organization(id)) if self.is_member(id, user) => {
                AccountId::AppUser { app, user }
            }
            _ => token.account,
        }
    }

    /// Apps and OAuth apps share one id space.
    fn owner_of_app(&self, id: u64) -> Option<Owner> {
        let oauth = || self.oauth_apps.iter().find(|app| app.id == id).map(|app| app.owner);
        self.app(id).map(|app| app.owner).or_else(oauth)
    }

    fn is_member(&self, organization: u64, user: u64) -> bool {
        let organization = self.organizations.get(&organization);
        organization.is_some_and(|organization| organization.members.contains(&user))
    }

    fn is_on_enterprise_cloud(&self, owner: Owner) -> bool {
        matches!(owner, Owner::Organization(id) if self.enterprise_cloud.contains(&id))
    }

    fn plan(&self, owner: Option<Owner>) -> Plan {
        let is_on_cloud = owner.is_some_and(|owner| self.is_on_enterprise_cloud(owner));
        if is_on_cloud { Plan::EnterpriseCloud } else { Plan::Usual }
    }

    /// Returns the factors of an account's limit (SPECIFICATION, "Primary rate limits").
    pub fn scale(&self, account: AccountId) -> Scale {
        match account {
            AccountId::Installation(id) => self.scale_of_installation(id),
            AccountId::OauthApp(id) => {
                Scale { plan: self.plan(self.owner_of_app(id)), ..Scale::default() }
            }
            AccountId::Workflow(repository) => {
                let owner = self.repositories.get(&repository).map(|repository| repository.owner);
                Scale { plan: self.plan(owner), ..Scale::default() }
            }
            _ => Scale::default(),
        }
    }

    fn scale_of_installation(&self, id: u64) -> Scale {
        let organization = self.installation(id).map(|(_, organization)| organization);
        let Some(organization) = organization.and_then(|id| self.organizations.get(&id)) else {
            return Scale::default();
        };
        let owner = Owner::Organization(organization.id);
        let repositories = match &self.installation_grant(id).repositories {
            Some(chosen) => {
                chosen.iter().filter(|id| self.repositories.contains_key(id)).count() as u64
            }
            // A running count, because every request reads it several times.
            None => self.ownership.count(owner),
        };
        Scale {
            repositories,
            users: organization.members.len() as u64,
            plan: self.plan(Some(owner)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::emulator::seed;
    use crate::emulator::seed::options::Options;

    const IRIS: u64 = 151;
    const INITECH_LABS: u64 = 251;

    fn world() -> World {
        seed::world(&Options::default(), Timestamp::from_secs(1_800_000_000))
    }

    fn payer(world: &World, secret: &str) -> AccountId {
        world.payer(&world.tokens[world.token_positions[secret]])
    }

    #[test]
    fn a_former_member_pays_as_an_ordinary_user() {
        let mut world = world();
        assert_eq!(payer(&world, "emu_app_user_iris"), AccountId::AppUser { app: 351, user: IRIS });
        assert_eq!(payer(&world, "emu_oauth_iris"), AccountId::AppUser { app: 371, user: IRIS });
        assert_eq!(payer(&world, "emu_classic_iris"), AccountId::User(IRIS));
        world.organizations.get_mut(&INITECH_LABS).expect("the organisation").members.remove(&IRIS);
        assert_eq!(payer(&world, "emu_app_user_iris"), AccountId::User(IRIS));
        assert_eq!(
            payer(&world, "emu_app_user_ben"),
            AccountId::User(102),
            "acme is not on the enterprise cloud"
        );
    }

    #[test]
    fn an_installation_is_scaled_by_its_repositories_and_users() {
        let world = world();
        let scale = |id| world.scale(AccountId::Installation(id));
        let owned = world
            .repositories
            .values()
            .filter(|repository| repository.owner == Owner::Organization(201))
            .count() as u64;
        assert_eq!(
            (scale(311).repositories, scale(311).users, scale(311).plan),
            (owned, 6, Plan::Usual)
        );
        assert_eq!(
            (scale(361).repositories, scale(361).users, scale(361).plan),
            (2, 2, Plan::EnterpriseCloud)
        );
        assert_eq!(scale(999).repositories, 0);
    }

    #[test]
    fn the_enterprise_plan_covers_oauth_apps_and_workflows() {
        let world = world();
        let plan = |account| world.scale(account).plan;
        assert_eq!(
            (plan(AccountId::OauthApp(371)), plan(AccountId::OauthApp(321))),
            (Plan::EnterpriseCloud, Plan::Usual)
        );
        assert_eq!(
            (plan(AccountId::Workflow(3_000_002)), plan(AccountId::Workflow(1_001))),
            (Plan::EnterpriseCloud, Plan::Usual)
        );
        assert_eq!(plan(AccountId::App(351)), Plan::Usual);
    }
}
