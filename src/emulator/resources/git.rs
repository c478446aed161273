//! The git database: blobs, trees, commits and annotated tags by their names, and refs by their beginning.
//!
//! Blobs and trees that callers make lie on the shelves; a commit made of them has their files and joins the repository's history. The tree of
//! a commit goes by the commit's own name.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

use super::branches::{READ, WRITE, too_much};
use crate::clock::Timestamp;
use crate::emulator::call::Call;
use crate::emulator::fault::{Code, Fault};
use crate::emulator::fields::Fields;
use crate::emulator::inventory::Thing;
use crate::emulator::pagination::{self, USUAL};
use crate::emulator::render::{Renderer, extend, node_id};
use crate::emulator::reply::Reply;
use crate::emulator::route::{Outcome, Route, Verb};
use crate::emulator::timestamps::iso;
use crate::emulator::validators::hex;
use crate::emulator::world::{Draft, Repository, Tree};

pub const ROUTES: &[Route] = &[
    Route::new(Verb::Post, "/repos/{owner}/{repo}/git/blobs", WRITE, create_blob),
    Route::new(Verb::Get, "/repos/{owner}/{repo}/git/blobs/{file_sha}", READ, get_blob),
    Route::new(Verb::Post, "/repos/{owner}/{repo}/git/trees", WRITE, create_tree),
    Route::new(Verb::Get, "/repos/{owner}/{repo}/git/trees/{tree_sha}", READ, get_tree),
    Route::new(Verb::Post, "/repos/{owner}/{repo}/git/commits", WRITE, create_commit),
    Route::new(Verb::Get, "/repos/{owner}/{repo}/git/commits/{commit_sha}", READ, get_commit),
    Route::new(Verb::Post, "/repos/{owner}/{repo}/git/tags", WRITE, create_tag),
    Route::new(Verb::Get, "/repos/{owner}/{repo}/git/tags/{tag_sha}", READ, get_tag),
    Route::new(Verb::Get, "/repos/{owner}/{repo}/git/matching-refs/{*ref}", READ, matching_refs),
    // The old address of one ref, which clients still ask for.
    Route::new(Verb::Get, "/repos/{owner}/{repo}/git/refs/{*ref}", READ, one_ref),
];

/// Entries of one tree.
const ENTRIES_MAX: usize = 200;

/// A kind of object, as the routes spell it.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Blobs,
    Trees,
    Tags,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Blobs => "blobs",
            Self::Trees => "trees",
            Self::Tags => "tags",
        }
    }

    fn shelf(self, call: &Call<'_>) -> String {
        format!("repository/{}/git/{}", call.repository, self.name())
    }
}

/// The name of what has these bytes: forty hexadecimal digits.
pub fn object_name(bytes: &[u8]) -> String {
    hex(&digest(&SHA256, bytes).as_ref()[..20])
}

fn url(call: &Call<'_>, collection: &str, sha: &str) -> Result<String, Fault> {
    Ok(format!("{}/git/{collection}/{sha}", Renderer::of(call).repository_url(call.repository()?)))
}

fn keep(call: &mut Call<'_>, kind: Kind, sha: &str, fields: Value) -> Result<(), Fault> {
    let fields = if let Value::Object(fields) = fields { fields } else { Map::new() };
    let thing = Thing { id: call.world.next_id(), fields, created_at: call.now, updated_at: call.now };
    let shelf = kind.shelf(call);
    Ok(call.world.shelves.put(&shelf, sha, thing)?)
}

fn kept<'a>(call: &'a Call<'_>, kind: Kind, sha: &str) -> Option<&'a Map<String, Value>> {
    call.world.shelves.shelf(&kind.shelf(call))?.get(sha).map(|thing| &thing.fields)
}

fn created(call: &Call<'_>, collection: &str, sha: &str, value: Value) -> Outcome {
    Ok(Reply::created(value, &url(call, collection, sha)?))
}

fn create_blob(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Blob", call.body)?;
    if !fields.has("content") {
        fields.reject("content", Code::MissingField, "content is required");
    }
    let content = fields.string("content").unwrap_or_default();
    let bytes = match fields.string("encoding").as_deref() {
        None | Some("utf-8") => Some(content.into_bytes()),
        Some("base64") => STANDARD.decode(content.split_whitespace().collect::<String>()).ok(),
        Some(_) => {
            fields.reject("encoding", Code::Invalid, "encoding must be utf-8 or base64");
            Some(Vec::new())
        }
    };
    if bytes.is_none() {
        fields.reject("content", Code::Invalid, "content is not what encoding says");
    }
    fields.check()?;
    let sha = keep_blob(call, &bytes.unwrap_or_default())?;
    let value = json!({ "sha": sha, "url": url(call, "blobs", &sha)? });
    created(call, "blobs", &sha, value)
}

fn keep_blob(call: &mut Call<'_>, bytes: &[u8]) -> Result<String, Fault> {
    let sha = object_name(bytes);
    keep(call, Kind::Blobs, &sha, json!({ "content": STANDARD.encode(bytes) }))?;
    Ok(sha)
}

