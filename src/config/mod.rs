//! The config file: raw TOML in, a validated [`Config`] out, or every fault at once with its line
//! and key.
//!
//! `input` reads values strictly, `sections` has a file per section. Names become indices and
//! secrets become values here, so that the rest of the crate only meets valid configs.

mod effective;
#[cfg(test)]
pub(crate) mod fixture;
pub(crate) mod input;
mod printer;
mod reload;
mod sections;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use input::document::{Loaded, Manner, Secrets};
use input::include::Pattern;
use input::reader::Reader;
use input::references::References;
use input::secret_file::Source;
use input::{complete, load_config};
use sections::{Apps, Tokens};

use crate::api::ResourceName;
use crate::decision::{
    AccountId, AccountLayout, AccountSettings, BudgetAmount, ClientBudget, ClientId,
    ClientSettings, Settings, Shadow,
};

pub use effective::Warning;
pub use input::document::LeftOut;
pub use input::fault::{Fault, Faults};
pub use input::http_url::{HttpUrl, Scheme, UpstreamUrl};
pub use input::loaded_file::LoadedFile;
pub(crate) use input::scalars::duration_text;
pub use input::scalars::{parse_duration, parse_name};
pub use input::secret::{Secret, rsa_key};
pub use input::secret_file::{SecretFile, Stamp};
pub use reload::Reload;
pub use sections::{
    Account, Allow, AllowedMethod, App, BudgetMode, Budgets, CaFile, CaRoots, Cache, CacheRule,
    Certificate, CertificateFault, CertificateFiles, CertificateName, Client, ClientAuth,
    ClientKey, Durability, FetchUrl, Freshness, Hook, Https, Installation, Issuer, IssuerKeys,
    KEY_PREFIX, Limits, Listen, LogFormat, OidcClient, Otlp, OtlpCompression, OtlpEndpoint,
    OtlpHeader, OtlpProtocol, OtlpSignal, OtlpTarget, PASSTHROUGH_ACCOUNT, Pace, Passthrough, Pool,
    Priority, Proxies, Proxy, PublicKey, Reach, Redis, RedisUrl, Sampling, ServerTls, ShadowRules,
    State, Telemetry, Temporality, Territory, Token, Topology, Upstream, Webhooks, WriteStore,
    Writes, digest, digest_hex, generate, load_certificate, parse_expiry, parse_key_set,
};

/// The JSON schema of the config, draft 2020-12. A test compares it with the reader.
pub const SCHEMA: &str = include_str!("../../config/weir.schema.json");

/// Requests that may wait for admission at once. Each holds a connection and at most one small
/// body; the queue of writes has the same bound.
pub(crate) const WAITING_MAX: usize = 10_000;

/// A config validated as a whole: every reference resolves, every secret is present, every number
/// is within its bounds.
#[derive(Clone, Debug)]
pub struct Config {
    /// Addresses and timeouts of the listeners.
    pub listen: Listen,
    /// The upstream service.
    pub upstream: Upstream,
    /// Owners of budgets; never empty.
    pub accounts: Vec<Account>,
    /// Credentials of the accounts.
    pub tokens: Vec<Token>,
    /// Apps whose installation tokens the gateway mints.
    pub apps: Vec<App>,
    /// Accounts that fetch together; never empty.
    pub pools: Vec<Pool>,
    /// Issuers of tokens by which clients may be known.
    pub issuers: Vec<Issuer>,
    /// The bots; never empty.
    pub clients: Vec<Client>,
    /// Clients with upstream credentials of their own.
    pub passthrough: Passthrough,
    /// The store of answers.
    pub cache: Cache,
    /// The upstream's secondary limits.
    pub limits: Limits,
    /// Rules that are tried out.
    pub shadow: ShadowRules,
    /// The queue of writes.
    pub writes: Writes,
    /// The Redis that several replicas share.
    pub state: State,
    /// Deliveries by the upstream, if configured.
    pub webhooks: Option<Webhooks>,
    /// Logs and traces.
    pub telemetry: Telemetry,
    /// The files of settings, secrets above all, with their content.
    pub secret_files: Vec<SecretFile>,
    /// The files of certificates, with their content.
    pub loaded_files: Vec<LoadedFile>,
    /// The texts that all this was read from.
    source: Arc<Source>,
    /// [`AccountId`]s of the accounts.
    pub account_layout: AccountLayout,
    /// Warnings about the files themselves.
    notices: Vec<Warning>,
}

impl Config {
    /// Returns the id of the account at this index of [`Config::accounts`].
    pub fn account_id(&self, index: usize) -> AccountId {
        self.account_layout.id(index)
    }

    /// Returns an account; `None` for one behind a client's own credential.
    pub fn account(&self, id: AccountId) -> Option<&Account> {
        self.accounts.get(self.account_layout.index(id)?)
    }

    /// Returns the clients that may use the account at this index of [`Config::accounts`].
    fn clients_of(&self, account: usize) -> impl Iterator<Item = &Client> {
        let fetches = move |client: &Client| {
            self.pools.get(client.reads).is_some_and(|pool| pool.accounts.contains(&account))
        };
        let uses = move |client: &&Client| client.writes == Some(account) || fetches(client);
        self.clients.iter().filter(|client| !client.retired).filter(uses)
    }

