//! Look-ups of enterprises and webhooks.

use super::World;
use super::organizations::enterprises::{Enterprise, EnterpriseTeam};
use super::webhooks::hooks::{Hook, HookKey, Target};

impl World {
    pub fn enterprise_by_slug(&self, slug: &str) -> Option<&Enterprise> {
        self.enterprises.values().find(|enterprise| enterprise.slug.eq_ignore_ascii_case(slug))
    }

    /// Returns true for owners of the enterprise and members of its organisations.
    pub fn belongs_to_enterprise(&self, user: u64, enterprise: &Enterprise) -> bool {
        let mut organizations =
            enterprise.organizations.iter().filter_map(|id| self.organizations.get(id));
        enterprise.owners.contains(&user)
            || organizations.any(|organization| organization.members.contains(&user))
    }

    pub fn enterprise_teams_of(&self, organization: u64) -> impl Iterator<Item = &EnterpriseTeam> {
        let teams = self.enterprises.values().flat_map(|enterprise| enterprise.teams.values());
        teams.filter(move |team| team.organizations.contains(&organization))
    }
}

impl World {
    pub fn hook_mut(&mut self, hook_key: HookKey) -> Option<&mut Hook> {
        match hook_key.target {
            Target::Organization(id) => {
                self.organizations.get_mut(&id)?.hooks.get_mut(&hook_key.hook)
            }
            Target::App(id) => self.app_hooks.get_mut(&id).filter(|hook| hook.id == hook_key.hook),
        }
    }
}
