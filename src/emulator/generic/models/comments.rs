//! Comments on the changes of a pull request, and on commits.

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{
    Place, collection, head_of, must_be_author_or_push, number, pull_of_path, raise, text, touch,
    with_pull,
};
use crate::emulator::events::changes::{Change, WebhookEvent};
use crate::emulator::events::notifications::Notice;
use crate::emulator::generic::address::Address;
use crate::emulator::generic::seeds;
use crate::emulator::http::path::decode_segment;
use crate::emulator::http::{ApiError, Fields, Reply, SITE};
use crate::emulator::render::Renderer;
use crate::emulator::routing::{Call, Outcome};
use crate::emulator::world::notifications::thread::{CommentKey, commit_key};
use crate::emulator::world::{StoredItem, Topic};

const RESOURCE: &str = "PullRequestReviewComment";
const ON_PULLS: &str = "pulls/comments";
const ON_COMMITS: &str = "comments";

/// A new comment on a pull request.
#[derive(Debug)]
pub struct Draft {
    body: String,
    path: String,
    /// The members that tell the place in the file.
    placed: Map<String, Value>,
    in_reply_to: Option<u64>,
}

impl Draft {
    /// Reads the body of a request, or one of the comments of a new review.
    pub fn read(fields: &mut Fields) -> Self {
        let body = fields.required_string("body");
        let in_reply_to = fields.nullable_integer("in_reply_to").value();
        let mut placed = Map::new();
        for name in ["line", "original_line", "position", "start_line"] {
            if let Some(number) = fields.nullable_integer(name).value() {
                placed.insert(name.to_owned(), json!(number));
            }
        }
        for name in ["side", "start_side"] {
            let side = |side: &str| matches!(side, "LEFT" | "RIGHT").then(|| side.to_owned());
            if let Some(side) = fields.choice(name, side, &format!("{name} must be LEFT or RIGHT"))
            {
                placed.insert(name.to_owned(), json!(side));
            }
        }
        for name in ["commit_id", "diff_hunk", "subject_type"] {
            if let Some(text) = fields.nullable_string(name).value() {
                placed.insert(name.to_owned(), json!(text));
            }
        }
        // A reply is where its first comment is.
        let path = match in_reply_to {
            Some(_) => fields.string("path").unwrap_or_default(),
            None => fields.required_string("path"),
        };
        Self { body, path, placed, in_reply_to }
    }
}

pub fn create_on_pull(call: &mut Call<'_>, address: &Address) -> Outcome {
    let (number, _) = pull_of_path(call, address)?;
    let mut fields = Fields::parse(RESOURCE, call.body)?;
    let draft = Draft::read(&mut fields);
    let first = draft.in_reply_to.map(|id| Place::of(call, ON_PULLS).get(call, &id.to_string()));
    if first.is_some_and(|first| first.is_err()) {
        fields.invalid("in_reply_to", "in_reply_to is no comment of the pull request");
    }
    fields.check()?;
    created(call, number, draft)
}

pub fn reply(call: &mut Call<'_>, address: &Address) -> Outcome {
    let (pull, _) = pull_of_path(call, address)?;
    let id = address.value("comment_id").unwrap_or("");
    let first = Place::of(call, ON_PULLS).get(call, id)?;
    ApiError::not_found_unless(number(&first, "pull_number") == Some(pull))?;
    let mut fields = Fields::parse(RESOURCE, call.body)?;
    let body = fields.required_string("body");
    fields.check()?;
    let (path, in_reply_to) = (text(&first, "path").to_owned(), Some(first.id));
    created(call, pull, Draft { body, path, placed: Map::new(), in_reply_to })
}

fn created(call: &mut Call<'_>, number: u64, draft: Draft) -> Outcome {
    let comment = store(call, number, draft, None)?;
    touch(call, number);
    let body = text(&comment, "body").to_owned();
    let (topic, key) = (Topic::Numbered(number), Some(CommentKey::Review(comment.id)));
    let notice = Notice::Comment { topic, text: &body, comment: key };
    publish(call, &comment, "created", notice, json!({}));
    let value = Place::of(call, ON_PULLS).render(call.world, &comment);
    let location = value["url"].as_str().unwrap_or("").to_owned();
    Ok(Reply::created(value, &location))
}

/// Stores a comment without an event.
pub fn store(
    call: &mut Call<'_>,
    number: u64,
    draft: Draft,
    review: Option<u64>,
) -> Result<StoredItem, ApiError> {
    let Draft { body, path, placed, in_reply_to } = draft;
    let head = head_of(call, number)?;
    let repository = call.repository()?;
    let page = format!("{SITE}/{}/pull/{number}", call.world.full_name(repository));
    let pull_url = format!("{}/pulls/{number}", call.renderer().repository_url(repository));
    let mut fields = seeds::object(json!({
        "body": body, "path": path, "pull_number": number, "pull_request_url": pull_url,
        "html_url": page, "commit_id": head, "diff_hunk": "", "position": null, "line": null,
        "pull_request_review_id": review, "author_association": "MEMBER",
        "user": Renderer::of(call).user_summary(call.actor()),
    }));
    fields.extend(placed);
    let original = fields.get("commit_id").cloned().unwrap_or(Value::Null);
    fields.insert("original_commit_id".to_owned(), original);
    if let Some(id) = in_reply_to {
        fields.insert("in_reply_to_id".to_owned(), json!(id));
        fields.insert("in_reply_to".to_owned(), json!(id));
    }
    Place::of(call, ON_PULLS).add(call, fields)
}

