//! `[[clients]]`: the bots, their permissions and their shares of the budgets.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use super::accounts::{Account, name_of};
use super::allow::Allow;
use super::client_key::KeyHash;
use super::listen::Listen;
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
    /// SHA-256 of its key, see [`digest`](crate::config::digest); `None` if its certificate alone
    /// identifies it.
    pub key_sha256: Option<[u8; 32]>,
    /// A subject alternative name of its certificate (RFC 5280 §4.2.1.6), such as a URI or a DNS
    /// name.
    pub certificate: Option<Arc<str>>,
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
        listen: Option<&Listen>,
    ) -> Declared<Self> {
        let mut keys = HashMap::new();
        let https = |listen: &Listen| listen.https.as_ref()?.tls.client_ca.clone();
        // A faulty section has its own message.
        let asks = listen.is_none_or(|listen| https(listen).is_some());
        let mut certificates = Certificates { known: HashSet::new(), asks };
        let clients = Declared::read(root, "clients", "client", |reader, name| {
            Self::read(reader, name, accounts, pools, &mut keys, &mut certificates)
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
        certificates: &mut Certificates,
    ) -> Option<Self> {
        let certificate = read_certificate(reader, certificates);
        let key_sha256 = if reader.is_set("certificate") && !reader.is_set("key_sha256") {
            Some(None)
        } else {
            reader.required::<KeyHash>("key_sha256").map(|hash| Some(hash.0))
        };
        if let Some(first) = key_sha256.flatten().and_then(|hash| keys.insert(hash, name.clone())) {
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
            certificate,
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
        printer.set_some("key_sha256", self.key_sha256.map(|_| redacted()));
        printer.set_some("certificate", self.certificate.as_ref().map(text));
        printer.set_some("reads", pools.get(self.reads).map(|pool| text(&pool.name)));
        printer.set_some("writes", self.writes.and_then(|index| name_of(accounts, index)));
        printer.set("weight", self.weight);
        printer.set("priority", text(self.priority.name()));
        printer.set("allow", list(self.allow.iter().map(text)));
        printer.set("max_wait", text(duration_text(self.max_wait)));
    }
}

/// The certificates of the clients so far.
struct Certificates {
    known: HashSet<Arc<str>>,
    /// True if the listener asks its clients for certificates.
    asks: bool,
}

/// Reads the name in the client's certificate, which no other client has.
fn read_certificate(reader: &mut Reader<'_>, certificates: &mut Certificates) -> Option<Arc<str>> {
    let name: Arc<str> = reader.optional("certificate")?;
    let accepted = "a subject alternative name of the client's certificate, such as \"spiffe://corp/ci\" or \"ci.corp\"";
    if name.is_empty() {
        return reader.refuse("certificate", "empty", accepted);
    }
    if !certificates.asks {
        let problem = "no listener asks for certificates";
        return reader.refuse("certificate", problem, "client_ca in listen.https");
    }
    if !certificates.known.insert(Arc::clone(&name)) {
        let problem = "duplicate certificate: an earlier client has the same";
        return reader.refuse("certificate", problem, accepted);
    }
    Some(name)
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
