//! Comments on issues and pull requests: list, get, create, change, delete.

use serde_json::json;

use super::issue::{self, READ, TAKE_PART};
use super::listing;
use crate::emulator::events::changes::{self, Change, EventContext};
use crate::emulator::events::notifications::Notice;
use crate::emulator::events::webhooks::{self, WebhookEvent};
use crate::emulator::http::{ApiError, Fields, Reply};
use crate::emulator::render::{comment_objects, extend};
use crate::emulator::routing::{Call, Outcome, Route};
use crate::emulator::world::notifications::thread::CommentKey;
use crate::emulator::world::{Comment, Repository, Topic};

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
    let mut comments = repository.comments.values().collect();
    listing::keep_comments(call, &mut comments)?;
    listing::sort_comments(call, &mut comments)?;
    call.page(comments, |renderer, comment| renderer.comment(repository, comment))
}

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let issue = issue::named(call, repository)?;
    let comments = issue.comments.iter().filter_map(|id| repository.comments.get(id));
    let mut comments = comments.collect();
    listing::keep_comments(call, &mut comments)?;
    call.page(comments, |renderer, comment| renderer.comment(repository, comment))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let comment = named(call, repository)?;
    Ok(Reply::ok(call.renderer().comment(repository, comment)).changed_at(comment.updated_at))
}

fn create(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let number = issue::named(call, repository)?.number;
    ApiError::unless_spammed("IssueComment", repository.comments.len())?;
    issue::must_be_open_to_comments(call, number)?;
    let mut fields = Fields::parse("IssueComment", call.body)?;
    let body = fields.required_string("body");
    fields.check()?;

    let author = call.actor();
    let id =
        changes::comment(call.world, call.urls, call.now, call.repository, number, author, &body)
            .ok_or(ApiError::NotFound)?;
    let repository = call.repository()?;
    let comment = repository.comments.get(&id).ok_or(ApiError::NotFound)?;
    Ok(Reply::created_at_url(call.renderer().comment(repository, comment)))
}

fn patch(call: &mut Call<'_>) -> Outcome {
    let id = may_change(call)?;
    let mut fields = Fields::parse("IssueComment", call.body)?;
    let body = fields.required_string("body");
    fields.check()?;

    let now = call.now;
    let repository = call.repository_mut()?;
    let comment = repository.comments.get_mut(&id).ok_or(ApiError::NotFound)?;
    let former_body = std::mem::replace(&mut comment.body, body.clone());
    comment.updated_at = now;
    let topic = Topic::Numbered(comment.issue);
    let mut objects = comment_objects(&call.renderer(), call.repository, id);
    extend(&mut objects, json!({ "changes": { "body": { "from": former_body } } }));
    let (texts, comment) = ((&*former_body, &*body), Some(CommentKey::Issue(id)));
    let change = Change::of(WebhookEvent::new("issue_comment", "edited")).notifying(Notice::Edit {
        topic,
        texts,
        comment,
    });
    changes::record(call.world, EventContext::of(call), change, |_| objects);
    let repository = call.repository()?;
    let comment = named(call, repository)?;
    Ok(Reply::ok(call.renderer().comment(repository, comment)))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let id = may_change(call)?;
    let now = call.now;
    let objects = comment_objects(&call.renderer(), call.repository, id);
    let repository = call.repository_mut()?;
    let comment = repository.comments.remove(&id).ok_or(ApiError::NotFound)?;
    if let Some(issue) = repository.issues.get_mut(&comment.issue) {
        issue.comments.retain(|kept| *kept != id);
        issue.updated_at = now;
    }
    webhooks::publish(call, WebhookEvent::new("issue_comment", "deleted"), |_| objects);
    Ok(Reply::no_content())
}

fn may_change(call: &Call<'_>) -> Result<u64, ApiError> {
    let comment = named(call, call.repository()?)?;
    issue::must_be_author_or_push(call, comment.author)?;
    Ok(comment.id)
}
