//! The permission matrix for app tokens: each route without permissions, with exactly its own, and
//! at the wrong level.
//!
//! The document names permissions for people. Their names on the wire come from the permission
//! header. All routes of a category must name the same one at the level of the row, and no two
//! categories may share one.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::document_1::paths::{ORGANIZATION, path};
use crate::kit::{Answer, TestRequest, Upstream};
use crate::routes::{Mark, Route, routes};
use crate::rows::document_1::matrix::{
    ACTIONS_READ, ACTIONS_WRITE, ADMINISTRATION_READ, ADMINISTRATION_WRITE, ASSISTANT_READ,
    ASSISTANT_WRITE, MEMBERS_READ, MEMBERS_WRITE, REPOSITORY_ADMINISTRATION_WRITE, RUNNERS_READ,
    RUNNERS_WRITE,
};

/// Makes repositories visible to a token; it opens no route of the matrix.
const METADATA_READ: (&str, &str) = ("metadata", "read");

/// The object of a category, and a word of its permission's name.
#[derive(Clone, Copy)]
struct Category {
    word: &'static str,
    without: &'static str,
}

const ADMINISTRATION: Category = Category { word: "organization_administration", without: "" };
const ASSISTANT: Category = Category { word: "assistant", without: "" };
const MEMBERS: Category = Category { word: "members", without: "" };
const RUNNERS: Category = Category { word: "runners", without: "" };
const ACTIONS: Category = Category { word: "actions", without: "" };
const REPOSITORY_ADMINISTRATION: Category =
    Category { word: "administration", without: "organization" };

fn send(upstream: &mut Upstream, token: &str, route: Route) -> Answer {
    let url_path = path(upstream, route.template);
    let request = TestRequest::new(route.method, &url_path).by(token);
    upstream.send(&if route.method == "GET" { request } else { request.json(&body_of(route)) })
}

/// Empty, because missing fields are found after the permission check. Only a fork must name its
/// target: an installation has no namespace.
fn body_of(route: Route) -> Value {
    if route.template.ends_with("/forks") {
        json!({ "organization": ORGANIZATION, "name": "a-fork" })
    } else {
        json!({})
    }
}

/// `name=level` pairs of the permission header.
fn accepted(answer: &Answer) -> BTreeSet<(String, String)> {
    let pairs = answer.header("x-accepted-service-permissions").split([';', ',']);
    pairs
        .filter_map(|pair| pair.trim().split_once('='))
        .map(|(name, level)| (name.to_owned(), level.to_owned()))
        .collect()
}

