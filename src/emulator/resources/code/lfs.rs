//! Git LFS: the batch request with its own primary limits (SPECIFICATION, "Primary rate limits"),
//! and the objects behind it.
//!
//! Only the limits are documented. The rest is the public batch format of Git LFS, transfer
//! `basic`; the addresses serve and accept small objects. Transfers are free, because storage is on
//! other machines in reality. Locks and the verify action are left out.

use http::{HeaderName, StatusCode, header};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use crate::emulator::accounts::Level;
use crate::emulator::auth::access;
use crate::emulator::http::{ApiError, Body, Fields, Reply, hex, segment};
use crate::emulator::limits::Resource;
use crate::emulator::routing::{Call, Need, Outcome, Role, Route};

/// The media type of the batch format.
const MEDIA_TYPE: &str = "application/vnd.git-lfs+json";
/// Per object, and of all repositories together; tests need no realistic sizes.
const OBJECT_BYTES_MAX: usize = 1024 * 1024;
/// Hexadecimal digits of a SHA-256.
const OID_DIGITS: usize = 64;

pub const ROUTES: &[Route] = &[
    Route::post("/{owner}/{repo}.git/info/lfs/objects/batch", Need::Git, batch)
        .resource(Resource::LFS),
    Route::get("/{owner}/{repo}.git/info/lfs/objects/{oid}", Need::Git, download)
        .resource(Resource::LFS)
        .free(),
    Route::put("/{owner}/{repo}.git/info/lfs/objects/{oid}", Need::Git, upload)
        .resource(Resource::LFS)
        .free(),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Download,
    Upload,
}

/// Adds the batch format's media type to LFS responses, and its challenge to a 401.
pub fn with_lfs_headers(resource: Resource, mut reply: Reply) -> Reply {
    if resource != Resource::LFS {
        return reply;
    }
    if matches!(reply.body, Body::Json(_)) {
        reply = reply.with(header::CONTENT_TYPE, MEDIA_TYPE);
    }
    if reply.status == StatusCode::UNAUTHORIZED {
        let name = HeaderName::from_static("lfs-authenticate");
        reply = reply.with(name, "Basic realm=\"Git LFS\"");
    }
    reply
}

/// Returns the repository in the path, by its current or a former name: Git follows renames.
fn admit(call: &mut Call<'_>, operation: Operation) -> Result<u64, ApiError> {
    let repository = call.named_repository()?;
    ApiError::not_found_unless(call.sees(repository))?;
    let (level, role) = match operation {
        Operation::Download => (Level::Read, Role::Read),
        Operation::Upload => (Level::Write, Role::Push),
    };
    access::may(call.world, call.caller, repository, "contents", level, role)?;
    Ok(repository.id)
}

fn batch(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Batch", call.body)?;
    let operation = match fields.required_string("operation").as_str() {
        "upload" => Operation::Upload,
        "download" => Operation::Download,
        given => {
            if !given.is_empty() {
                fields.invalid("operation", "operation must be download or upload");
            }
            Operation::Download
        }
    };
    let transfers = fields.strings("transfers");
    if transfers.is_some_and(|transfers| !transfers.iter().any(|transfer| transfer == "basic")) {
        fields.invalid("transfers", "transfers must name basic");
    }
    if fields.string("hash_algo").is_some_and(|algorithm| algorithm != "sha256") {
        fields.invalid("hash_algo", "hash_algo must be sha256");
    }
    let objects = objects(&mut fields);
    fields.check()?;
    // A batch is limited to 100 objects; the batch format answers 413 beyond.
    if objects.len() as u64 > call.limits.get("lfs.batch") {
        return Err(ApiError::TooLarge);
    }
    let repository = admit(call, operation)?;
    let objects = objects.into_iter();
    let answers: Vec<Value> =
        objects.map(|(oid, size)| answer(call, repository, operation, &oid, size)).collect();
    Ok(Reply::ok(json!({ "transfer": "basic", "objects": answers, "hash_algo": "sha256" })))
}

fn objects(fields: &mut Fields) -> Vec<(String, u64)> {
    let Some(given) = fields.value("objects") else {
        fields.missing("objects");
        return Vec::new();
    };
    let object =
        |item: &Value| Some((item.get("oid")?.as_str()?.to_owned(), item.get("size")?.as_u64()?));
    let objects: Option<Vec<_>> =
        given.as_array().and_then(|items| items.iter().map(object).collect());
    if objects.is_none() {
        let message =
            "objects is not an array of objects with oid (a string) and size (an integer)";
        fields.invalid("objects", message);
    }
    objects.unwrap_or_default()
}

/// Returns one object's part of the response: an address, no action, or an error.
fn answer(call: &Call<'_>, repository: u64, operation: Operation, oid: &str, size: u64) -> Value {
    let error = |code: u16, message: &str| json!({ "oid": oid, "size": size, "error": { "code": code, "message": message } });
    if !is_oid(oid) {
        return error(422, "The oid is not a SHA-256 in lower-case hexadecimal");
    }
    let (owner, name) = (segment(call.params.get("owner")), segment(call.params.get("repo")));
    let href = format!("{}/{owner}/{name}.git/info/lfs/objects/{oid}", call.urls.api);
    match (operation, call.world.lfs.get(repository, oid)) {
        (Operation::Download, Some(object)) => {
            json!({ "oid": oid, "size": object.len(), "actions": { "download": { "href": href } } })
        }
        (Operation::Download, None) => error(404, "The object does not exist"),
        // An existing object needs no action.
        (Operation::Upload, Some(object)) => json!({ "oid": oid, "size": object.len() }),
        (Operation::Upload, None) if size > OBJECT_BYTES_MAX as u64 => {
            error(422, "The object is too large to be kept")
        }
        (Operation::Upload, None) => {
            json!({ "oid": oid, "size": size, "actions": { "upload": { "href": href } } })
        }
    }
}

fn is_oid(text: &str) -> bool {
    text.len() == OID_DIGITS
        && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn download(call: &mut Call<'_>) -> Outcome {
    let repository = admit(call, Operation::Download)?;
    let object =
        call.world.lfs.get(repository, call.params.get("oid")).ok_or(ApiError::NotFound)?;
    let body = Body::Raw(Some("application/octet-stream".to_owned()), object.clone());
    Ok(Reply::new(StatusCode::OK, body))
}

fn upload(call: &mut Call<'_>) -> Outcome {
    let repository = admit(call, Operation::Upload)?;
    if call.body.len() > OBJECT_BYTES_MAX {
        return Err(ApiError::TooLarge);
    }
    if hex(digest(&SHA256, call.body).as_ref()) != call.params.get("oid") {
        return Err(ApiError::invalid("Object", "oid", "oid is not the SHA-256 of the body"));
    }
    call.world.lfs.put(repository, call.body.clone())?;
    Ok(Reply::empty(StatusCode::OK))
}
