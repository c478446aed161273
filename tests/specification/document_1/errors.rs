//! Errors: every status of the table, and the rules.

use serde_json::json;

use crate::document_1::paths::{PUBLIC, organization_of};
use crate::kit::{ANONYMOUS, Answer, TestRequest, Upstream};

const ISSUES: &str = "/repos/acme/widgets/issues";

#[test]
pub fn a_read_is_ok() {
    let mut upstream = Upstream::new();
    upstream.get(ANONYMOUS, PUBLIC).expect_status(200);
}

#[test]
pub fn a_creation_is_created() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let made = upstream.post(&ada, ISSUES, &json!({ "title": "t" })).expect_status(201);
    upstream.get(&ada, &format!("{ISSUES}/{}", made.body["number"])).expect_status(200);
}

#[test]
pub fn a_background_task_is_accepted() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream.set_limit("notifications.background-above", 0);
    let accepted = upstream.put(&ada, "/notifications", &json!({})).expect_status(202);
    assert!(!accepted.message().is_empty());
    upstream.pass(3_600);
    let unread = upstream.get(&ada, "/notifications").expect_status(200);
    assert!(unread.items().is_empty(), "the work was done in the background");
}

#[test]
pub fn deleting_has_no_content() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let hook = upstream.post(
        &ada,
        "/orgs/acme/hooks",
        &json!({ "name": "web", "config": { "url": "http://receiver.test/" } }),
    );
    let gone = upstream
        .delete(&ada, &format!("/orgs/acme/hooks/{}", hook.expect_status(201).body["id"]))
        .expect_status(204);
    assert!(gone.bytes.is_empty());
}

#[test]
pub fn marking_as_read_resets_content() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let thread = upstream.get(&ada, "/notifications").expect_status(200).items()[0]["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let read = upstream
        .send(&TestRequest::new("PATCH", &format!("/notifications/threads/{thread}")).by(&ada))
        .expect_status(205);
    assert!(read.bytes.is_empty());
}

#[test]
pub fn a_download_redirects() {
    let mut upstream = Upstream::new();
    for user in ["ada", "ben", "dan"] {
        let token = upstream.classic(user);
        let migrations = upstream.get(&token, "/user/migrations").expect_status(200);
        for exported in
            migrations.items().iter().filter(|migration| migration["state"] == "exported")
        {
            // The archive of an old migration is gone.
            let found =
                upstream.get(&token, &format!("/user/migrations/{}/archive", exported["id"]));
            if found.status == 302 {
                assert!(!found.header("location").is_empty());
                return;
            }
        }
    }
    panic!("the world has no migration whose archive can be downloaded");
}

#[test]
pub fn a_304_does_not_consume_the_primary_limit() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let first = upstream.get(&ada, "/notifications").expect_status(200);
    let conditional = TestRequest::new("GET", "/notifications")
        .by(&ada)
        .header("if-modified-since", first.header("last-modified"));
    for _ in 0..5 {
        assert_eq!(upstream.send(&conditional).expect_status(304).remaining(), first.remaining());
    }
    assert_eq!(upstream.get(&ada, "/user").expect_status(200).remaining(), first.remaining() - 1);
}

#[test]
pub fn a_malformed_body_is_a_bad_request() {
    let mut upstream = Upstream::new();
    let (ada, jwt) = (upstream.classic("ada"), upstream.jwt());
    upstream.send(&TestRequest::new("POST", ISSUES).by(&ada).text("{\"title\"")).expect_status(400);
    upstream.get(&jwt, "/app/hook/deliveries?cursor=%20%00").expect_status(400);
}

#[test]
pub fn a_missing_credential_requires_authentication() {
    let mut upstream = Upstream::new();
    for token in [ANONYMOUS, "emu_nobody"] {
        let refused = upstream.get(token, "/user").expect_status(401);
        assert!(!refused.message().is_empty());
    }
}

#[test]
pub fn a_missing_permission_is_forbidden() {
    let mut upstream = Upstream::new();
    let installation = upstream.installation("acme");
    upstream.get(&installation, "/notifications").expect_status(403);
}

#[test]
pub fn both_kinds_of_rate_limit_are_forbidden() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream.set_limit("points.rest", 1);
    upstream.get(&ada, "/user").expect_status(200);
    let secondary = upstream.get(&ada, "/user").expect_status(403);
    assert!(secondary.is_secondary_refusal(), "{}", secondary.body);
    upstream.set_limit("points.rest", 900);
    upstream.pass(3_600);
    upstream.set_limit("core", 0);
    assert!(upstream.get(&ada, "/user").expect_status(403).is_primary_refusal());
}

/// The paths of a synchronized team and the token of its organization's owner.
fn synchronised(upstream: &mut Upstream) -> (String, String, String) {
    let world = upstream.world();
    let organizations = world["organizations"].as_array().map(Vec::as_slice).unwrap_or_default();
    for organization in organizations {
        let teams = organization["teams"].as_array().map(Vec::as_slice).unwrap_or_default();
        if let Some(team) = teams.iter().find(|team| team["synchronised"] == true) {
            let owner = organization["owners"][0].as_str().unwrap_or_default();
            let path = format!(
                "/orgs/{}/teams/{}",
                organization["login"].as_str().unwrap_or_default(),
                team["slug"].as_str().unwrap_or_default()
            );
            return (upstream.classic(owner), path, format!("/teams/{}", team["id"]));
        }
    }
    panic!("the world has no synchronised team");
}

