//! Stored responses: one fetch for concurrent readers, free revalidation, no response across pools
//! (SPECIFICATION D1 to D3).

use futures_util::future::join_all;
use http::Method;
use serde_json::json;

use weir::decision::QuotaLedger;

use crate::support::{OTHER_KEY, Reply, Setup, World, all_have_status, config};

const REPOSITORY: &str = "/repos/acme/widgets";

/// A hundred GETs of the repository, all waiting before the upstream answers the first.
async fn a_hundred_at_once(world: &World) -> Vec<Reply> {
    let gate = world.close_gate("GET", REPOSITORY);
    let round = async { join_all((0..100).map(|_| world.get(REPOSITORY))).await };
    let opened = async {
        world.held(gate, 1).await;
        world.all_waiting_for_one_fetch(100).await;
        world.open_gate(gate);
    };
    let (answers, ()) = tokio::join!(round, opened);
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn identical_concurrent_gets_are_one_fetch_then_a_free_one() {
    let world = Setup::new().start().await;
    let answers = a_hundred_at_once(&world).await;
    all_have_status(&answers, 200);
    assert_eq!(world.upstream_requests().len(), 1);
    assert_eq!(
        answers
            .iter()
            .filter(|answer| answer.cache_status() == "weir; fwd=uri-miss; stored")
            .count(),
        1
    );
    assert_eq!(
        answers.iter().filter(|answer| answer.cache_status().ends_with("collapsed")).count(),
        99
    );

    let answers = a_hundred_at_once(&world).await;
    all_have_status(&answers, 200);
    let sent = world.upstream_requests();
    assert_eq!(sent.len(), 2);
    assert_eq!((sent[1].status, sent[1].cost), (304, 0));
    assert!(answers.iter().all(|answer| answer.header("x-from-cache") == Some("1")));
}

#[tokio::test]
async fn a_304_costs_no_budget_and_the_client_sees_it() {
    let world = Setup::new().start().await;
    let first = world.get(REPOSITORY).await;
    let second = world.get(REPOSITORY).await;
    second.assert_revalidated();
    assert_eq!(second.body, first.body);
    assert_eq!(second.header("age"), Some("0"));
    assert_eq!(first.number("x-ratelimit-remaining"), second.number("x-ratelimit-remaining"));
}

#[tokio::test]
async fn a_response_is_revalidated_by_another_account_by_date() {
    // With three equal accounts the second request goes to another account than the first.
    let world = Setup::new().accounts(3).start().await;
    for _ in 0..6 {
        world.get(REPOSITORY).await.assert_status(200);
    }
    let sent = world.upstream_requests();
    assert!(sent.iter().skip(1).all(|entry| entry.status == 304), "{sent:?}");
}

#[tokio::test]
async fn a_client_with_a_current_copy_gets_a_304() {
    let world = Setup::new().start().await;
    let first = world.get(REPOSITORY).await;
    let etag = first.header("etag").unwrap().to_owned();
    let same = world.get_with(REPOSITORY, &[("if-none-match", &etag)]).await;
    same.assert_status(304);
    assert!(
        same.body.is_empty()
            && same.header("content-type").is_none()
            && same.header("link").is_none()
    );
    world.get_with(REPOSITORY, &[("if-none-match", "\"other\"")]).await.assert_status(200);
    world
        .get_with(REPOSITORY, &[("if-none-match", etag.trim_start_matches("W/"))])
        .await
        .assert_status(304);
    let date = first.header("last-modified").unwrap();
    world.get_with(REPOSITORY, &[("if-modified-since", date)]).await.assert_status(304);
}

#[tokio::test]
async fn no_cache_from_a_client_does_not_spend_budget() {
    let world = Setup::new().start().await;
    world.get(REPOSITORY).await.assert_status(200);
    let answer =
        world.get_with(REPOSITORY, &[("cache-control", "no-cache"), ("pragma", "no-cache")]).await;
    answer.assert_revalidated();
}

#[tokio::test]
async fn rfc9111_serves_fresh_responses_without_revalidation() {
    let world = Setup::new().manual_clock().rfc9111().start().await;
    world.get(REPOSITORY).await.assert_status(200);
    world.clock.advance(std::time::Duration::from_secs(10));
    let hit = world.get(REPOSITORY).await;
    assert_eq!((hit.cache_status(), hit.header("age")), ("weir; hit", Some("10")));
    assert_eq!(world.upstream_requests().len(), 1);
    world.clock.advance(std::time::Duration::from_secs(60));
    world.get(REPOSITORY).await.assert_revalidated();
}

#[tokio::test]
async fn a_rule_gives_a_route_a_lifetime_of_its_own() {
    let world = Setup::new().manual_clock().cache_ttl("/repos/{owner}/{repo}", "10m").start().await;
    world.get(REPOSITORY).await.assert_status(200);
    world.clock.advance(std::time::Duration::from_secs(599));
    world.get(REPOSITORY).await.assert_hit();
    world.clock.advance(std::time::Duration::from_secs(1));
    world.get(REPOSITORY).await.assert_revalidated();
}

#[tokio::test]
async fn a_write_invalidates_its_target_and_its_lists() {
    let world = Setup::new()
        .cache_ttl("/repos/{owner}/{repo}/issues", "10m")
        .cache_ttl("/repos/{owner}/{repo}/issues/{issue_number}", "10m")
        .unspaced_writes()
        .start()
        .await;
    let list = format!("{REPOSITORY}/issues?per_page=5");
    let issue = format!("{REPOSITORY}/issues/3");
    for path in [&list, &issue] {
        world.get(path).await.assert_status(200);
        world.get(path).await.assert_hit();
    }
    world
        .send(http::Method::PATCH, &issue, &[], &json!({ "title": "changed" }).to_string())
        .await
        .assert_status(200);
    let after = world.get(&issue).await;
    assert_eq!(
        (after.cache_status(), &after.json()["title"]),
        ("weir; fwd=stale; fwd-status=200", &json!("changed"))
    );
    assert_ne!(world.get(&list).await.cache_status(), "weir; hit");
}

#[tokio::test]
async fn routes_about_me_use_each_clients_own_account() {
    let world = Setup::new().accounts(2).start().await;
    let other = format!("Bearer {OTHER_KEY}");
    for _ in 0..2 {
        let mine = world.get("/user").await.json();
        let theirs = world.get_with("/user", &[("authorization", &other)]).await.json();
        assert_ne!(mine["login"], theirs["login"]);
    }
    // A percent-encoded letter does not bypass the rule.
    let disguised = world.get_with("/%75ser", &[("authorization", &other)]).await.json();
    assert_eq!(
        disguised["login"],
        world.get_with("/user", &[("authorization", &other)]).await.json()["login"]
    );
}

#[tokio::test]
async fn head_shares_the_stored_answer_and_has_no_body() {
    let world = Setup::new().start().await;
    let get = world.get(REPOSITORY).await;
    let head = world.send(http::Method::HEAD, REPOSITORY, &[], "").await;
    head.assert_status(200);
    assert!(head.body.is_empty());
    assert_eq!(head.number("content-length"), get.body.len() as u64);
    assert_eq!(world.upstream_requests()[1].status, 304);
}

/// The update of a stored GET by a HEAD (RFC 9111 §4.3.5) cannot occur: the cache never sends a
/// HEAD upstream.
#[tokio::test]
async fn a_head_is_fetched_as_a_get_that_serves_both() {
    let world = Setup::new().rfc9111().start().await;
    let head = world.send(http::Method::HEAD, REPOSITORY, &[], "").await;
    assert_eq!((head.cache_status(), head.body.len()), ("weir; fwd=uri-miss; stored", 0));
    let get = world.get(REPOSITORY).await;
    assert_eq!(
        (get.cache_status(), get.body.len() as u64),
        ("weir; hit", head.number("content-length"))
    );
    world.send(http::Method::HEAD, REPOSITORY, &[], "").await.assert_hit();
    world
        .send(http::Method::HEAD, REPOSITORY, &[("cache-control", "no-cache")], "")
        .await
        .assert_status(200);
    let sent: Vec<_> =
        world.upstream_requests().into_iter().map(|entry| (entry.method, entry.status)).collect();
    assert_eq!(sent, [("GET".to_owned(), 200), ("GET".to_owned(), 304)]);
}

#[tokio::test]
async fn other_media_types_are_other_variants() {
    let world = Setup::new().start().await;
    let path = format!("{REPOSITORY}/readme");
    let json = world.get(&path).await;
    let raw = world.get_with(&path, &[("accept", "application/vnd.github.raw")]).await;
    assert_ne!(json.body, raw.body);
    let again = world.get_with(&path, &[("accept", "application/vnd.github.v3+json")]).await;
    assert_eq!(again.body, json.body);
}

#[tokio::test]
async fn a_stored_response_is_served_when_the_upstream_is_gone() {
    let world = Setup::new().start().await;
    let before = world.get(REPOSITORY).await;
    let (address, gateway) = (world.address, world.without_emulator().await);
    let after = gateway.get(REPOSITORY).await;
    assert_eq!(after.body, before.body, "{address}");
    assert_eq!(after.cache_status(), "weir; hit; detail=stale-if-error");
    gateway.get("/repos/acme/other").await.assert_status(502);
}

#[tokio::test]
async fn a_short_lived_secret_in_a_body_is_not_shared() {
    let world = Setup::new().start().await;
    for _ in 0..2 {
        let token = &world.get("/repos/acme/gadgets").await.json()["temp_clone_token"];
        assert!(token.is_null() || token == "", "{token}");
    }
}

#[tokio::test]
async fn a_large_body_is_streamed_whole_with_rewritten_urls() {
    let world = Setup::new().cache("max_object = \"1KiB\"").start().await;
    let path = format!("{REPOSITORY}/issues?state=all&per_page=100");
    let streamed = world.get(&path).await;
    streamed.assert_status(200);
    assert_eq!(streamed.cache_status(), "weir; fwd=bypass");
    assert!(streamed.body.len() > 100_000, "{}", streamed.body.len());
    let upstream = world.emulator.addr().to_string();
    assert!(!String::from_utf8_lossy(&streamed.body).contains(&upstream));
    assert!(streamed.json().as_array().unwrap().len() > 60);
    let snapshot = world.gateway.dispatcher.admissions().with_ledger(QuotaLedger::snapshot);
    assert!(
        snapshot[0]
            .secondary
            .iter()
            .filter(|limit| limit.limit.name() == "concurrency")
            .all(|limit| limit.in_use == 0)
    );
    assert!(world.get(&path).await.json().is_array());
}

#[tokio::test]
async fn routes_about_me_in_disguise_are_not_shared() {
    let world = Setup::new().accounts(2).start().await;
    let other = format!("Bearer {OTHER_KEY}");
    world.get("/api/v3/api/v3/user").await.assert_status(400);
    for path in [
        "/USER",
        "/Notifications",
        "/user%2f",
        "/user;a",
        "/search/issues?q=author:@me",
        "/search/issues?q=author%3A%40me",
    ] {
        world.get(path).await;
        world.get_with(path, &[("authorization", &other)]).await;
        let sent = world.upstream_requests();
        let [mine, theirs] = &sent[sent.len() - 2..] else { panic!("two requests for {path}") };
        assert_ne!(mine.account, theirs.account, "{path}");
    }
}

#[tokio::test]
async fn polling_keeps_the_poll_interval_and_its_increases() {
    const THREADS: &str = "/notifications";
    let world = Setup::new().manual_clock().start().await;
    let seconds = std::time::Duration::from_secs;
    let sent = || world.upstream_requests().len();
    let first = world.get(THREADS).await;
    assert_eq!(first.header("x-poll-interval"), Some("60"));
    world.clock.advance(seconds(59));
    let early = world.get(THREADS).await;
    assert_eq!(
        (early.cache_status(), early.header("age"), &early.body),
        ("weir; hit", Some("59"), &first.body)
    );
    world.set_limits(&json!({ "poll.load": 3 }));
    world.clock.advance(seconds(1));
    assert_eq!(world.get(THREADS).await.header("x-poll-interval"), Some("180"));
    world.clock.advance(seconds(179));
    world.get(THREADS).await.assert_hit();
    assert_eq!(sent(), 2);
    world.clock.advance(seconds(1));
    world.get(THREADS).await.assert_status(200);
    assert_eq!(sent(), 3);
    world.send(Method::PUT, THREADS, &[("content-type", "application/json")], "{}").await;
    world.get(THREADS).await.assert_status(200);
    assert_eq!(sent(), 5, "a client sees what it has done");
}

#[tokio::test]
async fn the_side_effects_of_a_write_are_revalidated_too() {
    const THREADS: &str = "/notifications";
    const OF_REPOSITORY: &str = "/repos/acme/widgets/notifications";
    let rules: String = [
        "/notifications/threads/{thread_id}",
        "/teams/{team_id}/members",
        "/repos/{owner}/{repo}/teams",
    ]
    .map(|route| config::cache_ttl(route, "1h"))
    .concat();
    let world = Setup::new().unspaced_writes().config(&rules).manual_clock().start().await;
    let teams = world.ask_emulator(Method::GET, "/orgs/acme/teams", &json!({}));
    let team = format!("/teams/{}/members", teams[0]["id"]);
    let slug = teams[0]["slug"].as_str().unwrap();
    let of_team = format!("/orgs/acme/teams/{slug}/memberships/ada");
    for (write, stale) in [
        (OF_REPOSITORY, THREADS),
        (THREADS, OF_REPOSITORY),
        (&of_team, &team),
        (&format!("/orgs/acme/teams/{slug}/repos/acme/widgets"), "/repos/acme/widgets/teams"),
    ] {
        // The invalidation by the earlier write has expired.
        world.advance_both(std::time::Duration::from_secs(120));
        world.get(stale).await.assert_status(200);
        assert_eq!(world.get(stale).await.cache_status(), "weir; hit", "{stale}");
        let written =
            world.send(Method::PUT, write, &[("content-type", "application/json")], "{}").await;
        assert!(written.status.is_success(), "{write}: {}", written.status);
        let sent = world.upstream_requests().len();
        world.get(stale).await.assert_status(200);
        assert_eq!(world.upstream_requests().len(), sent + 1, "{write} changes {stale}");
    }
}
