//! Requests that wait with the limit that holds them, and the latest gateway errors.

use maud::{Markup, html};

use super::{Look, more, table, words};
use crate::admin::clients::active_clients;
use crate::decision::Until;

/// Most rows of each table. Our choice: a person reads no more.
const SHOWN_MAX: usize = 30;

pub fn waiting(look: &Look) -> Markup {
    let env = &look.gateway.env;
    let held = look.gateway.dispatcher.admissions().held_requests();
    let of_limits: u64 = held.iter().map(|held| held.requests as u64).sum();
    let all: u64 = active_clients(&look.gateway).map(|(_, waiting)| waiting).sum();
    let others = all.saturating_sub(of_limits);
    let shown = &held[..held.len().min(SHOWN_MAX)];
    let rows = html! {
        @for held in shown {
            tr {
                th.words scope="row" { (words::limit(held.limit)) " " code { (held.limit.name()) } }
                td { @match held.account {
                    Some(account) => (env.account_name(account)),
                    None => "–",
                } }
                td { (held.resource.as_str()) }
                td.number { (words::number(held.requests as u64)) }
                td { @match held.until {
                    Until::Time(at) => (words::until(at, look.now)),
                    Until::Event => "the next answer",
                } }
            }
        }
    };
    let heads = ["Reason", "Account", "Resource", "Requests", "Until"];
    html! {
        @if held.is_empty() && others == 0 { p.fine { "No request waits." } }
        @if !held.is_empty() {
            (table("waiting", "Requests that wait, by the limit that holds them", &heads, &rows))
            (more(held.len(), shown.len(), "limits with fewer requests"))
        }
        @if others > 0 {
            p {
                (words::count(others, "request waits", "requests wait"))
                " for something else: an earlier write, or a token."
            }
        }
    }
}

pub fn recent(look: &Look) -> Markup {
    let all = look.gateway.env.metrics.recent_refusals();
    if all.is_empty() {
        return html! { p.fine { "No request was refused since the start." } };
    }
    let shown = &all[..all.len().min(SHOWN_MAX)];
    let rows = html! {
        @for refusal in shown {
            tr {
                td { (words::time(refusal.at, look.now)) }
                th scope="row" { (refusal.client.as_deref().unwrap_or("without a key")) }
                td.words { (refusal.method.as_str()) " " (refusal.endpoint) }
                td { code { (refusal.reason) }
                    @if let Some(error) = &refusal.error { br; span.dim { (error.as_str()) } }
                }
                td { @if let Some(held) = &refusal.held {
                    (held.by)
                    @if let Some(account) = &held.account { " of " (account) }
                    @if let Some(until) = held.until { br; span.dim { "until " (words::time(until, look.now)) } }
                } @else { "–" } }
                td.number { (refusal.status) }
                td { code { (refusal.request_id.as_str()) } }
            }
        }
    };
    let heads = ["Time", "Client", "Request", "Reason", "Limit", "Status", "Request id"];
    html! {
        (table("refusals", "The latest first", &heads, &rows))
        (more(all.len(), shown.len(), "of the latest hundred"))
    }
}
