//! Git objects as git hashes and stores them (gitformat-loose, git-hash-object): blobs, trees,
//! commits, annotated tags, and the paths a tree may hold. Packs, signatures and SHA-256
//! repositories are left out.

use std::collections::BTreeMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use strum::IntoStaticStr;

use crate::clock::Timestamp;
use crate::emulator::http::hex;

/// The mode of a file that is neither executable nor a link.
pub const FILE_MODE: &str = "100644";
/// The mode in trees; the API adds a leading zero.
const FOLDER_MODE: &str = "40000";
/// The running service's limit for a path, and the depth limit here.
const PATH_BYTES_MAX: usize = 1024;
const PATH_PARTS_MAX: usize = 32;

/// The SHA-1 of an object's kind, length and content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId([u8; 20]);

impl ObjectId {
    pub fn hex(self) -> String {
        hex(&self.0)
    }

    /// Parses forty lower-case hexadecimal digits, as git writes them.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let mut id = [0; 20];
        if text.len() != 2 * id.len() || !text.bytes().all(is_digit) {
            return None;
        }
        for (byte, digits) in id.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(id))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Kind {
    Blob,
    Tree,
    Commit,
    Tag,
}

#[derive(Debug)]
pub struct Object {
    pub id: ObjectId,
    raw: Vec<u8>,
}

impl Object {
    pub fn new(kind: Kind, content: &[u8]) -> Self {
        let mut raw = format!("{} {}\0", kind.into_str(), content.len()).into_bytes();
        raw.extend_from_slice(content);
        let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &raw);
        let mut id = [0; 20];
        id.copy_from_slice(digest.as_ref());
        Self { id: ObjectId(id), raw }
    }

    /// Returns the object's path as a loose object, and the bytes of that file.
    pub fn file(&self) -> io::Result<(String, Vec<u8>)> {
        let name = self.id.hex();
        let (folder, rest) = name.split_at(2);
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(&self.raw)?;
        Ok((format!("objects/{folder}/{rest}"), encoder.finish()?))
    }
}

pub fn blob_id(content: &[u8]) -> ObjectId {
    Object::new(Kind::Blob, content).id
}

#[derive(Clone, Copy, Debug)]
pub struct Leaf<'a> {
    pub path: &'a str,
    pub mode: &'a str,
    pub id: ObjectId,
}

#[derive(Debug)]
pub struct Folder<'a> {
    /// Without a trailing slash; empty for the root.
    pub path: &'a str,
    pub object: Object,
}

/// Returns the trees of all folders, the root last. The leaves are sorted by path, and no path is a
/// folder of another ([`make_way`]).
pub fn folders<'a>(leaves: &[Leaf<'a>]) -> Vec<Folder<'a>> {
    let mut made = Vec::new();
    fold(leaves, 0, &mut made);
    made
}

pub fn root_tree(leaves: &[Leaf<'_>]) -> ObjectId {
    fold(leaves, 0, &mut Vec::new())
}

/// The leaves agree up to `start`. Sorting by whole paths gives git's order, which compares a
/// folder's name as if it ended in a slash.
fn fold<'a>(leaves: &[Leaf<'a>], start: usize, trees: &mut Vec<Folder<'a>>) -> ObjectId {
    let part = |leaf: &Leaf<'a>| {
        let rest = leaf.path.get(start..).unwrap_or("");
        rest.split_once('/').map_or(rest, |(part, _)| part)
    };
    let mut content = Vec::new();
    for group in leaves.chunk_by(|one, other| part(one) == part(other)) {
        let Some(first) = group.first() else { continue };
        let name = part(first);
        let end = start + name.len();
        let (mode, id) = if end == first.path.len() {
            (first.mode, first.id)
        } else {
            (FOLDER_MODE, fold(group, end + 1, trees))
        };
        content.extend_from_slice(format!("{mode} {name}\0").as_bytes());
        content.extend_from_slice(&id.0);
    }
    let path =
        leaves.first().and_then(|leaf| leaf.path.get(..start.saturating_sub(1))).unwrap_or("");
    let object = Object::new(Kind::Tree, &content);
    let id = object.id;
    trees.push(Folder { path, object });
    id
}

/// Removes conflicting entries: `path` itself, everything below it, files in place of its folders.
pub fn make_way<V>(files: &mut BTreeMap<String, V>, path: &str) {
    let below = format!("{path}/");
    let inside = files.range(below.clone()..).map(|(path, _)| path);
    let inside: Vec<String> = inside.take_while(|path| path.starts_with(&below)).cloned().collect();
    let above = path.match_indices('/').filter_map(|(end, _)| path.get(..end));
    for gone in inside.iter().map(String::as_str).chain(above).chain([path]) {
        files.remove(gone);
    }
}

/// Returns true when `git fsck --strict` accepts the path of a file.
pub fn is_path(path: &str) -> bool {
    path.len() <= PATH_BYTES_MAX
        && path.split('/').count() <= PATH_PARTS_MAX
        && !path.contains('\0')
        && path.split('/').all(is_path_part)
}

fn is_path_part(part: &str) -> bool {
    // Other case, the short name, trailing dots, streams and ignored invisible characters.
    let is_ignored = |c: char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let is_git = |name: &str| {
        let name: String = name.chars().filter(|c| !is_ignored(*c)).collect();
        let name = name.trim_end_matches([' ', '.']);
        name.eq_ignore_ascii_case(".git") || name.eq_ignore_ascii_case("git~1")
    };
    !matches!(part, "" | "." | "..") && !part.split(['\\', ':']).any(is_git)
}

