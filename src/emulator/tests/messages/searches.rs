//! Tests the documented qualifiers of searches.

use serde_json::{Value, json};

use crate::emulator::tests::*;

fn on(path: &str) -> String {
    format!("/repos/acme/widgets{path}")
}

fn search(upstream: &mut Upstream, list: &str, query: &str) -> Vec<Value> {
    let query = query.replace(' ', "+").replace('#', "%23").replace('>', "%3E");
    upstream.pass(10);
    let found = upstream.get(ADA, &format!("/search/{list}?per_page=100&q={query}"));
    let body = found.assert_status(200).body;
    body["items"].as_array().unwrap_or_else(|| panic!("{query}: {body}")).clone()
}

fn numbers(upstream: &mut Upstream, query: &str) -> Vec<u64> {
    let found = search(upstream, "issues", &format!("repo:acme/widgets {query}"));
    found.iter().filter_map(|item| item["number"].as_u64()).collect()
}

fn names(upstream: &mut Upstream, query: &str) -> Vec<String> {
    let found = search(upstream, "repositories", query);
    found.iter().filter_map(|item| item["full_name"].as_str()).map(str::to_owned).collect()
}

fn paths(upstream: &mut Upstream, query: &str) -> Vec<String> {
    let found = search(upstream, "code", &format!("repo:acme/widgets {query}"));
    found.iter().filter_map(|item| item["path"].as_str()).map(str::to_owned).collect()
}

/// Opens a pull request of Ben from a branch of its own.
fn pull(upstream: &mut Upstream, branch: &str, body: &str) -> (u64, String) {
    crate::emulator::tests::repositories::propose(upstream, branch);
    let wanted = json!({ "title": "Better", "head": branch, "base": "main", "body": body });
    let made = upstream.post(BEN, &on("/pulls"), &wanted).assert_status(201).body;
    let sha = made["head"]["sha"].as_str().expect("a commit").to_owned();
    (made["number"].as_u64().expect("a number"), sha)
}

fn review(upstream: &mut Upstream, number: u64, event: &str) {
    let review = json!({ "event": event, "body": "see" });
    upstream.post(ADA, &on(&format!("/pulls/{number}/reviews")), &review).assert_status(201);
}

#[test]
fn issues_are_found_by_mentions_and_teams() {
    let mut upstream = Upstream::new();
    let text = json!({ "body": "ask @cleo and @acme/platform" });
    upstream.patch(ADA, &on("/issues/3"), &text).assert_status(200);
    upstream.post(ADA, &on("/issues/4/comments"), &json!({ "body": "@dan?" })).assert_status(201);
    assert_eq!(numbers(&mut upstream, "mentions:cleo"), [3]);
    assert_eq!(numbers(&mut upstream, "mentions:dan"), [4]);
    assert_eq!(numbers(&mut upstream, "team:acme/platform"), [3]);
    assert_eq!(numbers(&mut upstream, "team:acme/plat"), [0; 0]);
    assert!(numbers(&mut upstream, "involves:cleo").contains(&3));
}

#[test]
fn closing_keywords_link_issues_and_pull_requests() {
    let mut upstream = Upstream::new();
    let (number, _) = pull(&mut upstream, "topic", "Really fixes #5. See #6.");
    assert_eq!(numbers(&mut upstream, "linked:pr"), [5]);
    assert_eq!(numbers(&mut upstream, "linked:issue"), [number]);
    assert_eq!(numbers(&mut upstream, "is:issue -linked:pr").len(), 74);
}

#[test]
fn pull_requests_are_found_by_their_reviews() {
    let mut upstream = Upstream::new();
    let [approved, changed, bare] =
        ["one", "two", "three"].map(|branch| pull(&mut upstream, branch, "").0);
    review(&mut upstream, approved, "APPROVE");
    review(&mut upstream, changed, "REQUEST_CHANGES");
    assert_eq!(numbers(&mut upstream, "review:approved"), [approved]);
    assert_eq!(numbers(&mut upstream, "review:changes_requested"), [changed]);
    assert_eq!(numbers(&mut upstream, "reviewed-by:ada"), [approved, changed]);
    assert_eq!(numbers(&mut upstream, "reviewed-by:@me"), [approved, changed]);
    assert!(numbers(&mut upstream, "review:none").contains(&bare));
    assert!(!numbers(&mut upstream, "review:none").contains(&approved));
    assert_eq!(numbers(&mut upstream, "review:required"), [0; 0]);
    let protection = json!({ "required_pull_request_reviews": { "required_approving_review_count": 1 }, "required_status_checks": null, "enforce_admins": null, "restrictions": null });
    upstream.put(ADA, &on("/branches/main/protection"), &protection).assert_status(200);
    let required = numbers(&mut upstream, "review:required");
    assert!(required.contains(&bare) && !required.contains(&approved), "{required:?}");
}

