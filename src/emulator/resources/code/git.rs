//! The git database: blobs, trees, commits and annotated tags by id, and refs by prefix.
//!
//! Created blobs and trees go to the generic store; a commit of them joins the repository's history
//! with its files. All ids are git's own. A tree lists all files below it and is found by branch or
//! commit too. Commits do not keep file modes.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::contents::{READ, WRITE};
use crate::clock::Timestamp;
use crate::emulator::http::{ApiError, Fields, Reply, iso};
use crate::emulator::render::{extend, node_id, object};
use crate::emulator::routing::{Call, Outcome, Route};
use crate::emulator::world::git::objects::{
    FILE_MODE, Leaf, ObjectId, TagFacts, blob_id, is_path, make_way, root_tree, tag,
};
use crate::emulator::world::{Draft, Repository, Tree};

pub const ROUTES: &[Route] = &[
    Route::post("/repos/{owner}/{repo}/git/blobs", WRITE, create_blob),
    Route::get("/repos/{owner}/{repo}/git/blobs/{file_sha}", READ, get_blob),
    Route::post("/repos/{owner}/{repo}/git/trees", WRITE, create_tree),
    Route::get("/repos/{owner}/{repo}/git/trees/{tree_sha}", READ, get_tree),
    Route::post("/repos/{owner}/{repo}/git/commits", WRITE, create_commit),
    Route::get("/repos/{owner}/{repo}/git/commits/{commit_sha}", READ, get_commit),
    Route::post("/repos/{owner}/{repo}/git/tags", WRITE, create_tag),
    Route::get("/repos/{owner}/{repo}/git/tags/{tag_sha}", READ, get_tag),
    Route::get("/repos/{owner}/{repo}/git/matching-refs/{*ref}", READ, matching_refs),
    // The old address of a single ref, which clients still use.
    Route::get("/repos/{owner}/{repo}/git/refs/{*ref}", READ, one_ref),
];

const ENTRIES_MAX: usize = 200;

/// The kinds of stored objects, as in their addresses. Commits are in the history.
const BLOBS: &str = "blobs";
const TREES: &str = "trees";
const TAGS: &str = "tags";

fn collection(call: &Call<'_>, kind: &str) -> String {
    format!("repository/{}/git/{kind}", call.repository)
}

fn url(call: &Call<'_>, kind: &str, sha: &str) -> Result<String, ApiError> {
    Ok(format!("{}/git/{kind}/{sha}", call.renderer().repository_url(call.repository()?)))
}

fn keep<'f>(
    call: &mut Call<'_>,
    kind: &str,
    sha: &str,
    fields: impl IntoIterator<Item = (&'f str, Value)>,
) -> Result<(), ApiError> {
    let (id, collection) = (call.world.next_id(), collection(call, kind));
    call.store(&collection, sha, id, object(fields)).map(drop)
}

fn kept<'a>(call: &'a Call<'_>, kind: &str, sha: &str) -> Option<&'a Map<String, Value>> {
    call.world.collections.collection(&collection(call, kind))?.get(sha).map(|item| &item.fields)
}

fn create_blob(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Blob", call.body)?;
    fields.require("content");
    let content = fields.string("content").unwrap_or_default();
    let bytes = match fields.string("encoding").as_deref() {
        None | Some("utf-8") => Some(content.into_bytes()),
        Some("base64") => STANDARD.decode(content.split_whitespace().collect::<String>()).ok(),
        Some(_) => {
            fields.invalid("encoding", "encoding must be utf-8 or base64");
            Some(Vec::new())
        }
    };
    if bytes.is_none() {
        fields.invalid("content", "content is not what encoding says");
    }
    fields.check()?;
    let sha = keep_blob(call, &bytes.unwrap_or_default())?;
    Ok(Reply::created_at_url(json!({ "sha": sha, "url": url(call, BLOBS, &sha)? })))
}

