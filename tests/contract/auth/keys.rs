//! Keys of clients, and the secrecy of every credential (SPECIFICATION, "Keys" and "Promises" 6).

use crate::support::{KEY, Setup};

const REPOSITORY: &str = "/repos/acme/widgets";

#[tokio::test]
async fn a_missing_or_wrong_key_is_a_401_and_nothing_is_sent() {
    let world = Setup::new().start().await;
    for value in ["Bearer wrong", "token wrong", "Basic d3Jvbmc6d3Jvbmc=", "Bearer", "Digest x"] {
        let answer = world.get_with(REPOSITORY, &[("authorization", value)]).await;
        answer.assert_status(401);
        assert!(
            answer.json()["message"].is_string()
                && answer.header("date").is_some()
                && answer.header("www-authenticate").is_some()
        );
    }
    world.get_with(REPOSITORY, &[("authorization", "")]).await.assert_status(401);
    assert!(world.upstream_requests().is_empty());
}

#[tokio::test]
async fn a_client_may_send_its_key_in_x_weir_key() {
    let world = Setup::new().start().await;
    world
        .get_with(
            REPOSITORY,
            &[("authorization", "Bearer something-of-the-clients"), ("x-weir-key", KEY)],
        )
        .await
        .assert_status(200);
    world
        .get_with(REPOSITORY, &[("authorization", &format!("token {KEY}"))])
        .await
        .assert_status(200);
}

#[tokio::test]
async fn no_key_or_token_appears_in_any_response() {
    let world = Setup::new().start().await;
    let secret = world.tokens[0].token.clone();
    let mut answers = vec![world.get_with(REPOSITORY, &[("authorization", "Bearer wrong")]).await];
    for path in [
        REPOSITORY,
        "/user",
        "/rate_limit",
        "/nothing/here",
        "/repos/acme/nothing",
        "/_weir/writes/1",
    ] {
        answers.push(world.get(path).await);
    }
    for answer in &answers {
        let shown = format!("{answer:?}{}", String::from_utf8_lossy(&answer.body));
        assert!(!shown.contains(&secret) && !shown.contains(KEY), "{shown}");
        assert!(answer.header("x-oauth-scopes").is_none() && answer.header("set-cookie").is_none());
    }
    let metrics = world.gateway.env.metrics.encode();
    assert!(
        !metrics.contains(&secret) && !metrics.contains(KEY) && !metrics.contains("/repos/acme"),
        "paths and secrets are no labels"
    );
}

#[tokio::test]
async fn a_clients_key_never_reaches_the_upstream() {
    let world = Setup::new().start().await;
    world.get_with(REPOSITORY, &[("x-weir-key", KEY)]).await.assert_status(200);
    // The emulator answers 401 to an unknown token.
    assert!(
        world.upstream_requests().iter().all(|entry| entry.status == 200 && entry.token.is_some())
    );
}

#[tokio::test]
async fn a_rejected_token_is_benched_and_another_account_answers() {
    let world = Setup::new().accounts(2).broken_token(0).start().await;
    for _ in 0..4 {
        world.get(REPOSITORY).await.assert_status(200);
    }
    let mut rejected = world.upstream_requests();
    rejected.retain(|entry| entry.status == 401);
    // The second one is the free question that confirms the first.
    let asked = rejected.iter().filter(|entry| entry.path == "/rate_limit").count();
    assert!(asked <= 1 && rejected.len() <= asked + 1, "{rejected:?}");
}

#[tokio::test]
async fn without_a_usable_token_the_client_gets_a_clear_error() {
    let world = Setup::new().broken_token(0).start().await;
    let answer = world.get(REPOSITORY).await;
    answer.assert_status(502);
    assert!(answer.json()["message"].as_str().unwrap().contains("none of this gateway's tokens"));
    assert!(!world.gateway.dispatcher.has_usable_token());
}

#[tokio::test]
async fn routes_for_an_apps_own_credential_are_refused_with_a_reason() {
    let world = Setup::new().start().await;
    let answer = world.get("/app/hook/config").await;
    answer.assert_status(403);
    assert!(answer.json()["message"].as_str().unwrap().contains("JWT"));
    assert!(world.upstream_requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_does_not_fail_waiting_requests() {
    let world = Setup::new().accounts(2).broken_token(0).start().await;
    let answers =
        futures_util::future::join_all(
            (0..20).map(|n| {
                let world = &world;
                async move {
                    world.get(&format!("/repos/acme/widgets/issues?page={n}&per_page=1")).await
                }
            }),
        )
        .await;
    crate::support::all_have_status(&answers, 200);
}
