//! Tests dispatched workflow runs, from queued to completed by the emulator's clock.

use serde_json::{Value, json};

use super::*;

const QUEUED: [&str; 3] = ["workflow_job queued", "check_run created", "workflow_run requested"];
const STARTED: [&str; 2] = ["workflow_job in_progress", "workflow_run in_progress"];
const ENDED: [&str; 4] = [
    "workflow_job completed",
    "check_run completed",
    "check_suite completed",
    "workflow_run completed",
];

/// Asserts status and conclusion of the newest run; returns it.
fn assert_run(observed: &mut Observed, status: &str, conclusion: &Value) -> Value {
    let listed = observed.upstream.get(ADA, &on("/actions/runs?per_page=100")).assert_status(200);
    let runs = listed.body["workflow_runs"].as_array().expect("runs").clone();
    let is_dispatched =
        |run: &Value| run["event"].as_str().is_some_and(|name| name.ends_with("_dispatch"));
    let run = runs.into_iter().find(is_dispatched);
    let run = run.expect("a run");
    assert_eq!((&run["status"], &run["conclusion"]), (&json!(status), conclusion));
    run
}

#[test]
fn a_dispatched_workflow_runs_to_its_end_with_events() {
    let mut observed = Observed::new();
    let path = on("/actions/workflows/ci.yml/dispatches");
    let sent = json!({ "ref": "main", "inputs": { "level": "all" } });
    observed.upstream.post(BEN, &path, &sent).assert_status(204);
    let payloads =
        observed.assert_delivered(&["workflow_dispatch", QUEUED[0], QUEUED[1], QUEUED[2]]);
    assert_eq!(payloads[0]["inputs"], json!({ "level": "all" }));
    assert_eq!(payloads[0]["ref"], "refs/heads/main");
    assert_eq!(payloads[0]["workflow"], ".ci/workflows/ci.yml");
    let run = assert_run(&mut observed, "queued", &Value::Null);
    assert_eq!(payloads[3]["workflow_run"]["id"], run["id"]);
    assert_eq!(payloads[1]["workflow_job"]["run_id"], run["id"]);
    assert_eq!(payloads[3]["workflow"]["name"], "ci");
    observed.upstream.pass(5);
    let payloads = observed.assert_delivered(&STARTED);
    assert_eq!(payloads[1]["workflow_run"]["status"], "in_progress");
    assert_run(&mut observed, "in_progress", &Value::Null);
    observed.upstream.pass(10);
    let payloads = observed.assert_delivered(&ENDED);
    assert_eq!(payloads[3]["workflow_run"]["conclusion"], "success");
    assert_eq!(payloads[2]["check_suite"]["conclusion"], "success");
    let run = assert_run(&mut observed, "completed", &json!("success"));
    observed.assert_notified(BEN, &format!("/actions/runs/{}", run["id"]), "ci_activity");
    let jobs = observed.upstream.get(ADA, &on(&format!("/actions/runs/{}/jobs", run["id"]))).body;
    assert_eq!(jobs["jobs"][0]["conclusion"], "success");
    let sha = run["head_sha"].as_str().unwrap_or("").to_owned();
    let checks = observed.upstream.get(ADA, &on(&format!("/commits/{sha}/check-runs"))).body;
    let checks = checks["check_runs"].as_array().expect("checks");
    assert!(checks.iter().any(|check| check["id"] == payloads[1]["check_run"]["id"]));
}

#[test]
fn a_repository_dispatch_starts_a_run() {
    let mut observed = Observed::new();
    let sent = json!({ "event_type": "deploy", "client_payload": { "to": "moon" } });
    observed.upstream.post(ADA, &on("/dispatches"), &sent).assert_status(204);
    let names = ["repository_dispatch deploy", QUEUED[0], QUEUED[1], QUEUED[2]];
    let payloads = observed.assert_delivered(&names);
    assert_eq!(payloads[0]["client_payload"]["to"], "moon");
    assert_eq!(payloads[0]["branch"], "main");
    observed.upstream.pass(15);
    let run = assert_run(&mut observed, "completed", &json!("success"));
    assert_eq!(run["event"], "repository_dispatch");
    let names: Vec<&str> = STARTED.into_iter().chain(ENDED).collect();
    observed.assert_delivered(&names);
}

#[test]
fn a_cancelled_run_ends_once_and_a_rerun_begins_again() {
    let mut observed = Observed::new();
    let path = on("/actions/workflows/ci.yml/dispatches");
    observed.upstream.post(ADA, &path, &json!({ "ref": "main" })).assert_status(204);
    let run = assert_run(&mut observed, "queued", &Value::Null);
    let own = on(&format!("/actions/runs/{}", run["id"]));
    observed.deliveries();
    observed.upstream.post(ADA, &format!("{own}/cancel"), &Value::Null).assert_status(202);
    observed.assert_delivered(&ENDED);
    observed.upstream.pass(60);
    assert_run(&mut observed, "completed", &json!("cancelled"));
    observed.assert_delivered(&[]);
    observed.upstream.post(ADA, &format!("{own}/rerun"), &Value::Null).assert_status(201);
    let payloads = observed.assert_delivered(&QUEUED);
    assert_eq!(payloads[2]["workflow_run"]["run_attempt"], 2);
    observed.upstream.pass(15);
    assert_run(&mut observed, "completed", &json!("success"));
}

#[test]
fn a_dispatch_is_validated() {
    let mut observed = Observed::new();
    let workflow = on("/actions/workflows/ci.yml");
    let dispatches = format!("{workflow}/dispatches");
    let many: Value = (0..26).map(|index| (index.to_string(), json!("x"))).collect();
    for (sent, field) in [
        (json!({}), "ref"),
        (json!({ "ref": "nothing" }), "ref"),
        (json!({ "ref": "main", "inputs": [] }), "inputs"),
        (json!({ "ref": "main", "inputs": many }), "inputs"),
    ] {
        observed.upstream.post(ADA, &dispatches, &sent).assert_names_field(field);
    }
    for (sent, field) in [
        (json!({}), "event_type"),
        (json!({ "event_type": "x".repeat(101) }), "event_type"),
        (json!({ "event_type": "x", "client_payload": 1 }), "client_payload"),
        (json!({ "event_type": "x", "client_payload": many }), "client_payload"),
    ] {
        observed.upstream.post(ADA, &on("/dispatches"), &sent).assert_names_field(field);
    }
    observed.upstream.put(ADA, &format!("{workflow}/disable"), &Value::Null).assert_status(204);
    let sent = json!({ "ref": "main" });
    observed.upstream.post(ADA, &dispatches, &sent).assert_names_field("workflow_id");
    let unknown = on("/actions/workflows/other.yml/dispatches");
    observed.upstream.post(ADA, &unknown, &sent).assert_status(404);
    observed.assert_delivered(&[]);
}