#[test]
fn pull_requests_are_found_by_requested_reviewers() {
    let mut upstream = Upstream::new();
    let [direct, by_team] = ["one", "two"].map(|branch| pull(&mut upstream, branch, "").0);
    let path = |number| on(&format!("/pulls/{number}/requested_reviewers"));
    let cleo = json!({ "reviewers": ["cleo"] });
    upstream.post(ADA, &path(direct), &cleo).assert_status(201);
    let platform = json!({ "team_reviewers": ["platform"] });
    upstream.post(ADA, &path(by_team), &platform).assert_status(201);
    let member = upstream.get(ADA, "/orgs/acme/teams/platform/members").items()[0]["login"].clone();
    let member = member.as_str().expect("a member").to_owned();
    assert_eq!(numbers(&mut upstream, "user-review-requested:cleo"), [direct]);
    assert!(numbers(&mut upstream, "review-requested:cleo").contains(&direct));
    assert!(numbers(&mut upstream, &format!("review-requested:{member}")).contains(&by_team));
    let query = format!("user-review-requested:{member}");
    assert!(!numbers(&mut upstream, &query).contains(&by_team));
    assert_eq!(numbers(&mut upstream, "team-review-requested:acme/platform"), [by_team]);
}

#[test]
fn pull_requests_are_found_by_the_state_of_their_head() {
    let mut upstream = Upstream::new();
    let mut made = Vec::new();
    for (branch, state) in [("one", "pending"), ("two", "success"), ("three", "error")] {
        let (number, sha) = pull(&mut upstream, branch, "");
        let status = json!({ "state": state, "context": "ci" });
        upstream.post(ADA, &on(&format!("/statuses/{sha}")), &status).assert_status(201);
        made.push(number);
    }
    let (checked, sha) = pull(&mut upstream, "four", "");
    let check = json!({ "name": "lint", "head_sha": sha, "conclusion": "failure" });
    upstream.post(INSTALLATION, &on("/check-runs"), &check).assert_status(201);
    assert_eq!(numbers(&mut upstream, "status:pending"), [made[0]]);
    assert_eq!(numbers(&mut upstream, "status:success"), [made[1]]);
    assert_eq!(numbers(&mut upstream, "status:failure"), [made[2], checked]);
}

#[test]
fn issues_are_found_by_reactions_and_language() {
    let mut upstream = Upstream::new();
    for content in ["heart", "+1"] {
        let path = on("/issues/9/reactions");
        upstream.post(ADA, &path, &json!({ "content": content })).assert_status(201);
    }
    upstream.post(ADA, &on("/issues/9/comments"), &json!({ "body": "so" })).assert_status(201);
    assert_eq!(numbers(&mut upstream, "reactions:>1"), [9]);
    assert_eq!(numbers(&mut upstream, "interactions:3"), [9]);
    assert_eq!(numbers(&mut upstream, "is:issue sort:reactions-desc")[0], 9);
    assert_eq!(numbers(&mut upstream, "language:rust").len(), 79);
    assert_eq!(numbers(&mut upstream, "language:ada"), [0; 0]);
}

#[test]
fn a_draft_is_found_as_one() {
    let mut upstream = Upstream::new();
    crate::emulator::tests::repositories::propose(&mut upstream, "topic");
    let wanted = json!({ "title": "Soon", "head": "topic", "base": "main", "draft": true });
    let made = upstream.post(BEN, &on("/pulls"), &wanted).assert_status(201).body;
    assert_eq!(made["draft"], true);
    assert_eq!(numbers(&mut upstream, "draft:true"), [80]);
    assert_eq!(numbers(&mut upstream, "is:draft"), [80]);
    assert_eq!(numbers(&mut upstream, "draft:false").len(), 4);
}

#[test]
fn a_qualifier_of_what_no_issue_has_finds_none() {
    let mut upstream = Upstream::new();
    for query in ["project:acme/1", "reason:completed", "is:queued"] {
        assert_eq!(numbers(&mut upstream, query), [0; 0], "{query}");
        assert_eq!(numbers(&mut upstream, &format!("-{query}")).len(), 79, "{query}");
    }
    for query in ["no:project", "no:type"] {
        assert_eq!(numbers(&mut upstream, query).len(), 79, "{query}");
    }
    for query in ["linked:x", "review:x", "status:x", "reactions:x", "reason:x", "no:x"] {
        upstream.pass(10);
        upstream.get(ADA, &format!("/search/issues?q={query}")).assert_names_field("q");
    }
}

