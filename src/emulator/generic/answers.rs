//! The generic stored resource: the meaning of each method for each kind of route.
//!
//! A list holds the posted objects, settings keep the last PUT, an action reports success. Fields
//! are stored as sent.

use http::{Method, StatusCode, header};
use serde_json::{Map, Value, json};

use super::address::Address;
use super::alias::{self, Source};
use super::bodies::Members;
use super::shape::Shape;
use super::{Facts, bodies, effects, family, filters, seeds, settings};
use crate::emulator::http::path::decode_segment;
use crate::emulator::http::{ApiError, Code, Reply, SITE, iso, segment};
use crate::emulator::render::{Renderer, extended, node_id};
use crate::emulator::routing::{Call, Outcome, pagination, polling};
use crate::emulator::world::storage::collections::StorageFull;
use crate::emulator::world::{StoredItem, guid};

pub fn answer(call: &mut Call<'_>, facts: &Facts, address: &Address) -> Outcome {
    let shape = match facts.shape {
        _ if is_public_key(facts, address) => Shape::View,
        Shape::Family => family::shape(facts, address)?,
        shape => shape,
    };
    let method = &facts.endpoint.method;
    let is = |wanted: Method| *method == wanted;
    match shape {
        Shape::Action(status) => effects::act(call, facts, address, status),
        Shape::Download => download(address),
        Shape::List if is(Method::POST) => create(call, facts, address),
        Shape::List if is(Method::DELETE) => clear(call, facts, address),
        Shape::List | Shape::Names | Shape::Choice if is(Method::GET) => list(call, facts, address),
        Shape::Item if is(Method::PUT) => put(call, facts, address),
        Shape::Choice if is(Method::PUT) => choose_all(call, address),
        Shape::Chosen if !is(Method::DELETE) => keep(call, address),
        Shape::Names => settings::names(call, facts, address),
        Shape::Settings | Shape::View => settings::answer(call, facts, address),
        Shape::Switch => settings::switch(call, facts, address),
        Shape::Check => settings::check(call, facts, address),
        _ if is(Method::GET) => get(call, facts, address),
        _ if is(Method::DELETE) => delete(call, address),
        _ if is(Method::PATCH) => patch(call, address),
        // The table has no such method for this shape.
        _ => Err(ApiError::NotFound),
    }
}

/// The key that encrypts secrets stands where a secret's name would. The table lists some of them.
fn is_public_key(facts: &Facts, address: &Address) -> bool {
    facts.endpoint.method == Method::GET
        && address.name() == "public-key"
        && address.parent().ends_with("/secrets")
}

impl From<StorageFull> for ApiError {
    fn from(_: StorageFull) -> Self {
        Self::field("Resource", "base", Code::Invalid, "there is too much of this already")
    }
}

pub fn render(
    call: &Call<'_>,
    address: &Address,
    collection: &str,
    name: &str,
    stored: &StoredItem,
) -> Value {
    let mut fields = seeds::shown(call.world, call.urls, stored);
    let id = fields.remove(NAMED_ID).unwrap_or_else(|| json!(stored.id));
    let own = json!({
        "id": id,
        "node_id": node_id("Thing", stored.id),
        "url": format!("{}{}/{name}", call.urls.api, address.path_of(collection)),
        "created_at": iso(stored.created_at),
        "updated_at": iso(stored.updated_at),
    });
    extended(Value::Object(fields), own)
}

/// The field of an id that is not a number.
const NAMED_ID: &str = "_id";

/// Renders the object that a whole address names.
pub fn render_current(call: &Call<'_>, address: &Address, stored: &StoredItem) -> Value {
    render(call, address, &address.parent(), address.name(), stored)
}

fn list(call: &mut Call<'_>, facts: &Facts, address: &Address) -> Outcome {
    if facts.endpoint.cursor_pages
        && call.query.get("cursor").is_some_and(|cursor| !cursor.is_empty())
    {
        // No list here is long enough for a second page, so every cursor is invalid.
        return Err(ApiError::BadRequest("Invalid cursor".to_owned()));
    }
    let source = alias::source(call, facts, address);
    let mut listed = seeds::items(call.world, &source.collection);
    listed.retain(|(_, stored)| source.has(stored));
    filters::apply(call, facts.template, &mut listed)?;
    let total = listed.len();
    let (shown, link) = pagination::cut(call, facts.caps(), listed);
    let items = shown.iter().map(|(name, stored)| item(call, address, &source, name, stored));
    let mut reply = Reply::ok(facts.wrapping.wrap(items.collect(), total));
    reply.headers.extend(link);
    Ok(if facts.endpoint.polls { polled(call, reply, &source) } else { reply })
}

