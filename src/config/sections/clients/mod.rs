//! `[[clients]]`: the bots, their permissions and their shares of the budgets.

mod budget;
pub(crate) mod certificate;
pub(super) mod key;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use self::certificate::CertificateName;
use self::key::{ClientKey, KeyHash};
use super::accounts::{Account, name_of};
use super::allow::Allow;
use super::listen::Listen;
use super::oidc::{Issuer, OidcClient};
use super::pools::Pool;
use crate::api::AccountKind;
use crate::config::input::declared::Declared;
use crate::config::input::reader::{Choice, Reader};
use crate::config::input::scalars::duration_text;
use crate::config::printer::{Printer, list, redacted, text};
pub use crate::decision::Priority;
pub use budget::{BudgetMode, Budgets};

/// Default of `max_wait` (SPECIFICATION, "Configuration").
const MAX_WAIT: Duration = Duration::from_secs(30);

/// One entry of `[[clients]]`.
#[derive(Clone)]
pub struct Client {
    /// Unique name.
    pub name: Arc<str>,
    /// Keys by which it is known; empty only if it is known otherwise.
    pub keys: Vec<ClientKey>,
    /// Tokens of an issuer by which it is known.
    pub oidc: Option<OidcClient>,
    /// A subject alternative name of its certificate (RFC 5280 §4.2.1.6), such as a URI or a DNS
    /// name.
    pub certificate: Option<CertificateName>,
    /// Pool that fetches for it: an index into [`Config::pools`](crate::config::Config::pools).
    pub reads: usize,
    /// Account of its writes and of routes about "me": an index into
    /// [`Config::accounts`](crate::config::Config::accounts). `None`: read only.
    pub writes: Option<usize>,
    /// Share among waiting requests, relative to the other clients' weights.
    pub weight: NonZeroU32,
    /// Order among waiting requests.
    pub priority: Priority,
    /// Amounts that it may spend, by resource.
    pub budgets: Budgets,
    /// The consequence of a spent budget.
    pub budget_mode: BudgetMode,
    /// Permitted requests: those that any of these permits; never empty.
    pub allow: Vec<Allow>,
    /// Longest wait of a request in the gateway.
    pub max_wait: Duration,
    /// True for a client that left the config, see `Account::retired`: its key is unknown.
    pub retired: bool,
}

