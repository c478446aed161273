//! `GET /api/replicas`: the parts of the limits that each replica holds, and the reach of Redis.

use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{Reply, pages};
use crate::clock::{Timestamp, timer_now};
use crate::decision::fleet::{HeldPart, ReplicaId};
use crate::gateway::Gateway;
use crate::state::{Reach, Replica};

/// The replicas, as this one knows them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Replicas {
    /// This replica; as in `accounts`.
    pub replica: String,
    /// Start of this replica.
    pub since: u64,
    /// Replicas that were heard in the last seconds, with this one.
    pub heard: usize,
    /// `in_reach`, `never_reached` or `out_of_reach`.
    pub redis: String,
    /// Begin of the time out of reach; `null` otherwise.
    pub out_since: Option<u64>,
    /// The reason for which Redis is out of reach; `null` otherwise.
    pub reason: Option<String>,
}

/// The same with the accounts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fleet {
    #[serde(flatten)]
    pub replicas: Replicas,
    /// Accounts with a record in Redis, in the order of the config.
    pub accounts: Vec<AccountParts>,
}

/// The parts of an account's limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AccountParts {
    /// Name in the config.
    pub account: String,
    /// Sorted by limit, then replica.
    pub parts: Vec<PartHeld>,
}

/// A part of one limit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartHeld {
    /// A secondary limit, or `budget` and its resource.
    pub limit: String,
    pub replica: String,
    /// Amount that it holds, in the limit's own unit.
    pub held: u32,
    /// Amount in use at its last report.
    pub in_use: u32,
    /// Amount that it wants beside.
    pub wants: u32,
    /// Time of its last report, in seconds before now; `null` for one that has left.
    pub reported_before: Option<u64>,
}

/// The state of this replica; `None`: the gateway is alone.
pub fn of(gateway: &Gateway) -> Option<Replicas> {
    let replica = gateway.env.replica.as_ref()?;
    let (redis, out_since, reason) = match replica.reach() {
        Reach::In => ("in_reach", None, None),
        Reach::Never(reason) => ("never_reached", None, Some(reason)),
        Reach::Out(since, reason) => ("out_of_reach", Some(since.as_secs()), Some(reason)),
    };
    Some(Replicas {
        replica: name(replica.id()),
        since: replica.since().as_secs(),
        heard: replica.peers.count(timer_now()),
        redis: redis.to_owned(),
        out_since,
        reason,
    })
}

/// Answers with the replicas and their parts.
pub async fn page(gateway: &Gateway) -> Reply {
    let (Some(replicas), Some(replica)) = (of(gateway), &gateway.env.replica) else {
        let message = "this gateway is alone: the config has no state.redis";
        let answer = serde_json::json!({ "message": message, "replicas": null });
        return pages::json(StatusCode::NOT_FOUND, &answer);
    };
    let mut accounts = Vec::new();
    let config = &gateway.env.config;
    for account in config.accounts.iter().filter(|account| !account.retired) {
        match parts(replica, &account.name).await {
            Ok(None) => {}
            Ok(Some(parts)) => {
                let account = account.name.to_string();
                accounts.push(AccountParts { account, parts });
            }
            Err(reason) => {
                let message = format!("Redis is out of reach: {reason}");
                return pages::error(StatusCode::SERVICE_UNAVAILABLE, &message);
            }
        }
    }
    pages::json(StatusCode::OK, &Fleet { replicas, accounts })
}

async fn parts(replica: &Replica, account: &str) -> Result<Option<Vec<PartHeld>>, String> {
    let (record, now) = replica.home().record(account).await.map_err(|away| away.to_string())?;
    let shown = |part: HeldPart| PartHeld {
        limit: part.limit,
        replica: name(part.replica),
        held: part.held,
        in_use: part.in_use,
        wants: part.wants,
        reported_before: part.reported_at.map(|at: Timestamp| now.since(at).as_secs()),
    };
    Ok(record.map(|record| {
        let mut parts: Vec<_> = record.parts().map(shown).collect();
        parts.sort_unstable_by(|one, other| {
            (&one.limit, &one.replica).cmp(&(&other.limit, &other.replica))
        });
        parts
    }))
}

fn name(id: ReplicaId) -> String {
    format!("{:016x}", id.0)
}
