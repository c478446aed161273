//! Organisation webhooks (Document 3): create, list, change, delete, configuration.

use std::collections::{BTreeMap, VecDeque};

use http::StatusCode;
use serde_json::{Value, json};

use super::deliveries::Delivery;
use crate::clock::Timestamp;
use crate::emulator::access::{Need, OrganizationNeed, OrganizationRole, Unscoped};
use crate::emulator::accounts::Level;
use crate::emulator::call::Call;
use crate::emulator::fault::{Code, Fault};
use crate::emulator::fields::Fields;
use crate::emulator::pagination::{self, USUAL};
use crate::emulator::reply::Reply;
use crate::emulator::route::{Outcome, Route, Verb};
use crate::emulator::timestamps::iso;
use crate::emulator::urls::segment;
use crate::emulator::world::Organization;

pub const READ: Need = need(Level::Read);
pub const WRITE: Need = need(Level::Write);

/// "Caller must be an organization owner. Classic tokens need `admin:org_hook`"; 404 is the only refusal that the routes list.
const fn need(level: Level) -> Need {
    Need::Organization(OrganizationNeed {
        permission: "organization_hooks",
        level,
        scopes: &["admin:org_hook"],
        role: OrganizationRole::Owner,
        unscoped: Unscoped::NotFound,
    })
}

/// A secret is write-only; "responses show it masked" (Document 3, Webhook configuration).
const MASK: &str = "********";
/// "`json` is used; other supported values beyond json: not shown". `form` is the other one that published clients send.
const CONTENT_TYPES: [&str; 2] = ["json", "form"];

pub const ROUTES: &[Route] = &[
    Route::new(Verb::Get, "/orgs/{org}/hooks", READ, list),
    Route::new(Verb::Post, "/orgs/{org}/hooks", WRITE, create),
    Route::new(Verb::Get, "/orgs/{org}/hooks/{hook_id}", READ, get),
    Route::new(Verb::Patch, "/orgs/{org}/hooks/{hook_id}", WRITE, patch),
    Route::new(Verb::Delete, "/orgs/{org}/hooks/{hook_id}", WRITE, delete),
    Route::new(Verb::Get, "/orgs/{org}/hooks/{hook_id}/config", READ, get_config),
    Route::new(Verb::Patch, "/orgs/{org}/hooks/{hook_id}/config", WRITE, patch_config),
];

/// An organisation's webhook.
#[derive(Debug)]
pub struct Hook {
    pub id: u64,
    /// The OAuth app whose token created it, if one did.
    pub created_by_app: Option<u64>,
    pub config: Config,
    pub events: Vec<String>,
    pub active: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    /// Oldest first, so that ids rise.
    pub deliveries: VecDeque<Delivery>,
}

impl Hook {
    /// "`*` selects all" (Document 3, Events).
    pub fn wants(&self, event: &str) -> bool {
        self.active && self.events.iter().any(|wanted| wanted == event || wanted == "*")
    }
}

/// Where and how it delivers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    pub url: String,
    pub content_type: String,
    pub secret: Option<String>,
    /// `0` verifies the receiver's certificate, `1` does not.
    pub insecure_ssl: String,
}

/// The hook that the path names. "OAuth apps cannot list, view or edit hooks they did not create, and users cannot list, view or edit
/// hooks created by OAuth apps" (Document 3).
pub fn named<'a>(call: &'a Call<'_>) -> Result<&'a Hook, Fault> {
    let id = call.params.id("hook_id")?;
    organization(call)?.hooks.get(&id).filter(|hook| is_mine(call, hook)).ok_or(Fault::NotFound)
}

fn is_mine(call: &Call<'_>, hook: &Hook) -> bool {
    hook.created_by_app == call.caller.token().and_then(|token| token.oauth_app)
}

fn organization<'a>(call: &'a Call<'_>) -> Result<&'a Organization, Fault> {
    call.world.organizations.get(&call.organization).ok_or(Fault::NotFound)
}

fn hook_mut<'a>(call: &'a mut Call<'_>, id: u64) -> Result<&'a mut Hook, Fault> {
    let organization = call.organization;
    call.world.organizations.get_mut(&organization).and_then(|organization| organization.hooks.get_mut(&id)).ok_or(Fault::NotFound)
}

fn list(call: &mut Call<'_>) -> Outcome {
    let hooks = organization(call)?.hooks.values().filter(|hook| is_mine(call, hook)).collect();
    Ok(pagination::page(call, USUAL, hooks, |hook| render(call, hook)))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let hook = named(call)?;
    Ok(Reply::ok(render(call, hook)).changed_at(hook.updated_at))
}

fn create(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Hook", call.body)?;
    if fields.required_string("name") != "web" && fields.value("name").is_some_and(Value::is_string) {
        fields.reject("name", Code::Invalid, "name must be web");
    }
    if !fields.has("config") {
        fields.reject("config", Code::MissingField, "config is required");
    }
    let config = fields.object("config").map(|inner| whole_config(&mut fields, inner)).unwrap_or_default();
    let events = events(&mut fields).unwrap_or_else(|| vec!["push".to_owned()]);
    let active = fields.boolean("active").unwrap_or(true);
    fields.check()?;
    Fault::unless_spammed("Hook", organization(call)?.hooks.len())?;
    let (now, id) = (call.now, call.world.next_id());
    let created_by_app = call.caller.token().and_then(|token| token.oauth_app);
    let hook = Hook { id, created_by_app, config, events, active, created_at: now, updated_at: now, deliveries: VecDeque::new() };
    let value = render(call, &hook);
    let location = value.get("url").and_then(Value::as_str).unwrap_or("").to_owned();
    let organization = call.organization;
    call.world.organizations.get_mut(&organization).ok_or(Fault::NotFound)?.hooks.insert(id, hook);
    Ok(Reply::created(value, &location))
}

