//! The control plane under `/_emulator` (SPECIFICATION, "Emulator"): inspects and changes the
//! emulator's state. It is neither counted nor authenticated, so the emulator listens on loopback
//! by default. Cross-origin pages are refused (`offer`).

mod event_members;
mod events;
mod faults;
mod limits;
mod notification_triggers;
mod offer;
mod seed;
mod tokens;
mod usage;

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use serde_json::{Map, Value, json};

pub use self::faults::parse_wait;
use crate::clock::Timestamp;
use crate::emulator::faults::{Members, WrongMember};
use crate::emulator::http::{
    ApiError, Body, Code, FieldError, Fields, Query, Urls, http_date, path,
};
use crate::emulator::migrations;
use crate::emulator::resources::issues::issue_fields;
use crate::emulator::resources::properties;
use crate::emulator::state::State;
use crate::emulator::state::transcript::Entry;
use crate::emulator::world::{
    App, MigrationState, OauthApp, Organization, Owner, Repository, Thread, User, Visibility,
    World, role_views,
};

const BODY_BYTES_MAX: usize = 1024 * 1024;

type JsonReply = (StatusCode, Value);
/// A refusal is an error, so that a handler ends early with `?`.
type ControlResult = Result<JsonReply, JsonReply>;

/// Answers a control request; `path` is the part after `/_emulator`.
pub fn respond(
    state: &mut State,
    now: Timestamp,
    request: &Request<Bytes>,
    path: &str,
) -> Response<Bytes> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let (status, value) = handle(state, now, request, &segments).unwrap_or_else(|refusal| refusal);
    let has_body = status != StatusCode::NO_CONTENT;
    let body = if has_body { value.to_string().into() } else { Bytes::new() };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    if status == StatusCode::METHOD_NOT_ALLOWED
        && let Some(methods) = offer::methods(&segments)
        && let Ok(allowed) = HeaderValue::from_str(&methods.join(", "))
    {
        headers.insert(header::ALLOW, allowed);
    }
    if let Ok(date) = HeaderValue::from_str(&http_date(now)) {
        headers.insert(header::DATE, date);
    }
    response
}

fn handle(
    state: &mut State,
    now: Timestamp,
    request: &Request<Bytes>,
    segments: &[&str],
) -> ControlResult {
    offer::admit(request, segments)?;
    if path::is_too_large(request, BODY_BYTES_MAX) {
        let message = "the body is too large for any control";
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, message);
    }
    let query = Query::parse(request.uri().query());
    let known = offer::queries(request.method().as_str(), segments);
    if let Some(name) = query.names().find(|name| !known.contains(name)) {
        let accepted = if known.is_empty() { "nothing is".to_owned() } else { known.join(" and ") };
        return refuse_field(name, format!("unknown in the query; {accepted} accepted"));
    }
    let body = request.body();
    match (request.method().as_str(), segments) {
        ("GET", ["world"]) => Ok(success(world(state))),
        ("GET", ["transcript"]) => transcript(state, &query),
        ("GET", ["books"]) => Ok(success(usage::usage(state, now))),
        ("GET", ["limits"]) => Ok(success(limits::shown(state))),
        ("PUT", ["limits"]) => limits::set(state, body),
        ("POST", ["tokens"]) => tokens::add(state, now, body),
        ("POST", ["events"]) => {
            let urls = Urls::new(&state.origin(request), "");
            events::respond(state, &urls, now, body)
        }
        ("POST", ["migrations", id]) => put_migration(state, now, id, body),
        (method, ["gates", rest @ ..]) if offer::has(method, segments) => {
            faults::gates(state, method, rest, &query, body)
        }
        (method, ["faults", rest @ ..]) if offer::has(method, segments) => {
            faults::faults(state, method, rest, &query, body)
        }
        ("GET", ["seed"]) => Ok(success(seed::shown(&state.options))),
        ("POST", ["seed"]) => seed::plant(state, now, body),
        ("POST", ["reset"]) => {
            state.reset(now);
            Ok(success(json!({ "reset": true })))
        }
        _ => offer::refuse(segments),
    }
}

fn success(value: Value) -> JsonReply {
    (StatusCode::OK, value)
}

fn refuse<T>(status: StatusCode, message: &str) -> Result<T, JsonReply> {
    Err((status, json!({ "message": message })))
}

fn unprocessable<T>(message: &str) -> Result<T, JsonReply> {
    refuse(StatusCode::UNPROCESSABLE_ENTITY, message)
}

/// Converts to the error format of the API itself.
fn refusal(error: ApiError) -> JsonReply {
    let reply = error.into_reply();
    (reply.status, if let Body::Json(value) = reply.body { value } else { Value::Null })
}

fn refuse_field<T>(field: &str, message: impl Into<String>) -> Result<T, JsonReply> {
    Err(refusal(ApiError::invalid("Control", field, message)))
}

fn wrong_members(wrong: Vec<WrongMember>) -> JsonReply {
    let of = |one: WrongMember| FieldError {
        resource: "Control",
        message: format!("{}: {}; accepted: {}", one.member, one.problem, one.accepted),
        code: if one.problem == "missing" { Code::MissingField } else { Code::Invalid },
        field: one.member,
    };
    refusal(ApiError::Invalid(wrong.into_iter().map(of).collect()))
}

fn check(members: Members<'_>) -> Result<(), JsonReply> {
    let wrong = members.finish();
    if wrong.is_empty() { Ok(()) } else { Err(wrong_members(wrong)) }
}

/// Parses the members of a body; an empty body has none.
fn members(body: &[u8]) -> Result<Map<String, Value>, JsonReply> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    object(body, "the body should be a JSON object")
}