#[test]
pub fn team_synchronization_blocks_a_change() {
    let mut upstream = Upstream::new();
    let (owner, by_slug, by_id) = synchronised(&mut upstream);
    upstream
        .put(&owner, &format!("{by_slug}/memberships/dan"), &json!({ "role": "member" }))
        .expect_status(403);
    upstream.delete(&owner, &format!("{by_slug}/memberships/dan")).expect_status(403);
    // "Also some endpoints answer 404 when a team is synchronized with an identity provider."
    upstream.put_empty(&owner, &format!("{by_id}/members/dan")).expect_status(404);
    upstream.delete(&owner, &format!("{by_id}/members/dan")).expect_status(404);
}

#[test]
pub fn a_missing_resource_is_not_found() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for url_path in [
        "/repos/acme/no-such-repository",
        "/orgs/no-such-organization/hooks",
        "/orgs/acme/hooks/999999",
        "/orgs/acme/teams/no-such-team/members",
        // "Also used when a membership or assignment does not exist."
        "/orgs/acme/teams/platform/memberships/dan",
        "/orgs/acme/hooks/nonsense",
    ] {
        assert!(
            !upstream.get(&ada, url_path).expect_status(404).message().is_empty(),
            "{url_path}"
        );
    }
}

#[test]
pub fn an_invalid_field_fails_validation() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream.post(&ada, ISSUES, &json!({ "title": ["t"] })).assert_names_field("title");
    upstream.post(&ada, ISSUES, &json!({})).assert_names_field("title");
    upstream
        .post(
            &ada,
            "/orgs/acme/hooks",
            &json!({ "name": "email", "config": { "url": "http://receiver.test/" } }),
        )
        .assert_names_field("name");
}

#[test]
pub fn an_enterprise_team_is_not_modified_at_the_organization_level() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let world = upstream.world();
    let slug = world["enterprises"][0]["teams"][0]["slug"]
        .as_str()
        .expect("an enterprise with a team")
        .to_owned();
    assert!(slug.starts_with("ent:"), "{slug}: an enterprise team's slug has the prefix ent:");
    let assign = format!(
        "/enterprises/{}/teams/{slug}/organizations/acme",
        world["enterprises"][0]["slug"].as_str().unwrap_or_default()
    );
    assert!([200, 201].contains(&upstream.put(&ada, &assign, &json!({})).status));
    upstream
        .put(
            &ada,
            &format!("/orgs/acme/teams/{slug}/memberships/cleo"),
            &json!({ "role": "member" }),
        )
        .expect_status(422);
}

#[test]
pub fn a_rate_limit_can_be_429() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream.set_limit("refusal.status", 429);
    upstream.set_limit("points.rest", 1);
    upstream.get(&ada, "/user").expect_status(200);
    assert!(upstream.get(&ada, "/user").expect_status(429).is_secondary_refusal());
    upstream.pass(3_600);
    upstream.set_limit("core", 0);
    assert!(upstream.get(&ada, "/user").expect_status(429).is_primary_refusal());
}

#[test]
pub fn a_primary_refusal_has_nothing_remaining() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream.set_limit("core", 3);
    for _ in 0..3 {
        upstream.get(&ada, "/user").expect_status(200);
    }
    let refused = upstream.get(&ada, "/user").expect_status(403);
    assert_eq!(refused.remaining(), 0);
    assert!(!refused.message().contains("secondary"));
    assert!(refused.number("x-ratelimit-reset") > upstream.now.as_secs());
}

#[test]
pub fn a_secondary_refusal_names_the_secondary_limit() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    upstream.set_limit("points.rest", 3);
    upstream.assert_refuses_after("points.rest", 3, |upstream, _| upstream.get(&ada, "/user"));
    let refused = upstream.get(&ada, "/user");
    assert!(refused.message().to_lowercase().contains("secondary") && refused.remaining() > 0);
}

#[test]
pub fn error_bodies_carry_a_message() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let large = "x".repeat(11 * 1024 * 1024);
    let requests = [
        TestRequest::new("POST", ISSUES).by(&ada).text("{"),
        TestRequest::new("GET", "/user"),
        TestRequest::new("GET", "/notifications").by(&upstream.installation("acme")),
        TestRequest::new("GET", "/nothing").by(&ada),
        TestRequest::new("POST", ISSUES).by(&ada).json(&json!({})),
        TestRequest::new("POST", ISSUES).by(&ada).text(&large),
        TestRequest::new("PATCH", "/user/migrations").by(&ada),
        TestRequest::new("GET", "/orgs/acme/hooks/%ff").by(&ada),
    ];
    for request in requests {
        let answer: Answer = upstream.send(&request);
        assert!((400..500).contains(&answer.status), "{}", answer.status);
        assert!(!answer.message().is_empty());
    }
}

#[test]
pub fn each_endpoint_answers_with_the_statuses_that_it_lists() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let organization = organization_of(&upstream.world())["id"].to_string();
    // "status is 200, not 201" (SPECIFICATION, "Issue fields").
    upstream
        .post(&ada, "/orgs/acme/issue-fields", &json!({ "name": "Size", "data_type": "text" }))
        .expect_status(200);
    upstream
        .post(
            &ada,
            "/orgs/acme/hooks",
            &json!({ "name": "web", "config": { "url": "http://receiver.test/" } }),
        )
        .expect_status(201);
    upstream
        .get(&ada, &format!("/organizations/{organization}/team/401/members"))
        .expect_status(200);
}
