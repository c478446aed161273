//! Enterprises: organisations under one roof, and teams that are assigned to some of them (Document
//! 2, Enterprise team organization assignments).

use std::collections::{BTreeMap, BTreeSet};

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
