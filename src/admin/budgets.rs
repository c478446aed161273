//! `GET /api/budgets`: every account's budgets and the health of its tokens, in a shape that `weir
//! budgets` reads.
//!
//! Times appear twice: as seconds since the epoch, rounded up, and as RFC 3339. Left out:
//! credentials, and the clients' use (`clients`).

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use super::replicas::{self, Replicas};
use super::{Reply, pages};
use crate::clock::Timestamp;
use crate::decision::breaker::State;
use crate::decision::{AccountId, AccountSnapshot, WindowSnapshot};
use crate::gateway::Gateway;
use crate::tokens::{Health, HealthState};

/// Longest question of a refresh. Our choice: `weir` waits 10 s for the answer.
const REFRESH_TIMEOUT: Duration = Duration::from_secs(5);
/// Questions of a refresh under way at once. Our choice: a thousand accounts take seconds.
const REFRESHED_AT_ONCE: usize = 64;

/// State of all limits at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Budgets {
    /// Time of the snapshot by the gateway's clock.
    pub now: u64,
    pub now_iso: String,
    /// Requests that wait for admission.
    pub waiting: u64,
    /// The addresses that differ in scheme, host or port; absent in the answer of older gateways.
    #[serde(default)]
    pub upstreams: Vec<UpstreamState>,
    /// This replica among several; `null` for a gateway that is alone.
    #[serde(default)]
    pub replicas: Option<Replicas>,
    /// In the order of the config.
    pub accounts: Vec<AccountBudgets>,
}

/// The circuit breaker of an upstream address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpstreamState {
    /// The address without a path; also its name in metrics.
    pub upstream: String,
    /// `up`; `suspected` while a probe decides; `down` while only probes are sent.
    pub state: String,
    /// Time since which it is down; `null` otherwise.
    pub down_since: Option<u64>,
    pub down_since_iso: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccountBudgets {
    /// Name in the config.
    pub account: String,
    /// Units of each window that are left to others; see `reserve` in the config.
    pub reserve: u32,
    /// Time until which a secondary limit closes it for all requests; `null` when it is open.
    pub cooldown_until: Option<u64>,
    pub cooldown_until_iso: Option<String>,
    /// Primary budgets used so far, sorted by resource.
    pub resources: Vec<ResourceBudget>,
    pub secondary: Vec<SecondaryUse>,
    pub tokens: Vec<TokenState>,
}

/// One primary budget.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResourceBudget {
    /// The upstream's name for it.
    pub resource: String,
    /// True if the upstream has reported this window; otherwise the figures are presumed from the
    /// documented limits.
    pub known: bool,
    /// Requests of each window.
    pub limit: u32,
    /// Requests left, those in flight included.
    pub remaining: u32,
    /// Requests in flight, which will reduce `remaining`.
    pub reserved: u32,
    /// `limit - remaining`.
    pub used: u32,
    /// End of the window; presumed while `known` is false.
    pub reset: u64,
    pub reset_iso: String,
    /// The time at which all but the reserve is spent at this window's pace so far; `null` if it
    /// lasts until the reset.
    #[serde(default)]
    pub gone_at: Option<u64>,
    #[serde(default)]
    pub gone_at_iso: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecondaryUse {
    /// Name, as in errors, metrics and the log; of the points per endpoint the fullest.
    pub limit: String,
    /// Use in the limit's own unit.
    pub in_use: u32,
    pub max: u32,
}

/// One credential of an account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenState {
    /// Position in the config's list of tokens, from 0, or its origin (`installation 7`, `app 3`,
    /// `anonymous`); also its name in metrics.
    pub token: String,
    /// True if it can be used, or is minted on demand.
    pub healthy: bool,
    /// `healthy`; `benched` after the upstream rejected it; `minting` while there is none yet;
    /// `expired` when it ended while idle.
    pub state: String,
    /// Problem that benches it, delays its mint or may end it soon; `null` without one.
    pub reason: Option<String>,
    /// Time of the upstream's first rejection since it worked last; `null` if it works.
    #[serde(default)]
    pub rejected_since_iso: Option<String>,
}

/// Result of a refresh.
#[derive(Debug, Serialize, Deserialize)]
pub struct Refreshed {
    /// Accounts that were asked about.
    pub asked: usize,
    /// Those of them without an answer.
    pub problems: Vec<RefreshProblem>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct RefreshProblem {
    pub account: String,
    pub problem: String,
}

/// Body of a refresh: the account, or all.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RefreshRequest {
    account: Option<String>,
}

/// Asks the upstream for the state of the accounts at once.
pub async fn refresh(gateway: &Gateway, body: &Bytes) -> Reply {
    let request = if body.is_empty() { b"{}" } else { &body[..] };
    let Ok(RefreshRequest { account: wanted }) = serde_json::from_slice(request) else {
        return pages::unprocessable("the body is {\"account\": \"NAME\"}, or empty for all");
    };
    let config = &gateway.env.config;
    let accounts = config.accounts.iter().enumerate().filter(|(_, account)| !account.retired);
    let chosen: Vec<AccountId> = accounts
        .filter(|(_, account)| wanted.as_deref().is_none_or(|name| *name == *account.name))
        .map(|(index, _)| config.account_id(index))
        .collect();
    if chosen.is_empty() {
        return pages::unprocessable("the config has no account of this name");
    }
    let asked = chosen.len();
    let dispatcher = &gateway.dispatcher;
    let answers = futures_util::stream::iter(chosen)
        .map(|account| async move {
            let answer = timeout(REFRESH_TIMEOUT, dispatcher.refresh(account)).await;
            (account, answer.unwrap_or_else(|_| Err("no answer in time".to_owned())))
        })
        .buffer_unordered(REFRESHED_AT_ONCE);
    let mut problems: Vec<RefreshProblem> = answers
        .filter_map(|(account, answer)| async move {
            let account = gateway.env.account_name(account).to_owned();
            answer.err().map(|problem| RefreshProblem { account, problem })
        })
        .collect()
        .await;
    problems.sort_unstable_by(|one, other| one.account.cmp(&other.account));
    pages::json(StatusCode::OK, &Refreshed { asked, problems })
}

