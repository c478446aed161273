//! `[[pools]]`: accounts that fetch for the same clients, which share one view.

use std::collections::HashSet;
use std::sync::Arc;

use super::accounts::Account;
use crate::config::input::declared::Declared;
use crate::config::input::reader::{Entry, Reader};
use crate::config::printer::{Printer, list, text};

/// The pool of a file without pools.
const IMPLICIT: &str = "default";

/// One entry of `[[pools]]`; without any there is one pool `default` of all accounts.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Unique name.
    pub name: Arc<str>,
    /// Its accounts, each once: indices into [`Config::accounts`](crate::config::Config::accounts);
    /// never empty.
    pub accounts: Vec<usize>,
    /// True for a pool that no client has any more, see `Account::retired`.
    pub retired: bool,
}

impl Pool {
    pub(crate) fn read_all(root: &mut Reader<'_>, accounts: &Declared<Account>) -> Declared<Self> {
        if !root.is_set("pools") && !root.lacks_files() {
            root.entry("pools");
            let everyone = Self {
                name: IMPLICIT.into(),
                accounts: (0..accounts.len()).collect(),
                retired: false,
            };
            return Declared::implicit("pool", IMPLICIT.into(), everyone);
        }
        Declared::read(root, "pools", "pool", |reader, name| {
            let members = match reader.entry("accounts") {
                Some(entry) => read_members(&entry, accounts),
                None => reader.refuse("accounts", "missing", "a list of account names"),
            };
            Some(Self { name: name?, accounts: members?, retired: false })
        })
    }

    pub(crate) fn print(&self, accounts: &[Account], printer: &mut Printer) {
        printer.entry("pools");
        printer.set("name", text(&self.name));
        let members = self.accounts.iter().filter_map(|index| accounts.get(*index));
        printer.set("accounts", list(members.map(|account| text(&account.name))));
    }
}

fn read_members(entry: &Entry<'_>, accounts: &Declared<Account>) -> Option<Vec<usize>> {
    let items = entry.items::<Vec<Arc<str>>>()?;
    if items.is_empty() {
        return entry.refuse("the pool is empty", accounts.accepted());
    }
    let mut seen = HashSet::new();
    let mut members = Vec::with_capacity(items.len());
    for item in &items {
        let member = accounts.resolve(item);
        if member.is_some_and(|index| !seen.insert(index)) {
            item.refuse::<()>("duplicate account in the pool", "each account once");
        }
        members.push(member);
    }
    members.into_iter().collect()
}
