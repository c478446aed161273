//! The fine-grained permissions by their API names, and how a grant is narrowed and shown.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Map, Value, json};

use super::endpoint_permissions;
use crate::api::{Dialect, Table};
use crate::emulator::accounts::{Level, Permissions};

/// Name and highest level. The upstream documents the older categories only; later ones follow the
/// real service. Permissions that routes here require are added.
const NAMED: &[(&str, Level)] = &[
    ("actions", Level::Write),
    ("administration", Level::Write),
    ("checks", Level::Write),
    ("contents", Level::Write),
    ("dependabot_secrets", Level::Write),
    ("deployments", Level::Write),
    ("environments", Level::Write),
    ("issue_fields", Level::Write),
    ("issues", Level::Write),
    ("members", Level::Write),
    ("metadata", Level::Read),
    ("organization_administration", Level::Write),
    ("organization_custom_properties", Level::Admin),
    ("organization_hooks", Level::Write),
    ("organization_self_hosted_runners", Level::Write),
    ("packages", Level::Write),
    ("pages", Level::Write),
    ("pull_requests", Level::Write),
    ("repository_custom_properties", Level::Write),
    ("repository_hooks", Level::Write),
    ("secrets", Level::Write),
    ("security_events", Level::Write),
    ("statuses", Level::Write),
    ("workflows", Level::Write),
];

fn all() -> &'static BTreeMap<String, Level> {
    static ALL: OnceLock<BTreeMap<String, Level>> = OnceLock::new();
    ALL.get_or_init(|| {
        let named = NAMED.iter().map(|(name, level)| ((*name).to_owned(), *level));
        let listed = [Dialect::Service, Dialect::Github].into_iter().flat_map(|dialect| {
            let sets = Table::embedded(dialect)
                .endpoints()
                .iter()
                .flat_map(move |endpoint| endpoint_permissions::sets(endpoint, dialect));
            sets.flatten().map(|grant| (grant.name, grant.level))
        });
        let mut all = BTreeMap::new();
        for (name, level) in named.chain(listed) {
            let known = all.entry(name).or_insert(level);
            *known = level.max(*known);
        }
        all
    })
}

pub fn named(name: &str) -> Option<&'static str> {
    all().get_key_value(name).map(|(name, _)| name.as_str())
}

pub fn level_named(name: &str) -> Option<Level> {
    name.parse().ok()
}

impl Permissions {
    pub fn wire(&self) -> Value {
        let shown = |name: &str, level: &Level| (name.to_owned(), json!(level.into_str()));
        let granted: Map<String, Value> = match self {
            Self::NotApplicable => Map::new(),
            Self::All => all().iter().map(|(name, level)| shown(name, level)).collect(),
            Self::Only(granted) => granted.iter().map(|(name, level)| shown(name, level)).collect(),
        };
        Value::Object(granted)
    }

    pub fn include(&self, requested: &BTreeMap<&'static str, Level>) -> bool {
        requested.iter().all(|(name, level)| match self {
            Self::All => all().get(*name).is_some_and(|highest| highest >= level),
            other => other.allow(name, *level),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_full_grant_includes_only_existing_levels() {
        assert!(!Permissions::All.include(&BTreeMap::from([("metadata", Level::Write)])));
        assert!(Permissions::All.include(&BTreeMap::from([("issues", Level::Write)])));
        assert_eq!(named("telepathy"), None);
    }
}
