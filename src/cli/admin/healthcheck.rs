//! `weir healthcheck`: the health of a running gateway as an exit code, for the runtime of
//! containers, which have no HTTP client.

use std::process::ExitCode;

use clap::Args;

use super::api::{AdminApi, AdminArguments, Fault};
use super::visible;
use crate::cli::process::FAILED;

/// First line of a healthy answer.
const HEALTHY: &str = "ok";

#[derive(Args)]
pub struct Healthcheck {
    #[command(flatten)]
    gateway: AdminArguments,
    /// Ask only if the process answers (`/healthz`), not if it is ready for requests (`/readyz`)
    #[arg(long)]
    live: bool,
}

impl Healthcheck {
    /// Returns 0 or 1: runtimes of containers reserve 2, which other commands return for a bad
    /// config.
    pub fn run(self) -> ExitCode {
        let path = if self.live { "/healthz" } else { "/readyz" };
        let code = self.gateway.run("weir healthcheck", async |api| health(api, path).await);
        if code == ExitCode::SUCCESS { code } else { FAILED.into() }
    }
}

async fn health(api: &AdminApi, path: &str) -> Result<String, Fault> {
    let body = api.get(path).await?;
    let text = String::from_utf8_lossy(&body);
    if text.lines().next() != Some(HEALTHY) {
        return Err(api.not_admin(&format_args!("it answers GET {path} with something else")));
    }
    Ok(text.lines().map(|line| visible(line) + "\n").collect())
}
