//! The repository object with every documented field, and further members that clients read.

use serde_json::{Map, Value, json};

use super::{Renderer, extend, node_id, object};
use crate::clock::Timestamp;
use crate::emulator::auth::access::{role_of_token, sees};
use crate::emulator::http::{SITE, iso};
use crate::emulator::routing::Role;
use crate::emulator::world::{IssueState, Repository, Visibility};

/// The URL templates of a repository: the field and the part after the repository's own address.
const URL_TEMPLATES: &[(&str, &str)] = &[
    ("archive_url", "/{archive_format}{/ref}"),
    ("assignees_url", "/assignees{/user}"),
    ("blobs_url", "/git/blobs{/sha}"),
    ("branches_url", "/branches{/branch}"),
    ("collaborators_url", "/collaborators{/collaborator}"),
    ("comments_url", "/comments{/number}"),
    ("commits_url", "/commits{/sha}"),
    ("compare_url", "/compare/{base}...{head}"),
    ("contents_url", "/contents/{+path}"),
    ("contributors_url", "/contributors"),
    ("deployments_url", "/deployments"),
    ("downloads_url", "/downloads"),
    ("events_url", "/events"),
    ("forks_url", "/forks"),
    ("git_commits_url", "/git/commits{/sha}"),
    ("git_refs_url", "/git/refs{/sha}"),
    ("git_tags_url", "/git/tags{/sha}"),
    ("issue_comment_url", "/issues/comments{/number}"),
    ("issue_events_url", "/issues/events{/number}"),
    ("issues_url", "/issues{/number}"),
    ("keys_url", "/keys{/key_id}"),
    ("labels_url", "/labels{/name}"),
    ("languages_url", "/languages"),
    ("merges_url", "/merges"),
    ("milestones_url", "/milestones{/number}"),
    ("notifications_url", "/notifications{?since,all,participating}"),
    ("pulls_url", "/pulls{/number}"),
    ("releases_url", "/releases{/id}"),
    ("stargazers_url", "/stargazers"),
    ("statuses_url", "/statuses/{sha}"),
    ("subscribers_url", "/subscribers"),
    ("subscription_url", "/subscription"),
    ("tags_url", "/tags"),
    ("teams_url", "/teams"),
    ("trees_url", "/git/trees{/sha}"),
    ("hooks_url", "/hooks"),
    ("url", ""),
];

