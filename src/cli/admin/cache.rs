//! `weir cache`: the store of a running gateway; `weir cache purge PREFIX` removes some of its
//! answers, `weir cache advise` prints rules worth having.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::advise;
use super::api::{AdminApi, Fault, GatewayOptions};
use crate::admin::cache::{Figures, Part, Purged};
use crate::cli::counted;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Cache {
    #[command(flatten)]
    options: GatewayOptions,
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Subcommand)]
enum Action {
    /// Take out the stored answers whose path begins with PREFIX, for every client
    Purge {
        /// The beginning of the paths, such as /repos/acme/; / is everything
        prefix: String,
        #[command(flatten)]
        options: GatewayOptions,
    },
    /// Print cache rules worth having, by the requests that were sent upstream
    ///
    /// Each rule is judged by a replay of those requests: what it would have saved alone, and how
    /// many of its answers would have been outdated. The running gateway counts from its start;
    /// --log replays a recorded access log (the gateway's JSON log) instead, and asks no gateway.
    Advise {
        /// The requests of this access log instead of those of a running gateway
        #[arg(long, value_name = "FILE", conflicts_with = "admin")]
        log: Option<PathBuf>,
        #[command(flatten)]
        options: GatewayOptions,
    },
}

impl Cache {
    pub fn run(self) -> ExitCode {
        let (options, prefix) = match self.action {
            Some(Action::Purge { prefix, options }) => (options, Some(prefix)),
            Some(Action::Advise { log: Some(log), options }) => {
                return advise::print_of_log(&log, &options);
            }
            Some(Action::Advise { log: None, options }) => {
                let json = options.json;
                let fetch = async |api: &AdminApi| advise::fetch(api, json).await;
                return options.gateway.run("weir cache advise", fetch);
            }
            None => (self.options, None),
        };
        options.gateway.run("weir cache", async |api| fetch(api, prefix, options.json).await)
    }
}

async fn fetch(api: &AdminApi, prefix: Option<String>, json: bool) -> Result<String, Fault> {
    let mismatch = "its answer is not about a cache";
    match prefix {
        Some(prefix) => {
            let request = serde_json::json!({ "prefix": prefix });
            let body = api.post("/api/cache/purge", &request).await?;
            api.printed(&body, json, mismatch, details)
        }
        None => api.printed(&api.get("/api/cache").await?, json, mismatch, table),
    }
}

fn details(purged: &Purged) -> String {
    let answers = counted(purged.entries, "stored answer");
    format!("{answers} below {} taken out, {}\n", purged.prefix, mib(purged.bytes))
}

fn table(figures: &Figures) -> String {
    let mut text = format!(
        "{} stored answers, {} of {}; {} thrown out to make room\n",
        figures.entries,
        mib(figures.bytes),
        mib(figures.max_bytes),
        figures.evictions
    );
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{} on disk; temporary files {} of {}; {} thrown out to make room",
        figures.files.entries,
        mib(figures.files.bytes),
        mib(figures.files.max_bytes),
        figures.files.evictions
    );
    let answers: Vec<_> =
        figures.answers.iter().map(|(cache, count)| format!("{count} {cache}")).collect();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "answers since the start: {}",
        if answers.is_empty() { "none".into() } else { answers.join(", ") }
    );
    for (title, parts) in [("view of", &figures.scopes), ("path", &figures.prefixes)] {
        if !parts.is_empty() {
            text.push_str(&part_table(title, parts));
        }
    }
    text
}

fn part_table(title: &str, parts: &[Part]) -> String {
    let names = parts.iter().map(|part| part.name.chars().count());
    let width = names.max().unwrap_or_default().max(title.len());
    let mut text = format!("\n{title:width$}  {:>9}  {:>12}\n", "answers", "bytes");
    for part in parts {
        let _ = writeln!(text, "{:width$}  {:>9}  {:>12}", part.name, part.entries, part.bytes);
    }
    text
}

fn mib(bytes: u64) -> String {
    // Rounds down to tenths of a MiB.
    let tenths = bytes.saturating_mul(10) / (1024 * 1024);
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}
