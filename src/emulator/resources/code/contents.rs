//! The files of a repository, as JSON or raw, and the commits that change one of them.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{StatusCode, header};
use serde_json::{Value, json};

use crate::emulator::accounts::Level;
use crate::emulator::events::pushes;
use crate::emulator::events::webhooks::EventContext;
use crate::emulator::http::{ApiError, Body, Code, Fields, Reply, SITE, segment};
use crate::emulator::render::extend;
use crate::emulator::routing::{Call, Need, Outcome, Role, Route};
use crate::emulator::world::git::objects::{blob_id, is_path};
use crate::emulator::world::{Commit, Edit, History, HistoryFull, README, Repository};

pub const READ: Need = Need::repository("contents", Level::Read, Role::Read);
pub const WRITE: Need = Need::repository("contents", Level::Write, Role::Push);
/// The running service's limit for files changed this way.
const FILE_BYTES_MAX: usize = 1024 * 1024;

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/contents", READ, list),
    Route::get("/repos/{owner}/{repo}/contents/{*path}", READ, file),
    Route::put("/repos/{owner}/{repo}/contents/{*path}", WRITE, put),
    Route::delete("/repos/{owner}/{repo}/contents/{*path}", WRITE, delete),
    Route::get("/repos/{owner}/{repo}/readme", READ, readme),
];

fn shown(call: &Call<'_>, repository: &Repository) -> Result<Commit, ApiError> {
    let history = call.world.history(repository);
    named_or_tip(call, &history, repository, "ref").cloned()
}

/// Finds the commit that a parameter of the query names; by default the newest.
pub fn named_or_tip<'h>(
    call: &Call<'_>,
    history: &'h History,
    repository: &Repository,
    param: &str,
) -> Result<&'h Commit, ApiError> {
    let named = call.query.get(param).filter(|name| !name.is_empty());
    let commit = named.map_or_else(|| history.tip(repository), |name| history.named(name));
    commit.ok_or(ApiError::NotFound)
}

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let commit = shown(call, repository)?;
    Ok(Reply::ok(entries(call, repository, &commit, "")).changed_at(repository.pushed_at))
}

/// Lists the direct entries of a folder; its path is empty or ends with a slash.
fn entries(call: &Call<'_>, repository: &Repository, commit: &Commit, folder: &str) -> Value {
    let mut names: Vec<(&str, Option<&Bytes>)> = Vec::new();
    for (path, content) in commit.files.iter().filter(|(path, _)| path.starts_with(folder)) {
        let rest = &path[folder.len()..];
        let (name, content) =
            rest.split_once('/').map_or((rest, Some(content)), |(name, _)| (name, None));
        if names.last().is_none_or(|(last, _)| *last != name) {
            names.push((name, content));
        }
    }
    let trees: BTreeMap<&str, String> =
        commit.folders().into_iter().map(|folder| (folder.path, folder.object.id.hex())).collect();
    let one = |(name, content): (&str, Option<&Bytes>)| {
        let path = format!("{folder}{name}");
        let tree = || Item::Folder(trees.get(path.as_str()).map_or("", String::as_str));
        entry(call, repository, &path, content.map_or_else(tree, Item::File))
    };
    names.into_iter().map(one).collect()
}

fn file(call: &mut Call<'_>) -> Outcome {
    let path = call.params.get("path").to_owned();
    read(call, &path)
}

fn readme(call: &mut Call<'_>) -> Outcome {
    read(call, README)
}

fn read(call: &mut Call<'_>, path: &str) -> Outcome {
    let repository = call.repository()?;
    let commit = shown(call, repository)?;
    let Some(content) = commit.files.get(path) else {
        let folder = format!("{path}/");
        ApiError::not_found_unless(commit.files.keys().any(|path| path.starts_with(&folder)))?;
        return Ok(
            Reply::ok(entries(call, repository, &commit, &folder)).changed_at(repository.pushed_at)
        );
    };
    let reply = if wants_raw(call.header(header::ACCEPT).unwrap_or("")) {
        let kind = call.dialect.media_type().trim_end_matches("+json");
        let kind = format!("{kind}.raw; charset=utf-8");
        Reply::new(StatusCode::OK, Body::Raw(Some(kind), content.clone()))
    } else {
        let mut value = entry(call, repository, path, Item::File(content));
        extend(&mut value, json!({ "encoding": "base64", "content": STANDARD.encode(content) }));
        Reply::ok(value)
    };
    Ok(reply.changed_at(repository.pushed_at))
}

/// Such as `application/vnd.service.raw+json` or `….v3.raw`.
fn wants_raw(accept: &str) -> bool {
    accept.split(',').any(|kind| {
        let kind = kind.split(';').next().unwrap_or("").trim().trim_end_matches("+json");
        kind.starts_with("application/vnd.") && kind.split('.').any(|part| part == "raw")
    })
}

fn sha_of(content: &[u8]) -> String {
    blob_id(content).hex()
}

