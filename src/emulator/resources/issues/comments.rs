//! Comments on issues and pull requests: list, get, create, change, delete.

use http::StatusCode;
use serde_json::json;

use super::issue::{self, READ, TAKE_PART};
use crate::emulator::events::changes;
use crate::emulator::events::webhooks::{self, WebhookEvent};
use crate::emulator::http::{ApiError, Fields, Reply};
use crate::emulator::render::{Renderer, comment_objects, extend};
use crate::emulator::routing::{Call, Outcome, Route, USUAL, pagination};
use crate::emulator::world::{Comment, Repository};

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/issues/comments", READ, list_all),
    Route::get("/repos/{owner}/{repo}/issues/comments/{comment_id}", READ, get),
    Route::patch("/repos/{owner}/{repo}/issues/comments/{comment_id}", TAKE_PART, patch),
    Route::delete("/repos/{owner}/{repo}/issues/comments/{comment_id}", TAKE_PART, delete),
    Route::get("/repos/{owner}/{repo}/issues/{number}/comments", READ, list),
    Route::post("/repos/{owner}/{repo}/issues/{number}/comments", TAKE_PART, create).content(),
];

fn named<'a>(call: &Call<'_>, repository: &'a Repository) -> Result<&'a Comment, ApiError> {
    repository.comments.get(&call.params.id("comment_id")?).ok_or(ApiError::NotFound)
}

fn list_all(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, repository.comments.values().collect(), |comment| {
        renderer.comment(repository, comment)
    }))
}

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let issue = issue::named(call, repository)?;
    let comments = issue.comments.iter().filter_map(|id| repository.comments.get(id)).collect();
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, comments, |comment| renderer.comment(repository, comment)))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let comment = named(call, repository)?;
    Ok(Reply::ok(Renderer::of(call).comment(repository, comment)).changed_at(comment.updated_at))
}

fn create(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let number = issue::named(call, repository)?.number;
    ApiError::unless_spammed("IssueComment", repository.comments.len())?;
    let mut fields = Fields::parse("IssueComment", call.body)?;
    let body = fields.required_string("body");
    fields.check()?;

    let author = call.actor();
    let id =
        changes::comment(call.world, call.urls, call.now, call.repository, number, author, &body)
            .ok_or(ApiError::NotFound)?;
    let repository = call.repository()?;
    let comment = repository.comments.get(&id).ok_or(ApiError::NotFound)?;
    let location =
        format!("{}/issues/comments/{id}", Renderer::of(call).repository_url(repository));
    Ok(Reply::created(Renderer::of(call).comment(repository, comment), &location))
}

fn patch(call: &mut Call<'_>) -> Outcome {
    let id = may_change(call)?;
    let mut fields = Fields::parse("IssueComment", call.body)?;
    let body = fields.required_string("body");
    fields.check()?;

    let now = call.now;
    let repository = call.repository_mut()?;
    let comment = repository.comments.get_mut(&id).ok_or(ApiError::NotFound)?;
    let changes =
        json!({ "changes": { "body": { "from": std::mem::replace(&mut comment.body, body) } } });
    comment.updated_at = now;
    let place = call.repository;
    webhooks::publish(call, WebhookEvent::new("issue_comment", "edited"), |renderer| {
        let mut objects = comment_objects(renderer, place, id);
        extend(&mut objects, changes);
        objects
    });
    let repository = call.repository()?;
    let comment = named(call, repository)?;
    Ok(Reply::ok(Renderer::of(call).comment(repository, comment)))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let id = may_change(call)?;
    let now = call.now;
    let gone = comment_objects(&Renderer::of(call), call.repository, id);
    let repository = call.repository_mut()?;
    let comment = repository.comments.remove(&id).ok_or(ApiError::NotFound)?;
    if let Some(issue) = repository.issues.get_mut(&comment.issue) {
        issue.comments.retain(|kept| *kept != id);
        issue.updated_at = now;
    }
    webhooks::publish(call, WebhookEvent::new("issue_comment", "deleted"), |_| gone);
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn may_change(call: &Call<'_>) -> Result<u64, ApiError> {
    let comment = named(call, call.repository()?)?;
    if call.may_push()? || comment.author == call.actor() {
        return Ok(comment.id);
    }
    Err(ApiError::Forbidden("Must have admin rights to Repository."))
}
