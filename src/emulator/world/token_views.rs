//! Tokens as the control plane and the command line show them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::World;
use crate::api::TokenKind;
use crate::emulator::accounts::{AccountId, Permissions, Token, kind_name};

impl World {
    pub fn token_views(&self) -> Vec<TokenView> {
        let apps = self.oauth_apps.iter().map(|app| TokenView {
            token: format!("{}:{}", app.client_id, app.client_secret),
            account: self.account_name(AccountId::OauthApp(app.id)),
            kind: kind_name(TokenKind::Basic),
            user: None,
            scopes: Vec::new(),
            permissions: BTreeMap::new(),
            note: "the OAuth app itself, by Basic",
        });
        self.tokens.iter().map(|token| self.token_view(token)).chain(apps).collect()
    }

    fn token_view(&self, token: &Token) -> TokenView {
        let permissions = match &token.permissions {
            Permissions::NotApplicable => BTreeMap::new(),
            Permissions::All => BTreeMap::from([("*", "admin")]),
            Permissions::Only(granted) => {
                granted.iter().map(|(name, level)| (*name, level.into_str())).collect()
            }
        };
        TokenView {
            token: token.value.clone(),
            account: self.account_name(self.payer(token)),
            kind: kind_name(token.kind),
            user: token.user.map(|user| self.login(user).to_owned()),
            scopes: token.scopes.clone(),
            permissions,
            note: token.note,
        }
    }
}

/// A token as `/_emulator/world` shows it, with its secret, which is made up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenView {
    /// The secret, to be sent as `Authorization: Bearer`; for an OAuth app
    /// `CLIENT_ID:CLIENT_SECRET`.
    pub token: String,
    /// The name of the account that pays.
    pub account: String,
    /// `classic`, `fine-grained`, `oauth`, `app-user`, `installation`, `workflow` or `basic`.
    pub kind: &'static str,
    /// The login of its user.
    pub user: Option<String>,
    /// OAuth scopes, of classic and OAuth tokens.
    pub scopes: Vec<&'static str>,
    /// Name to `read` or `write`; `*` stands for every permission.
    pub permissions: BTreeMap<&'static str, &'static str>,
    /// The purpose of the token.
    pub note: &'static str,
}
