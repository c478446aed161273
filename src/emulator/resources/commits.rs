//! The commits of a repository. Their shapes are not shown; these have what published clients read.

use serde_json::{Value, json};

use super::contents::READ;
use crate::emulator::call::Call;
use crate::emulator::fault::Fault;
use crate::emulator::happenings::pushes;
use crate::emulator::pagination::{self, USUAL};
use crate::emulator::render::{Renderer, extend, node_id};
use crate::emulator::reply::Reply;
use crate::emulator::route::{Outcome, Route, Verb};
use crate::emulator::timestamps::iso;
use crate::emulator::urls::SITE;
use crate::emulator::world::{Commit, Repository};

pub const ROUTES: &[Route] = &[
    Route::new(Verb::Get, "/repos/{owner}/{repo}/commits", READ, list),
    Route::new(Verb::Get, "/repos/{owner}/{repo}/commits/{ref}", READ, get),
];

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let asked = call.query.get("sha").filter(|name| !name.is_empty());
    let from = asked.map_or_else(|| history.tip(repository), |name| history.named(name)).ok_or(Fault::NotFound)?;
    let path = call.query.get("path").filter(|path| !path.is_empty());
    let touches = |commit: &&Commit| {
        let before = commit.parent.as_deref().and_then(|sha| history.commit(sha));
        path.is_none_or(|path| commit.files.get(path) != before.and_then(|before| before.files.get(path)))
    };
    let commits = history.until(from).filter(touches).collect();
    Ok(pagination::page(call, USUAL, commits, |commit| render(call, repository, commit)))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let history = call.world.history(repository);
    let commit = history.named(call.params.get("ref")).ok_or(Fault::NotFound)?;
    Ok(Reply::ok(render(call, repository, commit)))
}

/// A commit as `PUT` and `DELETE` of a file answer with it.
pub fn brief(call: &Call<'_>, repository: &Repository, commit: &Commit) -> Value {
    let base = Renderer::of(call).repository_url(repository);
    let parents: Vec<Value> = commit.parent.iter().map(|sha| json!({ "sha": sha, "url": format!("{base}/commits/{sha}") })).collect();
    let mut value = json!({
        "sha": commit.sha,
        "node_id": node_id("Commit", repository.id),
        "url": format!("{base}/git/commits/{}", commit.sha),
        "html_url": format!("{SITE}/{}/commit/{}", call.world.full_name(repository), commit.sha),
        "parents": parents,
    });
    extend(&mut value, inner(call, &base, commit));
    value
}

fn inner(call: &Call<'_>, base: &str, commit: &Commit) -> Value {
    let login = call.world.login(commit.author);
    let name = call.world.users.get(&commit.author).map_or("", |user| &user.name);
    let person = json!({ "name": name, "email": pushes::email(login), "date": iso(commit.at) });
    json!({
        "message": commit.message,
        "author": person,
        "committer": person,
        "tree": { "sha": commit.sha, "url": format!("{base}/git/trees/{}", commit.sha) },
        "verification": { "verified": false, "reason": "unsigned", "signature": null, "payload": null },
    })
}

fn render(call: &Call<'_>, repository: &Repository, commit: &Commit) -> Value {
    let renderer = Renderer::of(call);
    let base = renderer.repository_url(repository);
    let mut value = brief(call, repository, commit);
    let mut own = inner(call, &base, commit);
    extend(&mut own, json!({ "url": format!("{base}/git/commits/{}", commit.sha), "comment_count": 0 }));
    extend(
        &mut value,
        json!({
            "url": format!("{base}/commits/{}", commit.sha),
            "comments_url": format!("{base}/commits/{}/comments", commit.sha),
            "commit": own,
            "author": renderer.user_summary(commit.author),
            "committer": renderer.user_summary(commit.author),
        }),
    );
    if let Value::Object(members) = &mut value {
        for name in ["message", "tree", "verification"] {
            members.remove(name);
        }
    }
    value
}
