//! The subject of a payload: its repository, organization, team, person and numbers, each by all
//! paths that name it.
//!
//! A genuine payload may still be malformed: impossible names are omitted, and `api` then
//! invalidates more, not less.

use serde_json::Value;

use crate::api::{Subject, node_path};

/// Longer than any name at the upstream.
const WORD_BYTES_MAX: usize = 100;

/// Members that an event of another name is not about.
const NOT_CONCERNED: [&str; 4] = ["sender", "installation", "organization", "enterprise"];

/// Path parameters and their JSON pointers in payloads.
const VALUES: [(&str, &[&str]); 4] = [
    ("number", &["/issue/number", "/pull_request/number", "/number"]),
    ("comment", &["/comment/id"]),
    (
        "sha",
        &[
            "/sha",
            "/check_run/head_sha",
            "/check_suite/head_sha",
            "/workflow_run/head_sha",
            "/workflow_job/head_sha",
        ],
    ),
    ("run", &["/workflow_run/id", "/workflow_job/run_id"]),
];

/// Reads the payload of this event.
pub fn read(event: &str, payload: &Value) -> Subject {
    let mut subject = Subject::default();
    for pointer in ["/repository", "/changes/new_repository"] {
        if let Some(repository) = payload.pointer(pointer) {
            add_repository(&mut subject, payload, repository);
        }
    }
    add_organization(&mut subject, event, payload);
    add_made(&mut subject, payload);
    let account = payload.pointer("/installation/account").or_else(|| payload.pointer("/account"));
    if let Some(account) = account {
        add_owner(&mut subject, account);
        let names = [word(account, "/login"), word(payload, "/changes/login/from")];
        subject
            .territories
            .extend(names.into_iter().flatten().map(|login| format!("/repos/{login}")));
    }
    add_team(&mut subject, payload);
    let person = ["/member", "/membership/user", "/collaborator"]
        .into_iter()
        .find_map(|pointer| payload.pointer(pointer));
    let person = person.or_else(|| payload.pointer("/sender").filter(|_| is_of_sender(event)));
    if let Some(person) = person {
        subject.users.extend(word(person, "/login").map(|login| format!("/users/{login}")));
        subject.users.extend(number(person, "/id").map(|id| format!("/user/{id}")));
    }
    for (name, pointers) in VALUES {
        let value = pointers.iter().find_map(|pointer| {
            number(payload, pointer)
                .map(|value| value.to_string())
                .or_else(|| word(payload, pointer))
        });
        subject.values.extend(value.map(|value| (name, value)));
    }
    subject
}

/// Returns the paths that stand for the node ids of what a payload is about. Its other things, such
/// as the sender, have not changed.
pub fn nodes<'p>(event: &'p str, payload: &'p Value) -> impl Iterator<Item = String> + 'p {
    let members = payload.as_object().into_iter().flatten();
    let is_subject = move |name: &str| match name {
        "sender" => is_of_sender(event),
        name => name == event || !NOT_CONCERNED.contains(&name),
    };
    members
        .filter(move |(name, _)| is_subject(name))
        .filter_map(|(_, value)| node_path(value.get("node_id")?.as_str()?))
}

/// True for stars and watches: the sender is their subject.
fn is_of_sender(event: &str) -> bool {
    matches!(event, "star" | "watch")
}

/// Adds a repository by its name, its number, and its former name.
fn add_repository(subject: &mut Subject, payload: &Value, repository: &Value) {
    let (owner, name) = owner_and_name(repository);
    let was_named = word(payload, "/changes/repository/name/from");
    let was_of = word(payload, "/changes/owner/from/user/login")
        .or_else(|| word(payload, "/changes/owner/from/organization/login"));
    if let (Some(owner), Some(name)) = (&owner, &name) {
        subject.repositories.push(format!("/repos/{owner}/{name}"));
        subject.repositories.extend(was_named.map(|before| format!("/repos/{owner}/{before}")));
        subject
            .repositories
            .extend(was_of.as_ref().map(|before| format!("/repos/{before}/{name}")));
    }
    subject.repositories.extend(number(repository, "/id").map(|id| format!("/repositories/{id}")));
    if let Some(owner) = repository.get("owner") {
        add_owner(subject, owner);
    } else if let Some(owner) = owner {
        subject.owners.extend(pages_of(&owner));
    }
    // The former owner's teams had access too.
    subject.organizations.extend(was_of.iter().map(|before| format!("/orgs/{before}")));
    subject.owners.extend(was_of.iter().flat_map(|login| pages_of(login)));
}

