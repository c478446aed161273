//! Tests the mutations of pull requests and labels, automatic merges, and what `gh` and Renovate
//! ask about them.

use serde_json::{Value, json};

use crate::emulator::tests::*;

fn on(path: &str) -> String {
    format!("/repos/acme/widgets{path}")
}

/// Sends a mutation with its input; returns its payload.
fn mutate(upstream: &mut Upstream, token: &str, name: &str, input: &Value) -> Value {
    let answer = send(upstream, token, name, input);
    assert!(answer.get("errors").is_none(), "{answer}");
    answer["data"][name].clone()
}

fn send(upstream: &mut Upstream, token: &str, name: &str, input: &Value) -> Value {
    let kind = format!("{}{}Input", name[..1].to_uppercase(), &name[1..]);
    let of = if name.ends_with("Labelable") { "labelable { __typename }" } else { FIELDS };
    let query = format!("mutation M($input: {kind}!) {{ {name}(input: $input) {{ {of} }} }}");
    upstream.pass(5);
    upstream.query_with(token, &query, &json!({ "input": input }))
}

const FIELDS: &str = "pullRequest { id number state isDraft title baseRefName mergeStateStatus reviewDecision autoMergeRequest { mergeMethod enabledBy { login } } }";

fn pull_of(upstream: &mut Upstream, number: u64) -> Value {
    let query = format!(
        "{{ repository(owner: \"acme\", name: \"widgets\") {{ {} }} }}",
        FIELDS.replace("pullRequest", &format!("pullRequest(number: {number})"))
    );
    upstream.query_with(ADA, &query, &json!({}))["data"]["repository"]["pullRequest"].clone()
}

/// Opens a pull request from a new branch as `gh pr create` does; returns id, number and head.
fn open(upstream: &mut Upstream, branch: &str) -> (Value, u64, String) {
    crate::emulator::tests::repositories::propose(upstream, branch);
    let repository = upstream.get(ADA, "/repos/acme/widgets").body["node_id"].clone();
    let input = json!({ "repositoryId": repository, "baseRefName": "main", "headRefName": branch, "title": "By mutation", "body": "B", "draft": false, "maintainerCanModify": true });
    let made = mutate(upstream, BEN, "createPullRequest", &input)["pullRequest"].clone();
    let number = made["number"].as_u64().expect("a number");
    let pull = upstream.get(ADA, &on(&format!("/pulls/{number}"))).body;
    (made["id"].clone(), number, pull["head"]["sha"].as_str().expect("a commit").to_owned())
}

fn protect(upstream: &mut Upstream) {
    let protection = json!({ "required_status_checks": { "strict": true, "contexts": ["ci"] }, "required_pull_request_reviews": null, "enforce_admins": null, "restrictions": null });
    upstream.put(ADA, &on("/branches/main/protection"), &protection).assert_status(200);
    let allowed = json!({ "allow_auto_merge": true });
    upstream.patch(ADA, "/repos/acme/widgets", &allowed).assert_status(200);
}

fn report(upstream: &mut Upstream, sha: &str, context: &str, state: &str) {
    let status = json!({ "state": state, "context": context });
    upstream.post(ADA, &on(&format!("/statuses/{sha}")), &status).assert_status(201);
}

