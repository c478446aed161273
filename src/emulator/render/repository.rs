//! The repository object with every documented field, and further members that clients read.

use serde_json::{Value, json};

use super::{Renderer, extend, extended, node_id, object};
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
        let template = self.template_of(repository);
        let template = template.map(|template| self.repository_without_template(template));
        extended(
            self.repository_without_template(repository),
            json!({ "template_repository": template }),
        )
    }

    fn repository_without_template(&self, repository: &Repository) -> Value {
        let url = self.repository_url(repository);
        let urls = URL_TEMPLATES.iter().map(|(name, rest)| (*name, json!(format!("{url}{rest}"))));
        let features = repository.features.iter().map(|(name, value)| (*name, json!(value)));
        let mut value = Value::Object(object(urls.chain(features)));
        extend(&mut value, self.identity(repository));
        extend(&mut value, self.counts(repository));
        extended(value, self.clone_addresses(repository))
    }

    fn identity(&self, repository: &Repository) -> Value {
        let is_private = repository.visibility == Visibility::Private;
        json!({
            "id": repository.id,
            "node_id": node_id("Repository", repository.id),
            "name": repository.name,
            "html_url": self.page(repository),
            "full_name": self.world.full_name(repository),
            "owner": self.owner_summary(repository.owner),
            "description": repository.description,
            "homepage": repository.homepage,
            "language": repository.language,
            "license": self.license(),
            "topics": repository.topics,
            "default_branch": repository.default_branch,
            "private": is_private,
            "visibility": if is_private { "private" } else { "public" },
            "permissions": self.permissions(repository),
            "fork": repository.fork_of.is_some(),
            "template_repository": null,
            "disabled": false,
            "has_pages": false,
            "has_downloads": true,
            "has_discussions": false,
            "pushed_at": iso(repository.pushed_at),
            "created_at": iso(repository.created_at),
            "updated_at": iso(repository.updated_at),
        })
    }

    /// The running service calls stars watchers, and watchers subscribers.
    fn counts(&self, repository: &Repository) -> Value {
        let open = repository.issues.values().filter(|issue| issue.state == IssueState::Open);
        let open = open.count();
        let forks = repository.forks.len();
        let stars = repository.stars.len();
        let watching =
            self.world.users.values().filter(|user| user.watching.contains(&repository.id)).count();
        json!({
            "open_issues_count": open,
            "open_issues": open,
            "size": repository.readme.len(),
            "forks_count": forks,
            "network_count": forks,
            "forks": forks,
            "stargazers_count": stars,
            "watchers_count": stars,
            "watchers": stars,
            "subscribers_count": watching,
        })
    }

    fn clone_addresses(&self, repository: &Repository) -> Value {
        let full_name = self.world.full_name(repository);
        let host = SITE.trim_start_matches("https://");
        json!({
            "clone_url": format!("{SITE}/{full_name}.git"),
            "git_url": format!("git://{host}/{full_name}.git"),
            "ssh_url": format!("git@{host}:{full_name}.git"),
            "svn_url": self.page(repository),
            // Always a string, although no repository here is a mirror.
            "mirror_url": format!("git:{host}/{full_name}"),
            "temp_clone_token": self.world.clone_secrets.of(repository, self.caller),
        })
    }

    /// Only if the caller sees it. A template does not show its own template in turn.
    fn template_of(&self, repository: &Repository) -> Option<&Repository> {
        let id = self.world.template_of.get(&repository.id)?;
        self.world.repositories.get(id).filter(|template| sees(self.world, self.caller, template))
    }

    /// Covers all data that [`Self::repository`] shows.
    pub fn repository_changed_at(&self, repository: &Repository) -> Timestamp {
        let own = |repository: &Repository| {
            repository.updated_at.max(self.world.clone_secrets.changed_at(repository))
        };
        let template = self.template_of(repository).map(own);
        own(repository).max(template.unwrap_or(Timestamp::EPOCH))
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
