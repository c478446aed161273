//! Tests the order of lists of the generic store, and the parameters that choose among their items.

use serde_json::{Value, json};

use crate::emulator::tests::*;

const RUNS: &str = "/repos/acme/widgets/actions/runs";

fn on(path: &str) -> String {
    format!("/repos/acme/widgets{path}")
}

fn dispatched() -> Upstream {
    let mut upstream = Upstream::new();
    let path = on("/actions/workflows/ci.yml/dispatches");
    upstream.post(BEN, &path, &json!({ "ref": "main" })).assert_status(204);
    upstream
}

fn listed(upstream: &mut Upstream, path: &str, member: &str) -> Vec<Value> {
    let body = upstream.get(ADA, path).assert_status(200).body;
    let items = if member.is_empty() { &body } else { &body[member] };
    let items = items.as_array().unwrap_or_else(|| panic!("{path}: {body}")).clone();
    assert!(member.is_empty() || body["total_count"] == items.len(), "{path}: {body}");
    items
}

/// Asserts that a query finds some of a list, all of them and only them that hold.
fn assert_filters(
    upstream: &mut Upstream,
    (path, member): (&str, &str),
    query: &str,
    holds: impl Fn(&Value) -> bool,
) {
    let all = listed(upstream, &format!("{path}?per_page=100"), member);
    let expected: Vec<Value> = all.iter().filter(|item| holds(item)).cloned().collect();
    assert!(!expected.is_empty() && expected.len() < all.len(), "{query} does not tell apart");
    let found = listed(upstream, &format!("{path}?per_page=100&{query}"), member);
    assert_eq!(found, expected, "{path}?{query}");
}

#[test]
fn runs_are_listed_newest_first() {
    let mut upstream = dispatched();
    for path in [RUNS.to_owned(), on("/actions/workflows/ci.yml/runs")] {
        let runs = listed(&mut upstream, &format!("{path}?per_page=100"), "workflow_runs");
        assert_eq!(runs[0]["event"], "workflow_dispatch", "{path}");
        let times: Vec<&str> = runs.iter().filter_map(|run| run["created_at"].as_str()).collect();
        assert!(times.len() > 2 && times.is_sorted_by(|newer, older| newer >= older), "{times:?}");
    }
}

#[test]
fn runs_are_filtered_by_their_documented_parameters() {
    let mut upstream = dispatched();
    let branch = json!({ "branch": "topic", "message": "more", "content": "eA==" });
    let head = upstream.get(ADA, &on("/branches/main")).body["commit"]["sha"].clone();
    let made = json!({ "ref": "refs/heads/topic", "sha": head });
    upstream.post(ADA, &on("/git/refs"), &made).assert_status(201);
    upstream.put(ADA, &on("/contents/more.txt"), &branch).assert_status(201);
    let path = on("/actions/workflows/ci.yml/dispatches");
    upstream.post(ADA, &path, &json!({ "ref": "topic" })).assert_status(204);
    let newest = listed(&mut upstream, &format!("{RUNS}?per_page=100"), "workflow_runs").remove(0);
    let sha = newest["head_sha"].clone();
    let suite = newest["check_suite_id"].clone();
    let runs = (RUNS, "workflow_runs");
    assert_filters(&mut upstream, runs, "event=push", |run| run["event"] == "push");
    assert_filters(&mut upstream, runs, "branch=topic", |run| run["head_branch"] == "topic");
    assert_filters(&mut upstream, runs, "actor=BEN", |run| run["actor"]["login"] == "ben");
    assert_filters(&mut upstream, runs, "status=queued", |run| run["status"] == "queued");
    assert_filters(&mut upstream, runs, "status=failure", |run| run["conclusion"] == "failure");
    let query = format!("head_sha={}", sha.as_str().unwrap_or(""));
    assert_filters(&mut upstream, runs, &query, |run| run["head_sha"] == sha);
    let query = format!("check_suite_id={suite}");
    assert_filters(&mut upstream, runs, &query, |run| run["check_suite_id"] == suite);
    let since = |run: &Value| run["created_at"].as_str() >= Some("2027-01-01");
    assert_filters(&mut upstream, runs, "created=%3E%3D2027-01-01", since);
    let range = "created=2026-01-01..2026-12-31";
    assert_filters(&mut upstream, runs, range, |run| !since(run));
    let both = "event=workflow_dispatch&branch=main";
    let both = listed(&mut upstream, &format!("{RUNS}?{both}"), "workflow_runs");
    assert_eq!((both.len(), &both[0]["actor"]["login"]), (1, &json!("ben")));
    let own = on("/actions/workflows/ci.yml/runs");
    assert_filters(&mut upstream, (&own, "workflow_runs"), "event=push", |run| {
        run["event"] == "push"
    });
    upstream.get(ADA, &format!("{RUNS}?created=soon")).assert_names_field("created");
    upstream.get(ADA, &format!("{RUNS}?check_suite_id=x")).assert_names_field("check_suite_id");
}

#[test]
fn seeded_runs_have_an_actor() {
    let mut upstream = Upstream::new();
    for run in listed(&mut upstream, &format!("{RUNS}?per_page=100"), "workflow_runs") {
        let actor = &run["actor"];
        assert!(actor["url"].as_str().is_some_and(|url| url.contains("/users/")), "{run}");
        assert_eq!(actor, &run["triggering_actor"]);
        let own = upstream.get(ADA, &format!("{RUNS}/{}", run["id"])).body;
        assert_eq!(&own["actor"], actor);
    }
}

