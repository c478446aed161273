//! The control plane under `/_emulator` (SPECIFICATION, "Emulator"): inspects and changes the
//! emulator's state. It is neither counted nor authenticated, so the emulator listens on loopback
//! by default. Cross-origin pages are refused (`offer`).

mod faults;
mod gates;
pub mod notification_triggers;
mod offer;
mod seed;
pub mod waits;
pub mod webhook_triggers;
mod windows;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use serde_json::{Map, Value, json};

use crate::clock::Timestamp;
use crate::emulator::accounts::AccountId;
use crate::emulator::events::changes;
use crate::emulator::faults::WrongMember;
use crate::emulator::http::{
    ApiError, Body, Code, FieldError, Fields, Query, Urls, http_date, iso, path,
};
use crate::emulator::limits::Resource;
use crate::emulator::migrations;
use crate::emulator::resources::teams::joining;
use crate::emulator::state::State;
use crate::emulator::state::transcript::Entry;
use crate::emulator::world::{MigrationState, Owner, Repository, Visibility, World, role_views};

const BODY_BYTES_MAX: usize = 1024 * 1024;

type JsonReply = (StatusCode, Value);

/// Answers a control request; `path` is the part after `/_emulator`.
pub fn respond(
    state: &mut State,
    now: Timestamp,
    request: &Request<Bytes>,
    path: &str,
) -> Response<Bytes> {
    let query = Query::parse(request.uri().query());
    let body = request.body();
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let mut allowed = None;
    let (status, value) = match (request.method().as_str(), segments.as_slice()) {
        _ if offer::is_cross_site(request) => {
            refuse(StatusCode::FORBIDDEN, "pages of other sites may not use the control plane")
        }
        _ if path::is_too_large(request, BODY_BYTES_MAX) => {
            refuse(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large for any control")
        }
        ("GET", ["world"]) => (StatusCode::OK, world(state)),
        ("GET", ["transcript"]) => transcript(state, &query),
        ("GET", ["books"]) => (StatusCode::OK, books(state, now)),
        ("GET", ["limits"]) => (StatusCode::OK, limits(state)),
        ("PUT", ["limits"]) => set_limits(state, body),
        ("POST", ["events"]) => {
            let urls = Urls::new(&state.origin(request), "");
            webhook_triggers::respond(&mut state.world, &urls, now, body)
                .unwrap_or_else(|| event(state, &urls, now, body))
        }
        ("POST", ["migrations", id]) => put_migration(state, now, id, body),
        (method, ["gates", rest @ ..]) if offer::has(method, &segments) => {
            gates::respond(state, method, rest, &query, body)
        }
        (method, ["faults", rest @ ..]) if offer::has(method, &segments) => {
            faults::respond(state, method, rest, &query, body)
        }
        ("GET", ["seed"]) => seed::show(state),
        ("POST", ["seed"]) => seed::plant(state, now, body),
        ("POST", ["reset"]) => {
            state.reset(now);
            (StatusCode::OK, json!({ "reset": true }))
        }
        _ => {
            allowed = offer::methods(&segments);
            offer::refuse(allowed)
        }
    };
    let mut response = Response::new(if status == StatusCode::NO_CONTENT {
        Bytes::new()
    } else {
        value.to_string().into()
    });
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    if let Some(allowed) =
        allowed.and_then(|methods| HeaderValue::from_str(&methods.join(", ")).ok())
    {
        response.headers_mut().insert(header::ALLOW, allowed);
    }
    if let Ok(date) = HeaderValue::from_str(&http_date(now)) {
        response.headers_mut().insert(header::DATE, date);
    }
    response
}

fn refuse(status: StatusCode, message: &str) -> JsonReply {
    (status, json!({ "message": message }))
}

/// Rejects in the error format of the API itself.
fn refuse_as(fault: ApiError) -> JsonReply {
    let reply = fault.into_reply();
    (reply.status, if let Body::Json(value) = reply.body { value } else { Value::Null })
}

fn refuse_field(field: &str, message: impl Into<String>) -> JsonReply {
    refuse_as(ApiError::invalid("Control", field, message))
}

fn refuse_members(wrong: Vec<WrongMember>) -> JsonReply {
    let of = |one: WrongMember| FieldError {
        resource: "Control",
        message: format!("{}: {}; accepted: {}", one.member, one.problem, one.accepted),
        code: if one.problem == "missing" { Code::MissingField } else { Code::Invalid },
        field: one.member,
    };
    refuse_as(ApiError::Invalid(wrong.into_iter().map(of).collect()))
}

/// Parses the members of a body; an empty body has none.
fn members(body: &[u8]) -> Result<Map<String, Value>, JsonReply> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    match serde_json::from_slice(body) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => Err(refuse(StatusCode::BAD_REQUEST, "the body should be a JSON object")),
        Err(_) => Err(refuse(StatusCode::BAD_REQUEST, "problems parsing JSON")),
    }
}

