//! The route inventory: every family answers, with a credential where the data is not public.
//! Response fields are unknown and not checked.

use serde_json::json;

use crate::document_1::paths::path;
use crate::kit::{ANONYMOUS, Answer, TestRequest, Upstream};
use crate::routes::{METHODS, routes};
use crate::rows::document_1::inventory::{self as rows, Group};

fn send(upstream: &mut Upstream, token: &str, method: &str, url_path: &str) -> Answer {
    let request = TestRequest::new(method, url_path).by(token);
    upstream.send(&if method == "GET" { request } else { request.json(&json!({})) })
}

/// The fault in a response of a known route.
fn fault(method: &str, answer: &Answer) -> Option<String> {
    let is_error = answer.status >= 400;
    if answer.status >= 500 {
        Some(format!("{method} {} {}", answer.status, answer.body))
    } else if answer.status == 401 || (answer.status == 403 && !answer.is_secondary_refusal()) {
        Some(format!(
            "{method} refuses an owner with every scope: {} {}",
            answer.status, answer.body
        ))
    } else if is_error && !answer.body["message"].is_string() {
        Some(format!("{method} {} without a message: {}", answer.status, answer.body))
    } else if !answer.headers.contains_key("x-accepted-service-permissions") {
        Some(format!("{method} {} without the permission header", answer.status))
    } else {
        None
    }
}

/// Requests every route of the group with and without a credential.
fn check(group: Group) {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    let mut faults = Vec::new();
    for route in routes(group.routes) {
        let url_path = path(&mut upstream, route.template);
        let methods: &[&str] = if route.method == "ANY" { &METHODS } else { &[route.method] };
        let mut known = 0;
        for method in methods {
            let anonymous = send(&mut upstream, ANONYMOUS, method, &url_path);
            let answer = send(&mut upstream, &ada, method, &url_path);
            if !answer.is_of_a_route() {
                continue;
            }
            known += 1;
            faults.extend(fault(method, &answer).map(|fault| format!("{url_path}: {fault}")));
            if *method != "GET" && ![401, 403, 404].contains(&anonymous.status) {
                faults.push(format!(
                    "{url_path}: {method} without a credential: {} {}",
                    anonymous.status, anonymous.body
                ));
            }
            // A write must not affect the next route.
            upstream.post(ANONYMOUS, "/_emulator/reset", &json!({})).expect_status(200);
        }
        if known == 0 {
            faults.push(format!("{} {}: no such route", route.method, route.template));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
pub fn actions_routes_answer() {
    check(rows::ACTIONS);
}

#[test]
pub fn activity_routes_answer() {
    check(rows::ACTIVITY);
}

#[test]
pub fn billing_routes_answer() {
    check(rows::BILLING);
}

#[test]
pub fn branches_routes_answer() {
    check(rows::BRANCHES);
}

#[test]
pub fn campaigns_routes_answer() {
    check(rows::CAMPAIGNS);
}

#[test]
pub fn checks_routes_answer() {
    check(rows::CHECKS);
}

#[test]
pub fn code_scanning_routes_answer() {
    check(rows::CODE_SCANNING);
}

#[test]
pub fn code_security_routes_answer() {
    check(rows::CODE_SECURITY);
}

#[test]
pub fn codespaces_routes_answer() {
    check(rows::CODESPACES);
}

#[test]
pub fn collaborators_routes_answer() {
    check(rows::COLLABORATORS);
}

#[test]
pub fn commits_routes_answer() {
    check(rows::COMMITS);
}

#[test]
pub fn assistant_routes_answer() {
    check(rows::ASSISTANT);
}

#[test]
pub fn dependabot_routes_answer() {
    check(rows::DEPENDABOT);
}

#[test]
pub fn dependency_graph_routes_answer() {
    check(rows::DEPENDENCY_GRAPH);
}

#[test]
pub fn deploy_keys_routes_answer() {
    check(rows::DEPLOY_KEYS);
}

#[test]
pub fn deployments_routes_answer() {
    check(rows::DEPLOYMENTS);
}

#[test]
pub fn enterprise_teams_routes_answer() {
    check(rows::ENTERPRISE_TEAMS);
}

#[test]
pub fn git_routes_answer() {
    check(rows::GIT);
}

#[test]
pub fn interactions_routes_answer() {
    check(rows::INTERACTIONS);
}

#[test]
pub fn issues_routes_answer() {
    check(rows::ISSUES);
}

#[test]
pub fn metrics_routes_answer() {
    check(rows::METRICS);
}

#[test]
pub fn a_route_that_no_group_lists_is_not_found() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for url_path in
        ["/orgs/acme/no-such-thing", "/no-such-thing", "/repos/acme/widgets/no-such-thing/1"]
    {
        let answer = upstream.get(&ada, url_path).expect_status(404);
        assert!(!answer.is_of_a_route(), "{url_path}");
        assert!(!answer.message().is_empty());
    }
}