#[test]
fn deployments_are_newest_first_and_filtered() {
    let mut upstream = Upstream::new();
    let path = on("/deployments");
    let staging = json!({ "ref": "main", "environment": "staging", "task": "migrate" });
    let made = upstream.post(ADA, &path, &staging).assert_status(201).body;
    let all = (path.as_str(), "");
    assert_eq!(listed(&mut upstream, &path, "")[0]["id"], made["id"]);
    for (name, value) in [("environment", "staging"), ("task", "migrate")] {
        let query = format!("{name}={value}");
        assert_filters(&mut upstream, all, &query, |one| one[name] == value);
    }
    for (name, known) in [("ref", "main".to_owned()), ("sha", made["sha"].to_string())] {
        let known = known.trim_matches('"');
        assert!(!listed(&mut upstream, &format!("{path}?{name}={known}"), "").is_empty());
        assert!(listed(&mut upstream, &format!("{path}?{name}=other"), "").is_empty(), "{name}");
    }
    let statuses = format!("{path}/{}/statuses", made["id"]);
    for state in ["pending", "success"] {
        upstream.post(ADA, &statuses, &json!({ "state": state })).assert_status(201);
    }
    let states = listed(&mut upstream, &statuses, "");
    let states: Vec<&str> = states.iter().filter_map(|one| one["state"].as_str()).collect();
    assert_eq!(states, ["success", "pending"]);
}

#[test]
fn checks_of_a_commit_are_filtered() {
    let mut upstream = Upstream::new();
    for (name, status) in [("build", "queued"), ("lint", "in_progress")] {
        let check = json!({ "name": name, "head_sha": "main", "status": status });
        upstream.post(INSTALLATION, &on("/check-runs"), &check).assert_status(201);
    }
    let path = on("/commits/main/check-runs");
    let runs = (path.as_str(), "check_runs");
    assert_filters(&mut upstream, runs, "check_name=lint", |run| run["name"] == "lint");
    assert_filters(&mut upstream, runs, "status=completed", |run| run["status"] == "completed");
    assert_filters(&mut upstream, runs, "app_id=301", |run| run["app"]["id"] == 301);
    let path = on("/commits/main/check-suites");
    let suites = (path.as_str(), "check_suites");
    assert_filters(&mut upstream, suites, "app_id=301", |suite| suite["app"]["id"] == 301);
    assert_filters(&mut upstream, suites, "check_name=lint", |suite| suite["app"]["id"] == 301);
    upstream.get(ADA, &on("/commits/main/check-runs?filter=x")).assert_names_field("filter");
}

#[test]
fn only_the_latest_check_of_a_name_is_listed() {
    let mut upstream = Upstream::new();
    let check = json!({ "name": "lint", "head_sha": "main" });
    let made: Vec<Value> = (0..2)
        .map(|_| upstream.post(INSTALLATION, &on("/check-runs"), &check).body["id"].clone())
        .collect();
    let path = on("/commits/main/check-runs?check_name=lint");
    let ids = |upstream: &mut Upstream, query: &str| -> Vec<Value> {
        let runs = listed(upstream, &format!("{path}{query}"), "check_runs");
        runs.iter().map(|run| run["id"].clone()).collect()
    };
    for query in ["", "&filter=latest"] {
        assert_eq!(ids(&mut upstream, query), [made[1].clone()], "{query}");
    }
    assert_eq!(ids(&mut upstream, "&filter=all").len(), 2);
}

#[test]
fn artifacts_are_filtered_by_name() {
    let mut upstream = Upstream::new();
    let path = on("/actions/artifacts");
    assert!(!listed(&mut upstream, &format!("{path}?name=build"), "artifacts").is_empty());
    assert!(listed(&mut upstream, &format!("{path}?name=other"), "artifacts").is_empty());
}

#[test]
fn review_comments_are_sorted_and_cut_by_time() {
    let mut upstream = Upstream::new();
    crate::emulator::tests::repositories::propose(&mut upstream, "topic");
    let wanted = json!({ "title": "Better", "head": "topic", "base": "main" });
    let pull = upstream.post(BEN, &on("/pulls"), &wanted).assert_status(201).body;
    let path = on(&format!("/pulls/{}/comments", pull["number"]));
    let mut made = Vec::new();
    for body in ["first", "second"] {
        upstream.pass(60);
        let comment = json!({ "body": body, "commit_id": pull["head"]["sha"], "path": "topic.md", "line": 1 });
        made.push(upstream.post(ADA, &path, &comment).assert_status(201).body);
    }
    for path in [path, on("/pulls/comments")] {
        let bodies = |upstream: &mut Upstream, query: &str| -> Vec<String> {
            let found = listed(upstream, &format!("{path}{query}"), "");
            found.iter().map(|one| one["body"].as_str().unwrap_or("").to_owned()).collect()
        };
        assert_eq!(bodies(&mut upstream, ""), ["first", "second"]);
        assert_eq!(bodies(&mut upstream, "?direction=desc"), ["first", "second"]);
        let newest = "?sort=created&direction=desc";
        assert_eq!(bodies(&mut upstream, newest), ["second", "first"]);
        let since = made[1]["created_at"].as_str().unwrap_or("");
        assert_eq!(bodies(&mut upstream, &format!("?since={since}")), ["second"]);
        upstream.get(ADA, &format!("{path}?sort=x")).assert_names_field("sort");
    }
}
