//! Webhooks of the seed world: an owner's and an OAuth app's in acme, and the app's own. Their
//! deliveries lie in the past; no receiver was ever contacted.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::json;

use super::people::{ACME, ACME_INSTALLATION, APP, OAUTH_APP, WIDGETS};
use super::{DAY, HOUR};
use crate::clock::Timestamp;
use crate::emulator::events::delivery::envelope;
use crate::emulator::world::{
    Attempt, Config, Delivery, DeliveryLog, Hook, Receipt, Target, World, guid,
};

/// More than one page.
const DELIVERIES: u32 = 40;

pub fn add(world: &mut World, now: Timestamp) {
    let created_at = now - DAY * 50;
    for (created_by_app, host) in
        [(None, "receiver.example.com"), (Some(OAUTH_APP), "oauth.example.com")]
    {
        let url = format!("https://{host}/hook");
        let events = ["push", "pull_request", "issues"];
        let mut hook = hook(world, Target::Organization(ACME), &url, &events, created_at);
        hook.created_by_app = created_by_app;
        if created_by_app.is_none() {
            add_deliveries(world, &mut hook, None);
        }
        if let Some(acme) = world.organizations.get_mut(&ACME) {
            acme.hooks.insert(hook.id, hook);
        }
    }
    let url = "https://receiver.example.com/app";
    let mut hook = hook(world, Target::App(APP), url, &["*"], created_at);
    add_deliveries(world, &mut hook, Some(ACME_INSTALLATION));
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

/// Adds hourly deliveries, one of them with an error response.
fn add_deliveries(world: &mut World, hook: &mut Hook, installation: Option<u64>) {
    for index in 0..DELIVERIES {
        let id = world.next_id();
        let receipt = if index == 20 {
            answer(StatusCode::BAD_GATEWAY, "no route to the receiver")
        } else {
            answer(StatusCode::OK, "ok")
        };
        let mut payload = json!({ "action": "opened", "issue": { "number": index + 1 }, "repository": { "id": WIDGETS } });
        if let (Some(members), Some(id)) = (payload.as_object_mut(), installation) {
            members.insert("installation".to_owned(), json!({ "id": id }));
        }
        let mut delivery = Delivery {
            id,
            guid: guid(id),
            at: hook.created_at + HOUR * index,
            attempt: Attempt::First,
            event: "issues".into(),
            action: Some("opened".into()),
            repository: Some(WIDGETS),
            installation,
            payload: payload.to_string().into(),
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
