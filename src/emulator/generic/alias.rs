//! Filtered lists over another collection: the checks of one commit are those of the repository
//! that name it.

use serde_json::{Value, json};

use super::Facts;
use super::address::Address;
use super::bodies::Members;
use crate::emulator::http::ApiError;
use crate::emulator::http::path::decode_segment;
use crate::emulator::routing::Call;
use crate::emulator::world::StoredItem;

/// The end of a template, its source collection, the filter's field and its parameter.
const ALIASES: &[(&str, &str, &str, &str)] = &[
    ("/commits/{ref}/comments", "/comments", "commit_id", "ref"),
    ("/commits/{ref}/check-runs", "/check-runs", "head_sha", "ref"),
    ("/commits/{ref}/check-suites", "/check-suites", "head_sha", "ref"),
    (
        "/check-suites/{check_suite_id}/check-runs",
        "/check-runs",
        "check_suite_id",
        "check_suite_id",
    ),
    ("/runs/{run_id}/jobs", "/actions/jobs", "run_id", "run_id"),
    ("/attempts/{attempt_number}/jobs", "/actions/jobs", "run_id", "run_id"),
    ("/runs/{run_id}/artifacts", "/actions/artifacts", "run_id", "run_id"),
    ("/workflows/{workflow_id}/runs", "/actions/runs", "workflow_id", "workflow_id"),
    ("/pulls/{pull_number}/comments", "/pulls/comments", "pull_number", "pull_number"),
    ("/reviews/{review_id}/comments", "/pulls/comments", "pull_request_review_id", "review_id"),
    ("/security-managers", "/security-managers/teams", "", ""),
];

#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    pub collection: String,
    pub only: Option<(&'static str, Value)>,
}

impl Source {
    pub fn has(&self, item: &StoredItem) -> bool {
        self.only.as_ref().is_none_or(|(field, value)| item.fields.get(*field) == Some(value))
    }
}

/// Returns the source of a list: its own address, unless it filters another collection.
pub fn source(call: &Call<'_>, facts: &Facts, address: &Address) -> Source {
    let own = || Source { collection: address.whole(), only: None };
    let known = ALIASES.iter().find(|(suffix, ..)| facts.template.ends_with(suffix));
    known.map_or_else(own, |(_, collection, field, param)| {
        let wanted = |value: String| {
            if *param == "ref" {
                return json!(commit(call, &value));
            }
            value.parse::<u64>().map_or_else(|_| json!(value), |number| json!(number))
        };
        let only = address.value(param).map(|value| (*field, wanted(decode_segment(value))));
        Source { collection: address.sibling(collection), only }
    })
}

/// Resolves a ref in a path to the commit's full id; its existence was checked before.
fn commit(call: &Call<'_>, name: &str) -> String {
    let repository = call.repository().ok();
    let found = repository.and_then(|repository| {
        call.world.history(repository).named(name).map(|commit| commit.sha.clone())
    });
    found.unwrap_or_else(|| name.to_owned())
}

/// Completes fields that name a commit; an unknown commit is an invalid field.
pub fn complete(call: &Call<'_>, template: &str, fields: &mut Members) -> Result<(), ApiError> {
    let (given, kept) = match template.rsplit('/').next().unwrap_or("") {
        "check-runs" | "check-suites" => ("head_sha", "head_sha"),
        "deployments" => ("ref", "sha"),
        _ => return Ok(()),
    };
    let name = fields.get(given).and_then(Value::as_str).unwrap_or("");
    let history = call.world.history(call.repository()?);
    let commit = history.named(name).ok_or_else(|| {
        ApiError::invalid("Resource", given, format!("{given} is no commit of the repository"))
    })?;
    fields.insert(kept.to_owned(), json!(commit.sha));
    Ok(())
}