#[derive(Clone, Copy)]
enum Item<'a> {
    File(&'a Bytes),
    /// With the id of its tree.
    Folder(&'a str),
}

fn entry(call: &Call<'_>, repository: &Repository, path: &str, item: Item<'_>) -> Value {
    let address = path.split('/').map(segment).collect::<Vec<_>>().join("/");
    let base = call.renderer().repository_url(repository);
    let url = format!("{base}/contents/{address}");
    let page = format!("{SITE}/{}", call.world.full_name(repository));
    let (sha, content) = match item {
        Item::File(content) => (sha_of(content), Some(content)),
        Item::Folder(sha) => (sha.to_owned(), None),
    };
    let (kind, git_kind, page_kind) =
        if content.is_some() { ("file", "blobs", "blob") } else { ("dir", "trees", "tree") };
    let git_url = format!("{base}/git/{git_kind}/{sha}");
    let html_url = format!("{page}/{page_kind}/{}/{address}", repository.default_branch);
    json!({
        "type": kind,
        "name": path.rsplit('/').next().unwrap_or(path),
        "path": path,
        "sha": sha,
        "size": content.map_or(0, Bytes::len),
        "url": url,
        "html_url": html_url,
        "git_url": git_url,
        "download_url": content.map(|_| format!("{page}/raw/{}/{address}", repository.default_branch)),
        "_links": { "self": url, "git": git_url, "html": html_url },
    })
}

/// The common members of both kinds of change, undocumented; they are the running service's.
struct FileEdit {
    message: String,
    branch: String,
    exists: bool,
}

/// `sha` must match the replaced file. The running service answers 409 to a mismatch, an
/// undocumented status; here it is 422.
fn read_edit(call: &Call<'_>, fields: &mut Fields, path: &str) -> Result<FileEdit, ApiError> {
    let message = fields.required_string("message");
    let repository = call.repository()?;
    let branch = fields.string("branch").unwrap_or_else(|| repository.default_branch.clone());
    let history = call.world.history(repository);
    let Some(head) = history.head(&branch) else {
        fields.invalid("branch", "there is no such branch");
        return Ok(FileEdit { message, branch, exists: false });
    };
    let known = head.files.get(path).map(|content| sha_of(content));
    match (fields.string("sha"), &known) {
        (Some(given), Some(known)) if given != *known => {
            fields.invalid("sha", "sha is not that of the file");
        }
        (None, Some(_)) => {
            let message = "sha is required to change a file that exists";
            fields.reject("sha", Code::MissingField, message);
        }
        _ => {}
    }
    Ok(FileEdit { message, branch, exists: known.is_some() })
}

fn put(call: &mut Call<'_>) -> Outcome {
    let path = call.params.get("path").to_owned();
    let mut fields = Fields::parse("Content", call.body)?;
    if !is_path(&path) {
        fields.invalid("path", "path contains a malformed component");
    }
    let file_edit = read_edit(call, &mut fields, &path)?;
    let content = content(&mut fields);
    fields.check()?;
    let edit = Edit { path: path.clone(), content: Some(content.clone()) };
    let commit = commit(call, &file_edit, edit)?;
    let repository = call.repository()?;
    let value = json!({ "content": entry(call, repository, &path, Item::File(&content)), "commit": call.renderer().git_commit(repository, &commit) });
    Ok(Reply::json(if file_edit.exists { StatusCode::OK } else { StatusCode::CREATED }, value))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let path = call.params.get("path").to_owned();
    let mut fields = Fields::parse("Content", call.body)?;
    let file_edit = read_edit(call, &mut fields, &path)?;
    fields.check()?;
    ApiError::not_found_unless(file_edit.exists)?;
    let commit = commit(call, &file_edit, Edit { path, content: None })?;
    let repository = call.repository()?;
    Ok(Reply::ok(
        json!({ "content": null, "commit": call.renderer().git_commit(repository, &commit) }),
    ))
}

fn commit(call: &mut Call<'_>, file_edit: &FileEdit, edit: Edit) -> Result<Commit, ApiError> {
    let (context, message) = (EventContext::of(call), file_edit.message.clone());
    let made = pushes::commit(call.world, context, &file_edit.branch, message, edit)?;
    made.ok_or(ApiError::NotFound)
}

/// The upstream answers 422 for a spammed endpoint.
impl From<HistoryFull> for ApiError {
    fn from(_: HistoryFull) -> Self {
        Self::invalid("Content", "base", "the repository holds too much already")
    }
}

fn content(fields: &mut Fields) -> Bytes {
    fields.require("content");
    let Some(given) = fields.string("content") else { return Bytes::new() };
    // Clients break it into lines.
    let joined: String = given.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    match STANDARD.decode(joined) {
        Ok(bytes) if bytes.len() <= FILE_BYTES_MAX => return bytes.into(),
        Ok(_) => fields.invalid("content", "content is larger than 1 MiB"),
        Err(_) => fields.invalid("content", "content is not valid Base64"),
    }
    Bytes::new()
}
