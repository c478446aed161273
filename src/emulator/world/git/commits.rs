//! Commits without a branch, the git objects of a commit, and the comparison of two commits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::history::{Author, Commit, History, HistoryFull, Tree};
use super::objects::{
    FILE_MODE, Folder, Kind, Leaf, Object, ObjectId, blob_id, completed, folders, is_path,
    make_way, root_tree, signature,
};
use crate::clock::Timestamp;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Their newest common ancestor.
    pub merge_base: Option<String>,
    /// Commits that only the head has, oldest first.
    pub ahead: Vec<String>,
    pub behind: usize,
}

#[derive(Clone, Debug)]
pub struct Draft {
    pub parent: Option<String>,
    pub message: String,
    pub author: Author,
    pub at: Timestamp,
    pub files: Tree,
}

impl Draft {
    /// Builds the commit. Files with conflicting or invalid paths are left out.
    pub fn commit(mut self) -> Commit {
        let mut files = Tree::new();
        for (path, content) in std::mem::take(&mut self.files) {
            if is_path(&path) {
                make_way(&mut files, &path);
                files.insert(path, content);
            }
        }
        let blobs = files.iter().map(|(path, content)| (path.clone(), blob_id(content))).collect();
        self.commit_of(files, blobs)
    }

    /// Builds the commit with other files than the draft's, the ids of which are known.
    pub fn commit_of(self, files: Tree, blobs: BTreeMap<String, ObjectId>) -> Commit {
        let Self { parent, mut message, author, at, .. } = self;
        // Git allows no NUL in a message.
        message.retain(|c| c != '\0');
        let tree = root_tree(&leaves(&blobs)).hex();
        let (files, blobs) = (Arc::new(files), Arc::new(blobs));
        let mut commit =
            Commit { sha: String::new(), tree, parent, message, author, at, files, blobs };
        commit.sha = commit.object().id.hex();
        commit
    }
}

fn leaves(blobs: &BTreeMap<String, ObjectId>) -> Vec<Leaf<'_>> {
    blobs.iter().map(|(path, id)| Leaf { path, mode: FILE_MODE, id: *id }).collect()
}

impl Commit {
    /// Author and committer are the same.
    pub fn object(&self) -> Object {
        let Self { tree, author, .. } = self;
        let parent = self.parent.as_ref();
        let parent = parent.map_or_else(String::new, |parent| format!("parent {parent}\n"));
        let author = signature(&author.name, &author.email, self.at);
        let message = completed(&self.message);
        let content =
            format!("tree {tree}\n{parent}author {author}\ncommitter {author}\n\n{message}");
        Object::new(Kind::Commit, content.as_bytes())
    }

    /// Returns its folders with their trees, the root last.
    pub fn folders(&self) -> Vec<Folder<'_>> {
        folders(&leaves(&self.blobs))
    }
}

impl History {
    pub fn keep(&mut self, draft: Draft) -> Result<String, HistoryFull> {
        let mut commit = draft.commit();
        if !self.commits.contains_key(&commit.sha) {
            let mut bytes = commit.message.len();
            // Equal content is stored once.
            for (content, id) in
                Arc::make_mut(&mut commit.files).values_mut().zip(commit.blobs.values())
            {
                match self.contents.get(id) {
                    Some(known) => *content = known.clone(),
                    None => bytes += content.len(),
                }
            }
            self.admit(&commit, bytes)?;
        }
        Ok(commit.sha)
    }

    pub fn content(&self, id: &str) -> Option<&Bytes> {
        self.contents.get(&ObjectId::parse(id)?)
    }

    /// Returns the files of a tree by their paths in it: a root tree or a folder's.
    pub fn tree(&self, id: &str) -> Option<BTreeMap<String, ObjectId>> {
        let (sha, folder) = self.trees.get(&ObjectId::parse(id)?)?;
        let commit = self.commits.get(sha)?;
        if folder.is_empty() {
            return Some(BTreeMap::clone(&commit.blobs));
        }
        let inside = format!("{folder}/");
        let below = commit
            .blobs
            .iter()
            .filter_map(|(path, id)| Some((path.strip_prefix(&inside)?.to_owned(), *id)));
        Some(below.collect())
    }

