//! Tests the cost of GraphQL queries and their bounds.

use http::Request;
use serde_json::{Value, json};

use crate::emulator::tests::*;

const LOGIN: &str = "{ viewer { login } }";

fn repeated(count: usize, piece: impl Fn(usize) -> String) -> String {
    (0..count).map(piece).collect()
}

fn kind(answer: &Value) -> &str {
    answer["errors"][0]["type"].as_str().unwrap_or("")
}

#[test]
fn a_query_costs_a_hundredth_of_its_connections_and_at_least_1() {
    let mut upstream = Upstream::new();
    let query = "{ rateLimit { cost nodeCount remaining used } viewer { repositories(first: 100) { nodes { issues(first: 50) { nodes { labels(first: 60) { nodes { name } } } } } } } }";
    let answer = upstream.post(ADA, "/graphql", &json!({ "query": query })).assert_status(200);
    let limit = json!({ "cost": 51, "nodeCount": 305_100, "remaining": 4_949, "used": 51 });
    assert_eq!(
        answer.body["data"]["rateLimit"], limit,
        "1 and 100 and 5,000 connections are 5,101 requests"
    );
    assert_eq!((answer.remaining(), answer.header("x-ratelimit-used")), (4_949, "51"));
    assert_eq!(upstream.post(ADA, "/graphql", &json!({ "query": LOGIN })).remaining(), 4_948);
    let entry = upstream.get(NOBODY, "/_emulator/transcript").body["requests"][0].clone();
    assert_eq!(
        (&entry["cost"], &entry["points"], &entry["resource"]),
        (&json!(51), &json!(1), &json!("graphql"))
    );
    assert_eq!(upstream.get(ADA, "/rate_limit").body["resources"]["graphql"]["used"], 52);
}

#[test]
fn page_sizes_in_variables_count_but_skipped_fields_do_not() {
    let mut upstream = Upstream::new();
    let query = "query ($n: Int!, $with: Boolean!) { rateLimit { cost } viewer { repositories(first: $n) { nodes {
        issues(last: 10) @include(if: $with) { nodes { comments(first: 1) { totalCount } } } labels(first: 10) @skip(if: $with) { totalCount } } } } }";
    let mut cost = |n: u32, with: bool| {
        upstream.query_with(ADA, query, &json!({ "n": n, "with": with }))["data"]["rateLimit"]["cost"].clone()
    };
    assert_eq!(
        (cost(96, true), cost(95, true)),
        (json!(11), json!(10)),
        "1,057 and 1,046 requests"
    );
    assert_eq!((cost(96, false), cost(10, true)), (json!(1), json!(1)), "97 and 111 requests");
}

#[test]
fn an_invalid_or_anonymous_query_costs_1() {
    let mut upstream = Upstream::new();
    assert_eq!(
        upstream
            .post(ADA, "/graphql", &json!({ "query": "{ nothing }" }))
            .assert_status(200)
            .remaining(),
        4_999
    );
    upstream.post(ADA, "/graphql", &json!({ "query": 1 })).assert_status(422);
    assert_eq!(upstream.get(ADA, "/rate_limit").body["resources"]["graphql"]["used"], 2);
    upstream.set_limit("graphql.anonymous", 10);
    assert_eq!(
        upstream
            .post(NOBODY, "/graphql", &json!({ "query": LOGIN }))
            .assert_status(401)
            .remaining(),
        9
    );
}

#[test]
fn the_last_query_may_exceed_the_remaining_budget() {
    let mut upstream = Upstream::new();
    upstream.set_limit("graphql", 5);
    let query = "{ viewer { repositories(first: 100) { nodes { issues(first: 10) { nodes { comments(first: 1) { totalCount } } } } } } }";
    assert_eq!(
        upstream.post(ADA, "/graphql", &json!({ "query": query })).assert_status(200).remaining(),
        0
    );
    let refused = upstream.post(ADA, "/graphql", &json!({ "query": LOGIN })).assert_status(200);
    assert_eq!((kind(&refused.body), &refused.body["data"]), ("RATE_LIMITED", &Value::Null));
    assert_eq!(upstream.usage()["refused_primary"], 1);
}

