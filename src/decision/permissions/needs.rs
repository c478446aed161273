//! The message when no account may send a request: the missing permission, for the client and its
//! operator.
//!
//! It only uses the endpoint table and the config. Unknown facts exclude no account and are never a
//! reason. Routes marked \[M\] in the permission matrix take more than the named permission.

use std::fmt::Write as _;

use crate::api::{AccountKind, Endpoint, TokenKind};

/// Most accounts that are named. Ours: enough to see the mistake; a pool can have thousands.
const NAMED_MAX: usize = 5;

#[derive(Clone, Debug)]
pub struct AccountTokens<'c> {
    /// Name in the config.
    pub name: &'c str,
    pub kind: AccountKind,
    pub tokens: Vec<TokenKind>,
    /// True when the endpoint takes one of them.
    pub accepted: bool,
    /// True when its `reach` covers the path.
    pub reaches: bool,
}

/// Returns the reason why none of these accounts may send a request to this endpoint. `named` is
/// the owner or repository in the path: `acme`, `acme/widgets`.
pub fn unmet(endpoint: &Endpoint, named: &str, accounts: &[AccountTokens<'_>]) -> String {
    let reaching: Vec<&AccountTokens<'_>> =
        accounts.iter().filter(|account| account.reaches).collect();
    let call = format!("{} {}", endpoint.method, endpoint.template);
    if reaching.is_empty() {
        let mut reason = format!("no account of this client reaches {named}");
        if !accounts.iter().any(|account| account.accepted) {
            let all: Vec<&AccountTokens<'_>> = accounts.iter().collect();
            let _ = write!(
                reason,
                ", nor may one call {call}: {}; {}",
                needed(endpoint),
                available_tokens(&all)
            );
        }
        return reason;
    }
    let those = if reaching.len() < accounts.len() {
        format!("that reaches {named} ")
    } else {
        String::new()
    };
    format!(
        "no account of this client {those}may call {call}: {}; {}",
        needed(endpoint),
        available_tokens(&reaching)
    )
}

fn needed(endpoint: &Endpoint) -> String {
    let kinds_with = |wanted| {
        TokenKind::ALL.into_iter().filter(move |kind| endpoint.tokens.accepts(*kind) == wanted)
    };
    if kinds_with(Some(true)).next().is_none() && endpoint.tokens.accepts_app_jwt() == Some(true) {
        return "it needs an app's own credential (a JWT), so an account of kind app with an entry in [[apps]]".into();
    }
    // Where some kinds are accepted, the unspecified ones may work or not.
    let named: Vec<TokenKind> = kinds_with(Some(true)).collect();
    let kinds = if named.is_empty() { kinds_with(None).collect() } else { named };
    let mut text = format!("it needs {} token", one_of(&kinds));
    if let Some(permission) = &endpoint.permission {
        let _ = write!(text, " with the permission {permission}");
        for other in &endpoint.other_permissions {
            let _ = write!(text, " or {other}");
        }
        if endpoint.several_permissions {
            text.push_str(" (it can take more than one)");
        }
    }
    if !endpoint.scopes.is_empty()
        && kinds.iter().any(|kind| matches!(kind, TokenKind::Classic | TokenKind::Oauth))
    {
        let _ = write!(
            text,
            ", for classic and oauth tokens with one of the scopes {}",
            endpoint.scopes.join(", ")
        );
    }
    if endpoint.uat_only {
        text.push_str(" (of an app's two tokens only the user's, not the installation's)");
    }
    text
}

fn one_of(kinds: &[TokenKind]) -> String {
    let words: Vec<String> =
        kinds.iter().map(|kind| kind.as_str().replace("app-user", "app user")).collect();
    let article = if words.first().is_some_and(|word| word.starts_with(['a', 'o', 'i'])) {
        "an"
    } else {
        "a"
    };
    match words.as_slice() {
        [] => "another kind of".into(),
        [one] => format!("{article} {one}"),
        [many @ .., last] => format!("{article} {} or {last}", many.join(", ")),
    }
}

fn available_tokens(accounts: &[&AccountTokens<'_>]) -> String {
    let held = |account: &&AccountTokens<'_>| {
        let mut kinds: Vec<&str> = account.tokens.iter().map(|kind| kind.as_str()).collect();
        kinds.dedup();
        let kinds = match (kinds.as_slice(), account.kind) {
            ([], AccountKind::App) => "only its JWT".to_owned(),
            ([], AccountKind::Installation) => TokenKind::Installation.as_str().to_owned(),
            ([], _) => "no token".to_owned(),
            (kinds, _) => kinds.join(" and "),
        };
        format!("{} has {kinds}", account.name)
    };
    let named: Vec<String> = accounts.iter().take(NAMED_MAX).map(held).collect();
    let more = accounts.len().saturating_sub(NAMED_MAX);
    if more == 0 {
        named.join(", ")
    } else {
        format!("{}, and {more} more have no better", named.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;
    use crate::api::{Dialect, Table};

    fn reason(method: &Method, path: &str, accounts: &[AccountTokens<'_>]) -> String {
        let endpoint = Table::embedded(Dialect::Service).classify(method, path).endpoint;
        unmet(endpoint, "acme", accounts)
    }

    fn held<'c>(name: &'c str, kind: AccountKind, tokens: &[TokenKind]) -> AccountTokens<'c> {
        AccountTokens { name, kind, tokens: tokens.to_vec(), accepted: false, reaches: true }
    }

    #[test]
    fn a_missing_token_kind_is_named_with_its_permission() {
        let basic = held("build-app", AccountKind::OauthApp, &[TokenKind::Basic]);
        assert_eq!(
            reason(&Method::GET, "/orgs/acme/actions/runners", &[basic]),
            "no account of this client may call GET /orgs/{org}/actions/runners: it needs an app user or installation token with the permission \
             org/self_hosted_runners:read; build-app has basic"
        );
    }

    #[test]
    fn the_reason_for_a_user_only_route_excludes_installations() {
        let installation = held("acme-app", AccountKind::Installation, &[]);
        let reason = reason(&Method::PUT, "/orgs/acme/public_members/ada", &[installation]);
        assert!(
            reason.contains("it needs an app user token with the permission org/members:write"),
            "{reason}"
        );
        assert!(
            reason.contains("only the user's, not the installation's")
                && reason.ends_with("acme-app has installation"),
            "{reason}"
        );
    }

    #[test]
    fn an_app_only_route_names_the_jwt() {
        let classic =
            held("build-bot", AccountKind::User, &[TokenKind::Classic, TokenKind::Classic]);
        let reason = reason(&Method::GET, "/app/hook/config", &[classic]);
        assert!(
            reason.contains("an app's own credential (a JWT)")
                && reason.ends_with("build-bot has classic"),
            "{reason}"
        );
    }

    #[test]
    fn missing_reach_is_reported_apart_from_a_missing_kind() {
        let account = |accepted, reaches| AccountTokens {
            accepted,
            reaches,
            ..held("bot", AccountKind::User, &[TokenKind::Classic])
        };
        assert_eq!(
            reason(&Method::GET, "/orgs/acme", &[account(true, false)]),
            "no account of this client reaches acme"
        );
        let neither = reason(&Method::GET, "/orgs/acme/actions/runners", &[account(false, false)]);
        assert!(
            neither.starts_with("no account of this client reaches acme, nor may one call GET /orgs/{org}/actions/runners: "),
            "{neither}"
        );
        let half = reason(
            &Method::GET,
            "/orgs/acme/actions/runners",
            &[account(false, true), account(true, false)],
        );
        assert!(
            half.starts_with("no account of this client that reaches acme may call GET "),
            "{half}"
        );
    }

    #[test]
    fn a_reason_lists_at_most_five_accounts() {
        let accounts: Vec<_> =
            (0..8).map(|_| held("bot", AccountKind::User, &[TokenKind::Classic])).collect();
        let reason = reason(&Method::GET, "/orgs/acme/teams/t/repos/acme/widgets", &accounts);
        assert!(
            reason.contains("(it can take more than one)")
                && reason.ends_with("and 3 more have no better"),
            "{reason}"
        );
    }
}
