//! Tests collaborators, invitations, assignees, contributors, stars and watches of a repository.

use serde_json::{Value, json};

use crate::emulator::tests::*;

const CLEO: &str = "emu_classic_cleo_all_scopes";
const WIDGETS: &str = "/repos/acme/widgets";

fn logins(answer: &Answer) -> Vec<String> {
    answer.items().iter().filter_map(|user| user["login"].as_str().map(str::to_owned)).collect()
}

#[test]
fn collaborators_are_users_with_direct_access() {
    let mut upstream = Upstream::new();
    let listed = upstream.get(ADA, &format!("{WIDGETS}/collaborators")).assert_status(200);
    assert_eq!(logins(&listed)[..2], ["ada", "ben"]);
    assert_eq!(
        (&listed.items()[0]["role_name"], &listed.items()[1]["permissions"]["admin"]),
        (&json!("admin"), &json!(false))
    );
    assert_eq!(
        upstream.get(ADA, &format!("{WIDGETS}/collaborators?affiliation=outside")).items().len(),
        0
    );
    upstream
        .get(ADA, &format!("{WIDGETS}/collaborators?affiliation=none"))
        .assert_names_field("affiliation");
    upstream.get(ADA, &format!("{WIDGETS}/collaborators/ben")).assert_status(204);
    for nobody in ["dan", "nobody"] {
        upstream.get(ADA, &format!("{WIDGETS}/collaborators/{nobody}")).assert_status(404);
    }
    assert_eq!(
        upstream
            .get(ADA, &format!("{WIDGETS}/collaborators/ben/permission"))
            .assert_status(200)
            .body["permission"],
        "write"
    );
    assert_eq!(
        upstream
            .get(ADA, &format!("{WIDGETS}/collaborators/dan/permission"))
            .assert_status(200)
            .body["permission"],
        "none"
    );
    upstream.get(NOBODY, &format!("{WIDGETS}/collaborators")).assert_status(401);
    upstream.get(DAN, &format!("{WIDGETS}/collaborators")).assert_status(403);
}

#[test]
fn an_invited_user_becomes_a_collaborator_on_acceptance() {
    let mut upstream = Upstream::new();
    let gadgets = "/repos/acme/gadgets";
    upstream.put(ADA, &format!("{gadgets}/collaborators/ben"), &Value::Null).assert_status(204);
    upstream.put(BEN, &format!("{gadgets}/collaborators/dan"), &Value::Null).assert_status(403);
    upstream.put(ADA, &format!("{gadgets}/collaborators/nobody"), &Value::Null).assert_status(404);
    upstream
        .put(ADA, &format!("{gadgets}/collaborators/dan"), &json!({ "permission": "king" }))
        .assert_names_field("permission");
    let invited = upstream
        .put(ADA, &format!("{gadgets}/collaborators/dan"), &json!({ "permission": "push" }))
        .assert_status(201);
    let again = upstream
        .put(ADA, &format!("{gadgets}/collaborators/dan"), &json!({ "permission": "pull" }))
        .assert_status(201);
    assert_eq!(
        (&again.body["id"], &again.body["permissions"], &again.body["invitee"]["login"]),
        (&invited.body["id"], &json!("read"), &json!("dan"))
    );
    assert_eq!(
        upstream.get(ADA, &format!("{gadgets}/invitations")).assert_status(200).items().len(),
        1
    );
    upstream.get(DAN, gadgets).assert_status(404);
    let mine = upstream.get(DAN, "/user/repository_invitations").assert_status(200);
    let path = format!("/user/repository_invitations/{}", mine.items()[0]["id"]);
    upstream.patch(BEN, &path, &Value::Null).assert_status(404);
    upstream.patch(DAN, &path, &Value::Null).assert_status(204);
    upstream.patch(DAN, &path, &Value::Null).assert_status(404);
    upstream.get(DAN, gadgets).assert_status(200);
    upstream.get(ADA, &format!("{gadgets}/collaborators/dan")).assert_status(204);
    upstream.delete(ADA, &format!("{gadgets}/collaborators/dan")).assert_status(204);
    upstream.get(DAN, gadgets).assert_status(404);
}

#[test]
fn an_invitation_can_be_changed_withdrawn_and_declined() {
    let mut upstream = Upstream::new();
    let invite = |upstream: &mut Upstream| {
        upstream
            .put(ADA, "/repos/acme/gadgets/collaborators/dan", &Value::Null)
            .assert_status(201)
            .body["id"]
            .clone()
    };
    let id = invite(&mut upstream);
    let path = format!("/repos/acme/gadgets/invitations/{id}");
    assert_eq!(
        upstream.patch(ADA, &path, &json!({ "permissions": "admin" })).assert_status(200).body["permissions"],
        "admin"
    );
    upstream.patch(ADA, &path, &json!({ "permissions": 7 })).assert_names_field("permissions");
    upstream.delete(ADA, &path).assert_status(204);
    upstream.delete(ADA, &path).assert_status(404);
    let id = invite(&mut upstream);
    upstream.delete(DAN, &format!("/user/repository_invitations/{id}")).assert_status(204);
    assert_eq!(upstream.get(DAN, "/user/repository_invitations").items().len(), 0);
    upstream.get(DAN, "/repos/acme/gadgets").assert_status(404);
}