#[test]
fn a_connection_needs_a_page_size_of_at_most_100() {
    let mut upstream = Upstream::new();
    let mut answer = |arguments: &str| {
        let query = format!("{{ viewer {{ repositories{arguments} {{ totalCount }} }} }}");
        upstream.query(ADA, &query)
    };
    for arguments in ["", "(first: null)"] {
        assert!(answer(arguments).get("errors").is_none(), "{arguments}: it only counts");
    }
    for arguments in ["(first: 101)", "(last: 2147483647)", "(first: -1)", "(first: 1, last: 101)"]
    {
        assert_eq!(kind(&answer(arguments)), "EXCESSIVE_PAGINATION", "{arguments}");
    }
    for arguments in ["(first: \"1\")", "(first: 1.5)", "(first: 99999999999)", "(second: 1)"] {
        assert_eq!(kind(&answer(arguments)), "VALIDATION_ERROR", "{arguments}");
    }
    assert!(answer("(first: 100)").get("errors").is_none());
    let listed = "{ viewer { repositories { ...all } } } fragment all on RepositoryConnection { nodes { id } }";
    assert_eq!(kind(&upstream.query(ADA, listed)), "MISSING_PAGINATION_BOUNDARIES");
    let ids = vec!["x"; 101];
    assert_eq!(
        kind(&upstream.query_with(
            ADA,
            "query ($ids: [ID!]!) { nodes(ids: $ids) { id } }",
            &json!({ "ids": ids })
        )),
        "EXCESSIVE_PAGINATION"
    );
}

#[test]
fn a_query_for_too_many_nodes_is_refused() {
    let mut upstream = Upstream::new();
    let query = "{ viewer { repositories(first: 100) { nodes { issues(first: 100) { nodes { comments(first: 100) { totalCount } } } } } } }";
    assert_eq!(kind(&upstream.query(ADA, query)), "MAX_NODE_LIMIT_EXCEEDED");
}

#[test]
fn deep_wide_and_endless_queries_are_refused() {
    let mut upstream = Upstream::new();
    let nested = |levels: usize| {
        format!(
            "{{ viewer {{ repository(name: \"dotfiles\") {{ {}name{} }} }} }}",
            "owner { repository(name: \"dotfiles\") { ".repeat(levels),
            " } }".repeat(levels)
        )
    };
    assert!(upstream.query(ADA, &nested(13)).get("errors").is_none());
    assert_eq!(kind(&upstream.query(ADA, &nested(14))), "RESOURCE_LIMITS_EXCEEDED");
    assert_eq!(kind(&upstream.query(ADA, &nested(1_000))), "PARSE_ERROR");
    let wide = |fields: usize| {
        format!("{{ viewer {{ {} }} }}", repeated(fields, |field| format!("a{field}: login ")))
    };
    assert!(upstream.query(ADA, &wide(1_000)).get("errors").is_none());
    assert_eq!(kind(&upstream.query(ADA, &wide(20_000))), "PARSE_ERROR");
    assert_eq!(kind(&upstream.query(ADA, &"{".repeat(1_000_000))), "PARSE_ERROR");
    let cycle = "{ viewer { ...A } } fragment A on User { ...B } fragment B on User { ...A }";
    assert_eq!(kind(&upstream.query(ADA, cycle)), "VALIDATION_ERROR");
    let doubling = repeated(25, |level| {
        format!(
            "fragment F{level} on Repository {{ a: owner {{ repository(name: \"x\") {{ ...F{0} }} }} b: owner {{ repository(name: \"x\") {{ ...F{0} }} }} }} ",
            level + 1
        )
    });
    let bomb = format!(
        "{{ viewer {{ repository(name: \"dotfiles\") {{ ...F0 }} }} }} {doubling} fragment F25 on Repository {{ name }}"
    );
    assert!(!kind(&upstream.query(ADA, &bomb)).is_empty());
    let meta = "{ __schema { types { fields { type { fields { type { fields { name } } } } } } } }";
    assert!(!kind(&upstream.query(ADA, meta)).is_empty());
    let many = repeated(500, |alias| {
        format!("a{alias}: __schema {{ types {{ fields {{ args {{ name }} }} }} }} ")
    });
    assert_eq!(kind(&upstream.query(ADA, &format!("{{ {many} }}"))), "RESOURCE_LIMITS_EXCEEDED");
}

