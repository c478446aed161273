//! Rules that concern more than one section.

use super::accounts::Account;
use super::apps::Apps;
use super::passthrough::PASSTHROUGH_ACCOUNT;
use super::tokens::Tokens;
use crate::api::AccountKind;
use crate::config::input::declared::Declared;
use crate::config::input::reader::Reader;

/// Keeps the name of clients' own credentials unambiguous.
pub(in crate::config) fn check_names(root: &Reader<'_>, accounts: &Declared<Account>) {
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
pub(in crate::config) fn check_credentials(
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
