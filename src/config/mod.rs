//! The config file: raw TOML in, a validated [`Config`] out, or every fault at once with its line
//! and key.
//!
//! A file per section. Names are resolved to indices and secrets to their values here, so that the
//! rest of the crate never meets a bad config.

mod accounts;
mod allow;
mod apps;
mod cache;
mod client_key;
mod clients;
mod declared;
mod document;
mod effective;
mod fault;
mod http_url;
mod limits;
mod listen;
mod passthrough;
mod pools;
mod printer;
mod reader;
mod scalars;
mod secret;
mod state;
mod succession;
mod telemetry;
#[cfg(test)]
mod tests;
mod tokens;
mod upstream;
mod webhooks;
mod writes;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use apps::Apps;
use declared::Declared;
use document::{Document, FILE_BYTES_MAX, Secrets};
use tokens::Tokens;

use crate::api::AccountKind;
use crate::decision::{AccountId, Places};

pub use accounts::{Account, Reach, Territory};
pub use allow::{Allow, AllowedMethod};
pub use apps::{App, Installation};
pub use cache::{Cache, CacheRule, Freshness};
pub use client_key::{KEY_PREFIX, digest, digest_hex, generate};
pub use clients::{Client, Priority};
pub use effective::{Inactive, Warning};
pub use fault::{Fault, Faults};
pub use http_url::{HttpUrl, Scheme, UpstreamUrl};
pub use limits::{Limits, Pace};
pub use listen::{Https, Listen};
pub use passthrough::{PASSTHROUGH_ACCOUNT, Passthrough};
pub use pools::Pool;
pub use scalars::parse_duration;
pub use secret::rsa_key;
pub use state::{Redis, State};
pub use succession::Successor;
pub use telemetry::{LogFormat, Telemetry};
pub use tokens::Token;
pub use upstream::Upstream;
pub use webhooks::{Hook, Webhooks};
pub use writes::{WriteStore, Writes};

/// For other files of the program that are read as strictly as this one.
pub(crate) use document::quoted;
pub(crate) use reader::{Entry, Read, Reader};

/// A config that has been checked as a whole: every reference resolves, every secret is there,
/// every number is within its bounds.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where the gateway is reached.
    pub listen: Listen,
    /// The service behind it.
    pub upstream: Upstream,
    /// Who the budgets belong to; never empty.
    pub accounts: Vec<Account>,
    /// The accounts' credentials.
    pub tokens: Vec<Token>,
    /// Apps whose installation tokens are minted here.
    pub apps: Vec<App>,
    /// Which accounts fetch together; never empty.
    pub pools: Vec<Pool>,
    /// Who may ask; never empty.
    pub clients: Vec<Client>,
    /// Clients with upstream credentials of their own.
    pub passthrough: Passthrough,
    /// What is stored.
    pub cache: Cache,
    /// The upstream's secondary limits.
    pub limits: Limits,
    /// The queue of writes.
    pub writes: Writes,
    /// What replicas share.
    pub state: State,
    /// Deliveries by the upstream, when wanted.
    pub webhooks: Option<Webhooks>,
    /// Logs and traces.
    pub telemetry: Telemetry,
    /// Which [`AccountId`]s the accounts have.
    pub places: Places,
}

impl Config {
    /// The account at this place of [`Config::accounts`].
    pub fn account_id(&self, index: usize) -> AccountId {
        self.places.id(index)
    }

    /// An account; `None` for one that is behind a client's own credential.
    pub fn account(&self, id: AccountId) -> Option<&Account> {
        self.accounts.get(self.places.index(id)?)
    }
}

/// Reads and validates the file at `path`; secrets come from the environment of the process and
/// from files, relative paths begin beside it.
pub fn load(path: &Path) -> Result<Config, Faults> {
    load_as(path, read)
}

/// The same without looking for the secrets: a stand-in takes the place of each. For what looks at
/// a config on a machine where its secrets are not.
pub fn load_without_secrets(path: &Path) -> Result<Config, Faults> {
    load_with(path, Secrets::Presumed, read)
}

/// Reads `[listen]` alone from the file at `path`, for those who talk to a gateway that runs by it.
/// The other sections are taken as they are: their secrets need not be at hand.
pub fn load_listen(path: &Path) -> Result<Listen, Faults> {
    load_as(path, |root| {
        for section in OTHER_SECTIONS {
            root.entry(section);
        }
        root.section("listen", |reader| Some(Listen::read(reader)))
    })
}

/// Every section but `[listen]`.
const OTHER_SECTIONS: [&str; 13] = [
    "upstream",
    "accounts",
    "tokens",
    "apps",
    "pools",
    "clients",
    "passthrough",
    "cache",
    "limits",
    "writes",
    "state",
    "webhooks",
    "telemetry",
];

/// The same for a file of another kind, whose keys `read` knows.
pub(crate) fn load_as<T>(
    path: &Path,
    read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
) -> Result<T, Faults> {
    load_with(path, Secrets::Resolved, read)
}

fn load_with<T>(
    path: &Path,
    secrets: Secrets,
    read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
) -> Result<T, Faults> {
    let file_name = path.display().to_string();
    let text = read_file(path).map_err(|(line, problem)| {
        Faults(vec![Fault {
            file: file_name.clone(),
            line,
            key: String::new(),
            problem,
            accepted: None,
        }])
    })?;
    let env = |name: &str| std::env::var(name).ok();
    parse_with(&text, &file_name, &env, path.parent().unwrap_or(Path::new("")), secrets, read)
}

