//! Git's own data: the objects and refs of a bare repository, as files.
//!
//! The emulator's repositories hold one README, so a repository here is a first commit with it, a commit for each pull's branch on top of
//! it, and a tag for each release. Objects are loose and refs packed: no name that a caller chose becomes the name of a file.

use std::collections::BTreeMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::clock::Timestamp;
use crate::emulator::validators::hex;
use crate::emulator::world::{Repository, World};

/// The longest ref that is written; git makes files of refs where it clones, and file systems have limits.
const REF_BYTES_MAX: usize = 200;
/// Where `HEAD` points when the default branch has a name that git would not take.
const MAIN: &str = "main";
const README: &str = "README.md";

/// The name of an object: SHA-1 over its kind, length and content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId([u8; 20]);

impl ObjectId {
    pub fn hex(self) -> String {
        hex(&self.0)
    }
}

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Blob,
    Tree,
    Commit,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Blob => "blob",
            Self::Tree => "tree",
            Self::Commit => "commit",
        }
    }
}

/// An object as git hashes and stores it.
#[derive(Debug)]
struct Object {
    id: ObjectId,
    raw: Vec<u8>,
}

impl Object {
    fn new(kind: Kind, content: &[u8]) -> Self {
        let mut raw = format!("{} {}\0", kind.name(), content.len()).into_bytes();
        raw.extend_from_slice(content);
        let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &raw);
        let mut id = [0; 20];
        id.iter_mut().zip(digest.as_ref()).for_each(|(to, from)| *to = *from);
        Self { id: ObjectId(id), raw }
    }

    fn file(&self) -> io::Result<(String, Vec<u8>)> {
        let name = self.id.hex();
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&self.raw)?;
        Ok((format!("objects/{}/{}", &name[..2], &name[2..]), encoder.finish()?))
    }
}

/// The name that git gives to a file with this content.
pub fn blob_id(content: &[u8]) -> ObjectId {
    Object::new(Kind::Blob, content).id
}

/// A bare repository.
#[derive(Debug)]
pub struct Bare {
    objects: Vec<Object>,
    /// By full name. No ref is a directory of another one.
    refs: BTreeMap<String, ObjectId>,
    head: String,
    base: ObjectId,
    /// The commits of the pulls' branches, by number.
    pulls: BTreeMap<u64, ObjectId>,
}

impl Bare {
    /// What a repository holds.
    pub fn of(world: &World, repository: &Repository) -> Self {
        let readme = Object::new(Kind::Blob, repository.readme.as_bytes());
        let tree = Object::new(Kind::Tree, &[format!("100644 {README}\0").as_bytes(), readme.id.0.as_slice()].concat());
        let owner = world.owner_login(repository.owner);
        let first = commit(tree.id, None, owner, repository.pushed_at, "Begin");
        let base = first.id;
        let branch = if is_ref_name(&repository.default_branch) { &repository.default_branch } else { MAIN };
        let head = format!("refs/heads/{branch}");
        let mut whole = Self { objects: Vec::new(), refs: BTreeMap::from([(head.clone(), base)]), head, base, pulls: BTreeMap::new() };
        for issue in repository.issues.values() {
            let Some(branch) = &issue.pull_from else { continue };
            let change = commit(tree.id, Some(base), world.login(issue.author), issue.created_at, &issue.title);
            whole.pulls.insert(issue.number, change.id);
            whole.point("heads", branch, change.id);
            whole.point("pull", &format!("{}/head", issue.number), change.id);
            whole.objects.push(change);
        }
        for release in repository.releases.values() {
            whole.point("tags", &release.tag, base);
        }
        whole.objects.extend([readme, tree, first]);
        whole
    }

    /// The commit that the default branch points to.
    pub fn base(&self) -> ObjectId {
        self.base
    }

    /// The commit of a pull's branch.
    pub fn pull(&self, number: u64) -> Option<ObjectId> {
        self.pulls.get(&number).copied()
    }