#[test]
fn only_assignable_users_become_assignees() {
    let mut upstream = Upstream::new();
    assert!(
        logins(&upstream.get(NOBODY, &format!("{WIDGETS}/assignees")).assert_status(200))
            .contains(&"cleo".to_owned())
    );
    upstream.get(NOBODY, &format!("{WIDGETS}/assignees/cleo")).assert_status(204);
    upstream.get(NOBODY, &format!("{WIDGETS}/assignees/dan")).assert_status(404);
    upstream.get(NOBODY, &format!("{WIDGETS}/issues/1/assignees/cleo")).assert_status(204);
    upstream.get(NOBODY, &format!("{WIDGETS}/issues/4711/assignees/cleo")).assert_status(404);
    let path = format!("{WIDGETS}/issues/2/assignees");
    let assigned = upstream
        .post(ADA, &path, &json!({ "assignees": ["ben", "cleo", "ben", "nobody"] }))
        .assert_status(201);
    assert_eq!(assigned.body["assignees"].as_array().map(Vec::len), Some(2));
    let left = upstream
        .send(&request(Method::DELETE, ADA, &path, &[], &json!({ "assignees": ["ben"] })))
        .assert_status(200);
    assert_eq!(left.body["assignees"][0]["login"], "cleo");
    upstream.post(ADA, &path, &json!({ "assignees": "ben" })).assert_names_field("assignees");
    upstream.post(DAN, &path, &json!({ "assignees": ["ben"] })).assert_status(403);
}

#[test]
fn the_contributions_add_up_to_the_number_of_commits() {
    let mut upstream = Upstream::new();
    let people = upstream.get(NOBODY, &format!("{WIDGETS}/contributors")).assert_status(200);
    let commits = upstream.get(NOBODY, &format!("{WIDGETS}/commits")).items().len();
    let counted: u64 = people.items().iter().filter_map(|one| one["contributions"].as_u64()).sum();
    assert_eq!(counted, commits as u64);
}

#[test]
fn a_star_is_counted_and_listed_on_both_sides() {
    let mut upstream = Upstream::new();
    let star = "/user/starred/acme/widgets";
    upstream.get(BEN, star).assert_status(404);
    upstream.put(BEN, star, &Value::Null).assert_status(204);
    upstream.put(BEN, star, &Value::Null).assert_status(204);
    upstream.get(BEN, star).assert_status(204);
    assert_eq!(upstream.get(NOBODY, WIDGETS).body["stargazers_count"], 1);
    assert_eq!(
        logins(&upstream.get(NOBODY, &format!("{WIDGETS}/stargazers")).assert_status(200)),
        ["ben"]
    );
    let timed = upstream.get_with(
        NOBODY,
        &format!("{WIDGETS}/stargazers"),
        &[("accept", "application/vnd.service.star+json")],
    );
    assert_eq!(timed.items()[0]["user"]["login"], "ben");
    for path in ["/user/starred", "/users/ben/starred", "/user/102/starred"] {
        assert_eq!(
            upstream.get(BEN, path).assert_status(200).items()[0]["full_name"],
            "acme/widgets",
            "{path}"
        );
    }
    upstream.put(DAN, "/user/starred/acme/gadgets", &Value::Null).assert_status(404);
    upstream.put(BEN, "/user/starred/acme/gadgets", &Value::Null).assert_status(204);
    assert_eq!(
        upstream.get(DAN, "/users/ben/starred").items().len(),
        1,
        "a private repository is shown to those who see it"
    );
    upstream.delete(BEN, star).assert_status(204);
    upstream.delete(BEN, star).assert_status(204);
    assert_eq!(upstream.get(NOBODY, WIDGETS).body["stargazers_count"], 0);
    upstream.put(NOBODY, star, &Value::Null).assert_status(401);
    upstream.put(INSTALLATION, star, &Value::Null).assert_status(403);
}

#[test]
fn a_watcher_is_among_the_subscribers_of_a_repository() {
    let mut upstream = Upstream::new();
    let path = format!("{WIDGETS}/subscription");
    upstream.get(CLEO, &path).assert_status(404);
    let before = upstream.get(NOBODY, WIDGETS).body["subscribers_count"].as_u64().expect("a count");
    assert_eq!(
        upstream.put(CLEO, &path, &json!({ "subscribed": true })).assert_status(200).body["subscribed"],
        true
    );
    assert_eq!(upstream.get(NOBODY, WIDGETS).body["subscribers_count"], json!(before + 1));
    assert!(
        logins(&upstream.get(NOBODY, &format!("{WIDGETS}/subscribers")).assert_status(200))
            .contains(&"cleo".to_owned())
    );
    assert_eq!(
        upstream.get(CLEO, "/user/subscriptions").assert_status(200).items()[0]["full_name"],
        "acme/widgets"
    );
    assert_eq!(upstream.get(ADA, "/users/cleo/subscriptions").assert_status(200).items().len(), 1);
    upstream.put(CLEO, &path, &json!({ "ignored": "no" })).assert_names_field("ignored");
    upstream.delete(CLEO, &path).assert_status(204);
    upstream.get(CLEO, &path).assert_status(404);
    upstream.get(NOBODY, &path).assert_status(401);
}
