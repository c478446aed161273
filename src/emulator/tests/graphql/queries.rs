//! Tests GraphQL over the same world as REST: queries, pages, mutations and access.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::emulator::accounts::{Level, Permissions};
use crate::emulator::tests::*;

impl Upstream {
    pub fn query(&mut self, token: &str, query: &str) -> Value {
        self.query_with(token, query, &json!({}))
    }

    pub fn query_with(&mut self, token: &str, query: &str, variables: &Value) -> Value {
        self.post(token, "/graphql", &json!({ "query": query, "variables": variables }))
            .assert_status(200)
            .body
    }

    pub fn data(&mut self, token: &str, query: &str) -> Value {
        let answer = self.query(token, query);
        assert!(answer.get("errors").is_none(), "{answer}");
        answer["data"].clone()
    }

    fn node_id(&mut self, path: &str) -> String {
        self.get(ADA, path).assert_status(200).body["node_id"]
            .as_str()
            .expect("a node id")
            .to_owned()
    }
}

fn error(answer: &Value) -> (&str, &Value) {
    (answer["errors"][0]["type"].as_str().unwrap_or(""), &answer["errors"][0]["path"])
}

#[test]
fn the_viewer_is_the_user_of_the_token() {
    let mut upstream = Upstream::new();
    assert_eq!(
        upstream.data(BEN, "{ viewer { login isViewer __typename } }")["viewer"],
        json!({ "login": "ben", "isViewer": true, "__typename": "User" })
    );
    assert_eq!(upstream.data("emu_app_user_ben", "{ viewer { login } }")["viewer"]["login"], "ben");
    assert_eq!(
        upstream.data(INSTALLATION, "{ viewer { login } }")["viewer"]["login"],
        "acme-app[bot]"
    );
}

#[test]
fn graphql_needs_a_credential_and_the_method_post() {
    let mut upstream = Upstream::new();
    let query = json!({ "query": "{ viewer { login } }" });
    upstream.post(NOBODY, "/graphql", &query).assert_status(401);
    upstream.post("wrong", "/graphql", &query).assert_status(401);
    upstream.get(ADA, "/graphql").assert_status(404);
    for path in ["/graphql", "/api/graphql", "/api/v3/graphql"] {
        assert_eq!(
            upstream.post(ADA, path, &query).assert_status(200).header("x-ratelimit-resource"),
            "graphql"
        );
    }
}