/// The bytes of a blob: one that was made, or a file of a branch.
fn blob(call: &Call<'_>, sha: &str) -> Result<Bytes, Fault> {
    if let Some(content) = kept(call, Kind::Blobs, sha).and_then(|fields| fields.get("content")?.as_str()) {
        return Ok(STANDARD.decode(content).unwrap_or_default().into());
    }
    let history = call.world.history(call.repository()?);
    let heads = history.branches().filter_map(|branch| history.head(branch));
    let mut files = heads.flat_map(|head| head.files.values());
    files.find(|content| object_name(content) == sha).cloned().ok_or(Fault::NotFound)
}

fn get_blob(call: &mut Call<'_>) -> Outcome {
    let sha = call.params.get("file_sha");
    let bytes = blob(call, sha)?;
    Ok(Reply::ok(json!({
        "sha": sha, "node_id": node_id("Blob", 0) + sha, "url": url(call, "blobs", sha)?, "size": bytes.len(),
        "content": STANDARD.encode(&bytes), "encoding": "base64",
    })))
}

/// What a tree says of each path: mode, kind and name.
type Entries = BTreeMap<String, (String, String, String)>;

/// The entries of a tree that was made, or of a branch or commit.
fn entries(call: &Call<'_>, name: &str) -> Result<Entries, Fault> {
    if let Some(tree) = kept(call, Kind::Trees, name) {
        let text = |entry: &Value, field: &str| entry.get(field).and_then(Value::as_str).unwrap_or("").to_owned();
        let read = |(path, entry): (&String, &Value)| (path.clone(), (text(entry, "mode"), text(entry, "type"), text(entry, "sha")));
        return Ok(tree.iter().map(read).collect());
    }
    let history = call.world.history(call.repository()?);
    let commit = history.named(name).ok_or(Fault::NotFound)?;
    let file = |(path, content): (&String, &Bytes)| (path.clone(), ("100644".to_owned(), "blob".to_owned(), object_name(content)));
    Ok(commit.files.iter().map(file).collect())
}

fn render_tree(call: &Call<'_>, name: &str) -> Outcome {
    let mut tree = Vec::new();
    for (path, (mode, kind, sha)) in entries(call, name)? {
        let mut entry = json!({ "path": path, "mode": mode, "type": kind, "sha": sha, "url": url(call, &format!("{kind}s"), &sha)? });
        if let Ok(bytes) = blob(call, &sha) {
            extend(&mut entry, json!({ "size": bytes.len() }));
        }
        tree.push(entry);
    }
    let history = call.world.history(call.repository()?);
    let sha = history.named(name).map_or(name, |commit| commit.sha.as_str());
    Ok(Reply::ok(json!({ "sha": sha, "url": url(call, "trees", sha)?, "tree": tree, "truncated": false })))
}

fn get_tree(call: &mut Call<'_>) -> Outcome {
    render_tree(call, call.params.get("tree_sha"))
}

/// An entry without a name takes its path away; one with content makes the blob as well.
fn create_tree(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Tree", call.body)?;
    let given = fields.value("tree").and_then(Value::as_array).cloned();
    let is_entry = |entry: &Value| ["path", "mode"].iter().all(|field| entry.get(field).is_some_and(Value::is_string));
    match &given {
        Some(given) if given.len() <= ENTRIES_MAX && given.iter().all(is_entry) => {}
        None if !fields.has("tree") => fields.reject("tree", Code::MissingField, "tree is required"),
        _ => fields.reject("tree", Code::Invalid, "tree must be an array of at most 200 entries with path and mode"),
    }
    let base = fields.string("base_tree").map(|base| entries(call, &base));
    if matches!(base, Some(Err(_))) {
        fields.reject("base_tree", Code::Invalid, "base_tree is no tree of the repository");
    }
    fields.check()?;
    let mut tree: Entries = base.and_then(Result::ok).unwrap_or_default();
    for entry in given.unwrap_or_default() {
        let text = |field: &str| entry.get(field).and_then(Value::as_str).map(str::to_owned);
        let path = text("path").unwrap_or_default();
        if entry.get("sha").is_some_and(Value::is_null) {
            tree.remove(&path);
            continue;
        }
        let sha = match text("sha") {
            Some(sha) => sha,
            None => keep_blob(call, text("content").unwrap_or_default().as_bytes())?,
        };
        tree.insert(path, (text("mode").unwrap_or_default(), text("type").unwrap_or_else(|| "blob".to_owned()), sha));
    }
    let kept: Map<String, Value> =
        tree.into_iter().map(|(path, (mode, kind, sha))| (path, json!({ "mode": mode, "type": kind, "sha": sha }))).collect();
    let sha = object_name(json!(kept).to_string().as_bytes());
    keep(call, Kind::Trees, &sha, Value::Object(kept))?;
    let location = url(call, "trees", &sha)?;
    Ok(Reply { status: http::StatusCode::CREATED, ..render_tree(call, &sha)? }.with(http::header::LOCATION, &location))
}

