//! Issues, pull requests, comments, labels, milestones and releases. The upstream does not document
//! their shapes; these have the members that published clients read.

use serde_json::{Value, json};

use super::{Renderer, extended, node_id};
use crate::emulator::auth::access::path_of;
use crate::emulator::http::{iso, segment};
use crate::emulator::world::storage::collections::Collection;
use crate::emulator::world::{
    Asset, Comment, Issue, IssueEvent, IssueState, Label, Milestone, Release, Repository,
};

impl Renderer<'_> {
    pub fn issue(&self, repository: &Repository, issue: &Issue) -> Value {
        let repository_url = self.repository_url(repository);
        let url = format!("{repository_url}/issues/{}", issue.number);
        let kind = if issue.pull_from.is_some() { "pull" } else { "issues" };
        let page = format!("{}/{kind}/{}", self.page(repository), issue.number);
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
            "state": issue.state.into_str(),
            "locked": issue.locked,
            "comments": issue.comments.len(),
            "active_lock_reason": issue.lock_reason,
            "state_reason": null,
        });
        if issue.pull_from.is_some() {
            let pull_url = format!("{repository_url}/pulls/{}", issue.number);
            value["pull_request"] = json!({
                "url": pull_url,
                "html_url": page,
                "diff_url": format!("{page}.diff"),
                "patch_url": format!("{page}.patch"),
                "merged_at": issue.merged.as_ref().map(|(at, _)| iso(*at)),
            });
        }
        extended(value, self.parts(repository, issue))
    }

    /// The fields of issues and pull requests alike about people, labels and times.
    fn parts(&self, repository: &Repository, issue: &Issue) -> Value {
        let labels = issue.labels.iter().filter_map(|id| repository.labels.get(id));
        let labels: Vec<Value> = labels.map(|label| self.label(repository, label)).collect();
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
            "labels": labels,
        })
    }

    pub fn pull(&self, repository: &Repository, issue: &Issue) -> Value {
        let repository_url = self.repository_url(repository);
        let url = format!("{repository_url}/pulls/{}", issue.number);
        let page = format!("{}/pull/{}", self.page(repository), issue.number);
        let history = self.world.history(repository);
        let head = self.world.pull_head(&history, issue).map(|head| head.sha);
        let base = history.pull_base(repository, issue).map(|base| &base.sha);
        let source = self.world.pull_repository(repository, issue);
        let branch = |of: Option<&Repository>, name: &str, sha: Option<&String>| {
            let owner = of.map_or("unknown", |of| self.world.owner_login(of.owner));
            json!({
                "label": format!("{owner}:{name}"), "ref": name, "sha": sha,
                "user": of.map(|of| self.owner_summary(of.owner)),
                "repo": of.map(|of| self.repository(of)),
            })
        };
        let own = json!({
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
            "state": issue.state.into_str(),
            "locked": issue.locked,
            "active_lock_reason": issue.lock_reason,
            "title": issue.title,
            "body": issue.body,
            "merged": issue.merged.is_some(),
            "merged_at": issue.merged.as_ref().map(|(at, _)| iso(*at)),
            "merged_by": self.merger(repository, issue),
            "merge_commit_sha": issue.merged.as_ref().map(|(_, sha)| sha),
            "requested_reviewers": self.requested_reviewers(repository, issue),
            "requested_teams": self.requested_teams(repository, issue),
            "draft": issue.is_draft,
            "auto_merge": self.auto_merge(repository, issue),
            "head": branch(source, issue.pull_from.as_deref().unwrap_or("main"), head.as_ref()),
            "base": branch(Some(repository), issue.pull_into.as_ref().unwrap_or(&repository.default_branch), base),
        });
        extended(own, self.parts(repository, issue))
    }

    fn auto_merge(&self, repository: &Repository, pull: &Issue) -> Option<Value> {
        let request = self.world.auto_merges.get(&(repository.id, pull.number))?;
        Some(json!({
            "enabled_by": self.user_summary(request.by),
            "merge_method": request.method.to_lowercase(),
            "commit_title": request.headline,
            "commit_message": null,
        }))
    }

    /// Reads the actor of the merge from the history, which forgets the oldest merges.
    fn merger(&self, repository: &Repository, pull: &Issue) -> Option<Value> {
        pull.merged.as_ref()?;
        let is_merge = |event: &&IssueEvent| event.number == pull.number && event.name == "merged";
        let merge = repository.issue_events.iter().rev().find(is_merge)?;
        Some(self.user_summary(merge.actor))
    }

    pub fn requested_reviewers(&self, repository: &Repository, issue: &Issue) -> Vec<Value> {
        let users = self.requested(repository, issue, "requested_reviewers");
        users.into_iter().map(|user| self.user_summary(user)).collect()
    }

    pub fn requested_teams(&self, repository: &Repository, issue: &Issue) -> Vec<Value> {
        let teams = self.requested(repository, issue, "requested_teams");
        teams.into_iter().filter_map(|team| self.team_of_organization(team)).collect()
    }

    fn requested(&self, repository: &Repository, issue: &Issue, what: &str) -> Vec<u64> {
        let address = format!("repository/{}/pulls/{}/{what}", repository.id, issue.number);
        let requested = self.world.collections.collection(&address);
        let requested = requested.map(Collection::in_order).unwrap_or_default();
        requested.into_iter().map(|(_, reviewer)| reviewer.id).collect()
    }

    pub fn comment(&self, repository: &Repository, comment: &Comment) -> Value {
        let repository_url = self.repository_url(repository);
        let url = format!("{repository_url}/issues/comments/{}", comment.id);
        json!({
            "id": comment.id,
            "node_id": node_id("IssueComment", comment.id),
            "url": url,
            "html_url": format!("{}/issues/{}#issuecomment-{}", self.page(repository), comment.issue, comment.id),
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
        let issues = repository.issues.values();
        let issues = issues.filter(|issue| issue.milestone == Some(milestone.number));
        let count = |state| issues.clone().filter(|issue| issue.state == state).count();
        json!({
            "id": milestone.id,
            "node_id": node_id("Milestone", milestone.id),
            "url": url,
            "html_url": format!("{}/milestone/{}", self.page(repository), milestone.number),
            "labels_url": format!("{url}/labels"),
            "number": milestone.number,
            "title": milestone.title,
            "description": milestone.description,
            "state": milestone.state.into_str(),
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
        let path = path_of(self.world, repository);
        let repository_url = self.repository_url(repository);
        let url = format!("{repository_url}/releases/{}", release.id);
        let tag = segment(&release.tag);
        let assets: Vec<Value> =
            release.assets.values().map(|asset| self.asset(repository, release, asset)).collect();
        json!({
            "id": release.id,
            "node_id": node_id("Release", release.id),
            "url": url,
            "assets_url": format!("{url}/assets"),
            "upload_url": format!("{}{path}/releases/{}/assets{{?name,label}}", self.urls.uploads, release.id),
            "html_url": format!("{}/releases/tag/{tag}", self.page(repository)),
            "tarball_url": format!("{repository_url}/tarball/{tag}"),
            "zipball_url": format!("{repository_url}/zipball/{tag}"),
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
            "browser_download_url": format!("{}/releases/download/{}/{}", self.page(repository), segment(&release.tag), segment(&asset.name)),
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
