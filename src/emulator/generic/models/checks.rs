//! Check runs and their suites. A suite follows its runs; the last one to complete completes it.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Place, collection, number, raise, text};
use crate::emulator::events::changes::{Change, WebhookEvent};
use crate::emulator::generic::address::Address;
use crate::emulator::generic::bodies::{self, Members};
use crate::emulator::generic::seeds;
use crate::emulator::http::{ApiError, Fields, Reply, iso};
use crate::emulator::routing::{Call, Outcome};
use crate::emulator::world::StoredItem;

const RUNS: &str = "check-runs";
const SUITES: &str = "check-suites";
const STATUSES: [&str; 6] =
    ["completed", "in_progress", "pending", "queued", "requested", "waiting"];
/// From the best to the worst: a suite has the worst of its runs.
const CONCLUSIONS: [&str; 8] = [
    "success",
    "skipped",
    "neutral",
    "stale",
    "action_required",
    "cancelled",
    "timed_out",
    "failure",
];
/// The members of a run that its requests change by their own rules, or not at all.
const MODELLED: [&str; 13] = [
    "app",
    "check_suite",
    "check_suite_id",
    "completed_at",
    "conclusion",
    "details_url",
    "external_id",
    "head_sha",
    "name",
    "output",
    "pull_requests",
    "started_at",
    "status",
];
const ACTIONS_MAX: usize = 3;

