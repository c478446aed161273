//! Initial objects of every repository, so that its lists are not empty. They are one workflow with
//! two runs, checks of the newest commit, an environment with a deployment, and a deploy key.
//!
//! They are computed from the repository and take no memory; the first write to such a collection
//! stores it.

use serde_json::{Map, Value, json};

use super::address::Address;
use super::bodies::Members;
use crate::emulator::accounts::{AccountId, Caller};
use crate::emulator::http::{ApiError, Urls};
use crate::emulator::render::Renderer;
use crate::emulator::routing::Call;
use crate::emulator::world::storage::collections::StorageFull;
use crate::emulator::world::{Repository, SeededRun, StoredItem, World};

/// Above every other id, so that no other object ever gets one of them.
const IDS_ABOVE: u64 = 10_000_000_000;
/// The ids reserved for one repository; more than any of its initial collections has.
const IDS_EACH: u64 = 100;

/// The field of the user that triggered an initial object, whose address depends on the caller.
pub const ACTOR: &str = "_actor";

/// Returns the fields of an object as responses show them.
pub fn shown(world: &World, urls: &Urls, item: &StoredItem) -> Members {
    let mut fields = item.fields.clone();
    if let Some(actor) = fields.remove(ACTOR).and_then(|actor| actor.as_u64()) {
        let tokenless = Caller { account: AccountId::User(actor), token: None };
        let summary = Renderer { world, urls, caller: &tokenless }.user_summary(actor);
        fields.extend([("actor".to_owned(), summary.clone())]);
        fields.extend([("triggering_actor".to_owned(), summary)]);
    }
    fields
}

pub fn items(world: &World, address: &str) -> Vec<(String, StoredItem)> {
    match world.collections.collection(address) {
        Some(collection) => collection
            .in_order()
            .into_iter()
            .map(|(name, item)| (name.to_owned(), item.clone()))
            .collect(),
        None => first(world, address),
    }
}

pub fn get(call: &Call<'_>, address: &str, name: &str) -> Option<StoredItem> {
    match call.world.collections.collection(address) {
        Some(collection) => collection.get(name).cloned(),
        None => first(call.world, address)
            .into_iter()
            .find(|(known, _)| known == name)
            .map(|(_, item)| item),
    }
}

/// Finds the object that a whole address names.
pub fn current(call: &Call<'_>, address: &Address) -> Result<StoredItem, ApiError> {
    get(call, &address.parent(), address.name()).ok_or(ApiError::NotFound)
}

/// Stores an object; one that is there keeps its id and its time of creation.
pub fn put(
    call: &mut Call<'_>,
    collection: &str,
    name: &str,
    fields: Members,
) -> Result<StoredItem, ApiError> {
    let (id, created_at) = get(call, collection, name)
        .map_or_else(|| (call.world.next_id(), call.now), |before| (before.id, before.created_at));
    let item = StoredItem { id, fields, created_at, updated_at: call.now };
    settle(call.world, collection)?;
    call.world.collections.put(collection, name, item.clone())?;
    Ok(item)
}

/// Stores a workflow run that a notification is about.
pub fn add_run(
    world: &mut World,
    SeededRun { id, repository, actor, is_waiting, at }: SeededRun,
) -> Result<(), StorageFull> {
    let address = format!("repository/{repository}/actions/runs");
    settle(world, &address)?;
    let number = world.collections.collection(&address).map_or(0, |runs| runs.in_order().len());
    let Some(repository) = world.repositories.get(&repository) else { return Ok(()) };
    let history = world.history(repository);
    let head = history.tip(repository).map_or("", |tip| tip.sha.as_str());
    let conclusion = (!is_waiting).then_some("success");
    let fields = object(run(repository, (head, actor), number as u64 + 1, conclusion));
    world.collections.put(&address, &id.to_string(), StoredItem::new(id, fields, at))
}

/// Stores the initial items of a collection before its first change.
pub fn settle(world: &mut World, address: &str) -> Result<(), StorageFull> {
    if world.collections.collection(address).is_some() {
        return Ok(());
    }
    let initial = first(world, address);
    world.collections.store_initial(address, initial)
}

