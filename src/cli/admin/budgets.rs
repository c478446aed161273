//! `weir budgets`: problems first, then every account with what is left of its budgets, from a
//! running gateway.
//!
//! Pure text from the admin API's answer, so that a terminal, a pager and a ticket show the same.
//! Times are relative to the gateway's own clock: "in 12 min" is true even if the operator's clock
//! is wrong.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::api::{AdminApi, Fault, GatewayOptions, WatchOptions};
use super::{paint, plain};
use crate::admin::budgets::{
    AccountBudgets, Budgets as Snapshot, RefreshProblem, Refreshed, ResourceBudget,
};
use crate::cli::counted;

/// Characters of a full bar.
const BAR: usize = 20;

/// Problem of an account; greater is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Severity {
    None,
    Exhausted,
    Closed,
    Token,
}

#[derive(Default)]
struct Row {
    account: String,
    resource: String,
    left: String,
    in_flight: String,
    whole: String,
}

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Budgets {
    #[command(flatten)]
    watch: WatchOptions,
    #[command(flatten)]
    options: GatewayOptions,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Ask the upstream for the state of the budgets at once, which is free
    Refresh {
        /// The account; all without it
        account: Option<String>,
        #[command(flatten)]
        options: GatewayOptions,
    },
}

impl Budgets {
    pub fn run(self) -> ExitCode {
        match self.action {
            None => {
                let GatewayOptions { gateway, json } = self.options;
                gateway.run_watched("weir budgets", self.watch, &async |api| fetch(api, json).await)
            }
            Some(Action::Refresh { account, options: GatewayOptions { gateway, json } }) => {
                gateway.run("weir budgets refresh", async |api| refresh(api, account, json).await)
            }
        }
    }
}

/// Refreshes the budgets, and shows them.
async fn refresh(api: &AdminApi, account: Option<String>, json: bool) -> Result<String, Fault> {
    let request = serde_json::json!({ "account": account });
    let body = api.post("/api/budgets/refresh", &request).await?;
    let mismatch = "its answer is not about budgets";
    let refreshed = api.printed(&body, json, mismatch, refreshed)?;
    if json { Ok(refreshed) } else { Ok(refreshed + &fetch(api, false).await?) }
}

fn refreshed(answer: &Refreshed) -> String {
    let answered = answer.asked.saturating_sub(answer.problems.len()) as u64;
    let mut text =
        format!("{} asked, {answered} answered\n", counted(answer.asked as u64, "account"));
    for RefreshProblem { account, problem } in &answer.problems {
        let _ = writeln!(text, "  {}: {}", plain(account), plain(problem));
    }
    text.push('\n');
    text
}

async fn fetch(api: &AdminApi, json: bool) -> Result<String, Fault> {
    let body = api.get("/api/budgets").await?;
    let mismatch = "its answer is not the books of a gateway";
    api.printed(&body, json, mismatch, |answer: &Snapshot| render(answer, &api.address))
}

fn render(budgets: &Snapshot, address: &str) -> String {
    let mut accounts: Vec<&AccountBudgets> = budgets.accounts.iter().collect();
    accounts.sort_by_key(|account| (Reverse(severity(account)), least_left(account)));
    let mut text = format!(
        "weir at {address}, {}: {}, {} waiting\n",
        plain(&budgets.now_iso),
        counted(budgets.accounts.len() as u64, "account"),
        counted(budgets.waiting, "request")
    );
    if let Some(replicas) = &budgets.replicas {
        let _ = writeln!(text, "one of {}", counted(replicas.heard as u64, "replica"));
    }
    let unshared = budgets.replicas.iter().filter_map(|replicas| {
        let reason = plain(replicas.reason.as_deref()?);
        Some(match replicas.out_since {
            Some(since) => {
                let seconds = budgets.now.saturating_sub(since);
                format!("Redis is out of reach for {seconds} s: {reason}")
            }
            None => format!("Redis has not been reached yet: {reason}"),
        })
    });
    let down = budgets.upstreams.iter().filter_map(|upstream| {
        let since = budgets.now.saturating_sub(upstream.down_since?);
        let upstream = plain(&upstream.upstream);
        Some(format!("{upstream}: the upstream is down for {since} s; only probes are sent"))
    });
    let complaints: Vec<String> = unshared
        .chain(down)
        .chain(accounts.iter().flat_map(|account| complaints(account, budgets.now)))
        .collect();
    if !complaints.is_empty() {
        let _ = writeln!(text, "\n{}", paint::bad("needs attention"));
        for complaint in complaints {
            let _ = writeln!(text, "  {complaint}");
        }
    }
    text.push('\n');
    let heading = Row {
        account: "account".into(),
        resource: "resource".into(),
        left: "left".into(),
        in_flight: "in flight".into(),
        whole: "whole again".into(),
    };
    let rows = accounts.into_iter().flat_map(|account| rows(account, budgets.now));
    aligned(&std::iter::once(heading).chain(rows).collect::<Vec<_>>(), &mut text);
    text
}