#[test]
fn aliases_fragments_variables_and_directives_are_understood() {
    let mut upstream = Upstream::new();
    let query = "
        query Both($owner: String!, $name: String = \"widgets\", $more: Boolean!) {
            one: repository(owner: $owner, name: $name) { ...Names stars: stargazerCount @include(if: $more) }
            two: repository(owner: $owner, name: \"gadgets\") { ...Names isPrivate @skip(if: $more) }
        }
        fragment Names on Repository { nameWithOwner owner { login ... on Organization { viewerCanAdminister } ...Me } } # a comment
        fragment Me on User { isViewer }";
    let answer =
        upstream.query_with(ADA, query, &json!({ "owner": "acme", "more": true, "unknown": 1 }));
    let owner = json!({ "login": "acme", "viewerCanAdminister": true });
    assert_eq!(
        answer["data"],
        json!({ "one": { "nameWithOwner": "acme/widgets", "owner": owner, "stars": 0 }, "two": { "nameWithOwner": "acme/gadgets", "owner": owner } })
    );
    let answer =
        upstream.query_with(ADA, query, &json!({ "owner": "ada", "name": "diary", "more": false }));
    assert_eq!(answer["data"]["one"]["owner"], json!({ "login": "ada", "isViewer": true }));
    assert_eq!((error(&answer).0, &answer["data"]["two"]), ("NOT_FOUND", &Value::Null));
}

#[test]
fn one_of_several_operations_is_chosen_by_its_name() {
    let mut upstream = Upstream::new();
    let query = "query A { viewer { login } } query B { organization(login: \"acme\") { login } }";
    let mut send = |name: Value| {
        upstream
            .post(ADA, "/graphql", &json!({ "query": query, "operationName": name }))
            .assert_status(200)
            .body
    };
    assert_eq!(send(json!("B"))["data"], json!({ "organization": { "login": "acme" } }));
    for name in [json!("C"), json!(null), json!("")] {
        let answer = send(name);
        assert!(
            answer["errors"][0]["message"].is_string() && answer.get("data").is_none(),
            "{answer}"
        );
    }
}

#[test]
fn graphql_shows_issues_and_pull_requests_as_rest_does() {
    let mut upstream = Upstream::new();
    let issue = upstream.get(ADA, "/repos/acme/widgets/issues/7").body;
    let found = upstream.data(ADA, "{ repository(owner: \"acme\", name: \"widgets\") { issue(number: 7) { id databaseId title body state url createdAt updatedAt closedAt author { login __typename } repository { isPrivate visibility } labels(first: 5) { nodes { name color } } } } }");
    let found = &found["repository"]["issue"];
    for (ours, theirs) in [
        ("id", "node_id"),
        ("databaseId", "id"),
        ("title", "title"),
        ("body", "body"),
        ("url", "html_url"),
        ("createdAt", "created_at"),
        ("updatedAt", "updated_at"),
        ("closedAt", "closed_at"),
    ] {
        assert_eq!(found[ours], issue[theirs], "{ours}");
    }
    assert_eq!(
        (&found["state"], &found["author"]["login"]),
        (&json!("CLOSED"), &issue["user"]["login"])
    );
    assert_eq!(found["labels"]["nodes"][0]["name"], issue["labels"][0]["name"]);
    assert_eq!(found["repository"], json!({ "isPrivate": false, "visibility": "PUBLIC" }));
    let pull = upstream.data(ADA, "{ repository(owner: \"acme\", name: \"widgets\") { pullRequest(number: 76) { number headRefName baseRefName merged state } issueOrPullRequest(number: 76) { __typename ... on PullRequest { title } } } }");
    assert_eq!(
        pull["repository"]["pullRequest"],
        json!({ "number": 76, "headRefName": "topic-76", "baseRefName": "main", "merged": false, "state": "OPEN" })
    );
    assert_eq!(
        pull["repository"]["issueOrPullRequest"],
        json!({ "__typename": "PullRequest", "title": "Change number 76" })
    );
}

#[test]
fn connections_lead_through_all_pages_in_both_directions() {
    let mut upstream = Upstream::new();
    let query = "query ($first: Int, $after: String, $last: Int, $before: String) { repository(owner: \"acme\", name: \"widgets\") {
        issues(first: $first, after: $after, last: $last, before: $before) { totalCount nodes { number } edges { cursor node { number } } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } } } }";
    let mut page = |variables: Value| {
        upstream.query_with(ADA, query, &variables)["data"]["repository"]["issues"].clone()
    };
    let numbers = |page: &Value| {
        page["nodes"]
            .as_array()
            .expect("nodes")
            .iter()
            .filter_map(|node| node["number"].as_u64())
            .collect::<Vec<_>>()
    };
    let (mut seen, mut after) = (Vec::new(), Value::Null);
    loop {
        let page = page(json!({ "first": 30, "after": after }));
        assert_eq!(
            (&page["totalCount"], &page["edges"][0]["node"]["number"]),
            (&json!(75), &page["nodes"][0]["number"])
        );
        assert_eq!(page["pageInfo"]["startCursor"], page["edges"][0]["cursor"]);
        seen.extend(numbers(&page));
        after = page["pageInfo"]["endCursor"].clone();
        if page["pageInfo"]["hasNextPage"] == false {
            break;
        }
    }
    assert_eq!(seen, (1..=75).collect::<Vec<_>>());
    let last = page(json!({ "last": 10 }));
    assert_eq!(
        (numbers(&last), &last["pageInfo"]["hasPreviousPage"]),
        ((66..=75).collect(), &json!(true))
    );
    let before = page(json!({ "last": 10, "before": last["pageInfo"]["startCursor"] }));
    assert_eq!(numbers(&before), (56..=65).collect::<Vec<_>>());
    assert_eq!(numbers(&page(json!({ "first": 0 }))), [0_u64; 0]);
}

#[test]
fn an_invalid_cursor_is_an_error() {
    let mut upstream = Upstream::new();
    for cursor in ["x", "", "🦀", "Y3Vyc29yOjk5OTk="] {
        let query = format!(
            "{{ viewer {{ repositories(first: 1, after: \"{cursor}\") {{ nodes {{ name }} }} }} }}"
        );
        assert_eq!(error(&upstream.query(ADA, &query)).0, "INVALID_CURSOR_ARGUMENTS", "{cursor}");
    }
}

