//! Tests the queries that `gh` and Renovate send, as they send them.

use serde_json::{Value, json};

use crate::emulator::tests::*;

fn data(upstream: &mut Upstream, query: &str, variables: &Value) -> Value {
    let answer = upstream.query_with(ADA, query, variables);
    assert!(answer.get("errors").is_none(), "{answer}");
    answer["data"]["repository"].clone()
}

fn widgets(more: &Value) -> Value {
    let mut variables = json!({ "owner": "acme", "repo": "widgets", "name": "widgets" });
    for (name, value) in more.as_object().expect("an object") {
        variables[name] = value.clone();
    }
    variables
}

const COMMENT: &str = "id,author{login,...on User{id,name}},authorAssociation,body,createdAt,includesCreatedEdit,isMinimized,minimizedReason,reactionGroups{content,users{totalCount}},url,viewerDidAuthor";
const COMMON: &str = "number,url,state,createdAt,title,body,author{login,...on User{id,name}},milestone{number,title,description,dueOn},assignees(first:100){nodes{id,login,name,databaseId},totalCount},labels(first:100){nodes{id,name,description,color},totalCount},reactionGroups{content,users{totalCount}},projectCards(first:100){nodes{project{name}column{name}},totalCount},projectItems(first:100){nodes{id,project{id,title},status:fieldValueByName(name:\"Status\"){...on ProjectV2ItemFieldSingleSelectValue{optionId,name}}},totalCount}";

#[test]
fn gh_issue_list_finds_the_newest_open_issues() {
    let mut upstream = Upstream::new();
    let query = "fragment issue on Issue {number,title,url,state,updatedAt,labels(first:100){nodes{id,name,description,color},totalCount}}
        query IssueList($owner: String!, $repo: String!, $limit: Int, $endCursor: String, $states: [IssueState!] = OPEN, $assignee: String, $author: String, $mention: String) {
            repository(owner: $owner, name: $repo) {
                hasIssuesEnabled
                issues(first: $limit, after: $endCursor, orderBy: {field: CREATED_AT, direction: DESC}, states: $states, filterBy: {assignee: $assignee, createdBy: $author, mentioned: $mention}) {
                    totalCount
                    nodes { ...issue }
                    pageInfo { hasNextPage endCursor }
                }
            }
        }";
    let first = data(&mut upstream, query, &widgets(&json!({ "limit": 30 })));
    assert_eq!(
        (&first["hasIssuesEnabled"], &first["issues"]["totalCount"]),
        (&json!(true), &json!(65))
    );
    assert_eq!(first["issues"]["nodes"][0]["number"], 75);
    let cursor = &first["issues"]["pageInfo"]["endCursor"];
    let second = data(&mut upstream, query, &widgets(&json!({ "limit": 30, "endCursor": cursor })));
    assert!(
        second["issues"]["nodes"][0]["number"].as_u64()
            < first["issues"]["nodes"][29]["number"].as_u64()
    );
    upstream
        .post(
            BEN,
            "/repos/acme/widgets/issues",
            &json!({ "title": "For @cleo", "assignees": ["ada"] }),
        )
        .assert_status(201);
    for (filter, login) in [("assignee", "ada"), ("mention", "cleo")] {
        let found = data(&mut upstream, query, &widgets(&json!({ "limit": 1, filter: login })));
        assert_eq!(found["issues"]["totalCount"], 1, "{filter}");
    }
}

#[test]
fn gh_issue_list_searches_when_it_filters_by_label() {
    let mut upstream = Upstream::new();
    let query = "fragment issue on Issue {number,title}
        query IssueSearch($repo: String!, $owner: String!, $type: SearchType!, $limit: Int, $after: String, $query: String!) {
            repository(name: $repo, owner: $owner) { hasIssuesEnabled }
            search(type: $type, first: $limit, after: $after, query: $query) {
                issueCount
                nodes { ...issue }
                pageInfo { hasNextPage endCursor }
            }
        }";
    let mut seen = Vec::new();
    let mut after = Value::Null;
    loop {
        let variables = widgets(
            &json!({ "type": "ISSUE", "limit": 1, "after": after, "query": "label:bug repo:acme/widgets state:open type:issue" }),
        );
        let answer = upstream.query_with(ADA, query, &variables);
        let search = answer["data"]["search"].clone();
        assert!(answer.get("errors").is_none(), "{answer}");
        seen.extend(search["nodes"][0]["number"].as_u64());
        after = search["pageInfo"]["endCursor"].clone();
        if search["pageInfo"]["hasNextPage"] == false {
            assert_eq!(search["issueCount"], seen.len());
            break;
        }
    }
    let listed =
        upstream.get(ADA, "/repos/acme/widgets/issues?labels=bug&per_page=100&direction=asc");
    let listed = listed.items().iter().filter(|issue| issue.get("pull_request").is_none());
    let listed: Vec<u64> = listed.filter_map(|issue| issue["number"].as_u64()).collect();
    assert_eq!(seen, listed);
    let wrong = widgets(&json!({ "type": "ISSUE", "limit": 1, "query": "colour:red" }));
    assert_eq!(upstream.query_with(ADA, query, &wrong)["errors"][0]["type"], "UNPROCESSABLE");
}

