//! The statuses and checks of a commit, and the protection of a branch.

use serde_json::Value;

use super::object::{Field, FieldValue, Node, Result};
use super::record::Record;
use super::{connection, ids};
use crate::emulator::generic;
use crate::emulator::http::iso;
use crate::emulator::resources::code::protection;
use crate::emulator::resources::code::rollup::{self, Context};
use crate::emulator::resources::issues::review_state::required_contexts;
use crate::emulator::world::{Repository, StoredItem, World};

fn text<'t>(item: &'t StoredItem, name: &str) -> Option<&'t str> {
    item.fields.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
}

/// `None` for a commit without any.
pub fn of_commit(world: &World, repository: &Repository, sha: &str) -> Option<Node> {
    let contexts = rollup::of(world, repository.id, sha);
    let state = rollup::state(&contexts)?;
    let contexts =
        (1..).zip(&contexts).map(|(key, one)| Some(context(world, repository, one, key)));
    let fields =
        [("state", FieldValue::text(state)), ("contexts", FieldValue::Many(contexts.collect()))];
    Some(Record::node("StatusCheckRollup", 0, fields))
}

fn context(world: &World, repository: &Repository, context: &Context, key: u64) -> Node {
    let maybe = FieldValue::maybe_text;
    match context {
        Context::Status(status) => {
            let fields = [
                ("context", FieldValue::text(context.name())),
                ("state", FieldValue::text(context.state())),
                ("targetUrl", maybe(text(status, "target_url"))),
                ("description", maybe(text(status, "description"))),
                ("createdAt", FieldValue::text(&iso(status.created_at))),
            ];
            Record::node("StatusContext", key, fields)
        }
        Context::Check(check) => {
            let upper = |name: &str| text(check, name).map(str::to_uppercase);
            let status = upper("status").unwrap_or_else(|| "QUEUED".to_owned());
            let fields = [
                ("name", FieldValue::text(context.name())),
                ("status", FieldValue::text(&status)),
                ("conclusion", maybe(upper("conclusion").as_deref())),
                ("startedAt", maybe(text(check, "started_at"))),
                ("completedAt", maybe(text(check, "completed_at"))),
                ("detailsUrl", maybe(text(check, "details_url"))),
                ("checkSuite", FieldValue::One(suite(world, repository, check))),
            ];
            Record::node("CheckRun", key, fields)
        }
    }
}

/// The suite of a check, with the workflow run that made it, if one did.
fn suite(world: &World, repository: &Repository, check: &StoredItem) -> Node {
    let id = check.fields.get("check_suite_id");
    let runs = generic::items(world, &format!("repository/{}/actions/runs", repository.id));
    let is_its = |run: &StoredItem| id.is_some() && run.fields.get("check_suite_id") == id;
    let run = runs.into_iter().find(|(_, run)| is_its(run)).map(|(_, run)| {
        let name = FieldValue::text(text(&run, "name").unwrap_or(""));
        let fields = [
            ("event", FieldValue::text(text(&run, "event").unwrap_or(""))),
            ("workflow", FieldValue::One(Record::node("Workflow", 0, [("name", name)]))),
        ];
        Record::node("WorkflowRun", 0, fields)
    });
    Record::node("CheckSuite", 0, [("workflowRun", FieldValue::maybe(run))])
}

/// The list of a rollup's statuses and checks.
pub fn contexts(field: Field<'_, '_>, rollup: &Record) -> Result {
    let FieldValue::Many(contexts) = rollup.field("contexts") else {
        return Ok(FieldValue::null());
    };
    connection::of(field, connection::CONTEXTS, contexts.into_iter().flatten().collect())
}

/// True if the protection of a pull request's target requires this status or check.
pub fn is_required(field: Field<'_, '_>, context: &Record) -> Result {
    let name = if context.kind == "CheckRun" { "name" } else { "context" };
    let FieldValue::Value(name) = context.field(name) else { return Ok(FieldValue::value(false)) };
    let Some(id) = field.arguments.text("pullRequestId") else {
        return Ok(FieldValue::value(false));
    };
    let world = &field.call.world;
    let pull = match ids::node(field.call, id)? {
        Node::Pull(repository, number) => world
            .repositories
            .get(&repository)
            .and_then(|found| Some((found, found.issues.get(&number)?))),
        _ => None,
    };
    let required = pull.map(|(repository, pull)| required_contexts(world, repository, pull));
    let required = required.unwrap_or_default();
    let is_required = required.iter().any(|one| Some(one.as_str()) == name.as_str());
    Ok(FieldValue::value(is_required))
}

/// The rule that protects a branch, if one does.
pub fn protection_rule(world: &World, repository: &Repository, branch: &str) -> Option<Node> {
    let rule = protection::stored(world, repository.id, branch)?;
    let part = |name: &str| rule.fields.get(name).filter(|part| part.is_object());
    let (reviews, checks) = (part("required_pull_request_reviews"), part("required_status_checks"));
    let count = reviews.and_then(|reviews| reviews["required_approving_review_count"].as_u64());
    let strict = checks.is_some_and(|checks| checks["strict"] == true);
    let fields = [
        ("pattern", FieldValue::text(branch)),
        ("requiredApprovingReviewCount", count.map_or_else(FieldValue::null, FieldValue::number)),
        ("requiresApprovingReviews", FieldValue::value(reviews.is_some())),
        ("requiresStatusChecks", FieldValue::value(checks.is_some())),
        ("requiresStrictStatusChecks", FieldValue::value(strict)),
    ];
    Some(Record::node("BranchProtectionRule", 0, fields))
}