/// Responses for polling carry `Last-Modified` and the poll interval.
fn polled(call: &mut Call<'_>, reply: Reply, source: &Source) -> Reply {
    let organization = || call.world.organizations.get(&call.organization);
    // An untouched collection last changed when its subject was created.
    let begun = call
        .repository()
        .map(|repository| repository.created_at)
        .ok()
        .or_else(|| organization().map(|organization| organization.created_at))
        .or_else(|| call.world.users.values().map(|user| user.created_at).min());
    let changed_at = call.world.collections.changed_at(&source.collection).max(begun);
    polling::paced(call, Reply { changed_at, ..reply })
}

/// Renders an item of a list; a selected object is rendered as itself.
fn item(
    call: &Call<'_>,
    address: &Address,
    source: &Source,
    name: &str,
    stored: &StoredItem,
) -> Value {
    let renderer = Renderer::of(call);
    match stored.fields.get(CHOSEN).and_then(Value::as_str) {
        Some("repository_id") => {
            let repository = name.parse().ok().and_then(|id: u64| call.world.repositories.get(&id));
            repository.map_or(Value::Null, |repository| renderer.repository(repository))
        }
        Some("username") => {
            let user = call.world.user_by_login(name);
            user.map_or(Value::Null, |user| renderer.user_summary(user.id))
        }
        Some(_) => match name.parse::<u64>() {
            Ok(id) => json!({ "id": id }),
            Err(_) => json!({ "name": name, "slug": name }),
        },
        None => render(call, address, &source.collection, name, stored),
    }
}

/// The field that holds the parameter name of a selected object.
const CHOSEN: &str = "_chosen";

fn create(call: &mut Call<'_>, facts: &Facts, address: &Address) -> Outcome {
    let sent = bodies::of_new(call, facts.template)?;
    let source = alias::source(call, facts, address);
    let mut fields = bodies::defaults(facts.template);
    fields.extend(bodies::kept(sent));
    fields.extend(source.only.clone().map(|(field, value)| (field.to_owned(), value)));
    alias::complete(call, facts.template, &mut fields)?;
    let author = if facts.endpoint.content_generating { "user" } else { "creator" };
    fields.entry(author).or_insert_with(|| Renderer::of(call).user_summary(call.actor()));
    seeds::settle(call.world, &source.collection)?;
    let id = call.world.next_id();
    let name = name_of_new(call, facts, &source, id, &mut fields)?;
    let stored = StoredItem::new(id, fields, call.now);
    call.world.collections.put(&source.collection, &name, stored.clone())?;
    let value = render(call, address, &source.collection, &name, &stored);
    let location = value.get("url").and_then(Value::as_str).unwrap_or("").to_owned();
    let is_upload = facts.template.ends_with("/sarifs");
    let status = if is_upload { StatusCode::ACCEPTED } else { StatusCode::CREATED };
    Ok(Reply { status, ..Reply::created(value, &location) })
}

fn name_of_new(
    call: &Call<'_>,
    facts: &Facts,
    source: &Source,
    id: u64,
    fields: &mut Members,
) -> Result<String, ApiError> {
    match facts.item_param {
        "sarif_id" => {
            let guid = guid(id);
            fields.insert(NAMED_ID.to_owned(), json!(guid));
            Ok(guid)
        }
        param if param.ends_with("_number") => {
            let numbers = seeds::items(call.world, &source.collection)
                .into_iter()
                .filter_map(|(name, _)| name.parse::<u64>().ok());
            let number = numbers.max().unwrap_or(0) + 1;
            fields.insert("number".to_owned(), json!(number));
            Ok(number.to_string())
        }
        "name" => {
            let given = fields.get("name").and_then(Value::as_str).map(segment).unwrap_or_default();
            if seeds::get(call, &source.collection, &given).is_some() {
                let code = Code::AlreadyExists;
                return Err(ApiError::field("Resource", "name", code, "name is taken"));
            }
            Ok(given)
        }
        _ => Ok(id.to_string()),
    }
}

fn get(call: &mut Call<'_>, facts: &Facts, address: &Address) -> Outcome {
    // Only the newest attempt of a run is kept: the run itself.
    let is_attempt = facts.template.ends_with("/attempts/{attempt_number}");
    let index = address.steps.len().saturating_sub(if is_attempt { 3 } else { 1 });
    let collection = address.leading(index);
    let name = address.steps.get(index).map_or("", |step| &step.text);
    let stored = seeds::get(call, &collection, name).ok_or(ApiError::NotFound)?;
    Ok(Reply::ok(render(call, address, &collection, name, &stored)).changed_at(stored.updated_at))
}

