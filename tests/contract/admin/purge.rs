//! The stored responses on the admin listener, and the purge (SPECIFICATION, "Admin listener").

use std::time::Duration;

use http::Method;
use serde_json::json;

use super::operator::{ADMIN, ISSUES, Operator};
use crate::support::Setup;

#[tokio::test]
async fn a_purge_removes_stored_responses_by_path_prefix_for_all() {
    let world =
        Setup::new().listen(ADMIN).cache_ttl("/repos/{owner}/{repo}/issues", "1h").start().await;
    let operator = Operator::of(&world);
    for path in [ISSUES, "/repos/acme/widgets/issues?page=2", "/users/octo"] {
        world.get(path).await;
    }
    world.get(ISSUES).await.assert_hit();
    let figures = operator.get("/api/cache").await.json();
    assert_eq!(
        (&figures["entries"], &figures["answers"]["hit"], &figures["evictions"]),
        (&json!(3), &json!(1), &json!(0)),
        "{figures}"
    );
    assert_eq!(figures["prefixes"].as_array().unwrap().len(), 2, "{figures}");
    let purged = operator.purge("{\"prefix\": \"/repos/ACME/\"}").await;
    purged.assert_status(200);
    assert_eq!(purged.json()["entries"], 2);
    assert_eq!(operator.metric("weir_cache_entries").await, Some(1.0));
    let left = figures["bytes"].as_u64().unwrap() - purged.json()["bytes"].as_u64().unwrap();
    assert_eq!(operator.get("/api/cache").await.json()["bytes"], left);
    world.get(ISSUES).await.assert_fetched_and_stored();
    assert_eq!(operator.purge("{\"prefix\": \"/\"}").await.json()["entries"], 2);
    assert_eq!(operator.metric("weir_cache_entries").await, Some(0.0));
}

#[tokio::test]
async fn a_fetch_under_way_during_a_purge_is_revalidated_before_use() {
    let world = Setup::new()
        .listen(ADMIN)
        .manual_clock()
        .cache_ttl("/repos/{owner}/{repo}/issues", "1h")
        .start()
        .await;
    let operator = Operator::of(&world);
    let gate = world.close_gate("GET", ISSUES);
    let fetched = world.get(ISSUES);
    let meanwhile = async {
        world.held(gate, 1).await;
        world.clock.advance(Duration::from_secs(1));
        operator.purge("{\"prefix\": \"/repos/acme/\"}").await.assert_status(200);
        world.open_gate(gate);
    };
    let (fetched, ()) = tokio::join!(fetched, meanwhile);
    fetched.assert_status(200);
    world.clock.advance(Duration::from_secs(1));
    world.get(ISSUES).await.assert_revalidated();
    world.get(ISSUES).await.assert_hit();
}

#[tokio::test]
async fn a_malformed_purge_removes_nothing() {
    let world = Setup::new().listen(ADMIN).start().await;
    let operator = Operator::of(&world);
    world.get(ISSUES).await.assert_status(200);
    let long = format!("{{\"prefix\": \"/{}\"}}", "a".repeat(64 * 1024));
    for (body, status) in [
        ("", 400),
        ("{", 400),
        ("[]", 422),
        ("{}", 422),
        ("{\"prefix\": 1}", 422),
        ("{\"prefix\": \"\"}", 422),
        ("{\"prefix\": \"repos\"}", 422),
        ("{\"prefix\": \"/\", \"dry\": true}", 422),
        (long.as_str(), 413),
    ] {
        let refused = operator.purge(body).await;
        refused.assert_status(status);
        assert!(
            refused.json()["message"].as_str().is_some_and(|message| !message.is_empty()),
            "{body}"
        );
    }
    operator.ask(Method::GET, "/api/cache/purge", None).await.assert_status(405);
    operator.ask(Method::POST, "/api/cache", None).await.assert_status(405);
    assert_eq!(operator.metric("weir_cache_entries").await, Some(1.0));
}

#[tokio::test]
async fn stored_queries_are_listed_and_purged_by_operation() {
    let rule = "[[cache.rules]]\ngraphql = \"*\"\nttl = \"1h\"\n";
    let world = Setup::new().listen(ADMIN).config(rule).start().await;
    let operator = Operator::of(&world);
    for name in ["One", "Two"] {
        let query = format!("query {name} {{ viewer {{ login }} }}");
        world.post("/graphql", json!({ "query": query })).await.assert_status(200);
    }
    let figures = operator.get("/api/cache").await.json();
    let names = figures["prefixes"].as_array().unwrap().iter().map(|part| part["name"].as_str());
    let mut names: Vec<_> = names.flatten().collect();
    names.sort_unstable();
    assert_eq!(names, ["/graphql/One", "/graphql/Two"]);
    assert_eq!(operator.purge("{\"prefix\": \"/graphql/One\"}").await.json()["entries"], 1);
    assert_eq!(operator.purge("{\"prefix\": \"/graphql\"}").await.json()["entries"], 1);
}
