//! `[[apps]]`: apps whose installation tokens the gateway mints and renews itself.

use std::collections::HashSet;

use super::accounts::{Account, name_of};
use crate::api::AccountKind;
use crate::config::input::declared::Declared;
use crate::config::input::reader::{Choice, Reader};
use crate::config::input::secret::{Pem, Secret};
use crate::config::printer::{Printer, inline, list};

/// One entry of `[[apps]]`.
#[derive(Clone, Debug)]
pub struct App {
    /// Id at the upstream.
    pub app_id: u64,
    /// RSA key that signs the app's JWTs, PEM.
    pub private_key: Secret,
    /// Account that pays for the app's own requests, such as minting: an index into
    /// [`Config::accounts`](crate::config::Config::accounts). No two apps share one.
    pub account: usize,
    /// Installations whose tokens the app mints, in the order of the config.
    pub installations: Vec<Installation>,
}

/// One installation of an app.
#[derive(Clone, Debug)]
pub struct Installation {
    /// Id at the upstream.
    pub id: u64,
    /// Account of its tokens: an index into [`Config::accounts`](crate::config::Config::accounts).
    pub account: usize,
}

/// An app before its account is settled.
struct PendingApp {
    app_id: u64,
    private_key: Secret,
    account: Option<usize>,
    installations: Vec<Installation>,
}

/// Apps while the config is read, with the accounts whose tokens they mint.
#[derive(Default)]
pub(crate) struct Apps {
    items: Vec<Option<PendingApp>>,
    ids: HashSet<u64>,
    installed: HashSet<u64>,
    /// Accounts of kind app that an app names.
    payers: HashSet<usize>,
    /// False when an app names an account that could not be read.
    payers_complete: bool,
    owners: HashSet<usize>,
    /// False when an installation's account could not be read.
    complete: bool,
}

impl Apps {
    pub(crate) fn read(root: &mut Reader<'_>, accounts: &Declared<Account>) -> Self {
        let mut apps = Self { complete: true, payers_complete: true, ..Self::default() };
        let items = root.entries("apps", |reader| apps.read_one(reader, accounts));
        apps.complete &= items.is_some();
        apps.payers_complete &= items.is_some();
        apps.items = items.unwrap_or_default();
        apps.pair_the_only_ones(accounts);
        apps
    }

    fn read_one(
        &mut self,
        reader: &mut Reader<'_>,
        accounts: &Declared<Account>,
    ) -> Option<PendingApp> {
        let app_id = reader.required::<u64>("app_id");
        let private_key = reader.required::<Pem>("private_key");
        let payer = self.read_payer(reader, accounts);
        if app_id.is_some_and(|id| !self.ids.insert(id)) {
            reader.refuse::<()>("app_id", "duplicate app_id", "each app once");
        }
        let installations = reader.entries("installations", |reader| {
            let (id, account) = (reader.required("id"), accounts.reference(reader, "account"));
            let is_first = account.is_none_or(|account| self.owners.insert(account));
            self.complete &= account.is_some();
            if let Some(owner) = account.and_then(|account| accounts.get(account))
                && owner.kind != AccountKind::Installation
            {
                let problem = format!("the account is of kind `{}`", owner.kind.name());
                reader.refuse::<()>("account", problem, "an account of kind `installation`");
            }
            if id.is_some_and(|id| !self.installed.insert(id)) {
                reader.refuse::<()>("id", "duplicate installation", "each installation once");
            } else if !is_first {
                let problem =
                    "another installation has this account, and their budgets are not the same";
                reader.refuse::<()>("account", problem, "an account for each installation");
            }
            Some(Installation { id: id?, account: account? })
        });
        self.complete &= installations.is_some();
        let installations = installations.and_then(|items| items.into_iter().collect());
        Some(PendingApp {
            app_id: app_id?,
            private_key: private_key?.0,
            account: payer,
            installations: installations?,
        })
    }

    fn read_payer(
        &mut self,
        reader: &mut Reader<'_>,
        accounts: &Declared<Account>,
    ) -> Option<usize> {
        let entry = reader.entry("account")?;
        let Some(account) = accounts.resolve(&entry) else {
            self.payers_complete = false;
            return None;
        };
        if let Some(owner) = accounts.get(account)
            && owner.kind != AccountKind::App
        {
            let problem = format!("the account is of kind `{}`", owner.kind.name());
            return entry
                .refuse(problem, "an account of kind `app`; leave the key out to have one made");
        }
        if !self.payers.insert(account) {
            return entry.refuse(
                "another app has this account, and their budgets are not the same",
                "an account for each app",
            );
        }
        Some(account)
    }

    /// Pairs a single app with a single account of kind app.
    fn pair_the_only_ones(&mut self, accounts: &Declared<Account>) {
        let mut of_apps = (0..accounts.len()).filter(|index| {
            accounts.get(*index).is_some_and(|account| account.kind == AccountKind::App)
        });
        if let ([Some(app)], Some(only), None) =
            (self.items.as_mut_slice(), of_apps.next(), of_apps.next())
            && app.account.is_none()
            && self.payers.is_empty()
        {
            app.account = Some(only);
            self.payers.insert(only);
        }
    }

    /// Returns true if the account of kind app at `index` certainly belongs to no app.
    pub(crate) fn none_pays_with(&self, index: usize) -> bool {
        // A faulty app without a named account may be the one to pair with.
        let may_pair = self.items.iter().any(Option::is_none);
        self.payers_complete && !may_pair && !self.payers.contains(&index)
    }

    /// Returns true if the account at `index` certainly gets no tokens from an app.
    pub(crate) fn mint_none_for(&self, index: usize) -> bool {
        self.complete && !self.owners.contains(&index)
    }

    /// Returns the apps. An app without an account gets one, added to `accounts`, because minting
    /// spends a budget.
    pub(crate) fn finish(self, accounts: &mut Vec<Account>) -> Option<Vec<App>> {
        let items: Vec<PendingApp> = self.items.into_iter().collect::<Option<_>>()?;
        let paid = |app: PendingApp| {
            let account = app.account.unwrap_or_else(|| {
                accounts.push(Account::of_app(app.app_id, accounts));
                accounts.len() - 1
            });
            App {
                app_id: app.app_id,
                private_key: app.private_key,
                account,
                installations: app.installations,
            }
        };
        Some(items.into_iter().map(paid).collect())
    }
}

impl App {
    pub(crate) fn print(&self, accounts: &[Account], printer: &mut Printer) {
        printer.entry("apps");
        printer.set("app_id", self.app_id);
        printer.set("private_key", self.private_key.printed());
        printer.set_some("account", name_of(accounts, self.account));
        let installation = |installation: &Installation| {
            let name = name_of(accounts, installation.account).unwrap_or_default();
            inline(&[("id", installation.id.to_string()), ("account", name)])
        };
        printer.set("installations", list(self.installations.iter().map(installation)));
    }
}
