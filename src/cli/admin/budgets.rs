//! `weir budgets`: what is left of every account's budgets, options of a running gateway (CONTRACT
//! §1).
//!
//! How the table looks is in `table`; how the gateway is found and options, in `admin_api`.

use std::process::ExitCode;

use clap::Args;

use super::api::{AdminApi, Fault, GatewayOptions};
use super::table;
use crate::admin::budgets::Budgets as Answer;

/// The arguments of `weir budgets`.
#[derive(Args)]
pub struct Budgets {
    #[command(flatten)]
    options: GatewayOptions,
}

impl Budgets {
    /// Asks once and prints.
    pub fn run(self) -> ExitCode {
        let GatewayOptions { gateway, json } = self.options;
        gateway.ask("weir budgets", async |api| ask(api, json).await)
    }
}

async fn ask(api: &AdminApi, json: bool) -> Result<String, Fault> {
    let body = api.get("/api/budgets").await?;
    // Also for `--json`: what is piped on should be what it is taken for.
    let answer: Answer = serde_json::from_slice(&body)
        .map_err(|_| api.not_admin(&"its answer is not the books of a gateway"))?;
    Ok(if json {
        String::from_utf8_lossy(&body).into_owned() + "\n"
    } else {
        table::render(&answer, &api.address)
    })
}