    /// Adds a ref, unless its name is none or in the way of another's: git keeps refs as files.
    fn point(&mut self, space: &str, name: &str, at: ObjectId) {
        let full = format!("refs/{space}/{name}");
        let below = format!("{full}/");
        let is_directory = self.refs.range(below.clone()..).next().is_some_and(|(other, _)| other.starts_with(&below));
        let is_below = full.match_indices('/').any(|(end, _)| self.refs.contains_key(&full[..end]));
        if is_ref_name(name) && !is_directory && !is_below {
            self.refs.entry(full).or_insert(at);
        }
    }

    /// The directories that git looks for even when they are empty.
    pub const DIRECTORIES: [&'static str; 5] = ["objects", "objects/info", "objects/pack", "refs/heads", "refs/tags"];

    /// Every file by its path inside the repository.
    pub fn files(&self) -> impl Iterator<Item = io::Result<(String, Vec<u8>)>> {
        let mut packed = "# pack-refs with: peeled fully-peeled sorted \n".to_owned();
        packed.extend(self.refs.iter().map(|(name, id)| format!("{} {name}\n", id.hex())));
        let texts = [
            ("HEAD", format!("ref: {}\n", self.head)),
            ("config", "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n".to_owned()),
            ("packed-refs", packed),
        ];
        texts.into_iter().map(|(name, text)| Ok((name.to_owned(), text.into_bytes()))).chain(self.objects.iter().map(Object::file))
    }
}

fn commit(tree: ObjectId, parent: Option<ObjectId>, login: &str, at: Timestamp, title: &str) -> Object {
    // What would end a name or a line is left out.
    let name: String = login.chars().filter(|c| !c.is_control() && !matches!(c, '<' | '>')).collect();
    let parent = parent.map_or_else(String::new, |parent| format!("parent {}\n", parent.hex()));
    let who = format!("{name} <{name}@example.com> {} +0000", at.as_secs());
    let message = title.replace(['\0', '\n', '\r'], " ");
    let content = format!("tree {}\n{parent}author {who}\ncommitter {who}\n\n{message}\n", tree.hex());
    Object::new(Kind::Commit, content.as_bytes())
}

/// Whether git takes this as the name of a branch or tag (git-check-ref-format), and a file system too.
fn is_ref_name(name: &str) -> bool {
    let is_part =
        |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with('.') && !part.to_ascii_lowercase().ends_with(".lock");
    let is_forbidden = |c: char| c.is_control() || c.is_whitespace() || matches!(c, '~' | '^' | ':' | '?' | '*' | '[' | '\\');
    name.len() <= REF_BYTES_MAX
        && name.split('/').all(is_part)
        && !name.starts_with('-')
        && !name.contains("..")
        && !name.contains("@{")
        && !matches!(name, "@" | "HEAD")
        && !name.chars().any(is_forbidden)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_the_names_that_git_gives_them() {
        // git hash-object -t blob --stdin < /dev/null; printf 'hello\n' | git hash-object --stdin
        assert_eq!(blob_id(b"").hex(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(blob_id(b"hello\n").hex(), "ce013625030ba8dba906f756967f9e9ca394464a");
        assert_eq!(Object::new(Kind::Tree, b"").id.hex(), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
    }

    #[test]
    fn names_that_git_would_not_take_are_not_refs() {
        for name in ["main", "topic/x", "v1.0.0", "ünïcode", "a-b"] {
            assert!(is_ref_name(name), "{name}");
        }
        for name in
            ["", "/", "a//b", "../x", "a..b", ".a", "a.lock", "a.lock/b", "a b", "a\nb", "a:b", "@", "x@{1}", "a/", "-x", "HEAD", "a\0"]
        {
            assert!(!is_ref_name(name), "{name:?}");
        }
        assert!(!is_ref_name(&"x".repeat(201)));
    }

    #[test]
    fn no_ref_is_a_directory_of_another_one() {
        let id = blob_id(b"");
        let mut bare = Bare { objects: Vec::new(), refs: BTreeMap::new(), head: String::new(), base: id, pulls: BTreeMap::new() };
        for name in ["a/b", "a", "a/b/c", "a.b", "a/c", "a/b"] {
            bare.point("tags", name, id);
        }
        assert_eq!(bare.refs.keys().map(String::as_str).collect::<Vec<_>>(), ["refs/tags/a.b", "refs/tags/a/b", "refs/tags/a/c"]);
    }
}
