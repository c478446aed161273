//! Each known form of a limit (SPECIFICATION, "Limits in practice"), and answers that only resemble
//! one.

use http::{HeaderName, HeaderValue};

use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);
const DOCS: &str = "https://docs.example.com/rest/using-the-rest-api/rate-limits-for-the-rest-api";

fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
    lines
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}

fn limit_of(
    status: u16,
    lines: &[(&'static str, &'static str)],
    body: &str,
) -> Option<UpstreamLimit> {
    upstream_limit(
        StatusCode::from_u16(status).unwrap_or_default(),
        &headers(lines),
        body.as_bytes(),
        NOW,
    )
}

fn kind(
    status: u16,
    lines: &[(&'static str, &'static str)],
    body: &str,
) -> Option<UpstreamLimitKind> {
    limit_of(status, lines, body).map(|limit_of| limit_of.kind)
}

fn message(text: &str) -> String {
    format!(r#"{{"message":"{text}","documentation_url":"{DOCS}"}}"#)
}

#[test]
fn a_primary_limit_names_its_resource_and_reset() {
    let lines = [
        ("x-ratelimit-remaining", "0"),
        ("x-ratelimit-reset", "1700000060"),
        ("x-ratelimit-resource", "core"),
    ];
    for tail in [
        "user ID 7.",
        "installation ID 9.",
        "192.0.2.1. (But here's the good news: ask us for more.)",
    ] {
        for status in [403, 429] {
            let expected = UpstreamLimit {
                kind: UpstreamLimitKind::Primary,
                retry_after: None,
                reset: Some(Timestamp::from_secs(1_700_000_060)),
                remaining: Some(0),
                resource: Some(ResourceName::core()),
            };
            assert_eq!(
                limit_of(status, &lines, &message(&format!("API rate limit exceeded for {tail}"))),
                Some(expected)
            );
        }
    }
}

#[test]
fn a_newer_primary_body_repeats_its_status() {
    let body = r#"{"message":"API rate limit exceeded for user ID 7.","status":"403"}"#;
    assert_eq!(kind(403, &[], body), Some(UpstreamLimitKind::Primary));
}

#[test]
fn a_secondary_limit_is_recognised_by_its_message() {
    for text in [
        "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
        "You have triggered an abuse detection mechanism. Please wait a few minutes before you try again.",
        "You have exceeded a secondary rate limit and have been temporarily blocked from content creation. Please retry your request again later.",
    ] {
        for status in [403, 429] {
            assert_eq!(
                kind(status, &[], &message(text)),
                Some(UpstreamLimitKind::Secondary),
                "{status} {text}"
            );
        }
    }
}

#[test]
fn a_secondary_limit_with_no_units_left_stays_secondary() {
    let body = message("You have exceeded a secondary rate limit.");
    let limited = limit_of(
        403,
        &[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000060")],
        &body,
    );
    assert_eq!(limited.as_ref().map(|limit| limit.kind), Some(UpstreamLimitKind::Secondary));
    assert_eq!(limited.as_ref().and_then(|limit| limit.remaining), Some(0));
    assert_eq!(
        limited.as_ref().and_then(|limit| limit.reset),
        Some(Timestamp::from_secs(1_700_000_060))
    );
}

#[test]
fn a_secondary_limit_is_recognised_by_its_documentation_url() {
    for end in [
        "/rate-limits#about-secondary-rate-limits",
        "/resources-in-the-rest-api#secondary-rate-limits",
        "/rest#abuse-rate-limits",
    ] {
        let body = format!(
            r#"{{"message":"Slow down.","documentation_url":"https://docs.example.com{end}"}}"#
        );
        assert_eq!(kind(403, &[], &body), Some(UpstreamLimitKind::Secondary), "{end}");
    }
}

#[test]
fn a_message_that_names_both_limits_is_secondary() {
    let body = message("API rate limit exceeded. You have exceeded a secondary rate limit.");
    assert_eq!(
        kind(403, &[("x-ratelimit-remaining", "0")], &body),
        Some(UpstreamLimitKind::Secondary)
    );
}

#[test]
fn a_limit_is_recognised_in_html() {
    let page = |text: &str| format!("<!DOCTYPE html><html><body><p>{text}</p></body></html>");
    assert_eq!(
        kind(403, &[], &page("You have exceeded a <b>secondary rate limit</b>.")),
        Some(UpstreamLimitKind::Secondary)
    );
    assert_eq!(
        kind(429, &[("retry-after", "60")], &page("Whoa there!")),
        Some(UpstreamLimitKind::Secondary)
    );
    assert_eq!(
        kind(403, &[], &page("See <a href='/rest/rate-limits#secondary-rate-limits'>here</a>")),
        Some(UpstreamLimitKind::Secondary)
    );
    assert_eq!(kind(403, &[], &page("Whoa there!")), None);
}

#[test]
fn a_429_is_a_limit_with_any_body() {
    assert_eq!(kind(429, &[], ""), Some(UpstreamLimitKind::Secondary));
    assert_eq!(
        kind(429, &[("x-ratelimit-remaining", "12")], r#"{"message":"Nope"}"#),
        Some(UpstreamLimitKind::Secondary)
    );
    assert_eq!(kind(429, &[("x-ratelimit-remaining", "0")], ""), Some(UpstreamLimitKind::Primary));
}

#[test]
fn a_bare_403_is_no_limit() {
    assert_eq!(
        kind(
            403,
            &[("x-ratelimit-remaining", "12")],
            &message("Resource not accessible by integration")
        ),
        None
    );
    assert_eq!(kind(403, &[], ""), None);
}

#[test]
fn a_403_with_retry_after_or_no_units_left_is_a_limit() {
    assert_eq!(
        kind(403, &[("retry-after", "60"), ("x-ratelimit-remaining", "12")], ""),
        Some(UpstreamLimitKind::Secondary)
    );
    assert_eq!(kind(403, &[("retry-after", "soon")], ""), Some(UpstreamLimitKind::Secondary));
    assert_eq!(kind(403, &[("x-ratelimit-remaining", "0")], ""), Some(UpstreamLimitKind::Primary));
}

#[test]
fn words_of_users_are_no_limit() {
    let quoting = r#"{"message":"Forbidden","errors":[{"value":"secondary rate limit"}],"title":"API rate limit exceeded"}"#;
    assert_eq!(kind(403, &[], quoting), None);
    assert_eq!(kind(403, &[], r#"[{"body":"secondary rate limit"}]"#), None);
    assert_eq!(kind(403, &[], r#"{"message":["secondary rate limit"]}"#), None);
}

#[test]
fn other_statuses_are_no_limits() {
    let body = message("API rate limit exceeded for user ID 7.");
    for status in [200, 201, 304, 400, 401, 404, 422, 500, 502, 503] {
        assert_eq!(
            kind(status, &[("retry-after", "60"), ("x-ratelimit-remaining", "0")], &body),
            None,
            "{status}"
        );
    }
}

#[test]
fn graphql_reports_a_limit_with_a_200() {
    for kind_word in ["RATE_LIMITED", "RATE_LIMIT"] {
        let body = format!(
            r#"{{"errors":[{{"type":"{kind_word}","message":"API rate limit exceeded for user ID 7."}}]}}"#
        );
        let lines = [
            ("content-type", "application/json; charset=utf-8"),
            ("x-ratelimit-resource", "graphql"),
            ("x-ratelimit-remaining", "0"),
        ];
        let limited = limit_of(200, &lines, &body);
        assert_eq!(
            limited.as_ref().map(|limit| limit.kind),
            Some(UpstreamLimitKind::Primary),
            "{kind_word}"
        );
        assert_eq!(
            limited.as_ref().and_then(|limit| limit.resource.as_ref()),
            Some(&ResourceName::graphql())
        );
    }
    let secondary = r#"{"data":null,"errors":[{"message":"You have exceeded a secondary rate limit. Please wait."}]}"#;
    assert_eq!(kind(200, &[], secondary), Some(UpstreamLimitKind::Secondary));
    assert_eq!(
        kind(200, &[], &message("You have exceeded a secondary rate limit.")),
        Some(UpstreamLimitKind::Secondary)
    );
    assert_eq!(
        kind(
            403,
            &[("x-ratelimit-resource", "graphql")],
            &message("You have exceeded a secondary rate limit.")
        ),
        Some(UpstreamLimitKind::Secondary)
    );
}

#[test]
fn a_200_that_only_quotes_a_limit_is_no_limit() {
    let file = r#"{"errors":[{"type":"RATE_LIMITED"}]}"#;
    assert_eq!(
        kind(200, &[("content-type", "application/vnd.github.raw; charset=utf-8")], file),
        None
    );
    assert_eq!(
        kind(200, &[("content-type", "application/json"), ("x-ratelimit-resource", "core")], file),
        None
    );
    let quoting = r#"{"data":{"issue":{"type":"RATE_LIMITED","body":"You have exceeded a secondary rate limit"}}}"#;
    assert_eq!(kind(200, &[], quoting), None);
    let naming = r#"{"errors":[{"type":"NOT_FOUND","message":"Could not resolve to a Repository named 'secondary rate limit'"}]}"#;
    assert_eq!(kind(200, &[], naming), None);
    assert_eq!(kind(200, &[], r#"{"errors":null,"data":"RATE_LIMITED"}"#), None);
}

#[test]
fn retry_after_is_seconds_or_a_date() {
    let after = |value: &'static str| retry_after(&headers(&[("retry-after", value)]), NOW);
    assert_eq!(after("60"), Some(Duration::from_mins(1)));
    assert_eq!(after("0"), Some(Duration::ZERO));
    assert_eq!(after("Tue, 14 Nov 2023 22:14:20 GMT"), Some(Duration::from_mins(1)));
    assert_eq!(after("Tue, 14 Nov 2023 22:00:00 GMT"), Some(Duration::ZERO));
    for bad in ["", "-1", "1.5", "soon", "99999999999999999999"] {
        assert_eq!(after(bad), None, "{bad}");
    }
    assert_eq!(retry_after(&HeaderMap::new(), NOW), None);
}

#[test]
fn the_longest_of_several_retry_afters_holds() {
    let mut several = headers(&[("retry-after", "60")]);
    several.append("retry-after", HeaderValue::from_static("90"));
    assert_eq!(retry_after(&several, NOW), Some(Duration::from_secs(90)));
}

#[test]
fn no_bytes_make_it_panic() {
    for body in [
        &b"\xff\xfe\x00"[..],
        b"{",
        b"{\"message\":\"\xff secondary rate limit\"}",
        b"null",
        b"\"secondary rate limit\"",
    ] {
        for status in [StatusCode::OK, StatusCode::FORBIDDEN, StatusCode::TOO_MANY_REQUESTS] {
            let _ = upstream_limit(status, &HeaderMap::new(), body, NOW);
        }
    }
    let long = vec![b'x'; 3 * TEXT_BYTES_MAX];
    assert_eq!(upstream_limit(StatusCode::FORBIDDEN, &HeaderMap::new(), &long, NOW), None);
}
