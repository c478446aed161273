//! Enterprises: organisations under one roof, and teams that are assigned to some of them (Document
//! 2, Enterprise team organization assignments).

use std::collections::{BTreeMap, BTreeSet};

use super::World;
use crate::clock::Timestamp;

/// "Enterprise team slug: generated from the name with the prefix `ent:`" (Document 2).
pub const SLUG_PREFIX: &str = "ent:";

#[derive(Debug)]
pub struct Enterprise {
    pub id: u64,
    pub slug: String,
    pub name: String,
    pub owners: BTreeSet<u64>,
    pub organizations: BTreeSet<u64>,
    pub teams: BTreeMap<u64, EnterpriseTeam>,
}

#[derive(Debug)]
pub struct EnterpriseTeam {
    pub id: u64,
    pub slug: String,
    pub name: String,
    pub description: Option<String>,
    pub members: BTreeSet<u64>,
    /// Where it is assigned.
    pub organizations: BTreeSet<u64>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl Enterprise {
    /// "Slug or team id" (Document 2, path parameters).
    pub fn team(&self, slug_or_id: &str) -> Option<&EnterpriseTeam> {
        let slug = slug_or_id.to_lowercase();
        let by_slug = self.teams.values().find(|team| team.slug == slug);
        by_slug.or_else(|| self.teams.get(&slug_or_id.parse().ok()?))
    }
}

impl World {
    pub fn enterprise_by_slug(&self, slug: &str) -> Option<&Enterprise> {
        self.enterprises.values().find(|enterprise| enterprise.slug.eq_ignore_ascii_case(slug))
    }

    /// Whether the user owns the enterprise or is a member of one of its organisations.
    pub fn belongs_to_enterprise(&self, user: u64, enterprise: &Enterprise) -> bool {
        let mut organizations =
            enterprise.organizations.iter().filter_map(|id| self.organizations.get(id));
        enterprise.owners.contains(&user)
            || organizations.any(|organization| organization.members.contains(&user))
    }

    /// The enterprise teams that are assigned to an organisation.
    pub fn enterprise_teams_of(&self, organization: u64) -> impl Iterator<Item = &EnterpriseTeam> {
        let teams = self.enterprises.values().flat_map(|enterprise| enterprise.teams.values());
        teams.filter(move |team| team.organizations.contains(&organization))
    }
}
