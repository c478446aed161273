//! Small attributes of a repository: languages, topics, licence, forks.

use serde_json::{Value, json};

use crate::emulator::accounts::Level;
use crate::emulator::http::{ApiError, Fields, Reply};
use crate::emulator::resources::code::contents::READ as READ_CONTENTS;
use crate::emulator::resources::repositories::listing;
use crate::emulator::routing::{Call, Need, Outcome, Role, Route};

const READ: Need = Need::repository("metadata", Level::Read, Role::Read);
const ADMINISTER: Need = Need::repository("administration", Level::Write, Role::Admin);

pub const ROUTES: &[Route] = &[
    Route::get("/repos/{owner}/{repo}/languages", READ, languages),
    Route::get("/repos/{owner}/{repo}/topics", READ, topics),
    Route::put("/repos/{owner}/{repo}/topics", ADMINISTER, set_topics),
    Route::get("/repos/{owner}/{repo}/license", READ_CONTENTS, license),
    Route::get("/repos/{owner}/{repo}/forks", READ, forks),
];

/// The running service's limits.
const TOPICS_MAX: usize = 20;
const TOPIC_BYTES_MAX: usize = 50;

/// Returns bytes by language; the only file counts as the repository's main language.
fn languages(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let counted =
        repository.language.map(|language| (language.to_owned(), json!(repository.readme.len())));
    Ok(Reply::ok(Value::Object(counted.into_iter().collect())).changed_at(repository.pushed_at))
}

fn topics(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    Ok(Reply::ok(json!({ "names": repository.topics })).changed_at(repository.updated_at))
}

fn set_topics(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Repository", call.body)?;
    fields.require("names");
    let names = fields.strings("names").unwrap_or_default();
    let is_topic = |name: &String| {
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=TOPIC_BYTES_MAX).contains(&name.len())
            && name.bytes().all(is_plain)
            && !name.starts_with('-')
    };
    if names.len() > TOPICS_MAX || !names.iter().all(is_topic) {
        let message = "names must be up to 20 topics of lower-case letters, digits and hyphens";
        fields.invalid("names", message);
    }
    fields.check()?;
    let now = call.now;
    let repository = call.repository_mut()?;
    repository.topics = names;
    repository.updated_at = now;
    Ok(Reply::ok(json!({ "names": repository.topics })))
}

/// Every repository claims this licence, and none has the file.
fn license(call: &mut Call<'_>) -> Outcome {
    let repository = call.repository()?;
    let shown = call.renderer().repository(repository);
    let license = shown.get("license").filter(|license| !license.is_null());
    let license = license.ok_or(ApiError::NotFound)?;
    let url = format!("{}/contents/LICENSE", call.renderer().repository_url(repository));
    Ok(Reply::ok(json!({
        "name": "LICENSE", "path": "LICENSE", "type": "file", "size": 0, "encoding": "base64", "content": "",
        "url": url, "license": license,
    })))
}

fn forks(call: &mut Call<'_>) -> Outcome {
    call.page_of_repositories(listing::forks(call, call.repository()?)?)
}