fn owner_and_name(repository: &Value) -> (Option<String>, Option<String>) {
    let full_name = repository.get("full_name").and_then(Value::as_str);
    match full_name.and_then(|name| name.split_once('/')) {
        Some((owner, name)) => (fit(owner), fit(name)),
        None => (word(repository, "/owner/login"), word(repository, "/name")),
    }
}

/// Adds a new fork, and the destination of a transferred issue.
fn add_made(subject: &mut Subject, payload: &Value) {
    let heads = |repository: &Value| {
        let (owner, name) = owner_and_name(repository);
        let named = owner.zip(name).map(|(owner, name)| format!("/repos/{owner}/{name}"));
        named.into_iter().chain(number(repository, "/id").map(|id| format!("/repositories/{id}")))
    };
    if let Some(fork) = payload.get("forkee") {
        subject.made.extend(heads(fork));
        fork.get("owner").into_iter().for_each(|owner| add_owner(subject, owner));
    }
    if let Some((repository, issue)) =
        payload.pointer("/changes/new_repository").zip(number(payload, "/changes/new_issue/number"))
    {
        let pages =
            |head: String| [format!("{head}/issues/{issue}"), format!("{head}/pulls/{issue}")];
        subject.made.extend(heads(repository).flat_map(pages));
    }
}

fn add_owner(subject: &mut Subject, owner: &Value) {
    subject.owners.extend(word(owner, "/login").iter().flat_map(|login| pages_of(login)));
    let by_id = |id| [format!("/user/{id}"), format!("/organizations/{id}")];
    subject.owners.extend(number(owner, "/id").into_iter().flat_map(by_id));
}

/// The paths of an account by its name, whichever kind it is.
fn pages_of(login: &str) -> [String; 2] {
    [format!("/users/{login}"), format!("/orgs/{login}")]
}

/// Adds the organization. An event about the organization itself concerns its account too.
fn add_organization(subject: &mut Subject, event: &str, payload: &Value) {
    let names = [word(payload, "/organization/login"), word(payload, "/changes/login/from")];
    for login in names.into_iter().flatten() {
        subject.organizations.push(format!("/orgs/{login}"));
        subject.territories.push(format!("/repos/{login}"));
        if event == "organization" {
            subject.owners.push(format!("/users/{login}"));
            // Some routes accept the name in place of the number.
            subject.organizations.push(format!("/organizations/{login}"));
        }
    }
    subject
        .organizations
        .extend(number(payload, "/organization/id").map(|id| format!("/organizations/{id}")));
}

/// Adds the team, also by its former names.
fn add_team(subject: &mut Subject, payload: &Value) {
    let Some(team) = payload.get("team") else { return };
    let (name, id) = (word(team, "/slug"), number(team, "/id"));
    let by_slug = |organization: &String| Some(format!("{organization}/teams/{}", name.as_ref()?));
    let by_id = |organization: &String| Some(format!("{organization}/team/{}", id?));
    let teams = subject
        .organizations
        .iter()
        .filter_map(|path| if path.starts_with("/orgs/") { by_slug(path) } else { by_id(path) });
    subject.teams.extend(teams);
    subject.teams.extend(id.map(|id| format!("/teams/{id}")));
}

fn number(value: &Value, pointer: &str) -> Option<u64> {
    value.pointer(pointer)?.as_u64()
}

fn word(value: &Value, pointer: &str) -> Option<String> {
    fit(value.pointer(pointer)?.as_str()?)
}