fn known<const N: usize>(names: [&'static str; N], name: &str) -> Option<&'static str> {
    names.into_iter().find(|known| *known == name)
}

/// Resolves a commit by its id or a branch.
fn head_sha(call: &Call<'_>, fields: &mut Fields) -> Result<String, ApiError> {
    let given = fields.required_string("head_sha");
    let history = call.history()?;
    let commit = history.named(&given);
    if commit.is_none() && !given.is_empty() {
        fields.invalid("head_sha", "head_sha is no commit of the repository");
    }
    Ok(commit.map(|commit| commit.sha.clone()).unwrap_or_default())
}

/// Reads the fields that both a new and a changed run have.
fn read(fields: &mut Fields, is_completed: bool, now: &str) -> Value {
    let message = format!("status must be {}", STATUSES.join(", "));
    let status = fields.choice("status", |name| known(STATUSES, name), &message);
    let message = format!("conclusion must be {}", CONCLUSIONS.join(", "));
    let given = fields.value("conclusion").is_some_and(|value| !value.is_null());
    let conclusion = if given {
        fields.choice("conclusion", |name| known(CONCLUSIONS, name), &message)
    } else {
        None
    };
    if status == Some("completed") && !given && !is_completed {
        fields.missing("conclusion");
    }
    let mut members = json!({});
    let mut set = |name: &str, value: Value| members[name] = value;
    // A conclusion completes the run.
    match (conclusion, status) {
        (Some(conclusion), _) => {
            set("status", json!("completed"));
            set("conclusion", json!(conclusion));
            set("completed_at", json!(now));
        }
        (None, Some(status)) => set("status", json!(status)),
        (None, None) => {}
    }
    for name in ["started_at", "completed_at", "details_url", "external_id"] {
        if let Some(text) = fields.nullable_string(name).value() {
            set(name, json!(text));
        }
    }
    if let Some(mut output) = fields.object("output") {
        let (title, summary) = (output.required_string("title"), output.required_string("summary"));
        let text = output.nullable_string("text").value();
        let annotations = output.objects("annotations").map_or(0, |found| found.len());
        fields.absorb(output, "output");
        set(
            "output",
            json!({ "title": title, "summary": summary, "text": text, "annotations_count": annotations }),
        );
    }
    if fields.objects("actions").is_some_and(|actions| actions.len() > ACTIONS_MAX) {
        fields.invalid("actions", "actions must be 3 at most");
    }
    members
}

/// The app that a token belongs to; checks of other tokens have none.
fn app(call: &Call<'_>) -> Value {
    let id = call.caller.token().and_then(|token| token.app);
    id.map_or(
        Value::Null,
        |id| json!({ "id": id, "slug": format!("app-{id}"), "name": format!("app-{id}") }),
    )
}

pub fn create_run(call: &mut Call<'_>, _: &Address) -> Outcome {
    let now = iso(call.now);
    let mut fields = Fields::parse("CheckRun", call.body)?;
    let name = fields.required_string("name");
    let sha = head_sha(call, &mut fields)?;
    let given = read(&mut fields, false, &now);
    fields.check()?;
    let app = app(call);
    let suite = suite_of(call, &sha, &app)?;
    // Other members are stored as sent.
    let mut stored = bodies::kept(bodies::object(call)?);
    stored.extend(seeds::object(json!({
        "name": name, "head_sha": sha, "status": "queued", "conclusion": null, "started_at": now,
        "completed_at": null, "details_url": null, "external_id": "", "pull_requests": [], "app": app,
        "output": { "title": null, "summary": null, "text": null, "annotations_count": 0 },
        "check_suite_id": suite.id, "check_suite": { "id": suite.id },
    })));
    stored.extend(seeds::object(given));
    let place = Place::of(call, RUNS);
    let run = place.add(call, stored)?;
    publish_run(call, &run, "created");
    if text(&run, "status") == "completed" {
        publish_run(call, &run, "completed");
    }
    follow(call, suite.id)?;
    let value = place.render(call.world, &run);
    let location = value["url"].as_str().unwrap_or("").to_owned();
    Ok(Reply::created(value, &location))
}

pub fn change_run(call: &mut Call<'_>, address: &Address) -> Outcome {
    let (place, now) = (Place::of(call, RUNS), iso(call.now));
    let run = place.get(call, address.value("check_run_id").unwrap_or(""))?;
    // Other members are stored as sent.
    let mut others = bodies::kept(bodies::object(call)?);
    others.retain(|name, _| !MODELLED.contains(&name.as_str()));
    let was_completed = text(&run, "status") == "completed";
    let mut fields = Fields::parse("CheckRun", call.body)?;
    let name = fields.has("name").then(|| fields.required_string("name"));
    let mut changes = read(&mut fields, was_completed, &now);
    fields.check()?;
    if let Some(name) = name {
        changes["name"] = json!(name);
    }
    others.extend(seeds::object(changes));
    let run = place.change(call, &run, Value::Object(others))?;
    if text(&run, "status") == "completed" && !was_completed {
        publish_run(call, &run, "completed");
    }
    follow(call, number(&run, "check_suite_id").unwrap_or(0))?;
    Ok(Reply::ok(place.render(call.world, &run)))
}

pub fn rerequest_run(call: &mut Call<'_>, address: &Address) -> Outcome {
    let place = Place::of(call, RUNS);
    let run = place.get(call, address.value("check_run_id").unwrap_or(""))?;
    let changes = json!({ "status": "queued", "conclusion": null, "completed_at": null });
    let run = place.change(call, &run, changes)?;
    publish_run(call, &run, "rerequested");
    follow(call, number(&run, "check_suite_id").unwrap_or(0))?;
    Ok(Reply::json(StatusCode::CREATED, json!({})))
}

pub fn create_suite(call: &mut Call<'_>, _: &Address) -> Outcome {
    let mut fields = Fields::parse("CheckSuite", call.body)?;
    let sha = head_sha(call, &mut fields)?;
    fields.check()?;
    let app = app(call);
    let sent = bodies::kept(bodies::object(call)?);
    let suite = new_suite(call, &sha, &app, sent)?;
    publish_suite(call, &suite, "requested");
    let value = Place::of(call, SUITES).render(call.world, &suite);
    let location = value["url"].as_str().unwrap_or("").to_owned();
    Ok(Reply::created(value, &location))
}

pub fn rerequest_suite(call: &mut Call<'_>, address: &Address) -> Outcome {
    let place = Place::of(call, SUITES);
    let suite = place.get(call, address.value("check_suite_id").unwrap_or(""))?;
    let changes = json!({ "status": "queued", "conclusion": null });
    let suite = place.change(call, &suite, changes)?;
    publish_suite(call, &suite, "rerequested");
    Ok(Reply::json(StatusCode::CREATED, json!({})))
}

fn new_suite(
    call: &mut Call<'_>,
    sha: &str,
    app: &Value,
    mut sent: Members,
) -> Result<StoredItem, ApiError> {
    let history = call.history()?;
    let is_head = |branch: &&str| history.head(branch).is_some_and(|head| head.sha == sha);
    let branch = history.branches().find(is_head).map(str::to_owned);
    let parent = history.commit(sha).and_then(|commit| commit.parent.clone());
    // Other members are stored as sent.
    sent.extend(seeds::object(json!({
        "head_branch": branch, "head_sha": sha, "before": parent, "after": sha, "status": "queued",
        "conclusion": null, "pull_requests": [], "app": app, "latest_check_runs_count": 0,
    })));
    Place::of(call, SUITES).add(call, sent)
}

/// Returns the suite of a commit and app; the first check run creates it.
fn suite_of(call: &mut Call<'_>, sha: &str, app: &Value) -> Result<StoredItem, ApiError> {
    let known = seeds::items(call.world, &collection(call.repository, SUITES)).into_iter();
    let is_its =
        |suite: &StoredItem| text(suite, "head_sha") == sha && suite.fields.get("app") == Some(app);
    match known.map(|(_, suite)| suite).rfind(is_its) {
        Some(suite) => Ok(suite),
        None => new_suite(call, sha, app, Members::new()),
    }
}

/// Brings a suite up to date with its runs.
fn follow(call: &mut Call<'_>, id: u64) -> Result<(), ApiError> {
    let Ok(suite) = Place::of(call, SUITES).get(call, &id.to_string()) else { return Ok(()) };
    let all = seeds::items(call.world, &collection(call.repository, RUNS)).into_iter();
    let of_suite = |run: &StoredItem| number(run, "check_suite_id") == Some(id);
    let runs: Vec<StoredItem> = all.map(|(_, run)| run).filter(of_suite).collect();
    let is = |run: &StoredItem, status: &str| text(run, "status") == status;
    let status = if runs.iter().all(|run| is(run, "completed")) {
        "completed"
    } else if runs.iter().any(|run| is(run, "in_progress") || is(run, "completed")) {
        "in_progress"
    } else {
        "queued"
    };
    let rank =
        |run: &StoredItem| CONCLUSIONS.iter().position(|known| *known == text(run, "conclusion"));
    let worst = runs.iter().filter_map(rank).max().map(|index| CONCLUSIONS[index]);
    let conclusion = worst.filter(|_| status == "completed");
    let was_completed = is(&suite, "completed");
    let changes = json!({ "status": status, "conclusion": conclusion, "latest_check_runs_count": runs.len() });
    let suite = Place::of(call, SUITES).change(call, &suite, changes)?;
    if status == "completed" && !was_completed {
        publish_suite(call, &suite, "completed");
    }
    Ok(())
}

fn publish_run(call: &mut Call<'_>, run: &StoredItem, action: &str) {
    let mut value = Place::of(call, RUNS).render(call.world, run);
    let suite = number(run, "check_suite_id").unwrap_or(0).to_string();
    if let Ok(suite) = Place::of(call, SUITES).get(call, &suite) {
        value["check_suite"] = Place::of(call, SUITES).render(call.world, &suite);
    }
    let change = Change::of(WebhookEvent::new("check_run", action));
    raise(call, change, |_| json!({ "check_run": value }));
}

fn publish_suite(call: &mut Call<'_>, suite: &StoredItem, action: &str) {
    let value = Place::of(call, SUITES).render(call.world, suite);
    let change = Change::of(WebhookEvent::new("check_suite", action));
    raise(call, change, |_| json!({ "check_suite": value }));
}
