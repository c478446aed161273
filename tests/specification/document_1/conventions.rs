//! Conventions of requests and responses on every route.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::document_1::paths::{ORGANIZATION, PUBLIC, organization_of, team_of};
use crate::kit::{ANONYMOUS, BASE, TestRequest, Upstream};
use crate::recorder::saw_header;
use crate::shape::is_timestamp;

const ISSUES: &str = "/repos/acme/widgets/issues";
const NOTIFICATIONS: &str = "/notifications";

#[test]
pub fn bodies_are_json_both_ways() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let made =
        upstream.post(&ada, ISSUES, &json!({ "title": "A lamp is broken" })).expect_status(201);
    assert!(made.header("content-type").starts_with("application/json"));
    assert_eq!(made.body["title"], "A lamp is broken");
    for text in ["{", "[1", "\"\u{0}", "{\"title\": }", "title=x", "\u{feff}{}"] {
        let refused =
            upstream.send(&TestRequest::new("POST", ISSUES).by(&ada).text(text)).expect_status(400);
        assert!(refused.header("content-type").starts_with("application/json"));
        assert!(!refused.message().is_empty());
    }
}

#[test]
pub fn the_recommended_media_type_is_accepted_on_every_request() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for url_path in ["/user", ISSUES, NOTIFICATIONS, "/orgs/acme/hooks", "/rate_limit"] {
        let with = upstream
            .send(
                &TestRequest::new("GET", url_path)
                    .by(&ada)
                    .header("accept", "application/vnd.service+json"),
            )
            .expect_status(200);
        assert!(with.header("content-type").starts_with("application/json"), "{url_path}");
        // "Recommended": the response is the same without it.
        let without = upstream.get(&ada, url_path).expect_status(200);
        if url_path != "/rate_limit" {
            assert_eq!(with.body, without.body, "{url_path}");
        }
    }
}

#[test]
pub fn the_authorization_header_carries_the_token() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    assert_eq!(upstream.get(&ada, "/user").expect_status(200).body["login"], "ada");
    upstream.get(ANONYMOUS, "/user").expect_status(401);
    // The query is not accepted.
    upstream.get(ANONYMOUS, &format!("/user?access_token={ada}")).expect_status(401);
}

#[test]
pub fn the_version_header_selects_the_version() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for version in ["2022-11-28", "2026-03-10"] {
        let answer = upstream
            .send(
                &TestRequest::new("GET", "/user").by(&ada).header("X-Service-Api-Version", version),
            )
            .expect_status(200);
        let mut echoes = answer
            .headers
            .iter()
            .filter(|(name, _)| name.as_str().starts_with("x-service-api-version"));
        assert!(
            echoes.any(|(_, value)| value == version),
            "no header says that {version} was selected: {:?}",
            answer.headers
        );
    }
}

/// Every value whose name denotes a time.
fn moments(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                if let (true, Some(text)) = (name.ends_with("_at"), value.as_str()) {
                    found.push(text.to_owned());
                }
                moments(value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| moments(item, found)),
        _ => {}
    }
}

#[test]
pub fn timestamps_are_iso_8601() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for url_path in [
        "/user",
        ISSUES,
        NOTIFICATIONS,
        "/orgs/acme/hooks",
        PUBLIC,
        "/repos/acme/widgets/issues/1/comments",
    ] {
        let mut found = Vec::new();
        moments(&upstream.get(&ada, url_path).expect_status(200).body, &mut found);
        assert!(!found.is_empty(), "{url_path} has no moments");
        for text in found {
            assert!(is_timestamp(&text), "{url_path} has {text}");
        }
    }
}

/// The ids of a list's items.
fn ids(upstream: &mut Upstream, token: &str, url_path: &str) -> Vec<u64> {
    let answer = upstream.get(token, url_path).expect_status(200);
    answer.items().iter().filter_map(|item| item["id"].as_u64()).collect()
}

