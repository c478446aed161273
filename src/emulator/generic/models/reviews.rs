//! Reviews of pull requests: pending until submitted, then approved, commented or with requests for
//! changes; dismissed by a maintainer.

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::{
    Place, author, collection, comments, head_of, must_be_author_or_push, pull_of_path, raise,
    text, touch, with_pull,
};
use crate::emulator::events::changes::{Change, WebhookEvent};
use crate::emulator::events::notifications::Notice;
use crate::emulator::generic::address::Address;
use crate::emulator::generic::{bodies, seeds};
use crate::emulator::http::{ApiError, Code, Fields, Reply, SITE, iso};
use crate::emulator::render::Renderer;
use crate::emulator::routing::{Call, Outcome};
use crate::emulator::world::{Detail, StoredItem, Topic};

const RESOURCE: &str = "PullRequestReview";
/// The most comments of one review.
const COMMENTS_MAX: usize = 100;

fn state_of(event: &str) -> Option<&'static str> {
    match event {
        "APPROVE" => Some("APPROVED"),
        "COMMENT" => Some("COMMENTED"),
        "REQUEST_CHANGES" => Some("CHANGES_REQUESTED"),
        _ => None,
    }
}

/// Reads the state that `event` leads to; an empty event leaves a review pending.
fn state(fields: &mut Fields, has_text: bool, is_own: bool) -> Option<&'static str> {
    let given = fields.nullable_string("event").value().filter(|event| !event.is_empty())?;
    let state = state_of(&given);
    match state {
        None => fields.invalid("event", "event must be APPROVE, REQUEST_CHANGES or COMMENT"),
        Some("COMMENTED") => {}
        Some(_) if is_own => {
            let verb = if given == "APPROVE" { "approve" } else { "request changes on" };
            fields.invalid("event", format!("Can not {verb} your own pull request by event"));
        }
        Some(_) => {}
    }
    if state.is_some() && state != Some("APPROVED") && !has_text {
        fields.missing("body");
    }
    state
}

fn reviews(number: u64) -> String {
    format!("pulls/{number}/reviews")
}

pub fn create(call: &mut Call<'_>, address: &Address) -> Outcome {
    let (number, author) = pull_of_path(call, address)?;
    let mut fields = Fields::parse(RESOURCE, call.body)?;
    let body = fields.nullable_string("body").value().unwrap_or_default();
    let inline = fields.objects("comments").unwrap_or_default();
    let has_text = !body.trim().is_empty() || !inline.is_empty();
    let state = state(&mut fields, has_text, author == call.actor());
    let commit = match fields.nullable_string("commit_id").value() {
        Some(given) if call.history()?.commit(&given).is_none() => {
            fields.invalid("commit_id", "commit_id is not part of the pull request");
            None
        }
        Some(given) => Some(given),
        None => head_of(call, number)?,
    };
    if inline.len() > COMMENTS_MAX {
        fields.invalid("comments", "comments must be 100 at most");
    }
    let mut drafts = Vec::new();
    for mut inner in inline {
        drafts.push(comments::Draft::read(&mut inner));
        fields.absorb(inner, "comments");
    }
    fields.check()?;
    let repository = call.repository()?;
    let page = format!("{SITE}/{}/pull/{number}", call.world.full_name(repository));
    let pull_url = format!("{}/pulls/{number}", call.renderer().repository_url(repository));
    // Other members are stored as sent.
    let mut stored = bodies::kept(bodies::object(call)?);
    stored.remove("comments");
    stored.extend(seeds::object(json!({
        "body": body, "state": state.unwrap_or("PENDING"), "commit_id": commit, "html_url": page,
        "pull_request_url": pull_url, "author_association": "MEMBER",
        "_links": { "html": { "href": page }, "pull_request": { "href": pull_url } },
        "user": Renderer::of(call).user_summary(call.actor()),
        "submitted_at": state.map(|_| iso(call.now)),
    })));
    let own = reviews(number);
    let review = Place::of(call, &own).add(call, stored)?;
    for draft in drafts {
        comments::store(call, number, draft, Some(review.id))?;
    }
    if state.is_some() {
        publish_submitted(call, number, &review);
    }
    let value = Place::of(call, &own).render(call.world, &review);
    let location = value["url"].as_str().unwrap_or("").to_owned();
    Ok(Reply::created(value, &location))
}

/// Raises the events of a review and of its comments, and withdraws the request for it.
fn publish_submitted(call: &mut Call<'_>, number: u64, review: &StoredItem) {
    touch(call, number);
    let requests = collection(call.repository, &format!("pulls/{number}/requested_reviewers"));
    let reviewer = author(review).unwrap_or(0).to_string();
    call.world.collections.take(&requests, &reviewer, call.now);
    let body = text(review, "body").to_owned();
    let notice = Notice::Comment { topic: Topic::Numbered(number), text: &body, comment: None };
    publish(call, number, review, "submitted", Published { notice, ..Published::default() });
    comments::publish_of_review(call, number, review.id);
}

