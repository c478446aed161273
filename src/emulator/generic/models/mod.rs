//! Writes of stored objects that raise events: reviews, comments, checks, deployments and workflow
//! runs. Each validates its body, stores the object and records the change.

mod checks;
mod comments;
mod deployments;
mod reviews;
pub mod runs;

use http::Method;
use serde_json::{Value, json};

use super::address::Address;
use super::bodies::Members;
use super::{Facts, seeds};
use crate::emulator::auth::access::path_of;
use crate::emulator::events::changes::{Change, EventContext, record};
use crate::emulator::events::issues::subject;
use crate::emulator::http::{ApiError, Urls, iso};
use crate::emulator::render::{Renderer, extend, extended, node_id};
use crate::emulator::routing::{Call, Outcome};
use crate::emulator::world::{StoredItem, World};

type Handler = fn(&mut Call<'_>, &Address) -> Outcome;

/// Method and template below `/repos/{owner}/{repo}`.
const WRITES: &[(Method, &str, Handler)] = &[
    (Method::POST, "/pulls/{pull_number}/reviews", reviews::create),
    (Method::PUT, "/pulls/{pull_number}/reviews/{review_id}", reviews::edit),
    (Method::PUT, "/pulls/{pull_number}/reviews/{review_id}/dismissals", reviews::dismiss),
    (Method::POST, "/pulls/{pull_number}/reviews/{review_id}/events", reviews::submit),
    (Method::POST, "/pulls/{pull_number}/comments", comments::create_on_pull),
    (Method::POST, "/pulls/{pull_number}/comments/{comment_id}/replies", comments::reply),
    (Method::PATCH, "/pulls/comments/{comment_id}", comments::edit_on_pull),
    (Method::DELETE, "/pulls/comments/{comment_id}", comments::delete_on_pull),
    (Method::POST, "/commits/{ref}/comments", comments::create_on_commit),
    (Method::PATCH, "/comments/{comment_id}", comments::edit_on_commit),
    (Method::POST, "/check-runs", checks::create_run),
    (Method::PATCH, "/check-runs/{check_run_id}", checks::change_run),
    (Method::POST, "/check-runs/{check_run_id}/rerequest", checks::rerequest_run),
    (Method::POST, "/check-suites", checks::create_suite),
    (Method::POST, "/check-suites/{check_suite_id}/rerequest", checks::rerequest_suite),
    (Method::POST, "/deployments", deployments::create),
    (Method::POST, "/deployments/{deployment_id}/statuses", deployments::create_status),
    (Method::POST, "/dispatches", runs::dispatch_repository),
    (Method::POST, "/actions/workflows/{workflow_id}/dispatches", runs::dispatch_workflow),
    (Method::POST, "/actions/runs/{run_id}/cancel", runs::cancel),
    (Method::POST, "/actions/runs/{run_id}/force-cancel", runs::cancel),
    (Method::POST, "/actions/runs/{run_id}/rerun", runs::rerun),
    (Method::POST, "/actions/runs/{run_id}/rerun-failed-jobs", runs::rerun),
];

pub fn of(facts: &Facts) -> Option<Handler> {
    let own = facts.template.strip_prefix("/repos/{owner}/{repo}")?;
    let mut writes = WRITES.iter();
    let (.., handler) =
        writes.find(|(method, of, _)| *method == facts.endpoint.method && *of == own)?;
    Some(*handler)
}

/// Where a stored object is: a collection of a repository, such as `check-runs`.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    urls: &'a Urls,
    repository: u64,
    own: &'a str,
}

impl<'a> Place<'a> {
    fn of(call: &Call<'a>, own: &'a str) -> Self {
        Self { urls: call.urls, repository: call.repository, own }
    }

    fn collection(&self) -> String {
        collection(self.repository, self.own)
    }

    fn render(&self, world: &World, item: &StoredItem) -> Value {
        let repository = world.repositories.get(&self.repository);
        let base = repository.map_or_else(String::new, |found| path_of(world, found));
        let own = json!({
            "id": item.id,
            "node_id": node_id("Thing", item.id),
            "url": format!("{}{base}/{}/{}", self.urls.api, self.own, item.id),
            "created_at": iso(item.created_at),
            "updated_at": iso(item.updated_at),
        });
        extended(Value::Object(seeds::shown(world, self.urls, item)), own)
    }

    /// Stores a new object.
    fn add(&self, call: &mut Call<'_>, fields: Members) -> Result<StoredItem, ApiError> {
        let (id, collection) = (call.world.next_id(), self.collection());
        seeds::settle(call.world, &collection)?;
        call.store(&collection, &id.to_string(), id, fields)
    }

    fn get(&self, call: &Call<'_>, id: &str) -> Result<StoredItem, ApiError> {
        seeds::get(call, &self.collection(), id).ok_or(ApiError::NotFound)
    }

    /// Sets these fields of an object that exists.
    fn change(
        &self,
        call: &mut Call<'_>,
        item: &StoredItem,
        changes: Value,
    ) -> Result<StoredItem, ApiError> {
        let mut fields = item.fields.clone();
        fields.extend(seeds::object(changes));
        seeds::put(call, &self.collection(), &item.id.to_string(), fields)
    }
}

fn collection(repository: u64, own: &str) -> String {
    format!("repository/{repository}/{own}")
}

/// Records a change in the repository of the call.
fn raise(call: &mut Call<'_>, change: Change<'_>, objects: impl FnOnce(&Renderer<'_>) -> Value) {
    let context = EventContext::of(call);
    record(call.world, context, change, objects);
}

/// The members of a payload beside the pull request's own.
fn with_pull(renderer: &Renderer<'_>, repository: u64, number: u64, more: Value) -> Value {
    let mut objects = subject(renderer, repository, number);
    extend(&mut objects, more);
    objects
}

fn text<'t>(item: &'t StoredItem, name: &str) -> &'t str {
    item.fields.get(name).and_then(Value::as_str).unwrap_or("")
}

fn number(item: &StoredItem, name: &str) -> Option<u64> {
    item.fields.get(name).and_then(Value::as_u64)
}

fn author(item: &StoredItem) -> Option<u64> {
    item.fields.get("user")?.get("id")?.as_u64()
}

/// Only the author and callers with push rights change a comment or review.
fn must_be_author_or_push(call: &Call<'_>, item: &StoredItem) -> Result<(), ApiError> {
    if call.may_push()? || author(item) == Some(call.actor()) {
        return Ok(());
    }
    Err(ApiError::Forbidden("Must have admin rights to Repository."))
}

/// The number and the author of the pull request in the path.
fn pull_of_path(call: &Call<'_>, address: &Address) -> Result<(u64, u64), ApiError> {
    let number = address.value("pull_number").and_then(|number| number.parse().ok());
    let number: u64 = number.ok_or(ApiError::NotFound)?;
    let pull = call.repository()?.issues.get(&number).ok_or(ApiError::NotFound)?;
    Ok((number, pull.author))
}

/// The newest commit of the source branch.
fn head_of(call: &Call<'_>, number: u64) -> Result<Option<String>, ApiError> {
    let history = call.history()?;
    let pull = call.repository()?.issues.get(&number).ok_or(ApiError::NotFound)?;
    Ok(call.world.pull_head(&history, pull).map(|head| head.sha))
}

/// A pull request shows its reviews and comments, so its validators must change.
fn touch(call: &mut Call<'_>, number: u64) {
    let now = call.now;
    let repository = call.world.repositories.get_mut(&call.repository);
    if let Some(pull) = repository.and_then(|found| found.issues.get_mut(&number)) {
        pull.updated_at = now;
    }
}