/// Returns a name as git writes it beside an address; `None` when nothing remains.
pub fn person_name(name: &str) -> Option<String> {
    let kept: String =
        name.chars().filter(|c| !c.is_control() && !matches!(c, '<' | '>')).collect();
    let is_crud =
        |c: char| c.is_whitespace() || matches!(c, '.' | ',' | ':' | ';' | '"' | '\\' | '\'');
    let kept = kept.trim_matches(is_crud);
    (!kept.is_empty()).then(|| kept.to_owned())
}

#[derive(Clone, Copy, Debug)]
pub struct TagFacts<'a> {
    pub object: &'a str,
    pub kind: &'a str,
    pub tag: &'a str,
    pub name: &'a str,
    pub email: &'a str,
    pub at: Timestamp,
}

pub fn tag(facts: TagFacts<'_>, message: &str) -> Object {
    let TagFacts { object, kind, tag, name, email, at } = facts;
    let (tagger, message) = (signature(name, email, at), completed(message));
    let content = format!("object {object}\ntype {kind}\ntag {tag}\ntagger {tagger}\n\n{message}");
    Object::new(Kind::Tag, content.as_bytes())
}

pub fn signature(name: &str, email: &str, at: Timestamp) -> String {
    format!("{name} <{email}> {} +0000", at.as_secs())
}

/// Completes the last line as `git commit-tree -m` does. Git takes no NUL.
pub fn completed(message: &str) -> String {
    let end = if message.ends_with('\n') { "" } else { "\n" };
    message.replace('\0', "") + end
}

/// The longest name of a ref; a clone makes files of refs, and file systems have limits.
const REF_BYTES_MAX: usize = 200;
/// True when git (git-check-ref-format) and file systems accept the name.
pub fn is_ref_name(name: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && !part.ends_with('.')
            && !part.to_ascii_lowercase().ends_with(".lock")
    };
    let is_forbidden = |c: char| {
        c.is_control() || c.is_whitespace() || matches!(c, '~' | '^' | ':' | '?' | '*' | '[' | '\\')
    };
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
    fn objects_have_the_ids_that_git_gives_them() {
        // git hash-object -t blob --stdin < /dev/null; printf 'hello\n' | git hash-object --stdin;
        // git hash-object -t tree /dev/null
        assert_eq!(blob_id(b"").hex(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
        assert_eq!(blob_id(b"hello\n").hex(), "ce013625030ba8dba906f756967f9e9ca394464a");
        assert_eq!(root_tree(&[]).hex(), "4b825dc642cb6eb9a060e54bf8d69288fbee4904");
        // The commit `First` of the tests of commits; git tag -a v1 -m One; git rev-parse v1
        let object = "925e0f1509a5a952c7060ed3e341476c15b15ec1";
        let at = Timestamp::from_millis(1_700_000_000_999);
        let facts = TagFacts {
            object,
            kind: "commit",
            tag: "v1",
            name: "Ada L",
            email: "ada@example.com",
            at,
        };
        assert_eq!(tag(facts, "One").id.hex(), "fcbac863951a1165edacba80963b8043352b26f0");
    }

    #[test]
    fn an_object_id_is_forty_lower_case_hex_digits() {
        let id = blob_id(b"");
        assert_eq!(ObjectId::parse(&id.hex()), Some(id));
        for bad in [
            "",
            "e6",
            "E69DE29BB2D1D6434B8B29AE775AD8C2E48C5391",
            &format!("{}0", id.hex()),
            &"g".repeat(40),
            &"é".repeat(20),
        ] {
            assert_eq!(ObjectId::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn paths_that_git_rejects_are_invalid() {
        for path in
            ["a", "a/b.c", ".github/x", ".gitignore", "é/🦀", "a b", "...", "git", "-x", "a\\b"]
        {
            assert!(is_path(path), "{path:?}");
        }
        let (deep, long) = (["a"; 33].join("/"), "a".repeat(1025));
        let bad = [
            "",
            "/a",
            "a/",
            "a//b",
            ".",
            "a/../b",
            ".git",
            "a/.GIT/b",
            "git~1",
            ".git .",
            ".git::$DATA",
            "a\\.git",
            ".g\u{200c}it",
            "a\0",
        ];
        for path in bad.into_iter().chain([deep.as_str(), long.as_str()]) {
            assert!(!is_path(path), "{path:?}");
        }
    }

    #[test]
    fn a_path_replaces_conflicting_files_and_folders() {
        let mut files =
            BTreeMap::from(["a", "b/c", "b/d/e", "b.x", "b0"].map(|path| (path.to_owned(), path)));
        make_way(&mut files, "a/new");
        make_way(&mut files, "b");
        assert_eq!(files.keys().map(String::as_str).collect::<Vec<_>>(), ["b.x", "b0"]);
    }

    #[test]
    fn a_persons_name_is_written_as_git_writes_it() {
        assert_eq!(person_name(" Ada <L>\n.").as_deref(), Some("Ada L"));
        assert_eq!(person_name("<>., \u{0}"), None);
    }

    #[test]
    fn names_that_git_rejects_are_not_refs() {
        for name in ["main", "topic/x", "v1.0.0", "ünïcode", "a-b"] {
            assert!(is_ref_name(name), "{name}");
        }
        for name in [
            "", "/", "a//b", "../x", "a..b", ".a", "a.lock", "a.lock/b", "a b", "a\nb", "a:b", "@",
            "x@{1}", "a/", "-x", "HEAD", "a\0",
        ] {
            assert!(!is_ref_name(name), "{name:?}");
        }
        assert!(!is_ref_name(&"x".repeat(201)));
    }
}
