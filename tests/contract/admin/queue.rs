//! The queue of writes as operators see and change it (SPECIFICATION, "Admin listener").

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use weir::writes::WriteId;

use super::operator::{ADMIN, Operator, TOKEN, printed};
use crate::support::{OTHER_KEY, Setup, World, eventually};

const COMMENTS: &str = "/repos/acme/widgets/issues/1/comments";
const UNKNOWN_ID: &str = "ff-0000000000000000";

/// Queues a comment and returns the id of the write.
async fn post(world: &World, text: &str) -> String {
    post_as(world, text, &[]).await
}

async fn post_as(world: &World, text: &str, more: &[(&str, &str)]) -> String {
    let headers = [&[("prefer", "respond-async")], more].concat();
    let accepted =
        world.send(Method::POST, COMMENTS, &headers, &json!({ "body": text }).to_string()).await;
    accepted.assert_status(202);
    accepted.json()["id"].as_str().unwrap().to_owned()
}

/// Waits for the final state of a write.
async fn end_of(world: &World, id: &str) -> String {
    let id: WriteId = id.parse().unwrap();
    world.gateway.writes.queue().ended(id).await;
    world.gateway.writes.queue().write_status(id).unwrap().state.name().to_owned()
}

fn posts(world: &World) -> usize {
    world.upstream_requests().iter().filter(|entry| entry.method == "POST").count()
}

impl Operator {
    /// The ids on a page of the list, and the cursor of the next page.
    async fn listed(&self, query: &str) -> (Vec<String>, Value) {
        let page = self.get(&format!("/api/writes{query}")).await.json();
        let ids = page["writes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|write| write["id"].as_str().unwrap().to_owned());
        (ids.collect(), page["next"].clone())
    }

    async fn weir_writes(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let address = self.address.to_string();
        let output =
            self.weir("writes", &[arguments, &["--admin", &address]].concat(), Some(TOKEN)).await;
        (output.status.code(), printed(&output))
    }
}

#[tokio::test]
async fn the_queue_is_reported_by_state_age_and_write() {
    let world = Setup::new().listen(ADMIN).manual_clock().unspaced_writes().start().await;
    let operator = Operator::of(&world);
    let gate = world.close_gate("POST", COMMENTS);
    let (first, second) = (post(&world, "one").await, post(&world, "two").await);
    world.held(gate, 1).await;
    world.clock.advance(Duration::from_secs(30));
    let queue = operator.get("/api/writes").await.json();
    let counts =
        json!({ "queued": 1, "sending": 1, "done": 0, "failed": 0, "unknown": 0, "cancelled": 0 });
    assert_eq!(
        (&queue["counts"], &queue["oldest_seconds"], &queue["durable"]),
        (&counts, &json!(30.0), &json!(false)),
        "{queue}"
    );
    let write = |id: &str, state: &str, attempts: u32| {
        json!({
            "id": id, "state": state, "client": "ci", "account": "account-0", "method": "POST", "path": COMMENTS, "attempts": attempts,
            "accepted_at": "2027-01-15T08:00:00Z", "not_before": "2027-01-15T08:00:00Z", "finished_at": null, "reason": null, "status": null
        })
    };
    assert_eq!(queue["writes"], json!([write(&first, "sending", 1), write(&second, "queued", 0)]));
    world.open_gate(gate);
    assert_eq!(
        (end_of(&world, &first).await.as_str(), end_of(&world, &second).await.as_str()),
        ("done", "done")
    );
    let queue = operator.get("/api/writes").await.json();
    assert_eq!(
        (&queue["counts"]["done"], &queue["oldest_seconds"]),
        (&json!(2), &Value::Null),
        "{queue}"
    );
    let done = &queue["writes"][1];
    assert_eq!(
        (&done["status"], &done["finished_at"]),
        (&json!(201), &json!("2027-01-15T08:00:30Z")),
        "{queue}"
    );
    assert!(
        !queue.to_string().contains("two"),
        "no body of a request or an answer is in a list: {queue}"
    );
}

#[tokio::test]
async fn the_list_is_paged_and_filtered_by_state_and_client() {
    let world = Setup::new().listen(ADMIN).accounts(2).unspaced_writes().start().await;
    let operator = Operator::of(&world);
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(post(&world, &number.to_string()).await);
        end_of(&world, &ids[number]).await;
    }
    let others =
        post_as(&world, "other", &[("authorization", &format!("Bearer {OTHER_KEY}"))]).await;
    end_of(&world, &others).await;
    let (page, next) = operator.listed("?limit=2").await;
    assert_eq!((page.as_slice(), &next), (&ids[..2], &json!(ids[1])));
    let (page, next) = operator.listed(&format!("?limit=4&after={}", ids[1])).await;
    assert_eq!(
        (page, next),
        (vec![ids[2].clone(), ids[3].clone(), ids[4].clone(), others.clone()], Value::Null)
    );
    assert_eq!(operator.listed("?client=other").await.0, std::slice::from_ref(&others));
    assert_eq!(operator.listed("?client=%6fther&state=done").await.0, [others]);
    assert!(operator.listed("?state=queued").await.0.is_empty());
    assert_eq!(operator.listed("?state=done&client=ci").await.0, ids);
}

