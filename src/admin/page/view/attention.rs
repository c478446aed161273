//! The state in some sentences: each problem once, with a link to its section.

use std::collections::BTreeMap;
use std::time::Duration;

use maud::{Markup, html};

use super::budgets::Level;
use super::{Look, health, words};
use crate::admin::replicas;
use crate::config::Faults;
use crate::decision::breaker::State;
use crate::writes::WriteState;

/// Days before the end of a certificate. Our choice: a renewal of thirty days has failed by then.
const CERTIFICATE_DAYS: f64 = 14.0;
/// Time before the end of a client's key. Our choice: a week to hand out another.
const KEY_TIME: Duration = Duration::from_hours(7 * 24);
/// Age of a queued write that deserves a look. Our choice.
const OLD_WRITE: Duration = Duration::from_mins(10);
/// Most names in one sentence.
const NAMES_MAX: usize = 3;

struct Problem {
    is_bad: bool,
    section: &'static str,
    text: String,
}

pub fn show(look: &Look) -> Markup {
    let mut problems = problems(look);
    problems.sort_by_key(|problem| !problem.is_bad);
    let count = problems.len();
    html! {
        @if problems.is_empty() {
            p.fine #problems data-count="0" { "All is well." }
        } @else {
            ul.problems #problems data-count=(count) {
                @for Problem { is_bad, section, text } in &problems {
                    li class=@if *is_bad { "bad" } @else { "warn" } {
                        a href={ "#" (section) } { (text) }
                    }
                }
            }
        }
    }
}

fn problems(look: &Look) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut add = |is_bad, section, text| problems.push(Problem { is_bad, section, text });
    if look.gateway.env.active.is_leaving() {
        add(false, "attention", "The gateway is draining: it ends after its open requests.".into());
    }
    for (upstream, state) in look.gateway.dispatcher.breakers().states() {
        match state {
            State::Open { since, .. } => {
                let ago = words::duration(look.now.since(since));
                let text =
                    format!("The upstream {upstream} is down for {ago}: only probes are sent.");
                add(true, "waiting", text);
            }
            State::Suspected => {
                add(false, "waiting", format!("The upstream {upstream} does not answer."));
            }
            State::Closed => {}
        }
    }
    if let Some(replicas) =
        replicas::of(&look.gateway).filter(|replicas| replicas.redis != "in_reach")
    {
        let reason = replicas.reason.unwrap_or_default();
        add(true, "replicas", format!("Redis is out of reach: {reason}"));
    }
    of_accounts(look, &mut add);
    of_writes(look, &mut add);
    if let Some(Err(Faults(faults))) = look.reload.as_ref().map(|reload| &reload.result) {
        let faults = words::count(faults.len() as u64, "fault", "faults");
        let text = format!("The last reload was refused: the config has {faults}.");
        add(true, "config", text);
    }
    let webhooks = health::ill_webhooks(look);
    if webhooks > 0 {
        let count = words::count(webhooks as u64, "webhook", "webhooks");
        add(true, "webhooks", format!("Deliveries are lost or not checked: {count}."));
    }
    of_ends(look, &mut add);
    problems
}

