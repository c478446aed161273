//! The JSON records of an archive, as far as possible in the real service's form, because the
//! upstream does not document it. Each names its `type` and its `url`, and refers to others by
//! theirs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::emulator::http::{SITE, iso, segment};
use crate::emulator::render::extend;
use crate::emulator::world::{
    Asset, History, Issue, IssueState, Label, Organization, Owner, Repository, Visibility, World,
};

/// The prefix of a file reference inside the archive.
const ARCHIVE_ROOT: &str = "tarball://root";

#[derive(Clone, Debug)]
pub struct Subject<'a> {
    pub world: &'a World,
    pub repositories: Vec<&'a Repository>,
    pub organizations: Vec<&'a Organization>,
}

impl<'a> Subject<'a> {
    /// Lists the records of one kind of all repositories.
    pub fn of_each<I: Iterator<Item = Value>>(
        &'a self,
        records: impl Fn(&'a Self, &'a Repository) -> I,
    ) -> impl Iterator<Item = Value> {
        self.repositories.iter().flat_map(move |repository| records(self, repository))
    }

    pub fn user_url(&self, user: u64) -> String {
        format!("{SITE}/{}", segment(self.world.login(user)))
    }

    pub fn url(&self, repository: &Repository) -> String {
        format!("{SITE}/{}", self.world.full_name(repository))
    }

    pub fn git_path(&self, repository: &Repository) -> String {
        format!(
            "repositories/{}/{}.git",
            segment(self.world.owner_login(repository.owner)),
            segment(&repository.name)
        )
    }

    pub fn users(&self) -> impl Iterator<Item = Value> {
        let mut users = BTreeSet::new();
        for organization in &self.organizations {
            users.extend(&organization.members);
        }
        for repository in &self.repositories {
            if let Owner::User(owner) = repository.owner {
                users.insert(owner);
            }
            users.extend(repository.collaborators.keys());
            users.extend(repository.milestones.values().map(|milestone| milestone.creator));
            users.extend(repository.comments.values().map(|comment| comment.author));
            users.extend(self.reviewers(repository));
            for issue in repository.issues.values() {
                users.insert(issue.author);
                users.extend(&issue.assignees);
            }
            for release in repository.releases.values() {
                users.insert(release.author);
                users.extend(release.assets.values().map(|asset| asset.uploader));
            }
        }
        users.into_iter().filter_map(|id| self.world.users.get(&id)).map(|user| {
            json!({
                "type": "user",
                "url": self.user_url(user.id),
                "login": user.login,
                "name": user.name,
                "company": null,
                "website": null,
                "location": null,
                "emails": [{ "address": format!("{}@example.com", user.login), "primary": true }],
                "created_at": iso(user.created_at),
            })
        })
    }

    pub fn organizations(&self) -> impl Iterator<Item = Value> {
        self.organizations.iter().map(|organization| {
            let role = |user: &u64| if organization.owners.contains(user) { "admin" } else { "direct_member" };
            let members: Vec<Value> = organization
                .members
                .iter()
                .map(|user| json!({ "user": self.user_url(*user), "role": role(user), "state": "active" }))
                .collect();
            json!({
                "type": "organization",
                "url": format!("{SITE}/{}", segment(&organization.login)),
                "login": organization.login,
                "name": organization.login,
                "description": organization.description,
                "website": null,
                "location": null,
                "email": null,
                "members": members,
                "webhooks": [],
                "created_at": iso(organization.created_at),
            })
        })
    }

