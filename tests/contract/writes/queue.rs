//! Queued writes: an accepted write is kept, executed in order, never twice, and reported
//! truthfully (SPECIFICATION, "Asynchronous writes").

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use weir::clock::Clock;
use weir::gateway::WriteStatus;
use weir::writes::{WriteId, WriteState};

use crate::support::raw::Connection;
use crate::support::{OTHER_KEY, Reply, Setup, World, all_have_status, eventually};

const COMMENTS: &str = "/repos/acme/widgets/issues/1/comments";
const ASYNC: (&str, &str) = ("prefer", "respond-async");

/// The requests of clients with queued writes.
impl World {
    /// An asynchronous comment.
    async fn post_async(&self, text: &str) -> Reply {
        self.send(Method::POST, COMMENTS, &[ASYNC], &json!({ "body": text }).to_string()).await
    }

    /// A comment with an idempotency key, synchronous unless `more` says otherwise.
    async fn post_with_key(&self, key: &str, text: &str, more: &[(&str, &str)]) -> Reply {
        let headers = [&[("idempotency-key", key)], more].concat();
        self.send(Method::POST, COMMENTS, &headers, &json!({ "body": text }).to_string()).await
    }

    /// The status resource of a write in its final state.
    async fn end_of(&self, accepted: &Reply) -> Value {
        accepted.assert_status(202);
        let location = accepted.header("location").unwrap();
        let status = self.get_with(location, &[("prefer", "wait=30")]).await;
        status.assert_status(200);
        status.json()
    }

    fn posts(&self) -> usize {
        self.upstream_requests().iter().filter(|entry| entry.method == "POST").count()
    }

    fn write_status(&self, accepted: &Reply) -> Option<WriteStatus> {
        let id: WriteId = accepted.json()["id"].as_str().unwrap().parse().unwrap();
        self.gateway.writes.queue().write_status(id)
    }
}

#[tokio::test]
async fn a_write_is_accepted_at_once_and_its_outcome_can_be_read() {
    let world = Setup::new().unspaced_writes().start().await;
    let gate = world.close_gate("POST", COMMENTS);
    let accepted = world.post_async("later").await;
    accepted.assert_status(202);
    assert_eq!(accepted.header("preference-applied"), Some("respond-async"));
    let reported = accepted.json();
    assert_eq!(
        accepted.header("location"),
        Some(format!("/_weir/writes/{}", reported["id"].as_str().unwrap()).as_str())
    );
    assert_eq!(
        (&reported["method"], &reported["path"], &reported["response"]),
        (&json!("POST"), &json!(COMMENTS), &Value::Null)
    );
    world.held(gate, 1).await;
    let sending = world.get(accepted.header("location").unwrap()).await;
    assert_eq!(
        (&sending.json()["state"], &sending.json()["attempts"]),
        (&json!("sending"), &json!(1))
    );
    world.open_gate(gate);
    let done = world.end_of(&accepted).await;
    assert_eq!(
        (&done["state"], &done["response"]["status"]),
        (&json!("done"), &json!(201)),
        "{done}"
    );
    assert_eq!(done["response"]["body"]["body"], "later");
    let url = done["response"]["body"]["url"].as_str().unwrap();
    assert!(url.starts_with(&format!("http://{}/repos/", world.address)), "{url}");
    assert!(
        done["response"]["headers"]["location"]
            .as_str()
            .is_none_or(|url| url.contains(&world.address.to_string()))
    );
    assert_eq!(world.posts(), 1);
    // The URL for a library that puts its base URL before every path.
    let behind_base =
        world.get(&format!("/api/v3{}", accepted.header("location").unwrap())).await.json();
    let url = behind_base["response"]["body"]["url"].as_str().unwrap();
    assert!(url.starts_with(&format!("http://{}/api/v3/repos/", world.address)), "{url}");
}

