//! Names of views and tokens that are the same in every run of the program with the same config.
//! A view or token of another config has another name, and finds nothing of its own in a file.
//!
//! A name is a SHA-256 keyed by a random salt of the file. It shows neither a credential nor a
//! digest of one that could be compared with another file's.

use std::collections::HashMap;
use std::fmt::Write;

use ring::hmac;

use crate::config::{Account, Config};
use crate::decision::cache::key::Scope;
use crate::decision::{AccountId, Mode, TokenKey};
use crate::tokens::{SlotId, Tokens};

use crate::gateway::dispatch::permissions::token_key;

/// Bytes of a name. Chosen here: no two are equal by chance.
const NAME_BYTES: usize = 16;

/// The names of one config under one salt.
pub struct Names {
    /// Of the upstream.
    pub upstream: String,
    pub scopes: Vec<(Scope, String)>,
    pub tokens: Vec<(TokenKey, String)>,
    /// Of the slots for tokens.
    pub slots: Vec<(SlotId, String)>,
}

struct Namer(hmac::Key);

impl Namer {
    /// The name of a thing with these parts, and no other.
    fn name<'p>(&self, parts: impl IntoIterator<Item = &'p [u8]>) -> String {
        let mut digest = hmac::Context::with_key(&self.0);
        for part in parts {
            // The length keeps two parts from being read as one.
            digest.update(&(part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        let mut name = String::with_capacity(2 * NAME_BYTES);
        for byte in digest.sign().as_ref().iter().take(NAME_BYTES) {
            // A string takes everything.
            let _ = write!(name, "{byte:02x}");
        }
        name
    }
}

/// The name of a stored answer of a view.
pub fn name_of_answer(salt: &[u8], scope: &str, key: &[u8]) -> String {
    Namer(hmac::Key::new(hmac::HMAC_SHA256, salt)).name([b"answer", scope.as_bytes(), key])
}

impl Names {
    pub fn of(config: &Config, tokens: &Tokens, mode: Mode, salt: &[u8]) -> Self {
        let namer = Namer(hmac::Key::new(hmac::HMAC_SHA256, salt));
        let upstream = &config.upstream;
        let dialect = format!("{:?}", upstream.dialect);
        let addresses =
            [upstream.url.as_str(), upstream.graphql_url.as_str(), upstream.uploads_url.as_str()];
        let upstream_parts = addresses.into_iter().chain([dialect.as_str()]);
        let (mut scopes, mut listed) = (Vec::new(), NamedTokens::default());
        let mut accounts = Vec::new();
        for (index, account) in config.accounts.iter().enumerate() {
            let id = config.account_id(index);
            let name = account_name(&namer, account, id, tokens, &mut listed);
            if !account.retired {
                scopes.push((Scope::Account(id.0), name.clone()));
            }
            accounts.push(name);
        }
        // The two modes store different parts of an answer.
        let mode = format!("{mode:?}");
        for (_, name) in &mut scopes {
            *name = namer.name([b"account", mode.as_bytes(), name.as_bytes()]);
        }
        for (index, pool) in (0..).zip(&config.pools).filter(|(_, pool)| !pool.retired) {
            let mut members: Vec<&[u8]> = pool
                .accounts
                .iter()
                .filter_map(|account| accounts.get(*account))
                .map(String::as_bytes)
                .collect();
            // Their order changes no view.
            members.sort_unstable();
            let about = [&b"pool"[..], mode.as_bytes(), pool.name.as_bytes()];
            scopes.push((Scope::Pool(index), namer.name(about.into_iter().chain(members))));
        }
        let upstream = namer.name(upstream_parts.map(str::as_bytes));
        Self { upstream, scopes, tokens: listed.tokens, slots: listed.slots }
    }

    /// The numbers of the scopes.
    pub fn scope_numbers(&self) -> HashMap<Scope, u32> {
        self.scopes.iter().zip(0..).map(|((scope, _), number)| (*scope, number)).collect()
    }

    /// The numbers of the tokens.
    pub fn token_numbers(&self) -> HashMap<TokenKey, u64> {
        self.tokens.iter().zip(0..).map(|((token, _), number)| (*token, number)).collect()
    }
}

#[derive(Default)]
struct NamedTokens {
    tokens: Vec<(TokenKey, String)>,
    slots: Vec<(SlotId, String)>,
}

/// The name of what an account may see; adds those of its tokens.
fn account_name(
    namer: &Namer,
    account: &Account,
    id: AccountId,
    tokens: &Tokens,
    listed: &mut NamedTokens,
) -> String {
    let mut credentials = Vec::new();
    for (identity, slot, token) in tokens.identities(id) {
        let name = namer.name([&b"token"[..], &identity]);
        listed.slots.push((slot, name.clone()));
        listed.tokens.extend(token.map(|token| (token_key(token), name.clone())));
        credentials.push(name);
    }
    credentials.sort_unstable();
    let (kind, reach) = (format!("{:?}", account.kind), format!("{:?}", account.reach));
    let about = [account.name.as_bytes(), kind.as_bytes(), reach.as_bytes()];
    namer.name(about.into_iter().chain(credentials.iter().map(String::as_bytes)))
}