#[tokio::test]
async fn a_malformed_query_gets_the_accepted_values() {
    let world = Setup::new().listen(ADMIN).start().await;
    let operator = Operator::of(&world);
    for (query, expected) in [
        ("state=open", "queued, sending, done, failed, unknown, cancelled"),
        ("client=nobody", "no client nobody"),
        ("limit=0", "1 to 1000"),
        ("limit=1001", "1 to 1000"),
        ("limit=many", "1 to 1000"),
        ("after=last", "an id is like"),
        ("order=newest", "state, client, limit and after"),
        ("state=done&state=failed", "twice"),
        ("state", "state, client, limit and after"),
    ] {
        let refused = operator.ask(Method::GET, &format!("/api/writes?{query}"), None).await;
        refused.assert_status(422);
        assert!(
            refused.json()["message"].as_str().unwrap().contains(expected),
            "{query}: {refused:?}"
        );
    }
    for path in ["/api/writes/1", "/api/writes/FF-0000000000000000", "/api/writes/1-2/cancel"] {
        let method = if path.ends_with("cancel") { Method::POST } else { Method::GET };
        let refused = operator.ask(method, path, None).await;
        refused.assert_status(422);
        assert!(
            refused.json()["message"].as_str().unwrap().contains("an id is like"),
            "{refused:?}"
        );
    }
    for (path, allow) in [
        ("/api/writes".to_owned(), "GET, HEAD"),
        (format!("/api/writes/{UNKNOWN_ID}"), "GET, HEAD"),
        (format!("/api/writes/{UNKNOWN_ID}/cancel"), "POST"),
        (format!("/api/writes/{UNKNOWN_ID}/retry"), "POST"),
    ] {
        let refused = operator.ask(Method::DELETE, &path, None).await;
        refused.assert_status(405);
        assert_eq!(refused.header("allow"), Some(allow), "{path}");
    }
    for path in ["/api/writes/", "/api/writesx", &format!("/api/writes/{UNKNOWN_ID}/undo")] {
        operator.ask(Method::GET, path, None).await.assert_status(404);
    }
    operator.ask(Method::GET, &format!("/api/writes/{UNKNOWN_ID}"), None).await.assert_status(404);
    let head = operator.ask(Method::HEAD, "/api/writes", None).await;
    head.assert_status(200);
    assert!(head.body.is_empty() && head.number("content-length") > 0, "{head:?}");
}

