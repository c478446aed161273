//! Milestones of a repository.

use serde_json::json;

use super::issue::{self, CHANGE, READ};
use crate::emulator::events::webhooks::{self, WebhookEvent};
use crate::emulator::http::{ApiError, Fields, Reply};
use crate::emulator::routing::{Call, Outcome, Route};
use crate::emulator::world::{IssueState, Milestone, Repository};

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/milestones", READ, list),
    Route::post("/repos/{owner}/{repo}/milestones", CHANGE, create).content(),
    Route::get("/repos/{owner}/{repo}/milestones/{milestone_number}", READ, get),
    Route::patch("/repos/{owner}/{repo}/milestones/{milestone_number}", CHANGE, change),
    Route::delete("/repos/{owner}/{repo}/milestones/{milestone_number}", CHANGE, delete),
    Route::get("/repos/{owner}/{repo}/milestones/{milestone_number}/labels", READ, labels),
];

fn named<'a>(call: &Call<'_>, repository: &'a Repository) -> Result<&'a Milestone, ApiError> {
    repository.milestones.get(&call.params.id("milestone_number")?).ok_or(ApiError::NotFound)
}

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let mut milestones: Vec<&Milestone> = repository.milestones.values().collect();
    match call.query.get("state").unwrap_or("open") {
        "all" => {}
        name => {
            let message = "state must be open, closed or all";
            let invalid = || ApiError::invalid("Milestone", "state", message);
            let state = issue::state_named(name).ok_or_else(invalid)?;
            milestones.retain(|milestone| milestone.state == state);
        }
    }
    // No milestone has a due date, so that order is the one of their numbers.
    let by_rate =
        |name: &str| matches!(name, "due_on" | "completeness").then_some(name == "completeness");
    let message = "sort must be due_on or completeness";
    if call.choice("Milestone", "sort", by_rate, message)? == Some(true) {
        milestones.sort_by_key(|milestone| permille_closed(repository, milestone.number));
    }
    if call.descends("Milestone")? == Some(true) {
        milestones.reverse();
    }
    call.page(milestones, |renderer, milestone| renderer.milestone(repository, milestone))
}

fn permille_closed(repository: &Repository, milestone: u64) -> usize {
    let issues = repository.issues.values().filter(|issue| issue.milestone == Some(milestone));
    let (all, closed) = issues.fold((0, 0), |(all, closed), issue| {
        (all + 1, closed + usize::from(issue.state == IssueState::Closed))
    });
    closed * 1_000 / all.max(1)
}

fn get(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let milestone = named(call, repository)?;
    // Its counts change with the repository's issues.
    let changed_at = repository.updated_at.max(milestone.updated_at);
    Ok(Reply::ok(call.renderer().milestone(repository, milestone)).changed_at(changed_at))
}

fn create(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Milestone", call.body)?;
    let title = fields.required_string("title");
    let description = fields.nullable_string("description").value();
    let state = issue::state(&mut fields).unwrap_or(IssueState::Open);
    fields.check()?;
    ApiError::unless_spammed("Milestone", call.repository()?.milestones.len())?;
    let (now, creator, id) = (call.now, call.actor(), call.world.next_id());
    let repository = call.repository_mut()?;
    let number = repository.milestones.keys().next_back().copied().unwrap_or(0) + 1;
    let milestone = Milestone {
        id,
        number,
        title,
        description,
        state,
        creator,
        created_at: now,
        updated_at: now,
    };
    repository.milestones.insert(number, milestone);
    let repository = call.repository()?;
    let milestone = repository.milestones.get(&number).ok_or(ApiError::NotFound)?;
    let value = call.renderer().milestone(repository, milestone);
    let objects = json!({ "milestone": value });
    webhooks::publish(call, WebhookEvent::new("milestone", "created"), |_| objects);
    Ok(Reply::created_at_url(value))
}

fn change(call: &mut Call<'_>) -> Outcome {
    let number = named(call, call.repository()?)?.number;
    let mut fields = Fields::parse("Milestone", call.body)?;
    let title = fields.has("title").then(|| fields.required_string("title"));
    let description = fields.nullable_string("description");
    let state = issue::state(&mut fields);
    fields.check()?;
    let now = call.now;
    let milestone = call.repository_mut()?.milestones.get_mut(&number).ok_or(ApiError::NotFound)?;
    milestone.title = title.unwrap_or_else(|| std::mem::take(&mut milestone.title));
    milestone.description = description.of(milestone.description.take());
    milestone.state = state.unwrap_or(milestone.state);
    milestone.updated_at = now;
    touch_issues(call, number)?;
    let repository = call.repository()?;
    Ok(Reply::ok(call.renderer().milestone(repository, named(call, repository)?)))
}

/// Issues show their milestone, so their validators must change.
fn touch_issues(call: &mut Call<'_>, milestone: u64) -> Result<(), ApiError> {
    issue::touch(call, |issue| issue.milestone == Some(milestone))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let number = named(call, call.repository()?)?.number;
    touch_issues(call, number)?;
    let repository = call.repository_mut()?;
    repository.milestones.remove(&number);
    let with = repository.issues.values_mut().filter(|issue| issue.milestone == Some(number));
    with.for_each(|issue| issue.milestone = None);
    Ok(Reply::no_content())
}

fn labels(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let number = named(call, repository)?.number;
    let has = |id: u64| {
        let mut issues = repository.issues.values();
        issues.any(|issue| issue.milestone == Some(number) && issue.labels.contains(&id))
    };
    let labels = repository.labels.values().filter(|label| has(label.id));
    call.page(labels, |renderer, label| renderer.label(repository, label))
}
