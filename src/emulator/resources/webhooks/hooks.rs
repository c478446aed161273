//! Organisation webhooks: create, list, change, delete, configuration (SPECIFICATION, "Webhooks").

use serde_json::{Value, json};

use super::hook_config::{self, ConfigFields};
use crate::emulator::accounts::Level;
use crate::emulator::http::{ApiError, Fields, Reply, iso, segment};
use crate::emulator::routing::{Call, Need, OrganizationRole, Outcome, Route, Unscoped};
use crate::emulator::world::{Config, DeliveryLog, Hook, HookKey, Target};

pub const READ: Need = need(Level::Read);
pub const WRITE: Need = need(Level::Write);

/// Classic tokens need `admin:org_hook`. 404 is the only documented refusal.
const fn need(level: Level) -> Need {
    let (scopes, role) = (&["admin:org_hook"], OrganizationRole::Owner);
    Need::organization("organization_hooks", level, scopes, role, Unscoped::NotFound)
}

/// The most webhooks of an organisation, because each keeps a log. Undocumented.
const HOOKS_MAX: usize = 250;
/// The upstream does not document the catalogue of events, so any name is accepted.
const EVENTS_MAX: usize = 100;
const EVENT_BYTES_MAX: usize = 100;

pub const ROUTES: &[Route] = &[
    Route::get("/orgs/{org}/hooks", READ, list),
    Route::post("/orgs/{org}/hooks", WRITE, create),
    Route::get("/orgs/{org}/hooks/{hook_id}", READ, get),
    Route::patch("/orgs/{org}/hooks/{hook_id}", WRITE, patch),
    Route::delete("/orgs/{org}/hooks/{hook_id}", WRITE, delete),
    Route::get("/orgs/{org}/hooks/{hook_id}/config", READ, get_config),
    Route::patch("/orgs/{org}/hooks/{hook_id}/config", WRITE, patch_config),
];

/// OAuth apps reach only their own webhooks, and users none of those (SPECIFICATION, "Webhooks").
pub fn named<'a>(call: &'a Call<'_>) -> Result<&'a Hook, ApiError> {
    let id = call.params.id("hook_id")?;
    call.organization()?.hooks.get(&id).filter(|hook| is_mine(call, hook)).ok_or(ApiError::NotFound)
}

fn is_mine(call: &Call<'_>, hook: &Hook) -> bool {
    hook.created_by_app == call.caller.token().and_then(|token| token.oauth_app)
}

fn list(call: &mut Call<'_>) -> Outcome {
    let hooks = call.organization()?.hooks.values().filter(|hook| is_mine(call, hook));
    call.page(hooks, |_, hook| render(call, hook))
}

fn get(call: &mut Call<'_>) -> Outcome {
    let hook = named(call)?;
    Ok(Reply::ok(render(call, hook)).changed_at(hook.updated_at))
}

fn create(call: &mut Call<'_>) -> Outcome {
    let mut fields = Fields::parse("Hook", call.body)?;
    if fields.required_string("name") != "web" && fields.value("name").is_some_and(Value::is_string)
    {
        fields.invalid("name", "name must be web");
    }
    fields.require("config");
    let config =
        fields.object("config").map(|inner| new_config(&mut fields, inner)).unwrap_or_default();
    let events = events(&mut fields).unwrap_or_else(|| vec!["push".to_owned()]);
    let active = fields.boolean("active").unwrap_or(true);
    fields.check()?;
    if call.organization()?.hooks.len() >= HOOKS_MAX {
        let message = format!("there are {HOOKS_MAX} webhooks already");
        return Err(ApiError::invalid("Hook", "base", message));
    }
    let id = call.world.next_id();
    let hook = Hook {
        id,
        target: Target::Organization(call.organization),
        created_by_app: call.caller.token().and_then(|token| token.oauth_app),
        config,
        events,
        active,
        created_at: call.now,
        updated_at: call.now,
        deliveries: DeliveryLog::default(),
    };
    let value = render(call, &hook);
    call.organization_mut()?.hooks.insert(id, hook);
    Ok(Reply::created_at_url(value))
}