fn object(body: &[u8], otherwise: &str) -> Result<Map<String, Value>, JsonReply> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => refuse(StatusCode::BAD_REQUEST, otherwise),
        Err(_) => refuse(StatusCode::BAD_REQUEST, "problems parsing JSON"),
    }
}

fn world(state: &State) -> Value {
    let world = &state.world;
    let repository = |one| repository_line(state, one);
    let user = |user: &User| json!({ "id": user.id, "login": user.login });
    let oauth_app = |app: &OauthApp| json!({ "id": app.id, "client_id": app.client_id, "client_secret": app.client_secret, "owner": world.owner_login(app.owner) });
    let thread = |thread: &Thread| json!({ "id": thread.id, "user": world.login(thread.user), "repository": thread.repository, "number": thread.topic.number(), "reason": thread.reason.into_str() });
    let hooks = world.organizations.values().flat_map(|organization| {
        organization.hooks.values().map(|hook| json!({ "id": hook.id, "organization": organization.login, "url": hook.config.url, "events": hook.events, "deliveries": hook.deliveries.len() }))
    });
    json!({
        "dialect": state.options.dialect,
        "seed": state.options.seed,
        "tokens": world.token_views(),
        "apps": world.apps.iter().map(|app| app_line(world, app)).collect::<Vec<_>>(),
        "oauth_apps": world.oauth_apps.iter().map(oauth_app).collect::<Vec<_>>(),
        "users": world.users.values().map(user).collect::<Vec<_>>(),
        "organizations": world.organizations.values().map(|one| organization_line(world, one)).collect::<Vec<_>>(),
        "organization_roles": role_views(),
        "enterprises": world.enterprise_views(),
        "repositories": world.repositories.values().map(repository).collect::<Vec<_>>(),
        "threads": world.threads.values().map(thread).collect::<Vec<_>>(),
        "hooks": hooks.collect::<Vec<_>>(),
        "migrations": migrations::views(world),
    })
}

fn app_line(world: &World, app: &App) -> Value {
    let installation = |(id, organization): &(u64, u64)| json!({ "id": id, "organization": world.owner_login(Owner::Organization(*organization)) });
    let webhook = world.app_hooks.get(&app.id).map(|hook| json!({ "id": hook.id, "url": hook.config.url, "events": hook.events, "deliveries": hook.deliveries.len() }));
    json!({
        "app_id": app.id,
        "slug": app.slug,
        "owner": world.owner_login(app.owner),
        "private_key": app.private_key,
        "installations": app.installations.iter().map(installation).collect::<Vec<_>>(),
        "webhook": webhook,
    })
}

fn organization_line(world: &World, organization: &Organization) -> Value {
    let logins = |ids: &BTreeSet<u64>| ids.iter().map(|id| world.login(*id)).collect::<Vec<_>>();
    let roles: Map<String, Value> = organization
        .roles
        .iter()
        .map(|(role, users)| ((*role).to_owned(), json!(logins(users))))
        .collect();
    json!({
        "id": organization.id,
        "login": organization.login,
        "enterprise_cloud": world.enterprise_cloud.contains(&organization.id),
        "owner": organization.owners.first().map(|owner| world.login(*owner)),
        "owners": logins(&organization.owners),
        "members": logins(&organization.members),
        "teams": world.team_views(organization),
        "invitations": world.invitation_views(organization),
        "roles": roles,
        "properties": properties::overview(world, organization.id),
        "issue_fields": issue_fields::overview(world, organization.id),
    })
}

fn repository_line(state: &State, repository: &Repository) -> Value {
    json!({
        "id": repository.id,
        "full_name": state.world.full_name(repository),
        "private": repository.visibility == Visibility::Private,
        "issues": repository.issues.len(),
        "comments": repository.comments.len(),
        "labels": repository.labels.len(),
        "releases": repository.releases.keys().collect::<Vec<_>>(),
        "former_names": state.world.former_names(repository),
    })
}

/// `?since=N&limit=N`: the first `limit` requests after number N, and the transcript's bounds.
fn transcript(state: &State, query: &Query) -> ControlResult {
    let number = |name: &str, default: u64| match query.get(name).map(str::parse) {
        None => Ok(default),
        Some(Ok(number)) => Ok(number),
        Some(Err(_)) => refuse_field(name, format!("{name} must be a whole number")),
    };
    let (since, limit) = (number("since", 0)?, number("limit", u64::MAX)?);
    let (first, last) = state.transcript.bounds().unzip();
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let requests: Vec<&Entry> = state.transcript.since(since).take(limit).collect();
    let dropped = state.transcript.dropped();
    Ok(success(json!({ "requests": requests, "first": first, "last": last, "dropped": dropped })))
}

/// Sets `{"state": "pending" | "exporting" | "exported" | "failed"}` and pins the migration there.
fn put_migration(state: &mut State, now: Timestamp, id: &str, body: &[u8]) -> ControlResult {
    let Ok(mut fields) = Fields::parse("Migration", body) else {
        return refuse(StatusCode::BAD_REQUEST, "problems parsing JSON");
    };
    let name = fields.string("state").unwrap_or_default();
    let Ok(wanted) = name.parse::<MigrationState>() else {
        return unprocessable("state must be pending, exporting, exported or failed");
    };
    let put = id
        .parse()
        .is_ok_and(|id| migrations::put(&mut state.world, &state.limits, now, id, wanted));
    if put {
        Ok((StatusCode::NO_CONTENT, Value::Null))
    } else {
        refuse(StatusCode::NOT_FOUND, "there is no such migration")
    }
}