fn world(state: &State) -> Value {
    let world = &state.world;
    let organizations: Vec<Value> = world
        .organizations
        .values()
        .map(|organization| {
            let logins = |ids: &std::collections::BTreeSet<u64>| ids.iter().map(|id| world.login(*id)).collect::<Vec<_>>();
            json!({ "id": organization.id, "login": organization.login, "enterprise_cloud": world.enterprise_cloud.contains(&organization.id), "owner": organization.owners.first().map(|owner| world.login(*owner)), "owners": logins(&organization.owners), "members": logins(&organization.members), "teams": world.team_views(organization), "invitations": world.invitation_views(organization) })
        })
        .collect();
    let hooks: Vec<Value> = world
        .organizations
        .values()
        .flat_map(|organization| organization.hooks.values().map(move |hook| (organization, hook)))
        .map(|(organization, hook)| json!({ "id": hook.id, "organization": organization.login, "url": hook.config.url, "events": hook.events, "deliveries": hook.deliveries.len() }))
        .collect();
    let threads: Vec<Value> = world
        .threads
        .values()
        .map(|thread| json!({ "id": thread.id, "user": world.login(thread.user), "repository": thread.repository, "number": thread.topic.number(), "reason": thread.reason.name() }))
        .collect();
    let apps: Vec<Value> = world
        .apps
        .iter()
        .map(|app| {
            let installations: Vec<Value> = app
                .installations
                .iter()
                .map(|(id, organization)| json!({ "id": id, "organization": world.owner_login(Owner::Organization(*organization)) }))
                .collect();
            let webhook = world.app_hooks.get(&app.id).map(|hook| json!({ "id": hook.id, "url": hook.config.url, "events": hook.events, "deliveries": hook.deliveries.len() }));
            json!({ "app_id": app.id, "slug": app.slug, "owner": world.owner_login(app.owner), "private_key": app.private_key, "installations": installations, "webhook": webhook })
        })
        .collect();
    let organizations: Vec<Value> = organizations
        .into_iter()
        .map(|line| notification_triggers::with_schemas(world, line))
        .collect();
    json!({
        "dialect": state.options.dialect,
        "seed": state.options.seed,
        "tokens": world.token_views(),
        "apps": apps,
        "oauth_apps": world.oauth_apps.iter().map(|app| json!({ "id": app.id, "client_id": app.client_id, "client_secret": app.client_secret, "owner": world.owner_login(app.owner) })).collect::<Vec<_>>(),
        "users": world.users.values().map(|user| json!({ "id": user.id, "login": user.login })).collect::<Vec<_>>(),
        "organizations": organizations,
        "organization_roles": role_views(),
        "enterprises": world.enterprise_views(),
        "repositories": world.repositories.values().map(|repository| repository_line(state, repository)).collect::<Vec<_>>(),
        "threads": threads,
        "hooks": hooks,
        "migrations": migrations::views(world),
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
fn transcript(state: &State, query: &Query) -> JsonReply {
    let number = |name: &str, default: u64| match query.get(name).map(str::parse) {
        None => Ok(default),
        Some(Ok(number)) => Ok(number),
        Some(Err(_)) => Err(refuse_field(name, format!("{name} must be a whole number"))),
    };
    if let Some(name) = query.names().find(|name| !["since", "limit"].contains(name)) {
        return refuse_field(name, "unknown; since and limit are accepted");
    }
    let (since, limit) = match (number("since", 0), number("limit", u64::MAX)) {
        (Ok(since), Ok(limit)) => (since, usize::try_from(limit).unwrap_or(usize::MAX)),
        (Err(refusal), _) | (_, Err(refusal)) => return refusal,
    };
    let (first, last) = state.transcript.bounds().unzip();
    let requests: Vec<&Entry> = state.transcript.since(since).take(limit).collect();
    (
        StatusCode::OK,
        json!({ "requests": requests, "first": first, "last": last, "dropped": state.transcript.dropped() }),
    )
}

fn books(state: &State, now: Timestamp) -> Value {
    let primary: Vec<Value> = state
        .primary
        .windows(now)
        .map(|(account, resource, used, reset)| {
            let view = state.view(now, account, resource);
            json!({ "account": state.world.account_name(account), "resource": resource.name(), "limit": view.limit, "used": used, "remaining": view.remaining(), "reset": reset.as_secs() })
        })
        .collect();
    let usage = state.secondary.usage(now, &state.limits);
    let banned: Vec<String> = usage
        .iter()
        .filter(|one| one.banned)
        .map(|one| state.world.account_name(one.account))
        .collect();
    let secondary: Vec<Value> = usage
        .iter()
        .map(|one| {
            json!({
                "account": state.world.account_name(one.account), "in_flight": one.in_flight,
                "windows": windows::secondary(&state.limits, one),
                "points": one.points.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(), "graphql_points": one.graphql_points,
                "content_minute": one.content_minute, "content_hour": one.content_hour,
                "cpu_millis": one.meters.cpu_millis, "graphql_cpu_millis": one.meters.graphql_cpu_millis,
                "oauth_tokens_hour": one.meters.token_requests,
                "closed_until": one.closed_until.map(iso), "sent_while_limited": one.sent_while_limited, "banned": one.banned,
            })
        })
        .collect();
    json!({
        "now": iso(now),
        "windows": primary,
        "told": windows::announced(state, now),
        "secondary": secondary,
        "refused_primary": state.denial_counts.denied_primary,
        "refused_secondary": state.denial_counts.denied_secondary,
        "sent_while_limited": state.denial_counts.sent_while_limited,
        "banned": banned,
    })
}

fn limits(state: &State) -> Value {
    let values: Map<String, Value> =
        state.limits.iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    json!({ "limits": values, "resources": Resource::ALL.map(Resource::name) })
}

/// Sets limits from `{"core": 50, "window.primary": 10}`, also inside `{"limits": …}`; all or none.
fn set_limits(state: &mut State, body: &[u8]) -> JsonReply {
    let given = match serde_json::from_slice(body) {
        Ok(Value::Object(given)) => given,
        Ok(_) => {
            return refuse(StatusCode::BAD_REQUEST, "an object of names and numbers is needed");
        }
        Err(_) => return refuse(StatusCode::BAD_REQUEST, "problems parsing JSON"),
    };
    let given = match given.get("limits") {
        Some(Value::Object(inner)) => inner.clone(),
        _ => given,
    };
    let mut changed = state.limits.clone();
    let mut wrong = Vec::new();
    let mut refuse_limit = |name: &str, problem: &str, accepted: &str| {
        wrong.push(WrongMember {
            member: name.to_owned(),
            problem: problem.to_owned(),
            accepted: accepted.to_owned(),
        });
    };
    for (name, value) in &given {
        match value.as_u64() {
            None => refuse_limit(name, "wrong type", "a whole number"),
            Some(value) if changed.set(name, value).is_err() => {
                refuse_limit(
                    name,
                    "there is no such limit, or there are too many",
                    "a name that GET shows",
                );
            }
            Some(_) => {}
        }
    }
    if !wrong.is_empty() {
        return refuse_members(wrong);
    }
    state.limits = changed;
    (StatusCode::OK, limits(state))
}

/// Triggers an event of `triggers`, or `{"type": "issue_opened" | "comment" | "mention",
/// "repository": "acme/widgets", "actor": "ben", "number": 1, "text": "…", "user": "ada"}`.
fn event(state: &mut State, urls: &Urls, now: Timestamp, body: &[u8]) -> JsonReply {
    if let Some(answer) = notification_triggers::answer(state, now, body) {
        return answer;
    }
    let mut fields = match Fields::parse("Event", body) {
        Ok(fields) => fields,
        Err(fault) => return refuse_as(fault),
    };
    if let Some(answer) = invitation_event(state, now, &mut fields) {
        return answer;
    }
    let kind = fields.required_string("type");
    let full_name = fields.required_string("repository");
    let number = fields.nullable_integer("number").value();
    let actor = fields.string("actor").unwrap_or_else(|| "ben".to_owned());
    let text = fields.string("text").unwrap_or_else(|| "Something happened".to_owned());
    let mentioned = fields.string("user").unwrap_or_else(|| "ada".to_owned());
    if let Err(fault) = fields.check() {
        return refuse_as(fault);
    }
    let repository = full_name
        .split_once('/')
        .and_then(|(owner, name)| state.world.repository_named(owner, name))
        .map(|repository| repository.id);
    let actor = state.world.user_by_login(&actor).map(|user| user.id);
    let (Some(repository), Some(actor)) = (repository, actor) else {
        return refuse(StatusCode::UNPROCESSABLE_ENTITY, "there is no such repository or actor");
    };
    let happened = match kind.as_str() {
        "issue_opened" => changes::open_issue(&mut state.world, urls, now, repository, actor, text),
        "comment" => changes::comment(
            &mut state.world,
            urls,
            now,
            repository,
            number.unwrap_or(1),
            actor,
            &text,
        ),
        "mention" => changes::comment(
            &mut state.world,
            urls,
            now,
            repository,
            number.unwrap_or(1),
            actor,
            &format!("@{mentioned} {text}"),
        ),
        _ => {
            return refuse(
                StatusCode::UNPROCESSABLE_ENTITY,
                &format!(
                    "type must be issue_opened, comment, mention, push, pull_request_opened, custom, invitation_accepted, invitation_failed or one of {}",
                    notification_triggers::KINDS.join(", ")
                ),
            );
        }
    };
    if happened.is_some() {
        state.secondary.note_web_action(now, AccountId::User(actor), &state.limits);
    }
    match happened {
        Some(id) => (StatusCode::CREATED, json!({ "id": id })),
        None => refuse(StatusCode::UNPROCESSABLE_ENTITY, "there is no such issue"),
    }
}

/// Triggers `{"type": "invitation_accepted" | "invitation_failed", "organization": "acme", "user":
/// "hugo", "text": "…"}`; returns `None` for other types.
fn invitation_event(state: &mut State, now: Timestamp, fields: &mut Fields) -> Option<JsonReply> {
    let happens: fn(&mut World, Timestamp, u64, u64, String) -> Option<u64> =
        match fields.value("type").and_then(Value::as_str) {
            Some("invitation_accepted") => {
                |world, now, organization, user, _| joining::accept(world, now, organization, user)
            }
            Some("invitation_failed") => joining::fail,
            _ => return None,
        };
    let (organization, user) =
        (fields.required_string("organization"), fields.required_string("user"));
    let text = fields.string("text").unwrap_or_else(|| "The invitation expired".to_owned());
    if fields.check().is_err() || text.chars().count() > 1_000 {
        return Some(refuse(
            StatusCode::UNPROCESSABLE_ENTITY,
            "organization and user are required strings, text is a short one",
        ));
    }
    let organization =
        state.world.organization_by_login(&organization).map(|organization| organization.id);
    let user = state.world.user_by_login(&user).map(|user| user.id);
    let invitation = organization
        .zip(user)
        .and_then(|(organization, user)| happens(&mut state.world, now, organization, user, text));
    Some(match invitation {
        Some(id) => (StatusCode::CREATED, json!({ "id": id })),
        None => refuse(
            StatusCode::UNPROCESSABLE_ENTITY,
            "there is no pending invitation of that user to that organization",
        ),
    })
}

/// Sets `{"state": "pending" | "exporting" | "exported" | "failed"}` and pins the migration there.
fn put_migration(state: &mut State, now: Timestamp, id: &str, body: &[u8]) -> JsonReply {
    let Ok(mut fields) = Fields::parse("Migration", body) else {
        return refuse(StatusCode::BAD_REQUEST, "problems parsing JSON");
    };
    let name = fields.string("state").unwrap_or_default();
    let Some(wanted) = MigrationState::ALL.into_iter().find(|wanted| wanted.name() == name) else {
        return refuse(
            StatusCode::UNPROCESSABLE_ENTITY,
            "state must be pending, exporting, exported or failed",
        );
    };
    let put = id
        .parse()
        .is_ok_and(|id| migrations::put(&mut state.world, &state.limits, now, id, wanted));
    if put {
        (StatusCode::NO_CONTENT, Value::Null)
    } else {
        refuse(StatusCode::NOT_FOUND, "there is no such migration")
    }
}
