//! Commits, branches and refs. The upstream does not document their shapes; these have the members
//! that published clients read.

use serde_json::{Value, json};

use super::{Renderer, node_id};
use crate::emulator::http::{iso, segment};
use crate::emulator::world::{Commit, Repository};

impl Renderer<'_> {
    pub fn commit(&self, repository: &Repository, commit: &Commit) -> Value {
        let url = format!("{}/commits/{}", self.repository_url(repository), commit.sha);
        let mut inner = self.git_commit(repository, commit);
        if let Value::Object(inner) = &mut inner {
            // In lists, these two belong to the outer object.
            inner.remove("sha");
            inner.remove("parents");
            inner.insert("comment_count".to_owned(), json!(0));
        }
        json!({
            "sha": commit.sha,
            "node_id": node_id("Commit", 0) + &commit.sha,
            "commit": inner,
            "url": url,
            "html_url": self.commit_page(repository, &commit.sha),
            "comments_url": format!("{url}/comments"),
            "author": self.user_summary(commit.author.user),
            "committer": self.user_summary(commit.author.user),
            "parents": self.parents(repository, commit, "commits"),
        })
    }

    pub fn git_commit(&self, repository: &Repository, commit: &Commit) -> Value {
        let git = format!("{}/git", self.repository_url(repository));
        let person = json!({ "name": commit.author.name, "email": commit.author.email, "date": iso(commit.at) });
        json!({
            "sha": commit.sha,
            "url": format!("{git}/commits/{}", commit.sha),
            "html_url": self.commit_page(repository, &commit.sha),
            "author": person,
            "committer": person,
            "message": commit.message,
            "tree": { "sha": commit.tree, "url": format!("{git}/trees/{}", commit.tree) },
            "parents": self.parents(repository, commit, "git/commits"),
            "verification": { "verified": false, "reason": "unsigned", "signature": null, "payload": null },
        })
    }

    fn parents(&self, repository: &Repository, commit: &Commit, collection: &str) -> Vec<Value> {
        let base = self.repository_url(repository);
        let parent = |sha: &String| json!({ "sha": sha, "url": format!("{base}/{collection}/{sha}"), "html_url": self.commit_page(repository, sha) });
        commit.parent.iter().map(parent).collect()
    }

    fn commit_page(&self, repository: &Repository, sha: &str) -> String {
        format!("{}/commit/{sha}", self.page(repository))
    }

    pub fn branch_summary(
        &self,
        repository: &Repository,
        name: &str,
        sha: &str,
        is_protected: bool,
    ) -> Value {
        let base = self.repository_url(repository);
        json!({
            "name": name,
            "commit": { "sha": sha, "url": format!("{base}/commits/{sha}") },
            "protected": is_protected,
            "protection_url": format!("{base}/branches/{}/protection", segment(name)),
        })
    }

    pub fn reference(&self, repository: &Repository, name: &str, sha: &str) -> Value {
        let git = format!("{}/git", self.repository_url(repository));
        let path: Vec<String> = name.split('/').map(segment).collect();
        json!({
            "ref": name,
            "node_id": node_id("Ref", repository.id) + name,
            "url": format!("{git}/{}", path.join("/")),
            "object": { "type": "commit", "sha": sha, "url": format!("{git}/commits/{sha}") },
        })
    }
}
