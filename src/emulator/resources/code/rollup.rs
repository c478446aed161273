//! The statuses and check runs of a commit together, as pull requests show them.

use serde_json::Value;

use crate::emulator::generic;
use crate::emulator::world::{StoredItem, World};

#[derive(Clone, Debug)]
pub enum Context {
    Status(StoredItem),
    Check(StoredItem),
}

fn text<'t>(item: &'t StoredItem, name: &str) -> &'t str {
    item.fields.get(name).and_then(Value::as_str).unwrap_or("")
}

/// Lists the newest status of each context and the newest check of each name in a suite.
pub fn of(world: &World, repository: u64, sha: &str) -> Vec<Context> {
    let newest = |own: &str, of_commit: &str, key: fn(&StoredItem) -> (u64, String)| {
        let all = generic::items(world, &format!("repository/{repository}/{own}"));
        let mut newest: Vec<StoredItem> = Vec::new();
        for (_, item) in all.into_iter().filter(|(_, item)| text(item, of_commit) == sha) {
            newest.retain(|known| key(known) != key(&item));
            newest.push(item);
        }
        newest
    };
    let statuses = newest("statuses", "sha", |item| (0, text(item, "context").to_owned()));
    let checks = newest("check-runs", "head_sha", |item| {
        let suite = item.fields.get("check_suite_id").and_then(Value::as_u64);
        (suite.unwrap_or(0), text(item, "name").to_owned())
    });
    let statuses = statuses.into_iter().map(Context::Status);
    statuses.chain(checks.into_iter().map(Context::Check)).collect()
}

impl Context {
    pub fn name(&self) -> &str {
        match self {
            Self::Status(status) => text(status, "context"),
            Self::Check(check) => text(check, "name"),
        }
    }

    /// The state of a context, in the words of GraphQL's `StatusState`.
    pub fn state(&self) -> &'static str {
        match self {
            Self::Status(status) => match text(status, "state") {
                "error" => "ERROR",
                "failure" => "FAILURE",
                "success" => "SUCCESS",
                _ => "PENDING",
            },
            Self::Check(check) => match text(check, "conclusion") {
                "success" | "neutral" | "skipped" => "SUCCESS",
                "" | "stale" => "PENDING",
                _ => "FAILURE",
            },
        }
    }
}

/// Returns the worst state; `None` without any context.
pub fn state(contexts: &[Context]) -> Option<&'static str> {
    const FROM_THE_WORST: [&str; 4] = ["ERROR", "FAILURE", "PENDING", "SUCCESS"];
    let has = |wanted: &&str| contexts.iter().any(|context| context.state() == *wanted);
    FROM_THE_WORST.into_iter().find(has)
}
