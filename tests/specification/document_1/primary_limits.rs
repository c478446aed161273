//! Primary rate limits of each kind of caller, and the budgets that callers share.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};
use weir::emulator::Options;

use crate::document_1::paths::{ORGANIZATION, PUBLIC};
use crate::kit::{ANONYMOUS, Answer, BASE, Upstream};

const LFS: &str = "/acme/widgets.git/info/lfs/objects/batch";
const HOUR: u64 = 3_600;

/// The limit that a read of public data reports to this credential.
fn limit_of(upstream: &mut Upstream, token: &str) -> u64 {
    upstream.get(token, PUBLIC).expect_status(200).number("x-ratelimit-limit")
}

/// The world's tokens of this kind with their limits, without expired ones.
fn limits_of(upstream: &mut Upstream, kind: &str) -> Vec<(String, u64)> {
    let tokens: Vec<String> = upstream
        .emulator
        .tokens()
        .into_iter()
        .filter(|view| view.kind == kind)
        .map(|view| view.token)
        .collect();
    let mut limits = Vec::new();
    for token in tokens {
        let answer = upstream.get(&token, PUBLIC);
        if answer.status == 200 {
            limits.push((token, answer.number("x-ratelimit-limit")));
        }
    }
    limits
}

fn assert_some_has(kind: &str, limit: u64) {
    let limits = limits_of(&mut Upstream::new(), kind);
    assert!(
        limits.iter().any(|(_, found)| *found == limit),
        "no {kind} token has {limit}: {limits:?}"
    );
}

#[test]
pub fn an_address_without_a_credential_has_60() {
    let mut upstream = Upstream::new();
    for n in 0..60 {
        let answer = upstream.get(ANONYMOUS, PUBLIC).expect_status(200);
        assert_eq!((answer.number("x-ratelimit-limit"), answer.remaining()), (60, 59 - n));
    }
    assert!(upstream.get(ANONYMOUS, PUBLIC).is_primary_refusal());
    // "Per originating IP address".
    upstream.peer = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
    assert_eq!(upstream.get(ANONYMOUS, PUBLIC).expect_status(200).remaining(), 59);
}

#[test]
pub fn a_user_has_5000_shared_by_all_the_users_tokens() {
    let mut upstream = Upstream::new();
    let tokens = [
        upstream.classic("ada"),
        upstream.classic_without_scopes("ada"),
        upstream.token("fine-grained", "ada"),
    ];
    for (spent, token) in (1..).zip(&tokens) {
        let answer = upstream.get(token, PUBLIC).expect_status(200);
        assert_eq!(
            (answer.number("x-ratelimit-limit"), answer.remaining()),
            (5_000, 5_000 - spent)
        );
    }
    // Another user has another budget.
    let ben = upstream.classic("ben");
    assert_eq!(upstream.get(&ben, PUBLIC).remaining(), 4_999);
    // OAuth and app user tokens share the budget, unless an enterprise owns their app.
    for kind in ["oauth", "app-user"] {
        let ordinary =
            limits_of(&mut upstream, kind).into_iter().find(|(_, limit)| *limit == 5_000);
        let (token, _) = ordinary.unwrap_or_else(|| panic!("no {kind} token has 5000"));
        let user = upstream.get(&token, "/user").expect_status(200).body["login"]
            .as_str()
            .expect("a login")
            .to_owned();
        let before = upstream.get(&token, PUBLIC).remaining();
        let own = upstream.classic(&user);
        assert_eq!(upstream.get(&own, PUBLIC).remaining(), before - 1, "{kind} of {user}");
    }
}

#[test]
pub fn a_users_5001st_request_of_the_hour_is_refused() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream.set_limit("points.rest", 1_000_000);
    let first = upstream.get(&ada, "/user").expect_status(200);
    for _ in 1..5_000 {
        upstream.get(&ada, "/user").expect_status(200);
    }
    assert!(upstream.get(&ada, "/user").is_primary_refusal());
    // "Per hour".
    let reset = first.number("x-ratelimit-reset") - upstream.now.as_secs();
    assert!(reset <= HOUR && reset > 0);
    upstream.pass(reset);
    assert_eq!(upstream.get(&ada, "/user").expect_status(200).remaining(), 4_999);
}

#[test]
pub fn an_enterprises_app_acting_for_a_member_has_15000() {
    assert_some_has("app-user", 15_000);
}

#[test]
pub fn an_enterprises_oauth_app_acting_for_a_member_has_15000() {
    assert_some_has("oauth", 15_000);
}

#[test]
pub fn a_higher_limit_app_spends_the_users_budget_too() {
    let mut upstream = Upstream::new();
    let tokens: Vec<(String, u64)> =
        ["app-user", "oauth"].into_iter().flat_map(|kind| limits_of(&mut upstream, kind)).collect();
    let (app, _) =
        tokens.into_iter().find(|(_, limit)| *limit == 15_000).expect("a token with 15000");
    let user = upstream.get(&app, "/user").expect_status(200).body["login"]
        .as_str()
        .expect("a login")
        .to_owned();
    let own = upstream.classic(&user);
    let (before, high) =
        (upstream.get(&own, PUBLIC).remaining(), upstream.get(&app, PUBLIC).remaining());
    for _ in 0..4 {
        upstream.get(&app, PUBLIC).expect_status(200);
    }
    assert_eq!(upstream.get(&app, PUBLIC).remaining(), high - 5);
    assert_eq!(
        upstream.get(&own, PUBLIC).remaining(),
        before - 7,
        "one before, five after, and its own"
    );
}