#[test]
fn a_query_with_too_large_an_answer_is_refused() {
    let mut upstream = Upstream::new();
    upstream.set_limit("graphql.answer-bytes", 1_000_000);
    upstream
        .patch(ADA, "/repos/acme/widgets/issues/1", &json!({ "body": "x".repeat(100_000) }))
        .assert_status(200);
    let aliases =
        |count: usize, field: &str| repeated(count, |alias| format!("a{alias}: {field} "));
    let bodies = |count: usize| {
        format!(
            "{{ repository(owner: \"acme\", name: \"widgets\") {{ issue(number: 1) {{ {} }} }} }}",
            aliases(count, "body")
        )
    };
    assert!(upstream.query(ADA, &bodies(9)).get("errors").is_none());
    let answer = upstream.query(ADA, &bodies(11));
    assert_eq!((kind(&answer), &answer["data"]), ("RESOURCE_LIMITS_EXCEEDED", &Value::Null));
    let nested = |names: usize| {
        let names = aliases(names, "__typename");
        let inside = format!("repository {{ issues(first: 100) {{ nodes {{ {names} }} }} }}");
        format!(
            "{{ repository(owner: \"acme\", name: \"widgets\") {{ issues(first: 100) {{ nodes {{ {inside} }} }} }} }}"
        )
    };
    assert!(upstream.query(ADA, &nested(2)).get("errors").is_none());
    assert_eq!(kind(&upstream.query(ADA, &nested(1_000))), "RESOURCE_LIMITS_EXCEEDED");
    let query = "x".repeat(1_048_577);
    assert_eq!(kind(&upstream.query(ADA, &query)), "RESOURCE_LIMITS_EXCEEDED");
    let large = Bytes::from(vec![b' '; 10 * 1024 * 1024 + 1]);
    let request = Request::post("/graphql")
        .header("authorization", format!("Bearer {ADA}"))
        .body(large)
        .expect("well formed");
    upstream.send(&request).assert_status(413);
}

#[test]
fn a_wrong_type_in_a_body_is_422_and_malformed_json_is_400() {
    let mut upstream = Upstream::new();
    for (body, field) in [
        (json!({ "query": 1 }), "query"),
        (json!({ "query": "" }), "query"),
        (json!({ "query": [LOGIN] }), "query"),
        (json!({ "query": LOGIN, "variables": [] }), "variables"),
        (json!({ "query": LOGIN, "variables": "{}" }), "variables"),
        (json!({ "query": LOGIN, "operationName": 1 }), "operationName"),
    ] {
        upstream.post(ADA, "/graphql", &body).assert_names_field(field);
    }
    upstream
        .post(
            ADA,
            "/graphql",
            &json!({ "query": LOGIN, "variables": null, "operationName": null, "extensions": {} }),
        )
        .assert_status(200);
    for body in ["", "{", "[]", "null", "{\"query\":", "{}", "{\"query\":null}"] {
        let request = Request::post("/graphql")
            .header("authorization", format!("Bearer {ADA}"))
            .body(Bytes::from(body))
            .expect("well formed");
        upstream.send(&request).assert_status(400);
    }
}

#[test]
fn invalid_variables_and_queries_are_errors_without_data() {
    let mut upstream = Upstream::new();
    let query = "query ($number: Int!) { repository(owner: \"acme\", name: \"widgets\") { issue(number: $number) { title } } }";
    for variables in [
        json!({}),
        json!({ "number": null }),
        json!({ "number": "1" }),
        json!({ "number": 1.5 }),
        json!({ "number": 99_999_999_999_u64 }),
        json!({ "number": {} }),
    ] {
        let answer = upstream.query_with(ADA, query, &variables);
        assert!(
            answer["errors"][0]["message"].is_string() && answer.get("data").is_none(),
            "{variables} {answer}"
        );
    }
    for query in [
        "{",
        "}",
        "viewer",
        "{ }",
        "{ viewer }",
        "{ viewer { login { x } } }",
        "{ nothing }",
        "query ($x: Nothing) { viewer { login } }",
        "query ($x: Int) { viewer { login } }",
        "{ viewer { ...Missing } }",
        "{ ...F } fragment F on User { login }",
        "subscription { viewer { login } }",
        "mutation { deleteEverything }",
        "mutation { addComment { subject { id } } }",
        "fragment F on User { login }",
        "{ viewer { login } } { viewer { login } }",
        "{ user(login: 1) { login } }",
        "{ viewer { login @nothing } }",
        "type Query { x: Int }",
        "\u{0}",
        "{ viewer { login } \u{feff}🦀 }",
    ] {
        let answer = upstream.query(ADA, query);
        assert!(
            answer["errors"][0]["message"].is_string() && answer.get("data").is_none(),
            "{query:?} {answer}"
        );
    }
}

#[test]
fn a_mutation_counts_5_points_and_one_content_creation() {
    let mut upstream = Upstream::new();
    let id = upstream.get(ADA, "/repos/acme/widgets").body["node_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let create = format!(
        "mutation {{ createIssue(input: {{ repositoryId: \"{id}\", title: \"x\" }}) {{ issue {{ number }} }} }}"
    );
    for _ in 0..80 {
        assert!(upstream.query(ADA, &create).get("errors").is_none());
    }
    let refused = upstream.post(ADA, "/graphql", &json!({ "query": create })).assert_status(403);
    assert!(
        refused.body["message"]
            .as_str()
            .is_some_and(|message| message.contains("blocked from content creation"))
    );
    assert_eq!(upstream.usage()["secondary"][0]["graphql_points"], 400);
}
