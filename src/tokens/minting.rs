//! Mints over all installations: the due ones, and the answers to requests that wait for them.
//!
//! `installation` decides when a single installation wants a token; the gateway sends.

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

/// Mints under way at once. Our choice: a thousand installations start up in a minute, and most of
/// the app's 100 concurrent requests stay free for others.
const MINTS_MAX: usize = 16;

/// Reason for a missing token that would have to be minted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lack {
    /// The installation and the obstacle, for people.
    pub reason: String,
    /// The kind of obstacle.
    pub cause: Cause,
    /// The token is missing at least until this time; `None`: the lack may end at any time.
    pub until: Option<Timestamp>,
}

/// The kind of obstacle behind a [`Lack`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The token has not arrived yet, or the upstream fails: the account's permissions are
    /// unchanged.
    Passing,
    /// The upstream refuses to mint one.
    Refused,
}

impl Tokens {
    /// Returns true if this config has installations to mint for.
    pub fn mints(&self) -> bool {
        !self.installations.is_empty()
    }

    /// Begins the mints that are due, those with waiting requests first.
    pub fn begin_due(&self, now: Timestamp) -> Vec<Minting> {
        let free = MINTS_MAX.saturating_sub(self.signals.under_way.load(Ordering::Relaxed));
        let mut due: Vec<_> = self.due(now).filter(|(at, ..)| *at <= now).collect();
        due.sort_by_key(|(_, want, _)| std::cmp::Reverse(*want));
        due.into_iter().take(free).filter_map(|(.., installation)| installation.begin()).collect()
    }

    /// Returns when [`Tokens::begin_due`] has work next, unless [`Tokens::due_changed`] fires
    /// earlier.
    pub fn next_due(&self, now: Timestamp) -> Option<Timestamp> {
        if self.signals.under_way.load(Ordering::Relaxed) >= MINTS_MAX {
            return None;
        }
        self.due(now).map(|(at, ..)| at).min()
    }

    /// The next mints with their times and their urgency.
    fn due(&self, now: Timestamp) -> impl Iterator<Item = (Timestamp, Want, &Arc<Installation>)> {
        self.installations.iter().filter_map(move |installation| {
            let (at, want) = installation.due(now, self.app_bench_state(installation, now))?;
            Some((at, want, installation))
        })
    }

    /// Resolves when a mint may have become due earlier. Create it before checking.
    pub fn due_changed(&self) -> Notified<'_> {
        self.signals.due.notified()
    }

    /// Resolves when a mint has ended, successfully or not. Create it before checking.
    pub fn mint_ended(&self) -> Notified<'_> {
        self.signals.ended.notified()
    }

    /// Returns the account of the app that mints; `None` when the app has none.
    pub fn minter(&self, minting: &Minting) -> Option<AccountId> {
        let app = self.app_of(minting.installation())?;
        let is_it = |slot: &Slot| matches!(slot, Slot::App(other) if other.id == app.id);
        self.by_account.iter().position(|slots| slots.iter().any(is_it)).map(numbered)
    }

    /// Stores a minted token that ends at `expires` by the upstream's clock. `chance` is a random
    /// number from 0 to 1. Fails with the reason why the token cannot be used.
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
                let account = minting.installation().account;
                let token = self.ids.next(minting.installation().slot);
                minting.succeeded(token, authorization, ours, now, chance);
                // The new token may end before the recorded end of the old one.
                self.unhealthy.recheck(account);
                return Ok(());
            }
        };
        minting.failed(now, MintFailure::Passing(failure.to_owned()), chance);
        Err(failure)
    }

    /// Requests a mint for one of `accounts`. Returns true if a token can arrive by `deadline`.
    pub fn want(
        &self,
        accounts: &[AccountId],
        accepted: TokenKinds,
        now: Timestamp,
        deadline: Timestamp,
    ) -> bool {
        // Each installation gets the request, even after one can deliver.
        let coming = self.minted_for(accounts, accepted).filter(|installation| {
            installation.want(now, deadline, self.app_bench_state(installation, now))
        });
        coming.count() > 0
    }

    /// Records that a request went without a token of any of `accounts`, so that the next one finds
    /// one.
    pub fn missed(&self, accounts: &[AccountId], accepted: TokenKinds, now: Timestamp) {
        // One mint is enough, and thousands of installations may be idle.
        let _ = self.minted_for(accounts, accepted).any(|installation| installation.missed(now));
    }

    /// Returns true if a token of `account` can be minted by `deadline`. Requests no mint.
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

    /// Returns why none of `accounts` has a minted token; `None` when nothing is minted for them.
    pub fn lack(
        &self,
        accounts: &[AccountId],
        accepted: TokenKinds,
        now: Timestamp,
    ) -> Option<Lack> {
        let installation = self.minted_for(accounts, accepted).next()?;
        let app = self.app_of(installation)?;
        let app_message = app
            .bench
            .lock()
            .message()
            .map(|message| format!("the upstream does not accept app {}: {message}", app.id));
        let (state, message) = installation.health(now, BenchState::Healthy);
        let cause = if app_message.is_some() || matches!(state, HealthState::Benched { .. }) {
            Cause::Refused
        } else {
            Cause::Passing
        };
        let message = app_message.or(message).unwrap_or_else(|| "its token is being minted".into());
        let until = installation
            .earliest(now, self.app_bench_state(installation, now))
            .filter(|at| *at > now);
        Some(Lack { reason: format!("installation {}: {message}", installation.id), cause, until })
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