#[test]
fn gh_issue_view_and_pr_view_get_their_fields() {
    let mut upstream = Upstream::new();
    let last = format!("comments(last:1){{nodes{{{COMMENT}}},totalCount}}");
    let of_pull = format!(
        "{COMMON},{last},isDraft,maintainerCanModify,mergeable,additions,deletions,changedFiles,commitsCount:commits{{totalCount}},baseRefName,headRefName,headRepositoryOwner{{id,login,...on User{{name}}}},headRepository{{id,name}},isCrossRepository,autoMergeRequest{{authorEmail,commitBody,commitHeadline,mergeMethod,enabledAt,enabledBy{{login,...on User{{id,name}}}}}},reviewRequests(first:100){{nodes{{requestedReviewer{{__typename,...on User{{login}},...on Team{{organization{{login}},name,slug}}}}}}}},reviews(first:100){{nodes{{id,author{{login}},authorAssociation,submittedAt,body,state,commit{{oid}},reactionGroups{{content,users{{totalCount}}}}}},pageInfo{{hasNextPage,endCursor}},totalCount}},statusCheckRollup:commits(last:1){{nodes{{commit{{statusCheckRollup{{contexts(first:100){{nodes{{__typename,...on StatusContext{{context,state,targetUrl,createdAt,description}},...on CheckRun{{name,checkSuite{{workflowRun{{event,workflow{{name}}}}}},status,conclusion,startedAt,completedAt,detailsUrl}}}},pageInfo{{hasNextPage,endCursor}}}}}}}}}}}}"
    );
    let query = format!(
        "query IssueByNumber($owner: String!, $repo: String!, $number: Int!) {{ repository(owner: $owner, name: $repo) {{ hasIssuesEnabled issue: issueOrPullRequest(number: $number) {{ __typename ...on Issue{{{COMMON},{last},stateReason}} ...on PullRequest{{{COMMON},{last}}} }} }} }}"
    );
    let issue = data(&mut upstream, &query, &widgets(&json!({ "number": 1 })))["issue"].clone();
    assert_eq!(
        (&issue["__typename"], &issue["milestone"]["title"], &issue["comments"]["totalCount"]),
        (&json!("Issue"), &json!("First release"), &json!(45))
    );
    assert_eq!(issue["reactionGroups"].as_array().map(Vec::len), Some(8));
    let reviewers = json!({ "reviewers": ["cleo"] });
    upstream
        .post(ADA, "/repos/acme/widgets/pulls/76/requested_reviewers", &reviewers)
        .assert_status(201);
    let query = format!(
        "query PullRequestByNumber($owner: String!, $repo: String!, $pr_number: Int!) {{ repository(owner: $owner, name: $repo) {{ pullRequest(number: $pr_number) {{{of_pull}}} }} }}"
    );
    let pull = data(&mut upstream, &query, &widgets(&json!({ "pr_number": 76 })));
    let pull = &pull["pullRequest"];
    assert_eq!(
        (&pull["headRefName"], &pull["baseRefName"], &pull["headRepositoryOwner"]["login"]),
        (&json!("topic-76"), &json!("main"), &json!("acme"))
    );
    assert_eq!(pull["reviewRequests"]["nodes"][0]["requestedReviewer"]["login"], "cleo");
}