impl Renderer<'_> {
    pub fn repository(&self, repository: &Repository) -> Value {
        let mut value = self.repository_without_template(repository);
        extend(&mut value, json!({ "template_repository": self.template(repository) }));
        value
    }

    fn repository_without_template(&self, repository: &Repository) -> Value {
        let mut map = self.identity(repository);
        map.extend(counts(repository));
        map.extend(self.followers(repository));
        map.extend(
            repository
                .features
                .iter()
                .map(|(name, value)| ((*name).to_owned(), Value::Bool(*value))),
        );
        let url = self.repository_url(repository);
        map.extend(
            URL_TEMPLATES
                .iter()
                .map(|(name, rest)| ((*name).to_owned(), Value::String(format!("{url}{rest}")))),
        );
        map.extend(self.clone_addresses(repository));
        map.extend(object([
            ("permissions", self.permissions(repository)),
            ("owner", self.owner_summary(repository.owner)),
            ("license", self.license()),
            ("template_repository", Value::Null),
            ("temp_clone_token", json!(self.world.clone_secrets.of(repository, self.caller))),
            ("pushed_at", json!(iso(repository.pushed_at))),
            ("created_at", json!(iso(repository.created_at))),
            ("updated_at", json!(iso(repository.updated_at))),
        ]));
        Value::Object(map)
    }

    fn identity(&self, repository: &Repository) -> Map<String, Value> {
        let full_name = self.world.full_name(repository);
        object([
            ("id", json!(repository.id)),
            ("node_id", json!(node_id("Repository", repository.id))),
            ("name", json!(repository.name)),
            ("html_url", json!(format!("{SITE}/{full_name}"))),
            ("full_name", json!(full_name)),
            ("description", json!(repository.description)),
            ("homepage", json!(repository.homepage)),
            ("language", json!(repository.language)),
            ("topics", json!(repository.topics)),
            ("default_branch", json!(repository.default_branch)),
            ("private", json!(repository.visibility == Visibility::Private)),
            (
                "visibility",
                json!(if repository.visibility == Visibility::Private {
                    "private"
                } else {
                    "public"
                }),
            ),
            ("fork", json!(repository.fork_of.is_some())),
            ("disabled", json!(false)),
            ("has_pages", json!(false)),
            ("has_downloads", json!(true)),
            ("has_discussions", json!(false)),
        ])
    }

    /// The running service calls stars watchers, and watchers subscribers.
    fn followers(&self, repository: &Repository) -> Map<String, Value> {
        let stars = json!(repository.stars.len());
        let watching =
            self.world.users.values().filter(|user| user.watching.contains(&repository.id)).count();
        object([
            ("stargazers_count", stars.clone()),
            ("watchers_count", stars.clone()),
            ("watchers", stars),
            ("subscribers_count", json!(watching)),
        ])
    }

    fn clone_addresses(&self, repository: &Repository) -> Map<String, Value> {
        let full_name = self.world.full_name(repository);
        let host = SITE.trim_start_matches("https://");
        object([
            ("clone_url", json!(format!("{SITE}/{full_name}.git"))),
            ("git_url", json!(format!("git://{host}/{full_name}.git"))),
            ("ssh_url", json!(format!("git@{host}:{full_name}.git"))),
            ("svn_url", json!(format!("{SITE}/{full_name}"))),
            // Always a string, although no repository here is a mirror.
            ("mirror_url", json!(format!("git:{host}/{full_name}"))),
        ])
    }

    /// Only if the caller sees it. A template does not show its own template in turn.
    fn template(&self, repository: &Repository) -> Value {
        self.template_of(repository)
            .map_or(Value::Null, |template| self.repository_without_template(template))
    }

    fn template_of(&self, repository: &Repository) -> Option<&Repository> {
        let id = self.world.template_of.get(&repository.id)?;
        self.world.repositories.get(id).filter(|template| sees(self.world, self.caller, template))
    }

    /// Covers all data that [`Self::repository`] shows.
    pub fn repository_changed_at(&self, repository: &Repository) -> Timestamp {
        let own = |repository: &Repository| {
            repository.updated_at.max(self.world.clone_secrets.changed_at(repository))
        };
        self.template_of(repository)
            .map_or(own(repository), |template| own(repository).max(own(template)))
    }

    fn permissions(&self, repository: &Repository) -> Value {
        let role = self
            .caller
            .token()
            .map_or(Role::Read, |token| role_of_token(self.world, token, repository));
        json!({ "admin": role >= Role::Admin, "push": role >= Role::Push, "pull": true })
    }

    fn license(&self) -> Value {
        json!({
            "key": "apache-2.0",
            "name": "Apache License 2.0",
            "url": format!("{}/licenses/apache-2.0", self.urls.api),
            "spdx_id": "Apache-2.0",
            "node_id": node_id("License", 2),
            "html_url": format!("{SITE}/licenses/apache-2.0"),
        })
    }
}

fn counts(repository: &Repository) -> Map<String, Value> {
    let open = repository.issues.values().filter(|issue| issue.state == IssueState::Open).count();
    let forks = repository.forks.len();
    let names =
        [("open_issues_count", open), ("open_issues", open), ("size", repository.readme.len())];
    let forked = ["forks_count", "network_count", "forks"].map(|name| (name, forks));
    object(names.into_iter().chain(forked).map(|(name, count)| (name, json!(count))))
}
