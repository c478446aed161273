//! `weir reload`: a running gateway reads its config again.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;

use super::api::{AdminApi, Fault, GatewayOptions};
use super::plain;
use crate::admin::reload::ReloadReport;

#[derive(Args)]
pub struct Reload {
    #[command(flatten)]
    options: GatewayOptions,
}

impl Reload {
    pub fn run(self) -> ExitCode {
        let GatewayOptions { gateway, json } = self.options;
        gateway.run("weir reload", async |api| fetch(api, json).await)
    }
}

async fn fetch(api: &AdminApi, json: bool) -> Result<String, Fault> {
    let body = api.post("/api/reload", &serde_json::json!({})).await?;
    api.printed(&body, json, "its answer is not about a reload", render)
}

fn render(report: &ReloadReport) -> String {
    let mut text = plain(&report.message) + "\n";
    for key in &report.at_next_start {
        let _ = writeln!(text, "at the next start: {}", plain(key));
    }
    text
}