#[tokio::test]
async fn a_write_is_shown_alike_in_the_list_and_alone() {
    let world = Setup::new().listen(ADMIN).manual_clock().unspaced_writes().start().await;
    let operator = Operator::of(&world);
    world.clock.advance(Duration::from_millis(400));
    let gate = world.close_gate("POST", COMMENTS);
    let (first, second) = (post(&world, "one").await, post(&world, "two").await);
    world.held(gate, 1).await;
    let compare = async |states: [&str; 2]| {
        let list = operator.get("/api/writes").await.json();
        for (place, id) in [&first, &second].into_iter().enumerate() {
            let (listed, alone) =
                (&list["writes"][place], operator.get(&format!("/api/writes/{id}")).await.json());
            assert_eq!(alone["state"], states[place]);
            for key in [
                "id",
                "state",
                "client",
                "account",
                "method",
                "path",
                "attempts",
                "accepted_at",
                "not_before",
                "finished_at",
                "reason",
            ] {
                assert_eq!(listed[key], alone[key], "{key}: {listed} {alone}");
            }
            assert_eq!(listed["status"], alone["response"]["status"]);
        }
    };
    compare(["sending", "queued"]).await;
    world.clock.advance(Duration::from_millis(300));
    world.open_gate(gate);
    end_of(&world, &first).await;
    end_of(&world, &second).await;
    compare(["done", "done"]).await;
}

#[tokio::test]
async fn one_write_is_shown_with_the_upstreams_response() {
    let world = Setup::new().listen(ADMIN).unspaced_writes().start().await;
    let operator = Operator::of(&world);
    let id = post(&world, "whole").await;
    assert_eq!(end_of(&world, &id).await, "done");
    let reported = operator.get(&format!("/api/writes/{id}")).await.json();
    assert_eq!(
        (&reported["id"], &reported["response"]["status"], &reported["response"]["body"]["body"]),
        (&json!(id), &json!(201), &json!("whole"))
    );
    let url = reported["response"]["body"]["url"].as_str().unwrap();
    assert!(url.starts_with(&format!("http://{}/", world.emulator.addr())), "{url}");
    assert!(!reported.to_string().contains("emu_"), "{reported}");
}

#[tokio::test]
async fn an_operator_cancels_queued_writes_only() {
    let world = Setup::new().listen(ADMIN).unspaced_writes().start().await;
    let operator = Operator::of(&world);
    let gate = world.close_gate("POST", COMMENTS);
    let (first, second) = (post(&world, "one").await, post(&world, "two").await);
    world.held(gate, 1).await;
    let cancelled = operator.post(&format!("/api/writes/{second}/cancel"), "").await;
    cancelled.assert_status(200);
    let reported = cancelled.json();
    assert_eq!(
        (&reported["id"], &reported["state"], &reported["reason"]),
        (&json!(second), &json!("cancelled"), &json!("cancelled"))
    );
    assert!(reported["message"].as_str().unwrap().contains("an operator"), "{reported}");
    for (id, state) in [(&first, "sending"), (&second, "cancelled")] {
        let refused = operator.post(&format!("/api/writes/{id}/cancel"), "").await;
        refused.assert_status(409);
        assert_eq!(
            (&refused.json()["state"], &refused.json()["write"]),
            (&json!(state), &json!(id))
        );
    }
    operator.post(&format!("/api/writes/{UNKNOWN_ID}/cancel"), "").await.assert_status(404);
    world.open_gate(gate);
    assert_eq!(end_of(&world, &first).await, "done");
    assert_eq!(posts(&world), 1);
}

#[tokio::test]
async fn an_operator_retries_a_failed_or_cancelled_write() {
    let world = Setup::new().listen(ADMIN).unspaced_writes().start().await;
    let operator = Operator::of(&world);
    world
        .arm(&json!({ "match": { "method": "POST", "nth": 1 }, "fault": "status", "status": 422 }));
    let id = post(&world, "again").await;
    assert_eq!(end_of(&world, &id).await, "failed");
    let again = operator.post(&format!("/api/writes/{id}/retry"), "").await;
    again.assert_status(200);
    assert_eq!(
        (&again.json()["id"], &again.json()["response"]),
        (&json!(id), &Value::Null),
        "{again:?}"
    );
    assert_eq!(end_of(&world, &id).await, "done");
    let refused = operator.post(&format!("/api/writes/{id}/retry"), "{}").await;
    refused.assert_status(409);
    assert_eq!(refused.json()["state"], "done");
    operator.post(&format!("/api/writes/{UNKNOWN_ID}/retry"), "").await.assert_status(404);
    assert_eq!(posts(&world), 2);
}

