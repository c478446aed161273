//! The last requests and their stories, as an operator asks for them (SPECIFICATION, "Admin
//! listener").

use http::Method;
use serde_json::{Value, json};

use super::hold_for_five_seconds;
use super::operator::{ADMIN, ISSUES, Operator, printed};
use crate::support::{OTHER_KEY, Setup, World};

async fn ask(world: &World, id: &str, path: &str) -> u16 {
    world.get_with(path, &[("x-request-id", id)]).await.status.as_u16()
}

async fn story(operator: &Operator, id: &str) -> Value {
    let found = operator.get(&format!("/api/requests/{id}")).await.json();
    found["requests"][0].clone()
}

fn steps(story: &Value) -> Vec<&str> {
    let steps = story["steps"].as_array().expect("steps");
    steps.iter().map(|step| step["step"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_story_has_the_account_and_the_upstreams_answer() {
    let world = Setup::new().accounts(2).listen(ADMIN).start().await;
    let operator = Operator::of(&world);
    for id in ["first", "again"] {
        assert_eq!(ask(&world, id, ISSUES).await, 200);
    }
    let first = story(&operator, "first").await;
    assert_eq!(steps(&first), ["sent", "answered"], "{first}");
    assert_eq!(first["steps"][0]["chosen"], "most_left");
    assert_eq!(first["steps"][0]["of"], 2);
    assert_eq!(first["steps"][1]["status"], 200);
    assert_eq!(first["steps"][1]["upstream_request_id"], first["upstream_request_id"]);
    assert_eq!(first["cost"], 1);
    let again = story(&operator, "again").await;
    assert_eq!(again["cache"], "revalidated");
    assert_eq!(again["steps"][0]["chosen"], "validator", "{again}");
    assert_eq!(again["steps"][0]["account"], first["account"]);
    assert_eq!((&again["steps"][1]["status"], &again["cost"]), (&json!(304), &json!(0)));
}

#[tokio::test]
async fn a_story_says_what_held_the_request() {
    let world = Setup::new().manual_clock().limits("concurrency = 1").listen(ADMIN).start().await;
    let operator = Operator::of(&world);
    hold_for_five_seconds(&world, async || {}).await;
    let waited = operator.get("/api/requests?waited=5s").await.json();
    let [request] = &waited["requests"].as_array().unwrap()[..] else { panic!("{waited}") };
    assert_eq!(request["steps"], Value::Null, "a list is short");
    let story = story(&operator, request["request_id"].as_str().unwrap()).await;
    assert_eq!(steps(&story), ["held", "sent", "answered"], "{story}");
    let held = &story["steps"][0];
    assert_eq!((&held["held_by"], &held["took_ms"]), (&json!("concurrency"), &json!(5_000.0)));
    assert_eq!(story["steps"][1]["after_ms"], 5_000.0);
    let id = request["request_id"].as_str().unwrap();
    let address = operator.address.to_string();
    let explained = operator.weir("explain", &[id, "--admin", &address], None).await;
    let text = printed(&explained);
    assert!(explained.status.success(), "{text}");
    assert!(text.contains("held for 5.000 s by concurrency of account-0"), "{text}");
    assert!(text.contains("no other account may send it now"), "{text}");
}

#[tokio::test]
async fn a_list_is_chosen_by_client_status_and_refusal() {
    let world = Setup::new()
        .manual_clock()
        .other_client("allow = [\"GET /user\"]")
        .listen(ADMIN)
        .start()
        .await;
    let operator = Operator::of(&world);
    world.set_limits(&json!({ "core.user": 1 }));
    assert_eq!(ask(&world, "served", ISSUES).await, 200);
    assert_eq!(ask(&world, "refused", &format!("{ISSUES}?page=2")).await, 403);
    let key = format!("Bearer {OTHER_KEY}");
    let headers = [("authorization", key.as_str()), ("x-request-id", "forbidden")];
    world.send(Method::GET, ISSUES, &headers, "").await.assert_status(403);
    for (query, ids) in [
        ("", &["forbidden", "refused", "served"][..]),
        ("?limit=1", &["forbidden"]),
        ("?client=ci", &["refused", "served"]),
        ("?status=403", &["forbidden", "refused"]),
        ("?status=2xx", &["served"]),
        ("?refusal=any", &["forbidden", "refused"]),
        ("?refusal=primary", &["refused"]),
        ("?account=account-0", &["served"]),
        ("?endpoint=/repos/%7Bowner%7D/%7Brepo%7D/issues&client=ci&status=200", &["served"]),
        ("?slower=1h", &[]),
    ] {
        let found = operator.get(&format!("/api/requests{query}")).await.json();
        let found: Vec<_> = found["requests"].as_array().unwrap().iter().collect();
        let found: Vec<_> =
            found.iter().map(|request| request["request_id"].as_str().unwrap()).collect();
        assert_eq!(found, ids, "{query}");
    }
    let denied = story(&operator, "refused").await;
    assert_eq!(steps(&denied), ["denied"], "{denied}");
    assert_eq!(denied["steps"][0]["held_by"], "primary");
    let address = operator.address.to_string();
    let listed = operator.weir("requests", &["--refusal", "--admin", &address], None).await;
    let text = printed(&listed);
    assert!(text.contains("forbidden") && !text.contains("served"), "{text}");
}

#[tokio::test]
async fn an_unknown_request_and_a_wrong_question_get_clear_errors() {
    let world = Setup::new().listen(ADMIN).start().await;
    let operator = Operator::of(&world);
    for (method, path, status, message) in [
        (Method::GET, "/api/requests/none", 404, "no request with this id is known"),
        (Method::GET, "/api/requests?staus=5xx", 422, "known are `client`"),
        (Method::POST, "/api/requests", 405, "only GET and HEAD"),
        (Method::GET, "/api/requests/a/b", 404, "there is /, /healthz"),
    ] {
        let reply = operator.ask(method, path, None).await;
        reply.assert_status(status);
        let said = reply.json()["message"].as_str().unwrap().to_owned();
        assert!(said.starts_with(message), "{path}: {said}");
    }
    let address = operator.address.to_string();
    let explained = operator.weir("explain", &["none", "--admin", &address], None).await;
    assert!(!explained.status.success());
    assert!(
        printed(&explained).contains("no request with this id is known"),
        "{}",
        printed(&explained)
    );
}

#[tokio::test]
async fn a_story_never_holds_a_query_or_a_key() {
    let world = Setup::new().listen(ADMIN).start().await;
    let operator = Operator::of(&world);
    let path = format!("{ISSUES}?labels=s3cret");
    let agent = [("user-agent", "bot ghp_0123456789abcdef0123456789abcdef0123")];
    world.get_with(&path, &agent).await.assert_status(200);
    let text = String::from_utf8(operator.get("/api/requests").await.body.to_vec()).unwrap();
    assert!(text.contains("bot "), "{text}");
    for secret in ["s3cret", "ghp_0123456789", crate::support::KEY] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[tokio::test]
async fn a_story_of_a_queued_write_leads_to_the_write() {
    let world = Setup::new().unspaced_writes().listen(ADMIN).start().await;
    let operator = Operator::of(&world);
    let headers = [("x-request-id", "queued"), ("prefer", "respond-async")];
    let body = json!({ "title": "x" }).to_string();
    let accepted = world.send(Method::POST, ISSUES, &headers, &body).await;
    accepted.assert_status(202);
    let story = story(&operator, "queued").await;
    assert_eq!(steps(&story), ["queued"], "{story}");
    assert_eq!(story["steps"][0]["write"], accepted.json()["id"]);
    let address = operator.address.to_string();
    let explained = operator.weir("explain", &["queued", "--admin", &address], None).await;
    let explained = printed(&explained);
    let command = format!("`weir writes show {}`", accepted.json()["id"].as_str().unwrap());
    assert!(explained.contains(&command), "{explained}");
}
