//! The HTTP answer to a gateway error, whose status and message `gateway/error.rs` has
//! (SPECIFICATION, "Gateway errors"). Client libraries depend on the wording and the headers of
//! limit denials (SPECIFICATION, "Client libraries" 4 and 5).

use http::header::{ALLOW, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::json;

use crate::api::ResourceName;
use crate::clock::Timestamp;
use crate::decision::{BudgetView, LimitKind};
use crate::tokens::Lack;

use crate::gateway::error::{GatewayError, HELP_PATH, Malformed, Unknown};
use crate::gateway::response::budget_headers::RateView;
use crate::gateway::response::reply::Reply;
use crate::gateway::url_rewrite::map::Origin;

/// The longest `Retry-After`. Chosen here: a day, longer than any window of the upstream's limits.
const WAIT_SECS_MAX: u64 = 24 * 60 * 60;

/// Renders the error. `origin` is the gateway's address as the client knows it.
pub fn render_error(error: &GatewayError, origin: &Origin, now: Timestamp) -> Reply {
    if let GatewayError::Limited { limit, until, resource, view } = error {
        return limited(*limit, *until, resource, view, origin, now);
    }
    let reply = error_reply(error.status(), &error.to_string(), origin, error.reason());
    match error {
        GatewayError::Malformed(Malformed::Method) => reply
            .with(ALLOW, HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")),
        GatewayError::Unauthenticated(Unknown::IssuerUnavailable) => {
            reply.with(RETRY_AFTER, HeaderValue::from_static("5"))
        }
        GatewayError::Unauthenticated(_) => {
            reply.with(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"weir\""))
        }
        GatewayError::TokenUnavailable(Lack { until: Some(until), .. }) => {
            reply.with(RETRY_AFTER, HeaderValue::from(secs_until(*until, now)))
        }
        GatewayError::Unreachable
        | GatewayError::UpstreamDown(_)
        | GatewayError::Draining
        | GatewayError::DeliveriesFull
        | GatewayError::NotKept
        | GatewayError::StateAway
        | GatewayError::MayBeKept
        | GatewayError::NotReadable
        | GatewayError::TokenUnavailable(_) => {
            reply.with(RETRY_AFTER, HeaderValue::from_static("5"))
        }
        _ => reply,
    }
}

fn error_reply(status: StatusCode, message: &str, origin: &Origin, anchor: &str) -> Reply {
    let documentation = format!("{}{HELP_PATH}#{anchor}", origin.base);
    Reply::json(status, &json!({ "message": message, "documentation_url": documentation }))
}

/// At least one second, because a client with a time in the past would spin. At most a day, because
/// the quota ledger's "never" exceeds the range of clients.
fn secs_until(until: Timestamp, now: Timestamp) -> u64 {
    until.as_secs_ceil().saturating_sub(now.as_secs()).clamp(1, WAIT_SECS_MAX)
}

/// 403, not 429: on 429 some clients multiply their retries, and others see no rate limit
/// (SPECIFICATION, "Client libraries" 4).
fn limited(
    limit: LimitKind,
    until: Timestamp,
    resource: &ResourceName,
    view: &BudgetView,
    origin: &Origin,
    now: Timestamp,
) -> Reply {
    let retry_after = secs_until(until, now);
    let reset = now.as_secs() + retry_after;
    // The client's budget is empty until the reset: units below the floor are not available to it.
    // Every other limit passes sooner.
    let is_budget =
        matches!(limit, LimitKind::Primary | LimitKind::BatchFloor | LimitKind::ClientBudget);
    let (message, anchor, shown) = if is_budget {
        let whose = if limit == LimitKind::ClientBudget { "own budget" } else { "pool" };
        let message = format!("API rate limit exceeded for this client's {whose} ({resource}).");
        let shown = RateView { limit: view.limit, remaining: 0, used: view.limit, reset };
        (message, "rate-limit", shown)
    } else {
        let message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.";
        (message.to_owned(), "secondary-rate-limits", RateView::served(view, now))
    };
    let reply = error_reply(StatusCode::FORBIDDEN, &message, origin, anchor);
    let mut reply = reply.with(RETRY_AFTER, HeaderValue::from(retry_after));
    shown.write(&mut reply.headers, resource);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::address::Root;
    use crate::gateway::response::reply::ReplyBody;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    const BUDGETS: [LimitKind; 3] =
        [LimitKind::Primary, LimitKind::BatchFloor, LimitKind::ClientBudget];

    /// All limits other than budgets.
    const OTHER_LIMITS: [LimitKind; 15] = [
        LimitKind::Probe,
        LimitKind::Cooldown,
        LimitKind::Concurrency,
        LimitKind::ClientShare,
        LimitKind::Points,
        LimitKind::GraphqlPoints,
        LimitKind::ContentPerMinute,
        LimitKind::ContentPerHour,
        LimitKind::Cpu,
        LimitKind::GraphqlCpu,
        LimitKind::OauthTokens,
        LimitKind::Spacing,
        LimitKind::Pace,
        LimitKind::QueueFull,
        LimitKind::NoAccount,
    ];

    fn view() -> BudgetView {
        BudgetView { limit: 150, remaining: 40, used: 110, reset: Timestamp::from_secs(4_600) }
    }

    fn origin() -> Origin {
        Origin { base: "http://weir:8080".into(), root: Root::Plain }
    }

    fn limited(limit: LimitKind, until: Timestamp) -> (Reply, serde_json::Value) {
        let error =
            GatewayError::Limited { limit, until, resource: ResourceName::core(), view: view() };
        let reply = render_error(&error, &origin(), NOW);
        let ReplyBody::Whole(body) = &reply.body else { panic!("refusals are small") };
        let body = serde_json::from_slice(body).unwrap();
        (reply, body)
    }

    fn header<'r>(reply: &'r Reply, name: &str) -> &'r str {
        reply.headers.get(name).unwrap().to_str().unwrap()
    }

    #[test]
    fn an_exhausted_budget_is_a_403_that_client_libraries_know() {
        for limit in BUDGETS {
            let (reply, body) = limited(limit, Timestamp::from_secs(4_600));
            assert_eq!(reply.status, StatusCode::FORBIDDEN);
            assert!(body["message"].as_str().unwrap().starts_with("API rate limit exceeded"));
            assert_eq!(header(&reply, "x-ratelimit-remaining"), "0");
            assert_eq!(header(&reply, "x-ratelimit-limit"), "150");
            assert_eq!(header(&reply, "x-ratelimit-used"), "150");
            assert_eq!(header(&reply, "x-ratelimit-reset"), "4600");
            assert_eq!(header(&reply, "x-ratelimit-resource"), "core");
            assert_eq!(header(&reply, "retry-after"), "3600");
        }
    }

    #[test]
    fn a_reset_is_never_in_the_past() {
        let (reply, _) = limited(LimitKind::Primary, Timestamp::from_secs(10));
        assert_eq!(header(&reply, "x-ratelimit-reset"), "1001");
        assert_eq!(header(&reply, "retry-after"), "1");
    }

    #[test]
    fn every_other_limit_is_shown_as_a_secondary_rate_limit() {
        for limit in OTHER_LIMITS {
            let (reply, body) = limited(limit, Timestamp::from_secs(1_007));
            assert_eq!(reply.status, StatusCode::FORBIDDEN, "{limit:?}");
            assert!(
                body["message"]
                    .as_str()
                    .unwrap()
                    .starts_with("You have exceeded a secondary rate limit. "),
                "{limit:?}"
            );
            assert!(
                body["documentation_url"].as_str().unwrap().ends_with("#secondary-rate-limits"),
                "{limit:?}"
            );
            assert_eq!(
                (header(&reply, "retry-after"), header(&reply, "x-ratelimit-remaining")),
                ("7", "40"),
                "{limit:?}"
            );
        }
    }

    #[test]
    fn retry_after_is_at_least_a_second_and_at_most_a_day() {
        for limit in BUDGETS.into_iter().chain(OTHER_LIMITS) {
            for (until_millis, expected) in [
                (0, "1"),
                (1_000_000, "1"),
                (1_000_001, "1"),
                (1_001_000, "1"),
                (1_001_001, "2"),
                (1_059_999, "60"),
                (u64::MAX, "86400"),
            ] {
                let (reply, _) = limited(limit, Timestamp::from_millis(until_millis));
                assert_eq!(
                    header(&reply, "retry-after"),
                    expected,
                    "{limit:?} until {until_millis}"
                );
            }
        }
    }

    #[test]
    fn every_limit_has_a_reason_of_its_own() {
        let all = BUDGETS.into_iter().chain(OTHER_LIMITS);
        let word = |limit| {
            GatewayError::Limited {
                limit,
                until: NOW,
                resource: ResourceName::core(),
                view: view(),
            }
            .reason()
        };
        let words: std::collections::BTreeSet<_> = all.map(word).collect();
        assert_eq!(words.len(), BUDGETS.len() + OTHER_LIMITS.len());
        for expected in ["cpu", "graphql_cpu", "oauth_tokens", "pace", "batch_floor"] {
            assert!(words.contains(expected), "{expected}");
        }
    }

    #[test]
    fn a_served_answer_never_shows_an_empty_budget() {
        let view = BudgetView { limit: 50, remaining: 0, used: 50, reset: Timestamp::EPOCH };
        assert_eq!(
            RateView::served(&view, NOW),
            RateView { limit: 50, remaining: 1, used: 49, reset: 1_001 }
        );
    }
}