fn first(world: &World, address: &str) -> Vec<(String, StoredItem)> {
    let Some((id, own)) = address.strip_prefix("repository/").and_then(|rest| rest.split_once('/'))
    else {
        return of_organization(world, address);
    };
    let Some(repository) = id.parse().ok().and_then(|id: u64| world.repositories.get(&id)) else {
        return Vec::new();
    };
    // The newest commit of the seed, not of now: initial objects never change.
    let history = world.history(repository);
    let first = history.tip(repository).and_then(|tip| history.first(tip));
    let head = first.map_or("", |first| first.sha.as_str());
    let pusher = first.map_or(world.machine_user, |first| first.author.user);
    let made = |number: u64, fields: Value| {
        StoredItem::new(id_of(repository, number), object(fields), repository.created_at)
    };
    let initial = match own {
        "actions/workflows" => vec![made(
            1,
            json!({ "name": "ci", "path": ".ci/workflows/ci.yml", "state": "active" }),
        )],
        "actions/runs" => {
            let of_threads = world.seeded_runs.iter().filter(|run| run.repository == repository.id);
            let of_threads = (3..).zip(of_threads).map(|(number, seeded)| {
                let conclusion = (!seeded.is_waiting).then_some("success");
                let fields = object(run(repository, (head, seeded.actor), number, conclusion));
                StoredItem::new(seeded.id, fields, seeded.at)
            });
            let first = made(11, run(repository, (head, pusher), 1, Some("failure")));
            let second = made(12, run(repository, (head, pusher), 2, Some("success")));
            [first, second].into_iter().chain(of_threads).collect()
        }
        "actions/jobs" => vec![
            made(21, job(repository, head, 11, "failure")),
            made(22, job(repository, head, 12, "success")),
        ],
        "actions/artifacts" => vec![made(31, artifact(repository, head))],
        "check-suites" => vec![made(
            41,
            json!({ "head_branch": repository.default_branch, "head_sha": head, "status": "completed", "conclusion": "success", "latest_check_runs_count": 1 }),
        )],
        "check-runs" => vec![made(51, check_run(repository, head))],
        "statuses" => {
            vec![made(
                61,
                json!({ "state": "success", "context": "ci/build", "description": "Built", "target_url": null, "sha": head }),
            )]
        }
        "deployments" => vec![made(
            71,
            json!({ "ref": repository.default_branch, "sha": head, "task": "deploy", "environment": "production", "description": null, "payload": {} }),
        )],
        "environments" => {
            let item = made(
                81,
                json!({ "name": "production", "protection_rules": [], "deployment_branch_policy": null }),
            );
            return vec![("production".to_owned(), item)];
        }
        "keys" => vec![made(
            91,
            json!({ "key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEmulated", "title": "deploy", "read_only": true, "verified": true }),
        )],
        _ => Vec::new(),
    };
    initial.into_iter().map(|item| (item.id.to_string(), item)).collect()
}

/// No route creates a budget, but some change it.
fn of_organization(world: &World, address: &str) -> Vec<(String, StoredItem)> {
    let id = address
        .strip_prefix("organization/")
        .and_then(|rest| rest.strip_suffix("/settings/billing/budgets"));
    let Some(organization) = id.and_then(|id| world.organizations.get(&id.parse().ok()?)) else {
        return Vec::new();
    };
    let fields = json!({ "budget_type": "ProductPricing", "budget_product_skus": ["actions"], "budget_scope": "organization", "budget_amount": 100, "prevent_further_usage": false });
    let id = IDS_ABOVE + organization.id * IDS_EACH;
    vec![(id.to_string(), StoredItem::new(id, object(fields), organization.created_at))]
}

pub fn object(value: Value) -> Members {
    if let Value::Object(map) = value { map } else { Map::new() }
}

fn id_of(repository: &Repository, number: u64) -> u64 {
    IDS_ABOVE + repository.id * IDS_EACH + number
}

/// Without a conclusion, the run waits for approval.
fn run(
    repository: &Repository,
    (head, actor): (&str, u64),
    number: u64,
    conclusion: Option<&str>,
) -> Value {
    let status = if conclusion.is_some() { "completed" } else { "waiting" };
    json!({
        "name": "ci", "display_title": "Make it work", "event": "push", "status": status, "conclusion": conclusion,
        "workflow_id": id_of(repository, 1), "run_number": number, "run_attempt": 1,
        "head_branch": repository.default_branch, "head_sha": head, "pull_requests": [],
        (ACTOR): actor,
    })
}

fn job(repository: &Repository, head: &str, run: u64, conclusion: &str) -> Value {
    json!({ "name": "build", "run_id": id_of(repository, run), "run_attempt": 1, "head_sha": head, "status": "completed", "conclusion": conclusion, "steps": [], "labels": [] })
}

fn artifact(repository: &Repository, head: &str) -> Value {
    let run = id_of(repository, 12);
    json!({ "name": "build", "size_in_bytes": 1_024, "expired": false, "run_id": run, "workflow_run": { "id": run, "head_branch": repository.default_branch, "head_sha": head } })
}

fn check_run(repository: &Repository, head: &str) -> Value {
    let suite = id_of(repository, 41);
    json!({ "name": "build", "head_sha": head, "status": "completed", "conclusion": "success", "check_suite_id": suite, "check_suite": { "id": suite }, "output": { "annotations_count": 0 } })
}