fn keep_blob(call: &mut Call<'_>, bytes: &[u8]) -> Result<String, ApiError> {
    let sha = blob_id(bytes).hex();
    keep(call, BLOBS, &sha, [("content", json!(STANDARD.encode(bytes)))])?;
    Ok(sha)
}

fn blob(call: &Call<'_>, sha: &str) -> Result<Bytes, ApiError> {
    let created = kept(call, BLOBS, sha);
    if let Some(content) = created.and_then(|fields| fields.get("content")?.as_str()) {
        return Ok(STANDARD.decode(content).unwrap_or_default().into());
    }
    call.history()?.content(sha).cloned().ok_or(ApiError::NotFound)
}

fn get_blob(call: &mut Call<'_>) -> Outcome {
    let sha = call.params.get("file_sha");
    let bytes = blob(call, sha)?;
    Ok(Reply::ok(json!({
        "sha": sha, "node_id": node_id("Blob", 0) + sha, "url": url(call, BLOBS, sha)?, "size": bytes.len(),
        "content": STANDARD.encode(&bytes), "encoding": "base64",
    })))
}

/// The entries of a tree by path, subfolders included: mode, kind and id.
type Entries = BTreeMap<String, (String, String, String)>;

/// Returns the entries of a created tree, or of a tree, branch or commit of the history.
fn entries(call: &Call<'_>, name: &str) -> Result<Entries, ApiError> {
    if let Some(tree) = kept(call, TREES, name) {
        let read = |(path, entry): (&String, &Value)| {
            let text =
                |field: &str| entry.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
            (path.clone(), (text("mode"), text("type"), text("sha")))
        };
        return Ok(tree.iter().map(read).collect());
    }
    let history = call.history()?;
    let of_commit = history.named(name).map(|commit| BTreeMap::clone(&commit.blobs));
    let blobs = of_commit.or_else(|| history.tree(name)).ok_or(ApiError::NotFound)?;
    let file = |(path, id): (String, ObjectId)| {
        (path, (FILE_MODE.to_owned(), "blob".to_owned(), id.hex()))
    };
    Ok(blobs.into_iter().map(file).collect())
}

fn tree_id<'a>(entries: &'a Entries) -> String {
    let leaf = |(path, (mode, _, sha)): (&'a String, &'a (String, String, String))| {
        Some(Leaf { path, mode, id: ObjectId::parse(sha)? })
    };
    let leaves: Vec<Leaf<'a>> = entries.iter().filter_map(leaf).collect();
    root_tree(&leaves).hex()
}

fn render_tree(call: &Call<'_>, name: &str) -> Result<Value, ApiError> {
    let mut tree = Vec::new();
    let entries = entries(call, name)?;
    let sha = tree_id(&entries);
    for (path, (mode, kind, sha)) in entries {
        let mut entry = json!({ "path": path, "mode": mode, "type": kind, "sha": sha, "url": url(call, &format!("{kind}s"), &sha)? });
        if let Ok(bytes) = blob(call, &sha) {
            extend(&mut entry, json!({ "size": bytes.len() }));
        }
        tree.push(entry);
    }
    Ok(json!({ "sha": sha, "url": url(call, TREES, &sha)?, "tree": tree, "truncated": false }))
}

fn get_tree(call: &mut Call<'_>) -> Outcome {
    Ok(Reply::ok(render_tree(call, call.params.get("tree_sha"))?))
}

/// The modes and kinds of objects (git-ls-tree). Folders are not stored, only their content.
const MODES: [(&str, &str); 5] = [
    ("100644", "blob"),
    ("100755", "blob"),
    ("120000", "blob"),
    ("040000", "tree"),
    ("160000", "commit"),
];

