//! `weir replicas`: the parts of the limits that each replica holds, from a running gateway.

use std::process::ExitCode;

use clap::Args;

use super::api::{AdminApi, Fault, GatewayOptions, WatchOptions};
use super::plain;
use super::table::table;
use crate::admin::replicas::{Fleet, PartHeld};
use crate::cli::counted;

#[derive(Args)]
pub struct Replicas {
    #[command(flatten)]
    watch: WatchOptions,
    #[command(flatten)]
    options: GatewayOptions,
}

impl Replicas {
    pub fn run(self) -> ExitCode {
        let GatewayOptions { gateway, json } = self.options;
        gateway.run_watched("weir replicas", self.watch, &async |api| fetch(api, json).await)
    }
}

async fn fetch(api: &AdminApi, json: bool) -> Result<String, Fault> {
    let body = api.get("/api/replicas").await?;
    api.printed(&body, json, "its answer is not about replicas", |fleet: &Fleet| {
        render(fleet, &api.address)
    })
}

fn render(fleet: &Fleet, address: &str) -> String {
    let own = &fleet.replicas;
    let mut text = format!(
        "replica {} at {address}: {} heard, Redis is {}\n\n",
        plain(&own.replica),
        counted(own.heard as u64, "replica"),
        plain(&own.redis).replace('_', " "),
    );
    let heading = ["account", "limit", "replica", "held", "in use", "wants", "reported"];
    let rows = fleet.accounts.iter().flat_map(|account| {
        let is_shown = |part: &&PartHeld| part.held > 0 || part.wants > 0;
        account.parts.iter().filter(is_shown).map(|part| {
            let mark = if part.replica == own.replica { " (this one)" } else { "" };
            [
                plain(&account.account),
                plain(&part.limit),
                format!("{}{mark}", plain(&part.replica)),
                part.held.to_string(),
                part.in_use.to_string(),
                part.wants.to_string(),
                part.reported_before
                    .map_or_else(|| "has left".to_owned(), |seconds| format!("{seconds} s ago")),
            ]
        })
    });
    table(heading, &(3..6), rows, &mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::super::paint::bare;
    use super::*;
    use crate::admin::replicas::{AccountParts, Replicas};

    fn part(limit: &str, replica: &str, held: u32, reported_before: Option<u64>) -> PartHeld {
        let (limit, replica) = (limit.to_owned(), replica.to_owned());
        PartHeld { limit, replica, held, in_use: 3, wants: 0, reported_before }
    }

    #[test]
    fn each_part_has_a_line_with_its_holder() {
        let parts = vec![
            part("budget core", "0a", 120, Some(0)),
            part("budget core", "0b", 7, None),
            part("concurrency", "0b", 0, Some(9)),
        ];
        let fleet = Fleet {
            replicas: Replicas {
                replica: "0a".into(),
                since: 1,
                heard: 2,
                redis: "in_reach".into(),
                out_since: None,
                reason: None,
            },
            accounts: vec![AccountParts { account: "bot".into(), parts }],
        };
        let expected = "replica 0a at 127.0.0.1:9090: 2 replicas heard, Redis is in reach\n\
            \n\
            account  limit        replica        held  in use  wants  reported\n\
            bot      budget core  0a (this one)   120       3      0  0 s ago\n\
            bot      budget core  0b                7       3      0  has left\n";
        assert_eq!(bare(&render(&fleet, "127.0.0.1:9090")), expected);
    }
}
