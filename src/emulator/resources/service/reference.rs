//! Reference data of the service: emojis, licences, templates, rendered text. A small sample, equal
//! for every caller.

#![expect(clippy::unnecessary_wraps, reason = "every route's function has this form")]

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::emulator::http::{ApiError, Body, Fields, Reply, SITE};
use crate::emulator::render::{extend, node_id, object};
use crate::emulator::routing::{Call, Need, Outcome, Route};

pub const ROUTES: &[Route] = &[
    Route::get("/emojis", Need::Nothing, emojis),
    Route::get("/gitignore/templates", Need::Nothing, ignore_templates),
    Route::get("/gitignore/templates/{name}", Need::Nothing, ignore_template),
    Route::get("/licenses", Need::Nothing, licenses),
    Route::get("/licenses/{license}", Need::Nothing, license),
    Route::get("/codes_of_conduct", Need::Nothing, codes),
    Route::get("/codes_of_conduct/{key}", Need::Nothing, code),
    Route::post("/markdown", Need::Nothing, markdown),
    Route::post("/markdown/raw", Need::Nothing, markdown_raw),
    Route::get("/versions", Need::Nothing, versions),
    Route::get("/zen", Need::Nothing, zen),
    Route::get("/octocat", Need::Nothing, octocat),
    Route::get("/feeds", Need::Nothing, feeds),
    Route::post("/credentials/revoke", Need::Nothing, revoke),
];

const EMOJIS: &[(&str, &str)] =
    &[("+1", "1f44d"), ("-1", "1f44e"), ("heart", "2764"), ("rocket", "1f680"), ("tada", "1f389")];
const IGNORE_TEMPLATES: &[(&str, &str)] =
    &[("C", "*.o\n*.so\n"), ("Python", "__pycache__/\n*.pyc\n"), ("Rust", "/target\n")];
/// Key, name and SPDX id.
const LICENSES: &[(&str, &str, &str)] = &[
    ("apache-2.0", "Apache License 2.0", "Apache-2.0"),
    ("bsd-3-clause", "BSD 3-Clause \"New\" or \"Revised\" License", "BSD-3-Clause"),
    ("mit", "MIT License", "MIT"),
];
const CODES: &[(&str, &str)] = &[
    ("citizen_code_of_conduct", "Citizen Code of Conduct"),
    ("contributor_covenant", "Contributor Covenant"),
];
const ZEN: &str = "Keep it logically awesome.";
/// The running service's limit of a rendered text.
const TEXT_BYTES_MAX: usize = 400 * 1024;

fn text(kind: &str, text: impl Into<Bytes>) -> Reply {
    Reply::new(StatusCode::OK, Body::Raw(Some(format!("{kind}; charset=utf-8")), text.into()))
}

fn emojis(_: &mut Call<'_>) -> Outcome {
    let address = |(name, code)| (name, json!(format!("{SITE}/emoji/{code}.png")));
    Ok(Reply::ok(Value::Object(object(EMOJIS.iter().copied().map(address)))))
}

fn ignore_templates(_: &mut Call<'_>) -> Outcome {
    Ok(Reply::ok(IGNORE_TEMPLATES.iter().map(|(name, _)| json!(name)).collect()))
}

fn ignore_template(call: &mut Call<'_>) -> Outcome {
    let wanted = call.params.get("name");
    let (name, source) =
        IGNORE_TEMPLATES.iter().find(|(name, _)| *name == wanted).ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(json!({ "name": name, "source": source })))
}

fn license_summary(call: &Call<'_>, number: usize) -> Value {
    let (key, name, spdx) = LICENSES.get(number).copied().unwrap_or_default();
    let url = format!("{}/licenses/{key}", call.urls.api);
    json!({ "key": key, "name": name, "spdx_id": spdx, "url": url, "node_id": node_id("License", number as u64) })
}

fn licenses(call: &mut Call<'_>) -> Outcome {
    call.page(0..LICENSES.len(), |_, number| license_summary(call, number))
}

fn license(call: &mut Call<'_>) -> Outcome {
    let wanted = call.params.get("license").to_ascii_lowercase();
    let number = LICENSES.iter().position(|(key, ..)| *key == wanted).ok_or(ApiError::NotFound)?;
    let mut value = license_summary(call, number);
    let page = format!("{SITE}/licenses/{wanted}");
    let more = json!({
        "html_url": page, "description": "A licence.", "implementation": "Create a text file in the root of your source code.",
        "permissions": ["commercial-use", "modifications", "distribution"], "conditions": ["include-copyright"], "limitations": ["liability", "warranty"],
        "body": "", "featured": true,
    });
    extend(&mut value, more);
    Ok(Reply::ok(value))
}