#[test]
pub fn a_page_has_30_items_by_default_and_100_at_most() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let all = format!("{ISSUES}?state=all");
    while ids(&mut upstream, &ada, &format!("{all}&per_page=100&page=2")).len() < 5 {
        upstream.pass(60);
        for n in 0..30 {
            upstream.event(&json!({ "type": "issue_opened", "repository": "acme/widgets", "actor": "ben", "text": format!("Issue {n}") }));
        }
    }
    let first = ids(&mut upstream, &ada, &all);
    assert_eq!(first.len(), 30);
    assert_eq!(ids(&mut upstream, &ada, &format!("{all}&page=1")), first);
    let hundred = ids(&mut upstream, &ada, &format!("{all}&per_page=100"));
    assert_eq!(hundred.len(), 100);
    assert_eq!(hundred[..30], first);
    assert!(ids(&mut upstream, &ada, &format!("{all}&per_page=101")).len() <= 100);
    assert_eq!(ids(&mut upstream, &ada, &format!("{all}&per_page=10&page=3")), hundred[20..30]);
    assert!(ids(&mut upstream, &ada, &format!("{all}&page=1000")).is_empty());
}

#[test]
pub fn links_lead_through_all_pages() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let first = upstream.get(&ada, &format!("{ISSUES}?state=all&per_page=20")).expect_status(200);
    assert!(
        first.header("link").contains(&format!("<{BASE}/")),
        "links are absolute: {}",
        first.header("link")
    );
    assert_eq!(first.link("prev"), None);
    let last = first.link("last").expect("there are more pages");
    let mut seen: Vec<Value> = first.items().clone();
    let mut next = first.link("next");
    let mut address = String::new();
    while let Some(url_path) = next {
        let page = upstream.get(&ada, &url_path).expect_status(200);
        assert!(page.link("prev").is_some() && page.link("first").is_some());
        seen.extend(page.items().iter().cloned());
        next = page.link("next");
        address = url_path;
    }
    assert_eq!(address, last);
    assert_eq!(
        upstream.get(&ada, &last).expect_status(200).link("last"),
        None,
        "the last page has no last"
    );
    let distinct: BTreeSet<u64> = seen.iter().filter_map(|issue| issue["id"].as_u64()).collect();
    assert_eq!(distinct.len(), seen.len());
    assert!(seen.len() > 60);
}

#[test]
pub fn delivery_lists_are_paged_by_cursor() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let world = upstream.world();
    let hooks = world["hooks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let hook =
        hooks.iter().find(|hook| hook["organization"] == ORGANIZATION).expect("acme has a hook");
    let all = format!("/orgs/acme/hooks/{}/deliveries", hook["id"]);
    let whole = ids(&mut upstream, &ada, &format!("{all}?per_page=100"));
    let mut seen = Vec::new();
    let mut next = Some(format!("{all}?per_page=10"));
    while let Some(url_path) = next {
        let page = upstream.get(&ada, &url_path).expect_status(200);
        assert!(page.items().len() <= 10);
        seen.extend(page.items().iter().filter_map(|delivery| delivery["id"].as_u64()));
        next = page.link("next");
        assert!(next.as_ref().is_none_or(|url_path| url_path.contains("cursor=")), "{next:?}");
    }
    assert_eq!(seen, whole);
    assert!(seen.len() > 10);
    // "400: bad request (for example malformed delivery or cursor query)".
    upstream.get(&ada, &format!("{all}?cursor=%00nonsense")).expect_status(400);
}

#[test]
pub fn polling_answers_304_until_something_changes() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let first = upstream.get(&ada, NOTIFICATIONS).expect_status(200);
    let stamp = first.header("last-modified").to_owned();
    assert!(!stamp.is_empty(), "polling endpoints carry Last-Modified");
    upstream.pass(60);
    let conditional =
        TestRequest::new("GET", NOTIFICATIONS).by(&ada).header("if-modified-since", &stamp);
    let unchanged = upstream.send(&conditional).expect_status(304);
    assert!(unchanged.bytes.is_empty());
    upstream.pass(60);
    upstream.event(&json!({ "type": "mention", "repository": "acme/widgets", "number": 2, "actor": "ben", "user": "ada", "text": "look" }));
    let changed = upstream.send(&conditional).expect_status(200);
    assert_ne!(changed.header("last-modified"), stamp);
    assert_ne!(changed.body, first.body);
}

