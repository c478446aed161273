//! Followers share the answer of a fetch, and no failure that its leader's headers may have caused.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Response};

use super::variants::{GatedUpstream, LABELS, PLAIN, REVALIDATED, spawn_get, text};
use crate::support::origin::header;
use crate::support::scripted::ScriptedUpstream;
use crate::support::{OTHER_KEY, Setup};

const ODD: &[(&str, &str)] = &[("user-agent", "odd")];
const PLAIN_AGENT: &[(&str, &str)] = &[("user-agent", "plain")];
const MILESTONES: &str = "/repos/acme/widgets/milestones";

/// Answers an odd user agent with this status and body, and any other with 200.
fn refuses_odd(status: u16, body: &str) -> impl Fn(&HeaderMap) -> Response<Bytes> + use<> {
    let body = Bytes::from(body.to_owned());
    move |headers| {
        let is_odd = header(headers, "user-agent") == "odd";
        let response = Response::builder().status(if is_odd { status } else { 200 });
        response.body(if is_odd { body.clone() } else { "it".into() }).unwrap()
    }
}

#[tokio::test]
async fn a_failure_due_to_odd_headers_reaches_no_follower() {
    let long = "x".repeat(100_000);
    for config in [PLAIN, REVALIDATED] {
        for (status, body) in [(400, "no"), (403, "no"), (415, "no"), (431, "no"), (400, &*long)] {
            let gated = GatedUpstream::new(config, 0, refuses_odd(status, body)).await;
            let gated = Arc::new(gated);
            let odd = spawn_get(&gated, ODD);
            gated.world.all_waiting_for_one_fetch(1).await;
            let followers = [PLAIN_AGENT, &[], &[]].map(|headers| spawn_get(&gated, headers));
            gated.world.all_waiting_for_one_fetch(4).await;
            gated.turns.add_permits(10);
            odd.await.unwrap().assert_status(status);
            for follower in followers {
                let reply = follower.await.unwrap();
                assert_eq!((reply.status.as_u16(), text(&reply)), (200, "it"), "{config} {status}");
            }
        }
    }
}

#[tokio::test]
async fn a_storable_answer_is_shared_whatever_the_headers() {
    for config in [PLAIN, REVALIDATED] {
        for status in [200, 301, 404, 410] {
            let gated = GatedUpstream::new(config, 0, refuses_odd(status, "it")).await;
            let gated = Arc::new(gated);
            let odd = spawn_get(&gated, ODD);
            gated.world.all_waiting_for_one_fetch(1).await;
            let plain = spawn_get(&gated, PLAIN_AGENT);
            gated.world.all_waiting_for_one_fetch(2).await;
            gated.turns.add_permits(10);
            for request in [odd, plain] {
                request.await.unwrap().assert_status(status);
            }
            assert_eq!(gated.origin.exchanges().len(), 1, "{config} {status}");
        }
    }
}

#[tokio::test]
async fn a_failure_is_fetched_once_for_equal_headers() {
    for config in [PLAIN, REVALIDATED] {
        let refuse = |_: &HeaderMap| Response::builder().status(400).body(Bytes::new()).unwrap();
        let gated = Arc::new(GatedUpstream::new(config, 0, refuse).await);
        let mut requests = vec![spawn_get(&gated, ODD)];
        gated.world.all_waiting_for_one_fetch(1).await;
        requests.extend([ODD, PLAIN_AGENT, PLAIN_AGENT].map(|headers| spawn_get(&gated, headers)));
        gated.world.all_waiting_for_one_fetch(4).await;
        gated.turns.add_permits(1);
        // The others share a fetch of their own.
        crate::support::eventually(|| gated.origin.exchanges().len() == 1).await;
        gated.world.all_waiting_for_one_fetch(2).await;
        gated.turns.add_permits(10);
        for request in requests {
            request.await.unwrap().assert_status(400);
        }
        assert_eq!(gated.origin.exchanges().len(), 2, "{config}");
    }
}

#[tokio::test]
async fn a_failure_ends_no_queued_fetch_of_another_client() {
    let config = format!("{REVALIDATED}\n[limits]\nconcurrency = 1");
    let gated = Arc::new(GatedUpstream::new(&config, 0, refuses_odd(431, "no")).await);
    let get = |path: &'static str, headers: Vec<(&'static str, &'static str)>| {
        let gated = Arc::clone(&gated);
        tokio::spawn(async move { gated.world.get_with(path, &headers).await })
    };
    let authorization: &str = Box::leak(format!("Bearer {OTHER_KEY}").into_boxed_str());
    // The client with less in progress goes first: `ci`.
    let first = get(MILESTONES, vec![("authorization", authorization)]);
    gated.world.all_waiting_for_one_fetch(1).await;
    let odd = get(LABELS, ODD.to_vec());
    gated.world.all_waiting_for_one_fetch(2).await;
    let other = get(LABELS, vec![("authorization", authorization)]);
    gated.world.all_waiting_for_one_fetch(3).await;
    gated.turns.add_permits(10);
    first.await.unwrap().assert_status(200);
    odd.await.unwrap().assert_status(431);
    other.await.unwrap().assert_status(200);
}

#[tokio::test]
async fn an_answer_lost_to_odd_headers_reaches_no_follower() {
    let upstream = ScriptedUpstream::start().await;
    let world = Arc::new(Setup::new().upstream(upstream.url()).start().await);
    let get = |agent: &'static str, wait: &'static str| {
        let world = Arc::clone(&world);
        let headers = [("user-agent", agent), ("prefer", wait)];
        tokio::spawn(async move { world.get_with(LABELS, &headers).await })
    };
    let odd = get("odd", "wait=0");
    let mut connection = upstream.next().await;
    // It may come before the lost request has left the quota ledger.
    let mut plain = get("plain", "wait=30");
    world.all_waiting_for_one_fetch(2).await;
    // The gateway may repeat a lost read.
    while connection.request.contains("user-agent: odd") {
        drop(connection);
        connection = tokio::select! {
            next = upstream.next() => next,
            answer = &mut plain => panic!("no request came for {}", answer.unwrap().status),
        };
    }
    connection.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nit").await;
    odd.await.unwrap().assert_status(502);
    plain.await.unwrap().assert_status(200);
}
