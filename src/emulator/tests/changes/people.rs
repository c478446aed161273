//! Tests the events of stars, forks, invitations and collaborators.

use serde_json::{Value, json};

use super::*;

#[test]
fn a_star_raises_star_and_watch_once() {
    let mut observed = Observed::new();
    let path = "/user/starred/acme/widgets";
    for _ in 0..2 {
        observed.upstream.put(DAN, path, &Value::Null).assert_status(204);
    }
    let payloads = observed.assert_delivered(&["star created", "watch started"]);
    assert!(payloads[0]["starred_at"].is_string());
    assert_eq!(payloads[0]["sender"]["login"], "dan");
    assert_eq!(payloads[0]["repository"]["stargazers_count"], 1);
    observed.assert_fed(&["WatchEvent started"]);
    for _ in 0..2 {
        observed.upstream.delete(DAN, path).assert_status(204);
    }
    let payload = observed.assert_delivered(&["star deleted"]).remove(0);
    assert_eq!(payload["starred_at"], Value::Null);
    observed.assert_fed(&[]);
}

#[test]
fn a_fork_raises_its_event_in_its_origin() {
    let mut observed = Observed::new();
    let fork = observed.upstream.post(DAN, &on("/forks"), &Value::Null).assert_status(202).body;
    let payload = observed.assert_delivered(&["fork"]).remove(0);
    assert_eq!(payload["forkee"]["id"], fork["id"]);
    assert_eq!(payload["forkee"]["full_name"], "dan/widgets");
    assert_eq!(payload["repository"]["full_name"], "acme/widgets");
    assert!(payload["forkee"].get("temp_clone_token").is_none());
    observed.assert_fed(&["ForkEvent"]);
}

#[test]
fn an_accepted_invitation_makes_a_collaborator_with_events() {
    let mut observed = Observed::new();
    let collaborator = on("/collaborators/dan");
    let wanted = json!({ "permission": "push" });
    observed.upstream.put(ADA, &collaborator, &wanted).assert_status(201);
    observed.assert_delivered(&[]);
    let mine = observed.upstream.get(DAN, "/user/repository_invitations").assert_status(200);
    let own = format!("/user/repository_invitations/{}", mine.items()[0]["id"]);
    observed.upstream.patch(DAN, &own, &Value::Null).assert_status(204);
    let payload = observed.assert_delivered(&["member added"]).remove(0);
    assert_eq!(payload["member"]["login"], "dan");
    assert!(payload["changes"]["permission"]["to"].is_string());
    observed.assert_fed(&["MemberEvent added"]);
    let thread = observed.assert_notified(DAN, "", "invitation");
    assert_eq!(thread["subject"]["type"], "RepositoryInvitation");
    for _ in 0..2 {
        observed.upstream.delete(ADA, &collaborator).assert_status(204);
    }
    let payload = observed.assert_delivered(&["member removed"]).remove(0);
    assert_eq!(payload["member"]["login"], "dan");
    observed.assert_fed(&["MemberEvent removed"]);
}