fn severity(account: &AccountBudgets) -> Severity {
    let is_full = account.secondary.iter().any(|limit| limit.in_use >= limit.max);
    if account.tokens.iter().any(|token| !token.healthy) {
        Severity::Token
    } else if account.cooldown_until.is_some() {
        Severity::Closed
    } else if is_full || account.resources.iter().any(|budget| is_exhausted(account, budget)) {
        Severity::Exhausted
    } else {
        Severity::None
    }
}

fn complaints(account: &AccountBudgets, now: u64) -> Vec<String> {
    let name = plain(&account.account);
    let tokens = account.tokens.iter().filter(|token| !token.healthy).map(|token| {
        let reason = plain(token.reason.as_deref().unwrap_or(&token.state));
        format!("{name}: token {} is {reason}", plain(&token.token))
    });
    let closed = account.cooldown_until.map(|until| {
        let opens = when(until, now);
        format!("{name}: closed, the upstream refused it for a secondary limit; opens {opens}")
    });
    let kept = match account.reserve {
        0 => String::new(),
        reserve => format!(" but for the reserve of {reserve}"),
    };
    let exhausted = account.resources.iter().filter(|budget| is_exhausted(account, budget));
    let exhausted = exhausted.map(|budget| {
        let (resource, whole) = (plain(&budget.resource), when(budget.reset, now));
        format!("{name}: {resource} is used up{kept}; whole again {whole}")
    });
    let full = account.secondary.iter().filter(|limit| limit.in_use >= limit.max);
    let full = full.map(|limit| {
        format!("{name}: {} is full, {} of {}", plain(&limit.limit), limit.in_use, limit.max)
    });
    tokens.chain(closed).chain(exhausted).chain(full).collect()
}

/// Returns true if nothing more is admitted: the rest is in flight or reserved.
fn is_exhausted(account: &AccountBudgets, budget: &ResourceBudget) -> bool {
    budget.remaining <= budget.reserved.saturating_add(account.reserve)
}

/// Returns the smallest share left of any of its budgets, in thousandths.
fn least_left(account: &AccountBudgets) -> u64 {
    account.resources.iter().map(|budget| share(budget, 1_000)).min().unwrap_or(1_000)
}

/// Returns what is left in parts of `whole`, rounded down: a used budget never shows as full.
fn share(budget: &ResourceBudget, whole: u64) -> u64 {
    (u64::from(budget.remaining) * whole)
        .checked_div(u64::from(budget.limit))
        .unwrap_or(0)
        .min(whole)
}

fn rows(account: &AccountBudgets, now: u64) -> Vec<Row> {
    let mut rows: Vec<Row> = account
        .resources
        .iter()
        .map(|budget| Row {
            resource: plain(&budget.resource),
            left: left(budget),
            in_flight: budget.reserved.to_string(),
            whole: if budget.known {
                let gone = budget.gone_at.filter(|_| budget.remaining > 0);
                let gone = gone.map(|at| paint::warning(&format!(", gone {}", when(at, now))));
                when(budget.reset, now) + &gone.unwrap_or_default()
            } else {
                "presumed, not asked yet in this window".into()
            },
            ..Row::default()
        })
        .collect();
    if rows.is_empty() {
        let left = "nothing asked yet".into();
        rows.push(Row { resource: "-".into(), left, ..Row::default() });
    }
    let used: Vec<String> = account
        .secondary
        .iter()
        .filter(|limit| limit.in_use > 0)
        .map(|limit| format!("{} {}/{}", plain(&limit.limit), limit.in_use, limit.max))
        .collect();
    if !used.is_empty() {
        rows.push(Row { resource: "secondary".into(), left: used.join(", "), ..Row::default() });
    }
    rows[0].account = plain(&account.account);
    rows
}

