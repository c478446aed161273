//! Changes of milestones, releases and assets, and an issue's assignees and lock.

use http::StatusCode;
use serde_json::Value;

use super::issue::{self, READ as READ_ISSUES};
use crate::emulator::accounts::Level;
use crate::emulator::http::{ApiError, Fields, Reply};
use crate::emulator::render::Renderer;
use crate::emulator::routing::{Call, Need, Outcome, Role, Route, USUAL, pagination};
use crate::emulator::world::IssueState;

const CHANGE_ISSUES: Need = Need::repository("issues", Level::Write, Role::Push);
const READ_RELEASES: Need = Need::repository("contents", Level::Read, Role::Read);
const CHANGE_RELEASES: Need = Need::repository("contents", Level::Write, Role::Push);

pub const ROUTES: &[Route] = &[
    Route::patch(
        "/repos/{owner}/{repo}/milestones/{milestone_number}",
        CHANGE_ISSUES,
        change_milestone,
    ),
    Route::delete(
        "/repos/{owner}/{repo}/milestones/{milestone_number}",
        CHANGE_ISSUES,
        delete_milestone,
    ),
    Route::get(
        "/repos/{owner}/{repo}/milestones/{milestone_number}/labels",
        READ_ISSUES,
        labels_of_milestone,
    ),
    Route::delete("/repos/{owner}/{repo}/issues/{number}/labels", CHANGE_ISSUES, remove_labels),
    Route::post("/repos/{owner}/{repo}/issues/{number}/assignees", CHANGE_ISSUES, assign),
    Route::delete("/repos/{owner}/{repo}/issues/{number}/assignees", CHANGE_ISSUES, unassign),
    Route::put("/repos/{owner}/{repo}/issues/{number}/lock", CHANGE_ISSUES, lock),
    Route::delete("/repos/{owner}/{repo}/issues/{number}/lock", CHANGE_ISSUES, unlock),
    Route::get("/repos/{owner}/{repo}/releases/latest", READ_RELEASES, latest_release),
    Route::patch("/repos/{owner}/{repo}/releases/{release_id}", CHANGE_RELEASES, change_release),
    Route::delete("/repos/{owner}/{repo}/releases/{release_id}", CHANGE_RELEASES, delete_release),
    Route::patch("/repos/{owner}/{repo}/releases/assets/{asset_id}", CHANGE_RELEASES, change_asset),
];

/// The running service's limit of assignees.
const ASSIGNEES_MAX: usize = 10;

fn change_milestone(call: &mut Call<'_>) -> Outcome {
    let number = call.params.id("milestone_number")?;
    if !call.repository()?.milestones.contains_key(&number) {
        return Err(ApiError::NotFound);
    }
    let mut fields = Fields::parse("Milestone", call.body)?;
    let title = fields.has("title").then(|| fields.required_string("title"));
    let description = fields.nullable_string("description");
    let state = match fields.string("state").as_deref() {
        None => None,
        Some("open") => Some(IssueState::Open),
        Some("closed") => Some(IssueState::Closed),
        Some(_) => {
            fields.invalid("state", "state must be open or closed");
            None
        }
    };
    fields.check()?;
    let now = call.now;
    let milestone = call.repository_mut()?.milestones.get_mut(&number).ok_or(ApiError::NotFound)?;
    milestone.title = title.unwrap_or_else(|| std::mem::take(&mut milestone.title));
    milestone.description = description.of(milestone.description.take());
    milestone.state = state.unwrap_or(milestone.state);
    milestone.updated_at = now;
    touch_issues(call, number)?;
    let repository = call.repository()?;
    let milestone = repository.milestones.get(&number).ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(Renderer::of(call).milestone(repository, milestone)))
}

/// Issues show their milestone, so their validators must change.
fn touch_issues(call: &mut Call<'_>, milestone: u64) -> Result<(), ApiError> {
    let now = call.now;
    let with = call
        .repository_mut()?
        .issues
        .values_mut()
        .filter(|issue| issue.milestone == Some(milestone));
    with.for_each(|issue| issue.updated_at = now);
    Ok(())
}

fn delete_milestone(call: &mut Call<'_>) -> Outcome {
    let number = call.params.id("milestone_number")?;
    touch_issues(call, number)?;
    let repository = call.repository_mut()?;
    repository.milestones.remove(&number).ok_or(ApiError::NotFound)?;
    let with = repository.issues.values_mut().filter(|issue| issue.milestone == Some(number));
    with.for_each(|issue| issue.milestone = None);
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn labels_of_milestone(call: &mut Call<'_>) -> Outcome {
    let number = call.params.id("milestone_number")?;
    let repository = call.repository()?;
    repository.milestones.get(&number).ok_or(ApiError::NotFound)?;
    let has = |id: u64| {
        repository
            .issues
            .values()
            .any(|issue| issue.milestone == Some(number) && issue.labels.contains(&id))
    };
    let labels = repository.labels.values().filter(|label| has(label.id)).collect();
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, labels, |label| renderer.label(repository, label)))
}

