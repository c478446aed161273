//! Commits that are made without a branch, and how two commits stand to each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{BYTES_MAX, COMMITS_MAX, Commit, FILES_MAX, Full, History, Tree, name_of};
use crate::clock::Timestamp;

/// How two commits stand to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The newest commit that both come from.
    pub merge_base: Option<String>,
    /// Those that only the head has, the oldest first.
    pub ahead: Vec<String>,
    pub behind: usize,
}

/// What a commit of its own is made of.
#[derive(Clone, Debug)]
pub struct Draft {
    pub parent: Option<String>,
    pub message: String,
    pub author: u64,
    pub at: Timestamp,
    pub files: Tree,
}

impl History {
    /// Adds a commit that no branch leads to yet; its name.
    pub fn keep(&mut self, draft: Draft) -> Result<String, Full> {
        let Draft { parent, message, author, at, files } = draft;
        let bytes = message.len() + files.values().map(bytes::Bytes::len).sum::<usize>();
        if self.commits.len() >= COMMITS_MAX || files.len() > FILES_MAX || self.bytes.saturating_add(bytes) > BYTES_MAX {
            return Err(Full);
        }
        self.bytes += bytes;
        let before = parent.as_deref().unwrap_or("");
        let sha = name_of(&format!("{before}\n{}\n{author} {}\n{message}", self.commits.len(), at.as_millis()));
        self.commits.insert(sha.clone(), Commit { sha: sha.clone(), parent, message, author, at, files: Arc::new(files) });
        Ok(sha)
    }

    /// The commit that everything of the default branch comes from.
    pub fn first(&self, newest: &Commit) -> Option<&Commit> {
        let mut first = self.commits.get(&newest.sha)?;
        while let Some(before) = first.parent.as_deref().and_then(|sha| self.commits.get(sha)) {
            first = before;
        }
        Some(first)
    }

    pub fn compare(&self, base: &Commit, head: &Commit) -> Comparison {
        let of_base: BTreeSet<&str> = self.until(base).map(|commit| commit.sha.as_str()).collect();
        let of_head: BTreeSet<&str> = self.until(head).map(|commit| commit.sha.as_str()).collect();
        let merge_base = self.until(head).find(|commit| of_base.contains(commit.sha.as_str())).map(|commit| commit.sha.clone());
        let alone = self.until(head).take_while(|commit| !of_base.contains(commit.sha.as_str()));
        let mut ahead: Vec<String> = alone.map(|commit| commit.sha.clone()).collect();
        ahead.reverse();
        Comparison { merge_base, ahead, behind: of_base.difference(&of_head).count() }
    }
}