#[test]
fn gh_issue_create_makes_an_issue_with_a_milestone() {
    let mut upstream = Upstream::new();
    let query = "fragment repo on Repository { id name owner { login } hasIssuesEnabled description hasWikiEnabled viewerPermission defaultBranchRef { name } }
        query RepositoryInfo($owner: String!, $name: String!) {
            repository(owner: $owner, name: $name) { ...repo parent { ...repo } mergeCommitAllowed rebaseMergeAllowed squashMergeAllowed }
        }";
    let repository = data(&mut upstream, query, &widgets(&json!({})));
    assert_eq!(repository["defaultBranchRef"]["name"], "main");
    let lists = "query Lists($owner: String!, $name: String!, $endCursor: String) {
            repository(owner: $owner, name: $name) {
                labels(first: 100, orderBy: {field: NAME, direction: ASC}, after: $endCursor) { nodes { id name } pageInfo { hasNextPage endCursor } }
                assignableUsers(first: 100) { nodes { id login name } pageInfo { hasNextPage endCursor } }
                milestones(states: [OPEN], first: 100) { nodes { id title } pageInfo { hasNextPage endCursor } }
                issueTemplates { name title body }
            }
        }";
    let lists = data(&mut upstream, lists, &widgets(&json!({})));
    let users = lists["assignableUsers"]["nodes"].as_array().expect("users").clone();
    let ada = users.iter().find(|user| user["login"] == "ada").expect("she may push");
    let input = json!({ "input": {
        "repositoryId": repository["id"], "title": "By gh", "body": "x", "assigneeIds": [ada["id"]],
        "labelIds": [lists["labels"]["nodes"][0]["id"]], "milestoneId": lists["milestones"]["nodes"][0]["id"],
    } });
    let create = "mutation IssueCreate($input: CreateIssueInput!) { createIssue(input: $input) { issue { id url number } } }";
    let answer = upstream.query_with(ADA, create, &input);
    let number = &answer["data"]["createIssue"]["issue"]["number"];
    let made =
        upstream.get(ADA, &format!("/repos/acme/widgets/issues/{number}")).assert_status(200);
    assert_eq!(
        (&made.body["milestone"]["number"], &made.body["assignees"][0]["login"]),
        (&json!(1), &json!("ada"))
    );
}

#[test]
fn gh_lists_pull_requests_releases_and_labels() {
    let mut upstream = Upstream::new();
    let pulls = "fragment pr on PullRequest{number,title,state,url,headRefName,headRepositoryOwner{id,login,...on User{name}},isCrossRepository,isDraft,createdAt}
        query PullRequestList($owner: String!, $repo: String!, $limit: Int!, $endCursor: String, $baseBranch: String, $headBranch: String, $state: [PullRequestState!] = OPEN) {
            repository(owner: $owner, name: $repo) {
                pullRequests(states: $state, baseRefName: $baseBranch, headRefName: $headBranch, first: $limit, after: $endCursor, orderBy: {field: CREATED_AT, direction: DESC}) {
                    totalCount nodes { ...pr } pageInfo { hasNextPage endCursor }
                }
            }
        }";
    let all = data(&mut upstream, pulls, &widgets(&json!({ "limit": 30 })));
    assert_eq!(all["pullRequests"]["totalCount"], 4);
    let one =
        data(&mut upstream, pulls, &widgets(&json!({ "limit": 30, "headBranch": "topic-77" })));
    assert_eq!(one["pullRequests"]["nodes"][0]["number"], 77);
    let releases = "query RepositoryReleaseList($name: String!, $owner: String!, $perPage: Int!, $endCursor: String, $direction: OrderDirection!) {
            repository(owner: $owner, name: $name) {
                releases(first: $perPage, orderBy: {field: CREATED_AT, direction: $direction}, after: $endCursor) {
                    nodes { name tagName isDraft isLatest isPrerelease createdAt publishedAt } pageInfo { hasNextPage endCursor }
                }
            }
        }";
    let found =
        data(&mut upstream, releases, &widgets(&json!({ "perPage": 30, "direction": "DESC" })));
    assert_eq!(found["releases"]["nodes"][0]["tagName"], "v1.0.0");
    let labels = "query LabelList($owner: String!, $repo: String!, $limit: Int!, $endCursor: String, $query: String, $orderBy: LabelOrder) {
            repository(owner: $owner, name: $repo) {
                labels(first: $limit, after: $endCursor, query: $query, orderBy: $orderBy) {
                    totalCount nodes { color createdAt description id isDefault name updatedAt url } pageInfo { hasNextPage endCursor }
                }
            }
        }";
    let order = json!({ "field": "NAME", "direction": "DESC" });
    let variables = widgets(&json!({ "limit": 30, "query": "bug", "orderBy": order }));
    let found = data(&mut upstream, labels, &variables);
    assert_eq!(
        (&found["labels"]["totalCount"], &found["labels"]["nodes"][0]["name"]),
        (&json!(1), &json!("bug"))
    );
}