fn code_summary(call: &Call<'_>, key: &str, name: &str) -> Value {
    json!({ "key": key, "name": name, "url": format!("{}/codes_of_conduct/{key}", call.urls.api), "html_url": format!("{SITE}/codes_of_conduct/{key}") })
}

fn codes(call: &mut Call<'_>) -> Outcome {
    Ok(Reply::ok(CODES.iter().map(|(key, name)| code_summary(call, key, name)).collect()))
}

fn code(call: &mut Call<'_>) -> Outcome {
    let wanted = call.params.get("key");
    let (key, name) = CODES.iter().find(|(key, _)| *key == wanted).ok_or(ApiError::NotFound)?;
    let mut value = code_summary(call, key, name);
    extend(&mut value, json!({ "body": format!("# {name}\n\nBe kind.\n") }));
    Ok(Reply::ok(value))
}

/// Renders HTML. It supports paragraphs and headings only and keeps other markup as text.
fn markdown(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Markdown", call.body)?;
    fields.require("text");
    let source = fields.string("text").unwrap_or_default();
    if fields.string("mode").is_some_and(|mode| !matches!(mode.as_str(), "markdown" | "gfm")) {
        fields.invalid("mode", "mode must be markdown or gfm");
    }
    let _ = fields.string("context");
    fields.check()?;
    rendered(&source)
}

/// The whole body is the text.
fn markdown_raw(call: &mut Call<'_>) -> Outcome {
    rendered(&String::from_utf8_lossy(call.body))
}

fn rendered(source: &str) -> Outcome {
    if source.len() > TEXT_BYTES_MAX {
        return Err(ApiError::invalid("Markdown", "text", "text is too long"));
    }
    let paragraphs = source.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty());
    let html: String = paragraphs.map(paragraph).collect();
    Ok(text("text/html", html))
}

fn paragraph(source: &str) -> String {
    let level = source.bytes().take_while(|byte| *byte == b'#').count();
    let heading = source.get(level..).and_then(|rest| rest.strip_prefix(' '));
    match heading {
        Some(rest) if (1..=6).contains(&level) => {
            format!("<h{level}>{}</h{level}>\n", escaped(rest))
        }
        _ => format!("<p>{}</p>\n", escaped(source)),
    }
}

fn escaped(source: &str) -> String {
    source.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The two documented versions.
fn versions(_: &mut Call<'_>) -> Outcome {
    Ok(Reply::ok(json!(["2026-03-10", "2022-11-28"])))
}

fn zen(_: &mut Call<'_>) -> Outcome {
    Ok(text("text/plain", ZEN))
}

fn octocat(call: &mut Call<'_>) -> Outcome {
    let words = call.query.get("s").unwrap_or(ZEN);
    Ok(text("text/plain", format!("  ( {words} )\n")))
}

fn feeds(call: &mut Call<'_>) -> Outcome {
    let timeline = format!("{SITE}/timeline");
    let mut value = json!({
        "timeline_url": timeline, "user_url": format!("{SITE}/{{user}}"),
        "_links": { "timeline": { "href": timeline, "type": "application/atom+xml" }, "user": { "href": format!("{SITE}/{{user}}"), "type": "application/atom+xml" } },
    });
    if let Some(user) = call.caller.user() {
        let own = format!("{SITE}/{}", call.world.login(user));
        extend(
            &mut value,
            json!({ "current_user_public_url": own, "current_user_url": format!("{own}.private") }),
        );
    }
    Ok(Reply::ok(value))
}

/// Does not say which exist. Those of the seed stay valid, because tests need them.
fn revoke(call: &mut Call<'_>) -> Outcome {
    const CREDENTIALS_MAX: usize = 1_000;
    let mut fields = Fields::parse("Credential", call.body)?;
    fields.require("credentials");
    let given = fields.strings("credentials").map_or(0, |credentials| credentials.len());
    if given > CREDENTIALS_MAX || (given == 0 && fields.has("credentials")) {
        fields.invalid("credentials", "credentials must be 1 to 1,000 texts");
    }
    fields.check()?;
    Ok(Reply::json(StatusCode::ACCEPTED, json!({})))
}
