//! Other limits, and versioning.

use serde_json::{Value, json};

use crate::document_1::paths::{PUBLIC, team_of};
use crate::kit::{ANONYMOUS, TestRequest, Upstream};
use crate::recorder::Event;
use crate::recorder::record;

const DAY: u64 = 86_400;

fn length(upstream: &mut Upstream, token: &str, url_path: &str) -> usize {
    upstream.get(token, url_path).expect_status(200).items().len()
}

#[test]
pub fn a_page_has_at_most_100_items_and_of_notifications_50() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for n in 0..110 {
        let opened = json!({ "type": "issue_opened", "repository": "acme/widgets", "actor": "ben", "text": format!("@ada Issue {n}") });
        upstream.event(&opened);
    }
    assert_eq!(
        length(&mut upstream, &ada, "/repos/acme/widgets/issues?state=all&per_page=1000"),
        100
    );
    assert_eq!(length(&mut upstream, &ada, "/notifications?per_page=100"), 50);
    assert_eq!(length(&mut upstream, &ada, "/notifications"), 50);
}

#[test]
pub fn a_custom_property_has_up_to_200_allowed_values() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let values = |count: usize| (0..count).map(|n| format!("value {n}")).collect::<Vec<_>>();
    let property =
        |count| json!({ "value_type": "single_select", "allowed_values": values(count) });
    let made =
        upstream.put(&ada, "/orgs/acme/properties/schema/size", &property(200)).expect_status(200);
    assert_eq!(made.body["allowed_values"].as_array().map(Vec::len), Some(200));
    let refused = upstream.put(&ada, "/orgs/acme/properties/schema/size", &property(201));
    assert!((400..500).contains(&refused.status), "{}", refused.status);
    record(Event::Refused { limit: "allowed values", after: 200 });
}

#[test]
pub fn a_batch_of_property_values_is_for_30_repositories() {
    let mut upstream = Upstream::with(weir::emulator::Options {
        repositories: 60,
        ..weir::emulator::Options::default()
    });
    let ada = upstream.classic("ada");
    upstream
        .put(&ada, "/orgs/acme/properties/schema/size", &json!({ "value_type": "string" }))
        .expect_status(200);
    let world = upstream.world();
    let names: Vec<String> = world["repositories"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
        .iter()
        .filter_map(|repository| {
            repository["full_name"].as_str()?.strip_prefix("acme/").map(str::to_owned)
        })
        .take(31)
        .collect();
    assert_eq!(names.len(), 31, "acme has enough repositories");
    let batch = |names: &[String]| json!({ "repository_names": names, "properties": [{ "property_name": "size", "value": "large" }] });
    upstream.patch(&ada, "/orgs/acme/properties/values", &batch(&names[..30])).expect_status(204);
    upstream.patch(&ada, "/orgs/acme/properties/values", &batch(&names)).expect_status(422);
    record(Event::Refused { limit: "repositories of a batch", after: 30 });
}

#[test]
pub fn a_migration_archive_is_there_for_7_days() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let started = upstream
        .post(&ada, "/user/migrations", &json!({ "repositories": ["acme/widgets"] }))
        .expect_status(201);
    let url_path = format!("/user/migrations/{}", started.body["id"]);
    let archive = format!("{url_path}/archive");
    let mut waited = 0;
    while upstream.get(&ada, &url_path).expect_status(200).body["state"] != "exported" {
        upstream.pass(60);
        waited += 60;
        assert!(waited < DAY, "it is never exported");
    }
    upstream.get(&ada, &archive).expect_status(302);
    upstream.pass(7 * DAY - waited - 60);
    upstream.get(&ada, &archive).expect_status(302);
    upstream.pass(waited + 120);
    let gone = upstream.get(&ada, &archive);
    assert!((400..500).contains(&gone.status), "{}", gone.status);
    // "Migration metadata stays available" (SPECIFICATION, "User migrations").
    assert_eq!(upstream.get(&ada, &url_path).expect_status(200).body["state"], "exported");
}

#[test]
pub fn both_versions_are_served() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for version in ["2022-11-28", "2026-03-10"] {
        for url_path in
            ["/user", PUBLIC, "/orgs/acme/hooks", "/orgs/acme/issue-fields", "/notifications"]
        {
            upstream
                .send(
                    &TestRequest::new("GET", url_path)
                        .by(&ada)
                        .header("x-service-api-version", version),
                )
                .expect_status(200);
        }
    }
}

#[test]
pub fn a_request_without_the_header_gets_a_version() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let with = upstream
        .send(
            &TestRequest::new("GET", "/user")
                .by(&ada)
                .header("x-service-api-version", "2022-11-28"),
        )
        .expect_status(200);
    assert_eq!(upstream.get(&ada, "/user").expect_status(200).body, with.body);
}

#[test]
pub fn a_version_that_is_not_a_date_is_a_bad_request() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let refused = upstream
        .send(&TestRequest::new("GET", "/user").by(&ada).header("x-service-api-version", "newest"));
    assert_eq!(refused.status, 400, "{}", refused.body);
}

#[test]
pub fn the_end_of_a_release_line_ends_no_route() {
    // The world's time is after 2026-04-09, the end of the documented release line.
    let mut upstream = Upstream::new();
    assert!(upstream.now.as_secs() > 1_775_692_800);
    upstream.get(ANONYMOUS, &format!("/api/v3{PUBLIC}")).expect_status(200);
}

#[test]
pub fn a_self_hosted_instance_has_the_prefix_api_v3() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let own = upstream.get(&ada, "/api/v3/user").expect_status(200);
    assert_eq!(own.body["login"], upstream.get(&ada, "/user").expect_status(200).body["login"]);
    upstream
        .post(&ada, "/api/v3/repos/acme/widgets/issues", &json!({ "title": "t" }))
        .expect_status(201);
}

#[test]
pub fn closing_down_routes_match_their_replacements() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let team = team_of(&upstream.world()).clone();
    let (old, new) = (
        format!("/teams/{}", team["id"]),
        format!("/orgs/acme/teams/{}", team["slug"].as_str().unwrap_or_default()),
    );
    for rest in ["", "/members", "/memberships/cleo", "/invitations"] {
        let replaced = upstream.get(&ada, &format!("{new}{rest}")).expect_status(200);
        assert_eq!(
            upstream.get(&ada, &format!("{old}{rest}")).expect_status(200).body,
            replaced.body,
            "{rest}"
        );
    }
    // A change by one path shows on the other.
    upstream.put(&ada, &format!("{old}/memberships/scan-bot"), &Value::Null).expect_status(200);
    upstream.get(&ada, &format!("{new}/memberships/scan-bot")).expect_status(200);
}

#[test]
pub fn the_preview_of_enterprise_team_organizations_answers() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let world = upstream.world();
    let enterprise = world["enterprises"][0]["slug"].as_str().expect("an enterprise").to_owned();
    let team = world["enterprises"][0]["teams"][0]["slug"].as_str().expect("its team").to_owned();
    upstream
        .get(&ada, &format!("/enterprises/{enterprise}/teams/{team}/organizations"))
        .expect_status(200);
}
