//! Webhooks of the seed world: an owner's and an OAuth app's in acme, and the app's own. Their
//! deliveries lie in the past; no receiver was ever contacted.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::Value;

use super::options::Options;
use super::people::{ACME, ACME_INSTALLATION, APP, OAUTH_APP, WIDGETS};
use super::{DAY, HOUR};
use crate::clock::Timestamp;
use crate::emulator::events::delivery::envelope;
use crate::emulator::events::issues;
use crate::emulator::events::webhooks::{
    EventContext, EventScope, WebhookEvent, past_payload, with_installation,
};
use crate::emulator::http::Urls;
use crate::emulator::world::{
    Attempt, Config, Delivery, DeliveryLog, Hook, Issue, Receipt, Target, World, guid,
};

/// More than one page.
const DELIVERIES: usize = 40;
/// The emulator's default address, for payloads made before anybody asked by another one.
const ORIGIN: &str = "http://127.0.0.1:8090";

pub fn add(world: &mut World, options: &Options, now: Timestamp) {
    let created_at = now - DAY * 50;
    let origin = if options.base_url.is_empty() { ORIGIN } else { &options.base_url };
    let payloads = payloads(world, &Urls::new(origin, ""), now);
    for (created_by_app, host) in
        [(None, "receiver.example.com"), (Some(OAUTH_APP), "oauth.example.com")]
    {
        let url = format!("https://{host}/hook");
        let events = ["push", "pull_request", "issues"];
        let mut hook = hook(world, Target::Organization(ACME), &url, &events, created_at);
        hook.created_by_app = created_by_app;
        if created_by_app.is_none() {
            add_deliveries(world, &mut hook, None, &payloads);
        }
        if let Some(acme) = world.organizations.get_mut(&ACME) {
            acme.hooks.insert(hook.id, hook);
        }
    }
    let url = "https://receiver.example.com/app";
    let mut hook = hook(world, Target::App(APP), url, &["*"], created_at);
    add_deliveries(world, &mut hook, Some(ACME_INSTALLATION), &payloads);
    world.app_hooks.insert(APP, hook);
}

fn hook(world: &mut World, target: Target, url: &str, events: &[&str], at: Timestamp) -> Hook {
    Hook {
        id: world.next_id(),
        target,
        created_by_app: None,
        config: Config {
            url: url.to_owned(),
            secret: Some("emu_hook_secret".to_owned()),
            ..Config::default()
        },
        events: events.iter().map(|event| (*event).to_owned()).collect(),
        active: true,
        created_at: at,
        updated_at: at,
        deliveries: DeliveryLog::default(),
    }
}

/// The payloads of open issues in acme/widgets, as an event raises them.
fn payloads(world: &World, urls: &Urls, now: Timestamp) -> Vec<Value> {
    let Some(widgets) = world.repositories.get(&WIDGETS) else { return Vec::new() };
    let opened = |issue: &Issue| {
        let (scope, actor) = (EventScope::Repository(WIDGETS), issue.author);
        let (context, number) = (EventContext { urls, now, scope, actor }, issue.number);
        past_payload(world, context, WebhookEvent::new("issues", "opened"), |renderer| {
            issues::subject(renderer, WIDGETS, number)
        })
    };
    let issues = widgets.issues.values();
    let open = issues.filter(|issue| issue.pull_from.is_none() && issue.closed_at.is_none());
    open.take(DELIVERIES).map(opened).collect()
}

/// Adds hourly deliveries, one of them with an error response.
fn add_deliveries(
    world: &mut World,
    hook: &mut Hook,
    installation: Option<u64>,
    payloads: &[Value],
) {
    for (index, payload) in (0..).zip(payloads) {
        let id = world.next_id();
        let receipt = if index == 20 {
            answer(StatusCode::BAD_GATEWAY, "no route to the receiver")
        } else {
            answer(StatusCode::OK, "ok")
        };
        let payload = installation.map_or_else(
            || payload.to_string(),
            |id| with_installation(payload.clone(), id).to_string(),
        );
        let mut delivery = Delivery {
            id,
            guid: guid(id),
            at: hook.created_at + HOUR * index,
            attempt: Attempt::First,
            event: "issues".into(),
            action: Some("opened".into()),
            repository: Some(WIDGETS),
            installation,
            payload: payload.into(),
            posted: None,
            receipt,
        };
        delivery.posted = Some(envelope::posted(&hook.config, &delivery));
        hook.deliveries.append(delivery);
    }
}

fn answer(status: StatusCode, text: &str) -> Receipt {
    let headers =
        HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"))]);
    Receipt::answered(status, &headers, text.as_bytes(), Duration::from_millis(120))
}
