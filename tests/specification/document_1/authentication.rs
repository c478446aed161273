//! The permission header, and the facts beside the tables.

use std::collections::BTreeMap;

use serde_json::json;

use crate::document_1::paths::{ORGANIZATION, PUBLIC, path, team_of};
use crate::kit::{ANONYMOUS, Answer, TestRequest, Upstream};
use crate::routes::{METHODS, routes};
use crate::rows::document_1::inventory::GROUPS;

const HEADER: &str = "x-accepted-service-permissions";

fn assert_states(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{}", answer.body);
    assert!(
        answer.headers.contains_key(HEADER),
        "{status} from {} without the header",
        answer.endpoint
    );
    answer.header(HEADER);
}

#[test]
pub fn every_rest_answer_states_the_permissions() {
    let mut upstream = Upstream::new();
    let (ada, none) = (upstream.classic("ada"), upstream.classic_without_scopes("ada"));
    let issues = format!("{PUBLIC}/issues");
    let first = upstream.get(&ada, "/notifications");
    assert_states(&first, 200);
    let conditional = TestRequest::new("GET", "/notifications")
        .by(&ada)
        .header("if-modified-since", first.header("last-modified"));
    assert_states(&upstream.send(&conditional), 304);
    assert_states(&upstream.post(&ada, &issues, &json!({ "title": "t" })), 201);
    let hook = upstream.post(
        &ada,
        "/orgs/acme/hooks",
        &json!({ "name": "web", "config": { "url": "http://receiver.test/" } }),
    );
    assert_states(&hook, 201);
    assert_states(&upstream.delete(&ada, &format!("/orgs/acme/hooks/{}", hook.body["id"])), 204);
    assert_states(&upstream.send(&TestRequest::new("POST", &issues).by(&ada).text("{")), 400);
    assert_states(&upstream.get(ANONYMOUS, "/user"), 401);
    assert_states(&upstream.get("emu_nobody", "/user"), 401);
    assert_states(&upstream.get(&none, "/notifications"), 403);
    assert_states(&upstream.get(&ada, &format!("{issues}/999999")), 404);
    assert_states(&upstream.get(&ada, "/no-such-route"), 404);
    assert_states(&upstream.post(&ada, &issues, &json!({ "title": 1 })), 422);
    assert_states(&upstream.get(&ada, "/rate_limit"), 200);
    upstream.set_limit("core", 0);
    let limited = upstream.get(&ada, "/user");
    assert!(limited.is_primary_refusal(), "{}", limited.status);
    assert!(
        limited.headers.contains_key(HEADER),
        "a refusal for the rate limit without the header"
    );
}

#[test]
pub fn the_header_states_the_permissions_of_the_endpoint() {
    let mut upstream = Upstream::new();
    let cases = [
        ("GET", "/orgs/acme/teams/platform/members", "members=read"),
        ("PUT", "/orgs/acme/teams/platform/memberships/cleo", "members=write"),
        ("GET", "/orgs/acme/hooks", "organization_hooks=read"),
        ("POST", "/orgs/acme/hooks", "organization_hooks=write"),
        ("GET", "/repos/acme/widgets/actions/runs", "actions=read"),
    ];
    for (method, url_path, stated) in cases {
        for token in [upstream.classic("ada"), upstream.installation(ORGANIZATION)] {
            let answer =
                upstream.send(&TestRequest::new(method, url_path).by(&token).json(&json!({})));
            assert!(
                answer.header(HEADER).contains(stated),
                "{method} {url_path} states {:?}, not {stated}",
                answer.header(HEADER)
            );
        }
    }
}

#[test]
pub fn public_data_needs_no_permission() {
    let mut upstream = Upstream::new();
    let none = upstream.fine_grained_without_permissions();
    for url_path in [PUBLIC, "/users/ben", "/rate_limit"] {
        upstream.get(&none, url_path).expect_status(200);
    }
}

