//! Rate limit headers, `GET /rate_limit`, and the treatment of a client after a limit.

use serde_json::json;

use crate::document_1::paths::PUBLIC;
use crate::kit::{ANONYMOUS, Answer, Upstream};

const RATE_LIMIT: &str = "/rate_limit";
const MINUTE: u64 = 60;

fn ada() -> (Upstream, String) {
    let upstream = Upstream::new();
    let ada = upstream.classic("ada");
    (upstream, ada)
}

#[test]
pub fn limit_is_the_most_requests_of_the_window() {
    let (mut upstream, ada) = ada();
    assert_eq!(upstream.get(&ada, "/user").number("x-ratelimit-limit"), 5_000);
    upstream.set_limit("core", 17);
    assert_eq!(upstream.get(&ada, "/user").number("x-ratelimit-limit"), 17);
}

#[test]
pub fn remaining_and_used_add_up_to_the_limit() {
    let (mut upstream, ada) = ada();
    for used in 1..=5 {
        let answer = upstream.get(&ada, "/user").expect_status(200);
        assert_eq!(answer.number("x-ratelimit-used"), used);
        assert_eq!(answer.number("x-ratelimit-remaining"), 5_000 - used);
    }
    // Errors count as requests.
    assert_eq!(
        upstream.get(&ada, "/orgs/acme/hooks/999999").expect_status(404).number("x-ratelimit-used"),
        6
    );
}

#[test]
pub fn reset_is_when_the_window_ends() {
    let (mut upstream, ada) = ada();
    let first = upstream.get(&ada, "/user").expect_status(200);
    let reset = first.number("x-ratelimit-reset");
    let left = reset - upstream.now.as_secs();
    assert!(left > 0 && left <= 3_600, "{left}");
    upstream.pass(left - 1);
    let same = upstream.get(&ada, "/user").expect_status(200);
    assert_eq!((same.number("x-ratelimit-reset"), same.number("x-ratelimit-used")), (reset, 2));
    upstream.pass(1);
    let next = upstream.get(&ada, "/user").expect_status(200);
    assert_eq!(next.number("x-ratelimit-used"), 1);
    assert!(next.number("x-ratelimit-reset") > reset);
}

#[test]
pub fn resource_names_the_budget_of_the_request() {
    let (mut upstream, ada) = ada();
    assert_eq!(upstream.get(&ada, "/user").header("x-ratelimit-resource"), "core");
    let searched = upstream.get(&ada, "/search/issues?q=lamp").expect_status(200);
    assert_eq!(searched.header("x-ratelimit-resource"), "search");
    assert_eq!(searched.number("x-ratelimit-used"), 1, "each resource has a window of its own");
    let answer = upstream
        .post(&ada, "/graphql", &json!({ "query": "{ viewer { login } }" }))
        .expect_status(200);
    assert_eq!(answer.header("x-ratelimit-resource"), "graphql");
    assert_eq!(upstream.get(&ada, "/user").number("x-ratelimit-used"), 2);
}

#[test]
pub fn every_response_has_all_five_headers() {
    let (mut upstream, ada) = ada();
    let answers = [
        upstream.get(&ada, "/user"),
        upstream.get(ANONYMOUS, "/user"),
        upstream.get(&ada, "/nothing"),
        upstream.post(&ada, "/repos/acme/widgets/issues", &json!({})),
        upstream.get(&ada, RATE_LIMIT),
    ];
    for answer in answers {
        for name in ["limit", "remaining", "used", "reset", "resource"] {
            assert!(
                !answer.header(&format!("x-ratelimit-{name}")).is_empty(),
                "{name} of {}",
                answer.endpoint
            );
        }
        assert_eq!(
            answer.number("x-ratelimit-used") + answer.remaining(),
            answer.number("x-ratelimit-limit")
        );
    }
}

#[test]
pub fn rate_limit_reports_the_status() {
    let (mut upstream, ada) = ada();
    for _ in 0..3 {
        upstream.get(&ada, "/user").expect_status(200);
    }
    let header = upstream.get(&ada, "/user");
    let status = upstream.get(&ada, RATE_LIMIT).expect_status(200);
    for core in [&status.body["resources"]["core"], &status.body["rate"]] {
        assert_eq!(core["limit"], 5_000, "{}", status.body);
        assert_eq!(core["used"], 4);
        assert_eq!(core["remaining"], 4_996);
        assert_eq!(core["reset"], header.number("x-ratelimit-reset"));
    }
    upstream.get(ANONYMOUS, RATE_LIMIT).expect_status(200);
}

#[test]
pub fn rate_limit_does_not_count_against_the_primary_limit() {
    let (mut upstream, ada) = ada();
    let before = upstream.get(&ada, "/user").remaining();
    for _ in 0..20 {
        upstream.get(&ada, RATE_LIMIT).expect_status(200);
    }
    assert_eq!(upstream.get(&ada, "/user").remaining(), before - 1);
    upstream.set_limit("core", 2);
    upstream.get(&ada, RATE_LIMIT).expect_status(200);
}

#[test]
pub fn rate_limit_may_count_against_the_secondary_limit() {
    let (mut upstream, ada) = ada();
    upstream.assert_refuses_after("points of GET /rate_limit", 900, |upstream, _| {
        upstream.get(&ada, RATE_LIMIT)
    });
}

