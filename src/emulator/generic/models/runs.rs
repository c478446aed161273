//! Workflow runs: dispatched, queued, in progress and completed, each with a job, a check run and a
//! check suite. The emulator's clock moves them on; no step of a workflow is executed.
//!
//! The durations are the limits `workflows.queued` and `workflows.running`.

use http::StatusCode;
use serde_json::{Value, json};

use super::{Place, collection, number, text};
use crate::clock::Timestamp;
use crate::emulator::auth::access::path_of;
use crate::emulator::events::changes::{Change, EventContext, EventScope, WebhookEvent, record};
use crate::emulator::events::notifications::Notice;
use crate::emulator::generic::address::Address;
use crate::emulator::generic::seeds;
use crate::emulator::http::{ApiError, Fields, Reply, SITE, iso};
use crate::emulator::limits::Limits;
use crate::emulator::render::Renderer;
use crate::emulator::routing::{Call, Outcome};
use crate::emulator::world::storage::run_steps::{RunStep, StepKind};
use crate::emulator::world::{StoredItem, World};

const RUNS: &str = "actions/runs";
const JOBS: &str = "actions/jobs";
const WORKFLOWS: &str = "actions/workflows";
const CHECK_RUNS: &str = "check-runs";
const CHECK_SUITES: &str = "check-suites";
/// The running service's limits of a dispatch.
const INPUTS_MAX: usize = 25;
const PAYLOAD_MEMBERS_MAX: usize = 10;
const EVENT_TYPE_CHARS_MAX: usize = 100;

pub fn dispatch_workflow(call: &mut Call<'_>, address: &Address) -> Outcome {
    let id = address.value("workflow_id").unwrap_or("");
    let workflow = Place::of(call, WORKFLOWS).get(call, id)?;
    let mut fields = Fields::parse("Workflow", call.body)?;
    let name = fields.required_string("ref");
    let branch = name.strip_prefix("refs/heads/").unwrap_or(&name).to_owned();
    let history = call.history()?;
    let commit = history.named(&branch);
    if commit.is_none() && !name.is_empty() {
        fields.invalid("ref", format!("No ref found for: {name}"));
    }
    let sha = commit.map(|commit| commit.sha.clone()).unwrap_or_default();
    let inputs = fields.value("inputs").cloned().unwrap_or(Value::Null);
    if !inputs.is_null() && inputs.as_object().is_none_or(|inputs| inputs.len() > INPUTS_MAX) {
        fields.invalid("inputs", "inputs must be an object of 25 members at most");
    }
    if text(&workflow, "state") != "active" {
        let message = "Cannot trigger a 'workflow_dispatch' on a disabled workflow";
        fields.invalid("workflow_id", message);
    }
    unless_full(call, &mut fields);
    fields.check()?;
    let path = text(&workflow, "path").to_owned();
    let payload =
        json!({ "inputs": inputs, "ref": format!("refs/heads/{branch}"), "workflow": path });
    let event = WebhookEvent { name: "workflow_dispatch", action: None };
    record(call.world, EventContext::of(call), Change::of(event), |_| payload);
    start(call, &workflow, "workflow_dispatch", (&branch, &sha))?;
    Ok(Reply::no_content())
}

