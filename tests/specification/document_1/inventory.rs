//! The route inventory: every family answers, with a credential where the data is not public.
//! Response fields are unknown and not checked.

use serde_json::json;

use crate::document_1::paths::path;
use crate::kit::{Answer, Ask, NOBODY, Upstream};
use crate::routes::{METHODS, routes};
use crate::rows::document_1::inventory::{self as rows, Group};

fn ask(upstream: &mut Upstream, token: &str, method: &str, place: &str) -> Answer {
    let ask = Ask::new(method, place).by(token);
    upstream.send(&if method == "GET" { ask } else { ask.json(&json!({})) })
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
        let place = path(&mut upstream, route.template);
        let methods: &[&str] = if route.method == "ANY" { &METHODS } else { &[route.method] };
        let mut known = 0;
        for method in methods {
            let anonymous = ask(&mut upstream, NOBODY, method, &place);
            let answer = ask(&mut upstream, &ada, method, &place);
            if !answer.is_of_a_route() {
                continue;
            }
            known += 1;
            faults.extend(fault(method, &answer).map(|fault| format!("{place}: {fault}")));
            if *method != "GET" && ![401, 403, 404].contains(&anonymous.status) {
                faults.push(format!(
                    "{place}: {method} without a credential: {} {}",
                    anonymous.status, anonymous.body
                ));
            }
            // A write must not affect the next route.
            upstream.post(NOBODY, "/_emulator/reset", &json!({})).expect_status(200);
        }
        if known == 0 {
            faults.push(format!("{} {}: no such route", route.method, route.template));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
pub fn actions() {
    check(rows::ACTIONS);
}

#[test]
pub fn activity() {
    check(rows::ACTIVITY);
}

#[test]
pub fn billing() {
    check(rows::BILLING);
}

#[test]
pub fn branches() {
    check(rows::BRANCHES);
}

#[test]
pub fn campaigns() {
    check(rows::CAMPAIGNS);
}

#[test]
pub fn checks() {
    check(rows::CHECKS);
}

#[test]
pub fn code_scanning() {
    check(rows::CODE_SCANNING);
}

#[test]
pub fn code_security() {
    check(rows::CODE_SECURITY);
}

#[test]
pub fn codespaces() {
    check(rows::CODESPACES);
}

#[test]
pub fn collaborators() {
    check(rows::COLLABORATORS);
}

#[test]
pub fn commits() {
    check(rows::COMMITS);
}

#[test]
pub fn assistant() {
    check(rows::ASSISTANT);
}

#[test]
pub fn dependabot() {
    check(rows::DEPENDABOT);
}

#[test]
pub fn dependency_graph() {
    check(rows::DEPENDENCY_GRAPH);
}

#[test]
pub fn deploy_keys() {
    check(rows::DEPLOY_KEYS);
}

#[test]
pub fn deployments() {
    check(rows::DEPLOYMENTS);
}

#[test]
pub fn enterprise_teams() {
    check(rows::ENTERPRISE_TEAMS);
}

#[test]
pub fn git() {
    check(rows::GIT);
}

#[test]
pub fn interactions() {
    check(rows::INTERACTIONS);
}

#[test]
pub fn issues() {
    check(rows::ISSUES);
}

#[test]
pub fn metrics() {
    check(rows::METRICS);
}

#[test]
pub fn a_route_that_no_group_lists_is_not_found() {
    let mut upstream = Upstream::new();
    let ada = upstream.classic("ada");
    for place in
        ["/orgs/acme/no-such-thing", "/no-such-thing", "/repos/acme/widgets/no-such-thing/1"]
    {
        let answer = upstream.get(&ada, place).expect_status(404);
        assert!(!answer.is_of_a_route(), "{place}");
        assert!(!answer.message().is_empty());
    }
}