    /// Returns the oldest ancestor of the default branch.
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
        let merge_base = self
            .until(head)
            .find(|commit| of_base.contains(commit.sha.as_str()))
            .map(|commit| commit.sha.clone());
        let alone = self.until(head).take_while(|commit| !of_base.contains(commit.sha.as_str()));
        let mut ahead: Vec<String> = alone.map(|commit| commit.sha.clone()).collect();
        ahead.reverse();
        Comparison { merge_base, ahead, behind: of_base.difference(&of_head).count() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(message: &str, parent: Option<String>, paths: &[(&str, &'static str)]) -> Draft {
        let author =
            Author { user: 1, name: "Ada L".to_owned(), email: "ada@example.com".to_owned() };
        let files = paths
            .iter()
            .map(|(path, content)| ((*path).to_owned(), Bytes::from(*content)))
            .collect();
        Draft {
            parent,
            message: message.to_owned(),
            author,
            at: Timestamp::from_millis(1_700_000_000_999),
            files,
        }
    }

    // mkdir -p a docs/deep; printf 'one\n' > a/one; printf 'two\n' > a.b; printf 'three\n' > a-c;
    // printf 'deep\n' > docs/deep/é.md With author and committer `Ada L <ada@example.com>` at
    // `1700000000 +0000`: git add .; git commit -m First
    const FILES: [(&str, &str); 4] =
        [("a/one", "one\n"), ("a.b", "two\n"), ("a-c", "three\n"), ("docs/deep/é.md", "deep\n")];

    #[test]
    fn commits_and_trees_have_the_ids_that_git_gives_them() {
        let first = draft("First", None, &FILES).commit();
        // git log --format='%H %T'
        let ids = (first.sha.as_str(), first.tree.as_str());
        assert_eq!(
            ids,
            (
                "925e0f1509a5a952c7060ed3e341476c15b15ec1",
                "812e0545371192757adb4a74709ddbc276d78c67"
            )
        );
        let folders: Vec<_> = first
            .folders()
            .into_iter()
            .map(|folder| (folder.path, folder.object.id.hex()))
            .collect();
        // git rev-parse HEAD:a HEAD:docs/deep HEAD:docs
        let known = [
            ("a", "32b97a7332f485ca3b3fd33067b39c1ccd422ae2"),
            ("docs/deep", "7a88deb17f0279217bdbccb7b46205ecbc58e1ff"),
            ("docs", "af47d582bbc809a5b984c9c00b6f6e5d4a28d9c3"),
            ("", "812e0545371192757adb4a74709ddbc276d78c67"),
        ];
        assert_eq!(folders, known.map(|(path, id)| (path, id.to_owned())));
        // printf 'four\n' > a0; git add .; git commit -m Second; git log -1 --format='%H %T'
        let second =
            draft("Second", Some(first.sha), &[&FILES[..], &[("a0", "four\n")]].concat()).commit();
        let ids = (second.sha.as_str(), second.tree.as_str());
        assert_eq!(
            ids,
            (
                "bcfe669e4ca0bf5810f0a6369b1ca8aca8fa0394",
                "4ce23cbd18722183dbd4fe2ba0974ef20f8447d3"
            )
        );
    }

    #[test]
    fn files_with_paths_that_git_rejects_are_left_out() {
        let odd = draft(
            "Fi\0rst",
            None,
            &[&FILES[..], &[(".git/config", "x"), ("a", "x"), ("../up", "x"), ("docs", "x")]]
                .concat(),
        )
        .commit();
        assert_eq!(
            (odd.sha.as_str(), odd.message.as_str()),
            ("925e0f1509a5a952c7060ed3e341476c15b15ec1", "First")
        );
    }

    fn begun() -> History {
        let commit = draft("First", None, &FILES).commit();
        let root = commit.sha.clone();
        let mut history = History {
            commits: BTreeMap::new(),
            heads: BTreeMap::new(),
            contents: BTreeMap::new(),
            trees: BTreeMap::new(),
            root,
            bytes: 0,
        };
        history.insert(commit);
        history
    }

    #[test]
    fn a_commit_takes_bytes_for_new_content_only() {
        let mut history = begun();
        for turn in 0..50 {
            let message = format!("{turn:02}");
            history
                .keep(draft(&message, Some(history.root.clone()), &FILES))
                .expect("there is room");
        }
        assert_eq!(history.bytes, 50 * 2, "the messages");
        history.keep(draft("more", None, &[("b", "four")])).expect("there is room");
        assert_eq!(
            history.bytes,
            50 * 2 + "more".len() + "four".len() + crate::emulator::world::git::history::TREE_BYTES
        );
    }

    #[test]
    fn a_tree_of_a_root_or_a_folder_is_found_by_id() {
        let history = begun();
        let names = |id: &str| history.tree(id).map(|tree| tree.into_keys().collect::<Vec<_>>());
        assert_eq!(
            names("af47d582bbc809a5b984c9c00b6f6e5d4a28d9c3"),
            Some(vec!["deep/é.md".to_owned()])
        );
        assert_eq!(
            names("812e0545371192757adb4a74709ddbc276d78c67").map(|names| names.len()),
            Some(FILES.len())
        );
        assert_eq!(names("0000000000000000000000000000000000000000"), None);
    }
}
