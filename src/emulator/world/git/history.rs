//! The commits of a repository: their files, and the head of each branch.
//!
//! A repository has no stored history until the first push; it then begins with the README of the
//! seed. Ids are those that git computes from the same content, author, time and message. Merges,
//! tags and file modes are left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::objects::{Folder, ObjectId, blob_id, is_path, make_way};
use crate::clock::Timestamp;
use crate::emulator::world::repositories::issues::Issue;
use crate::emulator::world::repositories::repository::Repository;

pub use super::commits::Draft;

/// The initial file of every repository.
pub const README: &str = "README.md";
/// Bounds of one repository: commits, files of a commit, and bytes in total.
const COMMITS_MAX: usize = 5_000;
const FILES_MAX: usize = 200;
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// The overhead of a stored tree beside its path.
pub const TREE_BYTES: usize = 128;
const BRANCHES_MAX: usize = 1_000;

pub type Tree = BTreeMap<String, Bytes>;

/// The name of that time, because renaming a user must not change an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    pub user: u64,
    pub name: String,
    pub email: String,
}

#[derive(Clone, Debug)]
pub struct Commit {
    pub sha: String,
    /// The id of the root tree.
    pub tree: String,
    pub parent: Option<String>,
    pub message: String,
    pub author: Author,
    pub at: Timestamp,
    pub files: Arc<Tree>,
    /// The ids of the files, by the same paths.
    pub blobs: Arc<BTreeMap<String, ObjectId>>,
}

#[derive(Clone, Debug)]
pub struct Edit {
    pub path: String,
    /// `None` removes the file.
    pub content: Option<Bytes>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryFull;

#[derive(Clone, Debug)]
pub struct History {
    pub commits: BTreeMap<String, Commit>,
    /// Branches by name, each with its newest commit.
    pub heads: BTreeMap<String, String>,
    /// The content of every file of every commit.
    pub contents: BTreeMap<ObjectId, Bytes>,
    /// Every tree: a commit that contains it, and the path of the folder.
    pub trees: BTreeMap<ObjectId, (String, String)>,
    pub root: String,
    pub bytes: usize,
}

impl History {
    /// Returns the history of a repository without a push.
    pub fn begun(repository: &Repository, author: Author) -> Self {
        let files = Tree::from([(README.to_owned(), Bytes::from(repository.readme.clone()))]);
        let draft = Draft {
            parent: None,
            message: "Begin".to_owned(),
            author,
            at: repository.pushed_at,
            files,
        };
        let commit = draft.commit();
        let mut history = Self {
            commits: BTreeMap::new(),
            heads: BTreeMap::from([(repository.default_branch.clone(), commit.sha.clone())]),
            contents: BTreeMap::new(),
            trees: BTreeMap::new(),
            root: commit.sha.clone(),
            bytes: repository.readme.len(),
        };
        history.insert(commit);
        history
    }

    pub fn insert(&mut self, commit: Commit) {
        for (id, content) in commit.blobs.values().zip(commit.files.values()) {
            self.contents.entry(*id).or_insert_with(|| content.clone());
        }
        for folder in commit.folders() {
            self.trees
                .entry(folder.object.id)
                .or_insert_with(|| (commit.sha.clone(), folder.path.to_owned()));
        }
        self.commits.insert(commit.sha.clone(), commit);
    }

    pub fn commit(&self, sha: &str) -> Option<&Commit> {
        self.commits.get(sha)
    }

    pub fn head(&self, branch: &str) -> Option<&Commit> {
        self.commits.get(self.heads.get(branch)?)
    }

    pub fn branches(&self) -> impl Iterator<Item = &str> {
        self.heads.keys().map(String::as_str)
    }

    /// A default branch without any push shows the newest commit.
    pub fn tip(&self, repository: &Repository) -> Option<&Commit> {
        self.head(&repository.default_branch)
            .or_else(|| self.commits.get(self.heads.values().next()?))
    }

    /// Resolves a branch, its full name, or a commit.
    pub fn named(&self, name: &str) -> Option<&Commit> {
        self.head(name)
            .or_else(|| self.head(name.strip_prefix("refs/heads/")?))
            .or_else(|| self.commits.get(name))
    }