/// An entry with a null id deletes its path; one with content creates a blob. `None` for an invalid
/// entry.
fn apply(
    call: &Call<'_>,
    entry: &Value,
    tree: &mut Entries,
    contents: &mut Vec<Vec<u8>>,
) -> Option<()> {
    let text = |field: &str| entry.get(field).and_then(Value::as_str);
    let (path, mode) = (text("path").filter(|path| is_path(path))?, text("mode")?);
    let (_, kind) = MODES.iter().find(|(known, _)| *known == mode)?;
    if text("type").is_some_and(|given| given != *kind) {
        return None;
    }
    make_way(tree, path);
    if entry.get("sha").is_some_and(Value::is_null) {
        return Some(());
    }
    let sha = match (text("sha"), *kind) {
        (Some(sha), "tree") => {
            let inside = entries(call, sha).ok()?;
            tree.extend(inside.into_iter().map(|(rest, entry)| (format!("{path}/{rest}"), entry)));
            return Some(());
        }
        (Some(sha), "blob") => blob(call, sha).ok().map(|_| sha.to_owned())?,
        (Some(sha), _) => ObjectId::parse(sha)?.hex(),
        (None, "blob") => {
            let content = text("content").unwrap_or_default().as_bytes();
            contents.push(content.to_vec());
            blob_id(content).hex()
        }
        (None, _) => return None,
    };
    tree.insert(path.to_owned(), (mode.to_owned(), (*kind).to_owned(), sha));
    Some(())
}

fn create_tree(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Tree", call.body)?;
    let base = fields.string("base_tree").map(|base| entries(call, &base));
    if matches!(base, Some(Err(_))) {
        fields.invalid("base_tree", "base_tree is no tree of the repository");
    }
    let mut tree: Entries = base.and_then(Result::ok).unwrap_or_default();
    let mut contents = Vec::new();
    let given = fields.value("tree").and_then(Value::as_array).cloned();
    let mut applies = |entry: &Value| {
        apply(call, entry, &mut tree, &mut contents).is_some() && tree.len() <= ENTRIES_MAX
    };
    match given {
        Some(given) if given.len() <= ENTRIES_MAX => {
            if !given.iter().all(&mut applies) {
                fields.invalid("tree", "tree must have entries with path, mode and the sha of what there is, 200 files in all");
            }
        }
        None if !fields.has("tree") => fields.missing("tree"),
        _ => fields
            .invalid("tree", "tree must be an array of at most 200 entries with path and mode"),
    }
    if tree.keys().any(|path| !is_path(path)) {
        fields.invalid("tree", "tree contains a malformed path component");
    }
    fields.check()?;
    for content in contents {
        keep_blob(call, &content)?;
    }
    let sha = tree_id(&tree);
    let kept = tree.iter().map(|(path, (mode, kind, sha))| {
        (path.as_str(), json!({ "mode": mode, "type": kind, "sha": sha }))
    });
    keep(call, TREES, &sha, kept)?;
    Ok(Reply::created_at_url(render_tree(call, &sha)?))
}

/// Returns the files of a tree, without entries that name unknown blobs.
fn files(call: &Call<'_>, tree: &str) -> Result<Tree, ApiError> {
    let there = entries(call, tree)?.into_iter().filter(|(_, (_, kind, _))| kind == "blob");
    Ok(there.filter_map(|(path, (_, _, sha))| Some((path, blob(call, &sha).ok()?))).collect())
}

fn create_commit(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Commit", call.body)?;
    let (message, tree) = (fields.required_string("message"), fields.required_string("tree"));
    let parents = fields.strings("parents").unwrap_or_default();
    let files = files(call, &tree);
    if !tree.is_empty() && files.is_err() {
        fields.invalid("tree", "tree is no tree of the repository");
    }
    let history = call.history()?;
    if parents.iter().any(|parent| history.commit(parent).is_none()) {
        fields.invalid("parents", "parents must be commits of the repository");
    }
    fields.check()?;
    // The history is linear: of several parents only the first counts.
    let draft = Draft {
        parent: parents.into_iter().next(),
        message,
        author: call.world.author(call.actor()),
        at: call.now,
        files: files?,
    };
    let history = call.world.history_mut(call.repository).ok_or(ApiError::NotFound)?;
    let sha = history.keep(draft)?;
    Ok(Reply::created_at_url(render_commit(call, &sha)?))
}

