//! Issue events and timelines.

use serde_json::{Value, json};

use super::issue::{self, READ};
use crate::clock::Timestamp;
use crate::emulator::http::{ApiError, Reply};
use crate::emulator::render::{Renderer, extend, extended};
use crate::emulator::routing::{Call, Outcome, Route, USUAL, pagination, polling};
use crate::emulator::world::storage::collections::Collection;
use crate::emulator::world::{Comment, Issue, IssueEvent, Repository, StoredItem};

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/issues/events", READ, of_repository),
    Route::get("/repos/{owner}/{repo}/issues/events/{event_id}", READ, get),
    Route::get("/repos/{owner}/{repo}/issues/{number}/events", READ, of_issue),
    Route::get("/repos/{owner}/{repo}/issues/{number}/timeline", READ, timeline),
];

/// The newest first, each with its issue.
fn of_repository(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let events: Vec<&IssueEvent> = repository.issue_events.iter().rev().collect();
    let changed_at = events.first().map_or(repository.created_at, |event| event.created_at);
    let renderer = call.renderer();
    let reply =
        pagination::page(call, USUAL, events, |event| with_issue(renderer, repository, event));
    Ok(polling::paced(call, reply.changed_at(changed_at)))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let (repository, id) = (call.repository()?, call.params.id("event_id")?);
    let event = repository.issue_events.iter().find(|event| event.id == id);
    let event = event.ok_or(ApiError::NotFound)?;
    let value = with_issue(call.renderer(), repository, event);
    Ok(Reply::ok(value))
}

fn with_issue(renderer: Renderer<'_>, repository: &Repository, event: &IssueEvent) -> Value {
    let mut value = renderer.issue_event(repository, event);
    let issue = repository.issues.get(&event.number);
    let issue = issue.map(|issue| renderer.issue(repository, issue));
    extend(&mut value, json!({ "issue": issue }));
    value
}

fn events_of<'r>(
    repository: &'r Repository,
    issue: &Issue,
) -> impl Iterator<Item = &'r IssueEvent> {
    let number = issue.number;
    repository.issue_events.iter().filter(move |event| event.number == number)
}

/// The oldest first.
fn of_issue(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let issue = issue::named(call, repository)?;
    let events: Vec<&IssueEvent> = events_of(repository, issue).collect();
    let changed_at = events.last().map_or(issue.created_at, |event| event.created_at);
    let renderer = call.renderer();
    let reply =
        pagination::page(call, USUAL, events, |event| renderer.issue_event(repository, event));
    Ok(polling::paced(call, reply.changed_at(changed_at)))
}

/// Events and comments, the oldest first.
fn timeline(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let issue = issue::named(call, repository)?;
    let renderer = call.renderer();
    let mut entries: Vec<(Timestamp, Entry<'_>)> = events_of(repository, issue)
        .map(|event| (event.created_at, Entry::Event(event)))
        .chain(issue.comments.iter().filter_map(|id| {
            let comment = repository.comments.get(id)?;
            Some((comment.created_at, Entry::Comment(comment)))
        }))
        .collect();
    let reviews = format!("repository/{}/pulls/{}/reviews", repository.id, issue.number);
    let reviews = call.world.collections.collection(&reviews);
    let reviews = reviews.map(Collection::in_order).unwrap_or_default().into_iter();
    let submitted = reviews.filter(|(_, review)| {
        review.fields.get("state").and_then(Value::as_str).is_some_and(|state| state != "PENDING")
    });
    entries.extend(submitted.map(|(_, review)| (review.created_at, Entry::Review(review))));
    entries.sort_by_key(|(at, _)| *at);
    let render = |(_, entry): (Timestamp, Entry<'_>)| match entry {
        Entry::Event(event) => renderer.issue_event(repository, event),
        Entry::Comment(comment) => renderer.commented(repository, comment),
        Entry::Review(review) => reviewed(review),
    };
    Ok(pagination::page(call, USUAL, entries, render))
}

enum Entry<'a> {
    Event(&'a IssueEvent),
    Comment(&'a Comment),
    Review(&'a StoredItem),
}

/// The state is in lower case here.
fn reviewed(review: &StoredItem) -> Value {
    let state = review.fields.get("state").and_then(Value::as_str).unwrap_or("").to_lowercase();
    let own = json!({ "id": review.id, "event": "reviewed", "state": state });
    extended(Value::Object(review.fields.clone()), own)
}