#[test]
fn issues_are_filtered_and_ordered_by_arguments() {
    let mut upstream = Upstream::new();
    let query = "{ repository(owner: \"acme\", name: \"widgets\") {
        closed: issues(first: 100, states: [CLOSED]) { totalCount nodes { state } }
        bugs: issues(first: 100, labels: [\"BUG\"]) { nodes { labels(first: 10) { nodes { name } } } }
        newest: issues(first: 2, orderBy: { field: CREATED_AT, direction: DESC }) { nodes { number } }
        pullRequests(first: 1, states: OPEN) { totalCount }
        merged: pullRequests(first: 1, states: [MERGED]) { totalCount } } }";
    let found = upstream.data(ADA, query)["repository"].clone();
    assert_eq!(found["closed"]["totalCount"], 10);
    assert!(
        found["bugs"]["nodes"]
            .as_array()
            .expect("nodes")
            .iter()
            .all(|node| node["labels"]["nodes"][0]["name"] == "bug")
    );
    assert_eq!(found["newest"]["nodes"], json!([{ "number": 75 }, { "number": 74 }]));
    assert_eq!(
        (&found["pullRequests"]["totalCount"], &found["merged"]["totalCount"]),
        (&json!(4), &json!(0))
    );
}

#[test]
fn hidden_repositories_are_null_with_not_found() {
    let mut upstream = Upstream::new();
    let query = "{ repository(owner: \"acme\", name: \"gadgets\") { name } viewer { login } }";
    for token in [DAN, ADA_NO_SCOPES, ADA_NO_PERMISSIONS, WORKFLOW] {
        let answer = upstream.query(token, query);
        assert_eq!(error(&answer), ("NOT_FOUND", &json!(["repository"])));
        assert!(
            answer["data"]["repository"].is_null() && answer["data"]["viewer"]["login"].is_string(),
            "the rest is answered"
        );
    }
    assert_eq!(upstream.data(INSTALLATION, query)["repository"]["name"], "gadgets");
    let id = upstream.node_id("/repos/acme/gadgets");
    let issue = upstream.node_id("/repos/acme/gadgets/issues/1");
    for id in [&id, &issue] {
        assert_eq!(
            error(&upstream.query(DAN, &format!("{{ node(id: \"{id}\") {{ id }} }}"))).0,
            "NOT_FOUND"
        );
    }
    let owned = "{ organization(login: \"acme\") { repositories(first: 100) { nodes { name } } repository(name: \"gadgets\") { name } } }";
    let names = |data: &Value| {
        data["organization"]["repositories"]["nodes"].to_string().contains("gadgets")
    };
    let (theirs, ours) = (upstream.data(DAN, owned), upstream.data(ADA, owned));
    assert!(!names(&theirs) && names(&ours));
    assert!(
        theirs["organization"]["repository"].is_null()
            && ours["organization"]["repository"].is_object()
    );
}

#[test]
fn reading_without_the_permission_is_forbidden_as_in_rest() {
    let mut upstream = Upstream::new();
    let world = &mut upstream.emulator.state.world;
    let known = world.tokens.iter().find(|token| token.value == ADA_FINE).expect("of the seed");
    let token = crate::emulator::accounts::Token {
        value: "narrow".to_owned(),
        permissions: Permissions::Only(BTreeMap::from([("metadata", Level::Read)])),
        ..(**known).clone()
    };
    world.add_token(token);
    upstream.get("narrow", "/repos/acme/gadgets/issues").assert_status(403);
    let answer = upstream.query("narrow", "{ repository(owner: \"acme\", name: \"gadgets\") { name issues(first: 1) { totalCount } } }");
    assert_eq!(error(&answer), ("FORBIDDEN", &json!(["repository", "issues"])));
    let one =
        "{ repository(owner: \"acme\", name: \"gadgets\") { name issue(number: 1) { title } } }";
    let answer = upstream.query("narrow", one);
    assert_eq!(
        (error(&answer).0, &answer["data"]["repository"]),
        ("FORBIDDEN", &json!({ "name": "gadgets", "issue": null }))
    );
    let id = upstream.node_id("/repos/acme/gadgets/issues/1");
    assert_eq!(
        error(
            &upstream.query(
                "narrow",
                &format!("{{ node(id: \"{id}\") {{ ... on Issue {{ title }} }} }}")
            )
        )
        .0,
        "FORBIDDEN"
    );
}

