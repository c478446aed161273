//! `[[tokens]]`: the upstream credentials of the accounts. Several tokens of one account share its
//! budget.

use std::collections::{HashMap, HashSet};

use secrecy::ExposeSecret;

use super::accounts::{Account, name_of};
use super::clients::key::digest;
use crate::api::{AccountKind, TokenKind};
use crate::config::input::declared::Declared;
use crate::config::input::document::listed;
use crate::config::input::reader::{Choice, Reader};
use crate::config::input::secret::Secret;
use crate::config::printer::{Printer, text};

/// One entry of `[[tokens]]`.
#[derive(Clone, Debug)]
pub struct Token {
    /// Account: an index into [`Config::accounts`](crate::config::Config::accounts).
    pub account: usize,
    /// Kind of credential.
    pub kind: TokenKind,
    /// The credential; `user:password` for the kind `basic`.
    pub secret: Secret,
}

impl Choice for TokenKind {
    const ALL: &'static [(&'static str, Self)] = &[
        (Self::Classic.as_str(), Self::Classic),
        (Self::FineGrained.as_str(), Self::FineGrained),
        (Self::Oauth.as_str(), Self::Oauth),
        (Self::AppUser.as_str(), Self::AppUser),
        (Self::Installation.as_str(), Self::Installation),
        (Self::Workflow.as_str(), Self::Workflow),
        (Self::Basic.as_str(), Self::Basic),
    ];
}

/// Kinds of token that spend the budget of a kind of account (SPECIFICATION, "Credentials").
const fn kinds_of(account: AccountKind) -> &'static [TokenKind] {
    match account {
        AccountKind::User => {
            &[TokenKind::Classic, TokenKind::FineGrained, TokenKind::Oauth, TokenKind::AppUser]
        }
        AccountKind::Installation => &[TokenKind::Installation],
        AccountKind::OauthApp => &[TokenKind::Basic],
        AccountKind::Workflow => &[TokenKind::Workflow],
        // An app signs JWTs with its key; an anonymous account has no credential.
        AccountKind::App | AccountKind::Anonymous => &[],
    }
}

/// Tokens while the config is read, with the accounts that have one. The hashes of known tokens
/// reveal duplicates.
#[derive(Default)]
pub(crate) struct Tokens {
    items: Vec<Option<Token>>,
    owners: HashSet<usize>,
    seen: HashMap<[u8; 32], usize>,
    /// False when a token's account could not be read; then no account certainly lacks a token.
    complete: bool,
}

impl Tokens {
    pub(crate) fn read(root: &mut Reader<'_>, accounts: &Declared<Account>) -> Self {
        let mut tokens = Self { complete: true, ..Self::default() };
        let items = root.entries("tokens", |reader| tokens.read_one(reader, accounts));
        tokens.complete &= items.is_some();
        tokens.items = items.unwrap_or_default();
        tokens
    }

    fn read_one(&mut self, reader: &mut Reader<'_>, accounts: &Declared<Account>) -> Option<Token> {
        let account = accounts.reference(reader, "account");
        let kind = reader.required::<TokenKind>("kind");
        let secret = reader.required::<Secret>("secret");
        match account {
            Some(account) => drop(self.owners.insert(account)),
            None => self.complete = false,
        }
        if let (Some(owner), Some(kind)) = (account.and_then(|account| accounts.get(account)), kind)
        {
            check_kind(reader, owner.kind, kind);
        }
        if let Some(secret) = &secret {
            // The budget of a token under two accounts would count twice.
            let position = self.seen.len();
            let hash = digest(secret.expose_secret().as_bytes());
            if *self.seen.entry(hash).or_insert(position) < position {
                let problem = "duplicate token: an earlier entry has the same secret";
                reader.refuse::<()>("secret", problem, "each token once");
            }
            if kind == Some(TokenKind::Basic) && !secret.expose_secret().contains(':') {
                let accepted = "client id and client secret with a colon between them";
                reader.refuse::<()>("secret", "the secret has no colon", accepted);
            }
        }
        Some(Token { account: account?, kind: kind?, secret: secret? })
    }

    /// Returns true if the account at `index` certainly has no token.
    pub(crate) fn has_none(&self, index: usize) -> bool {
        self.complete && !self.owners.contains(&index)
    }

    pub(crate) fn finish(self) -> Option<Vec<Token>> {
        self.items.into_iter().collect()
    }
}

fn check_kind(reader: &Reader<'_>, account: AccountKind, kind: TokenKind) {
    let fitting = kinds_of(account);
    if !fitting.contains(&kind) {
        let problem = format!(
            "a token of kind `{kind}` does not belong to an account of kind `{}`",
            account.name()
        );
        let accepted = match fitting {
            [] => "none: accounts of this kind have no token".to_owned(),
            kinds => listed(kinds.iter().map(|kind| kind.as_str())),
        };
        reader.refuse::<()>("kind", problem, accepted);
    }
}

impl Token {
    pub(crate) fn print(&self, accounts: &[Account], printer: &mut Printer) {
        printer.entry("tokens");
        printer.set_some("account", name_of(accounts, self.account));
        printer.set("kind", text(self.kind));
        printer.set("secret", self.secret.printed());
    }
}