/// Takes a snapshot of all budgets.
pub fn of(gateway: &Gateway) -> Budgets {
    let (now, snapshot) = accounts_of(gateway);
    let mut tokens = token_states(gateway, now);
    let accounts = snapshot.into_iter().map(|snapshot| {
        let tokens = tokens.remove(&snapshot.account).unwrap_or_default();
        let account = gateway.env.config.account(snapshot.account);
        AccountBudgets::new(&snapshot, account.map_or(0, |account| account.reserve), tokens)
    });
    Budgets {
        now: now.as_secs_ceil(),
        now_iso: now.rfc3339(),
        upstreams: gateway.dispatcher.breakers().states().map(UpstreamState::from).collect(),
        replicas: replicas::of(gateway),
        accounts: accounts.collect(),
        waiting: gateway.dispatcher.admissions().waiting() as u64,
    }
}

/// Returns the budgets of the current config's accounts, with the time of the snapshot.
pub(super) fn accounts_of(gateway: &Gateway) -> (Timestamp, Vec<AccountSnapshot>) {
    let (now, mut snapshot) = gateway.dispatcher.admissions().snapshot();
    let account = |id| gateway.env.config.account(id);
    snapshot.retain(|kept| account(kept.account).is_some_and(|account| !account.retired));
    (now, snapshot)
}

/// Returns the tokens' health by account. All texts about it are made here.
pub(super) fn token_states(
    gateway: &Gateway,
    now: Timestamp,
) -> HashMap<AccountId, Vec<TokenState>> {
    let mut by_account: HashMap<AccountId, Vec<TokenState>> = HashMap::new();
    for health in gateway.dispatcher.tokens().health(now) {
        by_account.entry(health.account).or_default().push(TokenState::new(health, now));
    }
    by_account
}

impl TokenState {
    pub(super) fn new(health: Health, now: Timestamp) -> Self {
        let Health { token, state, message, since, .. } = health;
        let message = message.unwrap_or_default();
        let reason = match state {
            HealthState::Benched { until } => {
                let end = if until > now {
                    format!("for {} s", until.since(now).as_secs())
                } else {
                    "until one request has tried it".to_owned()
                };
                format!("benched {end}: {}", or(message, "the upstream refused it"))
            }
            HealthState::Minting => format!("minting: {}", or(message, "there is none yet")),
            HealthState::Healthy | HealthState::Expired => message,
        };
        Self {
            token: token.to_string(),
            healthy: state.is_healthy(),
            state: state.name().to_owned(),
            reason: (!reason.is_empty()).then_some(reason),
            rejected_since_iso: since.map(Timestamp::rfc3339),
        }
    }
}

fn or(message: String, default: &str) -> String {
    if message.is_empty() { default.to_owned() } else { message }
}

impl AccountBudgets {
    fn new(account: &AccountSnapshot, reserve: u32, tokens: Vec<TokenState>) -> Self {
        let secondary = account.secondary.iter().map(|limit| SecondaryUse {
            limit: limit.limit.name().to_owned(),
            in_use: limit.in_use,
            max: limit.max,
        });
        Self {
            account: account.name.to_string(),
            reserve,
            cooldown_until: account.cooldown_until.map(Timestamp::as_secs_ceil),
            cooldown_until_iso: account.cooldown_until.map(Timestamp::rfc3339),
            resources: account.windows.iter().map(ResourceBudget::from).collect(),
            secondary: secondary.collect(),
            tokens,
        }
    }
}

impl From<(&str, State)> for UpstreamState {
    fn from((upstream, state): (&str, State)) -> Self {
        let (state, since) = match state {
            State::Closed => ("up", None),
            State::Suspected => ("suspected", None),
            State::Open { since, .. } => ("down", Some(since)),
        };
        Self {
            upstream: upstream.to_owned(),
            state: state.to_owned(),
            down_since: since.map(Timestamp::as_secs),
            down_since_iso: since.map(Timestamp::rfc3339_past),
        }
    }
}

impl From<&WindowSnapshot> for ResourceBudget {
    fn from(window: &WindowSnapshot) -> Self {
        Self {
            resource: window.resource.as_str().to_owned(),
            known: window.known,
            limit: window.limit,
            remaining: window.remaining,
            reserved: window.reserved,
            used: window.used,
            reset: window.reset.as_secs_ceil(),
            reset_iso: window.reset.rfc3339(),
            gone_at: window.gone_at.map(Timestamp::as_secs),
            gone_at_iso: window.gone_at.map(Timestamp::rfc3339),
        }
    }
}