/// Starts a run of each active workflow on the default branch.
pub fn dispatch_repository(call: &mut Call<'_>, _: &Address) -> Outcome {
    let mut fields = Fields::parse("Repository", call.body)?;
    let event_type = fields.required_string("event_type");
    if event_type.chars().count() > EVENT_TYPE_CHARS_MAX {
        fields.invalid("event_type", "event_type must have 100 characters at most");
    }
    let payload = fields.value("client_payload").cloned().unwrap_or_else(|| json!({}));
    if payload.as_object().is_none_or(|payload| payload.len() > PAYLOAD_MEMBERS_MAX) {
        fields.invalid("client_payload", "client_payload must be an object of 10 members at most");
    }
    unless_full(call, &mut fields);
    fields.check()?;
    let repository = call.repository()?;
    let branch = repository.default_branch.clone();
    let sha = call.world.history(repository).tip(repository).map(|tip| tip.sha.clone());
    let shown = branch.clone();
    let event = WebhookEvent::new("repository_dispatch", &event_type);
    record(
        call.world,
        EventContext::of(call),
        Change::of(event),
        |_| json!({ "branch": shown, "client_payload": payload }),
    );
    let workflows = seeds::items(call.world, &collection(call.repository, WORKFLOWS));
    for (_, workflow) in workflows {
        if text(&workflow, "state") == "active" {
            let at = (branch.as_str(), sha.as_deref().unwrap_or(""));
            start(call, &workflow, "repository_dispatch", at)?;
        }
    }
    Ok(Reply::no_content())
}

fn unless_full(call: &Call<'_>, fields: &mut Fields) {
    if call.world.run_steps.is_full() {
        fields.invalid("base", "base: too many runs are under way");
    }
}

/// Adds a queued run with its job and checks.
fn start(
    call: &mut Call<'_>,
    workflow: &StoredItem,
    event: &str,
    (branch, sha): (&str, &str),
) -> Result<(), ApiError> {
    let number = seeds::items(call.world, &collection(call.repository, RUNS)).len() + 1;
    let (name, now) = (text(workflow, "name").to_owned(), iso(call.now));
    let actor = Renderer::of(call).user_summary(call.actor());
    let repository = call.repository()?;
    let page = format!("{SITE}/{}", call.world.full_name(repository));
    let base = format!("{}{}", call.urls.api, path_of(call.world, repository));
    let common =
        json!({ "head_branch": branch, "head_sha": sha, "status": "queued", "conclusion": null });
    let fields = |more: Value| {
        let mut fields = seeds::object(common.clone());
        fields.extend(seeds::object(more));
        fields
    };
    let app = json!({ "id": 0, "slug": "ci", "name": "CI" });
    let suite = fields(json!({ "app": app, "pull_requests": [], "latest_check_runs_count": 1 }));
    let suite = Place::of(call, CHECK_SUITES).add(call, suite)?.id;
    let check = fields(json!({
        "name": "build", "app": app, "pull_requests": [], "started_at": now, "completed_at": null,
        "check_suite_id": suite, "check_suite": { "id": suite }, "output": { "annotations_count": 0 },
    }));
    let check = Place::of(call, CHECK_RUNS).add(call, check)?.id;
    let run = fields(json!({
        "name": name, "display_title": name, "event": event, "path": text(workflow, "path"),
        "workflow_id": workflow.id, "workflow_url": format!("{base}/{WORKFLOWS}/{}", workflow.id),
        "run_number": number, "run_attempt": 1, "run_started_at": now, "pull_requests": [],
        "actor": actor, "triggering_actor": actor, "check_suite_id": suite,
        "check_suite_url": format!("{base}/{CHECK_SUITES}/{suite}"), "html_url": page,
    }));
    let place = Place::of(call, RUNS);
    let run = place.add(call, run)?;
    let url = format!("{base}/{RUNS}/{}", run.id);
    let run = place.change(
        call,
        &run,
        json!({
            "html_url": format!("{page}/{RUNS}/{}", run.id), "jobs_url": format!("{url}/jobs"),
            "logs_url": format!("{url}/logs"), "artifacts_url": format!("{url}/artifacts"),
            "cancel_url": format!("{url}/cancel"), "rerun_url": format!("{url}/rerun"),
        }),
    )?;
    let job = fields(json!({
        "name": "build", "workflow_name": name, "run_id": run.id, "run_url": url, "run_attempt": 1,
        "started_at": now, "completed_at": null, "steps": [], "labels": [], "check_run_id": check,
        "check_run_url": format!("{base}/{CHECK_RUNS}/{check}"),
    }));
    Place::of(call, JOBS).add(call, job)?;
    queue(call, &run);
    Ok(())
}

