//! The upstream credentials: which of them may carry a request for an account, which ones the
//! upstream has stopped accepting, and which are to be minted.
//!
//! | module | what it knows |
//! |---|---|
//! | [`bench`] | a refused credential rests, and one request tries it again |
//! | [`app`] | an app's key and its JWT |
//! | [`installation`] | an installation's token and when to mint the next |
//! | `minting` | which mints are due, and what those who wait are told |
//! | [`clock_offset`] | how far the upstream's clock is from ours |
//! | `registry` | which credentials there are, by one config after another |
//! | `slot` | a place for a credential, and which endpoints take what is in it |
//! | [`unhealthy`] | which accounts have a credential out of use |
//! | [`health`] | what operators see |
//!
//! Limits and budgets belong to accounts, not to tokens, and are kept in `decision/`. Nothing is
//! sent from here: `gateway/mint.rs` does, through the books.

pub mod app;
pub mod bench;
pub mod clock_offset;
pub mod health;
pub mod installation;
mod minting;
mod registry;
mod slot;
pub mod unhealthy;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;

use crate::api::{TokenKind, TokenKinds};
use crate::clock::Timestamp;
use crate::decision::AccountId;

use app::App;
use bench::{BenchState, Permit, SharedBench, take};
use clock_offset::{ClockOffset, date_of};
use installation::{Installation, Signals};
use slot::{Configured, Ids, Slot};
use unhealthy::{UnhealthyAccounts, Usability};

pub use health::{Health, HealthState, Source};
pub use minting::{Cause, Lack};
pub use slot::{SlotId, TokenId, Wanted};

/// All credentials, by account.
pub struct Tokens {
    by_account: Vec<Vec<Slot>>,
    /// The account of each slot, by the slot's number; also of those that are in the config no
    /// more.
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
    /// Which token it is.
    pub token: TokenId,
    /// The `Authorization` header, marked sensitive; `None` for a request without.
    pub authorization: Option<HeaderValue>,
    /// Where it comes from, which is its name in logs.
    pub source: Source,
    permit: Permit,
}

impl Credential {
    /// A client's own, for one request of that client.
    pub fn of_client(token: TokenId, authorization: HeaderValue) -> Self {
        Self {
            token,
            authorization: Some(authorization),
            source: Source::Client,
            permit: Permit::Plain,
        }
    }
}

/// What becomes of a credential that the upstream refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// It is not used for a while.
    Benched,
    /// Another one takes its place: minted anew, or signed by the upstream's clock.
    Replaced,
    /// It had been replaced before.
    Old,
}

/// Whether a request may be the one that tries a benched credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// It can be sent again with another one.
    Willing,
    /// Only if there is no other.
    Reluctant,
}

impl Tokens {
    /// The kinds of an account's tokens, working or not, in the order in which they are used. An
    /// app's own credential has none.
    pub fn kinds_of(&self, account: AccountId) -> impl Iterator<Item = TokenKind> {
        self.slots(account).iter().filter_map(Slot::kind)
    }

    /// The places of the account's credentials that an endpoint takes, working or not, in the order
    /// in which they are used.
    pub fn fitting(
        &self,
        account: AccountId,
        accepted: TokenKinds,
    ) -> impl Iterator<Item = SlotId> {
        self.slots(account).iter().filter(move |slot| slot.fits(accepted)).map(Slot::id)
    }

    /// Whether all credentials are in use now. Costs next to nothing.
    pub fn all_healthy(&self, now: Timestamp) -> bool {
        self.unhealthy.is_empty(now)
    }

    /// The accounts with a credential that is out of use now, in ascending order; free while all
    /// are in use.
    pub fn unhealthy_accounts(&self, now: Timestamp) -> Vec<AccountId> {
        self.unhealthy.now(now, |account| {
            let worse = |one: Usability, other: Usability| match (one, other) {
                (Usability::Unusable, _) | (_, Usability::Unusable) => Usability::Unusable,
                (Usability::Until(one), Usability::Until(other)) => {
                    Usability::Until(one.min(other))
                }
                (Usability::Until(end), Usability::Lasting)
                | (Usability::Lasting, Usability::Until(end)) => Usability::Until(end),
                (Usability::Lasting, Usability::Lasting) => Usability::Lasting,
            };
            self.slots(account)
                .iter()
                .map(|slot| slot.usability(now))
                .fold(Usability::Lasting, worse)
        })
    }