#[test]
pub fn an_installation_has_at_least_5000() {
    let mut upstream = Upstream::new();
    let token = upstream.installation(ORGANIZATION);
    assert_eq!(limit_of(&mut upstream, &token), 5_000);
    // Its budget is not a user's.
    let ada = upstream.classic("ada");
    assert_eq!(upstream.get(&ada, PUBLIC).remaining(), 4_999);
    // All tokens of an installation share a budget.
    let minted = upstream.installation_with(ORGANIZATION, &[("members", "read")]);
    assert_eq!(upstream.get(&minted, PUBLIC).remaining(), 4_998);
}

#[test]
pub fn an_enterprise_cloud_installation_has_15000() {
    assert_some_has("installation", 15_000);
}

/// The limit that an installation on acme sees and that of the formula, in a world with this many
/// repositories.
fn scaled(repositories: u32) -> (u64, u64) {
    let mut upstream =
        Upstream::with(Options { repositories, base_url: BASE.to_owned(), ..Options::default() });
    let world = upstream.world();
    let list = |name: &str| world[name].as_array().cloned().unwrap_or_default();
    let is_acmes = |repository: &&Value| {
        repository["full_name"].as_str().is_some_and(|name| name.starts_with("acme/"))
    };
    let repositories = list("repositories").iter().filter(is_acmes).count() as u64;
    let acme =
        list("organizations").into_iter().find(|one| one["login"] == ORGANIZATION).expect("acme");
    let users = acme["members"].as_array().map_or(0, Vec::len) as u64;
    let expected =
        (5_000 + 50 * repositories.saturating_sub(20) + 50 * users.saturating_sub(20)).min(12_500);
    let token = upstream.installation(ORGANIZATION);
    (limit_of(&mut upstream, &token), expected)
}

#[test]
pub fn an_installation_gains_50_per_repository_and_user_beyond_20() {
    let (small, expected) = scaled(12);
    assert_eq!((small, expected), (5_000, 5_000));
    let (more, expected) = scaled(60);
    assert_eq!(more, expected);
    assert!(more > 5_000);
}

#[test]
pub fn an_installation_never_has_more_than_12500() {
    let (most, expected) = scaled(600);
    assert_eq!((most, expected), (12_500, 12_500));
}

#[test]
pub fn an_oauth_app_by_id_and_secret_has_5000() {
    let mut upstream = Upstream::new();
    let limits = limits_of(&mut upstream, "basic");
    let (pair, _) =
        limits.iter().find(|(_, limit)| *limit == 5_000).unwrap_or_else(|| panic!("{limits:?}"));
    let before = upstream.get(pair, PUBLIC).remaining();
    assert_eq!(upstream.get(pair, PUBLIC).remaining(), before - 1);
}

#[test]
pub fn an_enterprises_oauth_app_by_id_and_secret_has_15000() {
    assert_some_has("basic", 15_000);
}

#[test]
pub fn a_workflow_token_has_1000_for_its_repository() {
    assert_some_has("workflow", 1_000);
}

#[test]
pub fn an_enterprise_cloud_workflow_token_has_15000() {
    // "15,000 per repository for resources of an enterprise-cloud account".
    let mut upstream = Upstream::new();
    let tokens: Vec<_> =
        upstream.emulator.tokens().into_iter().filter(|view| view.kind == "workflow").collect();
    let world = upstream.world();
    let names = world["repositories"].as_array().cloned().unwrap_or_default();
    for view in &tokens {
        for repository in &names {
            let answer = upstream.get(
                &view.token,
                &format!("/repos/{}", repository["full_name"].as_str().unwrap_or_default()),
            );
            if answer.header("x-ratelimit-limit") == "15000" {
                return;
            }
        }
    }
    panic!("none of {} workflow tokens has 15000 anywhere", tokens.len());
}

/// Requests this many objects of Git LFS. The URL is that of the public batch format; the documents
/// do not name one.
fn batch(upstream: &mut Upstream, token: &str, objects: usize) -> Answer {
    let objects: Vec<Value> =
        (0..objects).map(|n| json!({ "oid": format!("{n:064x}"), "size": 10 })).collect();
    upstream.post(
        token,
        LFS,
        &json!({ "operation": "download", "transfers": ["basic"], "objects": objects }),
    )
}

#[test]
pub fn git_lfs_without_a_credential_has_300_a_minute() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points.rest", 1_000_000);
    for _ in 0..300 {
        assert_eq!(
            batch(&mut upstream, ANONYMOUS, 1).expect_status(200).number("x-ratelimit-limit"),
            300
        );
    }
    assert!(batch(&mut upstream, ANONYMOUS, 1).is_primary_refusal());
    assert_eq!(
        upstream.get(ANONYMOUS, PUBLIC).expect_status(200).remaining(),
        59,
        "other requests are counted apart"
    );
    upstream.pass(60);
    batch(&mut upstream, ANONYMOUS, 1).expect_status(200);
}

#[test]
pub fn git_lfs_with_a_credential_has_3000_a_minute() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream.set_limit("points.rest", 1_000_000);
    for _ in 0..3_000 {
        assert_eq!(
            batch(&mut upstream, &ada, 1).expect_status(200).number("x-ratelimit-limit"),
            3_000
        );
    }
    assert!(batch(&mut upstream, &ada, 1).is_primary_refusal());
    upstream.pass(60);
    batch(&mut upstream, &ada, 1).expect_status(200);
}

#[test]
pub fn a_git_lfs_batch_processes_100_objects() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let hundred = batch(&mut upstream, &ada, 100).expect_status(200);
    assert_eq!(hundred.body["objects"].as_array().map(Vec::len), Some(100));
    // The effect of more objects is not documented: fewer are processed, or none.
    let more = batch(&mut upstream, &ada, 101);
    assert!(
        more.status >= 400
            || more.body["objects"].as_array().is_some_and(|objects| objects.len() <= 100),
        "{}",
        more.status
    );
}