#[tokio::test]
async fn the_upstreams_response_is_the_outcome_of_a_write() {
    let world = Setup::new().unspaced_writes().start().await;
    for (path, body, status) in [
        (COMMENTS, json!({ "body": 5 }), 422),
        ("/repos/acme/nothing/issues", json!({ "title": "x" }), 404),
        (COMMENTS, json!({}), 422),
    ] {
        let accepted = world.send(Method::POST, path, &[ASYNC], &body.to_string()).await;
        let end = world.end_of(&accepted).await;
        assert_eq!(
            (&end["state"], &end["response"]["status"]),
            (&json!("failed"), &json!(status)),
            "{end}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_and_synchronous_writes_keep_their_order() {
    let world = Setup::new().unspaced_writes().start().await;
    let gate = world.close_gate("POST", COMMENTS);
    let mut accepted = Vec::new();
    let mut waiting = Vec::new();
    for n in 0..6 {
        if n % 2 == 0 {
            accepted.push(world.post_async(&format!("number {n}")).await);
        } else {
            let mut connection = Connection::open(world.address).await;
            connection
                .send_write(&Method::POST, COMMENTS, &[], &json!({ "body": format!("number {n}") }))
                .await;
            waiting.push(connection);
        }
        eventually(|| world.gateway.writes.turns().writes() == n + 1).await;
    }
    world.held(gate, 1).await;
    world.open_gate(gate);
    for connection in &mut waiting {
        assert!(connection.read_answer().await.starts_with("HTTP/1.1 201"));
    }
    join_all(accepted.iter().map(|accepted| world.end_of(accepted))).await;
    let listed = world.get(&format!("{COMMENTS}?per_page=100")).await.json();
    let texts: Vec<_> =
        listed.as_array().unwrap().iter().filter_map(|comment| comment["body"].as_str()).collect();
    let ours: Vec<_> = texts.iter().filter(|text| text.starts_with("number ")).collect();
    assert_eq!(ours.len(), 6);
    assert!(ours.is_sorted(), "{ours:?}");
}

#[tokio::test]
async fn a_queued_write_can_be_cancelled_and_is_never_sent() {
    let world = Setup::new().unspaced_writes().start().await;
    let gate = world.close_gate("POST", COMMENTS);
    let first = world.post_async("first").await;
    world.held(gate, 1).await;
    let second = world.post_async("second").await;
    let third = world.post_async("third").await;
    let cancel = |accepted: &Reply| accepted.header("location").unwrap().to_owned();
    world.send(Method::DELETE, &cancel(&second), &[], "").await.assert_status(204);
    world.send(Method::DELETE, &cancel(&second), &[], "").await.assert_status(409);
    let refused = world.send(Method::DELETE, &cancel(&first), &[], "").await;
    refused.assert_status(409);
    assert!(refused.json()["message"].as_str().unwrap().contains("sending"));
    world.open_gate(gate);
    assert_eq!(world.end_of(&first).await["state"], "done");
    assert_eq!(world.end_of(&third).await["state"], "done");
    let cancelled = world.end_of(&second).await;
    assert_eq!((&cancelled["state"], &cancelled["attempts"]), (&json!("cancelled"), &json!(0)));
    assert_eq!(world.posts(), 2);
    assert_eq!(world.gateway.writes.turns().writes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_waiting_for_a_limit_can_be_cancelled() {
    let world = Setup::new()
        .manual_clock()
        .writes("spacing = \"1s\"\nnotify_spacing = \"3s\"")
        .start()
        .await;
    world.end_of(&world.post_async("first").await).await;
    let second = world.post_async("second").await;
    eventually(|| world.gateway.dispatcher.admissions().waiting() == 1).await;
    world
        .send(Method::DELETE, second.header("location").unwrap(), &[], "")
        .await
        .assert_status(204);
    eventually(|| world.gateway.dispatcher.admissions().waiting() == 0).await;
    world.clock.advance(Duration::from_secs(10));
    assert_eq!(world.end_of(&world.post_async("third").await).await["state"], "done");
    assert_eq!(world.posts(), 2);
}

#[tokio::test]
async fn a_client_sees_its_own_writes_only() {
    let world = Setup::new().accounts(2).unspaced_writes().start().await;
    let accepted = world.post_async("mine").await;
    world.end_of(&accepted).await;
    let location = accepted.header("location").unwrap();
    let other = format!("Bearer {OTHER_KEY}");
    for method in [Method::GET, Method::DELETE] {
        world.send(method, location, &[("authorization", &other)], "").await.assert_status(404);
    }
    world.get("/_weir/writes/1-0000000000000000").await.assert_status(404);
    world.get("/_weir/writes/nonsense").await.assert_status(404);
    world.send(Method::POST, location, &[], "").await.assert_status(404);
}

#[tokio::test]
async fn an_idempotency_key_returns_its_write_or_422_for_another_body() {
    let world = Setup::new().accounts(2).unspaced_writes().start().await;
    let first = world.post_with_key("k-1", "once", &[ASYNC]).await;
    let done = world.end_of(&first).await;
    let again = world.post_with_key("k-1", "once", &[ASYNC]).await;
    again.assert_status(202);
    assert_eq!((&again.json()["id"], &again.json()["state"]), (&done["id"], &json!("done")));
    world.post_with_key("k-1", "another", &[ASYNC]).await.assert_status(422);
    world.post_with_key("a\tb", "not printable", &[]).await.assert_status(400);
    world.post_with_key(&"x".repeat(256), "long", &[]).await.assert_status(400);
    let other = format!("Bearer {OTHER_KEY}");
    let others = world.post_with_key("k-1", "another", &[ASYNC, ("authorization", &other)]).await;
    others.assert_status(202);
    assert_ne!(others.json()["id"], done["id"]);
    eventually(|| world.gateway.writes.turns().writes() == 0).await;
    assert_eq!(world.posts(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_with_the_same_key_at_the_same_time_are_one_write() {
    let world = Setup::new().unspaced_writes().start().await;
    let gate = world.close_gate("POST", COMMENTS);
    let requests =
        (0..10).map(|n| world.post_with_key("k", "once", if n % 2 == 0 { &[ASYNC] } else { &[] }));
    let open = async {
        world.held(gate, 1).await;
        eventually(|| world.gateway.env.active.count() >= 5).await;
        world.open_gate(gate);
    };
    let (answers, ()) = tokio::join!(join_all(requests), open);
    for (n, answer) in answers.iter().enumerate() {
        answer.assert_status(if n % 2 == 0 { 202 } else { 201 });
    }
    assert_eq!(world.posts(), 1);
}

#[tokio::test]
async fn a_repeated_synchronous_write_gets_the_same_response() {
    let world = Setup::new().unspaced_writes().start().await;
    let first = world.post_with_key("k", "once", &[]).await;
    let second = world.post_with_key("k", "once", &[]).await;
    assert_eq!(first.header("x-weir-account"), Some("account-0"));
    all_have_status(&[first, second], 201);
    assert_eq!(world.posts(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_write_with_a_key_ends_with_its_client() {
    let world = Setup::new().unspaced_writes().start().await;
    let gate = world.close_gate("POST", COMMENTS);
    let first = world.post_async("first").await;
    world.held(gate, 1).await;
    let mut connection = Connection::open(world.address).await;
    connection
        .send_write(
            &Method::POST,
            COMMENTS,
            &[("idempotency-key", "k")],
            &json!({ "body": "leaves" }),
        )
        .await;
    eventually(|| world.gateway.writes.turns().writes() == 2).await;
    drop(connection);
    eventually(|| world.gateway.writes.turns().writes() == 1).await;
    // The key is free again.
    let again = world.post_with_key("k", "another", &[ASYNC]).await;
    world.open_gate(gate);
    assert_eq!(world.end_of(&first).await["state"], "done");
    assert_eq!(world.end_of(&again).await["state"], "done");
    assert_eq!(world.posts(), 2);
}

#[tokio::test]
async fn a_write_with_a_key_is_limit_denied_like_any_other() {
    let world = Setup::new()
        .manual_clock()
        .writes("spacing = \"1s\"\nnotify_spacing = \"3s\"")
        .start()
        .await;
    world.post_with_key("k-1", "first", &[]).await.assert_status(201);
    let refused = world.post_with_key("k-2", "second", &[("prefer", "wait=0")]).await;
    refused.assert_secondary_limited();
    world.clock.advance(Duration::from_secs(10));
    world.post_with_key("k-2", "another", &[]).await.assert_status(201);
    assert_eq!(world.posts(), 2);
}

#[tokio::test]
async fn a_queued_post_with_a_lost_response_ends_as_unknown() {
    let world = Setup::new().unspaced_writes().start().await;
    world.arm(&json!({ "match": { "method": "POST" }, "fault": "reset_after" }));
    let end = world.end_of(&world.post_async("lost").await).await;
    assert_eq!((&end["state"], &end["attempts"]), (&json!("unknown"), &json!(1)), "{end}");
    let message = end["message"].as_str().unwrap();
    assert!(message.contains("unknown whether") && message.contains("lost"), "{message}");
    assert_eq!(world.posts(), 1);
}

#[tokio::test]
async fn an_unknown_outcome_shows_the_upstreams_response() {
    let world = Setup::new().unspaced_writes().start().await;
    world.arm(&json!({ "match": { "method": "POST" }, "fault": "status", "status": 500, "body": { "trace": 7 } }));
    let end = world.end_of(&world.post_async("answered").await).await;
    assert_eq!((&end["state"], &end["attempts"]), (&json!("unknown"), &json!(1)), "{end}");
    assert_eq!(
        (&end["response"]["status"], &end["response"]["body"]["trace"]),
        (&json!(500), &json!(7)),
        "{end}"
    );
    let message = end["message"].as_str().unwrap();
    assert!(
        message.contains("unknown whether") && message.contains("500") && !message.contains("lost"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_put_with_a_lost_response_is_repeated() {
    let world = Setup::new().manual_clock().unspaced_writes().start().await;
    let path = "/repos/acme/widgets/issues/1/labels";
    world.arm(&json!({ "match": { "method": "PUT", "nth": 1 }, "fault": "reset_after" }));
    let accepted =
        world.send(Method::PUT, path, &[ASYNC], &json!({ "labels": [] }).to_string()).await;
    let rests = || {
        world
            .write_status(&accepted)
            .and_then(|status| status.progress)
            .is_some_and(|so_far| so_far.may_have_run)
    };
    eventually(rests).await;
    assert_eq!(
        world.get(accepted.header("location").unwrap()).await.json()["state"],
        "sending",
        "it may have been executed"
    );
    world.clock.advance(Duration::from_secs(1));
    let end = world.end_of(&accepted).await;
    assert_eq!((&end["state"], &end["attempts"]), (&json!("done"), &json!(2)), "{end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_with_a_key_is_finished_without_its_client() {
    let world = Setup::new().clock(Clock::scaled(60.0)).unspaced_writes().start().await;
    world.arm(&json!({ "match": { "method": "PUT", "nth": 1 }, "fault": "status", "status": 500 }));
    let mut connection = Connection::open(world.address).await;
    let labels = "/repos/acme/widgets/issues/1/labels";
    connection
        .send_write(&Method::PUT, labels, &[("idempotency-key", "k")], &json!({ "labels": [] }))
        .await;
    eventually(|| world.upstream_requests().iter().any(|entry| entry.method == "PUT")).await;
    drop(connection);
    let next = world.post_async("of the same lane").await;
    assert_eq!(world.end_of(&next).await["state"], "done");
    assert_eq!(world.upstream_requests().iter().filter(|entry| entry.method == "PUT").count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_between_attempts_leave_their_slots_to_others() {
    let world = Setup::new().clock(Clock::scaled(10.0)).unspaced_writes().start().await;
    world.arm(
        &json!({ "match": { "method": "PUT", "times": 1000 }, "fault": "status", "status": 500 }),
    );
    let mut failing = Vec::new();
    for issue in 2..22 {
        let path = format!("/repos/acme/widgets/issues/{issue}/labels");
        failing.push(
            world.send(Method::PUT, &path, &[ASYNC], &json!({ "labels": [] }).to_string()).await,
        );
    }
    eventually(|| {
        world.upstream_requests().iter().filter(|entry| entry.method == "PUT").count() >= 40
    })
    .await;
    let healthy = world
        .send(
            Method::PATCH,
            "/repos/acme/widgets/issues/1",
            &[ASYNC],
            &json!({ "title": "new" }).to_string(),
        )
        .await;
    assert_eq!(world.end_of(&healthy).await["state"], "done");
    assert!(failing.iter().all(|accepted| {
        world.write_status(accepted).is_some_and(|status| !status.state.is_final())
    }));
}

/// Two writes to one resource, by two of its URLs.
const ADDRESSES: [[(Method, &str); 2]; 6] = [
    [
        (Method::PUT, "/repos/acme/widgets/issues/1/labels"),
        (Method::POST, "/repos/Acme/Widgets/issues/1/comments"),
    ],
    [
        (Method::PUT, "/orgs/Acme/teams/t2/memberships/x"),
        (Method::DELETE, "/orgs/acme/teams/T2/memberships/X"),
    ],
    [
        (Method::DELETE, "/repos/acme/widgets/issues/9/dependencies/blocked_by/77"),
        (Method::POST, "/repos/acme/widgets/issues/9/comments"),
    ],
    [
        (Method::DELETE, "/repos/acme/widgets/git/refs/heads/a"),
        (Method::POST, "/repos/acme/widgets/git/refs"),
    ],
    [
        (Method::DELETE, "/repos/acme/widgets/labels/bug"),
        (Method::POST, "/repos/acme/widgets/labels"),
    ],
    [
        (Method::PUT, "/repos/acme/widgets/pulls/6/merge"),
        (Method::POST, "/repos/acme/widgets/issues/6/comments"),
    ],
];

#[tokio::test(flavor = "multi_thread")]
async fn a_write_between_attempts_is_not_overtaken_in_its_lane() {
    let world = Setup::new().manual_clock().unspaced_writes().start().await;
    for [(method, path), (next_method, next_path)] in ADDRESSES {
        let before = world.upstream_requests().len();
        world.arm(&json!({ "match": { "method": method.as_str(), "path": path, "nth": 1 }, "fault": "status", "status": 500 }));
        let first = world.send(method.clone(), path, &[ASYNC], "{}").await;
        eventually(|| {
            world
                .write_status(&first)
                .and_then(|status| status.progress)
                .is_some_and(|so_far| so_far.may_have_run)
        })
        .await;
        let next = world.send(next_method.clone(), next_path, &[ASYNC], "{}").await;
        let ahead =
            world.write_status(&next).map(|status| world.gateway.writes.queue().ahead(status.id));
        assert_eq!(ahead, Some(1), "{next_method} {next_path} waits for {method} {path}");
        world.clock.advance(Duration::from_secs(1));
        world.end_of(&next).await;
        let sent: Vec<_> =
            world.upstream_requests().into_iter().skip(before).map(|entry| entry.path).collect();
        assert_eq!(sent, [path, path, next_path]);
    }
}

async fn cannot_be_kept(world: &World, path: &str, body: &str, more: (&str, &str)) {
    cannot_be_kept_as(world, &Method::POST, path, body, more).await;
}

async fn cannot_be_kept_as(
    world: &World,
    method: &Method,
    path: &str,
    body: &str,
    more: (&str, &str),
) {
    let reply = world.send(method.clone(), path, &[ASYNC, more], body).await;
    assert_eq!(reply.header("preference-applied"), None, "{path} {more:?}");
    let keyed = world.send(method.clone(), path, &[("idempotency-key", "k"), more], body).await;
    assert_eq!(keyed.status.as_u16(), 400, "{method} {path}: {keyed:?}");
}

#[tokio::test]
async fn a_write_with_a_credential_is_never_queued() {
    let world = Setup::new().unspaced_writes().start().await;
    let hook = json!({ "name": "web", "config": { "url": "http://127.0.0.1:9/", "secret": "of the hook" } }).to_string();
    let no_header = ("accept", "application/json");
    let page = format!("https://example.com/?as={OTHER_KEY}");
    for (path, body, more) in [
        ("/repos/acme/widgets/hooks", hook.as_str(), no_header),
        ("/repos/acme/widgets/actions/runners/registration-token", "", no_header),
        ("/credentials/revoke", "{\"credentials\": [\"of an employee\"]}", no_header),
        ("/hub", "hub.mode=subscribe&hub.secret=x", no_header),
        ("/hub/", "hub.mode=subscribe&hub.secret=x", no_header),
        ("/repos/acme/widgets/pages/deployments", "{\"oidc_token\": \"x\"}", no_header),
        ("/enterprises/acme/actions/runners/remove-token", "", no_header),
        ("/graphql", "{\"query\": \"mutation { startRepositoryMigration }\"}", no_header),
        (COMMENTS, "{\"body\": \"x\"}", ("private-token", "x")),
        (COMMENTS, "{\"body\": \"x\"}", ("x-apikey", "x")),
        (COMMENTS, "{\"body\": \"x\"}", ("x-access-key", "x")),
        (COMMENTS, "{\"body\": \"x\"}", ("x-session-id", "x")),
        (COMMENTS, "{\"body\": \"x\"}", ("referer", page.as_str())),
    ] {
        cannot_be_kept(&world, path, body, more).await;
    }
    let import = "{\"vcs_url\": \"https://example.com/\", \"vcs_password\": \"x\"}";
    for (method, path) in [
        (Method::PUT, "/repos/acme/widgets/import"),
        (Method::PATCH, "/repos/acme/widgets/import"),
        (Method::PUT, "/authorizations/clients/c"),
    ] {
        cannot_be_kept_as(&world, &method, path, import, no_header).await;
    }
    let key = OTHER_KEY.replace('_', "%5f");
    for query in [
        "access_token=x",
        "acc%65ss_tok%65n=x",
        "sig=x",
        "signature=x",
        "X-Amz-Signature=x",
        "code=x&client_id=y",
        &format!("q={key}"),
    ] {
        cannot_be_kept(&world, &format!("{COMMENTS}?{query}"), "{\"body\": \"x\"}", no_header)
            .await;
    }
    assert!(world.gateway.writes.queue().counts().iter().all(|(_, count)| *count == 0));
    // A header that only resembles a key is accepted.
    let about = [ASYNC, ("idempotency-key", "k"), ("user-agent", "weir_bot/1.0")];
    world
        .send(Method::POST, &format!("{COMMENTS}?code=7&design=x"), &about, "{\"body\": \"x\"}")
        .await
        .assert_status(202);
}

#[tokio::test]
async fn a_finished_write_is_forgotten_after_its_retention() {
    let world =
        Setup::new().manual_clock().unspaced_writes().writes("retention = \"1h\"").start().await;
    let accepted = world.post_with_key("k", "once", &[ASYNC]).await;
    world.end_of(&accepted).await;
    world.clock.advance(Duration::from_mins(59));
    world.get(accepted.header("location").unwrap()).await.assert_status(200);
    world.clock.advance(Duration::from_mins(2));
    eventually(|| world.write_status(&accepted).is_none()).await;
    world.get(accepted.header("location").unwrap()).await.assert_status(404);
    world.post_with_key("k", "another", &[ASYNC]).await.assert_status(202);
}

#[tokio::test]
async fn a_client_filling_the_queue_is_refused_and_others_find_room() {
    let world = Setup::new().accounts(2).unspaced_writes().writes("queue_max = 32").start().await;
    let gate = world.close_gate("POST", COMMENTS);
    let mut accepted = Vec::new();
    for number in 1..32 {
        let one = world.post_async(&format!("number {number}")).await;
        one.assert_status(202);
        accepted.push(one);
    }
    world.post_async("number 32").await.assert_secondary_limited();
    world.post(COMMENTS, json!({ "body": "waiting" })).await.assert_secondary_limited();
    let other = format!("Bearer {OTHER_KEY}");
    let others = world
        .send(
            Method::POST,
            COMMENTS,
            &[ASYNC, ("authorization", &other)],
            "{\"body\": \"of another\"}",
        )
        .await;
    others.assert_status(202);
    world.open_gate(gate);
    for accepted in &accepted {
        assert_eq!(world.end_of(accepted).await["state"], "done");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_long_polls_and_starts_no_write() {
    let world = Setup::new()
        .manual_clock()
        .writes("spacing = \"1s\"\nnotify_spacing = \"3s\"")
        .start()
        .await;
    world.end_of(&world.post_async("first").await).await;
    let second = world.post_async("second").await;
    eventually(|| world.gateway.dispatcher.admissions().waiting() == 1).await;
    let poll = world.get_with(second.header("location").unwrap(), &[("prefer", "wait=30")]);
    let drain = async {
        eventually(|| world.gateway.writes.queue().watched() == 1).await;
        world.gateway.env.active.drain();
        world.clock.advance(Duration::from_secs(10));
    };
    let (polled, ()) = tokio::join!(poll, drain);
    polled.assert_status(200);
    assert_eq!(polled.json()["state"], "queued");
    eventually(|| world.gateway.dispatcher.admissions().waiting() == 0).await;
    assert_eq!(world.posts(), 1);
    assert_eq!(world.write_status(&second).map(|status| status.state), Some(WriteState::Queued));
}

#[tokio::test]
async fn mutations_can_be_queued_and_queries_are_answered_at_once() {
    let world = Setup::new().unspaced_writes().start().await;
    let query = json!({ "query": "{ viewer { login } }" }).to_string();
    world.send(Method::POST, "/graphql", &[ASYNC], &query).await.assert_status(200);
    let mutation = json!({ "query": "mutation { nothing }" }).to_string();
    let accepted = world.send(Method::POST, "/graphql", &[ASYNC], &mutation).await;
    let end = world.end_of(&accepted).await;
    assert_eq!((&end["state"], &end["response"]["status"]), (&json!("done"), &json!(200)), "{end}");
}
