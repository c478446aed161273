//! Labels and milestones of a repository, and the labels of an issue.

use http::StatusCode;
use serde_json::{Value, json};

use super::issue::{self, READ};
use crate::emulator::accounts::Level;
use crate::emulator::events::webhooks::issues::Before;
use crate::emulator::events::webhooks::{self, WebhookEvent, issues as issue_events};
use crate::emulator::http::{ApiError, Code, Fields, Reply};
use crate::emulator::render::{Renderer, extend};
use crate::emulator::routing::{Call, Need, Outcome, Role, Route, USUAL, pagination};
use crate::emulator::world::{IssueState, Label, Milestone, Repository};

const CHANGE: Need = Need::repository("issues", Level::Write, Role::Push);
/// The colour of a label that is created because an issue names it.
const USUAL_COLOR: &str = "ededed";

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/labels", READ, list),
    Route::post("/repos/{owner}/{repo}/labels", CHANGE, create).content(),
    Route::get("/repos/{owner}/{repo}/labels/{name}", READ, get),
    Route::patch("/repos/{owner}/{repo}/labels/{name}", CHANGE, patch),
    Route::delete("/repos/{owner}/{repo}/labels/{name}", CHANGE, delete),
    Route::get("/repos/{owner}/{repo}/issues/{number}/labels", READ, list_of_issue),
    Route::post("/repos/{owner}/{repo}/issues/{number}/labels", CHANGE, add_to_issue),
    Route::put("/repos/{owner}/{repo}/issues/{number}/labels", CHANGE, set_on_issue),
    Route::delete("/repos/{owner}/{repo}/issues/{number}/labels/{name}", CHANGE, remove_from_issue),
    Route::get("/repos/{owner}/{repo}/milestones", READ, list_milestones),
    Route::post("/repos/{owner}/{repo}/milestones", CHANGE, create_milestone).content(),
    Route::get("/repos/{owner}/{repo}/milestones/{milestone_number}", READ, get_milestone),
];

fn by_name<'a>(repository: &'a Repository, name: &str) -> Option<&'a Label> {
    repository.labels.values().find(|label| label.name.eq_ignore_ascii_case(name))
}

fn named<'a>(call: &Call<'_>, repository: &'a Repository) -> Result<&'a Label, ApiError> {
    by_name(repository, call.params.get("name")).ok_or(ApiError::NotFound)
}

/// Returns the ids of labels by name and creates missing labels.
pub fn ids_of(call: &mut Call<'_>, names: &[String]) -> Result<Vec<u64>, ApiError> {
    let mut ids = Vec::new();
    for name in names {
        let known = by_name(call.repository()?, name).map(|label| label.id);
        let id = match known {
            Some(id) => id,
            None => add(call, name.clone(), USUAL_COLOR.to_owned(), None)?,
        };
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

fn add(
    call: &mut Call<'_>,
    name: String,
    color: String,
    description: Option<String>,
) -> Result<u64, ApiError> {
    ApiError::unless_spammed("Label", call.repository()?.labels.len())?;
    let id = call.world.next_id();
    call.repository_mut()?.labels.insert(id, Label { id, name, color, description });
    let place = call.repository;
    webhooks::publish(call, WebhookEvent::new("label", "created"), |renderer| {
        subject(renderer, place, id)
    });
    Ok(id)
}

fn subject(renderer: &Renderer<'_>, repository: u64, id: u64) -> Value {
    let repository = renderer.world.repositories.get(&repository);
    json!({ "label": repository.and_then(|repository| Some(renderer.label(repository, repository.labels.get(&id)?))) })
}

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, repository.labels.values().collect(), |label| {
        renderer.label(repository, label)
    }))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let label = named(call, repository)?;
    Ok(Reply::ok(Renderer::of(call).label(repository, label)))
}

fn create(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Label", call.body)?;
    let name = fields.required_string("name");
    let color = color(&mut fields).unwrap_or_else(|| USUAL_COLOR.to_owned());
    let description = fields.nullable_string("description").value();
    if by_name(call.repository()?, &name).is_some() {
        fields.taken("name");
    }
    fields.check()?;
    let id = add(call, name, color, description)?;
    let repository = call.repository()?;
    let label = repository.labels.get(&id).ok_or(ApiError::NotFound)?;
    let value = Renderer::of(call).label(repository, label);
    let location = value.get("url").and_then(Value::as_str).unwrap_or("").to_owned();
    Ok(Reply::created(value, &location))
}

