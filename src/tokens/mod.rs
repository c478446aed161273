//! The upstream credentials: their choice for a request, rejected ones, and minting.
//!
//! Limits and budgets belong to accounts and live in `decision/`. This module sends nothing; the
//! gateway mints through the quota ledger.

mod app;
mod bench;
mod clock_offset;
mod health;
mod installation;
mod minting;
mod registry;
mod slot;
mod unhealthy;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use zeroize::Zeroizing;

use crate::api::{TokenKind, TokenKinds};
use crate::clock::Timestamp;
use crate::decision::AccountId;

use app::App;
use bench::{BenchState, Permit, take};
use clock_offset::{ClockOffset, date_of};
use installation::{Installation, Signals};
use slot::{Configured, Ids, Slot};
use unhealthy::{UnhealthyAccounts, Usability};

pub use health::{Health, HealthState, Source};
pub use installation::{MintFailure, Minting};
pub use minting::{Cause, Lack};
pub use slot::{SlotId, TokenId, Wanted};

/// All credentials, by account.
pub struct Tokens {
    by_account: Vec<Vec<Slot>>,
    /// The account of each slot by the slot's number, slots of earlier configs included.
    owners: Vec<AccountId>,
    unhealthy: Arc<UnhealthyAccounts>,
    apps: Vec<Arc<App>>,
    installations: Vec<Arc<Installation>>,
    ids: Arc<Ids>,
    clock: Arc<Mutex<ClockOffset>>,
    signals: Arc<Signals>,
}

/// A credential chosen for one request.
#[derive(Debug)]
pub struct Credential {
    /// Identity of the token.
    pub token: TokenId,
    /// The `Authorization` header, marked sensitive; `None` for a request without.
    pub authorization: Option<HeaderValue>,
    /// Origin, which is its name in logs.
    pub source: Source,
    permit: Permit,
}

impl Credential {
    /// Returns true if its request probes a benched credential.
    pub fn is_probe(&self) -> bool {
        matches!(self.permit, Permit::Probe(_))
    }

    /// Wraps a client's own credential for one request of that client.
    pub fn of_client(token: TokenId, authorization: HeaderValue) -> Self {
        Self {
            token,
            authorization: Some(authorization),
            source: Source::Client,
            permit: Permit::Plain,
        }
    }
}

/// Consequence of a rejection by the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The credential pauses.
    Benched,
    /// A new one replaces it: minted again, or signed by the upstream's clock.
    Replaced,
    /// It had been replaced before.
    Old,
}

/// Readiness of a request to probe a benched credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeReadiness {
    /// The request can be sent again with another credential.
    Willing,
    /// The request probes only when there is no other credential.
    Reluctant,
}

impl Tokens {
    /// Lists the kinds of an account's tokens in order of use, unusable ones included. An app's JWT
    /// has no kind.
    pub fn kinds_of(&self, account: AccountId) -> impl Iterator<Item = TokenKind> {
        self.slots(account).iter().filter_map(Slot::kind)
    }

    /// Lists the slots whose credentials an endpoint accepts in order of use, unusable ones
    /// included.
    pub fn fitting(
        &self,
        account: AccountId,
        accepted: TokenKinds,
    ) -> impl Iterator<Item = SlotId> {
        self.slots(account).iter().filter(move |slot| slot.fits(accepted)).map(Slot::id)
    }

    /// Returns true if all credentials are usable now. Takes no lock.
    pub fn all_healthy(&self, now: Timestamp) -> bool {
        self.unhealthy.is_empty(now)
    }

    /// Returns the accounts with an unusable credential in ascending order. Costs nothing while all
    /// are healthy.
    pub fn unhealthy_accounts(&self, now: Timestamp) -> Vec<AccountId> {
        self.unhealthy.now(now, |account| {
            let usability = self.slots(account).iter().map(|slot| slot.usability(now));
            usability.min().unwrap_or(Usability::Lasting)
        })
    }