fn of_review(call: &Call<'_>, review: u64) -> Vec<StoredItem> {
    let all = seeds::items(call.world, &collection(call.repository, ON_PULLS)).into_iter();
    let of_review = |item: &StoredItem| number(item, "pull_request_review_id") == Some(review);
    all.map(|(_, item)| item).filter(of_review).collect()
}

pub fn has_any(call: &Call<'_>, review: u64) -> bool {
    !of_review(call, review).is_empty()
}

/// The review has notified those concerned, so its comments notify whom they mention.
pub fn publish_of_review(call: &mut Call<'_>, number: u64, review: u64) {
    for comment in of_review(call, review) {
        let body = text(&comment, "body").to_owned();
        let (topic, key) = (Topic::Numbered(number), Some(CommentKey::Review(comment.id)));
        let notice = Notice::Edit { topic, texts: ("", &body), comment: key };
        publish(call, &comment, "created", notice, json!({}));
    }
}

fn publish(
    call: &mut Call<'_>,
    comment: &StoredItem,
    action: &str,
    notice: Notice<'_>,
    more: Value,
) {
    let value = Place::of(call, ON_PULLS).render(call.world, comment);
    let (repository, pull) = (call.repository, number(comment, "pull_number").unwrap_or(0));
    let change =
        Change::of(WebhookEvent::new("pull_request_review_comment", action)).notifying(notice);
    raise(call, change, |renderer| {
        let mut objects = seeds::object(more);
        objects.insert("comment".to_owned(), value);
        with_pull(renderer, repository, pull, Value::Object(objects))
    });
}

pub fn edit_on_pull(call: &mut Call<'_>, address: &Address) -> Outcome {
    let place = Place::of(call, ON_PULLS);
    let comment = place.get(call, address.name())?;
    must_be_author_or_push(call, &comment)?;
    let mut fields = Fields::parse(RESOURCE, call.body)?;
    let body = fields.required_string("body");
    fields.check()?;
    let before = text(&comment, "body").to_owned();
    let comment = place.change(call, &comment, json!({ "body": body }))?;
    if before != body {
        let topic = Topic::Numbered(number(&comment, "pull_number").unwrap_or(0));
        let key = Some(CommentKey::Review(comment.id));
        let notice = Notice::Edit { topic, texts: (&before, &body), comment: key };
        let more = json!({ "changes": { "body": { "from": before } } });
        publish(call, &comment, "edited", notice, more);
    }
    Ok(Reply::ok(place.render(call.world, &comment)))
}

pub fn delete_on_pull(call: &mut Call<'_>, address: &Address) -> Outcome {
    let place = Place::of(call, ON_PULLS);
    let comment = place.get(call, address.name())?;
    must_be_author_or_push(call, &comment)?;
    call.world.collections.take(&place.collection(), address.name(), call.now);
    publish(call, &comment, "deleted", Notice::Nobody, json!({}));
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

pub fn create_on_commit(call: &mut Call<'_>, address: &Address) -> Outcome {
    let name = decode_segment(address.value("ref").unwrap_or(""));
    let sha = call.history()?.named(&name).ok_or(ApiError::NotFound)?.sha.clone();
    let mut fields = Fields::parse("CommitComment", call.body)?;
    let body = fields.required_string("body");
    let path = fields.nullable_string("path").value();
    let [line, position] = ["line", "position"].map(|name| fields.nullable_integer(name).value());
    fields.check()?;
    let page = format!("{SITE}/{}/commit/{sha}", call.world.full_name(call.repository()?));
    let stored = seeds::object(json!({
        "body": body, "path": path, "line": line, "position": position, "commit_id": sha,
        "html_url": page, "author_association": "MEMBER",
        "user": Renderer::of(call).user_summary(call.actor()),
    }));
    let place = Place::of(call, ON_COMMITS);
    let comment = place.add(call, stored)?;
    let value = place.render(call.world, &comment);
    let notice = match commit_key(&sha) {
        Some(key) => Notice::Comment {
            topic: Topic::Commit(key),
            text: &body,
            comment: Some(CommentKey::Commit(comment.id)),
        },
        None => Notice::Nobody,
    };
    let shown = value.clone();
    let change = Change::of(WebhookEvent::new("commit_comment", "created")).notifying(notice);
    raise(call, change, |_| json!({ "comment": shown }));
    let location = value["url"].as_str().unwrap_or("").to_owned();
    Ok(Reply::created(value, &location))
}

/// The service has no event for it, but notifies newly mentioned users.
pub fn edit_on_commit(call: &mut Call<'_>, address: &Address) -> Outcome {
    let place = Place::of(call, ON_COMMITS);
    let comment = place.get(call, address.name())?;
    must_be_author_or_push(call, &comment)?;
    let mut fields = Fields::parse("CommitComment", call.body)?;
    let body = fields.required_string("body");
    fields.check()?;
    let before = text(&comment, "body").to_owned();
    let comment = place.change(call, &comment, json!({ "body": body }))?;
    if let Some(key) = commit_key(text(&comment, "commit_id")) {
        let (topic, key) = (Topic::Commit(key), Some(CommentKey::Commit(comment.id)));
        let notice = Notice::Edit { topic, texts: (&before, &body), comment: key };
        raise(call, Change::without_event().notifying(notice), |_| json!({}));
    }
    Ok(Reply::ok(place.render(call.world, &comment)))
}
