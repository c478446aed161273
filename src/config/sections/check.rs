//! Rules that concern more than one section.

use super::accounts::Account;
use super::apps::Apps;
use super::passthrough::PASSTHROUGH_ACCOUNT;
use super::tokens::Tokens;
use crate::api::AccountKind;
use crate::config::input::declared::Declared;
use crate::config::input::reader::Reader;

/// Keeps the name of clients' own credentials unambiguous.
pub(crate) fn check_names(root: &Reader<'_>, accounts: &Declared<Account>) {
    for index in 0..accounts.len() {
        if accounts.get(index).is_some_and(|account| *account.name == *PASSTHROUGH_ACCOUNT) {
            let problem = format!(
                "the name `{PASSTHROUGH_ACCOUNT}` is that of clients' own credentials, which [passthrough] enables"
            );
            root.refuse_item("accounts", index, problem, "another name");
        }
    }
}

/// Requires a credential for every account but an anonymous one.
pub(crate) fn check_credentials(
    root: &Reader<'_>,
    accounts: &Declared<Account>,
    tokens: &Tokens,
    apps: &Apps,
) {
    if root.lacks_files() {
        return;
    }
    for index in 0..accounts.len() {
        let Some(account) = accounts.get(index) else { continue };
        let (has_none, problem, accepted) = match account.kind {
            AccountKind::Anonymous => continue,
            AccountKind::App => (
                apps.none_pays_with(index),
                "the account has no credential",
                "an entry in [[apps]] whose account it is",
            ),
            AccountKind::Installation => (
                tokens.has_none(index) && apps.mint_none_for(index),
                "the account has no token",
                "an entry in [[tokens]], or an installation in [[apps]]",
            ),
            _ => (tokens.has_none(index), "the account has no token", "an entry in [[tokens]]"),
        };
        if has_none {
            root.refuse_item("accounts", index, problem, accepted);
        }
    }
}