    /// A usable credential of `account` for an endpoint that takes `accepted`: one that is to be
    /// probe_ended again first, since the request can be sent anew if it fails; then `preferred` when it
    /// is one of them; then the account's first.
    pub fn pick(
        &self,
        account: AccountId,
        accepted: TokenKinds,
        preferred: Option<TokenId>,
        now: Timestamp,
    ) -> Option<Credential> {
        self.pick_for(account, accepted, preferred, Trial::Willing, now)
    }

    /// The same for a request that may not be able to be sent again.
    pub fn pick_for(
        &self,
        account: AccountId,
        accepted: TokenKinds,
        preferred: Option<TokenId>,
        trial: Trial,
        now: Timestamp,
    ) -> Option<Credential> {
        let order = self.order(account, accepted, preferred, trial, now);
        order.into_iter().find_map(|slot| self.take(slot, now))
    }

    /// The places that [`Tokens::pick_for`] goes through, one after the other, until
    /// [`Tokens::take`] finds a usable credential.
    pub fn order(
        &self,
        account: AccountId,
        accepted: TokenKinds,
        preferred: Option<TokenId>,
        trial: Trial,
        now: Timestamp,
    ) -> Vec<SlotId> {
        let mut fitting: Vec<&Slot> =
            self.slots(account).iter().filter(|slot| slot.fits(accepted)).collect();
        if fitting.len() > 1 {
            fitting.sort_by_cached_key(|slot| match (slot.bench_state(now), trial) {
                (BenchState::Due(_), Trial::Willing) => 0,
                (BenchState::Due(_), Trial::Reluctant) => 3,
                _ if preferred.is_some_and(|token| slot.owns(token)) => 1,
                _ => 2,
            });
        }
        fitting.into_iter().map(Slot::id).collect()
    }

    /// The credential of a place for one request, if it is usable.
    pub fn take(&self, slot: SlotId, now: Timestamp) -> Option<Credential> {
        let slot = self.slot(slot)?;
        let signed = |(token, value, permit)| (token, Some(value), permit);
        let (token, authorization, permit) = match slot {
            Slot::Configured(token) => {
                (token.id, Some(token.authorization.clone()), take(&token.bench, now)?)
            }
            Slot::Installation(installation) => signed(installation.take(now)?),
            Slot::App(app) => signed(app.jwt(now, &self.clock, &self.ids)?),
            Slot::Anonymous(token) => (*token, None, Permit::Plain),
        };
        if let (Permit::Probe(_), Some(account)) = (&permit, self.owner(slot.id())) {
            // Nobody else may use it until its answer.
            self.unhealthy.recheck(account);
        }
        Some(Credential { token, authorization, source: slot.source(), permit })
    }

    /// Whether [`Tokens::pick`] would find one.
    pub fn is_usable(&self, account: AccountId, accepted: TokenKinds, now: Timestamp) -> bool {
        self.slots(account).iter().any(|slot| slot.fits(accepted) && slot.is_usable(now))
    }

    /// Whether `account` has a credential of an accepted kind at all, working or not. The same as
    /// long as the config is in force.
    pub fn has_kind(&self, account: AccountId, accepted: TokenKinds) -> bool {
        self.slots(account).iter().any(|slot| slot.fits(accepted))
    }

    /// Whether `account` has what is wanted: [`Tokens::has_kind`], and for an account without a
    /// credential, that the endpoint can do without. The same as long as the config is in force.
    pub fn may_carry(&self, account: AccountId, wanted: Wanted) -> bool {
        self.slots(account).iter().any(|slot| slot.may_carry(wanted))
    }

