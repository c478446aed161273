//! Comparison of two commits, and the branches and pull requests of a commit. Files are compared by
//! name only.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::branches::READ;
use crate::emulator::accounts::Level;
use crate::emulator::http::{ApiError, Reply, SITE, segment};
use crate::emulator::render::Renderer;
use crate::emulator::routing::{Call, Caps, Need, Outcome, Role, Route, USUAL, pagination};
use crate::emulator::world::git::objects::blob_id;
use crate::emulator::world::{Commit, Repository};

const READ_PULLS: Need = Need::repository("pull_requests", Level::Read, Role::Read);
/// The running service's page size for the commits of a comparison.
const COMMITS: Caps = Caps { default: 250, max: 250 };

pub const ROUTES: &[Route] = &[
    // A branch's name may contain slashes.
    Route::get("/repos/{owner}/{repo}/compare/{*basehead}", READ, compare),
    Route::get(
        "/repos/{owner}/{repo}/commits/{ref}/branches-where-head",
        READ,
        branches_where_head,
    ),
    Route::get("/repos/{owner}/{repo}/commits/{ref}/pulls", READ_PULLS, pulls),
];

/// Parses `BASE...HEAD`, where each may be `OWNER:NAME` of this same repository.
fn compare(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let asked = call.params.get("basehead");
    let named = |name: &str| {
        history
            .named(name.rsplit_once(':').map_or(name, |(_, name)| name))
            .ok_or(ApiError::NotFound)
    };
    let (base, head) = asked.split_once("...").ok_or(ApiError::NotFound)?;
    let (base, head) = (named(base)?, named(head)?);
    let comparison = history.compare(base, head);
    let merge_base = comparison
        .merge_base
        .as_deref()
        .and_then(|sha| history.commit(sha))
        .ok_or(ApiError::NotFound)?;
    let status = match (comparison.ahead.len(), comparison.behind) {
        (0, 0) => "identical",
        (_, 0) => "ahead",
        (0, _) => "behind",
        _ => "diverged",
    };
    let renderer = Renderer::of(call);
    let total = comparison.ahead.len();
    let (shown, link) = pagination::cut(call, COMMITS, comparison.ahead);
    let commits: Vec<Value> = shown
        .iter()
        .filter_map(|sha| history.commit(sha))
        .map(|one| renderer.commit(repository, one))
        .collect();
    let url =
        format!("{}/compare/{}...{}", renderer.repository_url(repository), base.sha, head.sha);
    let page = format!("{SITE}/{}/compare/{}", call.world.full_name(repository), segment(asked));
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
    let base = Renderer::of(call).repository_url(repository);
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
    let there = history
        .branches()
        .filter(|branch| history.head(branch).is_some_and(|head| head.sha == *sha));
    Ok(Reply::ok(
        there
            .map(|branch| {
                crate::emulator::resources::code::branches::summary(call, repository, branch, sha)
            })
            .collect(),
    ))
}

/// Lists the pull requests with this commit as head.
fn pulls(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let sha = &history.named(call.params.get("ref")).ok_or(ApiError::NotFound)?.sha;
    let has = |branch: &String| history.head(branch).is_some_and(|head| head.sha == *sha);
    let pulls = repository
        .issues
        .values()
        .filter(|issue| issue.pull_from.as_ref().is_some_and(has))
        .collect();
    let renderer = Renderer::of(call);
    Ok(pagination::page(call, USUAL, pulls, |pull| renderer.pull(repository, pull)))
}
