//! `weir tokens`: the health of every token of a running gateway, those that do not work first.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;

use super::api::{AdminApi, Fault, GatewayOptions, WatchOptions};
use super::table::table;
use super::{paint, plain};
use crate::admin::budgets::{Budgets, TokenState};
use crate::cli::counted;

#[derive(Args)]
pub struct Tokens {
    #[command(flatten)]
    watch: WatchOptions,
    #[command(flatten)]
    options: GatewayOptions,
}

/// One token, as `--json` prints it.
#[derive(serde::Serialize)]
struct Owned<'b> {
    account: &'b str,
    #[serde(flatten)]
    token: &'b TokenState,
}

impl Tokens {
    pub fn run(self) -> ExitCode {
        let GatewayOptions { gateway, json } = self.options;
        gateway.run_watched("weir tokens", self.watch, &async |api| fetch(api, json).await)
    }
}

async fn fetch(api: &AdminApi, json: bool) -> Result<String, Fault> {
    let body = api.get("/api/budgets").await?;
    let budgets: Budgets = api.read(&body, "its answer is not about tokens")?;
    let mut tokens: Vec<Owned> = budgets
        .accounts
        .iter()
        .flat_map(|account| {
            let account_name = account.account.as_str();
            account.tokens.iter().map(move |token| Owned { account: account_name, token })
        })
        .collect();
    tokens.sort_by_key(|owned| owned.token.healthy);
    if json {
        return Ok(serde_json::json!({ "tokens": tokens }).to_string() + "\n");
    }
    Ok(render(&tokens, &api.address, &budgets.now_iso))
}

fn render(tokens: &[Owned], address: &str, now: &str) -> String {
    let broken = tokens.iter().filter(|owned| !owned.token.healthy).count() as u64;
    let mut text = String::new();
    let _ = writeln!(
        text,
        "weir at {address}, {}: {}, {broken} of them out of use\n",
        plain(now),
        counted(tokens.len() as u64, "token")
    );
    let heading = ["account", "token", "state", "rejected since", "reason"];
    let rows = tokens.iter().map(|Owned { account, token }| {
        [
            plain(account),
            plain(&token.token),
            if token.healthy { plain(&token.state) } else { paint::bad(&plain(&token.state)) },
            plain(token.rejected_since_iso.as_deref().unwrap_or("-")),
            plain(token.reason.as_deref().unwrap_or("-")),
        ]
    });
    table(heading, &(0..0), rows, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_do_not_work_say_since_when() {
        let token = |healthy, since: Option<&str>, reason: Option<&str>| TokenState {
            token: "0".into(),
            healthy,
            state: if healthy { "healthy" } else { "benched" }.into(),
            reason: reason.map(str::to_owned),
            rejected_since_iso: since.map(str::to_owned),
        };
        let broken = token(false, Some("2026-11-28T03:12:05Z"), Some("401 Bad credentials"));
        let works = token(true, None, None);
        let tokens =
            [Owned { account: "bot-2", token: &broken }, Owned { account: "bot", token: &works }];
        let expected = "weir at a:1, 2026-11-28T04:00:00Z: 2 tokens, 1 of them out of use\n\
            \n\
            account  token  state    rejected since        reason\n\
            bot-2    0      benched  2026-11-28T03:12:05Z  401 Bad credentials\n\
            bot      0      healthy  -                     -\n";
        let printed = render(&tokens, "a:1", "2026-11-28T04:00:00Z");
        assert_eq!(paint::bare(&printed), expected);
        assert!(printed.contains(&paint::bad("benched")), "{printed:?}");
    }
}
