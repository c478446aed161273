//! Issues, pull requests, comments, labels, milestones and releases. The upstream does not document
//! their shapes; these have the members that published clients read.

use serde_json::{Value, json};

use super::{Renderer, extend, node_id};
use crate::emulator::http::{SITE, iso, segment};
use crate::emulator::world::{
    Asset, Comment, Issue, IssueState, Label, Milestone, Release, Repository,
};

impl Renderer<'_> {
    pub fn issue(&self, repository: &Repository, issue: &Issue) -> Value {
        let repository_url = self.repository_url(repository);
        let url = format!("{repository_url}/issues/{}", issue.number);
        let page = format!(
            "{SITE}/{}/{}/{}",
            self.world.full_name(repository),
            if issue.pull_from.is_some() { "pull" } else { "issues" },
            issue.number
        );
        let mut value = json!({
            "id": issue.id,
            "node_id": node_id("Issue", issue.id),
            "url": url,
            "repository_url": repository_url,
            "labels_url": format!("{url}/labels{{/name}}"),
            "comments_url": format!("{url}/comments"),
            "events_url": format!("{url}/events"),
            "html_url": page,
            "number": issue.number,
            "title": issue.title,
            "body": issue.body,
            "state": issue.state.name(),
            "locked": issue.locked,
            "comments": issue.comments.len(),
        });
        extend(&mut value, self.people_and_dates(repository, issue));
        extend(
            &mut value,
            json!({
                "labels": self.labels_of(repository, issue),
                "active_lock_reason": null,
                "state_reason": null,
            }),
        );
        if issue.pull_from.is_some() {
            let pull_url = format!("{repository_url}/pulls/{}", issue.number);
            extend(
                &mut value,
                json!({ "pull_request": {
                "url": pull_url, "html_url": page, "diff_url": format!("{page}.diff"), "patch_url": format!("{page}.patch"), "merged_at": issue.merged.as_ref().map(|(at, _)| iso(*at)),
            } }),
            );
        }
        value
    }

    fn people_and_dates(&self, repository: &Repository, issue: &Issue) -> Value {
        let assignees: Vec<Value> =
            issue.assignees.iter().map(|user| self.user_summary(*user)).collect();
        let milestone = issue.milestone.and_then(|number| repository.milestones.get(&number));
        json!({
            "user": self.user_summary(issue.author),
            "author_association": "MEMBER",
            "assignee": assignees.first(),
            "assignees": assignees,
            "milestone": milestone.map(|milestone| self.milestone(repository, milestone)),
            "created_at": iso(issue.created_at),
            "updated_at": iso(issue.updated_at),
            "closed_at": issue.closed_at.map(iso),
        })
    }

    fn labels_of(&self, repository: &Repository, issue: &Issue) -> Vec<Value> {
        issue
            .labels
            .iter()
            .filter_map(|id| repository.labels.get(id))
            .map(|label| self.label(repository, label))
            .collect()
    }

    pub fn pull(&self, repository: &Repository, issue: &Issue) -> Value {
        let repository_url = self.repository_url(repository);
        let url = format!("{repository_url}/pulls/{}", issue.number);
        let page = format!("{SITE}/{}/pull/{}", self.world.full_name(repository), issue.number);
        let owner = self.world.owner_login(repository.owner);
        let history = self.world.history(repository);
        let head = self.world.pull_head(&history, issue).map(|head| head.sha);
        let base = history.pull_base(repository, issue).map(|base| &base.sha);
        let branch = |name: &str, sha: Option<&String>| json!({ "label": format!("{owner}:{name}"), "ref": name, "sha": sha, "user": self.owner_summary(repository.owner), "repo": self.repository(repository) });
        let mut value = json!({
            "id": issue.id,
            "node_id": node_id("PullRequest", issue.id),
            "url": url,
            "html_url": page,
            "diff_url": format!("{page}.diff"),
            "patch_url": format!("{page}.patch"),
            "issue_url": format!("{repository_url}/issues/{}", issue.number),
            "commits_url": format!("{url}/commits"),
            "review_comments_url": format!("{url}/comments"),
            "review_comment_url": format!("{repository_url}/pulls/comments{{/number}}"),
            "comments_url": format!("{repository_url}/issues/{}/comments", issue.number),
            "statuses_url": format!("{repository_url}/statuses/{}", head.as_deref().unwrap_or("")),
            "number": issue.number,
            "state": issue.state.name(),
            "locked": issue.locked,
            "title": issue.title,
            "body": issue.body,
        });
        extend(&mut value, self.people_and_dates(repository, issue));
        extend(
            &mut value,
            json!({
                "labels": self.labels_of(repository, issue),
                "merged": issue.merged.is_some(),
                "merged_at": issue.merged.as_ref().map(|(at, _)| iso(*at)),
                "merge_commit_sha": issue.merged.as_ref().map(|(_, sha)| sha),
                "requested_reviewers": self.requested_reviewers(repository, issue),
                "requested_teams": [],
                "draft": false,
                "auto_merge": null,
                "head": branch(issue.pull_from.as_deref().unwrap_or("main"), head.as_ref()),
                "base": branch(issue.pull_into.as_ref().unwrap_or(&repository.default_branch), base),
            }),
        );
        value
    }

    pub fn requested_reviewers(&self, repository: &Repository, issue: &Issue) -> Vec<Value> {
        let requested = self.world.collections.collection(&format!(
            "repository/{}/pulls/{}/requested_reviewers",
            repository.id, issue.number
        ));
        requested
            .map(|requested| {
                requested
                    .in_order()
                    .into_iter()
                    .map(|(_, thing)| self.user_summary(thing.id))
                    .collect()
            })
            .unwrap_or_default()
    }

    pub fn comment(&self, repository: &Repository, comment: &Comment) -> Value {
        let repository_url = self.repository_url(repository);
        let url = format!("{repository_url}/issues/comments/{}", comment.id);
        json!({
            "id": comment.id,
            "node_id": node_id("IssueComment", comment.id),
            "url": url,
            "html_url": format!("{SITE}/{}/issues/{}#issuecomment-{}", self.world.full_name(repository), comment.issue, comment.id),
            "issue_url": format!("{repository_url}/issues/{}", comment.issue),
            "body": comment.body,
            "user": self.user_summary(comment.author),
            "author_association": "MEMBER",
            "created_at": iso(comment.created_at),
            "updated_at": iso(comment.updated_at),
        })
    }

    pub fn label(&self, repository: &Repository, label: &Label) -> Value {
        json!({
            "id": label.id,
            "node_id": node_id("Label", label.id),
            "url": format!("{}/labels/{}", self.repository_url(repository), segment(&label.name)),
            "name": label.name,
            "color": label.color,
            "default": false,
            "description": label.description,
        })
    }

    pub fn milestone(&self, repository: &Repository, milestone: &Milestone) -> Value {
        let url = format!("{}/milestones/{}", self.repository_url(repository), milestone.number);
        let count = |state| {
            repository
                .issues
                .values()
                .filter(|issue| issue.milestone == Some(milestone.number) && issue.state == state)
                .count()
        };
        json!({
            "id": milestone.id,
            "node_id": node_id("Milestone", milestone.id),
            "url": url,
            "html_url": format!("{SITE}/{}/milestone/{}", self.world.full_name(repository), milestone.number),
            "labels_url": format!("{url}/labels"),
            "number": milestone.number,
            "title": milestone.title,
            "description": milestone.description,
            "state": milestone.state.name(),
            "creator": self.user_summary(milestone.creator),
            "open_issues": count(IssueState::Open),
            "closed_issues": count(IssueState::Closed),
            "created_at": iso(milestone.created_at),
            "updated_at": iso(milestone.updated_at),
            "closed_at": null,
            "due_on": null,
        })
    }

    pub fn release(&self, repository: &Repository, release: &Release) -> Value {
        let path = crate::emulator::auth::access::path_of(self.world, repository);
        let url = format!("{}{path}/releases/{}", self.urls.api, release.id);
        let page = format!("{SITE}/{}", self.world.full_name(repository));
        let assets: Vec<Value> =
            release.assets.values().map(|asset| self.asset(repository, release, asset)).collect();
        json!({
            "id": release.id,
            "node_id": node_id("Release", release.id),
            "url": url,
            "assets_url": format!("{url}/assets"),
            "upload_url": format!("{}{path}/releases/{}/assets{{?name,label}}", self.urls.uploads, release.id),
            "html_url": format!("{page}/releases/tag/{}", segment(&release.tag)),
            "tarball_url": format!("{}{path}/tarball/{}", self.urls.api, segment(&release.tag)),
            "zipball_url": format!("{}{path}/zipball/{}", self.urls.api, segment(&release.tag)),
            "tag_name": release.tag,
            "target_commitish": repository.default_branch,
            "name": release.name,
            "body": release.body,
            "draft": false,
            "prerelease": false,
            "author": self.user_summary(release.author),
            "assets": assets,
            "created_at": iso(release.created_at),
            "published_at": iso(release.created_at),
        })
    }

    pub fn asset(&self, repository: &Repository, release: &Release, asset: &Asset) -> Value {
        json!({
            "id": asset.id,
            "node_id": node_id("ReleaseAsset", asset.id),
            "url": format!("{}/releases/assets/{}", self.repository_url(repository), asset.id),
            "browser_download_url": format!("{SITE}/{}/releases/download/{}/{}", self.world.full_name(repository), segment(&release.tag), segment(&asset.name)),
            "name": asset.name,
            "label": asset.label,
            "state": "uploaded",
            "content_type": asset.content_type,
            "size": asset.size_bytes,
            "download_count": 0,
            "uploader": self.user_summary(asset.uploader),
            "created_at": iso(asset.created_at),
            "updated_at": iso(asset.updated_at),
        })
    }
}