#[test]
fn renovate_reads_repository_issues_releases_and_tags() {
    let mut upstream = Upstream::new();
    let info = "query($owner: String!, $name: String!, $user: String!) {
            repository(owner: $owner, name: $name) {
                id isFork parent { nameWithOwner } isArchived nameWithOwner hasIssuesEnabled autoMergeAllowed hasVulnerabilityAlertsEnabled
                mergeCommitAllowed rebaseMergeAllowed squashMergeAllowed defaultBranchRef { name target { oid } }
                issues(orderBy: {field: UPDATED_AT, direction: DESC}, filterBy: {createdBy: $user}, first: 5) { nodes { number state title body updatedAt } }
            }
        }";
    let found = data(&mut upstream, info, &widgets(&json!({ "user": "ben" })));
    assert_eq!(found["defaultBranchRef"]["target"]["oid"].as_str().map(str::len), Some(40));
    assert_eq!(found["issues"]["nodes"].as_array().map(Vec::len), Some(5));
    let releases = "query($owner: String!, $name: String!, $cursor: String, $count: Int!) {
            repository(owner: $owner, name: $name) {
                isRepoPrivate: isPrivate
                payload: releases(first: $count, after: $cursor, orderBy: {field: CREATED_AT, direction: DESC}) {
                    nodes { version: tagName releaseTimestamp: publishedAt isDraft isPrerelease url id: databaseId name description } pageInfo { hasNextPage endCursor }
                }
            }
        }";
    let found = data(&mut upstream, releases, &widgets(&json!({ "count": 100 })));
    assert_eq!(found["payload"]["nodes"][0]["version"], "v1.0.0");
    let tags = "query($owner: String!, $name: String!, $cursor: String, $count: Int!) {
            repository(owner: $owner, name: $name) {
                isRepoPrivate: isPrivate
                payload: refs(first: $count, after: $cursor, orderBy: {field: TAG_COMMIT_DATE, direction: DESC}, refPrefix: \"refs/tags/\") {
                    nodes { version: name target { type: __typename ... on Commit { oid releaseTimestamp: committedDate } ... on Tag { target { ... on Commit { oid releaseTimestamp: committedDate } } tagger { releaseTimestamp: date } } } }
                    pageInfo { hasNextPage endCursor }
                }
            }
        }";
    let found = data(&mut upstream, tags, &widgets(&json!({ "count": 100 })));
    let tag = &found["payload"]["nodes"][0];
    assert_eq!((&tag["version"], &tag["target"]["type"]), (&json!("v1.0.0"), &json!("Commit")));
}

#[test]
fn a_pull_request_shows_its_commits_files_and_merge() {
    let mut upstream = Upstream::new();
    let repository = "/repos/acme/widgets";
    let main = upstream.get(ADA, &format!("{repository}/git/ref/heads/main")).body;
    let branch = json!({ "ref": "refs/heads/change", "sha": main["object"]["sha"] });
    upstream.post(ADA, &format!("{repository}/git/refs"), &branch).assert_status(201);
    let file = json!({ "message": "Say more\n\nAnd why", "content": "eA==", "branch": "change" });
    upstream.put(ADA, &format!("{repository}/contents/more.md"), &file).assert_status(201);
    let pull = json!({ "title": "More", "head": "change", "base": "main" });
    let pull = upstream.post(ADA, &format!("{repository}/pulls"), &pull).assert_status(201).body;
    let query = "query($owner: String!, $repo: String!, $number: Int!) { repository(owner: $owner, name: $repo) { pullRequest(number: $number) {
            state mergeable mergeStateStatus mergedBy { login } mergeCommit { oid }
            commits(first: 100) { totalCount nodes { commit { messageHeadline messageBody authors(first: 100) { nodes { name email user { login } } } } } }
            files(first: 100) { nodes { path additions deletions } }
        } } }";
    let variables = widgets(&json!({ "number": pull["number"] }));
    let open = data(&mut upstream, query, &variables)["pullRequest"].clone();
    assert_eq!(
        (&open["state"], &open["mergeable"], &open["mergeStateStatus"], &open["mergedBy"]),
        (&json!("OPEN"), &json!("MERGEABLE"), &json!("CLEAN"), &Value::Null)
    );
    let commit = &open["commits"]["nodes"][0]["commit"];
    assert_eq!(
        (&open["commits"]["totalCount"], &commit["messageHeadline"], &commit["messageBody"]),
        (&json!(1), &json!("Say more"), &json!("And why"))
    );
    assert_eq!(commit["authors"]["nodes"][0]["user"]["login"], "ada");
    assert_eq!(open["files"]["nodes"][0]["path"], "more.md");
    let merge = format!("{repository}/pulls/{}/merge", pull["number"]);
    let merged = upstream.put(BEN, &merge, &json!({})).assert_status(200).body;
    let closed = data(&mut upstream, query, &variables)["pullRequest"].clone();
    assert_eq!(
        (&closed["state"], &closed["mergedBy"]["login"], &closed["mergeCommit"]["oid"]),
        (&json!("MERGED"), &json!("ben"), &merged["sha"])
    );
}