#[test]
pub fn the_poll_interval_is_stated_and_rises_under_load() {
    const POLLED: &str = "/notifications?per_page=1";
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let calm = upstream.get(&ada, POLLED).expect_status(200).number("x-poll-interval");
    assert!(calm >= 1);
    upstream.pass(calm);
    assert_eq!(
        upstream.get(&ada, POLLED).number("x-poll-interval"),
        calm,
        "whoever obeys keeps it"
    );
    let hasty = (0..200).map(|_| upstream.get(&ada, POLLED).number("x-poll-interval")).last();
    assert!(
        hasty.is_some_and(|hasty| hasty > calm),
        "{hasty:?} after 200 polls in a second, {calm} before"
    );
}

#[test]
pub fn a_304_states_the_poll_interval_too() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let first = upstream.get(&ada, NOTIFICATIONS).expect_status(200);
    let conditional = TestRequest::new("GET", NOTIFICATIONS)
        .by(&ada)
        .header("if-modified-since", first.header("last-modified"));
    assert!(upstream.send(&conditional).expect_status(304).number("x-poll-interval") >= 1);
}

#[test]
pub fn a_legacy_put_takes_an_empty_body() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let team = team_of(&upstream.world())["id"].to_string();
    upstream.put_empty(&ada, &format!("/teams/{team}/members/build-bot")).expect_status(204);
    upstream.get(&ada, &format!("/teams/{team}/members/build-bot")).expect_status(204);
    saw_header("content-length");
}

#[test]
pub fn a_team_is_addressed_by_slug_by_id_and_the_closing_down_way() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let world = upstream.world();
    let (organization, team) = (organization_of(&world), team_of(&world));
    let by_slug = format!("/orgs/acme/teams/{}", team["slug"].as_str().unwrap_or_default());
    let by_id = format!("/organizations/{}/team/{}", organization["id"], team["id"]);
    let closing_down = format!("/teams/{}", team["id"]);
    for rest in ["/members", "/invitations", "/memberships/cleo"] {
        let one = upstream.get(&ada, &format!("{by_slug}{rest}")).expect_status(200);
        for way in [&by_id, &closing_down] {
            let other = upstream.get(&ada, &format!("{way}{rest}")).expect_status(200);
            assert_eq!(other.body, one.body, "{way}{rest}");
        }
    }
    // Organization names in paths are case-insensitive (SPECIFICATION, "Team membership").
    upstream.get(&ada, &by_slug.replace("acme", "ACME")).expect_status(200);
}

#[test]
pub fn a_self_hosted_instance_answers_under_its_prefix() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for url_path in ["/user", PUBLIC, "/orgs/acme/hooks", "/rate_limit"] {
        let hosted = upstream.get(&ada, url_path).expect_status(200);
        let own = upstream.get(&ada, &format!("/api/v3{url_path}")).expect_status(200);
        assert_eq!(own.endpoint, hosted.endpoint);
    }
    let made = upstream.get(&ada, &format!("/api/v3{PUBLIC}")).expect_status(200);
    assert_eq!(
        made.body["url"],
        format!("{BASE}/api/v3{PUBLIC}"),
        "its addresses have the prefix too"
    );
    upstream.get(&ada, "/api/v2/user").expect_status(404);
}

#[test]
pub fn the_dialects_words_replace_the_neutral_ones() {
    let mut neutral = Upstream::new();
    let mut branded = Upstream::github();
    let ada = neutral.classic("ada");
    let ours = neutral.get(&ada, "/orgs/acme/hooks").expect_status(200);
    let theirs = branded
        .send(
            &TestRequest::new("GET", "/orgs/acme/hooks")
                .by(&ada)
                .header("accept", "application/vnd.github+json"),
        )
        .expect_status(200);
    assert_eq!(
        theirs.header("x-accepted-github-permissions"),
        ours.header("x-accepted-service-permissions")
    );
    assert!(!ours.headers.contains_key("x-accepted-github-permissions"));
    assert!(!theirs.headers.contains_key("x-accepted-service-permissions"));
    assert_eq!(theirs.body, ours.body);
}
