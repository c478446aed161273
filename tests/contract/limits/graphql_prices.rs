//! Learned prices of GraphQL queries: what is reserved, and what a wrong measurement refuses.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use parking_lot::Mutex;
use serde_json::json;

use crate::support::origin::Origin;
use crate::support::{Reply, Setup, World};

/// The end of the window, an hour after the clock of these tests starts.
const RESET: &str = "1800003600";

/// An upstream budget, and what each query takes from it.
struct Budget {
    left: u32,
    price: u32,
    /// The answers name the price.
    is_named: bool,
}

/// A gateway before an upstream with this budget.
async fn before(budget: Budget) -> (World, Origin, Arc<Mutex<Budget>>) {
    let budget = Arc::new(Mutex::new(budget));
    let theirs = Arc::clone(&budget);
    let origin = Origin::start(move |request: Request<()>| {
        let mut budget = theirs.lock();
        let is_query = request.uri().path() == "/graphql";
        if is_query {
            budget.left = budget.left.saturating_sub(budget.price);
        }
        let data = if budget.is_named {
            json!({ "data": { "rateLimit": { "cost": budget.price } } })
        } else {
            json!({ "data": { "viewer": { "login": "ada" } } })
        };
        let response = Response::builder()
            .status(if is_query { 200 } else { 404 })
            .header("content-type", "application/json")
            .header("x-ratelimit-limit", "700")
            .header("x-ratelimit-remaining", budget.left)
            .header("x-ratelimit-reset", RESET)
            .header("x-ratelimit-resource", "graphql");
        let response = response.body(Bytes::from(data.to_string())).unwrap();
        async move { response }
    })
    .await;
    let world = Setup::new().upstream(origin.url()).manual_clock().start().await;
    (world, origin, budget)
}

async fn ask(world: &World, document: &str) -> Reply {
    world.post("/graphql", json!({ "query": document })).await
}

#[tokio::test]
async fn a_price_above_a_hundred_is_reserved_whole() {
    let (world, _, budget) = before(Budget { left: 600, price: 202, is_named: true }).await;
    let dear = "query Dear { rateLimit { cost } }";
    for left in [398, 196] {
        ask(&world, dear).await.assert_status(200);
        assert_eq!(budget.lock().left, left);
    }
    ask(&world, dear).await.assert_rate_limited(world.clock.now().as_secs());
    assert_eq!(budget.lock().left, 196, "it was not sent");
}

#[tokio::test]
async fn a_price_above_the_whole_budget_is_sent_alone() {
    let (world, _, budget) = before(Budget { left: 700, price: 0, is_named: true }).await;
    ask(&world, "query Free { rateLimit { cost } }").await.assert_status(200);
    let dear = "query Dear { rateLimit { cost } }";
    budget.lock().price = 900;
    ask(&world, dear).await.assert_status(200);
    // In the next window the same document is cheaper by its variables.
    world.clock.advance(Duration::from_secs(3_700));
    budget.lock().price = 3;
    ask(&world, dear).await.assert_status(200);
}

#[tokio::test]
async fn one_wrong_measurement_refuses_no_query() {
    for known in [true, false] {
        let (world, _, budget) = before(Budget { left: 95, price: 1, is_named: false }).await;
        ask(&world, "query Other { viewer { login } }").await.assert_status(200);
        let poll = "query Poll { viewer { login } }";
        if known {
            ask(&world, poll).await.assert_status(200);
        }
        // Others spend 50 units meanwhile.
        budget.lock().price = 51;
        ask(&world, poll).await.assert_status(200);
        budget.lock().price = 1;
        for _ in 0..3 {
            ask(&world, poll).await.assert_status(200);
        }
    }
}
