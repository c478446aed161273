//! `weir budgets`: what is left of every account's budgets, from a running gateway.
//!
//! `table` formats the answer; `api` finds the gateway and fetches it.

use std::process::ExitCode;

use clap::Args;

use super::api::{AdminApi, Fault, GatewayOptions};
use super::table;
use crate::admin::budgets::Budgets as Answer;

#[derive(Args)]
pub struct Budgets {
    #[command(flatten)]
    options: GatewayOptions,
}

impl Budgets {
    pub fn run(self) -> ExitCode {
        let GatewayOptions { gateway, json } = self.options;
        gateway.ask("weir budgets", async |api| ask(api, json).await)
    }
}

async fn ask(api: &AdminApi, json: bool) -> Result<String, Fault> {
    let body = api.get("/api/budgets").await?;
    let mismatch = "its answer is not the books of a gateway";
    api.printed(&body, json, mismatch, |answer: &Answer| table::render(answer, &api.address))
}