#[test]
fn a_pull_request_goes_its_way_by_mutations() {
    let mut upstream = Upstream::new();
    let (id, number, sha) = open(&mut upstream, "topic");
    let own = on(&format!("/pulls/{number}"));
    let by_id = json!({ "pullRequestId": id });
    let change = json!({ "pullRequestId": id, "title": "New title", "milestoneId": null });
    let changed = mutate(&mut upstream, BEN, "updatePullRequest", &change);
    assert_eq!(changed["pullRequest"]["title"], "New title");
    let draft = mutate(&mut upstream, BEN, "convertPullRequestToDraft", &by_id);
    assert_eq!(draft["pullRequest"]["isDraft"], true);
    assert_eq!(draft["pullRequest"]["mergeStateStatus"], "DRAFT");
    let refused = send(&mut upstream, ADA, "mergePullRequest", &by_id);
    assert_eq!(refused["errors"][0]["type"], "UNPROCESSABLE", "{refused}");
    mutate(&mut upstream, BEN, "markPullRequestReadyForReview", &by_id);
    let closed = mutate(&mut upstream, BEN, "closePullRequest", &by_id);
    assert_eq!(closed["pullRequest"]["state"], "CLOSED");
    let open = mutate(&mut upstream, BEN, "reopenPullRequest", &by_id);
    assert_eq!(open["pullRequest"]["state"], "OPEN");
    let wrong = json!({ "pullRequestId": id, "expectedHeadOid": "0".repeat(40) });
    let refused = send(&mut upstream, ADA, "mergePullRequest", &wrong);
    assert_eq!(refused["errors"][0]["type"], "UNPROCESSABLE", "{refused}");
    let right = json!({ "pullRequestId": id, "expectedHeadOid": sha, "mergeMethod": "SQUASH", "commitHeadline": "All of it" });
    let outsider = send(&mut upstream, DAN, "mergePullRequest", &right);
    assert_eq!(outsider["errors"][0]["type"], "FORBIDDEN", "{outsider}");
    let merged = mutate(&mut upstream, ADA, "mergePullRequest", &right);
    assert_eq!(merged["pullRequest"]["state"], "MERGED");
    let head = upstream.get(ADA, &on("/commits/main")).body;
    assert_eq!(head["commit"]["message"], "All of it");
    assert_eq!(upstream.get(ADA, &own).body["merged"], true);
    let refused = send(&mut upstream, ADA, "reopenPullRequest", &by_id);
    assert_eq!(refused["errors"][0]["type"], "UNPROCESSABLE", "{refused}");
}

#[test]
fn labels_are_added_and_removed_by_mutations() {
    let mut upstream = Upstream::new();
    let bug = upstream.get(ADA, &on("/labels/bug")).body["node_id"].clone();
    for number in [3, 77] {
        let own = on(&format!("/issues/{number}"));
        let before = upstream.get(ADA, &own).body;
        let kept = before["labels"].as_array().expect("labels").clone();
        let kept: Vec<&Value> =
            kept.iter().map(|label| &label["name"]).filter(|name| *name != "bug").collect();
        let input = json!({ "labelableId": before["node_id"], "labelIds": [bug] });
        for _ in 0..2 {
            mutate(&mut upstream, ADA, "addLabelsToLabelable", &input);
        }
        let labels = upstream.get(ADA, &own).body["labels"].clone();
        let names: Vec<&Value> =
            labels.as_array().expect("labels").iter().map(|label| &label["name"]).collect();
        assert_eq!(names.iter().filter(|name| ***name == "bug").count(), 1, "{names:?}");
        assert_eq!(names.len(), kept.len() + 1);
        let outsider = send(&mut upstream, DAN, "addLabelsToLabelable", &input);
        assert_eq!(outsider["errors"][0]["type"], "FORBIDDEN", "{outsider}");
        mutate(&mut upstream, ADA, "removeLabelsFromLabelable", &input);
        assert_eq!(
            upstream.get(ADA, &own).body["labels"].as_array().map(Vec::len),
            Some(kept.len())
        );
    }
}

#[test]
fn an_automatic_merge_waits_for_the_required_check() {
    let mut upstream = Upstream::new();
    let (id, number, sha) = open(&mut upstream, "topic");
    let own = on(&format!("/pulls/{number}"));
    let input = json!({ "pullRequestId": id, "mergeMethod": "SQUASH" });
    let refused = send(&mut upstream, ADA, "enablePullRequestAutoMerge", &input);
    assert!(refused["errors"][0]["message"].as_str().unwrap_or("").contains("not allowed"));
    let allowed = json!({ "allow_auto_merge": true });
    upstream.patch(ADA, "/repos/acme/widgets", &allowed).assert_status(200);
    let refused = send(&mut upstream, ADA, "enablePullRequestAutoMerge", &input);
    assert!(refused["errors"][0]["message"].as_str().unwrap_or("").contains("clean status"));
    protect(&mut upstream);
    assert_eq!(pull_of(&mut upstream, number)["mergeStateStatus"], "BLOCKED");
    let enabled = mutate(&mut upstream, ADA, "enablePullRequestAutoMerge", &input);
    let expected = json!({ "mergeMethod": "SQUASH", "enabledBy": { "login": "ada" } });
    assert_eq!(enabled["pullRequest"]["autoMergeRequest"], expected);
    assert_eq!(upstream.get(ADA, &own).body["auto_merge"]["merge_method"], "squash");
    report(&mut upstream, &sha, "other", "success");
    report(&mut upstream, &sha, "ci", "pending");
    assert_eq!(upstream.get(ADA, &own).body["merged"], false);
    report(&mut upstream, &sha, "ci", "success");
    let merged = upstream.get(ADA, &own).body;
    assert_eq!((&merged["merged"], &merged["merged_by"]["login"]), (&json!(true), &json!("ada")));
    assert_eq!(merged["auto_merge"], Value::Null);
}