#[tokio::test]
async fn an_unknown_write_is_retried_only_with_even_if_executed() {
    let world = Setup::new().listen(ADMIN).unspaced_writes().start().await;
    let operator = Operator::of(&world);
    world.arm(&json!({ "match": { "method": "POST", "nth": 1 }, "fault": "reset_after" }));
    let id = post(&world, "twice").await;
    assert_eq!(end_of(&world, &id).await, "unknown");
    let path = format!("/api/writes/{id}/retry");
    for body in ["", "{}", "{\"even_if_executed\": false}"] {
        let refused = operator.post(&path, body).await;
        refused.assert_status(409);
        assert_eq!(refused.json()["state"], "unknown");
        assert!(
            refused.json()["message"].as_str().unwrap().contains("{\"even_if_executed\": true}"),
            "{refused:?}"
        );
    }
    for (body, status) in
        [("{", 400), ("[]", 422), ("{\"force\": true}", 422), ("{\"even_if_executed\": 1}", 422)]
    {
        operator.post(&path, body).await.assert_status(status);
    }
    assert_eq!(posts(&world), 1);
    operator.post(&path, "{\"even_if_executed\": true}").await.assert_status(200);
    assert_eq!(end_of(&world, &id).await, "done");
    assert_eq!(posts(&world), 2);
}

#[tokio::test]
async fn a_retry_of_an_unknown_write_cannot_be_cancelled() {
    let world = Setup::new().listen(ADMIN).unspaced_writes().start().await;
    let operator = Operator::of(&world);
    world.arm(&json!({ "match": { "method": "POST", "nth": 1 }, "fault": "reset_after" }));
    let id = post(&world, "twice").await;
    assert_eq!(end_of(&world, &id).await, "unknown");
    let gate = world.close_gate("POST", COMMENTS);
    let before = post(&world, "before it").await;
    world.held(gate, 1).await;
    operator
        .post(&format!("/api/writes/{id}/retry"), "{\"even_if_executed\": true}")
        .await
        .assert_status(200);
    let refused = operator.post(&format!("/api/writes/{id}/cancel"), "").await;
    refused.assert_status(409);
    assert_eq!(refused.json()["state"], "sending");
    world.send(Method::DELETE, &format!("/_weir/writes/{id}"), &[], "").await.assert_status(409);
    world.open_gate(gate);
    assert_eq!(
        (end_of(&world, &before).await, end_of(&world, &id).await),
        ("done".to_owned(), "done".to_owned())
    );
}

#[tokio::test]
async fn a_retry_into_a_full_queue_is_refused_and_changes_nothing() {
    let world = Setup::new().listen(ADMIN).unspaced_writes().writes("queue_max = 1").start().await;
    let operator = Operator::of(&world);
    world
        .arm(&json!({ "match": { "method": "POST", "nth": 1 }, "fault": "status", "status": 422 }));
    let failed = post(&world, "failed").await;
    assert_eq!(end_of(&world, &failed).await, "failed");
    let gate = world.close_gate("POST", COMMENTS);
    let filling = post(&world, "filling").await;
    let refused = operator.post(&format!("/api/writes/{failed}/retry"), "").await;
    refused.assert_status(503);
    assert!(refused.json()["message"].as_str().unwrap().contains("queue_max"), "{refused:?}");
    world.open_gate(gate);
    assert_eq!(end_of(&world, &filling).await, "done");
    assert_eq!(operator.get(&format!("/api/writes/{failed}")).await.json()["state"], "failed");
}

