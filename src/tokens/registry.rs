//! The credentials of a config, and their survival of a reload.
//!
//! A credential in both configs keeps its place, its bench and its minted or signed tokens, so
//! requests of either config share its state. A place is never given to another credential.

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderValue;
use parking_lot::Mutex;
use secrecy::ExposeSecret;

use super::app::App;
use super::installation::{Installation, Signals};
use super::slot::{Configured, Ids, Slot, SlotId, TokenId};
use super::unhealthy::UnhealthyAccounts;
use super::{Tokens, bearer, numbered, sensitive};
use crate::api::{AccountKind, TokenKind};
use crate::config::{self, Config, rsa_key};
use crate::decision::AccountId;

struct RegistryBuilder<'b> {
    before: Option<(&'b Tokens, &'b Config)>,
    by_account: Vec<Vec<Slot>>,
    owners: Vec<AccountId>,
    apps: Vec<Arc<App>>,
    installations: Vec<Arc<Installation>>,
    signals: Arc<Signals>,
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

    /// Wakes the minting task, so that it follows the current config.
    pub fn reevaluate(&self) {
        self.signals.due.notify_one();
    }

    fn by(config: &Config, before: Option<(&Self, &Config)>) -> Self {
        let places = config.accounts.len() + config.places.dynamic as usize;
        let mut builder = RegistryBuilder {
            before,
            by_account: (0..places).map(|_| Vec::new()).collect(),
            owners: before.map(|(tokens, _)| tokens.owners.clone()).unwrap_or_default(),
            apps: Vec::new(),
            installations: Vec::new(),
            signals: before.map(|(tokens, _)| Arc::clone(&tokens.signals)).unwrap_or_default(),
        };
        for (position, token) in config.tokens.iter().enumerate() {
            builder.token(config.account_id(token.account), position, token);
        }
        // A stable sort keeps the order of the config among equals.
        for slots in &mut builder.by_account {
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
        let RegistryBuilder { by_account, owners, apps, installations, signals, .. } = builder;
        let unhealthy = match before {
            None => Arc::new(UnhealthyAccounts::new(
                installations.iter().map(|installation| installation.account),
            )),
            Some((tokens, _)) => {
                // Requests of both configs share this set; accounts with changed credentials need a
                // check.
                (0..by_account.len())
                    .map(numbered)
                    .for_each(|account| tokens.unhealthy.recheck(account));
                Arc::clone(&tokens.unhealthy)
            }
        };
        let ids =
            before.map_or_else(|| Arc::new(Ids::new()), |(tokens, _)| Arc::clone(&tokens.ids));
        let clock = before
            .map_or_else(|| Arc::new(Mutex::default()), |(tokens, _)| Arc::clone(&tokens.clock));
        Self { by_account, owners, unhealthy, apps, installations, ids, clock, signals }
    }
}

impl RegistryBuilder<'_> {
    fn token(&mut self, account: AccountId, position: usize, token: &config::Token) {
        let secret = token.secret.expose_secret();
        let authorization: Option<HeaderValue> = match token.kind {
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
        let configured = match known {
            Some(Slot::Configured(known)) => Configured { position, ..known.clone() },
            _ => Configured {
                id: TokenId(self.place(account).0),
                position,
                kind: token.kind,
                authorization,
                bench: Arc::default(),
            },
        };
        self.add(account, Slot::Configured(configured));
    }

    fn app(&mut self, config: &Config, configured: &config::App) {
        let account = config.account_id(configured.account);
        let is_same = |before: &&config::App| {
            before.app_id == configured.app_id
                && before.private_key.expose_secret() == configured.private_key.expose_secret()
        };
        let has_same_key =
            self.before.is_some_and(|(_, old)| old.apps.iter().any(|before| is_same(&before)));
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
                self.place(account),
                key,
                Arc::clone(&self.signals.due),
            ))
        };
        self.add(account, Slot::App(Arc::clone(&app)));
        self.apps.push(app);
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
                self.place(account),
                account,
                app,
                Arc::clone(&self.signals),
            ))
        };
        self.add(account, Slot::Installation(Arc::clone(&installation)));
        self.installations.push(installation);
    }

    fn anonymous(&mut self, account: AccountId) {
        let known = self.known(account, |slot| matches!(slot, Slot::Anonymous(_))).cloned();
        let slot = known.unwrap_or_else(|| Slot::Anonymous(TokenId(self.place(account).0)));
        self.add(account, slot);
    }

    /// Finds a credential of this account in the previous config.
    fn known(&self, account: AccountId, is_it: impl Fn(&Slot) -> bool) -> Option<&Slot> {
        self.before?.0.slots(account).iter().find(|slot| is_it(slot))
    }

    /// Allocates a place that no credential ever had.
    fn place(&mut self, account: AccountId) -> SlotId {
        self.owners.push(account);
        SlotId(self.owners.len() as u64 - 1)
    }

    fn add(&mut self, account: AccountId, slot: Slot) {
        if let Some(slots) =
            usize::try_from(account.0).ok().and_then(|account| self.by_account.get_mut(account))
        {
            slots.push(slot);
        }
    }
}