fn change_issue(
    call: &mut Call<'_>,
    change: impl FnOnce(&mut crate::emulator::world::Issue),
) -> Result<Value, ApiError> {
    let (now, number) = (call.now, call.params.id("number")?);
    let issue = call.repository_mut()?.issues.get_mut(&number).ok_or(ApiError::NotFound)?;
    change(issue);
    issue.updated_at = now;
    let repository = call.repository()?;
    Ok(Renderer::of(call).issue(repository, issue::named(call, repository)?))
}

fn remove_labels(call: &mut Call<'_>) -> Outcome {
    change_issue(call, |issue| issue.labels.clear())?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

/// Returns the users in the body. The running service ignores those who cannot be assigned.
fn assignees(call: &Call<'_>) -> Result<Vec<u64>, ApiError> {
    issue::named(call, call.repository()?)?;
    let mut fields = Fields::parse("Issue", call.body)?;
    let logins = fields.strings("assignees").unwrap_or_default();
    fields.check()?;
    Ok(logins
        .iter()
        .filter_map(|login| call.world.user_by_login(login))
        .map(|user| user.id)
        .collect())
}

fn assign(call: &mut Call<'_>) -> Outcome {
    let given = assignees(call)?;
    let value = change_issue(call, |issue| {
        for user in given {
            if !issue.assignees.contains(&user) && issue.assignees.len() < ASSIGNEES_MAX {
                issue.assignees.push(user);
            }
        }
    })?;
    Ok(Reply::json(StatusCode::CREATED, value))
}

fn unassign(call: &mut Call<'_>) -> Outcome {
    let given = assignees(call)?;
    Ok(Reply::ok(change_issue(call, |issue| issue.assignees.retain(|user| !given.contains(user)))?))
}

fn lock(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Issue", call.body)?;
    let reasons = ["off-topic", "too heated", "resolved", "spam"];
    if fields
        .nullable_string("lock_reason")
        .value()
        .is_some_and(|reason| !reasons.contains(&reason.as_str()))
    {
        fields
            .invalid("lock_reason", "lock_reason must be off-topic, too heated, resolved or spam");
    }
    fields.check()?;
    change_issue(call, |issue| issue.locked = true)?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn unlock(call: &mut Call<'_>) -> Outcome {
    change_issue(call, |issue| issue.locked = false)?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn latest_release(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let release = repository
        .releases
        .values()
        .max_by_key(|release| (release.created_at, release.id))
        .ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(Renderer::of(call).release(repository, release)))
}

fn change_release(call: &mut Call<'_>) -> Outcome {
    let id = call.params.id("release_id")?;
    if !call.repository()?.releases.contains_key(&id) {
        return Err(ApiError::NotFound);
    }
    let mut fields = Fields::parse("Release", call.body)?;
    let tag = fields.has("tag_name").then(|| fields.required_string("tag_name"));
    let (name, body) = (fields.nullable_string("name"), fields.nullable_string("body"));
    let taken = |tag: &String| {
        call.repository()
            .is_ok_and(|one| one.releases.values().any(|other| other.tag == *tag && other.id != id))
    };
    if tag.as_ref().is_some_and(taken) {
        fields.taken("tag_name");
    }
    fields.check()?;
    let now = call.now;
    let release = call.repository_mut()?.releases.get_mut(&id).ok_or(ApiError::NotFound)?;
    release.tag = tag.unwrap_or_else(|| std::mem::take(&mut release.tag));
    release.name = name.of(Some(std::mem::take(&mut release.name))).unwrap_or_default();
    release.body = body.of(release.body.take());
    release.updated_at = now;
    let repository = call.repository()?;
    let release = repository.releases.get(&id).ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(Renderer::of(call).release(repository, release)))
}

fn delete_release(call: &mut Call<'_>) -> Outcome {
    let id = call.params.id("release_id")?;
    call.repository_mut()?.releases.remove(&id).ok_or(ApiError::NotFound)?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn change_asset(call: &mut Call<'_>) -> Outcome {
    let id = call.params.id("asset_id")?;
    let has = |repository: &crate::emulator::world::Repository| {
        repository.releases.values().any(|one| one.assets.contains_key(&id))
    };
    if !has(call.repository()?) {
        return Err(ApiError::NotFound);
    }
    let mut fields = Fields::parse("ReleaseAsset", call.body)?;
    let name = fields.has("name").then(|| fields.required_string("name"));
    let label = fields.nullable_string("label");
    fields.check()?;
    let now = call.now;
    let asset = call
        .repository_mut()?
        .releases
        .values_mut()
        .find_map(|release| release.assets.get_mut(&id))
        .ok_or(ApiError::NotFound)?;
    asset.name = name.unwrap_or_else(|| std::mem::take(&mut asset.name));
    asset.label = label.of(asset.label.take());
    asset.updated_at = now;
    let repository = call.repository()?;
    let found =
        repository.releases.values().find_map(|release| Some((release, release.assets.get(&id)?)));
    let (release, asset) = found.ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(Renderer::of(call).asset(repository, release, asset)))
}