/// The files of a tree. What an entry names and nobody made is missing.
fn files(call: &Call<'_>, tree: &str) -> Result<Tree, Fault> {
    let there = entries(call, tree)?.into_iter().filter(|(_, (_, kind, _))| kind == "blob");
    Ok(there.filter_map(|(path, (_, _, sha))| Some((path, blob(call, &sha).ok()?))).collect())
}

fn create_commit(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Commit", call.body)?;
    let (message, tree) = (fields.required_string("message"), fields.required_string("tree"));
    let parents = fields.strings("parents").unwrap_or_default();
    let files = files(call, &tree);
    if !tree.is_empty() && files.is_err() {
        fields.reject("tree", Code::Invalid, "tree is no tree of the repository");
    }
    let history = call.world.history(call.repository()?);
    if parents.iter().any(|parent| history.commit(parent).is_none()) {
        fields.reject("parents", Code::Invalid, "parents must be commits of the repository");
    }
    fields.check()?;
    // The history goes along one line: of several parents the first counts.
    let draft = Draft { parent: parents.into_iter().next(), message, author: call.actor(), at: call.now, files: files? };
    let sha = call.world.history_mut(call.repository).ok_or(Fault::NotFound)?.keep(draft).map_err(too_much)?;
    let value = render_commit(call, &sha)?;
    created(call, "commits", &sha, value)
}

fn render_commit(call: &Call<'_>, sha: &str) -> Result<Value, Fault> {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    Ok(Renderer::of(call).git_commit(repository, history.commit(sha).ok_or(Fault::NotFound)?))
}

fn get_commit(call: &mut Call<'_>) -> Outcome {
    Ok(Reply::ok(render_commit(call, call.params.get("commit_sha"))?))
}

fn create_tag(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Tag", call.body)?;
    let (tag, message, object) = (fields.required_string("tag"), fields.required_string("message"), fields.required_string("object"));
    let kind = fields.string("type").unwrap_or_else(|| "commit".to_owned());
    let history = call.world.history(call.repository()?);
    if !object.is_empty() && kind == "commit" && history.commit(&object).is_none() {
        fields.reject("object", Code::Invalid, "object is no commit of the repository");
    }
    fields.check()?;
    let fields = json!({ "tag": tag, "message": message, "object": object, "type": kind, "by": call.actor(), "at": call.now.as_millis() });
    let sha = object_name(fields.to_string().as_bytes());
    keep(call, Kind::Tags, &sha, fields)?;
    let value = render_tag(call, &sha)?;
    created(call, "tags", &sha, value)
}

fn render_tag(call: &Call<'_>, sha: &str) -> Result<Value, Fault> {
    let fields = kept(call, Kind::Tags, sha).ok_or(Fault::NotFound)?;
    let login = call.world.login(fields.get("by").and_then(Value::as_u64).unwrap_or(0));
    let at = Timestamp::from_millis(fields.get("at").and_then(Value::as_u64).unwrap_or(0));
    let object = fields.get("object").and_then(Value::as_str).unwrap_or("");
    Ok(json!({
        "sha": sha, "node_id": node_id("Tag", 0) + sha, "url": url(call, "tags", sha)?,
        "tag": fields.get("tag"), "message": fields.get("message"),
        "tagger": { "name": login, "email": format!("{login}@example.com"), "date": iso(at) },
        "object": { "type": fields.get("type"), "sha": object, "url": url(call, "commits", object)? },
        "verification": { "verified": false, "reason": "unsigned", "signature": null, "payload": null },
    }))
}

fn get_tag(call: &mut Call<'_>) -> Outcome {
    Ok(Reply::ok(render_tag(call, call.params.get("tag_sha"))?))
}

/// The branches and releases' tags whose refs begin with what the path says.
fn matching_refs(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let beginning = format!("refs/{}", call.params.get("ref"));
    let found = refs(call, repository).into_iter().filter(|(name, _)| name.starts_with(&beginning)).collect();
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, found, |(name, sha)| renderer.reference(repository, &name, &sha)))
}

fn one_ref(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let wanted = format!("refs/{}", call.params.get("ref"));
    let (name, sha) = refs(call, repository).into_iter().find(|(name, _)| *name == wanted).ok_or(Fault::NotFound)?;
    Ok(Reply::ok(Renderer::of(call).reference(repository, &name, &sha)))
}

/// The refs of all branches and of the releases' tags, and their commits.
fn refs(call: &Call<'_>, repository: &Repository) -> Vec<(String, String)> {
    let history = call.world.history(repository);
    let heads = history.branches().filter_map(|branch| Some((format!("refs/heads/{branch}"), history.head(branch)?.sha.clone())));
    let tip = history.tip(repository).map(|tip| tip.sha.clone()).unwrap_or_default();
    let tags = repository.releases.values().map(|release| (format!("refs/tags/{}", release.tag), tip.clone()));
    heads.chain(tags).collect()
}
