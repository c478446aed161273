//! Labels of a repository, and of an issue.

use serde_json::{Value, json};

use super::issue::{self, CHANGE, READ};
use crate::emulator::events::issues::{self as issue_events, Before};
use crate::emulator::events::webhooks::{self, WebhookEvent};
use crate::emulator::http::{ApiError, Code, Fields, Reply};
use crate::emulator::render::extend;
use crate::emulator::routing::{Call, Outcome, Route};
use crate::emulator::world::{Issue, Label, Repository};

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
    Route::delete("/repos/{owner}/{repo}/issues/{number}/labels", CHANGE, remove_all_from_issue),
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
    let label = render(call, id)?;
    webhooks::publish(call, WebhookEvent::new("label", "created"), |_| json!({ "label": label }));
    Ok(id)
}

fn render(call: &Call<'_>, id: u64) -> Result<Value, ApiError> {
    let repository = call.repository()?;
    let label = repository.labels.get(&id).ok_or(ApiError::NotFound)?;
    Ok(call.renderer().label(repository, label))
}

pub fn of_issue<'r>(
    repository: &'r Repository,
    issue: &'r Issue,
) -> impl Iterator<Item = &'r Label> {
    issue.labels.iter().filter_map(|id| repository.labels.get(id))
}

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    call.page(repository.labels.values(), |renderer, label| renderer.label(repository, label))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let label = named(call, repository)?;
    Ok(Reply::ok(call.renderer().label(repository, label)))
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
    Ok(Reply::created_at_url(render(call, id)?))
}

fn patch(call: &mut Call<'_>) -> Outcome {
    let id = named(call, call.repository()?)?.id;
    let mut fields = Fields::parse("Label", call.body)?;
    let name = fields.string("new_name").filter(|name| !name.is_empty());
    let color = color(&mut fields);
    let description = fields.nullable_string("description");
    let taken = name.as_ref().and_then(|name| by_name(call.repository().ok()?, name));
    if taken.is_some_and(|taken| taken.id != id) {
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
    let label = render(call, id)?;
    let objects = json!({ "label": label, "changes": changes });
    webhooks::publish(call, WebhookEvent::new("label", "edited"), |_| objects);
    Ok(Reply::ok(label))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let id = named(call, call.repository()?)?.id;
    touch_issues_with(call, id)?;
    let label = render(call, id)?;
    let repository = call.repository_mut()?;
    repository.labels.remove(&id);
    repository.issues.values_mut().for_each(|issue| issue.labels.retain(|label| *label != id));
    webhooks::publish(call, WebhookEvent::new("label", "deleted"), |_| json!({ "label": label }));
    Ok(Reply::no_content())
}

/// Issues show their labels, so their validators must change.
fn touch_issues_with(call: &mut Call<'_>, label: u64) -> Result<(), ApiError> {
    issue::touch(call, |issue| issue.labels.contains(&label))
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
    let labels = of_issue(repository, issue::named(call, repository)?);
    call.page(labels, |renderer, label| renderer.label(repository, label))
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
    ApiError::not_found_unless(issue::named(call, repository)?.labels.contains(&id))?;
    change_labels_of_issue(call, |labels| labels.retain(|label| *label != id))
}

/// Reads labels as `{"labels": […]}` or as a bare array.
fn given_labels(call: &mut Call<'_>) -> Result<Vec<u64>, ApiError> {
    issue::named(call, call.repository()?)?;
    let mut fields = Fields::parse_list("Issue", "labels", call.body)?;
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
    issue_events::publish_changes(call, &before)?;
    let repository = call.repository()?;
    let labels = of_issue(repository, issue::named(call, repository)?);
    Ok(Reply::ok(labels.map(|label| call.renderer().label(repository, label)).collect()))
}

fn remove_all_from_issue(call: &mut Call<'_>) -> Outcome {
    change_labels_of_issue(call, Vec::clear)?;
    Ok(Reply::no_content())
}