#[tokio::test]
async fn the_queue_is_closed_without_the_admin_token() {
    let world = Setup::new()
        .listen(&format!("{ADMIN}\nadmin_token = {{ value = \"{TOKEN}\" }}"))
        .unspaced_writes()
        .start()
        .await;
    let operator = Operator::of(&world);
    let gate = world.close_gate("POST", COMMENTS);
    let (first, second) = (post(&world, "one").await, post(&world, "two").await);
    for (method, path) in [
        (Method::GET, "/api/writes".to_owned()),
        (Method::GET, format!("/api/writes/{second}")),
        (Method::POST, format!("/api/writes/{second}/cancel")),
        (Method::POST, format!("/api/writes/{second}/retry")),
    ] {
        operator.ask(method, &path, None).await.assert_status(401);
    }
    world.open_gate(gate);
    assert_eq!(
        (end_of(&world, &first).await.as_str(), end_of(&world, &second).await.as_str()),
        ("done", "done")
    );
}

#[tokio::test]
async fn the_metrics_report_queue_states_age_and_final_states() {
    let world = Setup::new().listen(ADMIN).manual_clock().unspaced_writes().start().await;
    let operator = Operator::of(&world);
    assert_eq!(operator.metric("weir_writes_oldest_seconds").await, Some(0.0));
    let gate = world.close_gate("POST", COMMENTS);
    let (first, second) = (post(&world, "one").await, post(&world, "two").await);
    world.held(gate, 1).await;
    world.clock.advance(Duration::from_secs(40));
    assert_eq!(operator.metric("weir_writes{state=\"queued\"}").await, Some(1.0));
    assert_eq!(operator.metric("weir_writes{state=\"sending\"}").await, Some(1.0));
    assert_eq!(operator.metric("weir_writes_oldest_seconds").await, Some(40.0));
    operator.post(&format!("/api/writes/{second}/cancel"), "").await.assert_status(200);
    world.open_gate(gate);
    assert_eq!(end_of(&world, &first).await, "done");
    for (series, value) in [
        ("weir_writes{state=\"done\"}", 1.0),
        ("weir_writes{state=\"cancelled\"}", 1.0),
        ("weir_writes_oldest_seconds", 0.0),
        ("weir_write_attempts_count{state=\"done\"}", 1.0),
        ("weir_write_attempts_sum{state=\"done\"}", 1.0),
        ("weir_write_attempts_sum{state=\"cancelled\"}", 0.0),
        ("weir_write_queue_seconds_sum{state=\"done\"}", 40.0),
        ("weir_write_queue_seconds_count{state=\"cancelled\"}", 1.0),
    ] {
        assert_eq!(operator.metric(series).await, Some(value), "{series}");
    }
    eventually(|| world.gateway.writes.turns().writes() == 0).await;
    assert_eq!(operator.metric("weir_writes{state=\"queued\"}").await, Some(0.0));
}

#[tokio::test]
async fn the_counts_follow_every_state_change_of_a_write() {
    let world = Setup::new()
        .listen(ADMIN)
        .manual_clock()
        .unspaced_writes()
        .writes("retention = \"1h\"")
        .start()
        .await;
    let counted = || world.gateway.writes.queue().counts().map(|(_, count)| count);
    world
        .arm(&json!({ "match": { "method": "POST", "nth": 1 }, "fault": "status", "status": 422 }));
    let id = post(&world, "again").await;
    assert_eq!(end_of(&world, &id).await, "failed");
    assert_eq!(counted(), [0, 0, 0, 1, 0, 0]);
    let operator = Operator::of(&world);
    operator.post(&format!("/api/writes/{id}/retry"), "").await.assert_status(200);
    assert_eq!(end_of(&world, &id).await, "done");
    assert_eq!((counted(), world.gateway.writes.queue().oldest()), ([0, 0, 1, 0, 0, 0], None));
    world.clock.advance(Duration::from_hours(2));
    eventually(|| counted() == [0; 6]).await;
}

