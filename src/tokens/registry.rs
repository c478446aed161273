//! The credentials of a config, and their survival of a reload.
//!
//! A credential in both configs keeps its slot, its bench and its minted or signed tokens, so
//! requests of either config share its state. A slot is never given to another credential.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use secrecy::ExposeSecret;

use super::app::App;
use super::installation::Installation;
use super::slot::{Configured, Ids, Slot, SlotId, TokenId};
use super::unhealthy::UnhealthyAccounts;
use super::{Tokens, bearer, numbered, sensitive};
use crate::api::{AccountKind, TokenKind};
use crate::config::{self, Config, rsa_key};
use crate::decision::AccountId;

struct RegistryBuilder<'b> {
    before: Option<(&'b Tokens, &'b Config)>,
    tokens: Tokens,
}

impl Tokens {
    /// Builds the credentials of a validated config. Mints nothing yet.
    pub fn new(config: &Config) -> Self {
        Self::by(config, None)
    }

    /// Builds the credentials of a reloaded config; `self` belongs to `old`.
    #[must_use]
    pub fn with_config(&self, old: &Config, config: &Config) -> Self {
        Self::by(config, Some((self, old)))
    }

    /// Returns true if the account has a credential that `before`, the previous config's, lacks.
    pub fn is_new_in(&self, account: AccountId, before: &Self) -> bool {
        self.slots(account).iter().any(|slot| slot.id().0 >= before.owners.len() as u64)
    }

    /// Gives the account's credentials new ids: its validators belong to another owner.
    pub fn disown(&self, account: AccountId) {
        for slot in self.slots(account) {
            if let Slot::Configured(token) = slot {
                token.id.store(self.ids.next(token.slot).0, Ordering::Relaxed);
            }
        }
    }

    /// Wakes the minting task, so that it follows the current config.
    pub fn reevaluate(&self) {
        self.signals.due.notify_one();
    }

    fn by(config: &Config, before: Option<(&Self, &Config)>) -> Self {
        let accounts = config.accounts.len() + config.account_layout.dynamic as usize;
        let blank = Self {
            by_account: (0..accounts).map(|_| Vec::new()).collect(),
            owners: Vec::new(),
            unhealthy: Arc::new(UnhealthyAccounts::new([])),
            apps: Vec::new(),
            installations: Vec::new(),
            ids: Arc::new(Ids::new()),
            clock: Arc::default(),
            signals: Arc::default(),
        };
        let tokens = match before {
            None => blank,
            Some((tokens, _)) => Self {
                owners: tokens.owners.clone(),
                unhealthy: Arc::clone(&tokens.unhealthy),
                ids: Arc::clone(&tokens.ids),
                clock: Arc::clone(&tokens.clock),
                signals: Arc::clone(&tokens.signals),
                ..blank
            },
        };
        let mut builder = RegistryBuilder { before, tokens };
        for (position, token) in config.tokens.iter().enumerate() {
            builder.token(config.account_id(token.account), position, token);
        }
        // A stable sort keeps the order of the config among equals.
        for slots in &mut builder.tokens.by_account {
            slots.sort_by_key(Slot::rank);
        }
        for app in &config.apps {
            builder.app(config, app);
        }
        for (index, account) in config.accounts.iter().enumerate() {
            if account.kind == AccountKind::Anonymous && !account.retired {
                builder.anonymous(config.account_id(index));
            }
        }
        let tokens = builder.tokens;
        if before.is_some() {
            // Requests of both configs share this set; accounts with changed credentials need a
            // check.
            (0..accounts).for_each(|account| tokens.unhealthy.recheck(numbered(account)));
        } else {
            let without_token = tokens.installations.iter();
            without_token.for_each(|installation| tokens.unhealthy.recheck(installation.account));
        }
        tokens
    }
}

impl RegistryBuilder<'_> {
    fn token(&mut self, account: AccountId, position: usize, token: &config::Token) {
        let secret = token.secret.expose_secret();
        let authorization = match token.kind {
            TokenKind::Basic => sensitive(&format!("Basic {}", BASE64_STANDARD.encode(secret))),
            _ => bearer(secret),
        };
        // The config rejects values that no header can hold.
        let Some(authorization) = authorization else { return };
        let known = self.known(account, |slot| match slot {
            Slot::Configured(known) => {
                (known.kind, &known.authorization) == (token.kind, &authorization)
            }
            _ => false,
        });
        let configured = if let Some(Slot::Configured(known)) = known {
            Configured { position, ..known.clone() }
        } else {
            let slot = self.new_slot(account);
            Configured {
                slot,
                id: Arc::new(AtomicU64::new(slot.0)),
                position,
                kind: token.kind,
                authorization,
                bench: Arc::default(),
            }
        };
        self.add(account, Slot::Configured(configured));
    }

    fn app(&mut self, config: &Config, configured: &config::App) {
        let account = config.account_id(configured.account);
        let is_same = |before: &config::App| {
            before.app_id == configured.app_id
                && before.private_key.expose_secret() == configured.private_key.expose_secret()
        };
        let has_same_key = self.before.is_some_and(|(_, old)| old.apps.iter().any(is_same));
        let known = self.known(
            account,
            |slot| matches!(slot, Slot::App(app) if has_same_key && app.id == configured.app_id),
        );
        let app = if let Some(Slot::App(known)) = known {
            Arc::clone(known)
        } else {
            // The config rejects keys that cannot sign.
            let Ok(key) = rsa_key(configured.private_key.expose_secret()) else { return };
            Arc::new(App::new(
                configured.app_id,
                self.new_slot(account),
                key,
                Arc::clone(&self.tokens.signals.due),
            ))
        };
        self.add(account, Slot::App(Arc::clone(&app)));
        self.tokens.apps.push(app);
        for installed in &configured.installations {
            self.installation(
                config.account_id(installed.account),
                installed.id,
                configured.app_id,
            );
        }
    }

    fn installation(&mut self, account: AccountId, id: u64, app: u64) {
        let known = self.known(
            account,
            |slot| matches!(slot, Slot::Installation(known) if (known.id, known.app) == (id, app)),
        );
        let installation = if let Some(Slot::Installation(known)) = known {
            Arc::clone(known)
        } else {
            Arc::new(Installation::new(
                id,
                self.new_slot(account),
                account,
                app,
                Arc::clone(&self.tokens.signals),
            ))
        };
        self.add(account, Slot::Installation(Arc::clone(&installation)));
        self.tokens.installations.push(installation);
    }

    fn anonymous(&mut self, account: AccountId) {
        let known = self.known(account, |slot| matches!(slot, Slot::Anonymous(_))).cloned();
        let slot = known.unwrap_or_else(|| Slot::Anonymous(TokenId(self.new_slot(account).0)));
        self.add(account, slot);
    }

    /// Finds a credential of this account in the previous config.
    fn known(&self, account: AccountId, is_it: impl Fn(&Slot) -> bool) -> Option<&Slot> {
        self.before?.0.slots(account).iter().find(|slot| is_it(slot))
    }

    /// Allocates a slot that no credential ever had.
    fn new_slot(&mut self, account: AccountId) -> SlotId {
        self.tokens.owners.push(account);
        SlotId(self.tokens.owners.len() as u64 - 1)
    }

    fn add(&mut self, account: AccountId, slot: Slot) {
        if let Some(slots) = self.tokens.by_account.get_mut(account.0 as usize) {
            slots.push(slot);
        }
    }
}