/// Raises the events of a queued run, and plans its start.
fn queue(call: &mut Call<'_>, run: &StoredItem) {
    let attempt = number(run, "run_attempt").unwrap_or(1);
    let (repository, run, actor) = (call.repository, run.id, call.actor());
    let kind = StepKind::Start;
    let step = RunStep { repository, run, attempt, actor, urls: call.urls.clone(), kind };
    let parts = Parts::of(call.world, &step);
    raise(call.world, call.now, &step, &parts, Raised { run: "requested", part: "queued" });
    call.world.run_steps.add(call.now + call.limits.duration("workflows.queued"), step);
}

/// The objects of a run: its job, check run and check suite, each with its collection.
#[derive(Debug)]
struct Parts {
    run: Option<StoredItem>,
    jobs: Vec<StoredItem>,
    check_runs: Vec<StoredItem>,
    check_suite: Option<StoredItem>,
}

impl Parts {
    fn of(world: &World, step: &RunStep) -> Self {
        let all = |own: &str| {
            let items = seeds::items(world, &collection(step.repository, own));
            items.into_iter().map(|(_, item)| item)
        };
        let run = all(RUNS).find(|run| run.id == step.run);
        let jobs: Vec<StoredItem> =
            all(JOBS).filter(|job| number(job, "run_id") == Some(step.run)).collect();
        let suite = run.as_ref().and_then(|run| number(run, "check_suite_id"));
        let checks: Vec<u64> = jobs.iter().filter_map(|job| number(job, "check_run_id")).collect();
        let check_runs = all(CHECK_RUNS).filter(|check| checks.contains(&check.id)).collect();
        let check_suite = all(CHECK_SUITES).find(|found| Some(found.id) == suite);
        Self { run, jobs, check_runs, check_suite }
    }

    /// Sets these members of every part.
    fn change(&mut self, world: &mut World, at: Timestamp, repository: u64, changes: &Value) {
        let mut one = |own: &str, item: &mut StoredItem| {
            item.fields.extend(seeds::object(changes.clone()));
            item.updated_at = at;
            let collection = collection(repository, own);
            // Both fail only when the store is full; the part keeps its state then.
            let _ = seeds::settle(world, &collection);
            let _ = world.collections.put(&collection, &item.id.to_string(), item.clone());
        };
        self.run.iter_mut().for_each(|item| one(RUNS, item));
        self.jobs.iter_mut().for_each(|item| one(JOBS, item));
        self.check_runs.iter_mut().for_each(|item| one(CHECK_RUNS, item));
        self.check_suite.iter_mut().for_each(|item| one(CHECK_SUITES, item));
    }
}

/// The actions of a step's events: of the run, and of its job.
#[derive(Clone, Copy, Debug)]
struct Raised {
    run: &'static str,
    part: &'static str,
}

fn raise(world: &mut World, at: Timestamp, step: &RunStep, parts: &Parts, raised: Raised) {
    let RunStep { repository, actor, .. } = *step;
    let scope = EventScope::Repository(repository);
    let context = EventContext { urls: &step.urls, now: at, scope, actor };
    let workflow = parts.run.as_ref().and_then(|run| number(run, "workflow_id"));
    let shown = |world: &World, own: &str, item: &StoredItem| {
        Place { urls: &step.urls, repository, own }.render(world, item)
    };
    let one = |world: &mut World, name, action, notice, objects: Value| {
        let change = Change::of(WebhookEvent::new(name, action)).notifying(notice);
        record(world, context, change, |_| objects);
    };
    let is_over = raised.run == "completed";
    for job in &parts.jobs {
        let job = json!({ "workflow_job": shown(world, JOBS, job) });
        one(world, "workflow_job", raised.part, Notice::Nobody, job);
    }
    let check_action = match raised.part {
        "queued" => Some("created"),
        "completed" => Some("completed"),
        _ => None,
    };
    for (check, action) in parts.check_runs.iter().zip(check_action.into_iter().cycle()) {
        let check = json!({ "check_run": shown(world, CHECK_RUNS, check) });
        one(world, "check_run", action, Notice::Nobody, check);
    }
    if let Some(suite) = parts.check_suite.as_ref().filter(|_| is_over) {
        let suite = json!({ "check_suite": shown(world, CHECK_SUITES, suite) });
        one(world, "check_suite", "completed", Notice::Nobody, suite);
    }
    if let Some(run) = &parts.run {
        let workflows = seeds::items(world, &collection(repository, WORKFLOWS));
        let workflow = workflows.iter().find(|(_, found)| Some(found.id) == workflow);
        let workflow = workflow.map(|(_, found)| shown(world, WORKFLOWS, found));
        let objects = json!({ "workflow_run": shown(world, RUNS, run), "workflow": workflow });
        let notice = if is_over { Notice::RunEnded { run: run.id } } else { Notice::Nobody };
        one(world, "workflow_run", raised.run, notice, objects);
    }
}