#[test]
fn a_node_is_found_by_the_node_id_that_rest_gave() {
    let mut upstream = Upstream::new();
    let comment = upstream.get(ADA, "/repos/acme/widgets/issues/1/comments").items()[0].clone();
    let pull = upstream.node_id("/repos/acme/widgets/pulls/76");
    let ids = [
        ("User", upstream.node_id("/users/ben")),
        ("Organization", upstream.node_id("/orgs/acme")),
        ("Repository", upstream.node_id("/repos/acme/widgets")),
        ("Issue", upstream.node_id("/repos/acme/widgets/issues/1")),
        ("PullRequest", pull),
        ("PullRequest", upstream.node_id("/repos/acme/widgets/issues/76")),
        ("Label", upstream.node_id("/repos/acme/widgets/labels/bug")),
        ("IssueComment", comment["node_id"].as_str().expect("an id").to_owned()),
    ];
    for (kind, id) in &ids {
        assert_eq!(
            upstream.data(ADA, &format!("{{ node(id: \"{id}\") {{ __typename id }} }}"))["node"]["__typename"],
            *kind
        );
    }
    let list: Vec<&str> = ids.iter().map(|(_, id)| id.as_str()).chain(["x"]).collect();
    let answer = upstream.query_with(
        ADA,
        "query ($ids: [ID!]!) { nodes(ids: $ids) { __typename } }",
        &json!({ "ids": list }),
    );
    assert_eq!(
        (answer["data"]["nodes"].as_array().map(Vec::len), &answer["data"]["nodes"][8]),
        (Some(9), &Value::Null)
    );
    let on = format!(
        "{{ node(id: \"{}\") {{ ... on IssueComment {{ databaseId body author {{ login }} issue {{ number }} pullRequest {{ number }} }} }} }}",
        ids[7].1
    );
    let found = upstream.data(ADA, &on)["node"].clone();
    assert_eq!(
        (&found["databaseId"], &found["body"], &found["issue"]["number"]),
        (&comment["id"], &comment["body"], &json!(1))
    );
    assert!(found["pullRequest"].is_null());
}

#[test]
fn unknown_names_and_numbers_are_not_found() {
    let mut upstream = Upstream::new();
    for query in [
        "{ user(login: \"nobody\") { login } }",
        "{ user(login: \"acme\") { login } }",
        "{ user(login: \"acme-app[bot]\") { login } }",
        "{ organization(login: \"ada\") { login } }",
        "{ repositoryOwner(login: \"\") { login } }",
        "{ repository(owner: \"acme\", name: \"none\") { name } }",
        "{ repository(owner: \"acme\", name: \"cogs\", followRenames: false) { name } }",
        "{ repository(owner: \"acme\", name: \"widgets\") { issue(number: 9999) { title } } }",
        "{ repository(owner: \"acme\", name: \"widgets\") { issue(number: -1) { title } } }",
        "{ repository(owner: \"acme\", name: \"widgets\") { issue(number: 76) { title } } }",
        "{ repository(owner: \"acme\", name: \"widgets\") { pullRequest(number: 1) { title } } }",
        "{ node(id: \"MDU6SXNzdWU5OTk5OTk=\") { id } }",
    ] {
        assert_eq!(error(&upstream.query(ADA, query)).0, "NOT_FOUND", "{query}");
    }
    assert_eq!(
        upstream.data(ADA, "{ repository(owner: \"acme\", name: \"cogs\") { name } }")["repository"]
            ["name"],
        "sprockets"
    );
}