fn patch(call: &mut Call<'_>, address: &Address) -> Outcome {
    let sent = bodies::object(call)?;
    let value = change(call, address, |fields| fields.extend(bodies::kept(sent)))?;
    // The running service answers these without a body.
    let is_silent = address.parent().ends_with("/variables");
    Ok(if is_silent { Reply::empty(StatusCode::NO_CONTENT) } else { Reply::ok(value) })
}

pub fn change(
    call: &mut Call<'_>,
    address: &Address,
    edit: impl FnOnce(&mut Members),
) -> Result<Value, ApiError> {
    let mut fields = seeds::current(call, address)?.fields;
    edit(&mut fields);
    let stored = seeds::put(call, &address.parent(), address.name(), fields)?;
    Ok(render_current(call, address, &stored))
}

/// Numbered objects are created by POST alone and only changed here.
fn put(call: &mut Call<'_>, facts: &Facts, address: &Address) -> Outcome {
    let mut fields = bodies::kept(bodies::object(call)?);
    let before = seeds::current(call, address);
    let param = address.last_param();
    let is_new = before.is_err();
    if param.ends_with("_id") || param.ends_with("_number") {
        before?;
    } else {
        fields.insert("name".to_owned(), json!(decode_segment(address.name())));
    }
    let stored = seeds::put(call, &address.parent(), address.name(), fields)?;
    let value = render_current(call, address, &stored);
    let is_secret = address.parent().ends_with("/secrets");
    Ok(if is_secret && is_new {
        Reply::json(StatusCode::CREATED, json!({}))
    } else if is_secret {
        Reply::empty(StatusCode::NO_CONTENT)
    } else if is_new && !facts.template.ends_with("{environment_name}") {
        Reply::json(StatusCode::CREATED, value)
    } else {
        Reply::ok(value)
    })
}

pub fn delete(call: &mut Call<'_>, address: &Address) -> Outcome {
    let collection = address.parent();
    seeds::current(call, address)?;
    seeds::settle(call.world, &collection)?;
    call.world.collections.take(&collection, address.name(), call.now).ok_or(ApiError::NotFound)?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

/// Deletes the items that the query names by `key` and lists them.
fn clear(call: &mut Call<'_>, facts: &Facts, address: &Address) -> Outcome {
    let source = alias::source(call, facts, address);
    let wanted = call.query.get("key").filter(|key| !key.is_empty()).map(str::to_owned);
    let wanted = wanted.ok_or_else(|| {
        ApiError::field("Resource", "key", Code::MissingField, "key is required in the query")
    })?;
    let mut deleted = seeds::items(call.world, &source.collection);
    deleted.retain(|(_, stored)| stored.fields.get("key") == Some(&json!(wanted)));
    for (name, _) in &deleted {
        call.world.collections.take(&source.collection, name, call.now);
    }
    let shown = deleted.iter();
    let items = shown.map(|(name, stored)| render(call, address, &source.collection, name, stored));
    Ok(Reply::ok(facts.wrapping.wrap(items.collect(), deleted.len())))
}

fn choose_all(call: &mut Call<'_>, address: &Address) -> Outcome {
    let param = if address.name() == "runners" { "runner_id" } else { "repository_id" };
    let is_known = |id: u64| param != "repository_id" || call.world.repositories.contains_key(&id);
    let ids = bodies::numbers(&bodies::members(call)?, is_known)?;
    call.world.collections.clear_below(&address.whole());
    for id in ids {
        choose(call, &address.whole(), &id.to_string(), param)?;
    }
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn keep(call: &mut Call<'_>, address: &Address) -> Outcome {
    bodies::members(call)?;
    choose(call, &address.parent(), address.name(), address.last_param())?;
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

/// Adds an existing object to a selection; `param` is its kind.
pub fn choose(
    call: &mut Call<'_>,
    collection: &str,
    name: &str,
    param: &str,
) -> Result<(), ApiError> {
    let fields = Map::from_iter([(CHOSEN.to_owned(), json!(param))]);
    let stored = StoredItem::new(call.world.next_id(), fields, call.now);
    Ok(call.world.collections.put(collection, name, stored)?)
}

/// A 302 to a download address, which is not on the API's host.
fn download(address: &Address) -> Outcome {
    if address.value("archive_format").is_some_and(|format| format != "zip") {
        return Err(ApiError::NotFound);
    }
    let path = address.path_of(&address.whole());
    Ok(Reply::empty(StatusCode::FOUND).with(header::LOCATION, &format!("{SITE}/downloads{path}")))
}
