//! The reviews of a pull request: submitted, requested, and what they decide.

use serde_json::Value;

use crate::emulator::generic;
use crate::emulator::resources::code::protection;
use crate::emulator::resources::code::rollup;
use crate::emulator::world::{Issue, IssueState, Repository, StoredItem, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Approved,
    ChangesRequested,
    /// The target branch is protected, and has not enough approvals.
    Required,
}

fn text<'t>(review: &'t StoredItem, name: &str) -> &'t str {
    review.fields.get(name).and_then(Value::as_str).unwrap_or("")
}

/// Lists the submitted reviews, oldest first: reviewer and state.
pub fn submitted(world: &World, repository: u64, number: u64) -> Vec<(u64, String)> {
    let reviews = generic::items(world, &format!("repository/{repository}/pulls/{number}/reviews"));
    let submitted = |(_, review): (String, StoredItem)| {
        let state = text(&review, "state");
        let reviewer = review.fields.get("user")?.get("id")?.as_u64()?;
        (state != "PENDING").then(|| (reviewer, state.to_owned()))
    };
    reviews.into_iter().filter_map(submitted).collect()
}

/// Lists the users, or the teams, that are asked for a review.
pub fn requested(world: &World, repository: u64, number: u64, what: &str) -> Vec<u64> {
    let address = format!("repository/{repository}/pulls/{number}/{what}");
    generic::items(world, &address).into_iter().map(|(_, item)| item.id).collect()
}

/// The last opinion of each reviewer counts; a comment is none.
pub fn decision(world: &World, repository: &Repository, pull: &Issue) -> Option<Decision> {
    let mut opinions = std::collections::BTreeMap::new();
    for (reviewer, state) in submitted(world, repository.id, pull.number) {
        if state != "COMMENTED" {
            opinions.insert(reviewer, state);
        }
    }
    let count = |wanted: &str| opinions.values().filter(|state| *state == wanted).count() as u64;
    let required = required_approvals(world, repository, pull);
    if count("CHANGES_REQUESTED") > 0 {
        Some(Decision::ChangesRequested)
    } else if count("APPROVED") >= required.unwrap_or(1).max(1) {
        Some(Decision::Approved)
    } else {
        required.map(|_| Decision::Required)
    }
}

/// Returns the approvals that the protection of the target branch requires.
fn required_approvals(world: &World, repository: &Repository, pull: &Issue) -> Option<u64> {
    let base = pull.pull_into.as_ref().unwrap_or(&repository.default_branch);
    let protection = protection::stored(world, repository.id, base)?;
    let reviews = protection.fields.get("required_pull_request_reviews")?;
    reviews.as_object()?;
    Some(reviews["required_approving_review_count"].as_u64().unwrap_or(1))
}

/// Says what stands in the way of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeState {
    /// A review or a check is required.
    Blocked,
    Clean,
    Draft,
    /// Closed, or without its source branch.
    Unknown,
    /// A check that is not required failed or is under way.
    Unstable,
}

impl MergeState {
    /// The name in GraphQL.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blocked => "BLOCKED",
            Self::Clean => "CLEAN",
            Self::Draft => "DRAFT",
            Self::Unknown => "UNKNOWN",
            Self::Unstable => "UNSTABLE",
        }
    }
}

pub fn merge_state(world: &World, repository: &Repository, pull: &Issue) -> MergeState {
    let history = world.history(repository);
    let Some(head) = history.pull_source(pull).filter(|_| pull.state == IssueState::Open) else {
        return MergeState::Unknown;
    };
    if pull.is_draft {
        return MergeState::Draft;
    }
    let contexts = rollup::of(world, repository.id, &head.sha);
    let passes =
        |name: &String| contexts.iter().any(|one| one.name() == name && one.state() == "SUCCESS");
    let needs_review = required_approvals(world, repository, pull).is_some()
        && decision(world, repository, pull) != Some(Decision::Approved);
    if needs_review || !required_contexts(world, repository, pull).iter().all(passes) {
        return MergeState::Blocked;
    }
    match rollup::state(&contexts) {
        None | Some("SUCCESS") => MergeState::Clean,
        Some(_) => MergeState::Unstable,
    }
}

/// Lists the statuses and checks that the protection of the target branch requires.
pub fn required_contexts(world: &World, repository: &Repository, pull: &Issue) -> Vec<String> {
    let base = pull.pull_into.as_ref().unwrap_or(&repository.default_branch);
    let protection = protection::stored(world, repository.id, base);
    let checks = protection.as_ref().and_then(|found| found.fields.get("required_status_checks"));
    let list = |name: &str| {
        let list = checks.and_then(|checks| checks.get(name)).and_then(Value::as_array);
        list.into_iter().flatten()
    };
    let names = list("contexts").chain(list("checks").filter_map(|check| check.get("context")));
    let mut names: Vec<String> =
        names.filter_map(|name| name.as_str()).map(str::to_owned).collect();
    names.sort_unstable();
    names.dedup();
    names
}