    /// Reads the same texts again, with the present content of the `changed` files of secrets. A
    /// file that is of no use keeps the content that it had before, and has a problem.
    pub fn with_present_files(&self, changed: &[PathBuf]) -> Result<Self, Faults> {
        let secrets = (&*self.secret_files, changed);
        let config = self.source.read_again(secrets, &self.loaded_files, read)?;
        Ok(Self { notices: self.notices.clone(), ..config })
    }

    /// The same, with the files of each setting by themselves, so that those of no use hold up no
    /// others. Returns what could be read, and the first faults.
    pub fn with_each_present_file(&self, changed: &[PathBuf]) -> (Option<Self>, Option<Faults>) {
        let mut settings: BTreeMap<&str, Vec<PathBuf>> = BTreeMap::new();
        for file in self.secret_files.iter().filter(|file| changed.contains(&file.path)) {
            let setting = file.key.rsplit_once('.').map_or(&*file.key, |(setting, _)| setting);
            settings.entry(setting).or_default().push(file.path.clone());
        }
        let (mut config, mut faults) = (None::<Self>, None);
        for files in settings.values() {
            match config.as_ref().unwrap_or(self).with_present_files(files) {
                Ok(read) => config = Some(read),
                Err(refused) => _ = faults.get_or_insert(refused),
            }
        }
        (config, faults)
    }

    /// Describes a problem of a key that was read without a fault, with its file and line.
    pub fn fault(&self, key: &str, problem: String) -> Fault {
        self.source.fault(key, problem)
    }

    /// The own budgets of the clients. A share is one of the limits of the accounts that fetch and
    /// write for the client.
    fn client_budgets(&self) -> Vec<ClientBudget> {
        let clients = (0..).map(ClientId).zip(&self.clients);
        let budgets_of = |(id, client): (ClientId, &Client)| {
            let fetching = self.pools.get(client.reads).map(|pool| pool.accounts.as_slice());
            let mut accounts: Vec<usize> = fetching.unwrap_or_default().to_vec();
            let writing = client.writes.filter(|account| !accounts.contains(account));
            accounts.extend(writing);
            let accounts: Arc<[AccountId]> =
                accounts.into_iter().map(|index| self.account_id(index)).collect();
            let budget = |(resource, amount): &(ResourceName, BudgetAmount)| ClientBudget {
                client: id,
                name: Arc::clone(&client.name),
                resource: resource.clone(),
                amount: *amount,
                accounts: Arc::clone(&accounts),
                is_hard: client.budget_mode == BudgetMode::Hard,
            };
            client.budgets.0.iter().map(budget).collect::<Vec<_>>()
        };
        clients.filter(|(_, client)| !client.retired).flat_map(budgets_of).collect()
    }

    /// Settings of the quota ledger and the scheduler.
    pub fn ledger_settings(&self) -> Settings {
        let account = |(index, account): (usize, &Account)| AccountSettings {
            name: Arc::clone(&account.name),
            kind: account.kind,
            is_shared: self.clients_of(index).nth(1).is_some(),
            reserve: account.reserve,
            also_spends: account.also_spends.map(|index| self.account_id(index)),
        };
        let client =
            |client: &Client| ClientSettings { weight: client.weight, priority: client.priority };
        Settings {
            accounts: self.accounts.iter().enumerate().map(account).collect(),
            dynamic_accounts: self.account_layout.dynamic,
            clients: self.clients.iter().map(client).collect(),
            client_budgets: self.client_budgets(),
            shadow: Shadow { limits: self.shadow.limits, client_budgets: self.shadow.budgets },
            pace: self.limits.pace,
            batch_floor: self.limits.batch_floor,
            waiting_max: WAITING_MAX,
            // The rest of the memory stays free for requests that need no wait.
            waiting_bytes_max: self.listen.body_memory / 4 * 3,
            limits: self.limits.secondary,
            spacing: self.writes.spacing,
            notify_spacing: self.writes.notify_spacing,
            replicas_max: self.state.redis.as_ref().map(|_| self.state.replicas_max),
        }
    }
}

/// Loads and validates the file at `path`, with those that it includes. Secrets come from the
/// process's environment and from files; relative paths begin at the directory of the file that
/// names them.
pub fn load(path: &Path) -> Result<Config, Faults> {
    complete(load_config(path, STRICT, read).map(noticed))
}

/// Like [`load`], with placeholders for secrets: for a config that is examined on a machine without
/// its secrets.
pub fn load_without_secrets(path: &Path) -> Result<Config, Faults> {
    let manner = Manner { secrets: Secrets::Presumed, ..STRICT };
    complete(load_config(path, manner, read).map(noticed))
}

/// A config as far as a machine can know it that is not the gateway's.
pub struct Examined {
    /// The config; `None` if it depends on variables that are not set here.
    pub config: Option<Config>,
    /// Secrets, variables that are not set, and files that are not on this machine.
    pub left_out: Vec<LeftOut>,
    /// All files that were read.
    pub files: Vec<String>,
}