#[test]
fn a_graphql_comment_sends_notifications_and_deliveries() {
    let mut upstream = Upstream::new();
    let hook = upstream.get(ADA, "/orgs/acme/hooks").items()[0]["id"].clone();
    let deliveries = format!("/orgs/acme/hooks/{hook}/deliveries");
    upstream
        .patch(ADA, &format!("/orgs/acme/hooks/{hook}"), &json!({ "events": ["*"] }))
        .assert_status(200);
    let newest = upstream.get(ADA, &deliveries).items()[0]["id"].clone();
    let id = upstream.node_id("/repos/acme/widgets/issues/2");
    let mutation = "mutation ($input: AddCommentInput!) { addComment(input: $input) { clientMutationId commentEdge { cursor node { databaseId body author { login } } } subject { id } } }";
    let answer = upstream.query_with(
        BEN,
        mutation,
        &json!({ "input": { "subjectId": id, "body": "@ada look", "clientMutationId": "c1" } }),
    );
    let made = &answer["data"]["addComment"];
    assert_eq!(
        (
            &made["clientMutationId"],
            &made["subject"]["id"],
            &made["commentEdge"]["node"]["author"]["login"]
        ),
        (&json!("c1"), &json!(id), &json!("ben"))
    );
    let comment = upstream.get(
        ADA,
        &format!(
            "/repos/acme/widgets/issues/comments/{}",
            made["commentEdge"]["node"]["databaseId"]
        ),
    );
    assert_eq!(comment.assert_status(200).body["body"], "@ada look");
    let notification = upstream.get(ADA, "/notifications").items()[0].clone();
    assert_eq!(
        (&notification["reason"], &notification["subject"]["url"]),
        (&json!("mention"), &json!("http://upstream.test/repos/acme/widgets/issues/2"))
    );
    let delivered = upstream.get(ADA, &deliveries).items()[0].clone();
    assert_ne!(delivered["id"], newest);
    assert_eq!(
        (&delivered["event"], &delivered["action"]),
        (&json!("issue_comment"), &json!("created"))
    );
}