    /// Lists a commit and its ancestors, newest first.
    pub fn until<'a>(&'a self, commit: &'a Commit) -> impl Iterator<Item = &'a Commit> {
        std::iter::successors(Some(commit), |commit| self.commits.get(commit.parent.as_deref()?))
    }

    /// Adds a commit to a branch; `None` without such a branch. Paths that git rejects are skipped.
    pub fn add(
        &mut self,
        branch: &str,
        message: String,
        author: Author,
        at: Timestamp,
        edit: Edit,
    ) -> Result<Option<Commit>, HistoryFull> {
        let Some(head) = self.head(branch) else { return Ok(None) };
        let (mut files, mut blobs) = (Tree::clone(&head.files), BTreeMap::clone(&head.blobs));
        let added = message.len() + edit.content.as_ref().map_or(0, Bytes::len);
        let draft =
            Draft { parent: Some(head.sha.clone()), message, author, at, files: Tree::new() };
        if is_path(&edit.path) {
            make_way(&mut files, &edit.path);
            make_way(&mut blobs, &edit.path);
            if let Some(content) = edit.content {
                blobs.insert(edit.path.clone(), blob_id(&content));
                files.insert(edit.path, content);
            }
        }
        let commit = draft.commit_of(files, blobs);
        if !self.commits.contains_key(&commit.sha) {
            self.admit(&commit, added)?;
        }
        self.heads.insert(branch.to_owned(), commit.sha.clone());
        Ok(Some(commit))
    }

    pub fn admit(&mut self, commit: &Commit, added_bytes: usize) -> Result<(), HistoryFull> {
        let is_new = |folder: &&Folder<'_>| !self.trees.contains_key(&folder.object.id);
        let folders = commit.folders();
        let new = folders.iter().filter(is_new);
        let trees: usize = new.map(|folder| folder.path.len() + TREE_BYTES).sum();
        let bytes = self.bytes.saturating_add(added_bytes).saturating_add(trees);
        if self.commits.len() >= COMMITS_MAX || commit.files.len() > FILES_MAX || bytes > BYTES_MAX
        {
            return Err(HistoryFull);
        }
        self.bytes = bytes;
        self.insert(commit.clone());
        Ok(())
    }

    pub fn move_branch(&mut self, branch: &str, to: Option<&str>) -> Result<(), HistoryFull> {
        let Some(sha) = to else {
            self.heads.remove(branch);
            return Ok(());
        };
        if self.heads.len() >= BRANCHES_MAX && !self.heads.contains_key(branch) {
            return Err(HistoryFull);
        }
        self.heads.insert(branch.to_owned(), sha.to_owned());
        Ok(())
    }

    /// Copies a commit of another history with its ancestors.
    pub fn adopt(&mut self, other: &Self, sha: &str) -> Result<(), HistoryFull> {
        let Some(newest) = other.commit(sha) else { return Ok(()) };
        let is_new = |commit: &&Commit| !self.commits.contains_key(&commit.sha);
        let mut new: Vec<&Commit> = other.until(newest).take_while(is_new).collect();
        new.reverse();
        for commit in new {
            let contents = commit.blobs.iter().zip(commit.files.values());
            let added = contents.filter(|((_, id), _)| !self.contents.contains_key(id));
            let bytes: usize = added.map(|(_, content)| content.len()).sum();
            self.admit(commit, bytes + commit.message.len())?;
        }
        Ok(())
    }

    /// Returns the source of a pull request, if its branch is there.
    pub fn pull_source(&self, pull: &Issue) -> Option<&Commit> {
        match &pull.fork {
            Some(fork) => self.commit(&fork.sha),
            None => self.head(pull.pull_from.as_deref()?),
        }
    }

    pub fn pull_base(&self, repository: &Repository, pull: &Issue) -> Option<&Commit> {
        let into = pull.pull_into.as_ref().unwrap_or(&repository.default_branch);
        self.head(into).or_else(|| self.tip(repository))
    }
}