/// Like [`load`], and returns the names of all files too.
pub fn load_files(path: &Path) -> Result<Examined, Faults> {
    load_config(path, STRICT, read).map(examined)
}

/// Like [`load_without_secrets`], and returns what was left out. A variable that is not set is no
/// fault.
pub fn examine(path: &Path) -> Result<Examined, Faults> {
    let manner = Manner { secrets: Secrets::Presumed, references: References::Examined };
    load_config(path, manner, read).map(examined)
}

/// The manner of the machine that runs the gateway.
const STRICT: Manner = Manner { secrets: Secrets::Resolved, references: References::Resolved };

fn examined(loaded: Loaded<Config>) -> Examined {
    let Loaded { value, left_out, files, .. } = noticed(loaded);
    Examined { config: value, left_out, files }
}

/// Adds the remarks about the files to the config.
fn noticed(mut loaded: Loaded<Config>) -> Loaded<Config> {
    let notices = loaded.notices.drain(..);
    let notices = notices.map(|(key, problem)| Warning { key, problem }).collect();
    if let Some(config) = &mut loaded.value {
        config.notices = notices;
    }
    loaded
}

/// Loads `[listen]` alone from the file at `path`, for commands that talk to a running gateway.
/// Other sections are not validated, so their secrets and variables may be absent, and files that
/// are included by a variable. Certificates are not read.
pub fn load_listen(path: &Path) -> Result<Listen, Faults> {
    let manner = Manner { secrets: Secrets::WithoutCertificates, ..STRICT };
    complete(load_config(path, manner, |root| {
        root.entry("include");
        for section in OTHER_SECTIONS {
            root.entry(section);
        }
        root.section("listen", |reader| Some(Listen::read(reader)))
    }))
}

/// Every section but `[listen]`.
const OTHER_SECTIONS: [&str; 15] = [
    "upstream",
    "accounts",
    "tokens",
    "apps",
    "pools",
    "issuers",
    "clients",
    "passthrough",
    "cache",
    "limits",
    "shadow",
    "writes",
    "state",
    "webhooks",
    "telemetry",
];

/// Validates the text of a config. `file_name` appears in messages only; relative paths begin at
/// `base_dir`.
pub fn parse(
    text: &str,
    file_name: &str,
    env: &dyn Fn(&str) -> Option<String>,
    base_dir: &Path,
) -> Result<Config, Faults> {
    input::parse_config(text, file_name, env, base_dir, read)
}

/// Reads the whole file. All of it is read before the first fault is acted on.
fn read(root: &mut Reader<'_>) -> Option<Config> {
    root.optional::<Vec<Pattern>>("include");
    let listen = root.section("listen", |reader| Some(Listen::read(reader)));
    let upstream = root.section("upstream", Upstream::read);
    let accounts = Account::read_all(root);
    let tokens = Tokens::read(root, &accounts);
    let apps = Apps::read(root, &accounts);
    let pools = Pool::read_all(root, &accounts);
    let issuers = Issuer::read_all(root);
    let clients = Client::read_all(root, &accounts, &pools, &issuers, listen.as_ref());
    let passthrough = root.section("passthrough", |reader| Some(Passthrough::read(reader)));
    let cache = root.section("cache", |reader| {
        Cache::read(reader, upstream.as_ref().map(|upstream| upstream.dialect))
    });
    let limits = root.section("limits", |reader| Some(Limits::read(reader)));
    let shadow = root.section("shadow", |reader| Some(ShadowRules::read(reader)));
    let mut state = root.section("state", State::read);
    let writes = root.section("writes", |reader| Writes::read(reader, state.as_mut()));
    let webhooks = root.if_set("webhooks", |entry| Webhooks::read(entry, &accounts));
    let telemetry = root.section("telemetry", |reader| Some(Telemetry::read(reader)));
    sections::check_credentials(root, &accounts, &tokens, &apps);
    if passthrough.as_ref().is_some_and(|passthrough| passthrough.enabled) {
        sections::check_names(root, &accounts);
    }
    let mut accounts = accounts.finish()?;
    let apps = apps.finish(&mut accounts)?;
    let passthrough = passthrough?;
    let account_layout = AccountLayout {
        first: u32::try_from(accounts.len()).unwrap_or(u32::MAX),
        dynamic: passthrough.reserved_ids(),
    };
    Some(Config {
        listen: listen?,
        upstream: upstream?,
        accounts,
        tokens: tokens.finish()?,
        apps,
        pools: pools.finish()?,
        issuers: issuers.finish()?,
        clients: clients.finish()?,
        passthrough,
        cache: cache?,
        limits: limits?,
        shadow: shadow?,
        writes: writes?,
        state: state?,
        webhooks: webhooks?,
        telemetry: telemetry?,
        secret_files: root.secret_files(),
        loaded_files: root.loaded_files(),
        source: Arc::new(root.source()),
        account_layout,
        notices: Vec::new(),
    })
}