fn patch(call: &mut Call<'_>) -> Outcome {
    let id = named(call, call.repository()?)?.id;
    let mut fields = Fields::parse("Label", call.body)?;
    let name = fields.string("new_name").filter(|name| !name.is_empty());
    let color = color(&mut fields);
    let description = fields.nullable_string("description");
    if let Some(name) = &name
        && by_name(call.repository()?, name).is_some_and(|taken| taken.id != id)
    {
        fields.reject("new_name", Code::AlreadyExists, "name is taken");
    }
    fields.check()?;
    let label = call.repository_mut()?.labels.get_mut(&id).ok_or(ApiError::NotFound)?;
    let mut changes = json!({});
    if let Some(name) = name.as_ref().filter(|name| **name != label.name) {
        extend(&mut changes, json!({ "name": { "from": label.name, "to": name } }));
    }
    label.name = name.unwrap_or_else(|| std::mem::take(&mut label.name));
    label.color = color.unwrap_or_else(|| std::mem::take(&mut label.color));
    label.description = description.of(label.description.take());
    touch_issues_with(call, id)?;
    let place = call.repository;
    webhooks::publish(call, WebhookEvent::new("label", "edited"), |renderer| {
        let mut objects = subject(renderer, place, id);
        extend(&mut objects, json!({ "changes": changes }));
        objects
    });
    let repository = call.repository()?;
    let label = repository.labels.get(&id).ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(Renderer::of(call).label(repository, label)))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let id = named(call, call.repository()?)?.id;
    touch_issues_with(call, id)?;
    let gone = subject(&Renderer::of(call), call.repository, id);
    let repository = call.repository_mut()?;
    repository.labels.remove(&id);
    repository.issues.values_mut().for_each(|issue| issue.labels.retain(|label| *label != id));
    webhooks::publish(call, WebhookEvent::new("label", "deleted"), |_| gone);
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

/// Issues show their labels, so their validators must change.
fn touch_issues_with(call: &mut Call<'_>, label: u64) -> Result<(), ApiError> {
    let now = call.now;
    let with_label =
        call.repository_mut()?.issues.values_mut().filter(|issue| issue.labels.contains(&label));
    with_label.for_each(|issue| issue.updated_at = now);
    Ok(())
}

/// Reads six hexadecimal digits, without the number sign.
fn color(fields: &mut Fields) -> Option<String> {
    let color = fields.string("color")?;
    if color.len() == 6 && color.chars().all(|c| c.is_ascii_hexdigit()) {
        return Some(color);
    }
    fields.invalid("color", "color must be six hexadecimal digits");
    None
}

fn list_of_issue(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let labels = issue::named(call, repository)?
        .labels
        .iter()
        .filter_map(|id| repository.labels.get(id))
        .collect();
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, labels, |label| renderer.label(repository, label)))
}

fn add_to_issue(call: &mut Call<'_>) -> Outcome {
    let given = given_labels(call)?;
    change_labels_of_issue(call, |labels| {
        let more: Vec<u64> = given.into_iter().filter(|id| !labels.contains(id)).collect();
        labels.extend(more);
    })
}

fn set_on_issue(call: &mut Call<'_>) -> Outcome {
    let given = given_labels(call)?;
    change_labels_of_issue(call, |labels| *labels = given)
}

fn remove_from_issue(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let id = named(call, repository)?.id;
    if !issue::named(call, repository)?.labels.contains(&id) {
        return Err(ApiError::NotFound);
    }
    change_labels_of_issue(call, |labels| labels.retain(|label| *label != id))
}

/// Reads labels as `{"labels": […]}` or as a bare array.
fn given_labels(call: &mut Call<'_>) -> Result<Vec<u64>, ApiError> {
    issue::named(call, call.repository()?)?;
    let wrapped = match serde_json::from_slice::<Value>(call.body) {
        Ok(Value::Array(items)) => {
            serde_json::to_vec(&serde_json::json!({ "labels": items })).unwrap_or_default()
        }
        _ => call.body.to_vec(),
    };
    let mut fields = Fields::parse("Issue", &wrapped)?;
    let names = fields.names("labels").unwrap_or_default();
    fields.check()?;
    ids_of(call, &names)
}

fn change_labels_of_issue(call: &mut Call<'_>, change: impl FnOnce(&mut Vec<u64>)) -> Outcome {
    let (now, number) = (call.now, call.params.id("number")?);
    let issue = call.repository_mut()?.issues.get_mut(&number).ok_or(ApiError::NotFound)?;
    let before = Before::of(issue);
    change(&mut issue.labels);
    issue.updated_at = now;
    issue_events::tell(call, &before)?;
    let repository = call.repository()?;
    let renderer = Renderer::of(call);
    let shown =
        issue::named(call, repository)?.labels.iter().filter_map(|id| repository.labels.get(id));
    Ok(Reply::ok(shown.map(|label| renderer.label(repository, label)).collect()))
}

fn list_milestones(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, repository.milestones.values().collect(), |milestone| {
        renderer.milestone(repository, milestone)
    }))
}

fn get_milestone(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let milestone = repository
        .milestones
        .get(&call.params.id("milestone_number")?)
        .ok_or(ApiError::NotFound)?;
    // Its counts change with the repository's issues.
    Ok(Reply::ok(Renderer::of(call).milestone(repository, milestone))
        .changed_at(repository.updated_at.max(milestone.updated_at)))
}

fn create_milestone(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Milestone", call.body)?;
    let title = fields.required_string("title");
    let description = fields.nullable_string("description").value();
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
        state: IssueState::Open,
        creator,
        created_at: now,
        updated_at: now,
    };
    repository.milestones.insert(number, milestone);
    let repository = call.repository()?;
    let milestone = repository.milestones.get(&number).ok_or(ApiError::NotFound)?;
    let value = Renderer::of(call).milestone(repository, milestone);
    let shown = json!({ "milestone": value });
    let location = format!("{}/milestones/{number}", Renderer::of(call).repository_url(repository));
    webhooks::publish(call, WebhookEvent::new("milestone", "created"), |_| shown);
    Ok(Reply::created(value, &location))
}
