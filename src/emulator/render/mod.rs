//! Renders objects as JSON, with the addresses of one caller.

mod commit;
mod issue;
mod issue_event;
mod replies;
mod repository;
pub mod team;

use serde_json::{Map, Value, json};

use crate::emulator::accounts::Caller;
use crate::emulator::auth::access::path_of;
use crate::emulator::http::{SITE, Urls, iso, segment};
use crate::emulator::routing::Call;
use crate::emulator::world::{Organization, Owner, Repository, User, World};

#[derive(Clone, Copy, Debug)]
pub struct Renderer<'a> {
    pub world: &'a World,
    pub urls: &'a Urls,
    pub caller: &'a Caller,
}

impl<'a> Renderer<'a> {
    pub fn of(call: &'a Call<'_>) -> Self {
        Self { world: call.world, urls: call.urls, caller: call.caller }
    }

    pub fn user_summary(&self, id: u64) -> Value {
        let login = self.world.login(id);
        self.summary(id, login, if login.ends_with("[bot]") { "Bot" } else { "User" })
    }

    pub fn owner_summary(&self, owner: Owner) -> Value {
        match owner {
            Owner::User(id) => self.user_summary(id),
            Owner::Organization(id) => {
                self.summary(id, self.world.owner_login(owner), "Organization")
            }
        }
    }

    fn summary(&self, id: u64, login: &str, kind: &str) -> Value {
        let url = format!("{}/users/{}", self.urls.api, segment(login));
        json!({
            "login": login,
            "id": id,
            "node_id": node_id(kind, id),
            "avatar_url": format!("{SITE}/avatars/{id}"),
            "gravatar_id": "",
            "url": url,
            "html_url": format!("{SITE}/{login}"),
            "followers_url": format!("{url}/followers"),
            "following_url": format!("{url}/following{{/other_user}}"),
            "gists_url": format!("{url}/gists{{/gist_id}}"),
            "starred_url": format!("{url}/starred{{/owner}}{{/repo}}"),
            "subscriptions_url": format!("{url}/subscriptions"),
            "organizations_url": format!("{url}/orgs"),
            "repos_url": format!("{url}/repos"),
            "events_url": format!("{url}/events{{/privacy}}"),
            "received_events_url": format!("{url}/received_events"),
            "type": kind,
            "site_admin": false,
        })
    }

    /// The shape is undocumented: the summary, and the members that clients load lazily.
    pub fn user(&self, user: &User) -> Value {
        let lazy = json!({
            "name": user.name,
            "company": null,
            "blog": "",
            "location": null,
            "email": address_of(&user.login),
            "hireable": null,
            "bio": null,
            "public_repos": self.world.public_repositories(Owner::User(user.id)),
            "public_gists": 0,
            "followers": 0,
            "following": 0,
            "created_at": iso(user.created_at),
            "updated_at": iso(user.updated_at),
        });
        extended(self.user_summary(user.id), lazy)
    }

    fn organization_url(&self, organization: &Organization) -> String {
        format!("{}/orgs/{}", self.urls.api, segment(&organization.login))
    }

    pub fn organization_summary(&self, organization: &Organization) -> Value {
        let url = self.organization_url(organization);
        json!({
            "login": organization.login,
            "id": organization.id,
            "node_id": node_id("Organization", organization.id),
            "url": url,
            "repos_url": format!("{url}/repos"),
            "events_url": format!("{url}/events"),
            "hooks_url": format!("{url}/hooks"),
            "issues_url": format!("{url}/issues"),
            "members_url": format!("{url}/members{{/member}}"),
            "public_members_url": format!("{url}/public_members{{/member}}"),
            "avatar_url": format!("{SITE}/avatars/{}", organization.id),
            "description": organization.description,
        })
    }

    /// The shape is undocumented: the summary, and the members that clients load lazily.
    pub fn organization(&self, organization: &Organization) -> Value {
        let owner = Owner::Organization(organization.id);
        let lazy = json!({
            "name": organization.login,
            "company": null,
            "blog": "",
            "location": null,
            "email": null,
            "is_verified": false,
            "has_organization_projects": true,
            "has_repository_projects": true,
            "public_repos": self.world.public_repositories(owner),
            "public_gists": 0,
            "followers": 0,
            "following": 0,
            "html_url": format!("{SITE}/{}", organization.login),
            "created_at": iso(organization.created_at),
            "updated_at": iso(organization.updated_at),
            "type": "Organization",
        });
        extended(self.organization_summary(organization), lazy)
    }

    pub fn repository_url(&self, repository: &Repository) -> String {
        format!("{}{}", self.urls.api, path_of(self.world, repository))
    }

    /// Returns the repository's page for people.
    fn page(&self, repository: &Repository) -> String {
        format!("{SITE}/{}", self.world.full_name(repository))
    }
}

pub fn address_of(login: &str) -> String {
    format!("{login}@example.com")
}

/// Returns the opaque second id of an object.
pub fn node_id(kind: &str, id: u64) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(format!("0{}:{kind}{id}", kind.len()))
}

pub fn extend(value: &mut Value, more: Value) {
    if let (Value::Object(map), Value::Object(more)) = (value, more) {
        map.extend(more);
    }
}

pub fn extended(mut value: Value, more: Value) -> Value {
    extend(&mut value, more);
    value
}

pub fn object<'k>(members: impl IntoIterator<Item = (&'k str, Value)>) -> Map<String, Value> {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

pub fn comment_objects(renderer: &Renderer<'_>, repository: u64, id: u64) -> Value {
    let Some(repository) = renderer.world.repositories.get(&repository) else { return json!({}) };
    let Some(comment) = repository.comments.get(&id) else { return json!({}) };
    let issue =
        repository.issues.get(&comment.issue).map(|issue| renderer.issue(repository, issue));
    json!({ "issue": issue, "comment": renderer.comment(repository, comment) })
}
