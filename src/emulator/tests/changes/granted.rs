//! Tests the events of changed collaborators, of releases and of a team's repositories.

use serde_json::json;

use super::*;

#[test]
fn a_changed_collaborator_raises_member_edited() {
    let mut observed = Observed::new();
    let collaborator = on("/collaborators/dan");
    let write = json!({ "permission": "push" });
    observed.upstream.put(ADA, &collaborator, &write).assert_status(201);
    let mine = observed.upstream.get(DAN, "/user/repository_invitations").assert_status(200);
    let own = format!("/user/repository_invitations/{}", mine.items()[0]["id"]);
    observed.upstream.patch(DAN, &own, &Value::Null).assert_status(204);
    observed.deliveries();
    let maintain = json!({ "permission": "maintain" });
    for _ in 0..2 {
        observed.upstream.put(ADA, &collaborator, &maintain).assert_status(204);
    }
    let payload = observed.assert_delivered(&["member edited"]).remove(0);
    assert_eq!(payload["member"]["login"], "dan");
    let changes = &payload["changes"];
    assert_eq!(changes["permission"], json!({ "from": "write", "to": "maintain" }));
    let shown = observed.upstream.get(ADA, &format!("{collaborator}/permission")).body;
    assert_eq!((&shown["permission"], &shown["role_name"]), (&json!("write"), &json!("maintain")));
    let read = json!({ "permission": "pull" });
    observed.upstream.put(ADA, &collaborator, &read).assert_status(204);
    observed.assert_delivered(&["member edited"]);
    let change = json!({ "message": "more", "content": "eA==" });
    observed.upstream.put(DAN, &on("/contents/more.txt"), &change).assert_status(403);
    let shown = observed.upstream.get(ADA, &format!("{collaborator}/permission")).body;
    assert_eq!(shown["permission"], "read");
}

#[test]
fn an_edited_and_a_deleted_release_raise_events() {
    let mut observed = Observed::new();
    let made = json!({ "tag_name": "v2", "name": "Two" });
    let made = observed.upstream.post(ADA, &on("/releases"), &made).assert_status(201).body;
    observed.assert_delivered(&["release published"]);
    let own = on(&format!("/releases/{}", made["id"]));
    let change = json!({ "name": "Second", "body": "news" });
    for _ in 0..2 {
        observed.upstream.patch(ADA, &own, &change).assert_status(200);
    }
    let payload = observed.assert_delivered(&["release edited"]).remove(0);
    assert_eq!(payload["changes"], json!({ "name": { "from": "Two" }, "body": { "from": null } }));
    assert_eq!(payload["release"]["name"], "Second");
    observed.upstream.delete(ADA, &own).assert_status(204);
    let payload = observed.assert_delivered(&["release deleted"]).remove(0);
    assert_eq!(payload["release"]["id"], made["id"]);
    observed.upstream.delete(ADA, &own).assert_status(404);
    observed.assert_delivered(&[]);
}

#[test]
fn the_repositories_of_a_team_raise_events() {
    let mut observed = Observed::new();
    let team = json!({ "name": "Readers", "permission": "pull" });
    observed.upstream.post(ADA, "/orgs/acme/teams", &team).assert_status(201);
    observed.deliveries();
    let path = "/orgs/acme/teams/readers/repos/acme/widgets";
    for _ in 0..2 {
        observed.upstream.put(ADA, path, &Value::Null).assert_status(204);
    }
    let payloads = observed.assert_delivered(&["team added_to_repository", "team_add"]);
    for payload in payloads {
        assert_eq!(payload["team"]["slug"], "readers");
        assert_eq!(payload["repository"]["full_name"], "acme/widgets");
    }
    let push = json!({ "permission": "push" });
    observed.upstream.put(ADA, path, &push).assert_status(204);
    let payload = observed.assert_delivered(&["team edited"]).remove(0);
    let from = json!({ "admin": false, "push": false, "pull": true });
    assert_eq!(payload["changes"]["repository"]["permissions"]["from"], from);
    for _ in 0..2 {
        observed.upstream.delete(ADA, path);
    }
    let payload = observed.assert_delivered(&["team removed_from_repository"]).remove(0);
    assert_eq!(payload["team"]["slug"], "readers");
    let team = json!({ "name": "Writers", "repo_names": ["acme/widgets"] });
    observed.upstream.post(ADA, "/orgs/acme/teams", &team).assert_status(201);
    let names: Vec<String> = observed.deliveries().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["team created", "team added_to_repository", "team_add"]);
}
