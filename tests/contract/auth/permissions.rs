//! The account and token of a request: token kinds, learned permissions, and the error when none
//! may serve it (SPECIFICATION D2, D6).

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use serde_json::json;

use crate::support::{KEY, Reply, Setup, World, all_have_status, config};

/// A private repository of acme.
const GADGETS: &str = "/repos/acme/gadgets";
/// A member of acme.
const CLEO: (&str, &str) = ("classic", "emu_classic_cleo_all_scopes");
/// A stranger to acme.
const DAN: (&str, &str) = ("classic", "emu_classic_dan_all_scopes");
/// Acts for a member of acme with a few permissions, without `actions`.
const LIMITED: (&str, &str) = ("app-user", "emu_app_user_ben");
/// The app's installation, with every permission.
const INSTALLATION: (&str, &str) = ("installation", "emu_installation_acme");

/// A stranger before a member: the ledger chooses the first of equal accounts.
fn stranger_first() -> Setup {
    Setup::new().holder("dan", "user", &[DAN], "").holder("cleo", "user", &[CLEO], "")
}

/// The accounts of the upstream requests in their order, as the emulator names them.
fn accounts_used(world: &World) -> Vec<String> {
    world.upstream_requests().iter().map(|entry| entry.account.clone()).collect()
}

fn message(answer: &Reply) -> String {
    answer.json()["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_private_repository_is_served_in_any_account_order() {
    for setup in [
        stranger_first(),
        Setup::new().holder("cleo", "user", &[CLEO], "").holder("dan", "user", &[DAN], ""),
    ] {
        let world = setup.start().await;
        let answer = world.get(GADGETS).await;
        answer.assert_status(200);
        assert_eq!(
            (answer.json()["name"].as_str(), answer.header("x-weir-account")),
            (Some("gadgets"), Some("cleo"))
        );
    }
}

#[tokio::test]
async fn after_a_permission_retry_requests_go_to_the_seeing_account() {
    let world = stranger_first().start().await;
    world.get(&format!("{GADGETS}/issues")).await.assert_status(200);
    assert_eq!(accounts_used(&world), ["dan", "cleo"]);
    for path in ["", "/issues?page=2", "/labels", "/issues/1"] {
        world.get(&format!("{GADGETS}{path}")).await.assert_status(200);
    }
    assert_eq!(accounts_used(&world), ["dan", "cleo", "cleo", "cleo", "cleo", "cleo"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_reads_of_private_repositories_are_all_served() {
    let world = stranger_first().start().await;
    let names: Vec<String> = (0..40).map(|number| format!("/repos/acme/secret-{number}")).collect();
    for number in 0..40 {
        world.ask_emulator(
            Method::POST,
            "/orgs/acme/repos",
            &json!({ "name": format!("secret-{number}"), "private": true }),
        );
    }
    // Both budgets are known, so no request waits for an account's first response.
    for path in ["/repos/acme/widgets", "/repos/acme/sprockets"] {
        world.get(path).await.assert_status(200);
    }
    let gate = world.close_gate("GET", "/repos/acme/secret-*");
    let answers = join_all(names.iter().map(|name| world.get(name)));
    let release = async {
        world.held(gate, names.len()).await;
        world.open_gate(gate);
    };
    let (answers, ()) = tokio::join!(answers, release);
    all_have_status(&answers, 200);
}

#[tokio::test]
async fn a_permission_retrys_response_is_stored_for_the_pool() {
    let world = stranger_first().start().await;
    world.get(GADGETS).await.assert_status(200);
    let again = world.get(GADGETS).await;
    again.assert_revalidated();
    assert_eq!(accounts_used(&world), ["dan", "cleo", "cleo"]);
}

#[tokio::test]
async fn a_validators_owner_without_permission_is_not_preferred() {
    let world = Setup::new().accounts(2).start().await;
    let labels = |page| format!("/repos/acme/gadgets/labels?page={page}");
    world.get(&labels(1)).await.assert_status(200);
    world.get(&labels(2)).await.assert_status(200);
    let used_before = accounts_used(&world);
    world.ask_emulator(
        Method::POST,
        "/_emulator/faults",
        &json!({ "match": { "method": "GET", "path": "/repos/acme/gadgets/labels", "nth": 1 }, "fault": "status", "status": 404 }),
    );
    world.get(&labels(3)).await.assert_status(200);
    let [owner, other] = used_before.as_slice() else { panic!("{used_before:?}") };
    assert_eq!(
        accounts_used(&world)[2..],
        [owner.clone(), other.clone()],
        "equals are asked in turn"
    );
    assert_eq!(world.get(&labels(1)).await.cache_status(), "weir; fwd=stale; fwd-status=200");
    assert_eq!(accounts_used(&world)[4], *other);
}

#[tokio::test]
async fn a_path_nobody_sees_is_a_404_after_one_permission_retry() {
    let world = stranger_first().start().await;
    let first = world.get("/repos/acme/nothing").await;
    first.assert_status(404);
    assert_eq!(
        first.header("x-weir-account"),
        Some("dan"),
        "the first answer is the one that is given"
    );
    assert_eq!(accounts_used(&world), ["dan", "cleo"]);
    for _ in 0..3 {
        world.get("/repos/acme/nothing").await.assert_status(404);
    }
    assert_eq!(world.upstream_requests().len(), 5);
}

#[tokio::test]
async fn crawling_100_missing_repositories_costs_at_most_ten_more() {
    let world = stranger_first().start().await;
    for number in 0..100 {
        world.get(&format!("/repos/acme/missing-{number}")).await.assert_status(404);
    }
    let requests = world.upstream_requests().len();
    assert!((100..=110).contains(&requests), "{requests} requests");
}

#[tokio::test]
async fn a_missing_issue_excludes_no_account_from_its_repository() {
    let world = stranger_first().start().await;
    for page in 0..4 {
        world.get(&format!("/repos/acme/widgets/issues?page={page}")).await.assert_status(200);
    }
    world.get("/repos/acme/widgets/issues/99999").await.assert_status(404);
    for number in 1..=8 {
        world.get(&format!("/repos/acme/widgets/issues/{number}")).await.assert_status(200);
    }
    let of = |account: &str| {
        accounts_used(&world).iter().filter(|accounts_used| *accounts_used == account).count()
    };
    assert!(of("dan") >= 6 && of("cleo") >= 6, "{:?}", accounts_used(&world));
}

#[tokio::test]
async fn a_missing_permission_moves_requests_to_another_account() {
    let setup = Setup::new().holder("limited", "user", &[LIMITED], "").holder(
        "app",
        "installation",
        &[INSTALLATION],
        "",
    );
    let world = setup.start().await;
    let runs = format!("{GADGETS}/actions/runs");
    world.get(&runs).await.assert_status(200);
    let statuses = |world: &World| {
        world.upstream_requests().iter().map(|entry| entry.status).collect::<Vec<_>>()
    };
    assert_eq!(statuses(&world), [403, 200]);
    world.get(&format!("{runs}?page=2")).await.assert_status(200);
    // Another endpoint that needs the same permission.
    world.get(&format!("{GADGETS}/actions/workflows")).await.assert_status(200);
    assert_eq!(statuses(&world), [403, 200, 200, 200]);
    // Endpoints of another permission still use both accounts.
    for number in 1..=6 {
        world.get(&format!("{GADGETS}/issues/{number}")).await.assert_status(200);
    }
    let accounts = accounts_used(&world).split_off(4);
    assert!(accounts.iter().any(|account| *account == accounts_used(&world)[0]), "{accounts:?}");
}

#[tokio::test]
async fn a_bare_403_closes_no_budget() {
    let world = Setup::new().holder("limited", "user", &[LIMITED], "").start().await;
    world.get(&format!("{GADGETS}/actions/runs")).await.assert_status(403);
    world.get(&format!("{GADGETS}/issues")).await.assert_status(200);
    // There is no other account, so it is tried again.
    world.get(&format!("{GADGETS}/actions/runs")).await.assert_status(403);
    assert_eq!(world.upstream_requests().len(), 3);
}

#[tokio::test]
async fn recorded_permissions_expire() {
    let world = stranger_first().manual_clock().start().await;
    world.get(&format!("{GADGETS}/labels")).await.assert_status(200);
    world.clock.advance(Duration::from_mins(9));
    world.get(&format!("{GADGETS}/labels?page=2")).await.assert_status(200);
    assert_eq!(accounts_used(&world), ["dan", "cleo", "cleo"]);
    world.clock.advance(Duration::from_mins(2));
    world.get(&format!("{GADGETS}/labels?page=3")).await.assert_status(200);
    assert_eq!(accounts_used(&world)[3..], ["dan", "cleo"]);
}

#[tokio::test]
async fn a_wrong_permission_record_refuses_nothing() {
    let world = Setup::new().accounts(2).start().await;
    world.ask_emulator(
        Method::POST,
        "/_emulator/faults",
        &json!({ "match": { "method": "GET", "path": "/repos/acme/widgets/labels", "nth": 1 }, "fault": "status", "status": 404 }),
    );
    let labels = |page| format!("/repos/acme/widgets/labels?page={page}");
    world.set_limits(&json!({ "core.user": 3 }));
    world.get(&labels(1)).await.assert_status(200);
    // The permitted account has two requests left; the injected response costs the other account
    // nothing.
    for page in 2..=6 {
        world.get(&labels(page)).await.assert_status(200);
    }
    world.get(&labels(7)).await.assert_rate_limited(world.clock.now().as_secs());
    assert!(world.upstream_requests().iter().all(|entry| entry.refused.is_none()));
}

#[tokio::test]
async fn a_blind_account_does_not_answer_for_a_spent_one() {
    let world = stranger_first().start().await;
    world.set_limits(&json!({ "core.user": 3 }));
    for page in 1..=3 {
        world.get(&format!("{GADGETS}/issues?page={page}")).await.assert_status(200);
    }
    let refused = world.get(&format!("{GADGETS}/issues?page=4")).await;
    refused.assert_rate_limited(world.clock.now().as_secs());
    // One last attempt, then none for a minute.
    world
        .get(&format!("{GADGETS}/issues?page=5"))
        .await
        .assert_rate_limited(world.clock.now().as_secs());
    assert_eq!(accounts_used(&world).iter().filter(|account| *account == "dan").count(), 2);
}

#[tokio::test]
async fn routes_of_one_account_and_writes_get_no_permission_retry() {
    let world = Setup::new().accounts(2).start().await;
    world.get("/user/repository_invitations/99999/nothing").await.assert_status(404);
    world.post("/repos/acme/nothing/issues", json!({ "title": "lost" })).await.assert_status(404);
    world.get("/notifications/threads/99999").await.assert_status(404);
    assert_eq!(world.upstream_requests().len(), 3);
}

#[tokio::test]
async fn a_user_only_route_is_never_sent_with_an_installation_token() {
    let setup =
        Setup::new().holder("app", "installation", &[INSTALLATION], "").client("writes = \"app\"");
    let world = setup.start().await;
    let refused = world.send(Method::PUT, "/orgs/acme/public_members/ben", &[], "").await;
    refused.assert_status(403);
    let text = message(&refused);
    assert!(
        text.contains(
            "no account of this client may call PUT /orgs/{org}/public_members/{username}"
        ),
        "{text}"
    );
    assert!(
        text.contains("an app user token with the permission org/members:write")
            && text.contains("app has installation"),
        "{text}"
    );
    assert_eq!(world.get("/user/memberships/orgs/acme").await.status, 403);
    assert_eq!(world.upstream_requests(), []);
}

#[tokio::test]
async fn a_user_only_route_is_sent_with_the_users_token_of_the_app() {
    let setup = Setup::new().holder("ben", "user", &[LIMITED], "").client("writes = \"ben\"");
    let world = setup.start().await;
    let _ = world.send(Method::PUT, "/orgs/acme/public_members/ben", &[], "").await;
    assert_eq!(world.upstream_requests().len(), 1);
}

#[tokio::test]
async fn a_route_that_fits_no_token_is_refused_naming_the_kind() {
    let world = Setup::new()
        .holder("bot", "user", &[("fine-grained", "emu_fine_grained_ada_all_permissions")], "")
        .start()
        .await;
    let teams = message(&world.get("/enterprises/umbrella/teams/t/organizations").await);
    assert!(
        teams.contains("it needs a classic token") && teams.ends_with("bot has fine-grained."),
        "{teams}"
    );
    let hook = message(&world.get("/app/hook/config").await);
    assert!(hook.contains("an app's own credential (a JWT)"), "{hook}");
    assert_eq!(world.upstream_requests(), []);
}

#[tokio::test]
async fn a_path_no_account_reaches_is_refused() {
    let world = Setup::new().holder("cleo", "user", &[CLEO], "reach = [\"acme\"]").start().await;
    for (path, named) in [
        ("/repos/globex/portal", "globex/portal"),
        ("/orgs/globex/teams", "globex"),
        ("/organizations/globex/settings/billing/usage", "globex"),
    ] {
        let refused = world.get(path).await;
        refused.assert_status(403);
        assert!(
            message(&refused).contains(&format!("no account of this client reaches {named}")),
            "{refused:?}"
        );
    }
    assert_eq!(world.upstream_requests(), []);
    world.get(GADGETS).await.assert_status(200);
}

#[tokio::test]
async fn the_token_that_sees_the_path_is_used_within_an_account() {
    let tokens = [
        ("fine-grained", "emu_fine_grained_ada_no_permissions"),
        ("classic", "emu_classic_ada_all_scopes"),
    ];
    let world = Setup::new().holder("ada", "user", &tokens, "").start().await;
    world.get(GADGETS).await.assert_status(404);
    world.get(GADGETS).await.assert_status(200);
    world.get(&format!("{GADGETS}/issues")).await;
    world.get(&format!("{GADGETS}/issues")).await.assert_status(200);
}

#[tokio::test]
async fn a_read_moves_on_when_the_upstream_wants_another_token_kind() {
    let world = Setup::new().accounts(2).start().await;
    world.arm(&json!({ "fault": "status", "status": 401, "body": { "message": "Requires authentication" }, "match": { "path": "/repos/*", "nth": 1 } }));
    world.get("/repos/acme/widgets").await.assert_status(200);
    assert_eq!(world.upstream_requests().len(), 2);
    world.get("/repos/acme/widgets/labels").await.assert_status(200);
}

#[tokio::test]
async fn each_account_is_tried_once_when_all_credentials_are_wrong() {
    let world = Setup::new().accounts(2).start().await;
    world.arm(
        &json!({ "fault": "status", "status": 401, "body": { "message": "Requires authentication" }, "match": { "path": "/repos/*" } }),
    );
    let refused = world.get("/repos/acme/widgets").await;
    refused.assert_status(403);
    assert!(
        message(&refused).contains("the upstream wants another kind of credential"),
        "{refused:?}"
    );
    assert_eq!(world.upstream_requests().len(), 2);
}

#[tokio::test]
async fn an_anonymous_account_is_not_retried_for_bad_credentials() {
    let text = config::account("nobody", "anonymous", "") + &config::client("ci", KEY, "");
    let world = Setup::new().credentials(text).start().await;
    world.arm(&json!({ "fault": "status", "status": 401, "body": { "message": "Bad credentials" }, "match": { "path": "/repos/*" } }));
    world.get("/repos/acme/widgets").await.assert_status(403);
    assert_eq!(world.upstream_requests().len(), 1);
}