#[test]
fn an_issue_is_created_updated_closed_and_reopened() {
    let mut upstream = Upstream::new();
    let (repository, label, ben) = (
        upstream.node_id("/repos/acme/widgets"),
        upstream.node_id("/repos/acme/widgets/labels/bug"),
        upstream.node_id("/users/ben"),
    );
    let create = "mutation ($input: CreateIssueInput!) { createIssue(input: $input) { issue { id number title body labels(first: 5) { nodes { name } } assignees(first: 5) { nodes { login } } } } }";
    let input = json!({ "repositoryId": repository, "title": "From afar", "body": "b", "labelIds": [label, label], "assigneeIds": [ben] });
    let answer = upstream.query_with(ADA, create, &json!({ "input": input }));
    let issue = answer["data"]["createIssue"]["issue"].clone();
    assert_eq!(
        (&issue["number"], &issue["title"], &issue["body"]),
        (&json!(80), &json!("From afar"), &json!("b"))
    );
    assert_eq!(
        (&issue["labels"]["nodes"], &issue["assignees"]["nodes"]),
        (&json!([{ "name": "bug" }]), &json!([{ "login": "ben" }]))
    );
    let path = "/repos/acme/widgets/issues/80";
    assert_eq!(upstream.get(ADA, path).assert_status(200).body["title"], "From afar");

    let id = &issue["id"];
    let both = "mutation ($id: ID!) {
        first: updateIssue(input: { id: $id, title: \"Renamed\", labelIds: [] }) { actor { login } issue { title body state labels(first: 1) { totalCount } } }
        second: closeIssue(input: { issueId: $id }) { issue { state closed } }
        third: reopenIssue(input: { issueId: $id }) { issue { state closedAt } } }";
    let data = upstream.query_with(ADA, both, &json!({ "id": id }))["data"].clone();
    assert_eq!(
        data["first"],
        json!({ "actor": { "login": "ada" }, "issue": { "title": "Renamed", "body": "b", "state": "OPEN", "labels": { "totalCount": 0 } } })
    );
    assert_eq!(
        data["second"]["issue"],
        json!({ "state": "CLOSED", "closed": true }),
        "one after the other"
    );
    assert_eq!(data["third"]["issue"], json!({ "state": "OPEN", "closedAt": null }));
    upstream.query_with(
        ADA,
        "mutation ($id: ID!) { updateIssue(input: { id: $id, state: CLOSED }) { issue { id } } }",
        &json!({ "id": id }),
    );
    assert_eq!(upstream.get(ADA, path).body["state"], "closed");
}

#[test]
fn a_mutation_is_refused_where_rest_refuses_it() {
    let mut upstream = Upstream::new();
    let (widgets, gadgets, issue, pull) = (
        upstream.node_id("/repos/acme/widgets"),
        upstream.node_id("/repos/acme/gadgets"),
        upstream.node_id("/repos/acme/widgets/issues/1"),
        upstream.node_id("/repos/acme/widgets/pulls/76"),
    );
    let create = |id: &str| {
        format!(
            "mutation {{ createIssue(input: {{ repositoryId: \"{id}\", title: \"x\" }}) {{ issue {{ number }} }} }}"
        )
    };
    let close = |id: &str| {
        format!(
            "mutation {{ closeIssue(input: {{ issueId: \"{id}\" }}) {{ issue {{ number }} }} }}"
        )
    };
    let comment = |id: &str, body: &str| {
        format!(
            "mutation {{ addComment(input: {{ subjectId: \"{id}\", body: \"{body}\" }}) {{ subject {{ id }} }} }}"
        )
    };
    for (token, mutation, kind) in [
        (ADA_NO_PERMISSIONS, create(&widgets), "FORBIDDEN"),
        (ADA_NO_SCOPES, create(&widgets), "NOT_FOUND"),
        (DAN, create(&gadgets), "NOT_FOUND"),
        (DAN, close(&issue), "FORBIDDEN"),
        (ADA, close(&pull), "UNPROCESSABLE"),
        (ADA, close(&widgets), "UNPROCESSABLE"),
        (ADA, close("x"), "NOT_FOUND"),
        (ADA, create(&issue), "UNPROCESSABLE"),
        (ADA, comment(&widgets, "x"), "UNPROCESSABLE"),
        (ADA, comment(&issue, "  "), "UNPROCESSABLE"),
        (ADA, create(&widgets).replace("\"x\"", "\" \""), "UNPROCESSABLE"),
        (
            ADA,
            create(&widgets).replace("\"x\"", &format!("\"x\", labelIds: [\"{issue}\"]")),
            "UNPROCESSABLE",
        ),
        (
            ADA,
            create(&widgets).replace("\"x\"", &format!("\"x\", assigneeIds: [\"{issue}\"]")),
            "UNPROCESSABLE",
        ),
    ] {
        let answer = upstream.query(token, &mutation);
        assert_eq!(error(&answer).0, kind, "{mutation} {answer}");
        assert!(answer["data"].as_object().is_some_and(|data| data.values().all(Value::is_null)));
    }
    assert_eq!(upstream.get(ADA, "/repos/acme/widgets/issues/1").body["state"], "open");
    upstream.get(ADA, "/repos/acme/widgets/issues/80").assert_status(404);
    assert!(
        upstream.query(ADA, &comment(&pull, "x")).get("errors").is_none(),
        "a pull is commented on like an issue"
    );
    assert!(
        upstream.query(DAN, &create(&widgets)).get("errors").is_none(),
        "everyone may open an issue in public"
    );
}

#[test]
fn a_repository_locked_for_migration_is_read_and_not_changed() {
    let mut upstream = Upstream::new();
    upstream
        .post(
            ADA,
            "/user/migrations",
            &json!({ "repositories": ["acme/widgets"], "lock_repositories": true }),
        )
        .assert_status(201);
    assert_eq!(
        upstream.data(ADA, "{ repository(owner: \"acme\", name: \"widgets\") { isLocked } }")["repository"]
            ["isLocked"],
        true
    );
    let id = upstream.node_id("/repos/acme/widgets");
    let answer =
        upstream.query(ADA, &format!("mutation {{ createIssue(input: {{ repositoryId: \"{id}\", title: \"x\" }}) {{ issue {{ id }} }} }}"));
    assert_eq!(
        (error(&answer).0, &answer["errors"][0]["message"]),
        ("FORBIDDEN", &json!("Repository has been locked for migration."))
    );
}

#[test]
fn the_schema_answers_introspection_queries() {
    let mut upstream = Upstream::new();
    let found = upstream.data(ADA, "{ __schema { queryType { name } mutationType { name } subscriptionType { name } types { name } } __type(name: \"Issue\") { kind fields { name type { kind name ofType { name } } } } }");
    assert_eq!(
        (&found["__schema"]["queryType"]["name"], &found["__schema"]["mutationType"]["name"]),
        (&json!("Query"), &json!("Mutation"))
    );
    assert!(found["__schema"]["subscriptionType"].is_null());
    assert!(
        found["__type"]["fields"]
            .as_array()
            .is_some_and(|fields| fields.iter().any(|field| field["name"] == "viewerCanUpdate"))
    );
    assert_eq!(upstream.data(ADA, "{ __typename }")["__typename"], "Query");
}

#[test]
fn every_field_of_every_type_has_a_value_of_its_type() {
    let mut upstream = Upstream::new();
    upstream
        .patch(ADA, "/repos/acme/widgets/issues/1", &json!({ "assignees": ["ben"] }))
        .assert_status(200);
    let query = "{
        repository(owner: \"acme\", name: \"widgets\") { ...R issues(first: 2) { ...I } pullRequests(first: 2) { ...P } labels(first: 2) { nodes { id name color description url repository { name } } edges { cursor node { id } } pageInfo { endCursor } totalCount }
            issue(number: 1) { ...Issue } pullRequest(number: 76) { ...Pull } label(name: \"bug\") { id } issueOrPullRequest(number: 1) { ... on Issue { id } } }
        viewer { ...U } organization(login: \"acme\") { ...O } user(login: \"ben\") { ...U }
        repositoryOwner(login: \"acme\") { id login url avatarUrl repositories(first: 1) { ...Rs } repository(name: \"widgets\") { id } }
        rateLimit { limit cost remaining used resetAt nodeCount } }
        fragment R on Repository { id databaseId name nameWithOwner description homepageUrl url owner { id } isPrivate isFork isArchived isTemplate isLocked visibility hasIssuesEnabled hasWikiEnabled defaultBranchRef { name } primaryLanguage { name } stargazerCount forkCount viewerPermission viewerCanAdminister createdAt updatedAt pushedAt }
        fragment Rs on RepositoryConnection { nodes { ...R } edges { cursor node { id } } pageInfo { hasNextPage hasPreviousPage startCursor endCursor } totalCount }
        fragment I on IssueConnection { nodes { ...Issue } edges { cursor node { id } } pageInfo { endCursor } totalCount }
        fragment P on PullRequestConnection { nodes { ...Pull } edges { cursor node { id } } pageInfo { endCursor } totalCount }
        fragment Issue on Issue { id databaseId number title body state closed url author { login url avatarUrl } repository { id } viewerCanUpdate createdAt updatedAt closedAt assignees(first: 2) { nodes { login } edges { cursor node { id } } pageInfo { endCursor } totalCount } labels(first: 2) { totalCount } comments(first: 2) { ...C } }
        fragment Pull on PullRequest { id databaseId number title body state closed merged isDraft baseRefName headRefName url author { login } repository { id } viewerCanUpdate createdAt updatedAt closedAt assignees(first: 2) { totalCount } labels(first: 2) { totalCount } comments(first: 2) { ...C } }
        fragment C on IssueCommentConnection { nodes { id databaseId body url author { login } issue { id } pullRequest { id } repository { id } createdAt updatedAt } edges { cursor node { id } } pageInfo { endCursor } totalCount }
        fragment U on User { id databaseId login name email url avatarUrl isViewer createdAt updatedAt organizations(first: 2) { nodes { login } edges { cursor node { id } } pageInfo { endCursor } totalCount } repositories(first: 2) { ...Rs } repository(name: \"dotfiles\") { id } }
        fragment O on Organization { id databaseId login name description url avatarUrl viewerIsAMember viewerCanAdminister createdAt updatedAt repositories(first: 2) { ...Rs } repository(name: \"widgets\") { id } }";
    let data = upstream.data(ADA, query);
    assert_eq!(data["repository"]["issue"]["assignees"]["nodes"], json!([{ "login": "ben" }]));
    assert_eq!(data["viewer"]["organizations"]["nodes"], json!([{ "login": "acme" }]));
    assert_eq!(
        (&data["repository"]["viewerPermission"], &data["organization"]["viewerCanAdminister"]),
        (&json!("ADMIN"), &json!(true))
    );
}

#[test]
fn an_issue_opened_by_an_app_has_a_bot_as_author() {
    let mut upstream = Upstream::new();
    let id = upstream.node_id("/repos/acme/widgets");
    let create = format!(
        "mutation {{ createIssue(input: {{ repositoryId: \"{id}\", title: \"x\" }}) {{ issue {{ author {{ __typename login ... on Bot {{ id databaseId createdAt updatedAt }} }} }} }} }}"
    );
    let author = upstream.data(INSTALLATION, &create)["createIssue"]["issue"]["author"].clone();
    assert_eq!((&author["__typename"], &author["login"]), (&json!("Bot"), &json!("acme-app[bot]")));
    let bot = author["id"].as_str().expect("an id");
    assert_eq!(
        upstream.data(ADA, &format!("{{ node(id: \"{bot}\") {{ __typename id }} }}"))["node"],
        json!({ "__typename": "Bot", "id": bot })
    );
}
