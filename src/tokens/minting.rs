//! Which mints are due over all installations, and what the requests that wait for them are told.
//!
//! When a single installation wants a token is its own matter (`installation`); sending is the
//! gateway's.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use secrecy::{ExposeSecret, SecretString};
use tokio::sync::futures::Notified;

use super::bench::BenchState;
use super::installation::{END_MARGIN, Installation, MintFailure, Minting, Want};
use super::{HealthState, Slot, Tokens, bearer, numbered};
use crate::api::TokenKinds;
use crate::clock::Timestamp;
use crate::decision::AccountId;

/// Mints under way at once. Ours: a thousand installations start up in a minute, and permit most of
/// the app's hundred places to others.
const MINTS_MAX: usize = 16;

/// Why a request has to do without a token that would have to be minted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// Whose token, and what is in the way.
    pub reason: String,
    /// Whether it is about rights or about the weather.
    pub cause: Cause,
    /// Before this time it stays so; `None` when it may end at any time.
    pub until: Option<Timestamp>,
}

/// What stands behind a [`Lack`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It has not come yet, or the upstream fails: what could be seen before can be seen after.
    Passing,
    /// The upstream does not give one.
    Refused,
}

impl Tokens {
    /// Whether any token is ever minted.
    pub fn mints(&self) -> bool {
        !self.installations.is_empty()
    }

    /// The mints that are due, those that somebody waits for first, each with the right to do it.
    pub fn begin_due(&self, now: Timestamp) -> Vec<Minting> {
        let free = MINTS_MAX.saturating_sub(self.signals.under_way.load(Ordering::Relaxed));
        let is_due = |installation: &&Arc<Installation>| {
            installation.due(now, self.app_bench_state(installation, now))
        };
        let mut due: Vec<(Want, &Arc<Installation>)> = self
            .installations
            .iter()
            .filter_map(|installation| {
                is_due(&installation)
                    .filter(|(at, _)| *at <= now)
                    .map(|(_, want)| (want, installation))
            })
            .collect();
        due.sort_by_key(|(want, _)| std::cmp::Reverse(*want));
        due.into_iter().take(free).filter_map(|(_, installation)| installation.begin()).collect()
    }

    /// When [`Tokens::begin_due`] has something next, unless [`Tokens::due_changed`] tells earlier.
    pub fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        if self.signals.under_way.load(Ordering::Relaxed) >= MINTS_MAX {
            return None;
        }
        let at = |installation: &Arc<Installation>| {
            installation.due(now, self.app_bench_state(installation, now)).map(|(at, _)| at)
        };
        self.installations.iter().filter_map(at).min()
    }

    /// Ends when a mint may have become due earlier. To be asked for before looking.
    pub fn due_changed(&self) -> Notified<'_> {
        self.signals.due.notified()
    }

    /// Ends when a mint has ended, well or not. To be asked for before looking.
    pub fn mint_ended(&self) -> Notified<'_> {
        self.signals.ended.notified()
    }

    /// The app that mints, as the account that pays; `None` when its app cannot sign.
    pub fn minter(&self, minting: &Minting) -> Option<AccountId> {
        let app = self.app_of(minting.installation())?;
        let is_it = |slot: &Slot| matches!(slot, Slot::App(other) if other.id == app.id);
        self.by_account.iter().position(|slots| slots.iter().any(is_it)).map(numbered)
    }

    /// A mint has of_client this token, which ends at `expires` on the upstream's clock. `chance` is
    /// between 0 and 1. Says why it cannot be used.
    pub fn minted(
        &self,
        minting: Minting,
        secret: &SecretString,
        expires: Timestamp,
        now: Timestamp,
        chance: f64,
    ) -> Result<(), &'static str> {
        let ours = self.clock.lock().ours(expires);
        let failure = match bearer(secret.expose_secret()) {
            None => "the minted token is not one that a header can hold",
            Some(_) if ours <= now + END_MARGIN => "the minted token has ended already",
            Some(authorization) => {
                let (account, token) =
                    (minting.installation().account, self.ids.next(minting.installation().slot));
                minting.succeeded(token, authorization, ours, now, chance);
                // It may end before the one whose end is noted.
                self.unhealthy.recheck(account);
                return Ok(());
            }
        };
        self.mint_failed(minting, now, MintFailure::Passing(failure.to_owned()), chance);
        Err(failure)
    }

    /// A mint has of_client none. `chance` is between 0 and 1.
    pub fn mint_failed(&self, minting: Minting, now: Timestamp, failure: MintFailure, chance: f64) {
        minting.failed(now, failure, chance);
    }

    /// A request would wait for a token of one of `accounts` until `deadline`; whether one can come
    /// by then. From here on it is minted.
    pub fn want(
        &self,
        accounts: &[AccountId],
        accepted: TokenKinds,
        now: Timestamp,
        deadline: Timestamp,
    ) -> bool {
        let mut comes = false;
        for installation in self.minted_for(accounts, accepted) {
            comes |= installation.want(now, deadline, self.app_bench_state(installation, now));
        }
        comes
    }

    /// A request had to do without a token of any of `accounts`, and could not wait for one: the
    /// next is to find one.
    pub fn missed(&self, accounts: &[AccountId], accepted: TokenKinds, now: Timestamp) {
        // One is enough, and thousands may be idle.
        let _ = self.minted_for(accounts, accepted).any(|installation| installation.missed(now));
    }

    /// Whether a token of `account` can be minted by `deadline`. Asks for none.
    pub fn comes(
        &self,
        account: AccountId,
        accepted: TokenKinds,
        now: Timestamp,
        deadline: Timestamp,
    ) -> bool {
        self.minted_for(&[account], accepted).any(|installation| {
            installation.comes(now, deadline, self.app_bench_state(installation, now))
        })
    }

    /// Why none of `accounts` has a token to be minted; `None` when nothing is minted for them.
    pub fn lack(
        &self,
        accounts: &[AccountId],
        accepted: TokenKinds,
        now: Timestamp,
    ) -> Option<Lack> {
        let installation = self.minted_for(accounts, accepted).next()?;
        let app = self.app_of(installation)?;
        let app_said = app
            .bench
            .lock()
            .said()
            .map(|said| format!("the upstream does not accept app {}: {said}", app.id));
        let (state, said) = installation.health(now, BenchState::Healthy);
        let cause = if app_said.is_some() || matches!(state, HealthState::Benched { .. }) {
            Cause::Refused
        } else {
            Cause::Passing
        };
        let said = app_said.or(said).unwrap_or_else(|| "its token is being minted".into());
        let until = installation
            .earliest(now, self.app_bench_state(installation, now))
            .filter(|at| *at > now);
        Some(Lack { reason: format!("installation {}: {said}", installation.id), cause, until })
    }

    fn minted_for(
        &self,
        accounts: &[AccountId],
        accepted: TokenKinds,
    ) -> impl Iterator<Item = &Arc<Installation>> {
        let slots = accounts.iter().flat_map(|account| self.slots(*account));
        slots.filter_map(move |slot| match slot {
            Slot::Installation(installation) if slot.fits(accepted) => Some(installation),
            _ => None,
        })
    }
}
