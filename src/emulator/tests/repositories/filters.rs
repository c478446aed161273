//! Tests the parameters that choose among issues, pull requests, commits and repositories, and
//! order them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::emulator::tests::*;

fn on(path: &str) -> String {
    format!("/repos/acme/widgets{path}")
}

fn numbers(upstream: &mut Upstream, path: &str) -> Vec<u64> {
    let found = upstream.get(ADA, &on(path)).assert_status(200);
    found.items().iter().filter_map(|item| item["number"].as_u64()).collect()
}

fn set(numbers: &[u64]) -> BTreeSet<u64> {
    numbers.iter().copied().collect()
}

fn names(upstream: &mut Upstream, path: &str) -> Vec<String> {
    let found = upstream.get(ADA, path).assert_status(200);
    let names = found.items().iter().filter_map(|item| item["name"].as_str());
    names.map(str::to_owned).collect()
}

#[test]
fn issues_are_filtered_by_milestone_assignee_and_mention() {
    let mut upstream = Upstream::new();
    let change = json!({ "assignees": ["ben"], "body": "ask @cleo" });
    upstream.patch(ADA, &on("/issues/3"), &change).assert_status(200);
    assert_eq!(numbers(&mut upstream, "/issues?milestone=1"), [1]);
    assert_eq!(numbers(&mut upstream, "/issues?milestone=*"), [1]);
    assert_eq!(numbers(&mut upstream, "/issues?assignee=ben"), [3]);
    assert_eq!(numbers(&mut upstream, "/issues?assignee=*"), [3]);
    assert_eq!(numbers(&mut upstream, "/issues?mentioned=cleo"), [3]);
    let all = set(&numbers(&mut upstream, "/issues?per_page=100"));
    for (query, number) in [("milestone=none", 1), ("assignee=none", 3)] {
        let others = numbers(&mut upstream, &format!("/issues?per_page=100&{query}"));
        assert_eq!(&all - &set(&others), set(&[number]), "{query}");
    }
    assert!(numbers(&mut upstream, "/issues?assignee=nobody-at-all").is_empty());
    let wrong = upstream.get(ADA, &on("/issues?milestone=first"));
    wrong.assert_names_field("milestone");
}

#[test]
fn pull_requests_are_filtered_by_head_and_base() {
    let mut upstream = Upstream::new();
    crate::emulator::tests::repositories::propose(&mut upstream, "release");
    let change = json!({ "base": "release" });
    upstream.patch(ADA, &on("/pulls/77"), &change).assert_status(200);
    assert_eq!(numbers(&mut upstream, "/pulls?base=release"), [77]);
    assert_eq!(set(&numbers(&mut upstream, "/pulls?base=main")), set(&[76, 78, 79]));
    assert_eq!(numbers(&mut upstream, "/pulls?head=acme:topic-78"), [78]);
    assert_eq!(numbers(&mut upstream, "/pulls?head=topic-78"), [78]);
    assert!(numbers(&mut upstream, "/pulls?head=ben:topic-78").is_empty());
}

#[test]
fn pull_requests_are_sorted_and_directed() {
    let mut upstream = Upstream::new();
    upstream.post(BEN, &on("/issues/77/comments"), &json!({ "body": "yes" })).assert_status(201);
    assert_eq!(numbers(&mut upstream, "/pulls"), [79, 78, 77, 76]);
    assert_eq!(numbers(&mut upstream, "/pulls?direction=asc"), [76, 77, 78, 79]);
    assert_eq!(numbers(&mut upstream, "/pulls?sort=created"), [79, 78, 77, 76]);
    // Another order than that of creation begins with the least.
    for sort in ["updated", "popularity", "long-running"] {
        let path = format!("/pulls?sort={sort}");
        let down = numbers(&mut upstream, &format!("{path}&direction=desc"));
        let mut up = numbers(&mut upstream, &path);
        up.reverse();
        assert_eq!(up, down, "{sort}");
        assert_eq!(down[0], 77, "{sort}");
    }
    upstream.get(ADA, &on("/pulls?sort=comments")).assert_names_field("sort");
}

#[test]
fn milestones_have_a_state_and_an_order() {
    let mut upstream = Upstream::new();
    let second = json!({ "title": "Second" });
    upstream.post(ADA, &on("/milestones"), &second).assert_status(201);
    let third = json!({ "title": "Third", "state": "closed" });
    upstream.post(ADA, &on("/milestones"), &third).assert_status(201);
    upstream.patch(ADA, &on("/issues/7"), &json!({ "milestone": 2 })).assert_status(200);
    assert_eq!(numbers(&mut upstream, "/milestones"), [1, 2]);
    assert_eq!(numbers(&mut upstream, "/milestones?state=closed"), [3]);
    assert_eq!(numbers(&mut upstream, "/milestones?state=all&direction=desc"), [3, 2, 1]);
    assert_eq!(numbers(&mut upstream, "/milestones?sort=completeness&direction=desc"), [2, 1]);
    for name in ["state", "sort", "direction"] {
        let wrong = upstream.get(ADA, &on(&format!("/milestones?{name}=x")));
        wrong.assert_names_field(name);
    }
}