    pub fn repositories(&self) -> impl Iterator<Item = Value> {
        self.repositories.iter().map(|repository| {
            let url = self.url(repository);
            let collaborators: Vec<Value> =
                repository.collaborators.iter().map(|(user, role)| json!({ "user": self.user_url(*user), "permission": role.role_name() })).collect();
            let label = |label: &Label| json!({ "url": label_url(&url, label), "name": label.name, "color": label.color, "description": label.description, "created_at": iso(repository.created_at) });
            let labels: Vec<Value> = repository.labels.values().map(label).collect();
            let feature = |name: &str| repository.features.get(name).copied().unwrap_or(false);
            json!({
                "type": "repository",
                "url": url,
                "owner": format!("{SITE}/{}", segment(self.world.owner_login(repository.owner))),
                "name": repository.name,
                "slug": repository.name,
                "description": repository.description,
                "website": repository.homepage,
                "private": repository.visibility == Visibility::Private,
                "has_issues": feature("has_issues"),
                "has_wiki": feature("has_wiki"),
                "has_downloads": true,
                "is_archived": feature("archived"),
                "default_branch": repository.default_branch,
                "git_url": format!("{ARCHIVE_ROOT}/{}", self.git_path(repository)),
                "wiki_url": null,
                "public_keys": [],
                "webhooks": [],
                "collaborators": collaborators,
                "labels": labels,
                "created_at": iso(repository.created_at),
            })
        })
    }

    pub fn milestones(&'a self, repository: &'a Repository) -> impl Iterator<Item = Value> {
        repository.milestones.values().map(|milestone| {
            json!({
                "type": "milestone",
                "url": format!("{}/milestones/{}", self.url(repository), milestone.number),
                "repository": self.url(repository),
                "user": self.user_url(milestone.creator),
                "title": milestone.title,
                "description": milestone.description,
                "state": milestone.state.into_str(),
                "due_on": null,
                "created_at": iso(milestone.created_at),
                "updated_at": iso(milestone.updated_at),
                "closed_at": null,
            })
        })
    }

    pub fn only_issues(&'a self, repository: &'a Repository) -> impl Iterator<Item = Value> {
        let issues = repository.issues.values().filter(|issue| issue.pull_from.is_none());
        issues.map(|issue| self.issue(repository, issue))
    }

    /// Lists the pull requests; their commits are in the archive's Git data.
    pub fn pulls(&'a self, repository: &'a Repository) -> impl Iterator<Item = Value> {
        let history = self.world.history(repository);
        pulls_of(repository).map(move |pull| self.pull(repository, &history, pull))
    }

    fn issue(&self, repository: &Repository, issue: &Issue) -> Value {
        let url = self.url(repository);
        let assignees: Vec<String> =
            issue.assignees.iter().map(|user| self.user_url(*user)).collect();
        let labels: Vec<String> = issue
            .labels
            .iter()
            .filter_map(|id| repository.labels.get(id))
            .map(|label| label_url(&url, label))
            .collect();
        json!({
            "type": "issue",
            "url": issue_url(&url, issue),
            "repository": url,
            "user": self.user_url(issue.author),
            "title": issue.title,
            "body": issue.body,
            "assignee": assignees.first(),
            "assignees": assignees,
            "milestone": issue.milestone.map(|number| format!("{url}/milestones/{number}")),
            "labels": labels,
            "reactions": [],
            "closed_at": issue.closed_at.map(iso),
            "created_at": iso(issue.created_at),
            "updated_at": iso(issue.updated_at),
        })
    }

    fn pull(&self, repository: &Repository, history: &History, pull: &Issue) -> Value {
        let owner = format!("{SITE}/{}", segment(self.world.owner_login(repository.owner)));
        let base = history.pull_base(repository, pull).map(|base| base.sha.clone());
        let head = self.world.pull_head(history, pull).map(|head| head.sha);
        let branch = |name: &str, sha: Option<String>| json!({ "ref": name, "sha": sha, "user": owner, "repo": self.url(repository) });
        let mut value = self.issue(repository, pull);
        extend(
            &mut value,
            json!({
                "type": "pull_request",
                "base": branch(pull.pull_into.as_ref().unwrap_or(&repository.default_branch), base),
                "head": branch(pull.pull_from.as_deref().unwrap_or(""), head),
                "merged_at": pull.merged.as_ref().map(|(at, _)| iso(*at)),
                "work_in_progress": false,
            }),
        );
        value
    }

