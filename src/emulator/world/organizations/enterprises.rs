//! Enterprises: groups of organisations, and teams assigned to some of them (SPECIFICATION,
//! "Enterprise teams").

use std::collections::{BTreeMap, BTreeSet};

use crate::clock::Timestamp;

/// The prefix of the slugs of enterprise teams.
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
    pub organizations: BTreeSet<u64>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl Enterprise {
    pub fn team(&self, slug_or_id: &str) -> Option<&EnterpriseTeam> {
        let slug = slug_or_id.to_lowercase();
        let by_slug = self.teams.values().find(|team| team.slug == slug);
        by_slug.or_else(|| self.teams.get(&slug_or_id.parse().ok()?))
    }
}
