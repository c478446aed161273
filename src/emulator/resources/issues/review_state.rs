//! The reviews of a pull request: submitted, requested, and what they decide.

use serde_json::Value;

use crate::emulator::generic;
use crate::emulator::resources::code::protection;
use crate::emulator::world::{Issue, Repository, StoredItem, World};

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
