//! The commits of a repository: list, get, compare, and their branches and pull requests. Files are
//! compared by name only.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::branches;
use super::contents::{self, READ};
use crate::emulator::accounts::Level;
use crate::emulator::http::{ApiError, Reply, SITE, segment};
use crate::emulator::routing::{Call, Caps, Need, Outcome, Role, Route, pagination};
use crate::emulator::world::git::objects::blob_id;
use crate::emulator::world::{Commit, Issue, Repository};

const READ_PULLS: Need = Need::repository("pull_requests", Level::Read, Role::Read);
/// The running service's page size for the commits of a comparison.
const COMMITS: Caps = Caps { default: 250, max: 250 };

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/commits", READ, list),
    Route::get("/repos/{owner}/{repo}/commits/{ref}", READ, get),
    // A branch's name may contain slashes.
    Route::get("/repos/{owner}/{repo}/compare/{*basehead}", READ, compare),
    Route::get(
        "/repos/{owner}/{repo}/commits/{ref}/branches-where-head",
        READ,
        branches_where_head,
    ),
    Route::get("/repos/{owner}/{repo}/commits/{ref}/pulls", READ_PULLS, pulls),
];

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let from = contents::named_or_tip(call, &history, repository, "sha")?;
    let path = call.query.get("path").filter(|path| !path.is_empty());
    let touches = |commit: &&Commit| {
        let before = commit.parent.as_deref().and_then(|sha| history.commit(sha));
        path.is_none_or(|path| {
            commit.files.get(path) != before.and_then(|before| before.files.get(path))
        })
    };
    let (author, committer) = (person(call, "author"), person(call, "committer"));
    let (since, until) = (call.moment("Commit", "since")?, call.moment("Commit", "until")?);
    let is_wanted = |commit: &&Commit| {
        // The author of a commit is its committer too.
        [&author, &committer].iter().all(|person| person.is_wanted(commit))
            && since.is_none_or(|since| commit.at >= since)
            && until.is_none_or(|until| commit.at <= until)
    };
    let commits = history.until(from).filter(touches).filter(is_wanted);
    call.page(commits, |renderer, commit| renderer.commit(repository, commit))
}

/// A person in a query, by login or e-mail address.
enum Person<'q> {
    Anybody,
    Known(u64),
    Email(&'q str),
}

fn person<'q>(call: &'q Call<'_>, name: &str) -> Person<'q> {
    match call.query.get(name).filter(|given| !given.is_empty()) {
        None => Person::Anybody,
        Some(given) => call
            .world
            .user_by_login(given)
            .map_or(Person::Email(given), |user| Person::Known(user.id)),
    }
}

impl Person<'_> {
    fn is_wanted(&self, commit: &Commit) -> bool {
        match self {
            Self::Anybody => true,
            Self::Known(user) => commit.author.user == *user,
            Self::Email(email) => commit.author.email.eq_ignore_ascii_case(email),
        }
    }
}

fn get(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let commit = history.named(call.params.get("ref")).ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(call.renderer().commit(repository, commit)))
}

/// Parses `BASE...HEAD`, where each may be `OWNER:NAME` of this same repository.
fn compare(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let range = call.params.get("basehead");
    let named = |name: &str| {
        let name = name.rsplit_once(':').map_or(name, |(_, name)| name);
        history.named(name).ok_or(ApiError::NotFound)
    };
    let (base, head) = range.split_once("...").ok_or(ApiError::NotFound)?;
    let (base, head) = (named(base)?, named(head)?);
    let comparison = history.compare(base, head);
    let merge_base = comparison.merge_base.as_deref().and_then(|sha| history.commit(sha));
    let merge_base = merge_base.ok_or(ApiError::NotFound)?;
    let status = match (comparison.ahead.len(), comparison.behind) {
        (0, 0) => "identical",
        (_, 0) => "ahead",
        (0, _) => "behind",
        _ => "diverged",
    };
    let renderer = call.renderer();
    let total = comparison.ahead.len();
    let (shown, link) = pagination::cut(call, COMMITS, comparison.ahead);
    let shown = shown.iter().filter_map(|sha| history.commit(sha));
    let commits: Vec<Value> = shown.map(|one| renderer.commit(repository, one)).collect();
    let url =
        format!("{}/compare/{}...{}", renderer.repository_url(repository), base.sha, head.sha);
    let page = format!("{SITE}/{}/compare/{}", call.world.full_name(repository), segment(range));
    let mut reply = Reply::ok(json!({
        "url": url, "html_url": page, "permalink_url": page, "diff_url": format!("{page}.diff"), "patch_url": format!("{page}.patch"),
        "base_commit": renderer.commit(repository, base), "merge_base_commit": renderer.commit(repository, merge_base),
        "status": status, "ahead_by": total, "behind_by": comparison.behind, "total_commits": total,
        "commits": commits, "files": files(call, repository, merge_base, head),
    }));
    reply.headers.extend(link);
    Ok(reply)
}

pub fn files(
    call: &Call<'_>,
    repository: &Repository,
    before: &Commit,
    after: &Commit,
) -> Vec<Value> {
    let base = call.renderer().repository_url(repository);
    let paths: BTreeSet<&String> = before.files.keys().chain(after.files.keys()).collect();
    let change = |path: &&String| {
        let (was, is) = (before.files.get(*path), after.files.get(*path));
        let status = match (was, is) {
            (None, _) => "added",
            (_, None) => "removed",
            (was, is) if was == is => return None,
            _ => "modified",
        };
        let content = is.or(was).map_or(&[][..], |content| content);
        let sha = blob_id(content).hex();
        let name: Vec<String> = path.split('/').map(segment).collect();
        Some(json!({
            "filename": path, "status": status, "sha": sha, "additions": 0, "deletions": 0, "changes": 0,
            "contents_url": format!("{base}/contents/{}?ref={}", name.join("/"), after.sha), "blob_url": format!("{base}/git/blobs/{sha}"),
        }))
    };
    paths.iter().filter_map(change).collect()
}

fn branches_where_head(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let sha = &history.named(call.params.get("ref")).ok_or(ApiError::NotFound)?.sha;
    let is_here = |branch: &&str| history.head(branch).is_some_and(|head| head.sha == *sha);
    let here = history.branches().filter(is_here);
    Ok(Reply::ok(here.map(|branch| branches::summary(call, repository, branch, sha)).collect()))
}

/// Lists the pull requests with this commit as head.
fn pulls(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let sha = &history.named(call.params.get("ref")).ok_or(ApiError::NotFound)?.sha;
    let has = |pull: &&Issue| history.pull_source(pull).is_some_and(|head| head.sha == *sha);
    let pulls = repository.issues.values().filter(has);
    call.page(pulls, |renderer, pull| renderer.pull(repository, pull))
}