/// The text of a file; or what is wrong with it, with the line where that is.
fn read_file(path: &Path) -> Result<String, (Option<usize>, String)> {
    let failed = |error: io::Error| (None, format!("cannot be read: {}", error.kind()));
    let mut bytes = Vec::new();
    // One byte more than is accepted tells a file that is too large.
    File::open(path)
        .map_err(failed)?
        .take(FILE_BYTES_MAX as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    check_size(bytes.len()).map_err(|problem| (None, problem))?;
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = error.as_bytes().iter().take(good).filter(|byte| **byte == b'\n').count() + 1;
        (Some(line), "not TOML: the file is not text in UTF-8".to_owned())
    })
}

fn check_size(bytes: usize) -> Result<(), String> {
    if bytes > FILE_BYTES_MAX {
        Err(format!("larger than {FILE_BYTES_MAX} bytes, which no config is"))
    } else {
        Ok(())
    }
}

/// Validates the text of a config. `file_name` is only for messages; relative paths begin at
/// `base_dir`.
pub fn parse(
    text: &str,
    file_name: &str,
    env: &dyn Fn(&str) -> Option<String>,
    base_dir: &Path,
) -> Result<Config, Faults> {
    parse_as(text, file_name, env, base_dir, read)
}

/// The same for a file of another kind, whose keys `read` knows.
pub(crate) fn parse_as<T>(
    text: &str,
    file_name: &str,
    env: &dyn Fn(&str) -> Option<String>,
    base_dir: &Path,
    read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
) -> Result<T, Faults> {
    parse_with(text, file_name, env, base_dir, Secrets::Resolved, read)
}

fn parse_with<T>(
    text: &str,
    file_name: &str,
    env: &dyn Fn(&str) -> Option<String>,
    base_dir: &Path,
    secrets: Secrets,
    read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
) -> Result<T, Faults> {
    let document = Document::new(text, file_name, env, base_dir, secrets);
    if let Err(problem) = check_size(text.len()) {
        document.fault(None, "", problem, None);
        return document.finish(None);
    }
    let table = document.parse(text);
    let config = table.as_ref().and_then(|table| Reader::document(&document, table, read));
    document.finish(config)
}

/// The whole file. Everything is read before the first fault is acted on.
fn read(root: &mut Reader<'_>) -> Option<Config> {
    let listen = root.section("listen", |reader| Some(Listen::read(reader)));
    let upstream = root.section("upstream", Upstream::read);
    let accounts = Account::read_all(root);
    let tokens = Tokens::read(root, &accounts);
    let apps = Apps::read(root, &accounts);
    let pools = Pool::read_all(root, &accounts);
    let clients = Client::read_all(root, &accounts, &pools);
    let passthrough = root.section("passthrough", |reader| Some(Passthrough::read(reader)));
    let cache = root.section("cache", |reader| {
        Cache::read(reader, upstream.as_ref().map(|upstream| upstream.dialect))
    });
    let limits = root.section("limits", |reader| Some(Limits::read(reader)));
    let state = root.section("state", State::read);
    let writes = root.section("writes", |reader| Some(Writes::read(reader, state.as_ref())));
    let webhooks = root.entry("webhooks").map(|entry| Webhooks::read(&entry, &accounts));
    let telemetry = root.section("telemetry", |reader| Some(Telemetry::read(reader)));
    check_credentials(root, &accounts, &tokens, &apps);
    if passthrough.as_ref().is_some_and(|passthrough| passthrough.enabled) {
        check_names(root, &accounts);
    }
    let mut accounts = accounts.finish()?;
    let apps = apps.finish(&mut accounts)?;
    let passthrough = passthrough?;
    let places = Places {
        first: u32::try_from(accounts.len()).unwrap_or(u32::MAX),
        guests: passthrough.places(),
    };
    Some(Config {
        listen: listen?,
        upstream: upstream?,
        accounts,
        tokens: tokens.finish()?,
        apps,
        pools: pools.finish()?,
        clients: clients.finish()?,
        passthrough,
        cache: cache?,
        limits: limits?,
        writes: writes?,
        state: state?,
        webhooks: webhooks.map_or(Some(None), |webhooks| webhooks.map(Some))?,
        telemetry: telemetry?,
        places,
    })
}

/// No account may be taken for those behind the credentials that clients bring.
fn check_names(root: &Reader<'_>, accounts: &Declared<Account>) {
    for index in 0..accounts.len() {
        if accounts.get(index).is_some_and(|account| *account.name == *PASSTHROUGH_ACCOUNT) {
            let problem = format!(
                "the name `{PASSTHROUGH_ACCOUNT}` is that of clients' own credentials, which [passthrough] enables"
            );
            root.refuse_item("accounts", index, problem, "another name");
        }
    }
}

/// Every account needs a credential of its own, but for the one without any.
fn check_credentials(
    root: &Reader<'_>,
    accounts: &Declared<Account>,
    tokens: &Tokens,
    apps: &Apps,
) {
    for index in 0..accounts.len() {
        match accounts.get(index).map(|account| account.kind) {
            None | Some(AccountKind::Anonymous) => {}
            Some(AccountKind::App) => {
                if apps.none_pays_with(index) {
                    root.refuse_item(
                        "accounts",
                        index,
                        "the account has no credential",
                        "an entry in [[apps]] whose account it is",
                    );
                }
            }
            Some(AccountKind::Installation) => {
                if tokens.has_none(index) && apps.mint_none_for(index) {
                    root.refuse_item(
                        "accounts",
                        index,
                        "the account has no token",
                        "an entry in [[tokens]], or an installation in [[apps]]",
                    );
                }
            }
            Some(_) => {
                if tokens.has_none(index) {
                    root.refuse_item(
                        "accounts",
                        index,
                        "the account has no token",
                        "an entry in [[tokens]]",
                    );
                }
            }
        }
    }
}
