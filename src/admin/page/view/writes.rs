//! Queued writes, with the buttons that cancel and retry them.

use std::sync::Arc;

use maud::{Markup, html};

use super::{Look, more, table, words};
use crate::admin::writes::{Item, items};
use crate::clock::Timestamp;
use crate::gateway::{Gateway, Selection};
use crate::writes::{WriteId, WriteState};

/// Most rows of each of the two tables. Our choice: a person reads no more.
const SHOWN_MAX: usize = 20;
/// States of writes that ended without being done, which can be tried again.
const UNDONE: [WriteState; 3] = [WriteState::Unknown, WriteState::Failed, WriteState::Cancelled];

/// The writes that the page shows.
pub struct WriteRows {
    /// `None`: another process has the queue.
    shown: Option<Shown>,
    counts: Vec<(WriteState, u64)>,
}

struct Shown {
    /// Queued and sent ones, the oldest first.
    unfinished: Vec<Item>,
    /// Those that ended without being done, the newest first.
    undone: Vec<Item>,
}

impl WriteRows {
    /// Looks the writes up in the store.
    pub async fn of(gateway: &Arc<Gateway>) -> Self {
        let queue = gateway.writes.queue();
        let counts: Vec<_> = queue.counts().into_iter().collect();
        let mut rows = Self { shown: None, counts };
        let Ok(_using) = queue.enter().await else { return rows };
        let mut unfinished = Vec::new();
        for state in [WriteState::Sending, WriteState::Queued] {
            if rows.count(&[state]) > 0 {
                unfinished.append(&mut selected(gateway, state).await);
            }
        }
        unfinished.truncate(SHOWN_MAX);
        let undone = queue.newest_ended(&UNDONE, SHOWN_MAX);
        let (unfinished, undone) =
            (items(gateway, unfinished).await.0, items(gateway, undone).await.0);
        rows.shown = Some(Shown { unfinished, undone });
        rows
    }

    /// Number of writes in these states.
    pub fn count(&self, states: &[WriteState]) -> u64 {
        self.counts.iter().filter(|(state, _)| states.contains(state)).map(|(_, count)| count).sum()
    }
}

async fn selected(gateway: &Gateway, state: WriteState) -> Vec<WriteId> {
    let selection = Selection { state: Some(state), at_most: SHOWN_MAX, ..Selection::default() };
    let queue = Arc::clone(gateway.writes.queue());
    // The scan may cover a million writes.
    tokio::task::spawn_blocking(move || queue.select(&selection)).await.unwrap_or_default()
}

pub fn show(look: &Look) -> Markup {
    let Some(shown) = &look.writes.shown else {
        return html! { p { "Another process has the queue of writes for a moment." } };
    };
    let count =
        |states: &[WriteState]| usize::try_from(look.writes.count(states)).unwrap_or(usize::MAX);
    let unfinished = count(&[WriteState::Queued, WriteState::Sending]);
    let undone = count(&UNDONE);
    let durable = look.gateway.writes.queue().is_durable();
    let heads = ["Write", "State", "Action", "Request", "Client", "Account", "Accepted"];
    html! {
        p {
            @for (index, (state, count)) in look.writes.counts.iter().enumerate() {
                @if index > 0 { ", " }
                (words::number(*count)) " " (state.name())
            }
            @if durable { ". They survive the process." }
            @else { ". They are in memory alone, and end with the process." }
        }
        @if !shown.unfinished.is_empty() {
            (table("unfinished", "Waiting or on their way, the oldest first", &heads,
                &rows(&shown.unfinished, look.now)))
            (more(unfinished, shown.unfinished.len(), "unfinished writes"))
        }
        @if !shown.undone.is_empty() {
            (table("undone", "Ended without being done, the newest first", &heads,
                &rows(&shown.undone, look.now)))
            (more(undone, shown.undone.len(), "undone writes"))
        }
    }
}

fn rows(items: &[Item], now: Timestamp) -> Markup {
    let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "–".to_owned());
    html! {
        @for item in items {
            tr {
                th scope="row" { code { (item.id) } }
                td { span class={ "state " (class(item.state)) } { (item.state.name()) }
                    @if let Some(reason) = &item.reason { br; span.dim { (reason) } }
                    @if let Some(attempts) = item.attempts.filter(|attempts| *attempts > 0) {
                        br; span.dim { (words::count(attempts.into(), "attempt", "attempts")) }
                    }
                }
                td { (action(item)) }
                td.words { (or_dash(&item.method)) " " (or_dash(&item.path)) }
                td { (or_dash(&item.client)) }
                td { (or_dash(&item.account)) }
                td { @if let Some(at) = &item.accepted_at { (words::written_time(at, now)) } }
            }
        }
    }
}

fn class(state: WriteState) -> &'static str {
    match state {
        WriteState::Unknown | WriteState::Failed => "bad",
        WriteState::Queued | WriteState::Sending => "fine",
        WriteState::Done | WriteState::Cancelled => "dim",
    }
}

/// The form of a write's button. The id of the button keeps the focus when the row is replaced.
fn action(item: &Item) -> Markup {
    let id = &item.id;
    match item.state {
        WriteState::Queued => html! {
            form method="post" action={ "/writes/" (id) "/cancel" } {
                button id={ "cancel-" (id) } aria-label={ "Cancel write " (id) } { "Cancel" }
            }
        },
        WriteState::Failed | WriteState::Cancelled => html! {
            form method="post" action={ "/writes/" (id) "/retry" } {
                button id={ "retry-" (id) } aria-label={ "Retry write " (id) } { "Retry" }
            }
        },
        WriteState::Unknown => html! {
            form method="post" action={ "/writes/" (id) "/retry" } {
                label {
                    input type="checkbox" name="even_if_executed" value="true"
                        id={ "even-" (id) } required;
                    " It may run twice"
                }
                button id={ "retry-" (id) } aria-label={ "Retry write " (id) } { "Retry" }
            }
        },
        WriteState::Sending | WriteState::Done => html! { span.dim { "–" } },
    }
}
