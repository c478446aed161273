//! Tests the events of statuses, checks and deployments.

use serde_json::{Value, json};

use super::*;

fn head(observed: &mut Observed) -> Value {
    observed.upstream.get(ADA, &on("/branches/main")).body["commit"]["sha"].clone()
}

#[test]
fn a_status_raises_its_event() {
    let mut observed = Observed::new();
    let sha = head(&mut observed);
    let path = on(&format!("/statuses/{}", sha.as_str().unwrap_or("")));
    let sent = json!({ "state": "failure", "context": "ci/lint", "description": "No" });
    let made = observed.upstream.post(ADA, &path, &sent).assert_status(201).body;
    let payload = observed.assert_delivered(&["status"]).remove(0);
    assert_eq!((&payload["sha"], &payload["id"]), (&sha, &made["id"]));
    assert_eq!(
        (&payload["state"], &payload["context"], &payload["name"]),
        (&json!("failure"), &json!("ci/lint"), &json!("acme/widgets"))
    );
    assert_eq!(payload["commit"]["sha"], sha);
    assert_eq!(payload["branches"][0]["name"], "main");
    assert!(payload.get("action").is_none());
}

#[test]
fn a_check_run_raises_its_events_and_completes_its_suite() {
    let mut observed = Observed::new();
    let sha = head(&mut observed);
    let runs = on("/check-runs");
    let made = observed
        .upstream
        .post(ADA, &runs, &json!({ "name": "lint", "head_sha": sha }))
        .assert_status(201)
        .body;
    let payload = observed.assert_delivered(&["check_run created"]).remove(0);
    assert_eq!(payload["check_run"]["id"], made["id"]);
    assert_eq!(payload["check_run"]["check_suite"]["head_sha"], sha);
    let second = json!({ "name": "test", "head_sha": sha, "conclusion": "failure" });
    let second = observed.upstream.post(ADA, &runs, &second).assert_status(201).body;
    assert_eq!(second["status"], "completed");
    assert_eq!(second["check_suite"]["id"], made["check_suite"]["id"]);
    observed.assert_delivered(&["check_run created", "check_run completed"]);
    let own = on(&format!("/check-runs/{}", made["id"]));
    let status = json!({ "status": "in_progress" });
    observed.upstream.patch(ADA, &own, &status).assert_status(200);
    observed.assert_delivered(&[]);
    let done = json!({ "status": "completed", "conclusion": "success" });
    let done = observed.upstream.patch(ADA, &own, &done).assert_status(200).body;
    assert!(done["completed_at"].is_string());
    let payloads = observed.assert_delivered(&["check_run completed", "check_suite completed"]);
    assert_eq!(payloads[0]["check_run"]["conclusion"], "success");
    let suite = &payloads[1]["check_suite"];
    assert_eq!((&suite["conclusion"], &suite["head_branch"]), (&json!("failure"), &json!("main")));
    observed.upstream.post(ADA, &format!("{own}/rerequest"), &Value::Null).assert_status(201);
    observed.assert_delivered(&["check_run rerequested"]);
    assert_eq!(observed.upstream.get(ADA, &own).body["status"], "queued");
}

#[test]
fn a_check_suite_raises_its_events() {
    let mut observed = Observed::new();
    let sha = head(&mut observed);
    let made = observed
        .upstream
        .post(ADA, &on("/check-suites"), &json!({ "head_sha": sha }))
        .assert_status(201)
        .body;
    observed.assert_delivered(&["check_suite requested"]);
    let path = on(&format!("/check-suites/{}/rerequest", made["id"]));
    observed.upstream.post(ADA, &path, &Value::Null).assert_status(201);
    observed.assert_delivered(&["check_suite rerequested"]);
    let bad = json!({ "head_sha": "nothing" });
    observed.upstream.post(ADA, &on("/check-suites"), &bad).assert_names_field("head_sha");
}

#[test]
fn a_check_run_is_validated() {
    let mut observed = Observed::new();
    let sha = head(&mut observed);
    let valid = json!({ "name": "lint", "head_sha": sha });
    let runs = on("/check-runs");
    let made = observed.upstream.post(ADA, &runs, &valid).assert_status(201).body;
    observed.deliveries();
    let own = on(&format!("/check-runs/{}", made["id"]));
    for (change, field) in [
        (json!({ "status": "done" }), "status"),
        (json!({ "status": "completed" }), "conclusion"),
        (json!({ "conclusion": "good" }), "conclusion"),
        (json!({ "output": { "title": "x" } }), "output.summary"),
        (json!({ "output": "x" }), "output"),
        (json!({ "actions": [{}, {}, {}, {}] }), "actions"),
        (json!({ "name": "" }), "name"),
    ] {
        observed.upstream.patch(ADA, &own, &change).assert_names_field(field);
        let mut new = valid.clone();
        crate::emulator::render::extend(&mut new, change);
        observed.upstream.post(ADA, &runs, &new).assert_names_field(field);
    }
    observed.assert_delivered(&[]);
}

#[test]
fn a_deployment_and_its_statuses_raise_events() {
    let mut observed = Observed::new();
    let sha = head(&mut observed);
    let sent = json!({ "ref": "main", "environment": "staging" });
    let deployments = on("/deployments");
    let made = observed.upstream.post(ADA, &deployments, &sent).assert_status(201).body;
    let payload = observed.assert_delivered(&["deployment created"]).remove(0);
    assert_eq!((&payload["deployment"]["id"], &payload["deployment"]["sha"]), (&made["id"], &sha));
    assert_eq!(payload["deployment"]["creator"]["login"], "ada");
    observed.upstream.get(ADA, &on("/environments/staging")).assert_status(200);
    let statuses = format!("{deployments}/{}/statuses", made["id"]);
    let success = json!({ "state": "success", "target_url": "https://example.com/log" });
    let status = observed.upstream.post(ADA, &statuses, &success).assert_status(201).body;
    let payload = observed.assert_delivered(&["deployment_status created"]).remove(0);
    assert_eq!(payload["deployment_status"]["id"], status["id"]);
    assert_eq!(
        (&payload["deployment_status"]["state"], &payload["deployment_status"]["environment"]),
        (&json!("success"), &json!("staging"))
    );
    assert_eq!(payload["deployment"]["id"], made["id"]);
    observed
        .upstream
        .post(ADA, &statuses, &json!({ "state": "great" }))
        .assert_names_field("state");
    observed.upstream.post(ADA, &statuses, &json!({})).assert_names_field("state");
    let long = json!({ "state": "error", "description": "x".repeat(141) });
    observed.upstream.post(ADA, &statuses, &long).assert_names_field("description");
    observed
        .upstream
        .post(ADA, &deployments, &json!({ "ref": "nothing" }))
        .assert_names_field("ref");
    let odd = json!({ "ref": "main", "payload": 7 });
    observed.upstream.post(ADA, &deployments, &odd).assert_names_field("payload");
    observed.assert_delivered(&[]);
}