#[derive(Debug)]
struct Published<'a> {
    notice: Notice<'a>,
    entries: Vec<(&'static str, Detail)>,
    more: Value,
}

impl Default for Published<'_> {
    fn default() -> Self {
        Self { notice: Notice::Nobody, entries: Vec::new(), more: json!({}) }
    }
}

/// Payloads have the state in lower case.
fn publish(
    call: &mut Call<'_>,
    number: u64,
    review: &StoredItem,
    action: &str,
    published: Published<'_>,
) {
    let Published { notice, entries, more } = published;
    let own = reviews(number);
    let mut value = Place::of(call, &own).render(call.world, review);
    value["state"] = json!(text(review, "state").to_lowercase());
    let (repository, objects) = (call.repository, Map::from_iter([("review".to_owned(), value)]));
    let change = Change::of(WebhookEvent::new("pull_request_review", action))
        .noted(number, entries)
        .notifying(notice);
    raise(call, change, |renderer| {
        let mut objects = objects;
        objects.extend(seeds::object(more));
        with_pull(renderer, repository, number, Value::Object(objects))
    });
}

fn named(call: &Call<'_>, address: &Address) -> Result<(u64, StoredItem), ApiError> {
    let (number, _) = pull_of_path(call, address)?;
    let id = address.value("review_id").unwrap_or("");
    Ok((number, Place::of(call, &reviews(number)).get(call, id)?))
}

pub fn edit(call: &mut Call<'_>, address: &Address) -> Outcome {
    let (number, review) = named(call, address)?;
    must_be_author_or_push(call, &review)?;
    let mut fields = Fields::parse(RESOURCE, call.body)?;
    let body = fields.required_string("body");
    fields.check()?;
    let (own, before) = (reviews(number), text(&review, "body").to_owned());
    let review = Place::of(call, &own).change(call, &review, json!({ "body": body }))?;
    if text(&review, "state") != "PENDING" && before != body {
        let topic = Topic::Numbered(number);
        let notice = Notice::Edit { topic, texts: (&before, &body), comment: None };
        let more = json!({ "changes": { "body": { "from": before } } });
        publish(call, number, &review, "edited", Published { notice, more, entries: Vec::new() });
    }
    Ok(Reply::ok(Place::of(call, &own).render(call.world, &review)))
}

pub fn submit(call: &mut Call<'_>, address: &Address) -> Outcome {
    let (number, review) = named(call, address)?;
    let (_, author) = pull_of_path(call, address)?;
    let mut fields = Fields::parse(RESOURCE, call.body)?;
    let given = fields.nullable_string("body").value();
    let body = given.unwrap_or_else(|| text(&review, "body").to_owned());
    let has_text = !body.trim().is_empty() || comments::has_any(call, review.id);
    let state = state(&mut fields, has_text, author == call.actor());
    if !fields.has("event") {
        fields.missing("event");
    } else if text(&review, "state") != "PENDING" {
        fields.invalid("event", "event needs a pending review; this one was submitted");
    }
    fields.check()?;
    let state = state.ok_or_else(|| {
        ApiError::field(RESOURCE, "event", Code::MissingField, "event is required")
    })?;
    let own = reviews(number);
    let changes = json!({ "state": state, "body": body, "submitted_at": iso(call.now) });
    let review = Place::of(call, &own).change(call, &review, changes)?;
    publish_submitted(call, number, &review);
    Ok(Reply::ok(Place::of(call, &own).render(call.world, &review)))
}

pub fn dismiss(call: &mut Call<'_>, address: &Address) -> Outcome {
    let (number, review) = named(call, address)?;
    let mut fields = Fields::parse(RESOURCE, call.body)?;
    let message = fields.required_string("message");
    let state = text(&review, "state");
    if !matches!(state, "APPROVED" | "CHANGES_REQUESTED") {
        let state = state.to_lowercase();
        fields.invalid("state", format!("Can not dismiss a review with the state {state}"));
    }
    fields.check()?;
    let own = reviews(number);
    let review = Place::of(call, &own).change(call, &review, json!({ "state": "DISMISSED" }))?;
    touch(call, number);
    let entries = vec![("review_dismissed", Detail::Dismissal(review.id, message))];
    publish(call, number, &review, "dismissed", Published { entries, ..Published::default() });
    let value = Place::of(call, &own).render(call.world, &review);
    Ok(Reply::json(StatusCode::OK, value))
}