fn left(budget: &ResourceBudget) -> String {
    let filled = usize::try_from(share(budget, BAR as u64)).unwrap_or(BAR);
    let bar = "#".repeat(filled) + &".".repeat(BAR - filled);
    format!("{bar} {:>3} %  {} of {}", share(budget, 100), budget.remaining, budget.limit)
}

/// Formats a time relative to now.
fn when(at: u64, now: u64) -> String {
    match at.saturating_sub(now) {
        0 => "now".into(),
        secs @ 1..120 => format!("in {secs} s"),
        secs @ 120..7_200 => format!("in {} min", secs.div_ceil(60)),
        secs => format!("in {} h {} min", secs / 3_600, secs % 3_600 / 60),
    }
}

fn aligned(rows: &[Row], text: &mut String) {
    let width = |cell: fn(&Row) -> &String| {
        rows.iter().map(|row| cell(row).chars().count()).max().unwrap_or(0)
    };
    let budgets = |row: &&Row| row.resource != "secondary";
    let left_width =
        rows.iter().filter(budgets).map(|row| row.left.chars().count()).max().unwrap_or(0);
    let (account, resource, in_flight) =
        (width(|row| &row.account), width(|row| &row.resource), width(|row| &row.in_flight));
    for row in rows {
        let line = format!(
            "{:account$}  {:resource$}  {:left_width$}  {:>in_flight$}  {}",
            row.account, row.resource, row.left, row.in_flight, row.whole
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admin::budgets::{SecondaryUse, TokenState, UpstreamState};

    const NOW: u64 = 1_800_000_000;

    fn account(name: &str, remaining: u32) -> AccountBudgets {
        AccountBudgets {
            account: name.into(),
            reserve: 0,
            cooldown_until: None,
            cooldown_until_iso: None,
            resources: vec![core(remaining)],
            secondary: vec![SecondaryUse { limit: "concurrency".into(), in_use: 0, max: 100 }],
            tokens: vec![TokenState {
                token: "0".into(),
                healthy: true,
                state: "healthy".into(),
                reason: None,
                rejected_since_iso: None,
            }],
        }
    }

    fn core(remaining: u32) -> ResourceBudget {
        ResourceBudget {
            resource: "core".into(),
            known: true,
            limit: 5_000,
            remaining,
            reserved: 3,
            used: 5_000 - remaining,
            reset: NOW + 700,
            reset_iso: String::new(),
            gone_at: None,
            gone_at_iso: None,
        }
    }

    fn rendered(accounts: Vec<AccountBudgets>) -> String {
        let snapshot = Snapshot {
            now: NOW,
            now_iso: "2027-01-15T08:00:00Z".into(),
            waiting: 2,
            upstreams: Vec::new(),
            replicas: None,
            accounts,
        };
        paint::bare(&render(&snapshot, "127.0.0.1:9090"))
    }

    #[test]
    fn an_upstream_that_is_down_needs_attention() {
        let upstream = |state: &str, down_since| UpstreamState {
            upstream: "https://api.example.com".into(),
            state: state.into(),
            down_since,
            down_since_iso: None,
        };
        let of = |upstreams| Snapshot {
            now: NOW,
            now_iso: String::new(),
            replicas: None,
            waiting: 0,
            upstreams,
            accounts: Vec::new(),
        };
        let text = render(&of(vec![upstream("down", Some(NOW - 90))]), "127.0.0.1:9090");
        assert!(text.contains(&paint::bad("needs attention")), "{text:?}");
        let text = paint::bare(&text);
        let line = "needs attention\n  https://api.example.com: the upstream is down for 90 s;";
        assert!(text.contains(line), "{text}");
        let text = render(&of(vec![upstream("suspected", None)]), "127.0.0.1:9090");
        assert!(!text.contains("needs attention"), "{text}");
    }

    #[test]
    fn a_budget_shows_its_units_left_and_its_reset() {
        let text = rendered(vec![account("build-bot", 2_500)]);
        let expected = "weir at 127.0.0.1:9090, 2027-01-15T08:00:00Z: 1 account, 2 requests waiting\n\
            \n\
            account    resource  left                                      in flight  whole again\n\
            build-bot  core      ##########..........  50 %  2500 of 5000          3  in 12 min\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn accounts_are_sorted_by_severity() {
        let mut unhealthy = account("revoked", 5_000);
        unhealthy.tokens[0] = TokenState {
            token: "4".into(),
            healthy: false,
            state: "benched".into(),
            reason: Some("benched for 300 s: 401 Bad credentials".into()),
            rejected_since_iso: None,
        };
        let mut closed = account("closed", 5_000);
        closed.cooldown_until = Some(NOW + 48);
        let text = rendered(vec![
            account("full", 5_000),
            account("low", 10),
            closed,
            account("empty", 3),
            unhealthy,
        ]);
        let positions: Vec<usize> = ["\nrevoked ", "\nclosed ", "\nempty ", "\nlow ", "\nfull "]
            .iter()
            .map(|name| text.find(name).expect("it is listed"))
            .collect();
        assert!(positions.is_sorted(), "{text}");
        assert!(
            text.contains("  revoked: token 4 is benched for 300 s: 401 Bad credentials\n"),
            "{text}"
        );
        assert!(
            text.contains(
                "  closed: closed, the upstream refused it for a secondary limit; opens in 48 s\n"
            ),
            "{text}"
        );
        assert!(text.contains("  empty: core is used up; whole again in 12 min\n"), "{text}");
        assert!(!text.contains("  low: "), "{text}");
    }

    #[test]
    fn a_budget_that_does_not_last_says_when_it_is_gone() {
        let mut spent = account("bot", 1_000);
        spent.resources[0].gone_at = Some(NOW + 300);
        let text = rendered(vec![spent]);
        assert!(text.contains("in 12 min, gone in 5 min\n"), "{text}");
    }

    #[test]
    fn a_presumed_budget_is_not_shown_as_known() {
        let mut fresh = account("fresh", 5_000);
        fresh.resources[0].known = false;
        let mut idle = account("idle", 5_000);
        idle.resources.clear();
        let text = rendered(vec![fresh, idle]);
        assert!(
            text.contains("presumed, not asked yet")
                && text.contains("idle     -         nothing asked yet\n"),
            "{text}"
        );
    }

    #[test]
    fn used_secondary_limits_are_shown_and_full_ones_reported() {
        let mut busy = account("busy", 5_000);
        busy.secondary = vec![
            SecondaryUse { limit: "concurrency".into(), in_use: 100, max: 100 },
            SecondaryUse { limit: "points".into(), in_use: 12, max: 900 },
            SecondaryUse { limit: "content_per_hour".into(), in_use: 0, max: 500 },
        ];
        let text = rendered(vec![busy]);
        assert!(text.contains("busy: concurrency is full, 100 of 100\n"), "{text}");
        assert!(
            text.contains("secondary  concurrency 100/100, points 12/900\n")
                && !text.contains("content_per_hour"),
            "{text}"
        );
    }

    #[test]
    fn a_name_from_upstream_cannot_control_the_terminal() {
        let mut odd = account("odd", 5_000);
        odd.resources[0].resource = "core\u{1b}[2J\n".into();
        assert!(
            rendered(vec![odd])
                .chars()
                .all(|character| character == '\n' || !character.is_control())
        );
    }

    #[test]
    fn a_time_is_shown_in_a_suitable_unit() {
        let details: Vec<String> = [0, 1, 119, 120, 700, 7_199, 7_200, 86_399]
            .iter()
            .map(|after| when(NOW + after, NOW))
            .collect();
        assert_eq!(
            details,
            [
                "now",
                "in 1 s",
                "in 119 s",
                "in 2 min",
                "in 12 min",
                "in 120 min",
                "in 2 h 0 min",
                "in 23 h 59 min"
            ]
        );
        assert_eq!(when(NOW - 5, NOW), "now");
    }
}
