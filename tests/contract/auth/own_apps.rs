//! Clients with an app of their own: its JWT mints installation tokens by pass-through
//! (SPECIFICATION, "Keys").

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use serde_json::json;

use super::apps::{APP_KEY, MINT, REPOSITORY, mints, ready};
use crate::support::{KEY, OTHER_KEY, Reply, Setup, World, all_have_status, captured_log, jwt};

const ENABLED: &str = "[passthrough]\nenabled = true";
/// A stranger to acme.
const DAN: &str = "emu_classic_dan_all_scopes";

/// The pool sees public data only, and has no app.
fn strangers() -> Setup {
    Setup::new().holder("dan", "user", &[("classic", DAN)], "").config(ENABLED)
}

fn own_jwt(world: &World) -> String {
    jwt::signed(301, APP_KEY, world.clock.now().as_secs())
}

async fn mint_with(world: &World, authorization: &str, more: (&str, &str)) -> Reply {
    let headers = [("x-weir-key", KEY), ("authorization", authorization), more];
    world.send(Method::POST, MINT, &headers, "{\"permissions\": {\"issues\": \"read\"}}").await
}

async fn mint(world: &World) -> Reply {
    mint_with(world, &format!("bearer {}", own_jwt(world)), ("accept", "*/*")).await
}

fn token_of(minted: &Reply) -> String {
    minted.assert_status(201);
    minted.json()["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_clients_own_app_mints_a_token_and_uses_it() {
    let world = strangers().start().await;
    let minted = mint(&world).await;
    let token = token_of(&minted);
    assert_eq!(minted.json()["permissions"]["issues"], "read", "its body goes up");
    assert_eq!(minted.header("x-weir-account"), Some("passthrough"));
    let authorization = format!("token {token}");
    let own = [("x-weir-key", KEY), ("authorization", authorization.as_str())];
    world.get_with(&format!("{REPOSITORY}/issues"), &own).await.assert_status(200);
    let accounts: Vec<_> =
        world.upstream_requests().into_iter().map(|entry| entry.account).collect();
    assert_eq!(accounts, ["app-301", "installation-311"]);
}

#[tokio::test]
async fn a_mint_needs_the_jwt_of_the_clients_own_app() {
    let world = strangers().start().await;
    let jwt = own_jwt(&world);
    for authorization in [
        String::new(),
        format!("Bearer {DAN}"),
        format!("Bearer {OTHER_KEY}"),
        format!("token {jwt}"),
        format!("Bearer {}", jwt.rsplit_once('.').unwrap().0),
    ] {
        let refused = mint_with(&world, &authorization, ("accept", "*/*")).await;
        refused.assert_status(403);
        let message = refused.json()["message"].to_string();
        assert!(message.contains("minted for the gateway alone"), "{authorization}: {message}");
    }
    assert!(world.upstream_requests().is_empty());
    let without = Setup::new().start().await;
    mint(&without).await.assert_status(403);
    assert!(without.upstream_requests().is_empty());
}

#[tokio::test]
async fn the_pools_own_app_mints_for_the_gateway_alone() {
    let world = super::apps::setup().config(ENABLED).start().await;
    ready(&world).await;
    let before = mints(&world).len();
    for headers in [
        vec![("authorization", format!("Bearer {OTHER_KEY}"))],
        vec![("x-weir-key", OTHER_KEY.to_owned()), ("authorization", String::new())],
        vec![("x-weir-key", OTHER_KEY.to_owned()), ("authorization", format!("Bearer {DAN}"))],
    ] {
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        world.send(Method::POST, MINT, &headers, "").await.assert_status(403);
    }
    assert_eq!(mints(&world).len(), before);
}

#[tokio::test]
async fn a_minted_token_is_neither_stored_nor_logged() {
    captured_log::begin();
    let world = strangers().start().await;
    let authorization = format!("Bearer {}", own_jwt(&world));
    let first = mint(&world).await;
    let queued = mint_with(&world, &authorization, ("prefer", "respond-async")).await;
    assert_ne!(token_of(&first), token_of(&queued), "each mint is one of its own");
    assert_eq!(first.cache_status(), "weir; fwd=bypass");
    mint_with(&world, &authorization, ("idempotency-key", "k")).await.assert_status(400);
    assert_eq!(mints(&world).len(), 2);
    assert!(world.gateway.writes.queue().counts().iter().all(|(_, count)| *count == 0));
    let shown = format!("{}{}", world.gateway.env.metrics.encode(), captured_log::all());
    for secret in [token_of(&first), token_of(&queued), own_jwt(&world)] {
        assert!(!shown.contains(&secret), "{secret} is shown");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mints_of_one_app_do_not_wait_for_each_other() {
    let world = strangers().manual_clock().start().await;
    let all = join_all((0..5).map(|_| mint(&world)));
    let minted = tokio::time::timeout(Duration::from_secs(20), all).await;
    all_have_status(&minted.expect("a mint is spaced like a write"), 201);
}

#[tokio::test]
async fn the_upstreams_refusal_of_a_jwt_is_passed_on() {
    let world = strangers().start().await;
    let expired = jwt::signed(301, APP_KEY, world.clock.now().as_secs() - 3_600);
    let refused = mint_with(&world, &format!("Bearer {expired}"), ("accept", "*/*")).await;
    refused.assert_status(401);
    assert_eq!(world.upstream_requests().len(), 1);
    assert!(world.gateway.dispatcher.has_usable_token());
    world.arm(&json!({ "fault": "status", "status": 404, "match": { "path": MINT, "nth": 1 } }));
    mint(&world).await.assert_status(404);
    token_of(&mint(&world).await);
}