    /// Lists the target branches of pull requests, each once, with its pull requests.
    pub fn bases(&'a self, repository: &'a Repository) -> impl Iterator<Item = Value> {
        let (url, history) = (self.url(repository), self.world.history(repository));
        let mut pulls_into: BTreeMap<&str, Vec<&Issue>> = BTreeMap::new();
        for pull in pulls_of(repository) {
            let branch = pull.pull_into.as_ref().unwrap_or(&repository.default_branch);
            pulls_into.entry(branch).or_default().push(pull);
        }
        pulls_into.into_iter().map(move |(branch, pulls)| {
            let commit = pulls.first().and_then(|pull| history.pull_base(repository, pull));
            json!({
                "type": "base",
                "url": format!("{url}/tree/{}", segment(branch)),
                "repository": url,
                "ref": branch,
                "sha": commit.map(|commit| &commit.sha),
                "pull_requests": pulls.iter().map(|pull| issue_url(&url, pull)).collect::<Vec<_>>(),
            })
        })
    }

    /// Lists the known past events: closings and merges. Their actors are unknown.
    pub fn issue_events(&'a self, repository: &'a Repository) -> impl Iterator<Item = Value> {
        let url = self.url(repository);
        repository.issues.values().flat_map(move |issue| {
            let on = issue_url(&url, issue);
            let merged = issue.merged.as_ref().map(|(at, sha)| ("merged", *at, Some(sha)));
            let is_closed = issue.state == IssueState::Closed;
            let closed =
                is_closed.then(|| ("closed", issue.closed_at.unwrap_or(issue.updated_at), None));
            merged.into_iter().chain(closed).map(move |(event, at, commit)| {
                json!({
                    "type": "issue_event",
                    "url": format!("{on}#{event}"),
                    kind_of(issue): on,
                    "actor": null,
                    "event": event,
                    "commit_id": commit,
                    "created_at": iso(at),
                })
            })
        })
    }

    pub fn issue_comments(&'a self, repository: &'a Repository) -> impl Iterator<Item = Value> {
        let url = self.url(repository);
        repository.comments.values().filter_map(move |comment| {
            let issue = repository.issues.get(&comment.issue)?;
            let on = issue_url(&url, issue);
            Some(json!({
                "type": "issue_comment",
                "url": format!("{on}#issuecomment-{}", comment.id),
                kind_of(issue): on,
                "user": self.user_url(comment.author),
                "body": comment.body,
                "formatter": "markdown",
                "reactions": [],
                "created_at": iso(comment.created_at),
                "updated_at": iso(comment.updated_at),
            }))
        })
    }

    pub fn releases(&'a self, repository: &'a Repository) -> impl Iterator<Item = Value> {
        let url = self.url(repository);
        repository.releases.values().map(move |release| {
            let assets: Vec<Value> =
                release.assets.values().map(|asset| self.asset(asset)).collect();
            json!({
                "type": "release",
                "url": format!("{url}/releases/tag/{}", segment(&release.tag)),
                "repository": url,
                "user": self.user_url(release.author),
                "name": release.name,
                "tag_name": release.tag,
                "body": release.body,
                "state": "published",
                "prerelease": false,
                "target_commitish": repository.default_branch,
                "release_assets": assets,
                "published_at": iso(release.created_at),
                "created_at": iso(release.created_at),
            })
        })
    }

    /// Only the size of an asset is known; its bytes are not in the archive.
    fn asset(&self, asset: &Asset) -> Value {
        json!({
            "user": self.user_url(asset.uploader),
            "asset_name": asset.name,
            "asset_content_type": asset.content_type,
            "asset_size": asset.size_bytes,
            "created_at": iso(asset.created_at),
        })
    }
}

pub fn pulls_of(repository: &Repository) -> impl Iterator<Item = &Issue> {
    repository.issues.values().filter(|issue| issue.pull_from.is_some())
}

pub fn issue_url(repository_url: &str, issue: &Issue) -> String {
    let collection = if issue.pull_from.is_some() { "pull" } else { "issues" };
    format!("{repository_url}/{collection}/{}", issue.number)
}

/// Returns the member by which a record refers to an issue or a pull request.
fn kind_of(issue: &Issue) -> &'static str {
    if issue.pull_from.is_some() { "pull_request" } else { "issue" }
}

fn label_url(repository_url: &str, label: &Label) -> String {
    format!("{repository_url}/labels/{}", segment(&label.name))
}