/// Takes the steps that are due, each at its own time.
pub fn advance(world: &mut World, limits: &Limits, now: Timestamp) {
    while let Some((at, step)) = world.run_steps.take_due(now) {
        let mut parts = Parts::of(world, &step);
        let attempt = parts.run.as_ref().and_then(|run| number(run, "run_attempt"));
        if attempt != Some(step.attempt) {
            continue;
        }
        match step.kind {
            StepKind::Start => {
                let started = json!({ "status": "in_progress" });
                parts.change(world, at, step.repository, &started);
                let raised = Raised { run: "in_progress", part: "in_progress" };
                raise(world, at, &step, &parts, raised);
                let end = at + limits.duration("workflows.running");
                world.run_steps.add(end, RunStep { kind: StepKind::End, ..step });
            }
            StepKind::End => end(world, at, &step, parts, "success"),
        }
    }
}

fn end(world: &mut World, at: Timestamp, step: &RunStep, mut parts: Parts, conclusion: &str) {
    let ended = json!({ "status": "completed", "conclusion": conclusion, "completed_at": iso(at) });
    parts.change(world, at, step.repository, &ended);
    let raised = Raised { run: "completed", part: "completed" };
    raise(world, at, step, &parts, raised);
}

fn step_of(call: &Call<'_>, address: &Address) -> Result<(RunStep, Parts), ApiError> {
    let run = address.value("run_id").and_then(|id| id.parse().ok());
    let step = RunStep {
        repository: call.repository,
        run: run.ok_or(ApiError::NotFound)?,
        attempt: 0,
        actor: call.actor(),
        urls: call.urls.clone(),
        kind: StepKind::End,
    };
    let parts = Parts::of(call.world, &step);
    ApiError::not_found_unless(parts.run.is_some())?;
    Ok((step, parts))
}

pub fn cancel(call: &mut Call<'_>, address: &Address) -> Outcome {
    let (step, parts) = step_of(call, address)?;
    call.world.run_steps.forget(step.repository, step.run);
    end(call.world, call.now, &step, parts, "cancelled");
    Ok(Reply::json(StatusCode::ACCEPTED, json!({})))
}

pub fn rerun(call: &mut Call<'_>, address: &Address) -> Outcome {
    if call.world.run_steps.is_full() {
        return Err(ApiError::invalid("Workflow", "base", "base: too many runs are under way"));
    }
    let (step, mut parts) = step_of(call, address)?;
    call.world.run_steps.forget(step.repository, step.run);
    let attempt = parts.run.as_ref().and_then(|run| number(run, "run_attempt")).unwrap_or(1) + 1;
    let changes = json!({
        "status": "queued", "conclusion": null, "completed_at": null, "run_attempt": attempt,
        "run_started_at": iso(call.now),
    });
    parts.change(call.world, call.now, step.repository, &changes);
    if let Some(run) = &parts.run {
        queue(call, run);
    }
    Ok(Reply::json(StatusCode::CREATED, json!({})))
}