#[test]
fn comments_are_cut_by_time_and_sorted() {
    let mut upstream = Upstream::new();
    let made = upstream.post(BEN, &on("/issues/1/comments"), &json!({ "body": "late" })).body;
    let since = made["created_at"].as_str().expect("a time").to_owned();
    for path in ["/issues/1/comments", "/issues/comments"] {
        let late = upstream.get(ADA, &on(&format!("{path}?since={since}"))).assert_status(200);
        assert_eq!((late.items().len(), &late.items()[0]["id"]), (1, &made["id"]), "{path}");
        upstream.get(ADA, &on(&format!("{path}?since=x"))).assert_names_field("since");
    }
    let newest = on("/issues/comments?sort=updated&direction=desc");
    assert_eq!(upstream.get(ADA, &newest).items()[0]["id"], made["id"]);
    upstream.get(ADA, &on("/issues/comments?sort=x")).assert_names_field("sort");
}

#[test]
fn commits_are_filtered_by_people_and_time() {
    let mut upstream = Upstream::new();
    let change = json!({ "message": "more", "content": "eA==" });
    let made = upstream.put(BEN, &on("/contents/more.txt"), &change).assert_status(201).body;
    let sha = &made["commit"]["sha"];
    let shas = |upstream: &mut Upstream, query: &str| -> Vec<Value> {
        let found = upstream.get(ADA, &on(&format!("/commits?{query}"))).assert_status(200);
        found.items().iter().map(|one| one["sha"].clone()).collect()
    };
    let all = shas(&mut upstream, "");
    assert_eq!((all.len(), &all[0]), (2, sha));
    for query in
        ["author=ben", "author=ben@example.com", "committer=ben", "since=2027-01-01T00:00:00Z"]
    {
        assert_eq!(shas(&mut upstream, query), all[..1], "{query}");
    }
    assert_eq!(shas(&mut upstream, "until=2027-01-01T00:00:00Z"), all[1..]);
    assert!(shas(&mut upstream, "author=nobody-at-all").is_empty());
    upstream.get(ADA, &on("/commits?since=x")).assert_names_field("since");
}

#[test]
fn repositories_are_filtered_and_sorted() {
    let mut upstream = Upstream::new();
    let private = names(&mut upstream, "/orgs/acme/repos?type=private");
    assert!(private.contains(&"gadgets".to_owned()) && !private.contains(&"widgets".to_owned()));
    let all = names(&mut upstream, "/orgs/acme/repos?per_page=100");
    let public = names(&mut upstream, "/orgs/acme/repos?type=public&per_page=100");
    assert_eq!(private.len() + public.len(), all.len());
    assert!(names(&mut upstream, "/orgs/acme/repos?type=forks").is_empty());
    for path in ["/orgs/acme/repos", "/user/repos", "/users/acme/repos"] {
        let sorted =
            names(&mut upstream, &format!("{path}?sort=full_name&direction=desc&per_page=100"));
        let mut own: Vec<&String> = sorted.iter().collect();
        own.dedup();
        let up = names(&mut upstream, &format!("{path}?sort=full_name&per_page=100"));
        assert!(up.iter().eq(sorted.iter().rev()) && !up.is_empty(), "{path}");
        upstream.get(ADA, &format!("{path}?sort=x")).assert_names_field("sort");
    }
    let owned = names(&mut upstream, "/user/repos?affiliation=owner&sort=full_name");
    assert_eq!(owned, ["diary", "dotfiles"]);
    assert_eq!(names(&mut upstream, "/user/repos?affiliation=owner&visibility=private"), ["diary"]);
    let both = upstream.get(ADA, "/user/repos?affiliation=owner&type=all");
    both.assert_names_field("type");
    upstream.pass(3600);
    upstream.patch(ADA, "/repos/acme/gadgets", &json!({ "description": "new" })).assert_status(200);
    let newest = names(&mut upstream, "/orgs/acme/repos?sort=updated");
    assert_eq!(newest[0], "gadgets");
}

#[test]
fn collaborators_are_filtered_by_permission() {
    let mut upstream = Upstream::new();
    let logins = |upstream: &mut Upstream, query: &str| -> BTreeSet<String> {
        let path = on(&format!("/collaborators?per_page=100&{query}"));
        let found = upstream.get(ADA, &path).assert_status(200);
        let logins = found.items().iter().filter_map(|one| one["login"].as_str());
        logins.map(str::to_owned).collect()
    };
    let all = logins(&mut upstream, "");
    assert_eq!(logins(&mut upstream, "permission=pull"), all);
    let admins = logins(&mut upstream, "permission=admin");
    assert!(admins.contains("ada") && admins.len() < all.len(), "{admins:?}");
    upstream.get(ADA, &on("/collaborators?permission=x")).assert_names_field("permission");
}

#[test]
fn forks_are_listed_newest_first_unless_sorted() {
    let mut upstream = Upstream::new();
    for (token, login) in [(BEN, "ben"), (DAN, "dan")] {
        upstream.pass(60);
        upstream.post(token, &on("/forks"), &json!({ "name": login })).assert_status(202);
    }
    upstream.put(ADA, "/user/starred/ben/ben", &Value::Null).assert_status(204);
    assert_eq!(names(&mut upstream, &on("/forks")), ["dan", "ben"]);
    assert_eq!(names(&mut upstream, &on("/forks?sort=oldest")), ["ben", "dan"]);
    assert_eq!(names(&mut upstream, &on("/forks?sort=stargazers")), ["ben", "dan"]);
    upstream.get(ADA, &on("/forks?sort=x")).assert_names_field("sort");
}
