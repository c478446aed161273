//! Automatic merges: a pull request that its protected target blocks is merged once nothing does.

use crate::clock::Timestamp;
use crate::emulator::events::changes::{EventContext, EventScope};
use crate::emulator::events::issues::raise;
use crate::emulator::events::notifications::Notice;
use crate::emulator::http::ApiError;
use crate::emulator::resources::issues::pull_requests::merge_in;
use crate::emulator::resources::issues::review_state::{MergeState, merge_state};
use crate::emulator::routing::Call;
use crate::emulator::world::{AutoMerge, IssueState, World};

/// Refuses what the running service refuses: a repository that does not allow it, and a pull
/// request that can be merged now.
pub fn enable(
    call: &mut Call<'_>,
    number: u64,
    method: &'static str,
    headline: Option<String>,
) -> Result<(), ApiError> {
    let invalid = |message: &str| Err(ApiError::invalid("PullRequest", "autoMerge", message));
    let repository = call.repository()?;
    let pull = repository.issues.get(&number).ok_or(ApiError::NotFound)?;
    if repository.features.get("allow_auto_merge") != Some(&true) {
        return invalid("Auto merge is not allowed for this repository");
    }
    if pull.state == IssueState::Closed {
        return invalid("Pull request is closed");
    }
    if matches!(merge_state(call.world, repository, pull), MergeState::Clean) {
        return invalid("Pull request is in clean status");
    }
    let request =
        AutoMerge { by: call.actor(), at: call.now, method, headline, urls: call.urls.clone() };
    call.world.auto_merges.insert((call.repository, number), request);
    publish(call, number, "auto_merge_enabled")
}

pub fn disable(call: &mut Call<'_>, number: u64) -> Result<(), ApiError> {
    if call.world.auto_merges.remove(&(call.repository, number)).is_none() {
        let message = "Can not disable auto-merge for this pull request";
        return Err(ApiError::invalid("PullRequest", "autoMerge", message));
    }
    publish(call, number, "auto_merge_disabled")
}

fn publish(call: &mut Call<'_>, number: u64, action: &str) -> Result<(), ApiError> {
    let (context, at, now) = (EventContext::of(call), (call.repository, number), call.now);
    let pull = call.repository_mut()?.issues.get_mut(&number).ok_or(ApiError::NotFound)?;
    pull.updated_at = now;
    raise(call.world, context, at, (action, Vec::new()), Notice::Nobody, |_| serde_json::json!({}));
    Ok(())
}

/// Merges what nothing blocks any more. A closed pull request loses its request.
pub fn advance(world: &mut World, now: Timestamp) {
    let requested: Vec<(u64, u64)> = world.auto_merges.keys().copied().collect();
    for key @ (repository, number) in requested {
        let found = world.repositories.get(&repository);
        let pull = found.and_then(|found| Some((found, found.issues.get(&number)?)));
        let is_open = pull.is_some_and(|(_, pull)| pull.state == IssueState::Open);
        let is_free = pull.is_some_and(|(found, pull)| {
            matches!(merge_state(world, found, pull), MergeState::Clean | MergeState::Unstable)
        });
        if is_open && !is_free {
            continue;
        }
        let Some(request) = world.auto_merges.remove(&key).filter(|_| is_open) else { continue };
        let AutoMerge { by: actor, headline, urls, .. } = request;
        let scope = EventScope::Repository(repository);
        let context = EventContext { urls: &urls, now, scope, actor };
        // Only a full history refuses the merge, and the pull request stays open then.
        let _ = merge_in(world, context, number, headline);
    }
}