    /// Lists the slots of `account` for an endpoint that takes `accepted`, to be tried in turn
    /// until [`Tokens::take`] finds a usable credential. One that is due for a probe comes first,
    /// if the request can be repeated; then `preferred`; then the account's first.
    pub fn order(
        &self,
        account: AccountId,
        accepted: TokenKinds,
        preferred: Option<TokenId>,
        readiness: ProbeReadiness,
        now: Timestamp,
    ) -> Vec<SlotId> {
        let mut fitting: Vec<&Slot> =
            self.slots(account).iter().filter(|slot| slot.fits(accepted)).collect();
        if fitting.len() > 1 {
            fitting.sort_by_cached_key(|slot| match (slot.bench_state(now), readiness) {
                (BenchState::Due(_), ProbeReadiness::Willing) => 0,
                (BenchState::Due(_), ProbeReadiness::Reluctant) => 3,
                _ if preferred.is_some_and(|token| slot.owns(token)) => 1,
                _ => 2,
            });
        }
        fitting.into_iter().map(Slot::id).collect()
    }

    /// Takes the credential of a slot for one request, if it is usable.
    pub fn take(&self, slot: SlotId, now: Timestamp) -> Option<Credential> {
        let slot = self.slot(slot)?;
        let signed = |(token, value, permit)| (token, Some(value), permit);
        let (token, authorization, permit) = match slot {
            Slot::Configured(token) => {
                (token.id(), Some(token.authorization.clone()), take(&token.bench, now)?)
            }
            Slot::Installation(installation) => signed(installation.take(now)?),
            Slot::App(app) => signed(app.jwt(now, &self.clock, &self.ids)?),
            Slot::Anonymous(token) => (*token, None, Permit::Plain),
        };
        if let (Permit::Probe(_), Some(account)) = (&permit, self.owner(slot.id())) {
            // No other request may use it until the probe's answer.
            self.unhealthy.recheck(account);
        }
        Some(Credential { token, authorization, source: slot.source(), permit })
    }

    /// Returns true if `account` has a usable credential of an accepted kind.
    pub fn is_usable(&self, account: AccountId, accepted: TokenKinds, now: Timestamp) -> bool {
        self.slots(account).iter().any(|slot| slot.fits(accepted) && slot.is_usable(now))
    }

    /// Returns true if `account` may serve `wanted`: it has a credential of an accepted kind,
    /// usable or not, or it has none and the endpoint is open. Constant while the config is in
    /// force.
    pub fn may_carry(&self, account: AccountId, wanted: Wanted) -> bool {
        self.slots(account).iter().any(|slot| slot.may_carry(wanted))
    }

    /// Returns the account of a token; `None` when the token is no longer in use.
    pub fn account_of(&self, token: TokenId) -> Option<AccountId> {
        self.slot(token.slot())
            .filter(|slot| slot.owns(token))
            .and_then(|slot| self.owner(slot.id()))
    }

    /// Records an answer that did not reject this credential.
    pub fn accepted(&self, credential: &Credential) {
        if let Permit::Probe(_) = credential.permit
            && let Some(bench) = self.slot(credential.token.slot()).and_then(Slot::bench)
        {
            bench.lock().accepted(&credential.permit);
        }
    }

    /// Records an answer with these headers that rejected this credential.
    pub fn rejected(
        &self,
        credential: &Credential,
        now: Timestamp,
        headers: &HeaderMap,
        message: &str,
    ) -> Rejection {
        let Credential { token, permit, .. } = credential;
        let rejection = match self.slot(token.slot()) {
            Some(Slot::Configured(Configured { bench, .. })) => {
                bench.lock().refused(now, permit, message);
                Rejection::Benched
            }
            Some(Slot::Installation(installation)) => {
                installation.refused(*token, permit, now, message)
            }
            Some(Slot::App(app)) => {
                app.refused(*token, permit, now, date_of(headers), &self.clock, message)
            }
            Some(Slot::Anonymous(_)) => Rejection::Benched,
            None => Rejection::Old,
        };
        if let Some(account) = self.owner(token.slot()) {
            self.unhealthy.recheck(account);
        }
        rejection
    }