/// Returns `word` if it can be a path segment unescaped.
fn fit(word: &str) -> Option<String> {
    let is_fit = !word.is_empty() && word.len() <= WORD_BYTES_MAX && word != "." && word != "..";
    (is_fit && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)))
        .then(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn repositories(payload: &Value) -> Vec<String> {
        read("repository", payload).repositories
    }

    #[test]
    fn a_repository_is_named_by_name_number_and_former_name() {
        let widgets = json!({ "id": 7, "full_name": "acme/widgets" });
        assert_eq!(
            repositories(&json!({ "repository": widgets })),
            ["/repos/acme/widgets", "/repositories/7"]
        );
        let renamed = json!({ "repository": widgets, "changes": { "repository": { "name": { "from": "gears" } } } });
        assert_eq!(
            repositories(&renamed),
            ["/repos/acme/widgets", "/repos/acme/gears", "/repositories/7"]
        );
        let transferred = json!({ "repository": widgets, "changes": { "owner": { "from": { "user": { "login": "ada" } } } } });
        assert_eq!(
            repositories(&transferred),
            ["/repos/acme/widgets", "/repos/ada/widgets", "/repositories/7"]
        );
        assert!(read("repository", &transferred).owners.contains(&"/users/ada".to_owned()));
    }

    #[test]
    fn a_new_resource_is_named_by_all_its_addresses() {
        let fork = json!({ "repository": { "full_name": "o/r" }, "forkee": { "id": 70, "full_name": "u/r", "owner": { "login": "u" } } });
        let subject = read("fork", &fork);
        assert_eq!(subject.made, ["/repos/u/r", "/repositories/70"]);
        assert!(subject.owners.contains(&"/users/u".to_owned()));
        let moved = json!({
            "issue": { "number": 5 },
            "changes": { "new_issue": { "number": 1 }, "new_repository": { "id": 8, "full_name": "o/r2" } },
        });
        let made = [
            "/repos/o/r2/issues/1",
            "/repos/o/r2/pulls/1",
            "/repositories/8/issues/1",
            "/repositories/8/pulls/1",
        ];
        assert_eq!(read("issues", &moved).made, made);
        assert!(
            read("issues", &json!({ "forkee": 5, "changes": { "new_issue": {} } })).made.is_empty()
        );
    }

    #[test]
    fn a_former_owner_or_owner_name_is_included() {
        let from = json!({ "repository": { "full_name": "o/r" }, "changes": { "owner": { "from": { "organization": { "login": "prev" } } } } });
        assert!(read("repository", &from).organizations.contains(&"/orgs/prev".to_owned()));
        let renamed = json!({ "organization": { "login": "o", "id": 3 }, "changes": { "login": { "from": "prev" } } });
        let subject = read("organization", &renamed);
        assert_eq!(subject.owners, ["/users/o", "/users/prev"]);
        assert!(subject.organizations.contains(&"/organizations/prev".to_owned()));
    }

    #[test]
    fn a_team_has_three_addresses_and_a_person_two() {
        let payload = json!({
            "organization": { "login": "acme", "id": 3 },
            "team": { "slug": "core", "id": 4 },
            "member": { "login": "ada", "id": 9 },
        });
        let subject = read("membership", &payload);
        assert_eq!(subject.teams, ["/orgs/acme/teams/core", "/organizations/3/team/4", "/teams/4"]);
        assert_eq!(subject.users, ["/users/ada", "/user/9"]);
        assert_eq!(subject.territories, ["/repos/acme"]);
    }

    #[test]
    fn an_impossible_name_is_omitted() {
        for name in [
            "acme/../secrets",
            "acme/wid/gets",
            "acme/",
            "/",
            "acme/wid?gets",
            "acme/..",
            "é/é",
            "acme/*",
        ] {
            assert!(
                repositories(&json!({ "repository": { "full_name": name } })).is_empty(),
                "{name}"
            );
        }
        assert_eq!(
            repositories(&json!({ "repository": { "full_name": "../x", "id": 7 } })),
            ["/repositories/7"]
        );
        assert_eq!(
            read("issues", &json!({ "repository": 5, "issue": "x", "number": -1 })),
            Subject::default()
        );
    }

    #[test]
    fn numbers_are_found_where_each_event_has_them() {
        for payload in [
            json!({ "issue": { "number": 5 } }),
            json!({ "pull_request": { "number": 5 } }),
            json!({ "number": 5 }),
        ] {
            assert_eq!(read("issues", &payload).values, [("number", "5".to_owned())]);
        }
        let run = json!({ "workflow_run": { "id": 8, "head_sha": "abc" } });
        assert_eq!(
            read("workflow_run", &run).values,
            [("sha", "abc".to_owned()), ("run", "8".to_owned())]
        );
    }
}