#[test]
pub fn the_secondary_limit_cannot_be_queried() {
    let (mut upstream, ada) = ada();
    let calm = upstream.get(&ada, RATE_LIMIT).expect_status(200);
    for _ in 0..500 {
        upstream.get(&ada, "/repos/acme/gadgets").expect_status(200);
    }
    let busy = upstream.get(&ada, RATE_LIMIT).expect_status(200);
    assert!(!busy.body.to_string().contains("secondary"), "{}", busy.body);
    let names = |answer: &Answer| {
        answer.body["resources"].as_object().map(|map| map.keys().cloned().collect::<Vec<_>>())
    };
    assert_eq!(names(&calm), names(&busy));
}

/// Ada after a secondary limit, whose refusal carries `retry-after` (1) or not (0).
fn refused(retry_after: u64) -> (Upstream, String, Answer) {
    let (mut upstream, ada) = ada();
    upstream.set_limit("refusal.retry-after", retry_after);
    upstream.set_limit("points.rest", 10);
    for _ in 0..10 {
        upstream.get(&ada, "/user").expect_status(200);
    }
    let refusal = upstream.get(&ada, "/user");
    assert!(refusal.is_secondary_refusal(), "{}", refusal.body);
    (upstream, ada, refusal)
}

#[test]
pub fn a_primary_limit_refuses_everything_until_reset() {
    let (mut upstream, ada) = ada();
    upstream.set_limit("core", 1);
    let reset = upstream.get(&ada, "/user").expect_status(200).number("x-ratelimit-reset");
    upstream.pass(reset - upstream.now.as_secs() - 1);
    let refusal = upstream.get(&ada, "/user");
    assert!(refusal.is_primary_refusal());
    assert_eq!(refusal.number("x-ratelimit-reset"), reset);
    upstream.pass(1);
    upstream.get(&ada, "/user").expect_status(200);
}

#[test]
pub fn a_secondary_limit_refuses_everything_until_retry_after() {
    let (mut upstream, ada, refusal) = refused(1);
    let wait = refusal.number("retry-after");
    assert!(wait > 0);
    upstream.pass(wait - 1);
    assert!(
        upstream.get(&ada, PUBLIC).is_secondary_refusal(),
        "the account waits, whatever the endpoint"
    );
    let (mut upstream, ada, refusal) = refused(1);
    upstream.pass(refusal.number("retry-after"));
    upstream.get(&ada, "/user").expect_status(200);
}

#[test]
pub fn a_secondary_refusal_with_nothing_remaining_lasts_until_reset() {
    let (mut upstream, ada) = ada();
    upstream.set_limit("refusal.retry-after", 0);
    upstream.set_limit("core", 10);
    upstream.set_limit("points.rest", 10);
    let reset = (0..10)
        .map(|_| upstream.get(&ada, "/user").expect_status(200).number("x-ratelimit-reset"))
        .last()
        .unwrap_or(0);
    // Both are exhausted now. Whichever the refusal names, nothing passes before the reset.
    let refusal = upstream.get(&ada, "/user").expect_status(403);
    assert_eq!(refusal.remaining(), 0);
    assert_eq!(refusal.header("retry-after"), "");
    upstream.pass(reset - upstream.now.as_secs() - 1);
    upstream.get(&ada, "/user").expect_status(403);
    upstream.pass(1);
    upstream.get(&ada, "/user").expect_status(200);
}

#[test]
pub fn a_minute_is_enough_without_retry_after() {
    let (mut upstream, ada, refusal) = refused(0);
    assert_eq!(refusal.header("retry-after"), "");
    assert!(refusal.remaining() > 0);
    upstream.pass(MINUTE);
    upstream.get(&ada, "/user").expect_status(200);
}

#[test]
pub fn a_client_that_retries_too_early_waits_longer() {
    let (mut upstream, ada, _) = refused(0);
    upstream.pass(MINUTE / 2);
    assert!(upstream.get(&ada, "/user").is_secondary_refusal());
    let received = upstream.usage();
    assert!(received["sent_while_limited"].as_u64().is_some_and(|count| count >= 1), "{received}");
}

#[test]
pub fn some_refusals_carry_retry_after_and_some_do_not() {
    let (mut with, mut without) = (0, 0);
    let (mut upstream, ada) = ada();
    upstream.set_limit("points.rest", 1);
    for _ in 0..8 {
        upstream.get(&ada, "/user").expect_status(200);
        let refusal = upstream.get(&ada, "/user");
        assert!(refusal.is_secondary_refusal());
        *(if refusal.header("retry-after").is_empty() { &mut without } else { &mut with }) += 1;
        upstream.pass(600);
    }
    assert!(with > 0 && without > 0, "{with} with, {without} without");
}

#[test]
pub fn a_client_that_continues_while_limited_is_banned() {
    let (mut upstream, ada, _) = refused(1);
    upstream.set_limit("ban.after", 50);
    for _ in 0..60 {
        upstream.get(&ada, "/user").expect_status(403);
    }
    upstream.pass(7_200);
    upstream.get(&ada, "/user").expect_status(403);
    let usage = upstream.usage();
    assert!(
        usage["banned"]
            .as_array()
            .is_some_and(|banned| banned.iter().any(|account| account == "ada")),
        "{usage}"
    );
    // Other accounts are not affected.
    let ben = upstream.classic("ben");
    upstream.get(&ben, "/user").expect_status(200);
}
