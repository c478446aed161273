//! The check of all upstream tokens before a start, for `weir check --online`: one free question
//! with each. Installation tokens are minted first.

use std::sync::Arc;

use futures_util::StreamExt as _;

use crate::clock::Clock;
use crate::config::Config;
use crate::decision::AccountId;
use crate::gateway::background::mint::mint;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::questions::{Acceptance, Recent};
use crate::gateway::environment::Environment;
use crate::telemetry::Metrics;
use crate::tokens::{HealthState, SlotId, Source};

/// Questions under way at once. Chosen here: hundreds of tokens take seconds.
const CHECKS_MAX: usize = 32;

/// One token with the upstream's acceptance.
pub struct TokenCheck {
    /// The account's name in the config.
    pub account: Arc<str>,
    /// Its name, as in `/api/budgets`.
    pub token: String,
    /// The acceptance.
    pub state: CheckedState,
}

/// The upstream's acceptance about a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckedState {
    /// The upstream accepts it.
    Accepted,
    /// The upstream rejects it, in its words.
    Rejected(String),
    /// The upstream could not be asked, with the reason.
    Unknown(String),
}

/// Asks the upstream about every token of a config, in the order of the accounts.
pub async fn check_tokens(config: Config) -> Vec<TokenCheck> {
    let (config, metrics) = (Arc::new(config), Arc::new(Metrics::new()));
    let env = Environment::new(config, Clock::system(), metrics, None);
    let dispatcher = Dispatcher::new(&env, None);
    let admissions = tokio::spawn(Arc::clone(dispatcher.admissions()).run());
    loop {
        let due = dispatcher.tokens().begin_due(env.clock.now());
        if due.is_empty() {
            break;
        }
        let minted = due.into_iter().map(|minting| mint(&dispatcher, minting));
        futures_util::future::join_all(minted).await;
    }
    let accounts = env.config.accounts.iter().enumerate();
    let accounts = accounts.filter(|(_, account)| !account.retired);
    let named = accounts.map(|(index, account)| (env.config.account_id(index), &account.name));
    let named: Vec<_> = named.collect();
    let slots = named.iter().flat_map(|(id, name)| {
        dispatcher.tokens().askable(*id).map(move |slot| (*id, *name, slot))
    });
    let asked = futures_util::stream::iter(slots)
        .map(|(id, name, slot)| check_token(&dispatcher, id, name, slot))
        .buffered(CHECKS_MAX);
    let mut checked: Vec<_> = asked.filter_map(std::future::ready).collect().await;
    // The tokens that could not even be minted, and the app that could not mint.
    for token in dispatcher.tokens().health(env.clock.now()) {
        let is_minted = matches!(token.token, Source::Installation(_) | Source::App(_));
        let name = named.iter().find(|(id, _)| *id == token.account).map(|(_, name)| *name);
        let Some(account) = name.filter(|_| is_minted && token.state != HealthState::Healthy)
        else {
            continue;
        };
        let reason = token.message.unwrap_or_else(|| "it could not be minted".into());
        let state = match token.state {
            HealthState::Benched { .. } => CheckedState::Rejected(reason),
            _ => CheckedState::Unknown(reason),
        };
        let (account, name) = (Arc::clone(account), token.token.to_string());
        checked.push((token.account, TokenCheck { account, token: name, state }));
    }
    admissions.abort();
    checked.sort_by_key(|(id, _)| *id);
    checked.into_iter().map(|(_, check)| check).collect()
}

async fn check_token(
    dispatcher: &Dispatcher,
    account: AccountId,
    name: &Arc<str>,
    slot: SlotId,
) -> Option<(AccountId, TokenCheck)> {
    let credential = dispatcher.tokens().take(slot, dispatcher.env().clock.now())?;
    let state = match dispatcher.ask(account, &credential, Recent::Suffices).await {
        Acceptance::Accepted => CheckedState::Accepted,
        Acceptance::Rejected(_, text) => CheckedState::Rejected(text),
        Acceptance::Unknown(reason) => CheckedState::Unknown(reason),
    };
    let token = credential.source.to_string();
    Some((account, TokenCheck { account: Arc::clone(name), token, state }))
}
