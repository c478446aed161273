//! Tests webhook deliveries (SPECIFICATION, "Deliveries").

use serde_json::{Value, json};

use crate::emulator::tests::*;

fn hook(upstream: &mut Upstream) -> String {
    let hooks = upstream.get(ADA, "/orgs/acme/hooks");
    format!("/orgs/acme/hooks/{}", hooks.items()[0]["id"])
}

fn ids(answer: &Answer) -> Vec<u64> {
    answer.items().iter().filter_map(|delivery| delivery["id"].as_u64()).collect()
}

#[test]
fn deliveries_are_paged_by_the_cursor_of_the_link() {
    let mut upstream = Upstream::new();
    let path = hook(&mut upstream);
    let first = upstream.get(ADA, &format!("{path}/deliveries"));
    assert_eq!(first.items().len(), 30);
    let next = first.link("next").expect("there are more");
    assert!(next.contains("cursor="));
    let second = upstream.get(ADA, next.strip_prefix("http://upstream.test").expect("our address"));
    assert_eq!((second.items().len(), second.link("next")), (10, None));
    assert!(ids(&first).iter().min() > ids(&second).iter().max(), "newest first, nothing twice");
}

#[test]
fn a_cursor_stays_valid_while_deliveries_are_added() {
    let mut upstream = Upstream::new();
    let path = hook(&mut upstream);
    let first = upstream.get(ADA, &format!("{path}/deliveries?per_page=5"));
    let next = first.link("next").expect("there are more");
    upstream.post(ADA, &format!("{path}/pings"), &Value::Null).assert_status(204);
    let second = upstream.get(ADA, next.strip_prefix("http://upstream.test").expect("our address"));
    assert!(ids(&second).iter().all(|id| !ids(&first).contains(id)));
    assert_eq!(ids(&second).len(), 5);
}

#[test]
fn a_malformed_cursor_or_delivery_id_is_400() {
    let mut upstream = Upstream::new();
    let path = hook(&mut upstream);
    for cursor in ["zzz", "v1_", "v1_-1", "v1_x", "v1_99999999999999999999999", "%F0%9F%A6%80"] {
        upstream.get(ADA, &format!("{path}/deliveries?cursor={cursor}")).assert_status(400);
    }
    for id in ["abc", "-1", "+1", "1.0", "0x1", "%20", "%F0%9F%A6%80"] {
        upstream.get(ADA, &format!("{path}/deliveries/{id}")).assert_status(400);
        upstream
            .post(ADA, &format!("{path}/deliveries/{id}/attempts"), &Value::Null)
            .assert_status(400);
    }
    for (id, status) in
        [("1", 404), ("0", 404), ("18446744073709551615", 422), ("99999999999999999999999999", 422)]
    {
        upstream.get(ADA, &format!("{path}/deliveries/{id}")).assert_status(status);
        upstream
            .post(ADA, &format!("{path}/deliveries/{id}/attempts"), &Value::Null)
            .assert_status(status);
    }
    upstream.get(ADA, &format!("{path}/deliveries?status=odd")).assert_names_field("status");
    upstream.get(ADA, &format!("{path}/deliveries?per_page=many")).assert_names_field("per_page");
}

#[test]
fn a_page_links_the_previous_page() {
    let mut upstream = Upstream::new();
    let path = hook(&mut upstream);
    let follow = |upstream: &mut Upstream, address: Option<String>| {
        upstream.get(
            ADA,
            address.expect("a link").strip_prefix("http://upstream.test").expect("our address"),
        )
    };
    let first = upstream.get(ADA, &format!("{path}/deliveries?per_page=15"));
    assert_eq!(first.link("prev"), None);
    let second = follow(&mut upstream, first.link("next"));
    let third = follow(&mut upstream, second.link("next"));
    assert_eq!((third.items().len(), third.link("next")), (10, None));
    let back = follow(&mut upstream, third.link("prev"));
    assert_eq!(ids(&back), ids(&second));
    let back = follow(&mut upstream, back.link("prev"));
    assert_eq!((ids(&back), back.link("prev")), (ids(&first), None));
}

#[test]
fn a_page_has_30_deliveries_by_default_and_at_most_100() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points.rest", 10_000);
    let path = hook(&mut upstream);
    for _ in 0..70 {
        upstream.post(ADA, &format!("{path}/pings"), &Value::Null).assert_status(204);
    }
    for (query, shown) in [
        ("", 30),
        ("?per_page=100", 100),
        ("?per_page=1000", 100),
        ("?per_page=0", 30),
        ("?per_page=1", 1),
        ("?cursor=", 30),
    ] {
        assert_eq!(
            upstream.get(ADA, &format!("{path}/deliveries{query}")).items().len(),
            shown,
            "{query}"
        );
    }
}

