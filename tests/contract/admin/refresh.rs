//! `weir budgets refresh`: an operator has the budgets asked of the upstream at once.

use http::Method;
use serde_json::{Value, json};

use super::operator::{ADMIN, ISSUES, Operator, TOKEN, printed};
use crate::support::{Setup, World};

async fn used_up(listen: &str) -> World {
    let world = Setup::new().listen(listen).manual_clock().start().await;
    world.set_limits(&json!({ "core.user": 2 }));
    for page in 1..=2 {
        world.get(&format!("{ISSUES}?per_page=1&page={page}")).await.assert_status(200);
    }
    let refused = world.get(&format!("{ISSUES}?per_page=1&page=3")).await;
    refused.assert_rate_limited(world.clock.now().as_secs());
    world.set_limits(&json!({ "core.user": 100 }));
    world
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_sees_a_raised_budget_at_once() {
    let world = used_up(ADMIN).await;
    let operator = Operator::of(&world);
    let reply = operator.post("/api/budgets/refresh", "").await;
    reply.assert_status(200);
    assert_eq!(reply.json(), json!({ "asked": 1, "problems": [] }));
    world.get(&format!("{ISSUES}?per_page=1&page=3")).await.assert_status(200);
    let core = operator.budgets().await["accounts"][0]["resources"][0].clone();
    assert_eq!((&core["limit"], &core["used"]), (&json!(100), &json!(3)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_obeys_the_rules_of_the_admin_listener() {
    let world = used_up(&format!("{ADMIN}\nadmin_token = {{ value = \"{TOKEN}\" }}")).await;
    let operator = Operator::of(&world);
    operator.post("/api/budgets/refresh", "").await.assert_status(401);
    let bearer = format!("Bearer {TOKEN}");
    let get = operator.ask(Method::GET, "/api/budgets/refresh", Some(&bearer)).await;
    get.assert_status(405);
    operator.ask(Method::POST, "/api/budgets/refresh", Some(&bearer)).await.assert_status(200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refresh_names_the_account_and_its_problem() {
    let world = Setup::new().listen(ADMIN).accounts(2).broken_token(1).start().await;
    let operator = Operator::of(&world);
    let unknown = operator.post("/api/budgets/refresh", "{\"account\": \"nobody\"}").await;
    unknown.assert_status(422);
    operator.post("/api/budgets/refresh", "{\"acount\": 1}").await.assert_status(422);
    let one = operator.post("/api/budgets/refresh", "{\"account\": \"account-0\"}").await;
    assert_eq!(one.json()["asked"], 1);
    let all = operator.post("/api/budgets/refresh", "").await.json();
    let problem = &all["problems"][0];
    assert_eq!((&all["asked"], &problem["account"]), (&json!(2), &json!("account-1")));
    assert!(problem["problem"].as_str().unwrap().contains("401"), "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_refreshes_and_shows_the_budgets() {
    let world = used_up(ADMIN).await;
    let operator = Operator::of(&world);
    let address = operator.address.to_string();
    let output = operator.weir("budgets", &["refresh", "--admin", &address], None).await;
    let text = printed(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("1 account asked, 1 answered") && text.contains("98 of 100"), "{text}");
    let arguments = ["refresh", "account-0", "--json", "--admin", &address];
    let output = operator.weir("budgets", &arguments, None).await;
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["asked"], 1);
}