#[test]
fn a_disabled_automatic_merge_does_not_happen() {
    let mut upstream = Upstream::new();
    protect(&mut upstream);
    let (id, number, sha) = open(&mut upstream, "topic");
    let input = json!({ "pullRequestId": id });
    mutate(&mut upstream, ADA, "enablePullRequestAutoMerge", &input);
    mutate(&mut upstream, ADA, "disablePullRequestAutoMerge", &input);
    let refused = send(&mut upstream, ADA, "disablePullRequestAutoMerge", &input);
    assert_eq!(refused["errors"][0]["type"], "UNPROCESSABLE", "{refused}");
    report(&mut upstream, &sha, "ci", "success");
    let pull = pull_of(&mut upstream, number);
    assert_eq!((&pull["state"], &pull["mergeStateStatus"]), (&json!("OPEN"), &json!("CLEAN")));
}

#[test]
fn reviews_are_requested_by_mutation() {
    let mut upstream = Upstream::new();
    let (id, number, _) = open(&mut upstream, "topic");
    let path = on(&format!("/pulls/{number}/requested_reviewers"));
    let user = |upstream: &mut Upstream, login: &str| {
        upstream.get(ADA, &format!("/users/{login}")).body["node_id"].clone()
    };
    let (ada, cleo) = (user(&mut upstream, "ada"), user(&mut upstream, "cleo"));
    let team = upstream.get(ADA, "/orgs/acme/teams/platform").body["node_id"].clone();
    let input = json!({ "pullRequestId": id, "userIds": [cleo], "teamIds": [team] });
    mutate(&mut upstream, ADA, "requestReviews", &input);
    let input = json!({ "pullRequestId": id, "userIds": [ada], "union": true });
    mutate(&mut upstream, ADA, "requestReviews", &input);
    let asked = upstream.get(ADA, &path).body;
    assert_eq!(asked["users"].as_array().map(Vec::len), Some(2), "{asked}");
    assert_eq!(asked["teams"][0]["slug"], "platform");
    mutate(&mut upstream, ADA, "requestReviews", &json!({ "pullRequestId": id, "userIds": [ada] }));
    let asked = upstream.get(ADA, &path).body;
    assert_eq!((asked["users"].as_array().map(Vec::len), &asked["teams"]), (Some(1), &json!([])));
}

#[test]
fn the_checks_of_a_pull_request_are_listed() {
    let mut upstream = Upstream::new();
    protect(&mut upstream);
    let (id, _, sha) = open(&mut upstream, "topic");
    let query = "query PullRequestStatusChecks($id: ID!, $endCursor: String) { node(id: $id) { ...on PullRequest { baseRef { name branchProtectionRule { requiresStrictStatusChecks } } statusCheckRollup: commits(last: 1) {nodes {commit {statusCheckRollup {state contexts(first:100,after:$endCursor) {nodes {__typename...on StatusContext {context,state,targetUrl,createdAt,isRequired(pullRequestId: $id)},...on CheckRun {name,checkSuite{workflowRun{workflow{name}}},status,conclusion,startedAt,completedAt,detailsUrl,isRequired(pullRequestId: $id)}},pageInfo{hasNextPage,endCursor}}}}}} } } }";
    let ask = |upstream: &mut Upstream| {
        let answer = upstream.query_with(ADA, query, &json!({ "id": id }));
        assert!(answer.get("errors").is_none(), "{answer}");
        answer["data"]["node"].clone()
    };
    let node = ask(&mut upstream);
    assert_eq!(node["baseRef"]["branchProtectionRule"]["requiresStrictStatusChecks"], true);
    let commit = &node["statusCheckRollup"]["nodes"][0]["commit"];
    assert_eq!(commit["statusCheckRollup"], Value::Null);
    report(&mut upstream, &sha, "ci", "success");
    let check = json!({ "name": "lint", "head_sha": sha, "status": "in_progress" });
    upstream.post(INSTALLATION, &on("/check-runs"), &check).assert_status(201);
    let node = ask(&mut upstream);
    let rollup = &node["statusCheckRollup"]["nodes"][0]["commit"]["statusCheckRollup"];
    assert_eq!(rollup["state"], "PENDING");
    let contexts = &rollup["contexts"]["nodes"];
    assert_eq!((&contexts[0]["context"], &contexts[0]["isRequired"]), (&json!("ci"), &json!(true)));
    assert_eq!((&contexts[1]["name"], &contexts[1]["isRequired"]), (&json!("lint"), &json!(false)));
    assert_eq!(contexts[1]["status"], "IN_PROGRESS");
    assert_eq!(contexts[1]["checkSuite"]["workflowRun"], Value::Null);
}

