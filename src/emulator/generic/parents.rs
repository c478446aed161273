//! Checks that the objects along a path exist.
//!
//! The world knows users, repositories, issues and the like; all others must be stored or exist
//! from the start.

use super::address::{Address, UNLISTED};
use super::rule::Subject;
use super::shape::Shape;
use super::{Facts, family, seeds};
use crate::emulator::auth::access;
use crate::emulator::http::ApiError;
use crate::emulator::http::path::decode_segment;
use crate::emulator::routing::Call;
use crate::emulator::world::Repository;

/// Parameters that do not name objects.
const NAMELESS_PARAMETERS: &[&str] = &[
    "archive_format",
    "basehead",
    "client_id",
    "code",
    "dir",
    "enablement",
    "path",
    "security_product",
    "tag",
];

/// Missing objects are 404. The last step is left to the handler, unless the world has such
/// objects.
pub fn require(call: &Call<'_>, facts: &Facts, address: &Address) -> Result<(), ApiError> {
    let last = address.steps.len();
    for (index, step) in address.steps.iter().enumerate() {
        let names_nothing =
            step.param.is_empty() || NAMELESS_PARAMETERS.contains(&step.param.as_str());
        if names_nothing
            || (step.param == UNLISTED && !(index + 1 < last && family::is_item(address, index)))
        {
            continue;
        }
        let text = decode_segment(&step.text);
        // Parameters that end so accept numbers only.
        let is_number = step.param.ends_with("_number")
            || (step.param.ends_with("_id") && step.param != "sarif_id");
        if is_number && text.parse::<u64>().is_err() {
            return Err(ApiError::NotFound);
        }
        let pattern = address.pattern(index + 1);
        let in_world = in_world(call, facts.rule.subject, &pattern, &step.param, &text);
        let exists = in_world.unwrap_or_else(|| {
            // A list under a parameter (`statuses/{sha}`) has no item of that name.
            (index + 1 == last && facts.shape != Shape::List)
                || seeds::get(call, &address.leading(index), &step.text).is_some()
        });
        if !exists {
            return Err(ApiError::NotFound);
        }
    }
    Ok(())
}

/// Says if an object exists; `None` where the world has no such objects.
fn in_world(
    call: &Call<'_>,
    subject: Subject,
    pattern: &str,
    param: &str,
    text: &str,
) -> Option<bool> {
    Some(match param {
        "username" | "assignee" | "target_user" => call.world.user_by_login(text).is_some(),
        "org" => call.world.organization_by_login(text).is_some(),
        // Admission has already found the team.
        "team_slug" | "team_id" => true,
        "attempt_number" => text == "1",
        "repository_id" => {
            let repository = text.parse().ok().and_then(|id: u64| call.world.repositories.get(&id));
            repository.is_some_and(|repository| access::sees(call.world, call.caller, repository))
        }
        "installation_id" => text.parse().is_ok_and(|id| call.world.installation(id).is_some()),
        _ if subject == Subject::Repository => {
            return in_repository(call, call.repository().ok()?, pattern, text);
        }
        _ => return None,
    })
}

/// `None` where the world has no such objects.
fn in_repository(
    call: &Call<'_>,
    repository: &Repository,
    pattern: &str,
    text: &str,
) -> Option<bool> {
    let id: Option<u64> = text.parse().ok();
    let has = |known: &dyn Fn(u64) -> bool| id.is_some_and(known);
    Some(match pattern {
        "/issues/{issue_number}" => has(&|number| repository.issues.contains_key(&number)),
        "/pulls/{pull_number}" => has(&|number| {
            repository.issues.get(&number).is_some_and(|issue| issue.pull_from.is_some())
        }),
        "/issues/comments/{comment_id}" => has(&|id| repository.comments.contains_key(&id)),
        "/pulls/{pull_number}/comments/{comment_id}" => {
            let collection = format!("repository/{}/pulls/comments", repository.id);
            seeds::get(call, &collection, text).is_some()
        }
        "/milestones/{milestone_number}" => has(&|id| repository.milestones.contains_key(&id)),
        "/releases/{release_id}" => has(&|id| repository.releases.contains_key(&id)),
        "/releases/assets/{asset_id}" => {
            has(&|id| repository.releases.values().any(|release| release.assets.contains_key(&id)))
        }
        "/labels/{name}" => {
            repository.labels.values().any(|label| label.name.eq_ignore_ascii_case(text))
        }
        "/branches/{branch}" | "/rules/branches/{branch}" => {
            call.world.history(repository).head(text).is_some()
        }
        "/commits/{ref}" | "/statuses/{sha}" => {
            call.world.history(repository).named(text).is_some()
        }
        "/tarball/{ref}" | "/zipball/{ref}" => {
            let history = call.world.history(repository);
            history.named(text.strip_prefix("heads/").unwrap_or(text)).is_some()
        }
        _ => return None,
    })
}
