//! `[[apps]]`: apps whose installation tokens the gateway mints and renews itself.

use std::collections::HashSet;

use secrecy::SecretString;

use super::Account;
use super::declared::Declared;
use super::printer::{Printer, inline, list, redacted, text};
use super::reader::{Choice, Reader};
use super::secret::Pem;
use crate::api::AccountKind;

/// One entry of `[[apps]]`.
#[derive(Clone, Debug)]
pub struct App {
    /// The app's id at the upstream.
    pub app_id: u64,
    /// The RSA key that signs the app's JWTs, PEM.
    pub private_key: SecretString,
    /// Where it is installed.
    pub installations: Vec<Installation>,
}

/// One installation of an app.
#[derive(Clone, Debug)]
pub struct Installation {
    /// The installation's id at the upstream.
    pub id: u64,
    /// The account its tokens belong to: an index into [`Config::accounts`](super::Config::accounts).
    pub account: usize,
}

/// Apps on their way in, with the accounts whose tokens they mint.
#[derive(Default)]
pub(super) struct Apps {
    items: Vec<Option<App>>,
    ids: HashSet<u64>,
    owners: HashSet<usize>,
    /// Whether every installation's account is known.
    complete: bool,
}

impl Apps {
    pub(super) fn read(root: &mut Reader<'_>, accounts: &Declared<Account>) -> Self {
        let mut apps = Self { complete: true, ..Self::default() };
        let items = root.entries("apps", |reader| apps.read_one(reader, accounts));
        apps.complete &= items.is_some();
        apps.items = items.unwrap_or_default();
        apps
    }

    fn read_one(&mut self, reader: &mut Reader<'_>, accounts: &Declared<Account>) -> Option<App> {
        let app_id = reader.required::<u64>("app_id");
        let private_key = reader.required::<Pem>("private_key");
        if app_id.is_some_and(|id| !self.ids.insert(id)) {
            reader.refuse::<()>("app_id", "duplicate app_id", "each app once");
        }
        let installations = reader.entries("installations", |reader| {
            let (id, account) = (reader.required("id"), accounts.reference(reader, "account"));
            match account {
                Some(account) => drop(self.owners.insert(account)),
                None => self.complete = false,
            }
            if let Some(owner) = account.and_then(|account| accounts.get(account))
                && owner.kind != AccountKind::Installation
            {
                let problem = format!("the account is of kind `{}`", owner.kind.name());
                reader.refuse::<()>("account", problem, "an account of kind `installation`");
            }
            Some(Installation { id: id?, account: account? })
        });
        self.complete &= installations.is_some();
        let installations = installations.and_then(|items| items.into_iter().collect());
        Some(App { app_id: app_id?, private_key: private_key?.0, installations: installations? })
    }

    /// Whether the account at `index` certainly gets no tokens from an app.
    pub(super) fn mint_none_for(&self, index: usize) -> bool {
        self.complete && !self.owners.contains(&index)
    }

    /// Whether there is certainly no app.
    pub(super) fn is_empty(&self) -> bool {
        self.complete && self.items.is_empty()
    }

    pub(super) fn finish(self) -> Option<Vec<App>> {
        self.items.into_iter().collect()
    }
}

impl App {
    pub(super) fn print(&self, accounts: &[Account], printer: &mut Printer) {
        printer.entry("apps");
        printer.set("app_id", self.app_id);
        printer.set("private_key", redacted());
        let installation = |installation: &Installation| {
            let name = accounts.get(installation.account).map_or_else(String::new, |account| text(&account.name));
            inline(&[("id", installation.id.to_string()), ("account", name)])
        };
        printer.set("installations", list(self.installations.iter().map(installation)));
    }
}