#[tokio::test]
async fn weir_writes_lists_shows_cancels_and_retries() {
    let world = Setup::new()
        .listen(&format!("{ADMIN}\nadmin_token = {{ value = \"{TOKEN}\" }}"))
        .unspaced_writes()
        .start()
        .await;
    let operator = Operator::of(&world);
    world.arm(&json!({ "match": { "method": "POST", "nth": 1 }, "fault": "reset_after" }));
    let lost = post(&world, "lost").await;
    assert_eq!(end_of(&world, &lost).await, "unknown");
    let gate = world.close_gate("POST", COMMENTS);
    let (first, second) = (post(&world, "one").await, post(&world, "two").await);
    world.held(gate, 1).await;

    let (code, table) = operator.weir_writes(&["list"]).await;
    assert_eq!(code, Some(0), "{table}");
    assert!(
        table.contains("1 queued, 1 sending, 0 done, 0 failed, 1 unknown, 0 cancelled"),
        "{table}"
    );
    assert!(
        table.contains("lost with the process") && table.contains(&format!("{lost}  unknown  ci")),
        "{table}"
    );
    assert!(table.contains(&format!("POST {COMMENTS}")), "{table}");
    let (_, json) = operator
        .weir_writes(&["list", "--state", "queued", "--client", "ci", "--limit", "5", "--json"])
        .await;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["writes"][0]["id"], json!(second));
    let (_, more) = operator.weir_writes(&["list", "--limit", "1"]).await;
    assert!(more.contains(&format!("add --after {lost}")), "{more}");

    let (code, shown) = operator.weir_writes(&["show", &lost]).await;
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("unknown") && shown.contains(&format!("POST {COMMENTS}")), "{shown}");
    let (code, reported) = operator.weir_writes(&["cancel", &second]).await;
    assert_eq!((code, reported), (Some(0), format!("{second} is cancelled\n")));
    world.open_gate(gate);
    assert_eq!(end_of(&world, &first).await, "done");

    let (code, refused) = operator.weir_writes(&["retry", &lost]).await;
    assert_eq!(code, Some(1), "{refused}");
    assert!(
        refused.contains("may have been executed") && refused.contains("--even-if-executed"),
        "{refused}"
    );
    assert_eq!(posts(&world), 2);
    let (code, reported) = operator.weir_writes(&["retry", &lost, "--even-if-executed"]).await;
    assert_eq!(code, Some(0), "{reported}");
    assert_eq!(end_of(&world, &lost).await, "done");
    assert_eq!(posts(&world), 3);
}

#[tokio::test]
async fn weir_writes_names_the_fault_and_exits_with_its_code() {
    let world = Setup::new().listen(ADMIN).unspaced_writes().start().await;
    let operator = Operator::of(&world);
    let done = post(&world, "done").await;
    assert_eq!(end_of(&world, &done).await, "done");
    let cases: [(&[&str], i32, &str); 9] = [
        (&["show", UNKNOWN_ID], 1, "there is no write ff-0000000000000000"),
        (&["cancel", UNKNOWN_ID], 1, "there is no write ff-0000000000000000"),
        (&["cancel", &done], 1, "this one is done"),
        (&["retry", &done], 1, "this one is done"),
        (&["list", "--client", "nobody"], 2, "no client nobody"),
        (&["list", "--state", "open"], 2, "possible values: queued"),
        (&["list", "--limit", "0"], 2, "1..=1000"),
        (&["show", "first"], 2, "1f-0000000000000007"),
        (&[], 2, "Usage"),
    ];
    for (arguments, code, expected) in cases {
        let (ended, text) = operator.weir_writes(arguments).await;
        assert_eq!(ended, Some(code), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
    let clients = world.address.to_string();
    let wrong_listener = operator.weir("writes", &["show", &done, "--admin", &clients], None).await;
    assert_eq!(wrong_listener.status.code(), Some(1));
    assert!(
        printed(&wrong_listener).contains("is not the admin listener of a gateway"),
        "{}",
        printed(&wrong_listener)
    );
}