#[test]
fn redeliveries_are_refused_when_the_record_is_full() {
    let mut upstream = Upstream::new();
    upstream.set_limit("points.rest", 1_000_000);
    upstream.set_limit("core", 1_000_000);
    let path = hook(&mut upstream);
    for _ in 0..1_000 {
        upstream.post(ADA, &format!("{path}/pings"), &Value::Null).assert_status(204);
    }
    let newest = upstream.get(ADA, &format!("{path}/deliveries?per_page=1"));
    upstream
        .post(ADA, &format!("{path}/deliveries/{}/attempts", ids(&newest)[0]), &Value::Null)
        .assert_names_field("base");
}

#[test]
fn an_inactive_webhook_still_delivers_a_ping() {
    let mut upstream = Upstream::new();
    let path = hook(&mut upstream);
    upstream.patch(ADA, &path, &json!({ "active": false })).assert_status(200);
    upstream.post(ADA, &format!("{path}/pings"), &Value::Null).assert_status(204);
    let newest = upstream.get(ADA, &format!("{path}/deliveries?per_page=1"));
    assert_eq!(
        (&newest.items()[0]["event"], &newest.items()[0]["action"]),
        (&json!("ping"), &json!(""))
    );
    let payload = upstream.get(ADA, &format!("{path}/deliveries/{}", ids(&newest)[0])).body["request"]["payload"].clone();
    assert!(
        payload["zen"].is_string()
            && payload["hook"]["config"]["url"].is_string()
            && payload["hook"]["config"].get("secret").is_none()
    );
    upstream.post(ADA, "/orgs/acme/hooks/99999999/pings", &Value::Null).assert_status(404);
    upstream.post(OAUTH, &format!("{path}/pings"), &Value::Null).assert_status(404);
}

#[test]
fn a_delivery_keeps_the_request_that_was_sent() {
    let mut upstream = Upstream::new();
    let path = hook(&mut upstream);
    let id = ids(&upstream.get(ADA, &format!("{path}/deliveries")))[0];
    let before = upstream.get(ADA, &format!("{path}/deliveries/{id}")).body;
    upstream
        .patch(
            ADA,
            &path,
            &json!({ "config": { "url": "https://example.com/other", "content_type": "form" } }),
        )
        .assert_status(200);
    assert_eq!(upstream.get(ADA, &format!("{path}/deliveries/{id}")).body, before);
    assert!(
        before["request"]["headers"]["x-hub-signature-256"]
            .as_str()
            .is_some_and(|signature| signature.starts_with("sha256="))
    );
}

#[test]
fn the_status_filter_finds_the_failed_delivery() {
    let mut upstream = Upstream::new();
    let path = hook(&mut upstream);
    let failed = upstream.get(ADA, &format!("{path}/deliveries?status=failure"));
    assert_eq!(failed.items().len(), 1);
    assert_eq!(
        (&failed.items()[0]["status_code"], &failed.items()[0]["status"]),
        (&json!(502), &json!("Bad Gateway"))
    );
}

#[test]
fn summary_and_detail_have_every_field() {
    let mut upstream = Upstream::new();
    let path = hook(&mut upstream);
    let id = ids(&upstream.get(ADA, &format!("{path}/deliveries")))[0];
    let detail = upstream.get(ADA, &format!("{path}/deliveries/{id}")).assert_status(200);
    let summary = [
        "id",
        "guid",
        "delivered_at",
        "redelivery",
        "duration",
        "status",
        "status_code",
        "event",
        "action",
        "installation_id",
        "repository_id",
        "throttled_at",
    ];
    for field in summary.into_iter().chain(["url", "request", "response"]) {
        assert!(detail.body.get(field).is_some(), "{field}");
    }
    assert_eq!(detail.body["status"], "OK");
    assert!(
        detail.body["request"]["headers"].is_object()
            && detail.body["response"]["payload"].is_string()
    );
    assert_eq!(detail.body["guid"].as_str().map(str::len), Some(36));
}