    /// The account that a token belongs to; `None` when it is in use no more.
    pub fn account_of(&self, token: TokenId) -> Option<AccountId> {
        self.slot(token.slot())
            .filter(|slot| slot.owns(token))
            .and_then(|slot| self.owner(slot.id()))
    }

    /// The upstream has answered a request with this credential, and not refused it.
    pub fn accepted(&self, credential: &Credential) {
        if let Permit::Probe(_) = credential.permit
            && let Some(bench) = self.bench_of(credential)
        {
            bench.lock().accepted(&credential.permit);
        }
    }

    /// The upstream refused this credential, in an answer with these headers.
    pub fn rejected(
        &self,
        credential: &Credential,
        now: Timestamp,
        headers: &HeaderMap,
        said: &str,
    ) -> Rejection {
        let Credential { token, permit, .. } = credential;
        let rejection = match self.slot(token.slot()) {
            Some(Slot::Configured(Configured { bench, .. })) => {
                bench.lock().refused(now, permit, said);
                Rejection::Benched
            }
            Some(Slot::Installation(installation)) => {
                installation.refused(*token, permit, now, said)
            }
            Some(Slot::App(app)) => {
                app.refused(*token, permit, now, date_of(headers), &self.clock, said)
            }
            Some(Slot::Anonymous(_)) => Rejection::Benched,
            None => Rejection::Old,
        };
        if let Some(account) = self.owner(token.slot()) {
            self.unhealthy.recheck(account);
        }
        rejection
    }

    /// What an answer's `Date` tells about the upstream's clock; `took` is how long it was under
    /// way. The times that its limits name are put on ours.
    pub fn observe(&self, headers: &mut HeaderMap, now: Timestamp, took: Duration) {
        let mut clock = self.clock.lock();
        if let Some(date) = date_of(headers) {
            clock.observe(date, now, took);
        }
        clock.to_local_clock(headers);
    }

    /// Every credential with its account and how it is.
    pub fn health(&self, now: Timestamp) -> Vec<Health> {
        let of = |(account, slots): (usize, &Vec<Slot>)| -> Vec<Health> {
            let one = |slot: &Slot| {
                let (state, said) =
                    slot.health(now, |installation| self.app_bench_state(installation, now));
                Health { account: numbered(account), token: slot.source(), state, said }
            };
            slots.iter().map(one).collect()
        };
        self.by_account.iter().enumerate().flat_map(of).collect()
    }

    fn bench_of(&self, credential: &Credential) -> Option<&SharedBench> {
        self.slot(credential.token.slot()).and_then(|slot| match slot {
            Slot::Configured(token) => Some(&token.bench),
            Slot::Installation(installation) => Some(&installation.bench),
            Slot::App(app) => Some(&app.bench),
            Slot::Anonymous(_) => None,
        })
    }

    fn app_bench_state(&self, installation: &Installation, now: Timestamp) -> BenchState {
        self.app_of(installation)
            .map_or(BenchState::Healthy, |app| app.bench.lock().bench_state(now))
    }

    /// The app that mints for an installation. There are few.
    fn app_of(&self, installation: &Installation) -> Option<&Arc<App>> {
        self.apps.iter().find(|app| app.id == installation.app)
    }

    fn owner(&self, slot: SlotId) -> Option<AccountId> {
        usize::try_from(slot.0).ok().and_then(|number| self.owners.get(number)).copied()
    }

    fn slot(&self, id: SlotId) -> Option<&Slot> {
        self.slots(self.owner(id)?).iter().find(|slot| slot.id() == id)
    }

    fn slots(&self, account: AccountId) -> &[Slot] {
        self.by_account.get(account.0 as usize).map_or(&[], Vec::as_slice)
    }
}

/// The account of this number.
fn numbered(index: usize) -> AccountId {
    AccountId(u32::try_from(index).unwrap_or(u32::MAX))
}

fn bearer(secret: &str) -> Option<HeaderValue> {
    // Whoever mints may send anything; an empty or huge one is none.
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