/// The faults of the routes of one category and level.
fn check(category: Category, level: &str, text: &'static str) {
    let mut faults = Vec::new();
    for route in routes(text) {
        let found = match route.mark {
            Mark::UserOnly => user_only(category, level, route),
            Mark::Plain | Mark::Several => with_and_without(category, level, route),
        };
        faults.extend(
            found.err().map(|fault| format!("{} {}: {fault}", route.method, route.template)),
        );
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

fn with_and_without(category: Category, level: &str, route: Route) -> Result<(), String> {
    let mut upstream = Upstream::new();
    let nothing = upstream.installation_with(ORGANIZATION, &[METADATA_READ]);
    let refused = send(&mut upstream, &nothing, route);
    if refused.status != 403 {
        return Err(format!("without the permission {} {}", refused.status, refused.body));
    }
    let accepted = accepted(&refused);
    let own = own(category, level, route, &accepted)?;
    // [M]: "need more than one permission, or accept a different permission". All permissions of
    // the header together must suffice.
    let granted: Vec<(&str, &str)> = match route.mark {
        Mark::Several => accepted
            .iter()
            .map(|(name, level)| (name.as_str(), level.as_str()))
            .chain([METADATA_READ])
            .collect(),
        _ => vec![(own.as_str(), level), METADATA_READ],
    };
    if level == "write" && route.mark == Mark::Plain {
        let reader = upstream.installation_with(ORGANIZATION, &[(&own, "read"), METADATA_READ]);
        let answer = send(&mut upstream, &reader, route);
        if answer.status != 403 {
            return Err(format!("with {own}=read {} {}", answer.status, answer.body));
        }
    }
    let token = upstream.installation_with(ORGANIZATION, &granted);
    let answer = send(&mut upstream, &token, route);
    if [401, 403].contains(&answer.status) || !answer.is_of_a_route() {
        return Err(format!("with {granted:?} {} {}", answer.status, answer.body));
    }
    Ok(())
}

/// The name of the category's permission in the header.
fn own(
    category: Category,
    level: &str,
    route: Route,
    accepted: &BTreeSet<(String, String)>,
) -> Result<String, String> {
    let is_own = |name: &str| {
        name.contains(category.word)
            && (category.without.is_empty() || !name.contains(category.without))
    };
    let own = accepted.iter().find(|(name, named)| is_own(name) && named == level);
    let Some((name, _)) = own else {
        return Err(format!("the header names {accepted:?}, not {}={level}", category.word));
    };
    if route.mark == Mark::Plain && accepted.len() > 1 {
        return Err(format!("the header names {accepted:?}, but one permission is enough"));
    }
    Ok(name.clone())
}

fn user_only(category: Category, level: &str, route: Route) -> Result<(), String> {
    let mut upstream = Upstream::new();
    let everything = upstream.installation(ORGANIZATION);
    let refused = send(&mut upstream, &everything, route);
    if refused.status != 403 {
        return Err(format!(
            "an installation with every permission got {} {}",
            refused.status, refused.body
        ));
    }
    let own = own(category, level, route, &accepted(&refused))?;
    let is_enough =
        |given: Option<&&str>| given.is_some_and(|given| level == "read" || *given != "read");
    let mut views = upstream.emulator.tokens().into_iter();
    let view =
        views.find(|view| view.kind == "app-user" && is_enough(view.permissions.get(own.as_str())));
    let Some(view) = view else {
        return Err(format!("the world has no app user token with {own}={level}"));
    };
    // The matrix does not decide about changes to other users.
    let url_path =
        path(&mut upstream, route.template).replace("cleo", &view.user.unwrap_or_default());
    let own_request = TestRequest::new(route.method, &url_path).by(&view.token);
    let answer = upstream.send(&if route.method == "GET" {
        own_request
    } else {
        own_request.json(&json!({}))
    });
    if [401, 403].contains(&answer.status) || !answer.is_of_a_route() {
        return Err(format!("an app user token got {} {}", answer.status, answer.body));
    }
    let other = upstream.token_where(|view| {
        view.kind == "app-user" && !view.permissions.contains_key(own.as_str())
    });
    let Some(other) = other else { return Ok(()) };
    let answer = send(&mut upstream, &other, route);
    if answer.status == 403 {
        Ok(())
    } else {
        Err(format!("an app user token without {own} got {}", answer.status))
    }
}

#[test]
pub fn administration_write_guards_its_routes() {
    check(ADMINISTRATION, "write", ADMINISTRATION_WRITE);
}

#[test]
pub fn administration_read_guards_its_routes() {
    check(ADMINISTRATION, "read", ADMINISTRATION_READ);
}

#[test]
pub fn assistant_write_guards_its_routes() {
    check(ASSISTANT, "write", ASSISTANT_WRITE);
}

#[test]
pub fn assistant_read_guards_its_routes() {
    check(ASSISTANT, "read", ASSISTANT_READ);
}

#[test]
pub fn members_write_guards_its_routes() {
    check(MEMBERS, "write", MEMBERS_WRITE);
}

#[test]
pub fn members_read_guards_its_routes() {
    check(MEMBERS, "read", MEMBERS_READ);
}

#[test]
pub fn runners_write_guards_its_routes() {
    check(RUNNERS, "write", RUNNERS_WRITE);
}

#[test]
pub fn runners_read_guards_its_routes() {
    check(RUNNERS, "read", RUNNERS_READ);
}

#[test]
pub fn actions_write_guards_its_routes() {
    check(ACTIONS, "write", ACTIONS_WRITE);
}

#[test]
pub fn actions_read_guards_its_routes() {
    check(ACTIONS, "read", ACTIONS_READ);
}

#[test]
pub fn repository_administration_write_guards_its_routes() {
    check(REPOSITORY_ADMINISTRATION, "write", REPOSITORY_ADMINISTRATION_WRITE);
}