#[test]
fn repositories_are_found_by_their_facts() {
    let mut upstream = Upstream::new();
    upstream.put(ADA, "/user/starred/acme/sprockets", &Value::Null).assert_status(204);
    let archived = json!({ "archived": true });
    upstream.patch(ADA, "/repos/acme/sprockets", &archived).assert_status(200);
    upstream.post(BEN, &on("/forks"), &json!({})).assert_status(202);
    let change = json!({ "message": "more", "content": "eA==" });
    upstream.put(ADA, &on("/contents/more.txt"), &change).assert_status(201);
    let fork = "ben/widgets".to_owned();
    assert_eq!(names(&mut upstream, "archived:true"), ["acme/sprockets"]);
    assert_eq!(names(&mut upstream, "is:archived stars:>0"), ["acme/sprockets"]);
    assert_eq!(names(&mut upstream, "fork:only"), ["ben/widgets"]);
    assert!(names(&mut upstream, "widgets fork:true").contains(&fork));
    for query in ["widgets", "widgets fork:false", "widgets -fork:true"] {
        assert_eq!(names(&mut upstream, query), ["acme/widgets"], "{query}");
    }
    assert_eq!(names(&mut upstream, "pushed:>2027-01-01"), ["acme/widgets"]);
    assert!(names(&mut upstream, "topic:emulated size:>10").contains(&"acme/widgets".to_owned()));
    assert_eq!(names(&mut upstream, "size:>100000"), [""; 0]);
    assert_eq!(names(&mut upstream, "mirror:true"), [""; 0]);
    assert_eq!(names(&mut upstream, "widgets in:name license:apache-2.0"), ["acme/widgets"]);
    upstream.pass(10);
    let sorted = upstream.get(ADA, "/search/repositories?q=org:acme&sort=stars").body;
    assert_eq!(sorted["items"][0]["full_name"], "acme/sprockets");
    for query in ["size:x", "mirror:x", "in:title", "fork:maybe", "pushed:soon"] {
        upstream.pass(10);
        upstream.get(ADA, &format!("/search/repositories?q={query}")).assert_names_field("q");
    }
}

#[test]
fn code_is_found_by_its_file_and_text() {
    let mut upstream = Upstream::new();
    let put = |upstream: &mut Upstream, path: &str, content: &str| {
        let change = json!({ "message": "add", "content": content });
        upstream.put(ADA, &on(&format!("/contents/{path}")), &change).assert_status(201);
    };
    put(&mut upstream, "src/bin/main.rs", "Zm4gbWFpbigpIHt9");
    put(&mut upstream, "setup.py", "bWFpbigp");
    assert_eq!(paths(&mut upstream, "main"), ["setup.py", "src/bin/main.rs"]);
    assert_eq!(paths(&mut upstream, "main language:rust"), ["src/bin/main.rs"]);
    assert_eq!(paths(&mut upstream, "extension:py"), ["setup.py"]);
    assert_eq!(paths(&mut upstream, "filename:main.rs"), ["src/bin/main.rs"]);
    assert_eq!(paths(&mut upstream, "path:src"), ["src/bin/main.rs"]);
    assert_eq!(paths(&mut upstream, "main path:/"), ["setup.py"]);
    assert_eq!(paths(&mut upstream, "bin in:path"), ["src/bin/main.rs"]);
    assert_eq!(paths(&mut upstream, "main size:>10"), ["src/bin/main.rs"]);
    assert_eq!(paths(&mut upstream, "main fork:only"), [""; 0]);
    let found = search(&mut upstream, "code", "main repo:acme/widgets extension:py");
    let url = found[0]["url"].as_str().expect("an address").replace("http://upstream.test", "");
    assert_eq!(upstream.get(ADA, &url).assert_status(200).body["sha"], found[0]["sha"]);
    for query in ["in:title", "size:x", "fork:x"] {
        upstream.pass(10);
        upstream.get(ADA, &format!("/search/code?q={query}")).assert_names_field("q");
    }
}

#[test]
fn commits_are_found_by_people_and_time() {
    let mut upstream = Upstream::new();
    let change = json!({ "message": "a remarkable change", "content": "eA==" });
    let made = upstream.put(BEN, &on("/contents/more.txt"), &change).assert_status(201).body;
    let sha = made["commit"]["sha"].as_str().expect("a commit").to_owned();
    for query in [
        "remarkable".to_owned(),
        "repo:acme/widgets author:ben".to_owned(),
        "repo:acme/widgets committer-date:>2027-01-01".to_owned(),
        format!("hash:{sha}"),
    ] {
        let found = search(&mut upstream, "commits", &query);
        assert_eq!((found.len(), &found[0]["sha"]), (1, &json!(sha)), "{query}");
    }
    assert!(search(&mut upstream, "commits", "merge:true").is_empty());
}