#[test]
fn an_attempt_redelivers_with_the_same_guid() {
    let mut upstream = Upstream::new();
    let path = hook(&mut upstream);
    let before = upstream.get(ADA, &format!("{path}/deliveries"));
    let id = ids(&before)[3];
    upstream
        .post(ADA, &format!("{path}/deliveries/{id}/attempts"), &Value::Null)
        .assert_status(202);
    let after = upstream.get(ADA, &format!("{path}/deliveries"));
    assert_eq!(after.items()[0]["redelivery"], true);
    assert_eq!(after.items()[0]["guid"], before.items()[3]["guid"]);
    assert_eq!(
        (&after.items()[0]["status"], &after.items()[0]["status_code"]),
        (&json!("Pending"), &json!(0)),
        "nobody sends it here"
    );
    assert_ne!(after.items()[0]["id"], before.items()[3]["id"]);
}

#[test]
fn an_event_is_recorded_only_for_hooks_that_subscribe_to_it() {
    let mut upstream = Upstream::new();
    let path = hook(&mut upstream);
    upstream
        .post(BEN, "/repos/acme/widgets/issues", &json!({ "title": "Something new" }))
        .assert_status(201);
    let newest = upstream.get(ADA, &format!("{path}/deliveries?per_page=1"));
    assert_eq!(
        (&newest.items()[0]["event"], &newest.items()[0]["action"]),
        (&json!("issues"), &json!("opened"))
    );
    let id = ids(&newest)[0];
    let payload =
        upstream.get(ADA, &format!("{path}/deliveries/{id}")).body["request"]["payload"].clone();
    assert_eq!(
        (&payload["action"], &payload["issue"]["title"], &payload["repository"]["full_name"]),
        (&json!("opened"), &json!("Something new"), &json!("acme/widgets"))
    );
    upstream
        .post(BEN, "/repos/acme/widgets/issues/1/comments", &json!({ "body": "x" }))
        .assert_status(201);
    assert_eq!(
        ids(&upstream.get(ADA, &format!("{path}/deliveries?per_page=1"))),
        [id],
        "issue_comment is not among its events"
    );
}

#[test]
fn delivery_headers_are_named_by_the_dialect() {
    let mut upstream = Upstream::github();
    let path = hook(&mut upstream);
    let id = ids(&upstream.get(ADA, &format!("{path}/deliveries")))[0];
    let detail = upstream.get(ADA, &format!("{path}/deliveries/{id}"));
    let names: Vec<String> = detail.body["request"]["headers"]
        .as_object()
        .expect("an object")
        .keys()
        .map(|name| name.to_lowercase())
        .collect();
    assert!(
        names.contains(&"x-github-delivery".to_owned())
            && names.contains(&"x-github-hook-id".to_owned()),
        "{names:?}"
    );
}

#[test]
fn a_seeded_delivery_has_the_payload_of_its_event() {
    let mut upstream = Upstream::new();
    let path = hook(&mut upstream);
    // A delivery of now, for comparison.
    let sent = json!({ "title": "New" });
    upstream.post(BEN, "/repos/acme/widgets/issues", &sent).assert_status(201);
    let listed = upstream.get(ADA, &format!("{path}/deliveries?per_page=50"));
    let detail = |upstream: &mut Upstream, id: u64| {
        let delivery = upstream.get(ADA, &format!("{path}/deliveries/{id}")).assert_status(200);
        delivery.body["request"]["payload"].clone()
    };
    let ids = ids(&listed);
    let fresh = detail(&mut upstream, ids[0]);
    let names = |value: &Value| -> Vec<String> {
        value.as_object().expect("an object").keys().cloned().collect()
    };
    assert_eq!((ids.len(), &fresh["issue"]["title"]), (41, &json!("New")));
    let mut numbers = std::collections::BTreeSet::new();
    for id in &ids[1..] {
        let seeded = detail(&mut upstream, *id);
        for (of_seed, of_now) in [
            (&seeded, &fresh),
            (&seeded["issue"], &fresh["issue"]),
            (&seeded["repository"], &fresh["repository"]),
            (&seeded["organization"], &fresh["organization"]),
            (&seeded["sender"], &fresh["sender"]),
        ] {
            assert_eq!(names(of_seed), names(of_now));
        }
        assert_eq!(seeded["sender"]["login"], seeded["issue"]["user"]["login"]);
        let url = seeded["issue"]["url"]
            .as_str()
            .and_then(|url| url.strip_prefix("http://upstream.test"));
        let issue = upstream.get(ADA, url.expect("our address")).assert_status(200).body;
        assert_eq!(issue["title"], seeded["issue"]["title"]);
        numbers.extend(issue["number"].as_u64());
    }
    assert_eq!(numbers.len(), 40);
}