    /// Updates the clock offset from an answer's `Date`, and converts the times of its limits to
    /// our clock. `took` is the duration of the exchange.
    pub fn observe(&self, headers: &mut HeaderMap, now: Timestamp, took: Duration) {
        let mut clock = self.clock.lock();
        if let Some(date) = date_of(headers) {
            clock.observe(date, now, took);
        }
        clock.to_local_clock(headers);
    }

    /// Converts a time of the upstream's clock, such as the end of a window, to ours.
    pub fn local_time(&self, upstream: Timestamp) -> Timestamp {
        self.clock.lock().local_time(upstream)
    }

    /// Lists the slots of an account whose credentials `GET /rate_limit` accepts. An app's JWT is
    /// none of them.
    pub fn askable(&self, account: AccountId) -> impl Iterator<Item = SlotId> {
        let is_askable = |slot: &&Slot| matches!(slot, Slot::Configured(_) | Slot::Installation(_));
        self.slots(account).iter().filter(is_askable).map(Slot::id)
    }

    /// Takes a credential of an account to ask for its state: the first that works.
    pub fn for_question(&self, account: AccountId, now: Timestamp) -> Option<Credential> {
        let is_askable = |slot: &&Slot| !matches!(slot, Slot::App(_));
        let works = |slot: &&Slot| slot.bench_state(now) == BenchState::Healthy;
        let mut slots = self.slots(account).iter().filter(is_askable).filter(works);
        slots.find_map(|slot| self.take(slot.id(), now))
    }

    /// Returns every credential with its account and health.
    pub fn health(&self, now: Timestamp) -> Vec<Health> {
        let mut health = Vec::new();
        for (account, slots) in self.by_account.iter().enumerate() {
            for slot in slots {
                let (state, message) =
                    slot.health(now, |installation| self.app_bench_state(installation, now));
                let (account, token) = (numbered(account), slot.source());
                let since = slot.bench().and_then(|bench| bench.lock().since());
                health.push(Health { account, token, state, since, message });
            }
        }
        health
    }

    /// Lists what tells the credentials of an account from all others in every run of the program.
    /// Each has its slot, and its id where its secret is in use after a restart too.
    pub fn identities(
        &self,
        account: AccountId,
    ) -> impl Iterator<Item = (Zeroizing<Vec<u8>>, SlotId, Option<TokenId>)> {
        self.slots(account).iter().map(|slot| {
            let (identity, id) = slot.identity();
            (identity, slot.id(), id)
        })
    }

    fn app_bench_state(&self, installation: &Installation, now: Timestamp) -> BenchState {
        self.app_of(installation)
            .map_or(BenchState::Healthy, |app| app.bench.lock().bench_state(now))
    }

    /// A linear scan: a config has few apps.
    fn app_of(&self, installation: &Installation) -> Option<&Arc<App>> {
        self.apps.iter().find(|app| app.id == installation.app)
    }

    /// Returns the account of a slot.
    pub fn owner(&self, slot: SlotId) -> Option<AccountId> {
        self.owners.get(usize::try_from(slot.0).ok()?).copied()
    }

    fn slot(&self, id: SlotId) -> Option<&Slot> {
        self.slots(self.owner(id)?).iter().find(|slot| slot.id() == id)
    }

    fn slots(&self, account: AccountId) -> &[Slot] {
        self.by_account.get(account.0 as usize).map_or(&[], Vec::as_slice)
    }
}

fn numbered(index: usize) -> AccountId {
    AccountId(u32::try_from(index).unwrap_or(u32::MAX))
}

fn bearer(secret: &str) -> Option<HeaderValue> {
    // The server that mints may send anything; an empty or huge value is no token.
    const SECRET_BYTES_MAX: usize = 8 * 1024;
    if secret.is_empty() || secret.len() > SECRET_BYTES_MAX {
        None
    } else {
        sensitive(&format!("Bearer {secret}"))
    }
}

fn sensitive(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests;