fn render_commit(call: &Call<'_>, sha: &str) -> Result<Value, ApiError> {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    Ok(call.renderer().git_commit(repository, history.commit(sha).ok_or(ApiError::NotFound)?))
}

fn get_commit(call: &mut Call<'_>) -> Outcome {
    Ok(Reply::ok(render_commit(call, call.params.get("commit_sha"))?))
}

fn create_tag(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Tag", call.body)?;
    let (name, message, object) = (
        fields.required_string("tag"),
        fields.required_string("message"),
        fields.required_string("object"),
    );
    let kind = fields.string("type").unwrap_or_else(|| "commit".to_owned());
    let history = call.history()?;
    if !object.is_empty() && kind == "commit" && history.commit(&object).is_none() {
        fields.invalid("object", "object is no commit of the repository");
    }
    fields.check()?;
    let login = call.world.login(call.actor());
    let email = format!("{login}@example.com");
    let (object, kind, at) = (&*object, &*kind, call.now);
    let facts = TagFacts { object, kind, tag: &name, name: login, email: &email, at };
    let sha = tag(facts, &message).id.hex();
    let kept = [
        ("tag", json!(name)),
        ("message", json!(message)),
        ("object", json!(object)),
        ("type", json!(kind)),
        ("by", json!(call.actor())),
        ("at", json!(at.as_millis())),
    ];
    keep(call, TAGS, &sha, kept)?;
    Ok(Reply::created_at_url(render_tag(call, &sha)?))
}

fn render_tag(call: &Call<'_>, sha: &str) -> Result<Value, ApiError> {
    let fields = kept(call, TAGS, sha).ok_or(ApiError::NotFound)?;
    let login = call.world.login(fields.get("by").and_then(Value::as_u64).unwrap_or(0));
    let at = Timestamp::from_millis(fields.get("at").and_then(Value::as_u64).unwrap_or(0));
    let object = fields.get("object").and_then(Value::as_str).unwrap_or("");
    Ok(json!({
        "sha": sha, "node_id": node_id("Tag", 0) + sha, "url": url(call, TAGS, sha)?,
        "tag": fields.get("tag"), "message": fields.get("message"),
        "tagger": { "name": login, "email": format!("{login}@example.com"), "date": iso(at) },
        "object": { "type": fields.get("type"), "sha": object, "url": url(call, "commits", object)? },
        "verification": { "verified": false, "reason": "unsigned", "signature": null, "payload": null },
    }))
}

fn get_tag(call: &mut Call<'_>) -> Outcome {
    Ok(Reply::ok(render_tag(call, call.params.get("tag_sha"))?))
}

fn matching_refs(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let beginning = format!("refs/{}", call.params.get("ref"));
    let found = refs(call, repository).filter(|(name, _)| name.starts_with(&beginning));
    call.page(found, |renderer, (name, sha)| renderer.reference(repository, &name, &sha))
}

fn one_ref(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let wanted = format!("refs/{}", call.params.get("ref"));
    let found = refs(call, repository).find(|(name, _)| *name == wanted);
    let (name, sha) = found.ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(call.renderer().reference(repository, &name, &sha)))
}

fn refs(call: &Call<'_>, repository: &Repository) -> impl Iterator<Item = (String, String)> {
    let history = call.world.history(repository);
    let head =
        |branch: &str| Some((format!("refs/heads/{branch}"), history.head(branch)?.sha.clone()));
    let mut refs: Vec<(String, String)> = history.branches().filter_map(head).collect();
    let tip = history.tip(repository).map(|tip| tip.sha.clone()).unwrap_or_default();
    let tags = repository.releases.values().map(|release| format!("refs/tags/{}", release.tag));
    refs.extend(tags.map(|tag| (tag, tip.clone())));
    refs.into_iter()
}