#[test]
fn repositories_are_listed_as_gh_repo_list_asks() {
    let mut upstream = Upstream::new();
    let query = "query RepositoryList($perPage:Int!,$endCursor:String,$privacy:RepositoryPrivacy,$fork:Boolean,$owner:String!) { repositoryOwner(login: $owner) { login repositories(first: $perPage, after: $endCursor, privacy: $privacy, isFork: $fork, ownerAffiliations: OWNER, orderBy: { field: PUSHED_AT, direction: DESC }) { nodes{nameWithOwner,pushedAt,isPrivate} totalCount pageInfo{hasNextPage,endCursor} } } }";
    let change = json!({ "message": "more", "content": "eA==" });
    upstream.put(ADA, "/repos/acme/sprockets/contents/x", &change).assert_status(201);
    let ask = |upstream: &mut Upstream, more: Value| {
        let mut variables = json!({ "owner": "acme", "perPage": 100 });
        crate::emulator::render::extend(&mut variables, more);
        let answer = upstream.query_with(ADA, query, &variables);
        assert!(answer.get("errors").is_none(), "{answer}");
        answer["data"]["repositoryOwner"]["repositories"].clone()
    };
    let all = ask(&mut upstream, json!({}));
    assert_eq!(all["nodes"][0]["nameWithOwner"], "acme/sprockets");
    let private = ask(&mut upstream, json!({ "privacy": "PRIVATE" }));
    let nodes = private["nodes"].as_array().expect("nodes");
    assert!(!nodes.is_empty() && nodes.iter().all(|one| one["isPrivate"] == true));
    assert!(private["totalCount"].as_u64() < all["totalCount"].as_u64());
    assert_eq!(ask(&mut upstream, json!({ "fork": true }))["totalCount"], 0);
    let search = "{ search(type: REPOSITORY, query: \"user:acme archived:false sort:updated-desc\", first: 1) { repositoryCount nodes { ... on Repository { nameWithOwner } } } }";
    let found = upstream.query_with(ADA, search, &json!({}))["data"]["search"].clone();
    assert_eq!(found["nodes"][0]["nameWithOwner"], "acme/sprockets", "{found}");
    assert_eq!(found["repositoryCount"], all["totalCount"]);
}

#[test]
fn renovate_finds_no_vulnerability_alerts() {
    let mut upstream = Upstream::new();
    let query = "query($owner: String!, $name: String!) { repository(owner: $owner, name: $name) { vulnerabilityAlerts(last: 100, states: [OPEN]) { edges { node { dismissReason vulnerableManifestFilename vulnerableManifestPath vulnerableRequirements securityAdvisory { description identifiers { type value } references { url } severity } securityVulnerability { package { name ecosystem } firstPatchedVersion { identifier } vulnerableVersionRange } } } } } }";
    let variables = json!({ "owner": "acme", "name": "widgets" });
    let answer = upstream.query_with(ADA, query, &variables);
    assert_eq!(answer["data"]["repository"]["vulnerabilityAlerts"]["edges"], json!([]), "{answer}");
}
