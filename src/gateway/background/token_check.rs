//! The check of all upstream tokens before a start, for `weir check --online`: one free question
//! with each. Installation tokens are minted first.

use std::sync::Arc;

use crate::clock::Clock;
use crate::config::Config;
use crate::gateway::background::mint::mint;
use crate::gateway::dispatch::dispatcher::Dispatcher;
use crate::gateway::dispatch::questions::{Acceptance, Recent};
use crate::gateway::environment::Environment;
use crate::telemetry::Metrics;
use crate::tokens::{HealthState, Source};

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
    let env = Environment::new(config, Clock::system(), metrics, Arc::default());
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
    let mut checked = Vec::new();
    let accounts = env.config.accounts.iter().enumerate();
    for (index, account) in accounts.filter(|(_, account)| !account.retired) {
        let id = env.config.account_id(index);
        for slot in dispatcher.tokens().askable(id) {
            let Some(credential) = dispatcher.tokens().take(slot, env.clock.now()) else {
                continue;
            };
            let state = match dispatcher.ask(id, &credential, Recent::Suffices).await {
                Acceptance::Accepted => CheckedState::Accepted,
                Acceptance::Rejected(_, text) => CheckedState::Rejected(text),
                Acceptance::Unknown(reason) => CheckedState::Unknown(reason),
            };
            let (account, token) = (Arc::clone(&account.name), credential.source.to_string());
            checked.push(TokenCheck { account, token, state });
        }
        // What could not even be minted, and the app that could not mint.
        for token in dispatcher.tokens().health(env.clock.now()) {
            let is_minted = matches!(token.token, Source::Installation(_) | Source::App(_));
            if token.account != id || !is_minted || token.state == HealthState::Healthy {
                continue;
            }
            let reason = token.message.unwrap_or_else(|| "it could not be minted".into());
            let state = match token.state {
                HealthState::Benched { .. } => CheckedState::Rejected(reason),
                _ => CheckedState::Unknown(reason),
            };
            let (account, token) = (Arc::clone(&account.name), token.token.to_string());
            checked.push(TokenCheck { account, token, state });
        }
    }
    admissions.abort();
    checked
}