/// Every update without a secret removes the stored one, even an update without `config`
/// (SPECIFICATION, "Webhooks").
fn patch(call: &mut Call<'_>) -> Outcome {
    let hook_key = named(call)?.hook_key();
    let mut fields = Fields::parse("Hook", call.body)?;
    if fields.string("name").is_some_and(|name| name != "web") {
        fields.invalid("name", "name must be web");
    }
    let given = fields
        .object("config")
        .map_or(ConfigFields::NOTHING, |inner| required_config(&mut fields, inner));
    let events = events(&mut fields);
    let active = fields.boolean("active");
    fields.check()?;
    let now = call.now;
    let hook = hook_mut(call, hook_key)?;
    let old = Config { secret: None, ..std::mem::take(&mut hook.config) };
    hook.config = given.change(old);
    hook.events = events.unwrap_or_else(|| std::mem::take(&mut hook.events));
    hook.active = active.unwrap_or(hook.active);
    hook.updated_at = now;
    let hook = named(call)?;
    Ok(Reply::ok(render(call, hook)))
}

fn hook_mut<'a>(call: &'a mut Call<'_>, hook_key: HookKey) -> Result<&'a mut Hook, ApiError> {
    call.world.hook_mut(hook_key).ok_or(ApiError::NotFound)
}

fn delete(call: &mut Call<'_>) -> Outcome {
    let hook_key = named(call)?.hook_key();
    call.organization_mut()?.hooks.remove(&hook_key.hook);
    call.world.delivery_queue.forget(hook_key);
    Ok(Reply::no_content())
}

fn get_config(call: &mut Call<'_>) -> Outcome {
    Ok(show_config(named(call)?))
}

pub fn show_config(hook: &Hook) -> Reply {
    Reply::ok(hook_config::render(&hook.config)).changed_at(hook.updated_at)
}

/// Changes only the given fields, unlike an update of the webhook itself.
fn patch_config(call: &mut Call<'_>) -> Outcome {
    let hook_key = named(call)?.hook_key();
    change_config(call, hook_key)
}

pub fn change_config(call: &mut Call<'_>, hook_key: HookKey) -> Outcome {
    let mut fields = Fields::parse("Hook", call.body)?;
    let given = ConfigFields::read(&mut fields);
    fields.check()?;
    let now = call.now;
    let hook = hook_mut(call, hook_key)?;
    hook.config = given.change(std::mem::take(&mut hook.config));
    hook.updated_at = now;
    Ok(Reply::ok(hook_config::render(&hook.config)))
}

/// `url` is required.
fn required_config(fields: &mut Fields, mut inner: Fields) -> ConfigFields {
    if !inner.has("url") {
        inner.missing("url");
    }
    let given = ConfigFields::read(&mut inner);
    fields.absorb(inner, "config");
    given
}

/// `username` and `password` are accepted only here; updates ignore them and keep these.
fn new_config(fields: &mut Fields, mut inner: Fields) -> Config {
    let [username, password] = ["username", "password"]
        .map(|name| hook_config::short_string(&mut inner, name).filter(|text| !text.is_empty()));
    required_config(fields, inner).change(Config { username, password, ..Config::default() })
}

fn events(fields: &mut Fields) -> Option<Vec<String>> {
    let given = fields.strings("events")?;
    let is_name = |name: &String| (1..=EVENT_BYTES_MAX).contains(&name.len());
    if given.is_empty() || given.len() > EVENTS_MAX || !given.iter().all(is_name) {
        fields.invalid("events", format!("events must name 1 to {EVENTS_MAX} events"));
        return None;
    }
    let mut events: Vec<String> = Vec::new();
    for event in given {
        if !events.contains(&event) {
            events.push(event);
        }
    }
    Some(events)
}

pub fn render(call: &Call<'_>, hook: &Hook) -> Value {
    let organization = call.organization().map_or("", |organization| &organization.login);
    let url = format!("{}/orgs/{}/hooks/{}", call.urls.api, segment(organization), hook.id);
    json!({
        "id": hook.id,
        "url": url,
        "ping_url": format!("{url}/pings"),
        "deliveries_url": format!("{url}/deliveries"),
        "name": "web",
        "events": hook.events,
        "active": hook.active,
        // The secret is never returned.
        "config": { "url": hook.config.url, "content_type": hook.config.content_type.into_str() },
        "updated_at": iso(hook.updated_at),
        "created_at": iso(hook.created_at),
        "type": "Organization",
    })
}
