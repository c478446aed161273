//! The files of a repository: one README, as JSON or as it is.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{StatusCode, header};
use serde_json::{Value, json};

use crate::emulator::access::{Need, Role};
use crate::emulator::accounts::Level;
use crate::emulator::call::Call;
use crate::emulator::fault::Fault;
use crate::emulator::migrations::git::blob_id;
use crate::emulator::render::Renderer;
use crate::emulator::reply::{Body, Reply};
use crate::emulator::route::{Outcome, Route, Verb};
use crate::emulator::urls::SITE;
use crate::emulator::world::Repository;

const READ: Need = Need::Repository { permission: "contents", level: Level::Read, role: Role::Read };
const README: &str = "README.md";

pub const ROUTES: &[Route] = &[
    Route::new(Verb::Get, "/repos/{owner}/{repo}/contents", READ, list),
    Route::new(Verb::Get, "/repos/{owner}/{repo}/contents/{*path}", READ, file),
    Route::new(Verb::Get, "/repos/{owner}/{repo}/readme", READ, readme),
];

fn list(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    Ok(Reply::ok(Value::Array(vec![entry(call, repository)])).changed_at(repository.pushed_at))
}

fn file(call: &mut Call<'_>) -> Outcome {
    if call.params.get("path") != README {
        return Err(Fault::NotFound);
    }
    readme(call)
}

fn readme(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let accept = call.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    let reply = if wants_raw(accept) {
        let kind = call.dialect.media_type().trim_end_matches("+json").to_owned();
        Reply::new(StatusCode::OK, Body::Raw(Some(format!("{kind}.raw; charset=utf-8")), Bytes::from(repository.readme.clone())))
    } else {
        let mut value = entry(call, repository);
        crate::emulator::render::extend(&mut value, json!({ "encoding": "base64", "content": STANDARD.encode(&repository.readme) }));
        Reply::ok(value)
    };
    Ok(reply.changed_at(repository.pushed_at))
}

/// A vendor media type whose variant is `raw`, such as `application/vnd.service.raw+json` or `….v3.raw`.
fn wants_raw(accept: &str) -> bool {
    accept.split(',').any(|kind| {
        let kind = kind.split(';').next().unwrap_or("").trim().trim_end_matches("+json");
        kind.starts_with("application/vnd.") && kind.split('.').any(|part| part == "raw")
    })
}

fn entry(call: &Call<'_>, repository: &Repository) -> Value {
    let url = format!("{}/contents/{README}", Renderer::of(call).repository_url(repository));
    let page = format!("{SITE}/{}", call.world.full_name(repository));
    let sha = blob_id(repository.readme.as_bytes()).hex();
    let git_url = format!("{}/git/blobs/{sha}", Renderer::of(call).repository_url(repository));
    let html_url = format!("{page}/blob/{}/{README}", repository.default_branch);
    json!({
        "type": "file",
        "name": README,
        "path": README,
        "sha": sha,
        "size": repository.readme.len(),
        "url": url,
        "html_url": html_url,
        "git_url": git_url,
        "download_url": format!("{page}/raw/{}/{README}", repository.default_branch),
        "_links": { "self": url, "git": git_url, "html": html_url },
    })
}