/// Pools, tokens and budgets.
fn of_accounts(look: &Look, add: &mut impl FnMut(bool, &'static str, String)) {
    let without = look.gateway.dispatcher.lacking_token();
    let config = &look.gateway.env.config;
    if look.gateway.dispatcher.has_looked() && !without.is_empty() {
        let pools = without.pools.iter().filter_map(|pool| config.pools.get(*pool));
        let pools: Vec<&str> = pools.map(|pool| &*pool.name).collect();
        let writers = without.writers.iter().filter_map(|account| config.accounts.get(*account));
        let writers: Vec<&str> = writers.map(|account| &*account.name).collect();
        let lacking = match (without.are_all, pools.is_empty()) {
            (true, _) => "No account".to_owned(),
            (false, false) => format!("No account of pool {}", names(&pools)),
            (false, true) => format!("For writes, {}: no account", names(&writers)),
        };
        add(true, "tokens", format!("{lacking} has a token that works."));
    }
    let ill = look.health.iter().filter(|token| !token.state.is_healthy()).count();
    if ill > 0 {
        let all = look.health.len();
        add(false, "tokens", format!("{ill} of {all} tokens cannot be used."));
    }
    if !look.cooldowns.is_empty() {
        let closed: Vec<&str> = look.cooldowns.iter().map(|(account, _)| &**account).collect();
        let text = format!("The upstream has closed {} for a secondary limit.", names(&closed));
        add(true, "budgets", text);
    }
    let open = || look.budgets.iter().filter(|row| row.window.known);
    let of_level = |level: Level| {
        let rows = open().filter(move |row| row.level == level);
        let rows: Vec<String> = rows
            .map(|row| format!("{} of {}", row.window.resource.as_str(), row.account))
            .collect();
        rows
    };
    let is_closed = |text: &String| {
        look.cooldowns.iter().any(|(account, _)| text.ends_with(&format!(" of {account}")))
    };
    let spent: Vec<String> =
        of_level(Level::Spent).into_iter().filter(|row| !is_closed(row)).collect();
    if !spent.is_empty() {
        add(true, "budgets", format!("Spent: {}.", names(&spent)));
    }
    let ending = of_level(Level::Ending);
    if !ending.is_empty() {
        let soonest = look.budgets.iter().filter_map(|row| row.empty_in).min().unwrap_or_default();
        let soonest = words::duration(soonest);
        let text = format!("Empty before the reset, the first in {soonest}: {}.", names(&ending));
        add(false, "budgets", text);
    }
}

fn of_writes(look: &Look, add: &mut impl FnMut(bool, &'static str, String)) {
    let unknown = look.writes.count(&[WriteState::Unknown]);
    if unknown > 0 {
        let count = words::count(unknown, "write", "writes");
        add(true, "writes", format!("{count} may have been executed or not."));
    }
    let failed = look.writes.count(&[WriteState::Failed]);
    if failed > 0 {
        add(false, "writes", format!("{} failed.", words::count(failed, "write", "writes")));
    }
    if let Some(oldest) = look.gateway.writes.queue().oldest() {
        let age = look.now.since(oldest);
        if age >= OLD_WRITE {
            add(false, "writes", format!("The oldest write waits for {}.", words::duration(age)));
        }
    }
}

/// Ends of certificates and of keys.
fn of_ends(look: &Look, add: &mut impl FnMut(bool, &'static str, String)) {
    let mut certificates = BTreeMap::new();
    look.gateway.env.certificates.days_left(look.now, |listener, _, days| {
        let least = certificates.entry(listener).or_insert(days);
        *least = days.min(*least);
    });
    for (listener, days) in certificates {
        if days < 0.0 {
            add(true, "config", format!("A certificate of {listener} has ended."));
        } else if days < CERTIFICATE_DAYS {
            let days = days.floor();
            add(false, "config", format!("A certificate of {listener} ends in {days} days."));
        }
    }
    let ending = look
        .gateway
        .env
        .config
        .expiring_keys()
        .filter(|(_, _, _, end)| *end > look.now && end.since(look.now) < KEY_TIME);
    let clients: Vec<&str> = ending.map(|(client, ..)| client).collect();
    if !clients.is_empty() {
        add(false, "clients", format!("Keys end within a week: {}.", names(&clients)));
    }
}

/// Some names, and the number of the others.
fn names<T: AsRef<str>>(all: &[T]) -> String {
    let shown: Vec<&str> = all.iter().take(NAMES_MAX).map(AsRef::as_ref).collect();
    let rest = all.len() - shown.len();
    let shown = shown.join(", ");
    if rest == 0 { shown } else { format!("{shown} and {} more", words::number(rest as u64)) }
}