impl fmt::Debug for Client {
    /// Omits the keys' hashes, against which guesses could be tested.
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
        issuers: &Declared<Issuer>,
        listen: Option<&Listen>,
    ) -> Declared<Self> {
        let https = |listen: &Listen| listen.https.as_ref()?.tls.client_ca.clone();
        let listens = root.entry("listen").and_then(|entry| entry.value.get("https")).is_some();
        // A faulty section, or a faulty listener in it, has its own message.
        let asks_certificates = root.lacks_files()
            || listen.is_none_or(|listen| {
                https(listen).is_some() || (listen.https.is_none() && listens)
            });
        let mut seen = Seen { asks_certificates, ..Seen::default() };
        let clients = Declared::read(root, "clients", "client", |reader, name| {
            Self::read(reader, name, accounts, pools, issuers, &mut seen)
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
        issuers: &Declared<Issuer>,
        seen: &mut Seen,
    ) -> Option<Self> {
        let oidc = reader.if_set("oidc", |entry| OidcClient::read(entry, issuers));
        if let Some(Some(oidc)) = &oidc {
            seen.check_token(reader, oidc, name.as_ref());
        }
        let certificate = read_certificate(reader, seen);
        let is_known_otherwise = reader.is_set("oidc") || reader.is_set("certificate");
        let keys = read_keys(reader, name.as_ref(), is_known_otherwise, seen);
        let reads = read_pool(reader, pools);
        let writes = reader.if_set("writes", |entry| accounts.resolve(entry));
        let account = writes.flatten().and_then(|index| accounts.get(index));
        if account.is_some_and(|account| account.kind == AccountKind::Anonymous) {
            let problem = "an anonymous account cannot write";
            reader.refuse::<()>("writes", problem, "an account with a credential");
        }
        let weight = reader.or("weight", NonZeroU32::MIN);
        let priority = reader.or("priority", Priority::Normal);
        let budgets = reader.optional("budget").unwrap_or_default();
        let budget_mode = reader.or("budget_mode", BudgetMode::Hard);
        let allow = reader.or("allow", vec![Allow::everything()]);
        if allow.is_empty() {
            let accepted = "at least one pattern; leave the key out for everything";
            reader.refuse::<()>("allow", "the client may do nothing", accepted);
        }
        Some(Self {
            max_wait: reader.or("max_wait", MAX_WAIT),
            name: name?,
            keys: keys?,
            oidc: oidc?,
            certificate,
            reads: reads?,
            writes: writes?,
            weight,
            priority,
            budgets,
            budget_mode,
            allow,
            retired: false,
        })
    }

    pub(crate) fn print(
        &self,
        accounts: &[Account],
        pools: &[Pool],
        issuers: &[Issuer],
        printer: &mut Printer,
    ) {
        printer.entry("clients");
        printer.set("name", text(&self.name));
        match self.keys.as_slice() {
            [ClientKey { expires: None, .. }] => printer.set("key_sha256", redacted()),
            [] => {}
            keys => printer.set("keys", ClientKey::printed(keys)),
        }
        printer.set_some("oidc", self.oidc.as_ref().map(|oidc| oidc.printed(issuers)));
        printer.set_some("certificate", self.certificate.as_ref().map(text));
        printer.set_some("reads", pools.get(self.reads).map(|pool| text(&pool.name)));
        printer.set_some("writes", self.writes.and_then(|index| name_of(accounts, index)));
        printer.set("weight", self.weight);
        printer.set("priority", text(self.priority.name()));
        printer.set_some("budget", self.budgets.printed());
        printer.set("budget_mode", text(self.budget_mode.name()));
        printer.set("allow", list(self.allow.iter().map(text)));
        printer.set("max_wait", text(duration_text(self.max_wait)));
    }
}

/// The credentials of the clients that were read, each with the client's name.
#[derive(Default)]
struct Seen {
    keys: HashMap<[u8; 32], Option<Arc<str>>>,
    tokens: Vec<(OidcClient, Option<Arc<str>>)>,
    certificates: HashSet<CertificateName>,
    /// True if the listener asks its clients for certificates.
    asks_certificates: bool,
}

/// Reads the name in the client's certificate, which no other client has.
fn read_certificate(reader: &mut Reader<'_>, seen: &mut Seen) -> Option<CertificateName> {
    let text: Arc<str> = reader.optional("certificate")?;
    let accepted = "a subject alternative name of the client's certificate, such as \"spiffe://corp/ci\" or \"ci.corp\"";
    if text.is_empty() {
        return reader.refuse("certificate", "empty", accepted);
    }
    let name = CertificateName::parse(&text);
    if !seen.asks_certificates {
        let problem = "no listener asks for certificates";
        return reader.refuse("certificate", problem, "client_ca in listen.https");
    }
    if !seen.certificates.insert(name.clone()) {
        let problem = "duplicate certificate: an earlier client has the same";
        return reader.refuse("certificate", problem, accepted);
    }
    Some(name)
}

impl Seen {
    /// Refuses claims that are those of an earlier client.
    fn check_token(&mut self, reader: &Reader<'_>, oidc: &OidcClient, name: Option<&Arc<str>>) {
        if let Some((_, first)) = self.tokens.iter().find(|(before, _)| before == oidc) {
            let problem =
                format!("duplicate claims: {} has the same", holder(first.as_ref(), name));
            reader.refuse::<()>("oidc", problem, "other claims for each client of an issuer");
        }
        self.tokens.push((oidc.clone(), name.cloned()));
    }
}

fn holder(first: Option<&Arc<str>>, name: Option<&Arc<str>>) -> String {
    match first {
        Some(first) if Some(first) == name => "this client".to_owned(),
        Some(first) => format!("client `{first}`"),
        None => "an earlier client".to_owned(),
    }
}

/// Reads `key_sha256`, the only key and without an end, or `keys`. A client that is known otherwise
/// needs none.
fn read_keys(
    reader: &mut Reader<'_>,
    name: Option<&Arc<str>>,
    is_known_otherwise: bool,
    seen: &mut Seen,
) -> Option<Vec<ClientKey>> {
    let (has_list, has_one) =
        (reader.entry("keys").is_some(), reader.entry("key_sha256").is_some());
    let setting = if has_list { "keys" } else { "key_sha256" };
    let keys = if has_list {
        let keys = reader.all_entries("keys", ClientKey::read);
        if has_one {
            let problem = "not beside keys, which lists each key with its end";
            return reader.refuse("key_sha256", problem, "key_sha256 or keys");
        }
        keys?
    } else if is_known_otherwise && !has_one {
        return Some(Vec::new());
    } else {
        let sha256 = reader.required::<KeyHash>("key_sha256")?.0;
        vec![ClientKey { sha256, expires: None }]
    };
    if keys.is_empty() {
        return reader.refuse("keys", "empty", "at least one key, made by `weir key`");
    }
    for key in &keys {
        if let Some(first) = seen.keys.insert(key.sha256, name.cloned()) {
            let problem = format!("duplicate key: {} has the same", holder(first.as_ref(), name));
            reader.refuse::<()>(setting, problem, "a key for each client, made by `weir key`");
        }
    }
    Some(keys)
}

/// Reads the pool that `reads` names; the only pool when it is not set.
fn read_pool(reader: &mut Reader<'_>, pools: &Declared<Pool>) -> Option<usize> {
    match reader.entry("reads") {
        Some(entry) => pools.resolve(&entry),
        None if pools.len() == 1 => Some(0),
        None if !pools.is_complete() => None,
        None => {
            reader.refuse("reads", "missing, and there is not exactly one pool", pools.accepted())
        }
    }
}
