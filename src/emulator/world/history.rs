//! The commits of a repository: what each made of the files, and which one each branch has reached.
//!
//! A repository has no history of its own until something is pushed to it: it begins then with the README that it always had. Merges, tags and
//! everything else that Git knows are left out.

mod objects;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
pub use objects::Draft;

use super::{Repository, World};
use crate::clock::Timestamp;
use crate::emulator::validators::hex;

/// The one file that every repository has from the beginning.
pub const README: &str = "README.md";
/// What callers can store in one repository: commits, files of a commit, and bytes of all.
const COMMITS_MAX: usize = 5_000;
const FILES_MAX: usize = 200;
const BYTES_MAX: usize = 16 * 1024 * 1024;
const BRANCHES_MAX: usize = 1_000;

/// Files by path.
pub type Tree = BTreeMap<String, Bytes>;

#[derive(Clone, Debug)]
pub struct Commit {
    pub sha: String,
    pub parent: Option<String>,
    pub message: String,
    pub author: u64,
    pub at: Timestamp,
    pub files: Arc<Tree>,
}

/// A change of one file.
#[derive(Clone, Debug)]
pub struct Edit {
    pub path: String,
    /// None removes it.
    pub content: Option<Bytes>,
}

/// The repository holds too much already (Document 1, 422: "the endpoint has been spammed").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

#[derive(Clone, Debug)]
pub struct History {
    commits: BTreeMap<String, Commit>,
    /// Branches by name, each with its newest commit.
    heads: BTreeMap<String, String>,
    bytes: usize,
}

impl History {
    /// That of a repository to which nothing was pushed yet.
    fn begun(repository: &Repository, author: u64) -> Self {
        let files = Tree::from([(README.to_owned(), Bytes::from(repository.readme.clone()))]);
        let sha = name_of(&format!("{} begins", repository.id));
        let message = "Begin".to_owned();
        let commit = Commit { sha: sha.clone(), parent: None, message, author, at: repository.pushed_at, files: Arc::new(files) };
        Self {
            bytes: repository.readme.len(),
            heads: BTreeMap::from([(repository.default_branch.clone(), sha.clone())]),
            commits: BTreeMap::from([(sha, commit)]),
        }
    }

    pub fn commit(&self, sha: &str) -> Option<&Commit> {
        self.commits.get(sha)
    }

    /// The newest commit of a branch.
    pub fn head(&self, branch: &str) -> Option<&Commit> {
        self.commits.get(self.heads.get(branch)?)
    }

    pub fn branches(&self) -> impl Iterator<Item = &str> {
        self.heads.keys().map(String::as_str)
    }

    /// What is shown when no commit is asked for. A default branch that nothing was ever pushed to shows what there is.
    pub fn tip(&self, repository: &Repository) -> Option<&Commit> {
        self.head(&repository.default_branch).or_else(|| self.commits.get(self.heads.values().next()?))
    }

    /// A branch, its full name, or a commit.
    pub fn named(&self, name: &str) -> Option<&Commit> {
        self.head(name).or_else(|| self.head(name.strip_prefix("refs/heads/")?)).or_else(|| self.commits.get(name))
    }

    /// A commit and those before it, newest first.
    pub fn until<'a>(&'a self, commit: &'a Commit) -> impl Iterator<Item = &'a Commit> {
        std::iter::successors(Some(commit), |commit| self.commits.get(commit.parent.as_deref()?))
    }

    /// Adds a commit to a branch; none when there is no such branch.
    pub fn add(&mut self, branch: &str, message: String, author: u64, at: Timestamp, edit: Edit) -> Result<Option<Commit>, Full> {
        let Some(head) = self.head(branch) else { return Ok(None) };
        let (mut files, parent) = (Tree::clone(&head.files), head.sha.clone());
        let added = message.len() + edit.content.as_ref().map_or(0, Bytes::len);
        let sha = name_of(&format!("{parent}\n{}\n{author} {}\n{message}\n{}", self.commits.len(), at.as_millis(), edit.path));
        match edit.content {
            Some(content) => drop(files.insert(edit.path, content)),
            None => drop(files.remove(&edit.path)),
        }
        if self.commits.len() >= COMMITS_MAX || files.len() > FILES_MAX || self.bytes.saturating_add(added) > BYTES_MAX {
            return Err(Full);
        }
        self.bytes += added;
        let commit = Commit { sha: sha.clone(), parent: Some(parent), message, author, at, files: Arc::new(files) };
        self.commits.insert(sha.clone(), commit.clone());
        self.heads.insert(branch.to_owned(), sha);
        Ok(Some(commit))
    }

    /// Leads a branch to a commit, or ends it. A branch that is not there is made.
    pub fn lead(&mut self, branch: &str, to: Option<&str>) -> Result<(), Full> {
        let Some(sha) = to else {
            self.heads.remove(branch);
            return Ok(());
        };
        if self.heads.len() >= BRANCHES_MAX && !self.heads.contains_key(branch) {
            return Err(Full);
        }
        self.heads.insert(branch.to_owned(), sha.to_owned());
        Ok(())
    }
}

/// Forty hexadecimal digits.
fn name_of(what: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, what.as_bytes());
    hex(&digest.as_ref()[..20])
}

impl World {
    /// A repository's commits as they are now.
    pub fn history(&self, repository: &Repository) -> Arc<History> {
        let known = self.histories.get(&repository.id).cloned();
        known.unwrap_or_else(|| Arc::new(History::begun(repository, self.machine_user)))
    }

    /// The same, to be changed; none when there is no such repository.
    pub fn history_mut(&mut self, repository: u64) -> Option<&mut History> {
        let begun = self.history(self.repositories.get(&repository)?);
        Some(Arc::make_mut(self.histories.entry(repository).or_insert(begun)))
    }
}