fn patch(call: &mut Call<'_>) -> Outcome {
    let id = named(call)?.id;
    let mut fields = Fields::parse("Hook", call.body)?;
    if fields.string("name").is_some_and(|name| name != "web") {
        fields.reject("name", Code::Invalid, "name must be web");
    }
    // "The secret is overwritten by an update: an earlier secret must be sent again or replaced, otherwise it is removed."
    let config = fields.object("config").map(|inner| whole_config(&mut fields, inner));
    let events = events(&mut fields);
    let active = fields.boolean("active");
    fields.check()?;
    let now = call.now;
    let hook = hook_mut(call, id)?;
    if let Some(config) = config {
        hook.config = config;
    }
    hook.events = events.unwrap_or_else(|| std::mem::take(&mut hook.events));
    hook.active = active.unwrap_or(hook.active);
    hook.updated_at = now;
    let hook = named(call)?;
    Ok(Reply::ok(render(call, hook)))
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let id = named(call)?.id;
    let organization = call.organization;
    call.world.organizations.get_mut(&organization).ok_or(Fault::NotFound)?.hooks.remove(&id);
    Ok(Reply::empty(StatusCode::NO_CONTENT))
}

fn get_config(call: &mut Call<'_>) -> Outcome {
    let hook = named(call)?;
    Ok(Reply::ok(render_config(&hook.config)).changed_at(hook.updated_at))
}

/// Only the fields given change, unlike an update of the hook itself.
fn patch_config(call: &mut Call<'_>) -> Outcome {
    let id = named(call)?.id;
    let mut fields = Fields::parse("Hook", call.body)?;
    let url = url(&mut fields);
    let content_type = content_type(&mut fields);
    let secret = fields.string("secret");
    let insecure_ssl = insecure_ssl(&mut fields);
    fields.check()?;
    let now = call.now;
    let hook = hook_mut(call, id)?;
    let old = std::mem::take(&mut hook.config);
    hook.config = Config {
        url: url.unwrap_or(old.url),
        content_type: content_type.unwrap_or(old.content_type),
        secret: secret.or(old.secret),
        insecure_ssl: insecure_ssl.unwrap_or(old.insecure_ssl),
    };
    hook.updated_at = now;
    Ok(Reply::ok(render_config(&hook.config)))
}

/// A `config` object in a hook, where `url` is required.
fn whole_config(fields: &mut Fields, mut inner: Fields) -> Config {
    if !inner.has("url") {
        inner.reject("url", Code::MissingField, "url is required");
    }
    // Accepted on creation only, and not kept: nothing answers with them.
    let _ = (inner.string("username"), inner.string("password"));
    let config = Config {
        url: url(&mut inner).unwrap_or_default(),
        content_type: content_type(&mut inner).unwrap_or_else(|| CONTENT_TYPES[0].to_owned()),
        secret: inner.string("secret"),
        insecure_ssl: insecure_ssl(&mut inner).unwrap_or_else(|| "0".to_owned()),
    };
    fields.absorb(inner, "config");
    config
}

fn url(fields: &mut Fields) -> Option<String> {
    let url = fields.string("url")?;
    let is_http = |uri: http::Uri| matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some();
    if url.parse().is_ok_and(is_http) {
        return Some(url);
    }
    fields.reject("url", Code::Invalid, "url must be an http or https address");
    None
}

fn content_type(fields: &mut Fields) -> Option<String> {
    let given = fields.string("content_type")?;
    if CONTENT_TYPES.contains(&given.as_str()) {
        return Some(given);
    }
    fields.reject("content_type", Code::Invalid, "content_type must be json or form");
    None
}

/// "string or number" (Document 3).
fn insecure_ssl(fields: &mut Fields) -> Option<String> {
    let given = match fields.value("insecure_ssl")? {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => String::new(),
    };
    if matches!(given.as_str(), "0" | "1") {
        return Some(given);
    }
    fields.reject("insecure_ssl", Code::Invalid, "insecure_ssl must be 0 or 1");
    None
}

fn events(fields: &mut Fields) -> Option<Vec<String>> {
    let events = fields.strings("events")?;
    if events.is_empty() || events.len() > 100 {
        fields.reject("events", Code::Invalid, "events must name 1 to 100 events");
        return None;
    }
    Some(events)
}

/// Document 3, Organization webhook.
fn render(call: &Call<'_>, hook: &Hook) -> Value {
    let organization = organization(call).map_or("", |organization| &organization.login);
    let url = format!("{}/orgs/{}/hooks/{}", call.urls.api, segment(organization), hook.id);
    json!({
        "id": hook.id,
        "url": url,
        "ping_url": format!("{url}/pings"),
        "deliveries_url": format!("{url}/deliveries"),
        "name": "web",
        "events": hook.events,
        "active": hook.active,
        // "secret never returned"
        "config": { "url": hook.config.url, "content_type": hook.config.content_type },
        "updated_at": iso(hook.updated_at),
        "created_at": iso(hook.created_at),
        "type": "Organization",
    })
}

/// Document 3, Webhook configuration.
fn render_config(config: &Config) -> Value {
    let mut members =
        BTreeMap::from([("url", config.url.as_str()), ("content_type", &config.content_type), ("insecure_ssl", &config.insecure_ssl)]);
    if config.secret.is_some() {
        members.insert("secret", MASK);
    }
    json!(members)
}
