//! `[[clients]]`: the bots, their permissions and their shares of the budgets.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::accounts::{Account, name_of};
use super::allow::Allow;
use super::client_key::KeyHash;
use super::pools::Pool;
use crate::api::AccountKind;
use crate::config::input::declared::Declared;
use crate::config::input::reader::{Choice, Reader};
use crate::config::input::scalars::duration_text;
use crate::config::printer::{Printer, list, redacted, text};
pub use crate::decision::Priority;

/// Default of `max_wait` (SPECIFICATION, "Configuration").
const MAX_WAIT: Duration = Duration::from_secs(30);

/// One entry of `[[clients]]`.
#[derive(Clone)]
pub struct Client {
    /// Unique name.
    pub name: Arc<str>,
    /// SHA-256 of its key; see [`digest`](crate::config::digest).
    pub key_sha256: [u8; 32],
    /// Pool that fetches for it: an index into [`Config::pools`](crate::config::Config::pools).
    pub reads: usize,
    /// Account of its writes and of routes about "me": an index into
    /// [`Config::accounts`](crate::config::Config::accounts). `None`: read only.
    pub writes: Option<usize>,
    /// Share among waiting requests, relative to the other clients' weights.
    pub weight: NonZeroU32,
    /// Order among waiting requests.
    pub priority: Priority,
    /// Permitted requests: those that any of these permits; never empty.
    pub allow: Vec<Allow>,
    /// Longest wait of a request in the gateway.
    pub max_wait: Duration,
    /// True for a client that left the config, see `Account::retired`: its key is unknown.
    pub retired: bool,
}

impl fmt::Debug for Client {
    /// Omits the key's hash, against which guesses could be tested.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.name)
            .field("reads", &self.reads)
            .field("writes", &self.writes)
            .field("weight", &self.weight)
            .field("priority", &self.priority)
            .field("allow", &self.allow)
            .field("max_wait", &self.max_wait)
            .finish_non_exhaustive()
    }
}

impl Choice for Priority {
    const ALL: &'static [(&'static str, Self)] =
        &[("interactive", Self::Interactive), ("normal", Self::Normal), ("batch", Self::Batch)];
}

impl Client {
    pub(crate) fn read_all(
        root: &mut Reader<'_>,
        accounts: &Declared<Account>,
        pools: &Declared<Pool>,
    ) -> Declared<Self> {
        let mut keys = HashMap::new();
        let clients = Declared::read(root, "clients", "client", |reader, name| {
            Self::read(reader, name, accounts, pools, &mut keys)
        });
        if clients.is_empty() {
            root.refuse::<()>("clients", "missing", "at least one entry, written [[clients]]");
        }
        clients
    }

    fn read(
        reader: &mut Reader<'_>,
        name: Option<Arc<str>>,
        accounts: &Declared<Account>,
        pools: &Declared<Pool>,
        keys: &mut HashMap<[u8; 32], Option<Arc<str>>>,
    ) -> Option<Self> {
        let key_sha256 = reader.required::<KeyHash>("key_sha256").map(|hash| hash.0);
        if let Some(first) = key_sha256.and_then(|hash| keys.insert(hash, name.clone())) {
            let holder = first
                .map_or_else(|| "an earlier client".to_owned(), |name| format!("client `{name}`"));
            let problem = format!("duplicate key: {holder} has the same");
            reader.refuse::<()>("key_sha256", problem, "a key for each client, made by `weir key`");
        }
        let reads = read_pool(reader, pools);
        let writes = reader.if_set("writes", |entry| accounts.resolve(entry));
        let account = writes.flatten().and_then(|index| accounts.get(index));
        if account.is_some_and(|account| account.kind == AccountKind::Anonymous) {
            let problem = "an anonymous account cannot write";
            reader.refuse::<()>("writes", problem, "an account with a credential");
        }
        let weight = reader.or("weight", NonZeroU32::MIN);
        let priority = reader.or("priority", Priority::Normal);
        let allow = reader.or("allow", vec![Allow::everything()]);
        if allow.is_empty() {
            let accepted = "at least one pattern; leave the key out for everything";
            reader.refuse::<()>("allow", "the client may do nothing", accepted);
        }
        Some(Self {
            max_wait: reader.or("max_wait", MAX_WAIT),
            name: name?,
            key_sha256: key_sha256?,
            reads: reads?,
            writes: writes?,
            weight,
            priority,
            allow,
            retired: false,
        })
    }

    pub(crate) fn print(&self, accounts: &[Account], pools: &[Pool], printer: &mut Printer) {
        printer.entry("clients");
        printer.set("name", text(&self.name));
        printer.set("key_sha256", redacted());
        printer.set_some("reads", pools.get(self.reads).map(|pool| text(&pool.name)));
        printer.set_some("writes", self.writes.and_then(|index| name_of(accounts, index)));
        printer.set("weight", self.weight);
        printer.set("priority", text(self.priority.name()));
        printer.set("allow", list(self.allow.iter().map(text)));
        printer.set("max_wait", text(duration_text(self.max_wait)));
    }
}

/// Reads the pool that `reads` names; the only pool when it is not set.
fn read_pool(reader: &mut Reader<'_>, pools: &Declared<Pool>) -> Option<usize> {
    match reader.entry("reads") {
        Some(entry) => pools.resolve(&entry),
        None if pools.len() == 1 => Some(0),
        None => {
            reader.refuse("reads", "missing, and there is not exactly one pool", pools.accepted())
        }
    }
}
