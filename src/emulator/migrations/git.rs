//! The files of a bare Git repository: objects and refs.
//!
//! It holds every commit on a branch with trees and files, and one commit for each pull request
//! without a branch. Unreferenced commits are left out. Objects are loose and refs packed, so that
//! no caller's name becomes a file name.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use crate::emulator::world::git::objects::{Kind, Object, ObjectId, is_ref_name};
use crate::emulator::world::{Commit, Repository, World};

/// The target of `HEAD` when git rejects the default branch's name.
const MAIN: &str = "main";

#[derive(Debug, Default)]
pub struct Bare {
    /// The commits of all refs, and their ancestors.
    commits: Vec<Commit>,
    /// The commits of refs by full name. No ref is a directory of another one.
    refs: BTreeMap<String, String>,
    head: String,
}

impl Bare {
    pub fn of(world: &World, repository: &Repository) -> Self {
        let history = world.history(repository);
        let branch =
            if is_ref_name(&repository.default_branch) { &repository.default_branch } else { MAIN };
        let mut whole = Self { head: format!("refs/heads/{branch}"), ..Self::default() };
        let tip = history.head(branch).or_else(|| history.tip(repository));
        if let Some(tip) = tip {
            whole.refs.insert(whole.head.clone(), tip.sha.clone());
        }
        let heads: Vec<(&str, &Commit)> =
            history.branches().filter_map(|name| Some((name, history.head(name)?))).collect();
        for (name, head) in &heads {
            whole.point("heads", name, &head.sha);
        }
        let mut seen = BTreeSet::new();
        for head in heads.into_iter().map(|(_, head)| head).chain(tip) {
            let new = history.until(head).take_while(|commit| seen.insert(commit.sha.clone()));
            whole.commits.extend(new.cloned());
        }
        for pull in repository.issues.values() {
            let (Some(branch), Some(head)) = (&pull.pull_from, world.pull_head(&history, pull))
            else {
                continue;
            };
            whole.point("pull", &format!("{}/head", pull.number), &head.sha);
            // A merged branch may have been deleted.
            if pull.merged.is_none() {
                whole.point("heads", branch, &head.sha);
            }
            let new = history.until(&head).take_while(|commit| seen.insert(commit.sha.clone()));
            whole.commits.extend(new.cloned());
        }
        for release in repository.releases.values() {
            if let Some(tip) = history.tip(repository) {
                whole.point("tags", &release.tag, &tip.sha);
            }
        }
        whole
    }

    /// Adds a ref, unless its name is invalid or conflicts with another: git keeps refs as files.
    fn point(&mut self, space: &str, name: &str, at: &str) {
        let full = format!("refs/{space}/{name}");
        let below = format!("{full}/");
        let next = self.refs.range(below.clone()..).next();
        let is_directory = next.is_some_and(|(other, _)| other.starts_with(&below));
        let is_below = full.match_indices('/').any(|(end, _)| self.refs.contains_key(&full[..end]));
        if is_ref_name(name) && !is_directory && !is_below {
            self.refs.entry(full).or_insert_with(|| at.to_owned());
        }
    }

    /// The directories that git requires even when empty.
    pub const DIRECTORIES: [&'static str; 5] =
        ["objects", "objects/info", "objects/pack", "refs/heads", "refs/tags"];

    /// Lists every file by its path inside the repository.
    pub fn files(&self) -> impl Iterator<Item = io::Result<(String, Vec<u8>)>> {
        let mut packed = "# pack-refs with: peeled fully-peeled sorted \n".to_owned();
        packed.extend(self.refs.iter().map(|(name, id)| format!("{id} {name}\n")));
        let config = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n";
        let head = format!("ref: {}\n", self.head);
        let texts = [("HEAD", head), ("config", config.to_owned()), ("packed-refs", packed)];
        let texts = texts.into_iter().map(|(name, text)| Ok((name.to_owned(), text.into_bytes())));
        let mut written = BTreeSet::new();
        let objects = self.commits.iter().flat_map(move |commit| objects(commit, &mut written));
        texts.chain(objects.map(|object| object.file()))
    }
}

/// Returns the unwritten objects: the commit itself, its trees and its files.
fn objects(commit: &Commit, written: &mut BTreeSet<ObjectId>) -> Vec<Object> {
    let mut objects = vec![commit.object()];
    if ObjectId::parse(&commit.tree).is_some_and(|tree| written.contains(&tree)) {
        return objects;
    }
    let trees = commit.folders().into_iter().map(|folder| folder.object);
    objects.extend(trees.filter(|tree| written.insert(tree.id)));
    let files = commit.blobs.values().zip(commit.files.values());
    let new_files = files.filter(|(id, _)| written.insert(**id));
    objects.extend(new_files.map(|(_, content)| Object::new(Kind::Blob, content)));
    objects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_ref_is_a_directory_of_another_one() {
        let mut bare = Bare::default();
        for name in ["a/b", "a", "a/b/c", "a.b", "a/c", "a/b"] {
            bare.point("tags", name, "");
        }
        assert_eq!(
            bare.refs.keys().map(String::as_str).collect::<Vec<_>>(),
            ["refs/tags/a.b", "refs/tags/a/b", "refs/tags/a/c"]
        );
    }
}
