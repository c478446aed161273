//! The sections of the page: tables of the gateway's state, the worst first, and bounded.
//!
//! A template escapes every text that it shows, because names of accounts and clients are hostile
//! input. Left out: the document around the sections (`document`).

mod attention;
mod budgets;
mod cache;
mod clients;
mod config;
mod health;
mod refusals;
mod words;
mod writes;

use std::sync::Arc;

use maud::{Markup, html};

use super::history::History;
use crate::admin::Site;
use crate::admin::budgets::accounts_of;
use crate::clock::Timestamp;
use crate::decision::AccountSnapshot;
use crate::gateway::{Gateway, LastReload};
use crate::tokens::Health;
use budgets::BudgetRow;
pub use writes::WriteRows;

/// The content of each section, in the order of [`SECTIONS`].
pub type Contents = Vec<String>;

/// A section of the page.
pub struct Section {
    /// Its element, and its anchor.
    pub id: &'static str,
    pub title: &'static str,
    show: fn(&Look) -> Markup,
}

/// All sections, in the order of a look at night.
pub const SECTIONS: [Section; 11] = [
    Section { id: "attention", title: "Needs attention", show: attention::show },
    Section { id: "budgets", title: "Budgets", show: budgets::show },
    Section { id: "waiting", title: "Waiting", show: refusals::waiting },
    Section { id: "clients", title: "Clients", show: clients::show },
    Section { id: "writes", title: "Queued writes", show: writes::show },
    Section { id: "cache", title: "Cache", show: cache::show },
    Section { id: "tokens", title: "Tokens", show: health::tokens },
    Section { id: "webhooks", title: "Webhooks", show: health::webhooks },
    Section { id: "replicas", title: "Replicas", show: health::replicas },
    Section { id: "refusals", title: "Recent refusals", show: refusals::recent },
    Section { id: "config", title: "Config", show: config::show },
];

/// The state that several sections share, at one moment.
struct Look {
    gateway: Arc<Gateway>,
    now: Timestamp,
    accounts: usize,
    /// The worst first.
    budgets: Vec<BudgetRow>,
    /// Accounts that the upstream has closed, with the end.
    cooldowns: Vec<(Arc<str>, Timestamp)>,
    health: Vec<Health>,
    writes: WriteRows,
    reload: Option<LastReload>,
}

/// Makes all sections. `None`: the runtime ends.
pub async fn contents(site: &Arc<Site>) -> Option<(Timestamp, Contents)> {
    let gateway = site.current.gateway();
    let writes = WriteRows::of(&gateway).await;
    let (reload, history) = (site.current.last_reload(), Arc::clone(&site.page.history));
    // Thousands of accounts take tens of milliseconds, which must not delay clients.
    let made = tokio::task::spawn_blocking(move || {
        let look = Look::new(gateway, &history, writes, reload);
        let contents = SECTIONS.iter().map(|section| (section.show)(&look).into_string());
        (look.now, contents.collect())
    });
    made.await.ok()
}

impl Look {
    fn new(
        gateway: Arc<Gateway>,
        history: &History,
        writes: WriteRows,
        reload: Option<LastReload>,
    ) -> Self {
        let (now, accounts) = accounts_of(&gateway);
        let health = gateway.dispatcher.tokens().health(now);
        let cooldown = |account: &AccountSnapshot| {
            let until = account.cooldown_until.filter(|until| *until > now)?;
            Some((Arc::clone(&account.name), until))
        };
        Self {
            now,
            accounts: accounts.len(),
            cooldowns: accounts.iter().filter_map(cooldown).collect(),
            budgets: budgets::rows(&gateway, &accounts, history, now),
            gateway,
            health,
            writes,
            reload,
        }
    }
}

/// A table with a caption and the scopes of its heads, in a part that scrolls alone.
fn table(id: &str, caption: &str, heads: &[&str], rows: &Markup) -> Markup {
    html! {
        div.scroll role="region" aria-labelledby={ (id) "-caption" } tabindex="0" {
            table {
                caption id={ (id) "-caption" } { (caption) }
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody { (rows) }
            }
        }
    }
}

/// The number of rows that a table leaves out.
fn more(all: usize, shown: usize, of_what: &str) -> Markup {
    html! {
        @if all > shown { p.more { "… and " (words::number((all - shown) as u64)) " more " (of_what) "." } }
    }
}
