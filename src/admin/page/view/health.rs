//! Tokens, webhooks and replicas: their health, the ill ones first.

use maud::{Markup, html};

use super::{Look, more, table, words};
use crate::admin::budgets::TokenState;
use crate::admin::replicas;
use crate::clock::Timestamp;
use crate::webhooks::WatchStatus;

/// Most rows of each table. Our choice: a person reads no more.
const SHOWN_MAX: usize = 50;

pub fn tokens(look: &Look) -> Markup {
    let mut health: Vec<_> = look.health.iter().collect();
    health.sort_by_key(|token| token.state.is_healthy());
    let usable = health.iter().filter(|token| token.state.is_healthy()).count();
    let shown = &health[..health.len().min(SHOWN_MAX)];
    let rows = html! {
        @for token in shown {
            @let name = look.gateway.env.account_name(token.account);
            @let state = TokenState::new((*token).clone(), look.now);
            tr {
                th scope="row" { (name) }
                td { (state.token) }
                td {
                    span class={ "state " @if state.healthy { "fine" } @else { "bad" } } { (state.state) }
                }
                td { (state.reason.as_deref().unwrap_or("–")) }
                td {
                    @match &state.rejected_since_iso {
                        Some(since) => { (words::written_time(since, look.now)) }
                        None => { "–" }
                    }
                }
            }
        }
    };
    let caption = format!(
        "{} of {} can be used",
        words::number(usable as u64),
        words::number(health.len() as u64)
    );
    html! {
        (table("tokens", &caption, &["Account", "Token", "State", "Reason", "Rejected since"], &rows))
        (more(health.len(), shown.len(), "tokens"))
    }
}

/// Webhooks of the config with their state, the ill ones first.
fn webhook_states(look: &Look) -> Vec<(&str, WatchStatus)> {
    let hooks = look.gateway.env.config.webhooks.iter().flat_map(|webhooks| &webhooks.hooks);
    let watched = look.gateway.cache.coverage().watched.iter();
    let mut states: Vec<_> = hooks
        .zip(watched)
        .map(|(hook, watched)| (&*hook.at, watched.watch.read().status()))
        .collect();
    states.sort_by_key(|(_, status)| !is_ill(status));
    states
}

/// Number of webhooks that have lost deliveries, or cannot be checked.
pub fn ill_webhooks(look: &Look) -> usize {
    webhook_states(look).iter().filter(|(_, status)| is_ill(status)).count()
}

fn is_ill(status: &WatchStatus) -> bool {
    status.missing > 0 || status.failed.is_some()
}

pub fn webhooks(look: &Look) -> Markup {
    if look.gateway.env.config.webhooks.is_none() {
        return html! { p { "The config has no webhooks." } };
    }
    let states = webhook_states(look);
    if states.is_empty() {
        return html! { p { "Webhooks are received. None is checked for lost deliveries." } };
    }
    let shown = &states[..states.len().min(SHOWN_MAX)];
    let rows = html! {
        @for (at, status) in shown { (webhook(at, status, look.now)) }
    };
    let heads = ["Webhook", "State", "Checked", "Missing", "Problem"];
    html! {
        (table("webhooks", "Checked for lost deliveries", &heads, &rows))
        (more(states.len(), shown.len(), "webhooks"))
    }
}

fn webhook(at: &str, status: &WatchStatus, now: Timestamp) -> Markup {
    let state = match status {
        status if status.failed.is_some() => ("bad", "not checked"),
        status if status.missing > 0 => ("bad", "has lost deliveries"),
        WatchStatus { checked_at: None, .. } => ("dim", "not checked yet"),
        _ => ("fine", "healthy"),
    };
    html! {
        tr {
            th scope="row" { (at) }
            td { span class={ "state " (state.0) } { (state.1) } }
            td { @match status.checked_at { Some(at) => (words::time(at, now)), None => "–" } }
            td.number { (words::number(status.missing as u64)) }
            td {
                @if let Some((at, problem)) = &status.failed { (words::time(*at, now)) ": " (problem) }
                @else { "–" }
            }
        }
    }
}

pub fn replicas(look: &Look) -> Markup {
    let Some(state) = replicas::of(&look.gateway) else {
        return html! { p { "This gateway is alone." } };
    };
    let (class, redis) = match &*state.redis {
        "in_reach" => ("fine", "in reach"),
        "never_reached" => ("bad", "never reached"),
        _ => ("bad", "out of reach"),
    };
    html! {
        dl {
            dt { "This replica" } dd { code { (state.replica) } }
            dt { "Started" } dd { (words::time(Timestamp::from_secs(state.since), look.now)) }
            dt { "Heard in the last seconds" } dd { (state.heard) " with this one" }
            dt { "Redis" }
            dd {
                span class={ "state " (class) } { (redis) }
                @if let Some(since) = state.out_since {
                    " since " (words::time(Timestamp::from_secs(since), look.now))
                }
                @if let Some(reason) = &state.reason { ": " (reason) }
            }
        }
    }
}