#[test]
pub fn endpoints_for_classic_tokens_reject_every_other_kind() {
    let mut upstream = Upstream::new();
    let world = upstream.world();
    let enterprise = world["enterprises"][0]["slug"].as_str().unwrap_or("none").to_owned();
    let team = world["enterprises"][0]["teams"][0]["slug"].as_str().unwrap_or("none").to_owned();
    let paths = [
        "/notifications".to_owned(),
        "/user/migrations".to_owned(),
        format!("/enterprises/{enterprise}/teams/{team}/organizations"),
    ];
    for url_path in paths {
        let ada = upstream.classic("ada");
        upstream.get(&ada, &url_path).expect_status(200);
        let others = [
            upstream.token("fine-grained", "ada"),
            upstream.token("app-user", "ben"),
            upstream.installation(ORGANIZATION),
        ];
        for other in others {
            upstream.get(&other, &url_path).expect_status(403);
        }
    }
}

#[test]
pub fn owners_and_maintainers_may_do_more_than_members() {
    let mut upstream = Upstream::new();
    let team = team_of(&upstream.world())["slug"].as_str().unwrap_or_default().to_owned();
    let url_path = format!("/orgs/acme/teams/{team}/memberships/scan-bot");
    let [owner, maintainer, member] = ["ada", "ben", "cleo"].map(|user| upstream.classic(user));
    upstream.put(&member, &url_path, &json!({})).expect_status(403);
    upstream.put(&maintainer, &url_path, &json!({})).expect_status(200);
    upstream.put(&owner, &url_path, &json!({})).expect_status(200);
    // Hooks need an owner, whatever the scopes.
    upstream.get(&owner, "/orgs/acme/hooks").expect_status(200);
    for other in [maintainer, member] {
        let refused = upstream.get(&other, "/orgs/acme/hooks");
        assert!([403, 404].contains(&refused.status), "{}", refused.status);
    }
}

#[test]
pub fn the_world_has_a_token_of_every_kind() {
    let mut upstream = Upstream::new();
    for kind in
        ["classic", "fine-grained", "app-user", "installation", "workflow", "oauth", "basic"]
    {
        let token = upstream
            .token_where(|view| view.kind == kind)
            .unwrap_or_else(|| panic!("no {kind} token"));
        upstream.get(&token, PUBLIC).expect_status(200);
    }
    upstream.installation_with(ORGANIZATION, &[("members", "read")]);
}

#[test]
pub fn every_permission_that_the_header_states_can_be_granted() {
    let mut upstream = Upstream::new();
    upstream.set_limit("core", 1_000_000);
    let mut stated = BTreeMap::new();
    for route in GROUPS.iter().flat_map(|(group, _)| routes(group.routes)) {
        let url_path = path(&mut upstream, route.template);
        let methods = if route.method == "ANY" { METHODS.as_slice() } else { &[route.method][..] };
        for method in methods {
            // Without a credential nothing changes, but the header is still there.
            let answer = upstream.send(&TestRequest::new(method, &url_path));
            let pairs = answer
                .header(HEADER)
                .split([';', ','])
                .filter_map(|pair| pair.trim().split_once('='));
            for (name, level) in pairs.filter(|_| answer.is_of_a_route()) {
                let highest = stated.entry(name.to_owned()).or_insert_with(|| level.to_owned());
                if level != "read" {
                    level.clone_into(highest);
                }
            }
        }
    }
    // An installation on an organization gets no enterprise permissions.
    stated.retain(|name, _| {
        name != "allows_permissionless_access" && !name.starts_with("enterprise_")
    });
    assert!(stated.len() > 10, "{stated:?}");
    let url_path =
        format!("/app/installations/{}/access_tokens", upstream.installation_id(ORGANIZATION));
    let jwt = upstream.jwt();
    upstream.post(&jwt, &url_path, &json!({ "permissions": stated })).expect_status(201);
}
