//! Budgets of clients, and the same in shadow mode (SPECIFICATION, "Budgets of clients" and "Shadow
//! mode").

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use serde_json::json;

use crate::support::config;
use crate::support::{KEY, OTHER_KEY, Reply, Setup, World, eventually};

const ISSUES: &str = "/repos/acme/widgets/issues";
const THIRD_KEY: &str = "weir_key_of_the_third_client_in_tests";
/// The budget of the account, and the shares of the clients.
const LIMIT: u64 = 300;
const SHARES: [(&str, u64); 3] = [(KEY, 20), (OTHER_KEY, 30), (THIRD_KEY, 50)];

/// Three clients that share one account.
async fn sharing(shadow: &str, amount: impl Fn(u64) -> String) -> World {
    let budget =
        |percent| format!("max_wait = \"1ms\"\nbudget = {{ core = \"{}\" }}", amount(percent));
    let [(_, ci), (_, other), (key, third)] = SHARES;
    let more = config::client("third", key, &budget(third)) + &config::section("shadow", shadow);
    let limits = "rest_points_per_minute = 100000\nconcurrency = 20";
    let world = Setup::new()
        .manual_clock()
        .client(&budget(ci))
        .other_client(&budget(other))
        .config(&more)
        .limits(limits)
        .start()
        .await;
    world.set_limits(&json!({ "core.user": LIMIT }));
    world
}

async fn get(world: &World, key: &str, path: &str) -> Reply {
    world.get_from(world.address, key, path).await.expect("an answer")
}

/// All clients ask as often as the whole budget allows, side by side. Returns the answers of each.
async fn saturated(world: &World, round: u64) -> Vec<Vec<Reply>> {
    let of_client = |(client, (key, _)): (usize, (&'static str, u64))| async move {
        let mut answers = Vec::new();
        for page in 0..LIMIT {
            let path = format!("{ISSUES}?per_page=1&page={page}&by={client}&round={round}");
            answers.push(get(world, key, &path).await);
        }
        answers
    };
    join_all(SHARES.into_iter().enumerate().map(of_client)).await
}

fn served(answers: &[Reply]) -> u64 {
    answers.iter().filter(|answer| answer.status == 200).count() as u64
}

/// The counts of a metric by client, for the rule of budgets.
fn counted(world: &World, start: &str) -> Vec<(String, String)> {
    let text = world.gateway.env.metrics.encode();
    let lines = text.lines().filter_map(|line| line.strip_prefix(start));
    let lines = lines.filter(|line| line.contains("client_budget"));
    let count = |line: &str| {
        let (labels, count) = line.rsplit_once(' ').expect("a value");
        let client = labels.split('"').nth(1).expect("a client");
        (client.to_owned(), count.to_owned())
    };
    let mut counts: Vec<_> = lines.map(count).collect();
    counts.sort();
    counts
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_could_each_spend_all_get_their_shares() {
    let world = sharing("", |percent| format!("{percent}%")).await;
    for round in 0..2 {
        let answers = saturated(&world, round).await;
        for (answers, (_, percent)) in answers.iter().zip(SHARES) {
            let share = LIMIT * percent / 100;
            assert_eq!(served(answers), share, "{percent} %");
            let now = world.clock.now().as_secs();
            let refused: Vec<&Reply> =
                answers.iter().filter(|answer| answer.status != 200).collect();
            assert_eq!(refused.len() as u64, LIMIT - share);
            for answer in refused {
                answer.assert_rate_limited(now);
                assert_eq!(answer.number("x-ratelimit-limit"), share, "{answer:?}");
                assert!(answer.number("x-ratelimit-reset") <= now + 3_600);
                assert_eq!(answer.number("retry-after"), answer.number("x-ratelimit-reset") - now);
            }
        }
        assert!(world.upstream_requests().iter().all(|entry| entry.refused.is_none()));
        world.advance_both(Duration::from_secs(3_603));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn budgets_in_shadow_refuse_nothing_and_count_the_same() {
    let mut counts = Vec::new();
    for (shadow, metric) in
        [("", "weir_refused_total{"), ("budgets = true", "weir_shadowed_total{")]
    {
        let world = sharing(shadow, |percent| format!("{}/h", LIMIT * percent / 100)).await;
        // All of them together may spend all that they want.
        world.set_limits(&json!({ "core.user": LIMIT * 4 }));
        let answers = saturated(&world, 0).await;
        for (answers, (_, percent)) in answers.iter().zip(SHARES) {
            let share = if shadow.is_empty() { LIMIT * percent / 100 } else { LIMIT };
            assert_eq!(served(answers), share, "{percent} %");
        }
        // The outcome of a request is counted after its answer.
        let beyond = SHARES.map(|(_, percent)| (LIMIT - LIMIT * percent / 100).to_string());
        eventually(|| {
            counted(&world, metric).into_iter().map(|(_, count)| count).eq(beyond.clone())
        })
        .await;
        counts.push(counted(&world, metric));
    }
    assert_eq!(counts[0], counts[1]);
    assert_eq!(counts[0].len(), SHARES.len());
}

#[tokio::test]
async fn the_client_is_shown_its_own_budget() {
    let world = Setup::new()
        .manual_clock()
        .client("max_wait = \"1ms\"\nbudget = { core = \"3/h\", graphql = \"10%\" }")
        .start()
        .await;
    for (page, left) in [(1, 2), (2, 1), (3, 1)] {
        let answer = world.get(&format!("{ISSUES}?page={page}")).await;
        answer.assert_status(200);
        assert_eq!(answer.number("x-ratelimit-limit"), 3);
        assert_eq!(answer.number("x-ratelimit-remaining"), left, "never 0 on a served answer");
    }
    let shown = world.get("/rate_limit").await.json();
    assert_eq!(shown["resources"]["core"]["limit"], 3);
    assert_eq!(shown["resources"]["core"]["remaining"], 0);
    assert_eq!(shown["resources"]["graphql"]["limit"], 500);
    assert_eq!(shown["resources"]["search"]["limit"], 30);
    let refused = world.get(&format!("{ISSUES}?page=4")).await;
    refused.assert_rate_limited(world.clock.now().as_secs());
    assert!(refused.json()["message"].as_str().unwrap().contains("own budget"), "{refused:?}");
    // A stored answer costs nothing.
    world.get(&format!("{ISSUES}?page=1")).await.assert_status(200);
    let others = get(&world, OTHER_KEY, &format!("{ISSUES}?page=4")).await;
    others.assert_status(200);
    assert_eq!(others.number("x-ratelimit-limit"), 5_000);
    world.advance_both(Duration::from_secs(3_601));
    world.get(&format!("{ISSUES}?page=5")).await.assert_status(200);
}

#[tokio::test]
async fn access_rules_in_shadow_refuse_nothing_and_are_counted() {
    let allow = "allow = [\"GET /repos/acme/widgets\"]";
    for (shadow, status) in [("", 403), ("access = true", 200)] {
        let world =
            Setup::new().client(allow).config(&config::section("shadow", shadow)).start().await;
        world.send(Method::GET, ISSUES, &[], "").await.assert_status(status);
        let text = world.gateway.env.metrics.scrape(|_| ());
        let line = r#"weir_shadowed_total{client="ci",rule="not_allowed",effect="refused"} 1"#;
        assert_eq!(text.lines().any(|found| found == line), status == 200, "{text}");
    }
}
