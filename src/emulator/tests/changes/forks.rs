//! Tests pull requests from forks: opened, pushed to, merged.

use serde_json::{Value, json};

use super::*;

/// Forks the repository as Ben, with a branch of its own; returns the branch's commit.
fn fork(observed: &mut Observed) -> String {
    let upstream = &mut observed.upstream;
    let change = json!({ "message": "before", "content": "eA==" });
    upstream.put(ADA, &on("/contents/before.txt"), &change).assert_status(201);
    let main = upstream.get(ADA, &on("/branches/main")).body["commit"]["sha"].clone();
    upstream.post(BEN, &on("/forks"), &Value::Null).assert_status(202);
    let copied = upstream.get(BEN, "/repos/ben/widgets/branches/main").assert_status(200).body;
    assert_eq!(copied["commit"]["sha"], main, "a fork has the commits of its origin");
    let branch = json!({ "ref": "refs/heads/topic", "sha": main });
    upstream.post(BEN, "/repos/ben/widgets/git/refs", &branch).assert_status(201);
    push(upstream, "one")
}

fn push(upstream: &mut Upstream, name: &str) -> String {
    let change = json!({ "message": name, "content": "eA==", "branch": "topic" });
    let path = format!("/repos/ben/widgets/contents/{name}.txt");
    let made = upstream.put(BEN, &path, &change).assert_status(201).body;
    made["commit"]["sha"].as_str().expect("a commit").to_owned()
}

fn propose_from_fork(observed: &mut Observed) -> (u64, String) {
    let sha = fork(observed);
    let wanted = json!({ "title": "From afar", "head": "ben:topic", "base": "main" });
    let pull = observed.upstream.post(BEN, &on("/pulls"), &wanted).assert_status(201).body;
    assert_eq!(pull["head"]["repo"]["full_name"], "ben/widgets");
    assert_eq!(pull["head"]["label"], "ben:topic");
    assert_eq!(pull["head"]["sha"], json!(sha));
    assert_eq!(pull["base"]["repo"]["full_name"], "acme/widgets");
    observed.deliveries();
    (pull["number"].as_u64().expect("a number"), sha)
}

#[test]
fn a_push_to_a_fork_synchronizes_its_pull_request() {
    let mut observed = Observed::new();
    let (number, before) = propose_from_fork(&mut observed);
    let path = on(&format!("/pulls/{number}"));
    let commits = observed.upstream.get(ADA, &format!("{path}/commits"));
    assert_eq!(commits.items().len(), 1);
    observed.upstream.pass(60);
    let after = push(&mut observed.upstream, "two");
    let payload = observed.assert_delivered(&["pull_request synchronize"]).remove(0);
    assert_eq!((&payload["before"], &payload["after"]), (&json!(before), &json!(after)));
    assert_eq!(payload["repository"]["full_name"], "acme/widgets");
    assert_eq!(payload["pull_request"]["head"]["sha"], json!(after));
    let pull = observed.upstream.get(ADA, &path).body;
    assert_eq!(pull["head"]["sha"], json!(after));
    assert!(pull["updated_at"].as_str() > pull["created_at"].as_str());
    let commits = observed.upstream.get(ADA, &format!("{path}/commits"));
    assert_eq!(commits.items().len(), 2);
    // Another branch of the fork, and the same name in the repository itself, are others.
    let branch = json!({ "ref": "refs/heads/other", "sha": after });
    observed.upstream.post(BEN, "/repos/ben/widgets/git/refs", &branch).assert_status(201);
    crate::emulator::tests::repositories::propose(&mut observed.upstream, "topic");
    let names: Vec<String> = observed.deliveries().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["create", "push"]);
    let pull = observed.upstream.get(ADA, &path).body;
    assert_eq!(pull["head"]["sha"], json!(after));
}

#[test]
fn a_pull_request_from_a_fork_is_merged() {
    let mut observed = Observed::new();
    let (number, sha) = propose_from_fork(&mut observed);
    let path = on(&format!("/pulls/{number}"));
    let found = observed.upstream.get(ADA, &on("/pulls?head=ben:topic")).assert_status(200);
    assert_eq!(found.items().len(), 1);
    let of_commit = observed.upstream.get(ADA, &on(&format!("/commits/{sha}/pulls")));
    assert_eq!(of_commit.items()[0]["number"], json!(number));
    let twice = json!({ "title": "Again", "head": "ben:topic", "base": "main" });
    observed.upstream.post(BEN, &on("/pulls"), &twice).assert_names_field("head");
    observed.upstream.put(ADA, &format!("{path}/merge"), &Value::Null).assert_status(200);
    observed.upstream.get(ADA, &on("/contents/one.txt")).assert_status(200);
    let names: Vec<String> = observed.deliveries().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["push", "pull_request closed"]);
    push(&mut observed.upstream, "three");
    observed.assert_delivered(&[]);
}

#[test]
fn a_lost_fork_leaves_its_pull_request() {
    let mut observed = Observed::new();
    let (number, sha) = propose_from_fork(&mut observed);
    observed.upstream.delete(BEN, "/repos/ben/widgets").assert_status(204);
    let pull = observed.upstream.get(ADA, &on(&format!("/pulls/{number}"))).assert_status(200).body;
    assert_eq!(pull["head"]["repo"], Value::Null);
    assert_eq!(pull["head"]["sha"], json!(sha));
}

#[test]
fn the_source_of_a_pull_request_is_in_the_network() {
    let mut observed = Observed::new();
    fork(&mut observed);
    for head in ["ben:nothing", "cleo:topic", "nobody:topic", "dan:main"] {
        let wanted = json!({ "title": "No", "head": head, "base": "main" });
        observed.upstream.post(BEN, &on("/pulls"), &wanted).assert_names_field("head");
    }
    let own = json!({ "title": "No", "head": "acme:main", "base": "main" });
    observed.upstream.post(BEN, &on("/pulls"), &own).assert_names_field("head");
}
